"""One builder for every change of a partition (org.apache.kafka.controller.PartitionChangeBuilder).

Given what is wanted it completes a finished reassignment, keeps the eligible leader replicas,
elects, and says what the partition becomes; None if nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.model import NO_LEADER, Assignment, PartitionState, RecoveryState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidestaff.connectors.simulator.presets import Preset
    from tidestaff.consistency.model import BrokerId


class Election(Enum):
    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


class Partition(NamedTuple):
    """A partition registration; `offset` is that of its last record in the metadata log."""

    topic_id: str
    state: PartitionState
    assignment: Assignment
    offset: int = 0


@dataclass(slots=True)
class Wanted:
    """The targets; what is not given stays as it is."""

    election: Election = Election.ONLINE
    isr: tuple[BrokerId, ...] | None = None
    assignment: Assignment | None = None
    recovered: bool = False
    unclean_shutdown: tuple[BrokerId, ...] = ()


@dataclass(slots=True)
class _Draft:
    preset: Preset
    old: PartitionState
    acceptable: Callable[[BrokerId], bool]
    election: Election
    assignment: Assignment
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()


def build(
    partition: Partition,
    wanted: Wanted,
    *,
    acceptable: Callable[[BrokerId], bool],
    min_isr: int,
    preset: Preset,
) -> Partition | None:
    old = partition.state
    draft = _Draft(
        preset,
        old,
        acceptable,
        wanted.election,
        wanted.assignment or partition.assignment,
        old.isr if wanted.isr is None else wanted.isr,
    )
    _complete_reassignment(draft)
    if preset.elr and len(draft.isr) < min_isr:
        candidates = tuple(dict.fromkeys((*old.elr, *old.isr)))
        gone = {*draft.isr, *wanted.unclean_shutdown}
        draft.elr = tuple(b for b in candidates if b not in gone)
    elected, unclean = _elect(draft)
    leader, isr = _after_election(draft, elected, unclean=unclean)
    if leader is None and set(partition.assignment.replicas) - set(draft.assignment.replicas):
        leader = old.leader
    if unclean or not preset.elr:
        draft.elr = ()
    if isr is None:
        writable = draft.isr != old.isr and (draft.isr or preset.elr)
        isr = draft.isr if writable else old.isr
    if leader is None and preset.isr_shrink_bumps_epoch and set(old.isr) - set(isr):
        leader = old.leader
    recovery = old.recovery
    if unclean:
        recovery = RecoveryState.RECOVERING
    elif wanted.recovered:
        recovery = RecoveryState.RECOVERED
    state = old._replace(isr=isr, elr=draft.elr, recovery=recovery)
    state = _last_known(draft, state, leader)
    if leader is None and state == old and draft.assignment == partition.assignment:
        return None
    state = state._replace(partition_epoch=old.partition_epoch + 1)
    if leader is not None:
        state = state._replace(leader=leader, leader_epoch=old.leader_epoch + 1)
    return partition._replace(state=state, assignment=draft.assignment)


def _complete_reassignment(draft: _Draft) -> None:
    assignment = draft.assignment
    if not assignment.being_reassigned:
        return
    isr = tuple(b for b in draft.isr if b not in assignment.removing)
    replicas = assignment.target
    if not isr or not replicas:
        return
    needed: Collection[BrokerId] = assignment.adding
    if draft.preset.reassignment_needs_whole_target:
        needed = replicas
    if set(needed) <= set(isr):
        draft.assignment, draft.isr = Assignment(replicas), isr


def _elect(draft: _Draft) -> tuple[BrokerId, bool]:
    """(leader, whether unclean): the old leader is kept while it is valid, but for PREFERRED."""
    old, replicas = draft.old, draft.assignment.replicas

    def valid(broker: BrokerId) -> bool:
        listed = broker in draft.isr or (not draft.isr and broker in draft.elr)
        return listed and draft.acceptable(broker)

    order = [old.leader, *replicas]
    if draft.election is Election.PREFERRED:
        order = [replicas[0], *order]
    for broker in order:
        if broker != NO_LEADER and valid(broker):
            return broker, False
    known = old.last_known_elr
    if draft.preset.elr and not draft.elr and not draft.isr and len(known) == 1:
        must_be_active = draft.preset.last_known_leader_must_be_active
        if draft.acceptable(known[0]) or not must_be_active:
            return known[0], True
    if draft.election is Election.UNCLEAN:
        for broker in replicas:
            if draft.acceptable(broker):
                return broker, True
    return NO_LEADER, False


def _after_election(
    draft: _Draft, elected: BrokerId, *, unclean: bool
) -> tuple[BrokerId | None, tuple[BrokerId, ...] | None]:
    """What the election sets: leader and ISR of the record, None where it sets nothing."""
    if elected == draft.old.leader:
        return None, None
    if elected in draft.elr:
        draft.isr = (elected,)
        draft.elr = tuple(b for b in draft.elr if b != elected)
    if unclean:
        draft.isr = (elected,)
        return elected, (elected,)
    return elected, None


def _last_known(draft: _Draft, state: PartitionState, leader: BrokerId | None) -> PartitionState:
    """KIP-966: the last leader is remembered while nobody leads."""
    if not draft.preset.elr:
        return state._replace(last_known_elr=())
    if leader == NO_LEADER and not state.last_known_elr:
        if draft.preset.last_known_elr_on_any_leader_loss or not state.isr:
            return state._replace(last_known_elr=(draft.old.leader,))
    elif leader is not None and leader >= 0:
        return state._replace(last_known_elr=())
    return state


def reassignment(partition: Partition, target: tuple[BrokerId, ...]) -> Wanted:
    """Start moving to `target`; whatever is there now and is not wanted is being removed, also what
    an earlier reassignment was adding."""
    current = partition.assignment.replicas
    removing = tuple(sorted(set(current) - set(target)))
    adding = tuple(sorted(set(target) - set(current)))
    return Wanted(assignment=Assignment((*target, *removing), adding, removing))
