"""Real clusters for tests: the product's own lab, with every process ended whatever happens."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from tidestaff.streaming.jars import JarError, jars
from tidestaff.streaming.lab.cluster import Lab
from tidestaff.streaming.lab.plan import make_plan
from tidestaff.streaming.lab.releases import KRAFT, ZOOKEEPER, ZOOKEEPER_LOCK, release_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["CLUSTERS", "NODES", "Kind", "Lab", "need_jars", "running"]

NODES: Final = (1, 2, 3)


class Kind(NamedTuple):
    """A release and how its metadata are kept."""

    version: str
    mode: str

    def __str__(self) -> str:
        return f"{self.version}-{self.mode}"


CLUSTERS: Final = (
    Kind("0.10.2.2", ZOOKEEPER),
    Kind("1.1.1", ZOOKEEPER),
    Kind("2.8.2", ZOOKEEPER),
    Kind("3.9.1", ZOOKEEPER),
    Kind("3.9.1", KRAFT),
    Kind("4.1.1", KRAFT),
)


@contextmanager
def running(
    folder: Path,
    version: str = "3.9.1",
    mode: str | None = None,
    *,
    brokers: int = 3,
    cuttable: bool = False,
    settings: Mapping[int, Mapping[str, str]] | None = None,
    **more: Any,
) -> Iterator[Lab]:
    """All nodes up. `settings` by number of broker, those of 0 for all."""
    plan = make_plan(
        folder,
        version=version,
        mode=mode,
        brokers=brokers,
        cuttable=cuttable,
        settings=settings,
    )
    with Lab(plan, **more) as lab:
        yield lab


def need_jars(*versions: str) -> None:
    """Skips the test where the jars cannot be had."""
    for version in versions or ("3.9.1",):
        release = release_of(version)
        locks = [release.lock, *([ZOOKEEPER_LOCK] if ZOOKEEPER in release.modes else [])]
        for lock in locks:
            try:
                jars(lock)
            except JarError as error:
                pytest.skip(f"the jars of Kafka {version} cannot be had: {error}")
