"""The Kafka releases a lab can run, and what each needs to run on a Java of today."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from tidestaff.streaming.commands.arguments import did_you_mean
from tidestaff.streaming.lab.errors import LabError

KRAFT: Final = "kraft"
ZOOKEEPER: Final = "zookeeper"

_LOCKS: Final = Path(__file__).resolve().parent.parent.parent / "conf" / "lab"
ZOOKEEPER_LOCK: Final = _LOCKS / "zookeeper-3.8.4.lock"


class Release(NamedTuple):
    """`modes` has the default first. `simple_logger`: the log goes through slf4j-simple, else
    through log4j 1. `topics_by_zookeeper`: its own tools cannot ask a broker for topics.
    `tells_settings`: its brokers can be asked for theirs."""

    version: str
    modes: tuple[str, ...]
    simple_logger: bool = False
    topics_by_zookeeper: bool = False
    tools_package: str = "kafka.admin"
    tells_settings: bool = True

    @property
    def lock(self) -> Path:
        return _LOCKS / f"kafka-{self.version}.lock"


_TOOLS: Final = "org.apache.kafka.tools"
RELEASES: Final = {
    release.version: release
    for release in (
        Release("0.10.2.2", (ZOOKEEPER,), topics_by_zookeeper=True, tells_settings=False),
        Release("1.1.1", (ZOOKEEPER,), topics_by_zookeeper=True),
        Release("2.8.2", (ZOOKEEPER,)),
        Release("3.9.1", (KRAFT, ZOOKEEPER), simple_logger=True, tools_package=_TOOLS),
        Release("4.1.1", (KRAFT,), simple_logger=True, tools_package=_TOOLS),
    )
}
NEWEST: Final = "4.1.1"


def release_of(version: str) -> Release:
    if version not in RELEASES:
        hint = did_you_mean(version, RELEASES)
        raise LabError(f"no lab for Kafka {version}: take one of {', '.join(RELEASES)}{hint}")
    return RELEASES[version]


def mode_of(release: Release, wanted: str | None) -> str:
    if wanted is None:
        return release.modes[0]
    if wanted not in release.modes:
        raise LabError(
            f"Kafka {release.version} does not run with {wanted}: "
            f"take --mode {' or '.join(release.modes)}"
        )
    return wanted
