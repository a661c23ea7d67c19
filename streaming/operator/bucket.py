"""One bucket of partitions: the state between two batches, and the way of a batch through it.

Rows in which nothing but offsets moved pass the vectorised screen; the others are put in sequence
and judged by `consistency.monitor.step`, the same that scenarios and replays run.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from tidestaff.connectors.wire import (
    CLUSTER,
    GONE,
    MISSING,
    PARTITION,
    REFUSED,
    TICK,
    WireError,
    observation_of,
)
from tidestaff.consistency.model import ClusterObservation, HealthObservation
from tidestaff.consistency.monitor import step
from tidestaff.streaming.operator import events
from tidestaff.streaming.operator.entries import Partition, Subject
from tidestaff.streaming.operator.forgetting import forget_partitions, forget_subjects
from tidestaff.streaming.operator.quarantine import quarantined
from tidestaff.streaming.operator.screen import quiet, take_over
from tidestaff.streaming.operator.silence import (
    Clock,
    Gap,
    end_long_silences,
    end_unrepeated,
    find_silent,
    find_silent_sources,
    find_total_silence,
    hear,
    silent,
    told_silence,
)
from tidestaff.streaming.operator.slots import Slots, can_be_screened

if TYPE_CHECKING:
    from tidestaff.connectors.wire import Row
    from tidestaff.consistency.memory import PartitionMemory
    from tidestaff.consistency.model import Observation, PartitionObservation
    from tidestaff.consistency.verdict import Verdicts
    from tidestaff.streaming.operator.events import Event
    from tidestaff.streaming.operator.rows import Block
    from tidestaff.streaming.operator.slots import Longs
    from tidestaff.streaming.operator.viewing import View

MAX_GAPS: Final = 4_096
_PARTITION_NAME: Final = re.compile(r".+-\d{1,9}", re.DOTALL | re.ASCII)


class Limits(NamedTuple):
    """How late a row may be, how long a subject may say nothing, and how many buckets there are."""

    lateness_ms: int = 10_000
    silence_ms: int = 60_000
    buckets: int = 32


class Said(NamedTuple):
    """What one batch came to."""

    findings: list[Event]
    quarantine: list[dict[str, Any]]
    counts: Counter[str]


class Bucket:
    """`partitions` by (cluster, "topic-partition"), `subjects` by (kind, cluster, name)."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008 - a constant
        self.limits = limits
        self.slots = Slots()
        self.partitions: dict[tuple[str, str], Partition] = {}
        self.by_slot: list[Partition | None] = []
        self.subjects: dict[tuple[str, str, str], Subject] = {}
        self.clocks: dict[str, Clock] = {}
        self.voices: dict[tuple[str, str], Clock] = {}
        self.gaps: list[Gap] = []
        self.tick_ms = MISSING
        self.undecoded: Any = None
        self.forgot = False
        self.view: View | None = None
        self._said = Said([], [], Counter())

    def process(self, block: Block) -> Said:
        """Take a batch in, in any order, and say what is to be said."""
        said = self._said = Said([], [], Counter())
        said.counts["rows"] = int(np.count_nonzero(block.home))
        tick_ms = self.tick_ms
        is_partition = np.fromiter((k == PARTITION for k in block.kind), np.bool_, block.size)
        small = np.flatnonzero(~is_partition)
        for at in small[np.argsort(block.moved.at[small], kind="stable")].tolist():
            self._take_small(block, at)
        self._take_partitions(block, np.flatnonzero(is_partition))
        self._time_passed(0 if tick_ms == MISSING else self.tick_ms - tick_ms)
        return said

    def _take_small(self, block: Block, at: int) -> None:
        kind, at_ms = block.kind[at], int(block.moved.at[at])
        if kind == TICK:
            self.tick_ms = max(self.tick_ms, at_ms)
            # The job's own, not an observation.
            self._said.counts["rows"] -= int(block.home[at])
        elif kind == CLUSTER:
            cluster, source = block.cluster[at], block.source[at]
            self.clocks.setdefault(cluster, Clock()).hear(at_ms)
            self.voices.setdefault((cluster, source), Clock()).hear(at_ms)
            if block.home[at]:
                self._offer_small(block.whole(at))
        elif kind == REFUSED or (kind == GONE and block.odd[at]):
            self._observation(block.whole(at))
        elif kind == GONE:
            partition = self._partition(block, at)
            if partition is not None:
                self._offer(partition, block.whole(at))
        else:
            self._offer_small(block.whole(at))

    def _offer_small(self, row: Row) -> None:
        key = (row.kind, row.cluster, row.subject)
        subject = self.subjects.get(key)
        if subject is None:
            subject = self.subjects[key] = Subject(*key)
        if subject.sequence.offer(row):
            subject.heard = True
        else:
            # Not heard: with a clock that was set back a source says nothing that can be judged.
            self._said.counts["late"] += 1
        if row.kind == CLUSTER:
            hear(subject, row.source, row.observed_at_ms)
        self._drain_small(subject, MISSING)

    def _drain_small(self, subject: Subject, horizon_ms: int) -> None:
        last_ms = subject.sequence.at_ms
        for row in subject.sequence.ready(horizon_ms):
            observation = self._observation(row)
            if observation is None:
                continue
            if isinstance(observation, HealthObservation):
                end_unrepeated(self, subject, last_ms, row.observed_at_ms)
                subject.about = (observation.topic, observation.partition)
            last_ms = row.observed_at_ms
            before = subject.memory
            self._said.counts["stepped"] += 1
            subject.memory, verdicts = step(before, observation)  # type: ignore[assignment]
            self._tell(subject, verdicts, observation, before)
            if self.view is not None and isinstance(observation, ClusterObservation):
                self.view.saw_cluster(observation)

    def _tell(
        self,
        entry: Subject | Partition,
        verdicts: Verdicts,
        observation: Observation,
        before: Any,
    ) -> None:
        entry.active, told = events.changes(entry.active, verdicts, observation, before)
        self._said.findings.extend(told)

    def _observation(self, row: Row) -> Any:
        try:
            return observation_of(row)
        except WireError as error:
            self._said.quarantine.append(quarantined(row, error))
            self._said.counts["quarantined"] += 1
            return None

    def _take_partitions(self, block: Block, rows: Longs) -> None:
        """Screen what can be screened, in waves of one row a slot; judge the rest in order."""
        if not len(rows):
            return
        slots = self._slots_of(block, rows)
        rows, slots = rows[slots >= 0], slots[slots >= 0]
        if not len(rows):
            return
        order = np.lexsort((block.moved.at[rows], slots))
        rows, slots = rows[order], slots[order]
        first = np.flatnonzero(np.r_[True, slots[1:] != slots[:-1]])
        turn = np.arange(len(rows)) - np.repeat(first, np.diff(np.r_[first, len(rows)]))
        derailed = np.zeros(self.slots.count, np.bool_)
        judged: list[Longs] = []
        for wave in range(int(turn.max()) + 1):
            here = np.flatnonzero(turn == wave)
            passed = self._screened(block, rows[here], slots[here], derailed)
            derailed[slots[here[~passed]]] = True
            judged.append(here[~passed])
        for at in np.sort(np.concatenate(judged)).tolist():
            partition = self.by_slot[int(slots[at])]
            assert partition is not None
            self._offer(partition, block.whole(int(rows[at])))

    def _screened(self, block: Block, rows: Longs, slots: Longs, derailed: Any) -> Any:
        numbers, by_slot, bodies = self.slots.numbers, self.by_slot, block.body
        passed = numbers.armed[slots] & ~derailed[slots] & ~block.odd[rows]
        for at in np.flatnonzero(passed).tolist():
            if by_slot[slots[at]].body != bodies[rows[at]]:
                passed[at] = False
        among = np.flatnonzero(passed)
        if len(among):
            moved = block.moved.taken(rows[among])
            where = slots[among]
            fine = quiet(numbers, where, moved)
            fine &= moved.at - numbers.at[where] <= self.limits.silence_ms
            take_over(numbers, where[fine], moved.taken(np.flatnonzero(fine)))
            passed[among[~fine]] = False
            self._said.counts["quiet"] += int(fine.sum())
            if self.view is not None:
                self.view.moved()
        return passed

    def _slots_of(self, block: Block, rows: Longs) -> Longs:
        known, cluster, subject = self.partitions, block.cluster, block.subject
        slots = np.empty(len(rows), np.int64)
        for place, at in enumerate(rows.tolist()):
            partition = known.get((cluster[at], subject[at]))
            if partition is None:
                partition = self._partition(block, at)
            slots[place] = -1 if partition is None else partition.slot
        return slots

    def _partition(self, block: Block, at: int) -> Partition | None:
        """The entry of a row's partition; None, and the row in quarantine, if it names none."""
        cluster, name = block.cluster[at], block.subject[at]
        partition = self.partitions.get((cluster, name))
        if partition is None:
            if _PARTITION_NAME.fullmatch(name) is None:
                error = WireError(f"{name!r} is no partition", "look at what wrote the row")
                self._said.quarantine.append(quarantined(block.whole(at), error))
                self._said.counts["quarantined"] += 1
                return None
            partition = Partition(cluster, name, self.slots.add())
            self.partitions[cluster, name] = partition
            if partition.slot == len(self.by_slot):
                self.by_slot.append(None)
            self.by_slot[partition.slot] = partition
            self.slots.numbers.at[partition.slot] = MISSING
        return partition

    def _offer(self, partition: Partition, row: Row) -> None:
        self.catch_up(partition)
        if not partition.sequence.offer(row):
            self._said.counts["late"] += 1
        self._drain(partition, MISSING)

    def catch_up(self, partition: Partition) -> None:
        """Numbers that moved in the slot go back into the memory before anything else is done."""
        slot, numbers = partition.slot, self.slots.numbers
        self.undecode(partition)
        if numbers.armed[slot] and partition.memory is not None:
            partition.memory = self.slots.memory(slot, partition.memory)
            partition.sequence.at_ms = partition.memory.observed_at_ms

    def undecode(self, partition: Partition) -> None:
        """A memory from the state store is decoded when it is first needed."""
        if partition.memory is None and partition.packed and self.undecoded is not None:
            self.undecoded(partition)

    def _drain(self, partition: Partition, horizon_ms: int) -> None:
        """Judge what follows; nothing up to `horizon_ms` is still on its way. While a batch is
        taken in that is not known, for its rows come in any order."""
        self.catch_up(partition)
        sequence, numbers = partition.sequence, self.slots.numbers
        partition.changed = True
        last_ms, source = sequence.at_ms, sequence.source
        for row in sequence.ready(horizon_ms):
            self._note_gap(partition, last_ms, source, row)
            last_ms, source = row.observed_at_ms, row.source
            if row.kind == GONE:
                self.end(partition, row.source, row.observed_at_ms)
                continue
            observation = self._observation(row)
            if observation is None:
                numbers.armed[partition.slot] = False
            else:
                self._judge(partition, row, observation)
        numbers.at[partition.slot] = MISSING if sequence.ended else sequence.at_ms

    def _judge(self, partition: Partition, row: Row, observation: PartitionObservation) -> None:
        before = partition.memory
        partition.memory, verdicts = step(before, observation)
        topic_id = partition.memory.topic_id
        if before is not None and before.topic_id != topic_id:
            self._forget_findings(partition, observation, before)
        self._said.counts["stepped"] += 1
        self._said.counts["unknown"] += len(verdicts.unknown)
        # A source may not know the id that another one told.
        self._tell(partition, verdicts, replace(observation, topic_id=topic_id), before)
        partition.body = row.body
        slot = partition.slot
        calm = verdicts is partition.memory.calm and not partition.active
        if calm and can_be_screened(partition.memory, observation):
            leader = next(r for r in observation.replicas if r.broker == observation.state.leader)
            self.slots.arm(slot, partition.memory, has_lineage=bool(leader.lineage))
        else:
            self.slots.numbers.armed[slot] = False
            self.slots.note(slot, partition.memory)
        if self.view is not None:
            self.view.judged(partition, before, self)

    def _forget_findings(
        self, partition: Partition, observation: PartitionObservation, before: PartitionMemory
    ) -> None:
        """A topic made again is another topic, and one that gets its id goes by another name: what
        was found on the old one ends with it."""
        for code, broker in partition.active:
            told = events.cleared(code, broker, observation)
            self._said.findings.append({**told, "topic_id": before.topic_id})
        partition.active = {}

    def end(self, partition: Partition, source: str, at_ms: int) -> None:
        """The partition is gone, and all that was found on it."""
        topic, _, number = partition.name.rpartition("-")
        place: dict[str, Any] = {"topic": topic, "partition": int(number), "source": source}
        topic_id = partition.memory.topic_id if partition.memory is not None else None
        for code, broker in partition.active:
            told = events.cleared(code, broker, silent(partition.cluster, at_ms, **place))
            self._said.findings.append({**told, "topic_id": topic_id, "place": None})
        partition.active = {}
        partition.memory, partition.body, partition.packed = None, None, None
        self.slots.numbers.armed[partition.slot] = False
        self.slots.numbers.replicas[partition.slot] = 0
        if self.view is not None:
            self.view.gone(partition)

    def _horizon(self, cluster: str, newest_ms: int) -> int:
        clock = self.clocks.get(cluster)
        now_ms = clock.now_ms if clock is not None else None
        latest = newest_ms if now_ms is None else max(newest_ms, now_ms)
        return MISSING if latest == MISSING else latest - self.limits.lateness_ms

    def _note_gap(self, partition: Partition, last_ms: int, source: str, row: Row) -> None:
        at_ms = row.observed_at_ms
        if partition.silent_since is not None:
            since, partition.silent_since = partition.silent_since, None
            self.say_silence(events.CLEARED, partition, row.source, at_ms, since)
        elif partition.memory is not None and at_ms - last_ms > self.limits.silence_ms:
            gap = Gap(partition.cluster, partition.name, last_ms, at_ms, source, row.source)
            self.gaps = [*self.gaps, gap][-MAX_GAPS:]

    def _time_passed(self, ticked_ms: int) -> None:
        for partition in self._waiting():
            newest_ms = partition.sequence.newest_ms
            self._drain(partition, self._horizon(partition.cluster, newest_ms))
        for cluster, clock in self.clocks.items():
            assert clock.now_ms is not None
            until_ms = clock.now_ms - self.limits.lateness_ms
            find_silent(self, cluster, clock, until_ms)
            end_long_silences(self, cluster, until_ms)
            forget_partitions(self, cluster, until_ms)
            clock.trim()
        for subject in list(self.subjects.values()):
            newest_ms = subject.sequence.newest_ms
            horizon_ms = self._horizon(subject.cluster, newest_ms)
            if subject.sequence.held:
                self._drain_small(subject, horizon_ms)
            find_silent_sources(self, subject, horizon_ms)
            find_total_silence(self, subject, ticked_ms)
            end_unrepeated(self, subject, subject.sequence.at_ms, horizon_ms + 1)
            forget_subjects(self, subject, horizon_ms)
        for (cluster, _), voice in self.voices.items():
            voice.trim_before(self._horizon(cluster, MISSING))

    def _waiting(self) -> list[Partition]:
        return [p for p in self.partitions.values() if p.sequence.held]

    def say(self, told: list[Event]) -> None:
        self._said.findings.extend(told)

    def say_silence(
        self, event: str, entry: Subject | Partition, source: str, at_ms: int, since_ms: int
    ) -> None:
        self._said.findings.extend(told_silence(event, entry, source, at_ms, since_ms))
