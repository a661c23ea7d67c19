"""What a collector would see of the cluster: observations, with skew, loss and disorder if asked.

A round reads the metadata, then leaders, then followers, then leaders again, then the metadata
again, and the controller epoch last. With skew, or where a place answers late, the cluster goes on
living between the readings.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.simulator.drafts import partition_observation
from tidestaff.connectors.simulator.places import METADATA, WELL, LateMetadata, broker_place
from tidestaff.connectors.simulator.reading import Reader, partition_settings, reading_of
from tidestaff.consistency.model import (
    Bracket,
    ClusterObservation,
    HealthObservation,
    ProblemKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.coordination import Coordination, PartitionMetadata
    from tidestaff.connectors.simulator.places import Metadata as PastMetadata
    from tidestaff.connectors.simulator.places import Trouble
    from tidestaff.consistency.model import (
        BrokerId,
        Observation,
        PartitionObservation,
        PartitionSettings,
        PartitionState,
        Registration,
        ReplicaReading,
        TopicPartition,
    )

    Metadata = dict[TopicPartition, PartitionMetadata]
    Readings = dict[TopicPartition, dict[BrokerId, ReplicaReading]]
    Targets = dict[BrokerId, list[TopicPartition]]

# Looked up once: a member of an enumeration is not found as fast as a name.
_NONE: Final = Bracket.NONE
_COHERENT: Final = Bracket.COHERENT
_STRADDLED: Final = Bracket.STRADDLED


class _Sight(NamedTuple):
    """All that one round has read."""

    began: int
    metadata: Metadata
    registrations: tuple[Registration, ...]
    readings: Readings
    again: Readings
    after: Metadata
    imbalance: dict[BrokerId, float]
    settings: dict[str, PartitionSettings]
    controller: BrokerId | None
    controller_epoch: int


class Sampler:
    """`rules` goes into every observation as it is; nothing here looks into it.

    `skew` is the longest time in ms between two readings of a round, `loss` and `duplication` are
    probabilities per observation, `reorder` the probability that one is held back behind the next.
    `places` are troubles of single places: "metadata", "broker 2".
    `continuous` is whoever uses it vouching that it looks after every event.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        rules: Any,
        every_ms: int = 5_000,
        *,
        skew: int = 0,
        loss: float = 0.0,
        duplication: float = 0.0,
        reorder: float = 0.0,
        places: Mapping[str, Trouble] | None = None,
        bracketed: bool = True,
        continuous: bool = False,
        seed: int = 0,
        source: str = "simulator",
    ) -> None:
        self.cluster, self.rules, self.every_ms = cluster, rules, every_ms
        self.skew, self.loss, self.duplication, self.reorder = skew, loss, duplication, reorder
        self.bracketed, self.continuous, self.source = bracketed, continuous, source
        self.rounds = 0
        self._places = dict(places or {})
        late_ms = self._places.get(METADATA, WELL).delay_ms
        self._late = LateMetadata(cluster, late_ms) if late_ms else None
        self._chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._silent_since: dict[BrokerId, int] = {}
        self._held: list[Observation] = []
        self._looked_ms = -1

    def run(self, duration_ms: int) -> Iterator[Observation]:
        """Rounds at a fixed rate for that long."""
        end = self.cluster.now_ms + duration_ms
        while self.cluster.now_ms < end:
            due = self.cluster.now_ms + self.every_ms
            yield from self.round()
            self.cluster.advance(max(0, due - self.cluster.now_ms))
        yield from self._held
        self._held = []

    def round(self) -> list[Observation]:
        """One round: the cluster first, then every partition, then who did not answer."""
        self.rounds += 1
        shown = self._shown()
        before_epoch = shown.controller_epoch()
        sight = self._sight(self.cluster.now_ms, shown.partitions())
        seen: list[Observation] = [self._cluster_observation(sight, before_epoch)]
        seen += self._observations(sight)
        return self._disturb(seen + self._health(sight.began))

    def look(self, partitions: Sequence[TopicPartition]) -> list[Observation]:
        """A faithful sample of these partitions alone, at this very moment.

        Several events may fall into one millisecond; every look has a time of its own, so that none
        of them counts as late.
        """
        assert not self.skew
        assert not self._places
        self.rounds += 1
        self._looked_ms = max(self.cluster.now_ms, self._looked_ms + 1)
        sight = self._sight(self._looked_ms, partitions)
        everything = self._metadata(self.cluster.mode.partitions())
        return list(self._observations(sight._replace(imbalance=_imbalance(everything))))

    def _sight(self, began: int, partitions: Sequence[TopicPartition]) -> _Sight:
        shown = self._shown()
        metadata, registrations = self._metadata(partitions), shown.registrations()
        if self.skew or self._places:
            readings, again, after = self._readings_in_time(metadata)
        else:
            # No time passes: a second look would see the same.
            readings = again = self._readings_at_once(metadata)
            after = metadata
        shown = self._shown()
        return _Sight(
            began,
            metadata,
            registrations,
            readings,
            again if self.bracketed else {},
            after,
            _imbalance(metadata),
            {t: partition_settings(self.cluster, t) for t in {p.topic for p in metadata}},
            shown.controller(),
            shown.controller_epoch(),
        )

    def _shown(self) -> Coordination | PastMetadata:
        """What whoever reads the metadata now is told."""
        return self._late.now() if self._late is not None else self.cluster.mode

    def _pause(self) -> None:
        if self.skew:
            self.cluster.advance(self._chance.randint(0, self.skew))

    def _metadata(self, partitions: Sequence[TopicPartition]) -> Metadata:
        of = self._shown().partition
        return {
            partition: known for partition in partitions if (known := of(partition)) is not None
        }

    def _readings_at_once(self, metadata: Metadata) -> Readings:
        now_ms = self.cluster.now_ms
        found: Readings = {}
        answering = {b.id: b for b in self.cluster.brokers.values() if b.answers}
        for partition, known in metadata.items():
            readings = found[partition] = {}
            for broker in known.assignment.replicas:
                holder = answering.get(broker)
                replica = holder.replicas.get(partition) if holder is not None else None
                if holder is not None and replica is not None:
                    readings[broker] = reading_of(holder, replica, now_ms)
        return found

    def _readings_in_time(self, metadata: Metadata) -> tuple[Readings, Readings, Metadata]:
        """Leaders, followers, leaders again, metadata again; the cluster lives on in between."""
        leaders, followers = _targets(metadata)
        readings: Readings = {partition: {} for partition in metadata}
        self._read(leaders, readings)
        self._read(followers, readings)
        again: Readings = {partition: {} for partition in metadata}
        if self.bracketed:
            self._read(leaders, again)
        self._pause()
        after = self._metadata(self._shown().partitions()) if self.bracketed else metadata
        self._pause()
        return readings, again, after

    def _read(self, targets: Targets, into: Readings) -> None:
        """One batched request per broker; log start and HW before LEO and lineage."""
        for broker in sorted(targets):
            trouble = self._places.get(broker_place(broker), WELL)
            self._pause()
            reader = Reader(self.cluster, self.cluster.brokers[broker])
            reader.begin(targets[broker])
            self._pause()
            answer = reader.finish()
            if trouble.delay_ms:
                self.cluster.advance(self._chance.randint(0, trouble.delay_ms))
            if trouble.loss and self._chance.random() < trouble.loss:
                continue
            for partition, reading in answer:
                into[partition][broker] = reading

    def _observations(self, sight: _Sight) -> Iterator[PartitionObservation]:
        name, topic_ids = self.cluster.config.cluster, self.cluster.preset.topic_ids
        live: dict[tuple[BrokerId, ...], tuple[Registration, ...]] = {}
        controller_epoch = None if self.cluster.preset.kraft else sight.controller_epoch
        # If no time has passed the leader was read once, and nothing changed meanwhile.
        in_time = sight.again is not sight.readings
        for (partition, known), readings in zip(
            sight.metadata.items(), sight.readings.values(), strict=True
        ):
            topic, number = partition
            state, assignment, topic_id, czxid, deleting = known
            replicas, leader = assignment.replicas, state.leader
            if replicas not in live:
                live[replicas] = tuple(r for r in sight.registrations if r.broker in replicas)
            leader_again, bracket = None, _NONE
            if self.bracketed:
                first = leader_again = readings.get(leader)
                after: PartitionMetadata | None = known
                if in_time:
                    leader_again = sight.again[partition].get(leader)
                    after = sight.after.get(partition)
                bracket = _bracket(known, after, first, leader_again)
            yield partition_observation(
                name,
                topic,
                number,
                sight.began,
                self.rules,
                state,
                assignment,
                live[replicas],
                sight.settings[topic],
                tuple(readings.values())
                if not in_time
                else tuple([readings[broker] for broker in replicas if broker in readings]),
                leader_again,
                bracket,
                topic_id if topic_ids else None,
                czxid,
                sight.controller,
                controller_epoch,
                sight.imbalance[replicas[0]],
                (),
                deleting,
                True,  # noqa: FBT003 - the metadata is authoritative
                self.continuous,
                self.source,
                self.rounds,
            )

    def _cluster_observation(self, sight: _Sight, before_epoch: int) -> ClusterObservation:
        leading = [
            broker
            for broker in sorted(self.cluster.brokers)
            if any(
                broker in readings and readings[broker].leads
                for readings in sight.readings.values()
            )
        ]
        return ClusterObservation(
            cluster=self.cluster.config.cluster,
            observed_at_ms=sight.began,
            rules=self.rules,
            controller=sight.controller,
            controller_epoch=sight.controller_epoch,
            controller_epoch_before=before_epoch,
            registrations=sight.registrations,
            answering=tuple(b.id for b in self.cluster.sorted_brokers() if b.answers),
            leading=tuple(leading),
            claims=self._shown().claims(),
            session_timeout_ms=self.cluster.settings.session_ms,
            source=self.source,
            round=self.rounds,
        )

    def _health(self, began: int) -> list[Observation]:
        """A broker that does not answer, and that it is well again."""
        found: list[Observation] = []
        for broker in self.cluster.sorted_brokers():
            since = self._silent_since.get(broker.id)
            if broker.answers and since is None:
                continue
            problem = ProblemKind.OK if broker.answers else ProblemKind.SILENT
            if broker.answers:
                del self._silent_since[broker.id]
            else:
                since = self._silent_since.setdefault(broker.id, began)
            found.append(
                HealthObservation(
                    cluster=self.cluster.config.cluster,
                    observed_at_ms=began,
                    source=self.source,
                    problem=problem,
                    place=broker_place(broker.id),
                    reason="" if broker.answers else "no answer",
                    broker=broker.id,
                    since_ms=since,
                    round=self.rounds,
                )
            )
        return found

    def _disturb(self, seen: list[Observation]) -> list[Observation]:
        """What the way to the monitor does to a round."""
        if not (self.loss or self.duplication or self.reorder):
            return seen
        chance, late = self._chance, self._held
        out: list[Observation] = []
        self._held = []
        for observation in seen:
            if chance.random() < self.loss:
                continue
            if chance.random() < self.reorder:
                self._held.append(observation)
                continue
            out.append(observation)
            if chance.random() < self.duplication:
                out.append(observation)
        return out + late


