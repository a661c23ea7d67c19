"""Reassignment in ZooKeeper mode: the algebra of assignments, and the writes it takes, in order.

Mirrors ControllerContext.ReplicaAssignment and KafkaController.onPartitionReassignment (KIP-455,
2.4 - 3.9). Before 2.4 the target stood only in /admin/reassign_partitions; the writes are the
same but for the topic node, which then held a plain union whose order is a hash set's.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.election import bump_leader_epoch, reassignment_election, remove_from_isr
from tidestaff.consistency.model import Assignment, BrokerId, PartitionState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tidestaff.consistency.versions import RuleSet


def target(assignment: Assignment) -> tuple[BrokerId, ...]:
    """The replicas that remain when the reassignment is done, in their order."""
    return assignment.target


def origin(assignment: Assignment) -> tuple[BrokerId, ...]:
    """The replicas from before the reassignment; their order may be lost (the union is target
    first)."""
    return assignment.origin


def reassign_to(assignment: Assignment, replicas: Sequence[BrokerId]) -> Assignment:
    """The union lists the target first, then the origin; a running reassignment is replaced by it.

    A new order of the same replicas adds and removes nobody: not a reassignment, but the preferred
    replica changes at once.
    """
    before = assignment.origin
    union = tuple(dict.fromkeys((*replicas, *before)))
    return Assignment(
        replicas=union,
        adding=tuple(replica for replica in union if replica not in before),
        removing=tuple(replica for replica in union if replica not in replicas),
    )


def cancel_reassignment(assignment: Assignment) -> Assignment:
    """Cancelling reassigns to the origin; replicas that were being added fall out at once."""
    return reassign_to(assignment, assignment.origin)


def is_complete(assignment: Assignment, isr: Collection[BrokerId]) -> bool:
    """A reassignment is complete when every target replica is in the ISR; without one, always."""
    return not assignment.being_reassigned or set(assignment.target) <= set(isr)


class Phase(Enum):
    """Kafka's names of the steps that write."""

    UPDATE_ASSIGNMENT = "U1"
    STOP_UNNEEDED = "U3"
    BUMP_EPOCH = "A1"
    MOVE_LEADER = "B3"
    REMOVE_FROM_ISR = "B4"
    FINISH_ASSIGNMENT = "B6"


class ReassignmentWrite(NamedTuple):
    """One write: to the topic node (`assignment`) or to the state node (`state`)."""

    phase: Phase
    assignment: Assignment | None = None
    state: PartitionState | None = None


def reassignment_writes(
    state: PartitionState,
    *,
    current: Assignment,
    requested: Assignment,
    live: Collection[BrokerId],
    rules: RuleSet,
    unclean_allowed: bool = False,
    controller_epoch: int | None = None,
) -> tuple[ReassignmentWrite, ...]:
    """What the controller writes for one partition when a reassignment is asked for or goes on.

    `requested` is `reassign_to(current, T)`, or `current` itself when the ISR changed, a broker
    came back or the controller did. Not complete: the epoch rises, so that the leader learns of
    the new replicas. Complete: the leader moves into the target (or only its epoch rises), each
    removed replica leaves the ISR by a write of its own, and last the topic node holds the
    target alone.
    """
    run = _Run(state, rules, unclean_allowed, controller_epoch)
    complete = is_complete(requested, state.isr)
    for write in _update_phase(current, requested, rules, complete=complete):
        run.topic(write)
    if rules.reassignment_in_topic_znode:
        unneeded = (r for r in current.replicas if r not in requested.replicas)
        run.remove(Phase.STOP_UNNEEDED, unneeded)
    # Replicas that fell out are never in the target, so their leaving does not change `complete`.
    if complete:
        run.finish(requested, live)
    else:
        run.state(
            Phase.BUMP_EPOCH, bump_leader_epoch(run.latest, controller_epoch=controller_epoch)
        )
    return tuple(run.writes)


def _update_phase(
    current: Assignment, requested: Assignment, rules: RuleSet, *, complete: bool
) -> tuple[ReassignmentWrite, ...]:
    if rules.reassignment_in_topic_znode:
        changed = requested != current
        return (ReassignmentWrite(Phase.UPDATE_ASSIGNMENT, assignment=requested),) * changed
    # Before 2.4 the union was written, without marks, as long as the target was not in the ISR.
    union = Assignment(requested.replicas)
    return (ReassignmentWrite(Phase.UPDATE_ASSIGNMENT, assignment=union),) * (not complete)


class _Run:
    """The writes so far, and the state they have led to."""

    def __init__(
        self,
        state: PartitionState,
        rules: RuleSet,
        unclean_allowed: bool,
        controller_epoch: int | None,
    ) -> None:
        self.latest = state
        self.writes: list[ReassignmentWrite] = []
        self._rules = rules
        self._unclean_allowed = unclean_allowed
        self._controller_epoch = controller_epoch

    def topic(self, write: ReassignmentWrite) -> None:
        self.writes.append(write)

    def state(self, phase: Phase, state: PartitionState | None) -> None:
        if state is not None:
            self.latest = state
            self.writes.append(ReassignmentWrite(phase, state=state))

    def remove(self, phase: Phase, replicas: Iterable[BrokerId]) -> None:
        for replica in replicas:
            removed = remove_from_isr(
                self.latest,
                replica=replica,
                rules=self._rules,
                unclean_allowed=self._unclean_allowed,
                controller_epoch=self._controller_epoch,
            )
            self.state(phase, removed)

    def finish(self, requested: Assignment, live: Collection[BrokerId]) -> None:
        leader = self.latest.leader
        if leader in requested.target and leader in live:
            moved: PartitionState | None = bump_leader_epoch(
                self.latest, controller_epoch=self._controller_epoch
            )
        else:
            moved = reassignment_election(
                self.latest,
                target=requested.target,
                live=live,
                controller_epoch=self._controller_epoch,
            )
        self.state(Phase.MOVE_LEADER, moved)
        self.remove(Phase.REMOVE_FROM_ISR, requested.removing)
        self.topic(
            ReassignmentWrite(Phase.FINISH_ASSIGNMENT, assignment=Assignment(requested.target))
        )
