"""How the ZooKeeper-mode controller chooses leaders, and what it writes when it does.

Mirrors PartitionStateMachine, Election, ReplicaStateMachine and KafkaController (0.8 - 3.9); what a
broker's death or return writes is in `broker_events`, its orderly end in `controlled_shutdown`.
Every function is pure: `live` are the brokers that are registered, not in controlled shutdown
and whose log directory of the partition is not known to be offline; `registered` includes those
shutting down.

Two layers. `elect_*` only say who would lead. `*_election` and the functions below them give the
state that is then written: a new `PartitionState` with leader_epoch and zkVersion one higher, or
None where Kafka writes nothing. `controller_epoch` is the writer's own; None keeps the one that
was read.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.model import (
    NO_LEADER,
    BrokerId,
    PartitionState,
    RecoveryState,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tidestaff.consistency.versions import RuleSet

INITIAL_LEADER_EPOCH: Final = 0
INITIAL_PARTITION_EPOCH: Final = 0


class ElectionKind(Enum):
    """Whether the new leader was in the ISR (CLEAN), was not (UNCLEAN), or nobody was found
    (NONE)."""

    CLEAN = "clean"
    UNCLEAN = "unclean"
    NONE = "none"


class ElectionResult(NamedTuple):
    """Who leads, how the choice was made, and why."""

    leader: BrokerId | None
    kind: ElectionKind
    because: str


class ElectionStrategy(Enum):
    """The four occasions on which the controller elects."""

    OFFLINE = "offline"
    REASSIGN = "reassign"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"


def elect_offline(
    *,
    assignment: Sequence[BrokerId],
    isr: Collection[BrokerId],
    live: Collection[BrokerId],
    unclean_allowed: bool,
) -> ElectionResult:
    """The first assigned replica that is live and in the ISR leads; failing that, and only where
    unclean election is allowed, the first assigned replica that is live."""
    clean = _first(assignment, live, isr)
    if clean is not None:
        return ElectionResult(clean, ElectionKind.CLEAN, "first of AR that is live and in the ISR")
    if not unclean_allowed:
        return _nobody("no ISR member is live and unclean election is not allowed")
    unclean = _first(assignment, live)
    if unclean is None:
        return _nobody("no assigned replica is live")
    return ElectionResult(
        unclean, ElectionKind.UNCLEAN, "no ISR member is live: first of AR that is live"
    )


def elect_for_reassignment(
    *, target: Sequence[BrokerId], isr: Collection[BrokerId], live: Collection[BrokerId]
) -> ElectionResult:
    """The first target replica that is live and in the ISR leads; never an unclean one."""
    leader = _first(target, live, isr)
    if leader is None:
        return _nobody("no target replica is live and in the ISR")
    return ElectionResult(
        leader, ElectionKind.CLEAN, "first of the target that is live and in the ISR"
    )


def elect_preferred(
    *, assignment: Sequence[BrokerId], isr: Collection[BrokerId], live: Collection[BrokerId]
) -> ElectionResult:
    """The first assigned replica leads if it is live and in the ISR; there is no second choice."""
    leader = _first(assignment[:1], live, isr)
    if leader is None:
        return _nobody("the preferred replica is not live or not in the ISR")
    return ElectionResult(
        leader, ElectionKind.CLEAN, "the preferred replica is live and in the ISR"
    )


def elect_for_controlled_shutdown(
    *,
    assignment: Sequence[BrokerId],
    isr: Collection[BrokerId],
    registered: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
) -> ElectionResult:
    """The first assigned replica that is registered, in the ISR and not shutting down leads."""
    staying = [replica for replica in assignment if replica not in shutting_down]
    leader = _first(staying, registered, isr)
    if leader is None:
        return _nobody("nobody but brokers shutting down is registered and in the ISR")
    return ElectionResult(
        leader, ElectionKind.CLEAN, "first of AR that is in the ISR and not shutting down"
    )


def offline_election(
    state: PartitionState,
    *,
    assignment: Sequence[BrokerId],
    live: Collection[BrokerId],
    unclean_allowed: bool,
    rules: RuleSet,
    controller_epoch: int | None = None,
) -> PartitionState | None:
    """A clean choice keeps the live ISR members in their old order; an unclean one is the whole
    ISR.

    Unclean is considered only when no ISR member at all is live, whether assigned or not, as
    collectUncleanLeaderElectionState does. RECOVERING is written where the rule set knows it.
    """
    nobody_in_sync = not any(replica in live for replica in state.isr)
    result = elect_offline(
        assignment=assignment,
        isr=state.isr,
        live=live,
        unclean_allowed=unclean_allowed and nobody_in_sync,
    )
    if result.leader is None:
        return None
    if result.kind is ElectionKind.CLEAN:
        isr = tuple(replica for replica in state.isr if replica in live)
        return _written(state, result.leader, isr, controller_epoch)
    elected = _written(state, result.leader, (result.leader,), controller_epoch)
    if rules.leader_recovery_state:
        return elected._replace(recovery=RecoveryState.RECOVERING)
    return elected


def reassignment_election(
    state: PartitionState,
    *,
    target: Sequence[BrokerId],
    live: Collection[BrokerId],
    controller_epoch: int | None = None,
) -> PartitionState | None:
    """The leader moves into the target and the ISR stays as it is, dead members included."""
    result = elect_for_reassignment(target=target, isr=state.isr, live=live)
    if result.leader is None:
        return None
    return _written(state, result.leader, state.isr, controller_epoch)


def preferred_election(
    state: PartitionState,
    *,
    assignment: Sequence[BrokerId],
    live: Collection[BrokerId],
    controller_epoch: int | None = None,
) -> PartitionState | None:
    """The preferred replica leads and the ISR stays as it is.

    The epoch rises even if that replica leads already: whoever asks filters such partitions out
    first (`requested_election`, and the automatic rebalance).
    """
    result = elect_preferred(assignment=assignment, isr=state.isr, live=live)
    if result.leader is None:
        return None
    return _written(state, result.leader, state.isr, controller_epoch)


def controlled_shutdown_election(
    state: PartitionState,
    *,
    assignment: Sequence[BrokerId],
    registered: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
    controller_epoch: int | None = None,
) -> PartitionState | None:
    """The new ISR is the old one, in its order, without every broker that is shutting down."""
    result = elect_for_controlled_shutdown(
        assignment=assignment, isr=state.isr, registered=registered, shutting_down=shutting_down
    )
    if result.leader is None:
        return None
    isr = tuple(replica for replica in state.isr if replica not in shutting_down)
    return _written(state, result.leader, isr, controller_epoch)


def told_of_election(
    strategy: ElectionStrategy,
    *,
    replicas: Sequence[BrokerId],
    online: Collection[BrokerId],
) -> tuple[BrokerId, ...]:
    """Who is sent the LeaderAndIsr request after an election.

    `replicas` is AR, or the target for a reassignment. A broker that shuts down is told too, so
    `online` is `registered` for a controlled shutdown and `live` for an offline election; the other
    two tell every replica, reachable or not.
    """
    if strategy in (ElectionStrategy.REASSIGN, ElectionStrategy.PREFERRED):
        return tuple(replicas)
    return tuple(replica for replica in replicas if replica in online)


def new_partition(
    *,
    assignment: Sequence[BrokerId],
    live: Collection[BrokerId],
    controller_epoch: int | None = None,
) -> PartitionState | None:
    """A new partition is led by its first live replica, with all live replicas in AR order as ISR.

    None: no replica is live, no state node is created and the partition stays New.
    """
    isr = tuple(replica for replica in assignment if replica in live)
    if not isr:
        return None
    return PartitionState(
        leader=isr[0],
        leader_epoch=INITIAL_LEADER_EPOCH,
        isr=isr,
        partition_epoch=INITIAL_PARTITION_EPOCH,
        controller_epoch=controller_epoch,
    )


def remove_from_isr(
    state: PartitionState,
    *,
    replica: BrokerId,
    rules: RuleSet,
    unclean_allowed: bool = False,
    controller_epoch: int | None = None,
) -> PartitionState | None:
    """The controller takes a replica out of the ISR: leader epoch + 1, leader -1 if it was the
    leader.

    The last member stays, so that it can lead again; up to 1.0 it goes too where unclean
    election is allowed. None: the replica is not in the ISR and nothing is written.
    """
    if replica not in state.isr:
        return None
    remaining = tuple(member for member in state.isr if member != replica)
    may_be_empty = rules.isr_may_become_empty_in_zookeeper and unclean_allowed
    leader = NO_LEADER if state.leader == replica else state.leader
    isr = remaining if remaining or may_be_empty else state.isr
    return _written(state, leader, isr, controller_epoch)


def bump_leader_epoch(
    state: PartitionState, *, controller_epoch: int | None = None
) -> PartitionState:
    """Same leader, same ISR, leader epoch + 1: how a reassignment makes the leader read a new
    AR."""
    return _written(state, state.leader, state.isr, controller_epoch)


class ElectionAnswer(Enum):
    """What a caller of ElectLeaders (kafka-leader-election.sh) is told of one partition."""

    ELECTED = "NONE"
    NOT_NEEDED = "ELECTION_NOT_NEEDED"
    PREFERRED_NOT_AVAILABLE = "PREFERRED_LEADER_NOT_AVAILABLE"
    ELIGIBLE_NOT_AVAILABLE = "ELIGIBLE_LEADERS_NOT_AVAILABLE"


def requested_election(
    state: PartitionState,
    *,
    unclean: bool,
    assignment: Sequence[BrokerId],
    live: Collection[BrokerId],
    rules: RuleSet,
    controller_epoch: int | None = None,
) -> tuple[ElectionAnswer, PartitionState | None]:
    """An administrator's election is not needed where the preferred replica leads already
    (preferred) or where the leader is live (unclean); an unclean one needs no permission of the
    topic's."""
    if unclean:
        if state.leader in live:
            return ElectionAnswer.NOT_NEEDED, None
        elected = offline_election(
            state,
            assignment=assignment,
            live=live,
            unclean_allowed=True,
            rules=rules,
            controller_epoch=controller_epoch,
        )
        failed = ElectionAnswer.ELIGIBLE_NOT_AVAILABLE
    else:
        if assignment and state.leader == assignment[0]:
            return ElectionAnswer.NOT_NEEDED, None
        elected = preferred_election(
            state, assignment=assignment, live=live, controller_epoch=controller_epoch
        )
        failed = ElectionAnswer.PREFERRED_NOT_AVAILABLE
    return (failed, None) if elected is None else (ElectionAnswer.ELECTED, elected)


def _first(replicas: Iterable[BrokerId], *within: Collection[BrokerId]) -> BrokerId | None:
    return next((r for r in replicas if all(r in members for members in within)), None)


def _nobody(because: str) -> ElectionResult:
    return ElectionResult(None, ElectionKind.NONE, because)


def _written(
    state: PartitionState,
    leader: BrokerId,
    isr: tuple[BrokerId, ...],
    controller_epoch: int | None,
) -> PartitionState:
    """Every write of the controller raises the leader epoch and, being one write, the zkVersion."""
    return state._replace(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        partition_epoch=state.partition_epoch + 1,
        controller_epoch=state.controller_epoch if controller_epoch is None else controller_epoch,
    )