def _bracket(
    before: PartitionMetadata,
    after: PartitionMetadata | None,
    first: ReplicaReading | None,
    again: ReplicaReading | None,
) -> Bracket:
    """Coherent: nothing of the metadata changed, and the leader, where it answered, was in that
    epoch both times."""
    if after is not before and (after is None or before[:4] != after[:4]):
        return _STRADDLED
    state = before.state
    if state.leader < 0:
        return _COHERENT
    if first is again:
        return _COHERENT if first is None or _in_office(first, state) else _STRADDLED
    if (first is None) != (again is None):
        return _STRADDLED
    for reading in (first, again):
        if reading is not None and not _in_office(reading, state):
            return _STRADDLED
    if first is not None and again is not None and first.broker_epoch != again.broker_epoch:
        return _STRADDLED
    return _COHERENT


def _in_office(reading: ReplicaReading, state: PartitionState) -> bool:
    return bool(reading.leads) and reading.leader_epoch == state.leader_epoch


def _targets(metadata: Metadata) -> tuple[Targets, Targets]:
    """What to ask of each broker as a leader, and as a follower."""
    leaders: Targets = {}
    followers: Targets = {}
    for partition, known in metadata.items():
        for broker in known.assignment.replicas:
            group = leaders if broker == known.state.leader else followers
            group.setdefault(broker, []).append(partition)
    return leaders, followers


def _imbalance(metadata: Metadata) -> dict[BrokerId, float]:
    """For each broker that is preferred for something: the share of it that it does not lead."""
    counts = Counter((m.assignment.replicas[0], m.state.leader) for m in metadata.values())
    mine: Counter[BrokerId] = Counter()
    led: Counter[BrokerId] = Counter()
    for (preferred, leader), count in counts.items():
        mine[preferred] += count
        led[preferred] += count if leader == preferred else 0
    return {broker: (count - led[broker]) / count for broker, count in mine.items()}
