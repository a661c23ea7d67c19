"""How far the answers of one round belong together, and what follows from the metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.model import Assignment, Bracket, PartitionState, Registration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidestaff.connectors.broker_answers import (
        ClusterMetadata,
        Eligible,
        ListedPartition,
        Moving,
    )
    from tidestaff.connectors.cluster_view import KnownPartition
    from tidestaff.consistency.model import BrokerId, ReplicaReading, TopicPartition

    Targets = dict[BrokerId, list[TopicPartition]]


def bracket_of(
    before: KnownPartition,
    after: KnownPartition | None,
    first: ReplicaReading | None,
    again: ReplicaReading | None,
) -> Bracket:
    """Coherent: nothing of the metadata changed, and the leader, where it answered, was in that
    epoch both times.

    Before 2.1 a replica does not name its epoch. There a leader that says it leads under a state
    that was the same a round ago has heard of it.
    """
    if after is None or before.version != after.version or not before.agreed:
        return Bracket.STRADDLED
    if before.state.leader < 0:
        return Bracket.COHERENT
    if (first is None) != (again is None):
        return Bracket.STRADDLED
    for reading in (first, again):
        if reading is None:
            continue
        vouched = reading.leader_epoch is None and before.settled
        if not reading.leads or not (vouched or reading.leader_epoch == before.state.leader_epoch):
            return Bracket.STRADDLED
    return Bracket.COHERENT


def agrees(known: ListedPartition, moving: Moving | None, eligible: Eligible | None) -> bool:
    """Reassignments and ELR come from other requests, and may be about another moment."""
    if moving is not None and set(moving.replicas) != set(known.replicas):
        return False
    return eligible is None or (
        eligible.leader_epoch == known.leader_epoch and set(eligible.isr) == set(known.isr)
    )


def may_have_elr(known: ListedPartition) -> bool:
    """Somebody has left the ISR. If nobody tells of whom it would elect all the same, a clean
    election could be taken for an unclean one."""
    return set(known.isr) != set(known.replicas)


def state_of(known: ListedPartition, eligible: Eligible | None) -> PartitionState:
    mine = eligible is not None and agrees(known, None, eligible)
    return PartitionState(
        known.leader,
        known.leader_epoch,
        known.isr,
        elr=eligible.elr if eligible is not None and mine else (),
        last_known_elr=eligible.last_known_elr if eligible is not None and mine else (),
    )


def assignment_of(known: ListedPartition, moving: Moving | None) -> Assignment:
    if moving is None or not agrees(known, moving, None):
        return Assignment(known.replicas)
    return Assignment(known.replicas, moving.adding, moving.removing)


def registrations_of(metadata: ClusterMetadata) -> tuple[Registration, ...]:
    """Brokers that are listed are live; their epochs are not told."""
    return tuple(
        Registration(broker, rack=rack) for broker, rack in sorted(metadata.brokers.items())
    )


def targets_of(
    partitions: Mapping[TopicPartition, KnownPartition],
) -> tuple[Targets, Targets]:
    """What to ask of each broker as a leader, and as a follower."""
    leaders: Targets = {}
    followers: Targets = {}
    for partition, known in partitions.items():
        for broker in known.assignment.replicas:
            group = leaders if broker == known.state.leader else followers
            group.setdefault(broker, []).append(partition)
    return leaders, followers


def imbalance_of(metadata: ClusterMetadata) -> dict[BrokerId, float]:
    """For each broker that is preferred for something: the share of it that it does not lead."""
    mine: dict[BrokerId, list[bool]] = {}
    for known in metadata.partitions.values():
        if known.replicas:
            preferred = known.replicas[0]
            mine.setdefault(preferred, []).append(known.leader != preferred)
    return {broker: sum(wrong) / len(wrong) for broker, wrong in mine.items()}
