"""Silence is a finding: who stops reporting while others go on is named, at the time it was due.

A partition is silent against its own source's reports on the cluster: if the source itself fell
silent, that is one finding, not ten thousand. Only what lies `lateness_ms` behind the newest report
is judged; by then nothing that could explain it is still on its way, so the batches do not matter.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.consistency.memory import NOBODY
from tidestaff.consistency.model import HealthObservation, ProblemKind
from tidestaff.consistency.monitor import step
from tidestaff.streaming.operator import events
from tidestaff.streaming.operator.entries import Partition

if TYPE_CHECKING:
    from tidestaff.streaming.operator.entries import Subject
    from tidestaff.streaming.operator.events import Event

MAX_REPORTS: Final = 256


class Gap(NamedTuple):
    """A subject was not heard of between two rows."""

    cluster: str
    subject: str
    start_ms: int
    end_ms: int


class Clock:
    """When a cluster's source reported, as this bucket has heard it."""

    __slots__ = ("reports",)

    def __init__(self, reports: list[int] | None = None) -> None:
        self.reports = reports if reports is not None else []

    def hear(self, at_ms: int) -> None:
        if at_ms not in self.reports[-8:]:
            insort(self.reports, at_ms)
            del self.reports[:-MAX_REPORTS]

    @property
    def now_ms(self) -> int | None:
        return self.reports[-1] if self.reports else None

    def reported_between(self, start_ms: int, end_ms: int) -> bool:
        """Whether the source reported in [start, end)."""
        at = bisect_left(self.reports, start_ms)
        return at < len(self.reports) and self.reports[at] < end_ms


def told_silence(
    event: str, entry: Subject | Partition, source: str, at_ms: int, since_ms: int
) -> list[Event]:
    """What is said when a partition or a source falls silent, or is heard again."""
    source = source or entry.sequence.source
    known: dict[str, Any] = {"source": source, "since_ms": since_ms}
    if isinstance(entry, Partition):
        topic, _, number = entry.name.rpartition("-")
        known |= {"topic": topic, "partition": int(number), "place": f"partition {entry.name}"}
    else:
        known["place"] = f"source {source}"
    observation = silent(entry.cluster, at_ms, **known)
    if event == events.CLEARED:
        return [events.cleared("SRC001", NOBODY, observation)]
    _, verdicts = step(None, observation)
    return events.changes({}, verdicts, observation, None)[1]


def silent(cluster: str, at_ms: int, **known: Any) -> HealthObservation:
    return HealthObservation(
        cluster=cluster,
        observed_at_ms=at_ms,
        problem=ProblemKind.SILENT,
        reason="nothing was reported",
        **known,
    )
