"""A monitor beside a simulated cluster: what it raises, and what it had to go by."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.simulator.log import Run, unshared
from tidestaff.consistency.model import (
    Bracket,
    ClusterObservation,
    Observation,
    OffsetRange,
    PartitionObservation,
    RecoveryState,
    TopicPartition,
)
from tidestaff.consistency.monitor import step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.consistency.memory import Memory
    from tidestaff.consistency.model import BrokerId, ReplicaReading
    from tidestaff.consistency.verdict import Violated

    Logs: TypeAlias = dict[tuple[TopicPartition, BrokerId, int | None], tuple[Run, ...]]

DIFFERENT_RECORDS: Final = frozenset({"TRN003", "TRN004", "TRN006", "EPO004", "EPO005"})
JUDGED: Final = DIFFERENT_RECORDS | {
    *("TRN001", "TRN002", "HWM001", "HWM002", "EPO002", "EPO003"),
    *("ELE001", "ELE002", "ELE006", "ELE007", "ELE008", "ELE009"),
    *("ISR001", "ISR009", "ISR010", "CTL002", "CTL003", "CTL004", "CTL005", "REG003"),
}


class Alarm(NamedTuple):
    """What the monitor raised, and what was true at that moment: where the named broker's log
    differed from another of this topic, and the lowest offset that retention had left. `before_ms`
    is the sample before this one, `before_epoch` the leader epoch of the last that showed a leader:
    one that shows none does not tell whom it had been. `topic` is the id of the topic it speaks of,
    empty where neither the sample tells it nor the moment."""

    at_ms: int
    until_ms: int
    partition: TopicPartition | None
    leader_epoch: int
    violated: Violated
    differing: tuple[OffsetRange, ...]
    floor: int = 0
    before_ms: int = -1
    before_epoch: int = -1
    topic: str = ""


class Glimpse(NamedTuple):
    """What one sample told of a partition's leader; -1 where it did not answer in its epoch.

    `held` are the records that this leader had then, `shown` those that some replica showed below
    its HW: a leader by its own word, or anybody beside the leader in office. Nobody tells these to
    the monitor. `doubtful` is the same, shown by a leader of a later epoch than the metadata's that
    names no topic id: it might speak of a deleted topic of that name. `ends` is where the logs of
    those replicas end that told it. `readings` are the replicas' own words, with their epoch files.
    """

    at_ms: int
    topic: str
    bracket: Bracket
    leader: BrokerId
    partition_epoch: int
    leader_epoch: int
    recovering: bool
    electable: frozenset[BrokerId]
    log_start: int
    log_end: int
    held: tuple[Run, ...]
    shown: tuple[Run, ...]
    ends: Mapping[BrokerId, int] = MappingProxyType({})
    registered: frozenset[BrokerId] = frozenset()
    doubtful: tuple[Run, ...] = ()
    assigned: tuple[BrokerId, ...] = ()
    deleting: bool = False
    readings: tuple[ReplicaReading, ...] = ()

    @property
    def coherent(self) -> bool:
        return self.bracket is Bracket.COHERENT


class Watcher:
    """Keeps one memory for each partition, cluster and place, as the streaming job does."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.memories: dict[object, Memory] = {}
        self.alarms: list[Alarm] = []
        self.raised: Counter[str] = Counter()
        self.glimpses: dict[TopicPartition, list[Glimpse]] = {}
        self.observations = 0
        self.logs_read: Logs = {}

    def see(self, observation: Observation) -> None:
        self.observations += 1
        key: object = ()
        partition = None
        if isinstance(observation, PartitionObservation):
            partition = TopicPartition(observation.topic, observation.partition)
            key = (partition, observation.topic_id or observation.state_czxid)
            known = self.cluster.mode.partition(partition)
            # Old metadata may tell of the topic that was there before.
            topic = observation.topic_id or (known.topic_id if known is not None else "")
            self._note(partition, glimpse(self.cluster, observation, topic, self.logs_read))
        elif not isinstance(observation, ClusterObservation):
            key = observation.place
        self.memories[key], verdicts = step(self.memories.get(key), observation)
        for violated in verdicts.violated:
            self.raised[violated.code] += 1
            if violated.code in JUDGED:
                self.alarms.append(self._alarm(observation, partition, violated))

    def _note(self, partition: TopicPartition, seen: Glimpse) -> None:
        """What comes late or twice tells nothing new."""
        known = self.glimpses.setdefault(partition, [])
        if not known or known[-1].at_ms < seen.at_ms:
            known.append(seen)

    def _alarm(
        self, observation: Observation, partition: TopicPartition | None, violated: Violated
    ) -> Alarm:
        differing: tuple[OffsetRange, ...] = ()
        if partition is not None and violated.offsets is not None and violated.broker is not None:
            where = (partition, violated.broker, violated.offsets)
            differing = differing_from_others(self.cluster, *where)
            if isinstance(observation, PartitionObservation):
                differing += differing_as_read(self.logs_read, observation.replicas, *where)
        now_ms = self.cluster.now_ms
        alarm = Alarm(observation.observed_at_ms, now_ms, partition, -1, violated, differing)
        if partition is None or not isinstance(observation, PartitionObservation):
            return alarm
        book = self.cluster.truth._books.get(partition)
        seen = self.glimpses[partition]
        earlier = [
            g for g in seen if g.at_ms < observation.observed_at_ms and g.topic == seen[-1].topic
        ]
        before = earlier[-1] if earlier else None
        led = [g.leader_epoch for g in earlier if g.leader >= 0]
        # A sample of this very moment speaks of the topic that is; an older one may not.
        certain = observation.topic_id or (seen[-1].topic if observation.continuous else "")
        return alarm._replace(
            leader_epoch=observation.state.leader_epoch,
            floor=book.floor if book is not None else 0,
            before_ms=before.at_ms if before is not None else -1,
            before_epoch=led[-1] if led else -1,
            topic=certain,
        )


