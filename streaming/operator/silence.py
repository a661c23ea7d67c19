"""Silence is a finding: who stops reporting while others go on is named, at the time it was due.

A partition is silent against its own source's reports on the cluster: if the source itself fell
silent, that is one finding, not ten thousand. Only what lies `lateness_ms` behind the newest report
is judged; by then nothing that could explain it is still on its way, so the batches do not matter.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from tidestaff.connectors.wire import CLUSTER, HEALTH, MISSING
from tidestaff.consistency.memory import NOBODY
from tidestaff.consistency.model import HealthObservation, ProblemKind
from tidestaff.consistency.monitor import step
from tidestaff.streaming.operator import events
from tidestaff.streaming.operator.entries import Hearing, Partition

if TYPE_CHECKING:
    from tidestaff.streaming.operator.bucket import Bucket
    from tidestaff.streaming.operator.entries import Subject
    from tidestaff.streaming.operator.events import Event

MAX_REPORTS: Final = 256
REMEMBER_SOURCE_MS: Final = 86_400_000


class Gap(NamedTuple):
    """A subject was not heard of between two rows: of `source`, and of the one that was `heard`."""

    cluster: str
    subject: str
    start_ms: int
    end_ms: int
    source: str = ""
    heard: str = ""


class Clock:
    """When a cluster's source reported, as this bucket has heard it."""

    __slots__ = ("reports",)

    def __init__(self, reports: list[int] | None = None) -> None:
        self.reports = reports if reports is not None else []

    def hear(self, at_ms: int) -> None:
        at = bisect_left(self.reports, at_ms)
        if self.reports[at : at + 1] != [at_ms]:
            self.reports.insert(at, at_ms)

    def trim(self) -> None:
        """Only once a batch is judged: it may hold more reports than are kept."""
        del self.reports[:-MAX_REPORTS]

    def trim_before(self, until_ms: int) -> None:
        """Up to there all is judged: of that the newest report is enough."""
        at = bisect_left(self.reports, until_ms + 1)
        del self.reports[: max(0, at - 1)]

    @property
    def now_ms(self) -> int | None:
        return self.reports[-1] if self.reports else None

    def reported_between(self, start_ms: int, end_ms: int) -> bool:
        """Whether the source reported in [start, end)."""
        at = bisect_left(self.reports, start_ms)
        return at < len(self.reports) and self.reports[at] < end_ms


def find_silent(bucket: Bucket, cluster: str, clock: Clock, until_ms: int) -> None:
    """The partitions of a cluster that its source left out, the oldest silence first."""
    _find_gaps(bucket, cluster, clock, until_ms)
    silence_ms, numbers = bucket.limits.silence_ms, bucket.slots.numbers
    at = numbers.at[: bucket.slots.count]
    for slot in np.flatnonzero((at != MISSING) & (at <= until_ms - silence_ms)).tolist():
        partition, last_ms = bucket.by_slot[slot], int(at[slot])
        if partition is None or partition.cluster != cluster or partition.silent_since is not None:
            continue
        if not clock.reported_between(last_ms + silence_ms, until_ms + 1):
            continue
        bucket.catch_up(partition)
        if partition.memory is None:
            # Nothing of it could ever be read, which is another finding.
            continue
        # Not armed: the next row has to end the silence, even one that merely was late.
        numbers.armed[slot] = False
        partition.silent_since, partition.changed = last_ms, True
        bucket.say_silence(events.RAISED, partition, "", last_ms + silence_ms, last_ms)


def _find_gaps(bucket: Bucket, cluster: str, clock: Clock, until_ms: int) -> None:
    """Silences that were over before they could be noticed."""
    waiting = []
    for gap in bucket.gaps:
        partition = bucket.partitions.get((gap.cluster, gap.subject))
        due_ms = gap.start_ms + bucket.limits.silence_ms
        if gap.cluster != cluster or gap.end_ms > until_ms:
            waiting.append(gap)
        elif partition is not None and clock.reported_between(due_ms, gap.end_ms):
            bucket.say_silence(events.RAISED, partition, gap.source, due_ms, gap.start_ms)
            bucket.say_silence(events.CLEARED, partition, gap.heard, gap.end_ms, gap.start_ms)
    bucket.gaps = waiting


def hear(subject: Subject, source: str, at_ms: int) -> None:
    """A report of a source, in its place among those that wait."""
    hearing = subject.sources.get(source)
    if hearing is None:
        subject.sources[source] = Hearing(at_ms, [], silent=False)
    elif at_ms > hearing.last_ms and at_ms not in hearing.waiting:
        insort(hearing.waiting, at_ms)


def find_silent_sources(bucket: Bucket, subject: Subject, until_ms: int) -> None:
    """Of several sources of one cluster one may fall silent while another goes on reporting."""
    for source, hearing in list(subject.sources.items()):
        _judge_reports(bucket, subject, source, until_ms)
        if hearing.silent and hearing.last_ms + REMEMBER_SOURCE_MS <= until_ms:
            # Taken away on purpose, it seems.
            bucket.say_silence(events.CLEARED, subject, source, until_ms, hearing.last_ms)
            del subject.sources[source]
        elif not hearing.silent and hearing.last_ms + bucket.limits.silence_ms <= until_ms:
            _say_silent(bucket, subject, source)


