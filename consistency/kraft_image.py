"""The KRaft controller's image of the cluster: its brokers, its partitions, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidestaff.consistency.kraft import KraftPartition, effective_min_isr
from tidestaff.consistency.model import NO_LEADER, BrokerId, Registration, TopicPartition

if TYPE_CHECKING:
    from tidestaff.consistency.versions import RuleSet


class TopicSettings(NamedTuple):
    """The two topic settings the controller looks at when it changes a partition."""

    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False


_DEFAULT_SETTINGS: Final = TopicSettings()
Partitions: TypeAlias = Mapping[TopicPartition, KraftPartition]


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """What the controller knows. `offline_replicas` are those in a log directory known offline."""

    rules: RuleSet
    brokers: Mapping[BrokerId, Registration]
    partitions: Partitions = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicSettings] = field(default_factory=lambda: MappingProxyType({}))
    defaults: TopicSettings = _DEFAULT_SETTINGS
    offline_replicas: frozenset[tuple[BrokerId, TopicPartition]] = frozenset()

    def settings(self, topic: str) -> TopicSettings:
        return self.topics.get(topic, self.defaults)

    def unclean_allowed(self, topic: str) -> bool:
        """Up to 3.8 the KRaft controller reads unclean.leader.election.enable as false."""
        wanted = self.settings(topic).unclean_leader_election_enable
        return wanted and self.rules.unclean_election_honoured

    def min_isr(self, tp: TopicPartition) -> int:
        """Partition 0 stands for the whole topic, as in Kafka."""
        counted = self.partitions.get(TopicPartition(tp.topic, 0), self.partitions[tp])
        return effective_min_isr(
            min_insync_replicas=self.settings(tp.topic).min_insync_replicas,
            replication_factor=len(counted.replicas),
        )

    def with_broker(self, registration: Registration) -> ClusterImage:
        return replace(self, brokers={**self.brokers, registration.broker: registration})

    def with_partition(self, tp: TopicPartition, partition: KraftPartition) -> ClusterImage:
        return replace(self, partitions={**self.partitions, tp: partition})

    @property
    def imbalanced(self) -> tuple[TopicPartition, ...]:
        """The partitions that are not led by their first replica, the leaderless ones included."""
        return tuple(tp for tp, p in self.partitions.items() if (p.leader,) != p.replicas[:1])

    @property
    def leaderless(self) -> tuple[TopicPartition, ...]:
        return tuple(tp for tp, p in self.partitions.items() if p.leader == NO_LEADER)