def glimpse(
    cluster: SimulatedCluster, observation: PartitionObservation, topic: str, logs: Logs
) -> Glimpse:
    """A round may take long, and what was read first be gone at its end: records count as they were
    when they were read."""
    state, partition = observation.state, TopicPartition(observation.topic, observation.partition)
    log_start = log_end = -1
    held: tuple[Run, ...] = ()
    shown: list[Run] = []
    doubtful: list[Run] = []
    coherent = observation.bracket is Bracket.COHERENT
    in_office = [r for r in observation.replicas if r.broker == state.leader and r.leads]
    for reading in observation.replicas:
        replica = cluster.replica(reading.broker, partition)
        if replica is None or replica.topic_id != topic:
            continue
        if reading in in_office and reading.leader_epoch == state.leader_epoch:
            log_start, log_end = reading.log_start_offset or 0, reading.log_end_offset or 0
            held = _as_read(logs, partition, reading, log_start, log_end)
            held = held or tuple(replica.log.slice(log_start, log_end))
        later = (reading.leader_epoch or 0) > state.leader_epoch
        if reading.leads or (coherent and in_office):
            known = doubtful if later and reading.topic_id is None else shown
            within = (reading.log_start_offset or 0, reading.high_watermark or 0)
            known += _as_read(logs, partition, reading, *within) or replica.log.slice(*within)
    return Glimpse(
        observation.observed_at_ms,
        topic,
        observation.bracket,
        state.leader,
        state.partition_epoch,
        state.leader_epoch,
        state.recovery is RecoveryState.RECOVERING,
        frozenset((*state.isr, *state.elr)),
        log_start,
        log_end,
        held,
        tuple(shown),
        {r.broker: r.log_end_offset for r in observation.replicas if r.log_end_offset is not None},
        frozenset(registration.broker for registration in observation.live),
        tuple(doubtful),
        observation.assignment.replicas,
        observation.deleting,
        tuple(r for r in observation.replicas if r.topic_id in (None, topic)),
    )


def _as_read(
    logs: Logs, partition: TopicPartition, reading: ReplicaReading, start: int, end: int
) -> tuple[Run, ...]:
    runs = logs.get((partition, reading.broker, reading.read_at_ms), ())
    clipped = (r._replace(start=max(r.start, start), end=min(r.end, end)) for r in runs)
    return tuple(run for run in clipped if run.start < run.end)


def differing_from_others(
    cluster: SimulatedCluster, partition: TopicPartition, broker: int, within: OffsetRange
) -> tuple[OffsetRange, ...]:
    """Where this broker's records of a range are not those of some other replica, now."""
    mine = cluster.replica(broker, partition)
    found: set[OffsetRange] = set()
    for other in sorted(cluster.brokers):
        theirs = cluster.replica(other, partition)
        if other == broker or mine is None or theirs is None or mine.topic_id != theirs.topic_id:
            continue
        start = max(within.start, mine.log.start, theirs.log.start)
        clipped = OffsetRange(start, within.end)
        if start < within.end:
            found.update(unshared(mine.log.slice(*clipped), theirs.log.slice(*clipped), clipped))
    return tuple(sorted(found))


def differing_as_read(
    logs: Logs,
    readings: Iterable[ReplicaReading],
    partition: TopicPartition,
    broker: BrokerId,
    within: OffsetRange,
) -> tuple[OffsetRange, ...]:
    """The same by the logs as they were when a round that took time read them."""
    read = {
        reading.broker: _as_read(logs, partition, reading, *within)
        for reading in readings
        if (partition, reading.broker, reading.read_at_ms) in logs
    }
    mine = read.pop(broker, ())
    found: set[OffsetRange] = set()
    for theirs in read.values():
        if mine and theirs:
            start = max(mine[0].start, theirs[0].start)
            both = OffsetRange(start, min(mine[-1].end, theirs[-1].end))
            if both.start < both.end:
                found.update(unshared(mine, theirs, both))
    return tuple(sorted(found))
