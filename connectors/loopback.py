"""Which hosts are this machine, and nobody else's business."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

_LOCAL_NAMES: Final = frozenset({"localhost", "ip6-localhost"})


def is_loopback(host: str) -> bool:
    """An address, or a name that can mean nothing else."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _LOCAL_NAMES
