"""Rounds of observations of a live cluster, from its brokers alone.

A round reads the metadata, then leaders, then followers, then leaders again, then the metadata
again: a bracketed sample. Metadata comes from a broker's cache, so it is not authoritative and has
no partition epoch. Nothing is ever written to the cluster.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidestaff.connectors.broker_bracket import (
    agrees,
    assignment_of,
    bracket_of,
    imbalance_of,
    registrations_of,
    state_of,
    targets_of,
)
from tidestaff.connectors.broker_health import (
    HealthBook,
    Problem,
    broker_problem,
    problem_of,
    replica_problems,
)
from tidestaff.connectors.broker_lineage import Lineages
from tidestaff.connectors.broker_reading import ReplicaReader, Told
from tidestaff.connectors.broker_settings import ClusterSettings
from tidestaff.connectors.errors import BrokerSilentError, ConnectorError
from tidestaff.connectors.pacing import Rest
from tidestaff.consistency.model import (
    LEADER_DURING_DELETION,
    NO_LEADER,
    Bracket,
    BrokerId,
    ClusterObservation,
    PartitionObservation,
    ProblemKind,
)
from tidestaff.consistency.versions import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidestaff.connectors.broker_answers import (
        BrokerReader,
        ClusterMetadata,
        Eligible,
        ListedPartition,
        Moving,
    )
    from tidestaff.connectors.broker_options import BrokerOptions
    from tidestaff.consistency.model import Observation, ReplicaReading, TopicPartition

    Readings = dict[TopicPartition, dict[BrokerId, ReplicaReading]]
    Targets = dict[BrokerId, list[TopicPartition]]

Answer = tuple[BrokerId, Told | ConnectorError]
Each = Callable[[Callable[[BrokerId], Answer], Sequence[BrokerId]], Iterable[Answer]]

T = TypeVar("T")

SOURCE: Final = "brokers"


class _Controller(NamedTuple):
    """Who is controller, in which epoch; None where it is not told."""

    broker: BrokerId | None = None
    epoch: int | None = None


class _Notes(NamedTuple):
    """Who answered in this round, who failed, and what could not be read."""

    problems: dict[str, Problem]
    failed: dict[BrokerId, ConnectorError]
    answering: set[BrokerId]


class _Sight(NamedTuple):
    """All that one round has read."""

    began: int
    metadata: ClusterMetadata
    wanted: Mapping[TopicPartition, ListedPartition]
    after: ClusterMetadata | None
    readings: Readings
    again: Readings
    moving: Mapping[TopicPartition, Moving]
    eligible: Mapping[TopicPartition, Eligible]
    controller: _Controller
    controller_before: _Controller


class BrokerConnector:
    """One cluster through the brokers' own protocol. `each` asks several brokers, at once or in
    turn; `sleep` takes seconds."""

    def __init__(
        self,
        reader: BrokerReader,
        cluster: str,
        options: BrokerOptions,
        *,
        now_ms: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
        each: Each = map,
        seed: int | None = None,
    ) -> None:
        self._reader, self._cluster, self._options = reader, cluster, options
        self._now_ms, self._sleep, self._each = now_ms, sleep, each
        self._chance = random.Random(seed)  # noqa: S311 - spreads load, keeps no secret
        self._settings = ClusterSettings(reader, options)
        self._lineages = Lineages()
        self._replicas = ReplicaReader(
            reader, self._lineages, now_ms, at_once=options.partitions_per_request
        )
        self._health = HealthBook(cluster, SOURCE, options.missed_rounds)
        self._rest: Rest[BrokerId] = Rest(options.backoff_ms, options.backoff_max_ms, self._chance)
        self._silent: dict[BrokerId, ConnectorError] = {}
        self._listed: frozenset[BrokerId] = frozenset()
        self._moving: Mapping[TopicPartition, Moving] = {}
        self.rounds = 0

    def round(self) -> list[Observation]:
        """The cluster first, then every partition, then what could not be read."""
        self.rounds += 1
        if self._options.jitter_ms:
            self._sleep(self._chance.uniform(0, self._options.jitter_ms) / 1_000)
        began = self._now_ms()
        try:
            metadata = self._reader.metadata(self.rounds)
            self._refresh(metadata, began)
        except ConnectorError as error:
            problem = problem_of("cluster", error, ProblemKind.SILENT)
            return [*self._health.close_round([problem], began, self.rounds, blind=True)]
        notes = _Notes({each.place: each for each in self._settings.problems}, {}, set())
        sight = self._sight(began, metadata, notes)
        seen: list[Observation] = [self._cluster_observation(sight, notes.answering)]
        seen += self._observations(sight)
        return seen + self._health.close_round(notes.problems.values(), began, self.rounds)

    def _refresh(self, metadata: ClusterMetadata, now_ms: int) -> None:
        topics = {p.topic for p in metadata.partitions if self._options.wants(p.topic)}
        if self._settings.refresh(metadata.brokers, topics, now_ms):
            self._lineages.forget()

    def _sight(self, began: int, metadata: ClusterMetadata, notes: _Notes) -> _Sight:
        wanted = {p: known for p, known in metadata.partitions.items() if self._wants(p)}
        self._come_back(metadata)
        controller_before = self._controller(metadata, notes.problems)
        moving = self._reassignments(metadata, notes)
        eligible = (
            self._optional("eligible leader replicas", self._reader.eligible, notes.problems)
            if self._settings.rules.elr
            else None
        )
        leaders, followers = targets_of(wanted)
        readings: Readings = {partition: {} for partition in wanted}
        again: Readings = {partition: {} for partition in wanted}
        for targets, into in ((leaders, readings), (followers, readings), (leaders, again)):
            self._read(targets, into, metadata, notes)
        self._ping(metadata, notes)
        after = self._metadata_again()
        assigned = {broker for known in wanted.values() for broker in known.replicas}
        self._tell_silent(metadata, assigned, notes)
        return _Sight(
            began,
            metadata,
            wanted,
            after,
            readings,
            again,
            moving,
            eligible or {},
            self._controller(after or metadata, notes.problems),
            controller_before,
        )

    def _wants(self, partition: TopicPartition) -> bool:
        return self._options.wants(partition.topic)

    def _metadata_again(self) -> ClusterMetadata | None:
        try:
            return self._reader.metadata(self.rounds)
        except ConnectorError:
            return None

    def _controller(self, metadata: ClusterMetadata, problems: dict[str, Problem]) -> _Controller:
        """In KRaft mode brokers' metadata names any of them, so the quorum is asked."""
        if self._settings.rules.mode is Mode.ZOOKEEPER:
            return _Controller(metadata.controller)
        if _controller_is_away(problems):
            return _Controller()
        quorum = self._optional("quorum", self._reader.quorum, problems)
        return _Controller() if quorum is None else _Controller(quorum.leader, quorum.epoch)

    def _reassignments(
        self, metadata: ClusterMetadata, notes: _Notes
    ) -> Mapping[TopicPartition, Moving]:
        """In ZooKeeper mode the controller knows them, in KRaft mode any broker passes it on. While
        they cannot be read, those known before count where the replicas are still the same."""
        kraft = self._settings.rules.mode is Mode.KRAFT
        found = None
        if not _controller_is_away(notes.problems):
            found = self._optional(
                "reassignments",
                lambda: self._reader.reassignments(NO_LEADER if kraft else metadata.controller),
                notes.problems,
            )
        if found is None:
            known = metadata.partitions
            found = {
                partition: moving
                for partition, moving in self._moving.items()
                if partition in known and agrees(known[partition], moving, None)
            }
        self._moving = found
        return found

    def _optional(self, place: str, ask: Callable[[], T], problems: dict[str, Problem]) -> T | None:
        try:
            return ask()
        except ConnectorError as error:
            problems[place] = problem_of(place, error, ProblemKind.UNREADABLE)
            return None

    # -- replicas

    def _read(
        self,
        targets: Targets,
        into: Readings,
        metadata: ClusterMetadata,
        notes: _Notes,
    ) -> None:
        """Every broker that may be asked, all of its partitions; who fails is out for the round."""
        ids = {p.topic: known.topic_id for p, known in metadata.partitions.items()}
        now_ms = self._now_ms()
        asked = [
            broker
            for broker in sorted(targets)
            if broker in metadata.brokers
            and broker not in notes.failed
            and not self._rest.resting(broker, now_ms)
        ]

        def ask(broker: BrokerId) -> Answer:
            try:
                return broker, self._replicas.read(broker, targets[broker], ids)
            except ConnectorError as error:
                return broker, error

        for broker, told in self._each(ask, asked):
            if isinstance(told, ConnectorError):
                notes.failed[broker] = told
                continue
            notes.answering.add(broker)
            for partition, reading in told.readings.items():
                into[partition][broker] = reading
            for problem in replica_problems(broker, told):
                notes.problems[problem.place] = problem

    def _ping(self, metadata: ClusterMetadata, notes: _Notes) -> None:
        """Brokers that hold nothing we read must show that they are there, too."""
        for broker in sorted(metadata.brokers.keys() - notes.answering - notes.failed.keys()):
            if self._rest.resting(broker, self._now_ms()):
                continue
            try:
                self._reader.ping(broker)
            except ConnectorError as error:
                notes.failed[broker] = error
            else:
                notes.answering.add(broker)

    def _come_back(self, metadata: ClusterMetadata) -> None:
        """A broker that the cluster lists again is asked at once."""
        for broker in metadata.brokers.keys() - self._listed:
            self._rest.succeeded(broker)
        self._listed = frozenset(metadata.brokers)

    def _tell_silent(
        self, metadata: ClusterMetadata, assigned: set[BrokerId], notes: _Notes
    ) -> None:
        """Who failed, who rests because it failed before, and who is not there to be asked."""
        now_ms, before = self._now_ms(), self._silent
        self._silent = dict(notes.failed)
        for broker in notes.failed:
            self._rest.failed(broker, now_ms)
        for broker in metadata.brokers.keys() - notes.failed.keys():
            if broker in notes.answering:
                self._rest.succeeded(broker)
            elif broker in before:
                self._silent[broker] = before[broker]
        for broker in assigned - metadata.brokers.keys():
            self._silent[broker] = BrokerSilentError(broker, "the cluster does not list it as live")
        for broker, error in self._silent.items():
            notes.problems[f"broker {broker}"] = broker_problem(broker, error)

    # -- observations

    def _observations(self, sight: _Sight) -> Iterator[PartitionObservation]:
        rules, imbalance = self._settings.rules, imbalance_of(sight.metadata)
        if rules.rebalance_waits_for_reassignment and sight.moving:
            imbalance = {}
        registrations = registrations_of(sight.metadata)
        for partition, known in sight.wanted.items():
            moving, eligible = sight.moving.get(partition), sight.eligible.get(partition)
            readings = sight.readings[partition]
            leader_again = sight.again[partition].get(known.leader)
            yield PartitionObservation(
                cluster=self._cluster,
                topic=partition.topic,
                partition=partition.partition,
                observed_at_ms=sight.began,
                rules=rules,
                state=state_of(known, eligible),
                assignment=assignment_of(known, moving),
                live=tuple(r for r in registrations if r.broker in known.replicas),
                settings=self._settings.of(partition.topic),
                replicas=tuple(readings[b] for b in known.replicas if b in readings),
                leader_again=leader_again,
                bracket=Bracket.NONE
                if sight.after is None
                else bracket_of(
                    known,
                    sight.after.partitions.get(partition),
                    readings.get(known.leader),
                    leader_again,
                    agreed=agrees(known, moving, eligible),
                ),
                topic_id=known.topic_id,
                controller=sight.controller.broker,
                preferred_imbalance=imbalance.get(known.replicas[0]) if known.replicas else None,
                deleting=known.leader == LEADER_DURING_DELETION,
                authoritative=False,
                source=SOURCE,
                round=self.rounds,
            )

    def _cluster_observation(self, sight: _Sight, answering: set[BrokerId]) -> ClusterObservation:
        leading = {
            reading.broker
            for readings in sight.readings.values()
            for reading in readings.values()
            if reading.leads
        }
        return ClusterObservation(
            cluster=self._cluster,
            observed_at_ms=sight.began,
            rules=self._settings.rules,
            controller=sight.controller.broker,
            controller_epoch=sight.controller.epoch,
            controller_epoch_before=sight.controller_before.epoch,
            registrations=registrations_of(sight.metadata),
            answering=tuple(sorted(answering)),
            leading=tuple(sorted(leading)),
            session_timeout_ms=self._settings.session_timeout_ms,
            source=SOURCE,
            round=self.rounds,
        )

    def close(self) -> None:
        self._reader.close()


def _controller_is_away(problems: Mapping[str, Problem]) -> bool:
    """It was asked in this round and did not answer: asking again would cost another timeout."""
    quorum = problems.get("quorum")
    return quorum is not None and not quorum.at_once
