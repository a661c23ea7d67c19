"""Observations from what a round has read, whichever source the metadata came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.model import (
    ClusterObservation,
    ControllerClaim,
    PartitionObservation,
)

if TYPE_CHECKING:
    from tidestaff.connectors.cluster_view import ClusterView, KnownPartition, MetadataSource
    from tidestaff.consistency.model import (
        Bracket,
        BrokerId,
        PartitionSettings,
        ReplicaReading,
        TopicPartition,
    )
    from tidestaff.consistency.versions import RuleSet


def partition_observation(
    cluster: str,
    partition: TopicPartition,
    known: KnownPartition,
    view: ClusterView,
    *,
    at_ms: int,
    number: int,
    source: MetadataSource,
    rules: RuleSet,
    settings: PartitionSettings,
    bracket: Bracket,
    replicas: tuple[ReplicaReading, ...] = (),
    leader_again: ReplicaReading | None = None,
) -> PartitionObservation:
    """`view` has the registrations from before the replicas were read, and the controller epoch
    read last."""
    assigned, registered = known.assignment.replicas, view.registrations
    return PartitionObservation(
        cluster=cluster,
        topic=partition.topic,
        partition=partition.partition,
        observed_at_ms=at_ms,
        rules=rules,
        state=known.state,
        assignment=known.assignment,
        live=tuple(registered[broker] for broker in sorted(set(assigned)) if broker in registered),
        settings=settings,
        replicas=replicas,
        leader_again=leader_again,
        bracket=bracket,
        topic_id=known.topic_id,
        state_czxid=known.state_czxid,
        controller=view.controller,
        cluster_controller_epoch=view.controller_epoch if source.authoritative else None,
        preferred_imbalance=view.imbalance.get(assigned[0]) if assigned else None,
        deleting=known.deleting,
        authoritative=source.authoritative,
        source=source.name,
        round=number,
    )


def cluster_observation(
    cluster: str,
    view: ClusterView,
    after: ClusterView | None,
    *,
    at_ms: int,
    number: int,
    source: MetadataSource,
    rules: RuleSet,
    session_timeout_ms: int,
    answering: tuple[BrokerId, ...] | None = None,
    leading: tuple[BrokerId, ...] = (),
) -> ClusterObservation:
    last = view if after is None else after
    epoch, controller = last.controller_epoch, last.controller
    # Name and epoch are two readings: they belong together if the epoch stayed the same.
    claimed = (
        source.authoritative
        and controller is not None
        and controller >= 0
        and epoch is not None
        and epoch == view.controller_epoch_before
    )
    return ClusterObservation(
        cluster=cluster,
        observed_at_ms=at_ms,
        rules=rules,
        controller=controller,
        controller_epoch=epoch,
        controller_epoch_before=view.controller_epoch_before,
        registrations=tuple(each for _, each in sorted(view.registrations.items())),
        answering=answering,
        leading=leading,
        claims=(ControllerClaim(controller, epoch),)
        if claimed and controller is not None and epoch is not None
        else (),
        session_timeout_ms=session_timeout_ms,
        source=source.name,
        round=number,
    )
