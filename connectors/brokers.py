"""Rounds of observations of a live cluster: metadata from its source, replicas from the brokers.

A round reads the metadata, then leaders, then followers, then leaders again, then the metadata
again: a bracketed sample. Nothing is ever written to the cluster.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.broker_bracket import bracket_of, targets_of
from tidestaff.connectors.broker_following import FollowerLineages
from tidestaff.connectors.broker_health import (
    HealthBook,
    Problem,
    broker_problem,
    problem_of,
    replica_problems,
)
from tidestaff.connectors.broker_lineage import Lineages
from tidestaff.connectors.broker_log_dirs import LogDirectories
from tidestaff.connectors.broker_metadata import BrokerMetadata
from tidestaff.connectors.broker_reading import ReplicaReader, Told
from tidestaff.connectors.broker_settings import ClusterSettings
from tidestaff.connectors.bursting import EpochChanges
from tidestaff.connectors.errors import BrokerSilentError, ConnectorError
from tidestaff.connectors.observing import cluster_observation, partition_observation
from tidestaff.connectors.pacing import Rest
from tidestaff.consistency.model import Bracket, BrokerId, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidestaff.connectors.agent_readings import Agents
    from tidestaff.connectors.broker_answers import BrokerReader
    from tidestaff.connectors.broker_options import BrokerOptions
    from tidestaff.connectors.cluster_view import (
        ChangedValues,
        ClusterView,
        MetadataSource,
        Problems,
    )
    from tidestaff.connectors.digest_rounds import DigestRounds
    from tidestaff.consistency.model import (
        ClusterObservation,
        HealthObservation,
        Observation,
        PartitionObservation,
        Registration,
        ReplicaReading,
        TopicPartition,
    )
    from tidestaff.consistency.versions import RuleSet

    Readings = dict[TopicPartition, dict[BrokerId, ReplicaReading]]
    Targets = dict[BrokerId, list[TopicPartition]]

Answer = tuple[BrokerId, Told | ConnectorError]
Each = Callable[[Callable[[BrokerId], Answer], Sequence[BrokerId]], Iterable[Answer]]


_ASKED_MS: Final = 600_000
"""So long is a broker asked that the cluster does not list any more."""


class _Notes(NamedTuple):
    """Who answered in this round, who failed, and what could not be read."""

    problems: Problems
    failed: dict[BrokerId, ConnectorError]
    answering: set[BrokerId]


class _Sight(NamedTuple):
    """All that one round has read."""

    began: int
    view: ClusterView
    after: ClusterView | None
    readings: Readings
    again: Readings


class BrokerConnector:
    """One cluster, its replicas through the brokers' own protocol. `each` asks several brokers, at
    once or in turn; `closing` ends whatever does that. `sleep` takes seconds. `given` are settings
    nobody can be asked for."""

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
        metadata: MetadataSource | None = None,
        given: Mapping[str, str] | None = None,
        agents: Agents | None = None,
        digests: DigestRounds | None = None,
        closing: Callable[[], object] = lambda: None,
    ) -> None:
        self._reader, self._cluster, self._options = reader, cluster, options
        self._now_ms, self._sleep, self._each = now_ms, sleep, each
        self._closing = closing
        self._chance = random.Random(seed)  # noqa: S311 - spreads load, keeps no secret
        self._metadata = metadata or BrokerMetadata(reader, options)
        self._settings = ClusterSettings(reader, options, given or {})
        self._agents, self._digests = agents, digests
        self._lineages = Lineages()
        self._followers = FollowerLineages(reader, options.header_fetches)
        self._replicas = ReplicaReader(
            reader,
            self._lineages,
            now_ms,
            at_once=options.partitions_per_request,
            followers=self._followers,
            tiered=lambda topic: self._settings.of(topic).remote_storage,
        )
        self._log_dirs = LogDirectories(reader, options)
        self._epochs = EpochChanges(options.burst_partitions)
        self._health = HealthBook(cluster, self._metadata.name, options.missed_rounds)
        self._rest: Rest[BrokerId] = Rest(options.backoff_ms, options.backoff_max_ms, self._chance)
        self._silent: dict[BrokerId, ConnectorError] = {}
        self._listed: frozenset[Registration] = frozenset()
        self._left: dict[BrokerId, int] = {}
        self.rounds = 0
        self.voters: tuple[BrokerId, ...] = ()
        """Nodes whose majority elects the controller, as far as the last round was told."""
        self.silent_voters: tuple[BrokerId, ...] = ()
        """Those of them that are away in this round; of health it is told when it lasts."""

    def round(self) -> list[Observation]:
        """The cluster first, then every partition, then what could not be read."""
        self.rounds += 1
        if self._options.jitter_ms:
            self._sleep(self._chance.uniform(0, self._options.jitter_ms) / 1_000)
        began = self._now_ms()
        notes = _Notes({}, {}, set())
        try:
            view = self._metadata.before(self.rounds, self._refresh, notes.problems)
        except ConnectorError as error:
            problem = problem_of("cluster", error, ProblemKind.SILENT)
            return [*self._health.close_round([problem], began, self.rounds, blind=True)]
        self.voters = view.voters
        self.silent_voters = tuple(v for v in view.voters if f"controller {v}" in notes.problems)
        for problem in self._settings.problems:
            notes.problems[problem.place] = problem
        sight = self._sight(began, view, notes)
        seen: list[Observation] = [self._cluster_observation(sight, notes)]
        partitions = list(self._observations(sight))
        if self._digests is not None:
            partitions = self._digests.add_to(partitions, began)
            for problem in self._digests.problems():
                notes.problems[problem.place] = problem
        seen += partitions
        told = self._health.close_round(notes.problems.values(), began, self.rounds)
        return [*seen, *self._burst(sight, notes), *told]

    def _burst(self, sight: _Sight, notes: _Notes) -> Iterator[PartitionObservation]:
        """A few more samples of partitions that have a new leader, at short distance. Brokers that
        failed in this round are left out, and nothing new is said of anybody's health."""
        moved = self._epochs.moved(sight.view.partitions)
        # A broker that does not name its epoch cannot show so soon that it has heard of it.
        told = {p for p in moved if _names_epoch(sight.readings[p].values())}
        for _ in range(self._options.burst_rounds if told else 0):
            self._sleep(self._options.burst_interval_ms / 1_000)
            # Whoever was silent in this round is not asked again, the controller neither.
            began, aside = self._now_ms(), _Notes(dict(notes.problems), dict(notes.failed), set())
            try:
                # From the same broker as before: the cache of another one may lag behind it.
                view = self._metadata.before(self.rounds, self._refresh, aside.problems)
            except ConnectorError:
                return
            known = {p: found for p, found in view.partitions.items() if p in told}
            yield from self._observations(
                self._sampled(began, view._replace(partitions=known), aside)
            )
            if self._now_ms() - began > self._options.timeout_ms:
                return  # the next round is due, and somebody is slow

    def _refresh(
        self,
        brokers: Collection[BrokerId],
        topics: Mapping[str, object],
        changed: ChangedValues | None,
    ) -> RuleSet:
        if self._settings.refresh(brokers, topics, self._now_ms(), changed):
            self._lineages.forget()
            self._followers.forget()
            self._replicas.forget()
        return self._settings.rules

    def _sight(self, began: int, view: ClusterView, notes: _Notes) -> _Sight:
        self._come_back(view)
        if self._agents is not None:
            self._agents.begin_round(
                {p: known.assignment.replicas for p, known in view.partitions.items()}
            )
        found = self._sampled(began, view, notes)
        if self._agents is not None:
            notes.problems.update(self._agents.problems)
        self._ping(view, notes)
        shown = {partition.topic for partition in view.partitions}
        events = (found.after or view).log_dir_events
        self._log_dirs.refresh(notes.answering, shown, self._now_ms(), events)
        notes.problems.update(self._log_dirs.problems)
        self._tell_silent(view, notes)
        return found

    def _sampled(self, began: int, view: ClusterView, notes: _Notes) -> _Sight:
        """Leaders, followers, leaders again, and the metadata again."""
        leaders, followers = targets_of(view.partitions)
        readings: Readings = {partition: {} for partition in view.partitions}
        again: Readings = {partition: {} for partition in view.partitions}
        self._read(leaders, readings, view, notes, as_leader=True)
        self._read(followers, readings, view, notes, as_leader=False)
        self._read(leaders, again, view, notes, as_leader=True)
        after = self._metadata.after(self.rounds, notes.problems)
        return _Sight(began, view, after, readings, again)

    # -- replicas

    def _read(
        self,
        targets: Targets,
        into: Readings,
        view: ClusterView,
        notes: _Notes,
        *,
        as_leader: bool,
    ) -> None:
        """Every broker that may be asked, all of its partitions; who fails is out for the round.

        One that the cluster has given up may not know it, and go on: it is asked for a while, too.
        """
        ids = {p.topic: known.topic_id for p, known in view.partitions.items()}
        now_ms, live = self._now_ms(), view.live
        asked = [
            broker
            for broker in sorted(targets)
            if (broker in live or now_ms - self._left.get(broker, -_ASKED_MS) < _ASKED_MS)
            and broker not in notes.failed
            and not self._rest.resting(broker, now_ms)
        ]

        def ask(broker: BrokerId) -> Answer:
            try:
                told = self._replicas.read(broker, targets[broker], ids, as_leader=as_leader)
                return broker, told if self._agents is None else self._agents.add_to(broker, told)
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

    def _ping(self, view: ClusterView, notes: _Notes) -> None:
        """Brokers that hold nothing we read must show that they are there, too."""
        for broker in sorted(view.live - notes.answering - notes.failed.keys()):
            if self._rest.resting(broker, self._now_ms()):
                continue
            try:
                self._reader.ping(broker)
            except ConnectorError as error:
                notes.failed[broker] = error
            else:
                notes.answering.add(broker)

    def _come_back(self, view: ClusterView) -> None:
        """A broker that the cluster lists again, or that has registered anew, is asked at once; and
        so is one that it does not list any more."""
        listed = frozenset(view.registrations[broker] for broker in view.live)
        for registration in listed - self._listed:
            self._rest.succeeded(registration.broker)
        for broker in {each.broker for each in self._listed} - view.live:
            self._left[broker] = self._now_ms()
            self._rest.succeeded(broker)
        for broker in view.live:
            self._left.pop(broker, None)
        self._listed = listed

    def _tell_silent(self, view: ClusterView, notes: _Notes) -> None:
        """Who failed, who rests because it failed before, and who is not there to be asked."""
        now_ms, before = self._now_ms(), self._silent
        assigned = {b for known in view.partitions.values() for b in known.assignment.replicas}
        self._silent = dict(notes.failed)
        for broker in notes.failed:
            self._rest.failed(broker, now_ms)
        for broker in view.live - notes.failed.keys():
            if broker in notes.answering:
                self._rest.succeeded(broker)
            elif broker in before:
                self._silent[broker] = before[broker]
        for broker in assigned - view.live - notes.answering:
            fenced = broker in view.registrations
            why = "it is fenced" if fenced else "the cluster does not list it as live"
            self._silent[broker] = BrokerSilentError(broker, why)
        for broker, error in self._silent.items():
            notes.problems[f"broker {broker}"] = broker_problem(broker, error)

    # -- observations

    def _observations(self, sight: _Sight) -> Iterator[PartitionObservation]:
        view, after = sight.view, sight.after
        for partition, known in view.partitions.items():
            readings, leader = sight.readings[partition], known.state.leader
            leader_again = sight.again[partition].get(leader)
            yield partition_observation(
                self._cluster,
                partition,
                known,
                view
                if after is None
                else view._replace(
                    controller=after.controller, controller_epoch=after.controller_epoch
                ),
                at_ms=sight.began,
                number=self.rounds,
                source=self._metadata,
                rules=self._settings.rules,
                settings=self._settings.of(partition.topic),
                replicas=tuple(readings[b] for b in known.assignment.replicas if b in readings),
                leader_again=leader_again,
                bracket=Bracket.NONE
                if after is None
                else bracket_of(
                    known, after.partitions.get(partition), readings.get(leader), leader_again
                ),
            )

    def _cluster_observation(self, sight: _Sight, notes: _Notes) -> ClusterObservation:
        """Who answers is told in rounds in which everybody was asked: of a broker that rests
        nobody knows whether it would."""
        everybody = sight.view.live <= notes.answering | notes.failed.keys()
        leading = {
            reading.broker
            for readings in sight.readings.values()
            for reading in readings.values()
            if reading.leads
        }
        return cluster_observation(
            self._cluster,
            sight.view,
            sight.after,
            at_ms=sight.began,
            number=self.rounds,
            source=self._metadata,
            rules=self._settings.rules,
            session_timeout_ms=self._settings.session_timeout_ms,
            answering=tuple(sorted(notes.answering)) if everybody else None,
            leading=tuple(sorted(leading)),
        )

    def resume(self, told: Iterable[HealthObservation]) -> None:
        """What the last round before a restart had told of itself."""
        self._health.resume(told)

    @property
    def untold(self) -> Sequence[Problem]:
        """What could not be read, and has not lasted long enough to be told."""
        return self._health.untold

    def close(self) -> None:
        self._closing()
        self._metadata.close()
        self._reader.close()


def _names_epoch(readings: Iterable[ReplicaReading]) -> bool:
    return any(reading.leader_epoch is not None for reading in readings)
