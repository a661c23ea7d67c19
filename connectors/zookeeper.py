"""Rounds of observations from ZooKeeper alone, for those who may not connect to brokers.

Leaders, ISRs, epochs, controller, registrations and reassignments are watched with full authority;
of the replicas' logs nothing is known.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.broker_answers import Software, TopicValues
from tidestaff.connectors.broker_health import HealthBook, Problem, problem_of
from tidestaff.connectors.broker_options import options_of
from tidestaff.connectors.broker_settings import ClusterSettings
from tidestaff.connectors.errors import ConnectorError, OptionError, UnsupportedRequestError
from tidestaff.connectors.observing import cluster_observation, partition_observation
from tidestaff.consistency.model import Bracket, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tidestaff.connectors.broker_options import BrokerOptions
    from tidestaff.connectors.cluster_view import (
        ChangedValues,
        ClusterView,
        KnownPartition,
        MetadataSource,
        Problems,
    )
    from tidestaff.connectors.setting_values import Told
    from tidestaff.consistency.model import (
        BrokerId,
        HealthObservation,
        Observation,
        TopicPartition,
    )
    from tidestaff.consistency.versions import RuleSet

_OPTIONS: Final = (
    *("version", "protocol", "include", "exclude", "jitter_ms", "missed_rounds"),
    *("settings_refresh_ms",),
)


class ZookeeperConnector:
    """One cluster through ZooKeeper. The version must be given: no znode tells it."""

    def __init__(
        self,
        metadata: MetadataSource,
        cluster: str,
        options: BrokerOptions,
        *,
        now_ms: Callable[[], int],
        given: Mapping[str, str],
        sleep: Callable[[float], None] = time.sleep,
        seed: int | None = None,
    ) -> None:
        if options.version is None:
            raise OptionError(
                "version", "is missing", "no znode tells it: write the brokers' release, as 3.9.1"
            )
        self._metadata, self._cluster, self._options = metadata, cluster, options
        self._now_ms, self._sleep = now_ms, sleep
        self._chance = random.Random(seed)  # noqa: S311 - spreads load, keeps no secret
        self._settings = ClusterSettings(_NoBrokers(options.version), options, given)
        self._health = HealthBook(cluster, metadata.name, options.missed_rounds)
        self.rounds = 0

    def round(self) -> list[Observation]:
        """The cluster first, then every partition, then what could not be read."""
        self.rounds += 1
        if self._options.jitter_ms:
            self._sleep(self._chance.uniform(0, self._options.jitter_ms) / 1_000)
        began = self._now_ms()
        problems: Problems = {}
        try:
            view = self._metadata.before(self.rounds, self._refresh, problems)
        except ConnectorError as error:
            problem = problem_of("cluster", error, ProblemKind.SILENT)
            return [*self._health.close_round([problem], began, self.rounds, blind=True)]
        problems.update({each.place: each for each in self._settings.problems})
        after = self._metadata.after(self.rounds, problems)
        seen: list[Observation] = [
            cluster_observation(
                self._cluster,
                view,
                after,
                at_ms=began,
                number=self.rounds,
                source=self._metadata,
                rules=self._settings.rules,
                session_timeout_ms=self._settings.session_timeout_ms,
            )
        ]
        last = view if after is None else view._replace(controller_epoch=after.controller_epoch)
        seen += [
            partition_observation(
                self._cluster,
                partition,
                known,
                last,
                at_ms=began,
                number=self.rounds,
                source=self._metadata,
                rules=self._settings.rules,
                settings=self._settings.of(partition.topic),
                bracket=_bracket(known, partition, after),
            )
            for partition, known in view.partitions.items()
        ]
        return seen + self._health.close_round(problems.values(), began, self.rounds)

    def _refresh(
        self,
        brokers: Collection[BrokerId],
        topics: Mapping[str, object],
        changed: ChangedValues | None,
    ) -> RuleSet:
        self._settings.refresh(brokers, topics, self._now_ms(), changed)
        return self._settings.rules

    def resume(self, told: Iterable[HealthObservation]) -> None:
        """What the last round before a restart had told of itself."""
        self._health.resume(told)

    @property
    def untold(self) -> Sequence[Problem]:
        """What could not be read, and has not lasted long enough to be told."""
        return self._health.untold

    def close(self) -> None:
        self._metadata.close()


class _NoBrokers:
    """Implements SettingsReader where no broker is asked."""

    def __init__(self, version: str) -> None:
        self._version = version

    def software(self) -> Software:
        return Software(self._version, kraft=False)

    def topic_values(self, topics: Sequence[str], keys: Sequence[str]) -> TopicValues:
        raise UnsupportedRequestError("DescribeConfigs")

    def broker_values(self, broker: BrokerId, keys: Sequence[str]) -> Mapping[str, Told]:
        raise UnsupportedRequestError("DescribeConfigs")


def _bracket(
    known: KnownPartition, partition: TopicPartition, after: ClusterView | None
) -> Bracket:
    if after is None:
        return Bracket.NONE
    now = after.partitions.get(partition)
    same = now is not None and now.version == known.version and known.agreed
    return Bracket.COHERENT if same else Bracket.STRADDLED


def options_without_brokers(
    options: Mapping[str, object], secrets: Mapping[str, str]
) -> BrokerOptions:
    """What is left of a source's options once ZooKeeper's own are taken out."""
    for name in (*options, *secrets):
        if name not in _OPTIONS:
            raise OptionError(
                name,
                "is not known to the collector zookeeper",
                f"take one of {', '.join(_OPTIONS)}, zookeeper_* and settings.*",
            )
    return options_of({**options, "mode": "zookeeper", "bootstrap_servers": "none"}, {})
