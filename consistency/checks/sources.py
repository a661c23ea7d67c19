"""SRC and EPO001: what the monitor itself cannot see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.checkpoint_files import LEADER_EPOCHS
from tidestaff.consistency.model import ProblemKind
from tidestaff.consistency.verdict import Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Finding
    from tidestaff.consistency.model import HealthObservation


def _violated(health: HealthObservation, code: str, expected: str, fallback: str) -> Violated:
    return Violated(
        code,
        expected=expected,
        observed=f"{health.source}: {health.reason or fallback}"
        + (f" at {health.place}" if health.place else ""),
        because=health.remedy or "what is not read is not judged",
        broker=health.broker,
        since_ms=health.since_ms,
    )


def _is_epoch_file(health: HealthObservation) -> bool:
    return health.place.rpartition("/")[2] == LEADER_EPOCHS


def sources_speak(health: HealthObservation) -> Iterator[Finding]:
    """SRC001: every source reports at least once in its interval.

    What does not report cannot be judged, and silence must not look like health.
    """
    if health.problem is ProblemKind.SILENT:
        yield _violated(health, "SRC001", "a report within the interval", "silent")


def sources_can_read(health: HealthObservation) -> Iterator[Finding]:
    """SRC002: every source can read what it is there to read.

    The rules that need it answer Unknown meanwhile; the reason names the missing permission where
    there is one. A log directory that is offline cannot be read, nor can a file or znode that is
    not what it should be.
    """
    malformed = health.problem is ProblemKind.MALFORMED and not _is_epoch_file(health)
    if malformed or health.problem in (ProblemKind.UNREADABLE, ProblemKind.LOG_DIR_OFFLINE):
        yield _violated(health, "SRC002", "readable", "not readable")


def clocks_agree(health: HealthObservation) -> Iterator[Finding]:
    """SRC003: the clocks of the sources agree within the limit.

    Readings of one bracket are put in order by their times; a clock that is off makes the order a
    guess.
    """
    if health.problem is ProblemKind.CLOCK_SKEW:
        yield _violated(health, "SRC003", "clocks that agree", f"clock off by {health.skew_ms} ms")


def records_are_taken(health: HealthObservation) -> Iterator[Finding]:
    """SRC004: every record on the transport can be read.

    A record of an unknown schema version, or one that is damaged, is put aside whole and never
    guessed at; what it told is not judged.
    """
    if health.problem is ProblemKind.RECORDS_REFUSED:
        yield _violated(health, "SRC004", "records this release can read", "records refused")


def sinks_are_reached(health: HealthObservation) -> Iterator[Finding]:
    """SRC005: every alert sink takes what it is sent.

    An alert that nobody receives is as good as none. It waits in the spool meanwhile, and the other
    sinks go on.
    """
    if health.problem is ProblemKind.SINK_FAILING:
        yield _violated(health, "SRC005", "a sink that takes alerts", "not reached")


def partitions_are_reported(health: HealthObservation) -> Iterator[Finding]:
    """SRC006: a source that reports on a cluster reports on all of its partitions.

    What it leaves out without saying that it is gone was lost on the way, and is not judged.
    """
    if health.problem is ProblemKind.NOT_REPORTED:
        yield _violated(health, "SRC006", "a report in every round", "left out")


def epoch_file_readable(health: HealthObservation) -> Iterator[Finding]:
    """EPO001: leader-epoch-checkpoint can be read as Kafka reads it.

    A broker that cannot read it takes the whole log directory offline, or truncates by it wrongly.
    """
    if health.problem is ProblemKind.MALFORMED and _is_epoch_file(health):
        yield _violated(health, "EPO001", "version 0, a count, and that many entries", "malformed")
