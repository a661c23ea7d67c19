"""Reassignment in KRaft mode: how it starts, when it is complete, what taking it back leaves.

Mirrors PartitionReassignmentReplicas and PartitionReassignmentRevert. These are targets only; the
partition changes when kraft.build_change turns them into a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.model import Assignment, BrokerId
from tidestaff.consistency.registration import ControllerError
from tidestaff.consistency.versions import ReassignmentCompletion

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class CompletedReassignment(NamedTuple):
    """What remains when the reassignment is done."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


class RevertedReassignment(NamedTuple):
    """What remains when the reassignment is taken back; `unclean` if that may lose records."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    unclean: bool


def start_reassignment(*, current: Sequence[BrokerId], target: Sequence[BrokerId]) -> Assignment:
    """The replica list becomes the target, then those that will leave, in ascending order."""
    removing = tuple(sorted(set(current) - set(target)))
    adding = tuple(sorted(set(target) - set(current)))
    return Assignment((*target, *removing), adding=adding, removing=removing)


def complete_reassignment(
    assignment: Assignment, *, isr: Sequence[BrokerId], completion: ReassignmentCompletion
) -> CompletedReassignment | None:
    """A reassignment is complete when the ISR without the leaving replicas is good enough.

    What is good enough differs by version (`completion`); an empty ISR or replica list never is.
    """
    if not assignment.being_reassigned:
        return None
    new_isr = _without(isr, assignment.removing)
    new_replicas = _without(assignment.replicas, assignment.removing)
    if assignment.removing and not (new_isr and new_replicas):
        return None
    needed = _needed_in_isr(assignment, new_replicas, completion)
    return CompletedReassignment(new_replicas, new_isr) if needed <= set(new_isr) else None


def _needed_in_isr(
    assignment: Assignment, target: Iterable[BrokerId], completion: ReassignmentCompletion
) -> set[BrokerId]:
    adding, everyone = set(assignment.adding), set(target)
    if completion is ReassignmentCompletion.TARGET_IN_ISR:
        return everyone
    if completion is ReassignmentCompletion.ADDING_IN_ISR:
        return adding
    # Fewer replicas than before: to finish early could shrink the ISR for nothing.
    shrinking = len(assignment.adding) < len(assignment.removing)
    return adding | everyone if shrinking else adding


def revert_reassignment(
    assignment: Assignment, *, isr: Sequence[BrokerId]
) -> RevertedReassignment | None:
    """Taking back removes the added replicas; if the ISR had only those, the first one left leads.

    That last case is an unclean election. None: every replica was an added one, so there is nothing
    to go back to.
    """
    replicas = _without(assignment.replicas, assignment.adding)
    kept = _without(isr, assignment.adding)
    if kept:
        return RevertedReassignment(replicas, kept, unclean=False)
    return RevertedReassignment(replicas, replicas[:1], unclean=True) if replicas else None


def cancel_reassignment(
    assignment: Assignment, *, isr: Sequence[BrokerId], unclean_allowed: bool
) -> RevertedReassignment | ControllerError:
    """Only a running reassignment can be cancelled, uncleanly only where the topic allows it."""
    if not assignment.being_reassigned:
        return ControllerError.NO_REASSIGNMENT_IN_PROGRESS
    reverted = revert_reassignment(assignment, isr=isr)
    if reverted is None or (reverted.unclean and not unclean_allowed):
        return ControllerError.INVALID_REPLICA_ASSIGNMENT
    return reverted


def _without(values: Iterable[BrokerId], gone: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    out = set(gone)
    return tuple(value for value in values if value not in out)
