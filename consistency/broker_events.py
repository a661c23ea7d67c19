"""What the ZooKeeper-mode controller writes when a broker dies, and when one comes back.

Mirrors KafkaController.onReplicasBecomeOffline and onBrokerStartup (0.8 - 3.9). `live` means what
it means in `election`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.election import offline_election, remove_from_isr
from tidestaff.consistency.model import NO_LEADER, BrokerId, PartitionState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidestaff.consistency.versions import RuleSet


def broker_failure(
    state: PartitionState,
    *,
    assignment: Sequence[BrokerId],
    dead: Sequence[BrokerId],
    live: Collection[BrokerId],
    unclean_allowed: bool,
    rules: RuleSet,
    controller_epoch: int | None = None,
) -> tuple[PartitionState, ...]:
    """What the death of `dead`, seen in one event, writes to one partition, in order.

    First an offline election if the leader is not live, then each dead broker that is still in
    the ISR is taken out of it. Kafka takes the dead in the order of a hash map, so when the
    whole ISR dies nobody can predict which member stays: `dead` is the order to suppose. `live`
    may still name the dead. A leader in controlled shutdown is not live, so another broker's
    death moves it as well.
    """
    survivors = frozenset(live) - frozenset(dead)
    writes: list[PartitionState] = []
    if state.leader not in survivors:
        elected = offline_election(
            state,
            assignment=assignment,
            live=survivors,
            unclean_allowed=unclean_allowed,
            rules=rules,
            controller_epoch=controller_epoch,
        )
        writes.extend(_present(elected))
    for replica in dict.fromkeys(dead):
        if replica in assignment:
            removed = remove_from_isr(
                writes[-1] if writes else state,
                replica=replica,
                rules=rules,
                unclean_allowed=unclean_allowed,
                controller_epoch=controller_epoch,
            )
            writes.extend(_present(removed))
    return tuple(writes)


def controller_failover(
    state: PartitionState,
    *,
    assignment: Sequence[BrokerId],
    live: Collection[BrokerId],
    unclean_allowed: bool,
    rules: RuleSet,
    controller_epoch: int | None = None,
) -> tuple[PartitionState, ...]:
    """What a new controller writes to one partition as it takes over, in order.

    It starts its replicas before its partitions, the other way round than on a broker's death: from
    2.4 on a replica that is not live is taken out of the ISR first, which leaves a partition it led
    without a leader, and the election that follows is a second write. So where the controller's own
    broker dies, the partitions it led rise by two leader epochs. Before 2.4 only replicas that are
    live are started: those partitions rise by one, and where the dead broker followed nothing is
    written; it leaves the ISR when its leader finds it behind. (KafkaController
    .onControllerFailover: replicaStateMachine.startup, then partitionStateMachine.startup.)
    """
    writes: list[PartitionState] = []
    latest = state
    for replica in assignment if rules.new_controller_removes_dead else ():
        if replica not in live:
            removed = remove_from_isr(
                latest,
                replica=replica,
                rules=rules,
                unclean_allowed=unclean_allowed,
                controller_epoch=controller_epoch,
            )
            writes.extend(_present(removed))
            latest = removed or latest
    if latest.leader not in live:
        elected = offline_election(
            latest,
            assignment=assignment,
            live=live,
            unclean_allowed=unclean_allowed,
            rules=rules,
            controller_epoch=controller_epoch,
        )
        writes.extend(_present(elected))
    return tuple(writes)


def broker_return(
    state: PartitionState,
    *,
    assignment: Sequence[BrokerId],
    live: Collection[BrokerId],
    unclean_allowed: bool,
    rules: RuleSet,
    controller_epoch: int | None = None,
) -> PartitionState | None:
    """A broker that joins makes the controller try an election for a partition without a leader.

    A partition that has a leader keeps it, wherever it stands in AR: the ISR grows later, by the
    leader. This is when an unclean election of a stale replica happens.
    """
    if state.leader != NO_LEADER:
        return None
    return offline_election(
        state,
        assignment=assignment,
        live=live,
        unclean_allowed=unclean_allowed,
        rules=rules,
        controller_epoch=controller_epoch,
    )


def _present(state: PartitionState | None) -> tuple[PartitionState, ...]:
    return () if state is None else (state,)
