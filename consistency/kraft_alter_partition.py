"""The checks a KRaft controller makes before it takes a new ISR from a leader, in Kafka's order.

Mirrors ReplicationControlManager.validateAlterPartitionData; the order decides which error a
request with several faults gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.model import (
    UNKNOWN_BROKER_EPOCH,
    BrokerId,
    RecoveryState,
    Registration,
)
from tidestaff.consistency.registration import ControllerError, check_broker_epoch, is_active

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidestaff.consistency.kraft import KraftPartition
    from tidestaff.consistency.versions import RuleSet


class IsrMember(NamedTuple):
    """A broker the leader wants in the ISR, with the epoch it fetched under (-1 = not said)."""

    broker: BrokerId
    broker_epoch: int = UNKNOWN_BROKER_EPOCH


class AlterPartitionRequest(NamedTuple):
    """What a leader asks for one partition, and the epochs it believes in."""

    broker: BrokerId
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    recovery: RecoveryState = RecoveryState.RECOVERED


def check_alter_partition(
    partition: KraftPartition | None,
    request: AlterPartitionRequest,
    *,
    registrations: Mapping[BrokerId, Registration],
    rules: RuleSet,
    topic_known: bool = True,
) -> ControllerError:
    """The first fault of the request decides its error; NONE = the change will be tried."""
    stale = check_broker_epoch(registrations.get(request.broker), request.broker_epoch)
    if stale is not ControllerError.NONE:
        return stale
    if partition is None:
        known = ControllerError.UNKNOWN_TOPIC_OR_PARTITION
        return known if topic_known else ControllerError.UNKNOWN_TOPIC_ID
    for error in (
        _epochs(partition, request),
        _isr(partition, request),
        _recovery(partition, request),
        _members(request, registrations, rules),
    ):
        if error is not ControllerError.NONE:
            return error
    return ControllerError.NONE


def _epochs(partition: KraftPartition, request: AlterPartitionRequest) -> ControllerError:
    # A leader that knows more than this controller has heard from a newer one.
    if (
        request.leader_epoch > partition.leader_epoch
        or request.partition_epoch > partition.partition_epoch
    ):
        return ControllerError.NOT_CONTROLLER
    if request.leader_epoch < partition.leader_epoch:
        return ControllerError.FENCED_LEADER_EPOCH
    if request.broker != partition.leader:
        return ControllerError.INVALID_REQUEST
    if request.partition_epoch < partition.partition_epoch:
        return ControllerError.INVALID_UPDATE_VERSION
    return ControllerError.NONE


def _isr(partition: KraftPartition, request: AlterPartitionRequest) -> ControllerError:
    members = [member.broker for member in request.isr]
    lawful = (
        partition.leader in members
        and len(set(members)) == len(members)
        and set(members) <= set(partition.replicas)
    )
    return ControllerError.NONE if lawful else ControllerError.INVALID_REQUEST


def _recovery(partition: KraftPartition, request: AlterPartitionRequest) -> ControllerError:
    recovering = request.recovery is RecoveryState.RECOVERING
    if recovering and (len(request.isr) > 1 or partition.recovery is RecoveryState.RECOVERED):
        return ControllerError.INVALID_REQUEST
    return ControllerError.NONE


def _members(
    request: AlterPartitionRequest,
    registrations: Mapping[BrokerId, Registration],
    rules: RuleSet,
) -> ControllerError:
    for member in request.isr:
        registration = registrations.get(member.broker)
        if rules.isr_members_must_be_active and not is_active(registration):
            return ControllerError.INELIGIBLE_REPLICA
        said = rules.isr_member_epochs_checked and member.broker_epoch != UNKNOWN_BROKER_EPOCH
        if said and (registration is None or registration.broker_epoch != member.broker_epoch):
            return ControllerError.INELIGIBLE_REPLICA
    return ControllerError.NONE