def _judge_reports(bucket: Bucket, subject: Subject, source: str, until_ms: int) -> None:
    """A source that was silent was so whether or not somebody noticed meanwhile."""
    hearing = subject.sources[source]
    while hearing.waiting and hearing.waiting[0] <= until_ms:
        at_ms = hearing.waiting.pop(0)
        if not hearing.silent and at_ms - hearing.last_ms > bucket.limits.silence_ms:
            _say_silent(bucket, subject, source)
        if hearing.silent:
            bucket.say_silence(events.CLEARED, subject, source, at_ms, hearing.last_ms)
        hearing.last_ms, hearing.silent = at_ms, False


def _say_silent(bucket: Bucket, subject: Subject, source: str) -> None:
    hearing = subject.sources[source]
    hearing.silent = True
    due_ms = hearing.last_ms + bucket.limits.silence_ms
    bucket.say_silence(events.RAISED, subject, source, due_ms, hearing.last_ms)


def find_total_silence(bucket: Bucket, subject: Subject, ticked_ms: int) -> None:
    """Where no source reports, the job's own clock tells: while that went on, nothing came.

    Rows may be far behind that clock where a backlog is read, and it leaps when the job was down:
    so what counts is how long it ticked without a row, and one leap is not enough.
    """
    silence_ms, last_ms = bucket.limits.silence_ms, subject.sequence.newest_ms
    if subject.kind != CLUSTER or subject.memory is None:
        return
    most_ms = -(-silence_ms // 2)
    subject.waited_ms = 0 if subject.heard else subject.waited_ms + min(ticked_ms, most_ms)
    subject.heard = False
    overdue = last_ms + silence_ms <= bucket.tick_ms - bucket.limits.lateness_ms
    if overdue and subject.waited_ms >= silence_ms:
        for source, hearing in subject.sources.items():
            _judge_reports(bucket, subject, source, last_ms)
            if not hearing.silent:
                _say_silent(bucket, subject, source)


def end_unrepeated(bucket: Bucket, subject: Subject, last_ms: int, until_ms: int) -> None:
    """A source repeats what it cannot read in every round in which it sees the cluster. What it
    does not repeat before `until_ms` it has forgotten, journal and all, and will not end."""
    if subject.kind != HEALTH or not subject.active:
        return
    source, due_ms = subject.sequence.source, last_ms + bucket.limits.silence_ms
    voice = bucket.voices.get((subject.cluster, source))
    if voice is None or not voice.reported_between(due_ms, until_ms):
        return
    topic, partition = subject.about
    known: dict[str, Any] = {"source": source, "place": subject.name.removeprefix(f"{source}/")}
    seen = silent(subject.cluster, due_ms, topic=topic, partition=partition, **known)
    bucket.say([events.cleared(code, broker, seen) for code, broker in subject.active])
    subject.active, subject.memory = {}, None


def end_long_silences(bucket: Bucket, cluster: str, until_ms: int) -> None:
    """A partition that its source leaves out for so long is gone, though nobody said it: whoever
    had listed it has lost its journal."""
    at, before_ms = bucket.slots.numbers.at[: bucket.slots.count], until_ms - REMEMBER_SOURCE_MS
    for slot in np.flatnonzero((at != MISSING) & (at <= before_ms)).tolist():
        partition = bucket.by_slot[slot]
        if partition is None or partition.cluster != cluster or partition.silent_since is None:
            continue
        since_ms, at_ms = partition.silent_since, int(at[slot]) + REMEMBER_SOURCE_MS
        bucket.catch_up(partition)
        bucket.end(partition, partition.sequence.source, at_ms)
        bucket.say_silence(events.CLEARED, partition, "", at_ms, since_ms)
        partition.silent_since, partition.changed = None, True


def told_silence(
    event: str, entry: Subject | Partition, source: str, at_ms: int, since_ms: int
) -> list[Event]:
    """What is said when a partition or a source falls silent, or is heard again."""
    source = source or entry.sequence.source
    known: dict[str, Any] = {"source": source, "since_ms": since_ms}
    code, problem = "SRC001", ProblemKind.SILENT
    if isinstance(entry, Partition):
        topic, _, number = entry.name.rpartition("-")
        code, problem = "SRC006", ProblemKind.NOT_REPORTED
        known |= {"topic": topic, "partition": int(number), "place": f"partition {entry.name}"}
    else:
        known["place"] = f"source {source}"
    observation = silent(entry.cluster, at_ms, problem, **known)
    if event == events.CLEARED:
        return [events.cleared(code, NOBODY, observation)]
    _, verdicts = step(None, observation)
    return events.changes({}, verdicts, observation, None)[1]


def silent(
    cluster: str, at_ms: int, problem: ProblemKind = ProblemKind.SILENT, **known: Any
) -> HealthObservation:
    return HealthObservation(
        cluster=cluster,
        observed_at_ms=at_ms,
        problem=problem,
        reason="nothing was reported",
        **known,
    )
