"""The automatic rebalance: which leaders go back to their preferred replica, and when.

Mirrors KafkaController.checkAndTriggerAutoLeaderRebalance, the PreferredReplicaImbalanceCount
metric, and KRaft's maybeBalancePartitionLeaders. The check runs every
leader.imbalance.check.interval.seconds; between two runs any imbalance is legal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.election import elect_preferred

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidestaff.consistency.model import Assignment, BrokerId, PartitionState
    from tidestaff.consistency.versions import RuleSet

DEFAULT_THRESHOLD_PERCENT: Final = 10
MAX_ELECTIONS_PER_KRAFT_RUN: Final = 1_000


class Leadership(NamedTuple):
    """What the controller knows of one partition. `state` None: it has no leadership info yet.

    `offline_replicas` are those whose log directory is known to be offline though the broker lives.
    """

    assignment: Assignment
    state: PartitionState | None
    deleting: bool = False
    offline_replicas: tuple[BrokerId, ...] = ()


class BrokerImbalance(NamedTuple):
    """The partitions a broker is preferred for, and those of them that another broker (or nobody)
    leads."""

    not_preferred: tuple[str, ...]
    total: int

    @property
    def ratio(self) -> float:
        return len(self.not_preferred) / self.total


def imbalance_by_broker(partitions: Mapping[str, Leadership]) -> dict[BrokerId, BrokerImbalance]:
    """Partitions count for the first broker of AR; those being deleted do not count at all, those
    without leadership info count in the total only. Leader -1 is not the preferred leader."""
    found: dict[BrokerId, BrokerImbalance] = {}
    for name, partition in partitions.items():
        if partition.deleting or not partition.assignment.replicas:
            continue
        preferred = partition.assignment.replicas[0]
        before = found.get(preferred, BrokerImbalance((), 0))
        bad = partition.state is not None and partition.state.leader != preferred
        found[preferred] = BrokerImbalance(
            (*before.not_preferred, name) if bad else before.not_preferred, before.total + 1
        )
    return found


def exceeds_threshold(imbalance: BrokerImbalance, *, threshold_percent: int) -> bool:
    """The ratio must be strictly greater: 1 of 10 at 10 % is left alone."""
    # Divided as Kafka divides (both as doubles), so that equal means equal there too.
    return imbalance.ratio > threshold_percent / 100


def partitions_to_move(
    partitions: Mapping[str, Leadership],
    *,
    live: Collection[BrokerId],
    rules: RuleSet,
    threshold_percent: int = DEFAULT_THRESHOLD_PERCENT,
    reassigning_elsewhere: bool = False,
) -> tuple[str, ...]:
    """The partitions that one run of the check gives to their preferred replica.

    Up to 3.3 nothing moves while any partition of the cluster is being reassigned, among
    `partitions` or elsewhere. Up to 2.5 an election was also tried where the preferred replica
    is live but not in the ISR; it failed and wrote nothing, so such a partition is not moved in
    any version.
    """
    reassigning = reassigning_elsewhere or any(
        partition.assignment.being_reassigned for partition in partitions.values()
    )
    if rules.rebalance_waits_for_reassignment and reassigning:
        return ()
    candidates = _candidates(partitions, rules=rules, threshold_percent=threshold_percent)
    movable = tuple(name for name in candidates if preferred_can_lead(partitions[name], live=live))
    return movable if rules.rebalance_has_threshold else movable[:MAX_ELECTIONS_PER_KRAFT_RUN]


def elections_tried(
    partitions: Mapping[str, Leadership],
    *,
    live: Collection[BrokerId],
    rules: RuleSet,
    threshold_percent: int = DEFAULT_THRESHOLD_PERCENT,
    reassigning_elsewhere: bool = False,
) -> tuple[str, ...]:
    """As `partitions_to_move`, with the elections that up to 2.5 were tried in vain (a log line
    and an error in the state-change log at every run): there only the preferred broker had to be
    live."""
    if rules.rebalance_checks_preferred_in_isr:
        return partitions_to_move(
            partitions,
            live=live,
            rules=rules,
            threshold_percent=threshold_percent,
            reassigning_elsewhere=reassigning_elsewhere,
        )
    if reassigning_elsewhere or any(p.assignment.being_reassigned for p in partitions.values()):
        return ()
    return tuple(
        name
        for name in _candidates(partitions, rules=rules, threshold_percent=threshold_percent)
        if _preferred_is_live(partitions[name], live)
    )


def preferred_can_lead(partition: Leadership, *, live: Collection[BrokerId]) -> bool:
    """The preferred replica is live, its log directory is online, and it is in the ISR."""
    if partition.state is None:
        return False
    online = frozenset(live) - frozenset(partition.offline_replicas)
    result = elect_preferred(
        assignment=partition.assignment.replicas, isr=partition.state.isr, live=online
    )
    return result.leader is not None


def has_preferred_leader(partition: Leadership, *, rules: RuleSet) -> bool:
    """Whether the metric takes the partition for balanced.

    From 2.7 a preferred replica that is still being added is not missed until it is in the ISR;
    once it is there the partition counts as imbalanced until the reassignment is done, whoever
    leads.
    """
    if partition.state is None or not partition.assignment.replicas:
        return True
    preferred = partition.assignment.replicas[0]
    if rules.imbalance_metric_spares_added_replica and preferred in partition.assignment.adding:
        return preferred not in partition.state.isr
    return partition.state.leader == preferred


def preferred_replica_imbalance_count(partitions: Iterable[Leadership], *, rules: RuleSet) -> int:
    """PreferredReplicaImbalanceCount: no threshold; topics queued for deletion and partitions
    without leadership info do not count."""
    return sum(
        not partition.deleting and not has_preferred_leader(partition, rules=rules)
        for partition in partitions
    )


def _candidates(
    partitions: Mapping[str, Leadership], *, rules: RuleSet, threshold_percent: int
) -> tuple[str, ...]:
    return tuple(
        name
        for imbalance in imbalance_by_broker(partitions).values()
        if not rules.rebalance_has_threshold
        or exceeds_threshold(imbalance, threshold_percent=threshold_percent)
        for name in imbalance.not_preferred
    )


def _preferred_is_live(partition: Leadership, live: Collection[BrokerId]) -> bool:
    preferred = partition.assignment.replicas[0]
    return preferred in live and preferred not in partition.offline_replicas
