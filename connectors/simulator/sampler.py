"""What a collector would see of the cluster: observations, with skew, loss and disorder if asked.

A round reads the metadata, then leaders, then followers, then leaders again, then the metadata
again, and the controller epoch last. With skew the cluster goes on living between the readings.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from tidestaff.connectors.simulator.reading import Reader, partition_settings
from tidestaff.consistency.model import (
    Bracket,
    ClusterObservation,
    HealthObservation,
    PartitionObservation,
    ProblemKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.coordination import PartitionMetadata
    from tidestaff.consistency.model import (
        BrokerId,
        Observation,
        PartitionSettings,
        Registration,
        ReplicaReading,
        TopicPartition,
    )

    Metadata = dict[TopicPartition, PartitionMetadata]
    Readings = dict[tuple[TopicPartition, BrokerId], ReplicaReading]


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
        bracketed: bool = True,
        seed: int = 0,
        source: str = "simulator",
    ) -> None:
        self.cluster, self.rules, self.every_ms = cluster, rules, every_ms
        self.skew, self.loss, self.duplication, self.reorder = skew, loss, duplication, reorder
        self.bracketed, self.source = bracketed, source
        self.rounds = 0
        self._chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._silent_since: dict[BrokerId, int] = {}
        self._held: list[Observation] = []

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
        began = self.cluster.now_ms
        before_epoch = self._controller_epoch()
        metadata, registrations = self._metadata(), self.cluster.mode.registrations()
        leaders, followers = self._targets(metadata)
        first = self._read(leaders)
        readings = {**first, **self._read(followers)}
        # Without skew no time passes: a second look would see the same.
        again = self._read(leaders) if self.bracketed and self.skew else first
        self._pause()
        after = self._metadata() if self.bracketed and self.skew else metadata
        self._pause()
        sight = _Sight(
            began,
            metadata,
            registrations,
            readings,
            again if self.bracketed else {},
            after,
            _imbalance(metadata),
            {t: partition_settings(self.cluster, t) for t in {p.topic for p in metadata}},
            self.cluster.mode.controller(),
            self._controller_epoch(),
        )
        seen: list[Observation] = [self._cluster_observation(sight, before_epoch)]
        seen += [self._observation(partition, sight) for partition in sorted(metadata)]
        return self._disturb(seen + self._health(began))

    def _pause(self) -> None:
        if self.skew:
            self.cluster.advance(self._chance.randint(0, self.skew))

    def _controller_epoch(self) -> int:
        return self.cluster.mode.controller_epoch()

    def _metadata(self) -> Metadata:
        found = {}
        for partition in self.cluster.mode.partitions():
            known = self.cluster.mode.partition(partition)
            if known is not None:
                found[partition] = known
        return found

    def _targets(
        self, metadata: Metadata
    ) -> tuple[list[tuple[BrokerId, TopicPartition]], list[tuple[BrokerId, TopicPartition]]]:
        leaders: list[tuple[BrokerId, TopicPartition]] = []
        followers: list[tuple[BrokerId, TopicPartition]] = []
        for partition in sorted(metadata):
            known = metadata[partition]
            for broker in sorted(known.assignment.replicas):
                group = leaders if broker == known.state.leader else followers
                group.append((broker, partition))
        return sorted(leaders), sorted(followers)

    def _read(self, targets: list[tuple[BrokerId, TopicPartition]]) -> Readings:
        """One batched request per broker; log start and HW before LEO and lineage."""
        found: Readings = {}
        wanted: dict[BrokerId, list[TopicPartition]] = {}
        for broker, partition in targets:
            wanted.setdefault(broker, []).append(partition)
        for broker in sorted(wanted):
            self._pause()
            reader = Reader(self.cluster, self.cluster.brokers[broker])
            reader.begin(wanted[broker])
            self._pause()
            for partition, reading in reader.finish():
                found[partition, broker] = reading
        return found

    def _observation(self, partition: TopicPartition, sight: _Sight) -> PartitionObservation:
        known, readings = sight.metadata[partition], sight.readings
        replicas, leader = known.assignment.replicas, known.state.leader
        leader_again = sight.again.get((partition, leader))
        bracket = Bracket.NONE
        if self.bracketed:
            first = readings.get((partition, leader))
            bracket = _bracket(known, sight.after.get(partition), first, leader_again)
        return PartitionObservation(
            cluster=self.cluster.config.cluster,
            topic=partition.topic,
            partition=partition.partition,
            observed_at_ms=sight.began,
            rules=self.rules,
            state=known.state,
            assignment=known.assignment,
            live=tuple(r for r in sight.registrations if r.broker in replicas),
            settings=sight.settings[partition.topic],
            replicas=tuple(
                readings[partition, broker]
                for broker in replicas
                if (partition, broker) in readings
            ),
            leader_again=leader_again,
            bracket=bracket,
            topic_id=known.topic_id if self.cluster.preset.topic_ids else None,
            state_czxid=known.czxid,
            controller=sight.controller,
            cluster_controller_epoch=None if self.cluster.preset.kraft else sight.controller_epoch,
            preferred_imbalance=sight.imbalance[replicas[0]],
            deleting=known.deleting,
            source=self.source,
            round=self.rounds,
        )

    def _cluster_observation(self, sight: _Sight, before_epoch: int) -> ClusterObservation:
        mode = self.cluster.mode
        leading = {broker for (_, broker), reading in sight.readings.items() if reading.leads}
        return ClusterObservation(
            cluster=self.cluster.config.cluster,
            observed_at_ms=sight.began,
            rules=self.rules,
            controller=sight.controller,
            controller_epoch=sight.controller_epoch,
            controller_epoch_before=before_epoch,
            registrations=sight.registrations,
            answering=tuple(b.id for b in self.cluster.sorted_brokers() if b.answers),
            leading=tuple(sorted(leading)),
            claims=mode.claims(),
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
                    place=f"broker {broker.id}",
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
    if after is None or before[:4] != after[:4]:
        return Bracket.STRADDLED
    if before.state.leader < 0:
        return Bracket.COHERENT
    if (first is None) != (again is None):
        return Bracket.STRADDLED
    for reading in (first, again):
        if reading is None:
            continue
        in_office = reading.leads and reading.leader_epoch == before.state.leader_epoch
        if not in_office:
            return Bracket.STRADDLED
    if first is not None and again is not None and first.broker_epoch != again.broker_epoch:
        return Bracket.STRADDLED
    return Bracket.COHERENT


def _imbalance(metadata: Metadata) -> dict[BrokerId, float]:
    """For each broker that is preferred for something: the share of it that it does not lead."""
    mine: dict[BrokerId, list[bool]] = {}
    for known in metadata.values():
        preferred = known.assignment.replicas[0]
        mine.setdefault(preferred, []).append(known.state.leader != preferred)
    return {broker: sum(wrong) / len(wrong) for broker, wrong in mine.items()}
