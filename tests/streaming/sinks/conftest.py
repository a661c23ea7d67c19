"""Ports on loopback that nobody answers at."""

from __future__ import annotations

import socket
import warnings
from typing import TYPE_CHECKING

import pytest

with warnings.catch_warnings():
    # kafka-python reads its own schemas in a way that Python 3.11 (and no later one) warns of.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    import kafka

    assert kafka.KafkaProducer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Connections are taken and nothing is said."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]
