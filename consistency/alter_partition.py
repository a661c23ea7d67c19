"""How the ZooKeeper-mode controller answers a leader that wants another ISR (AlterPartition).

Mirrors KafkaController.tryProcessAlterPartition (2.7 - 3.9; AlterIsr up to 3.1).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.model import BrokerId, PartitionState, RecoveryState, Registration
from tidestaff.consistency.versions import AlterPartitionChecks, RuleSet

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_FIRST_VERSION_WITH_TOPIC_IDS: Final = 2


class AlterPartitionError(Enum):
    """Kafka's error names for AlterPartition in ZooKeeper mode."""

    NOT_CONTROLLER = "NOT_CONTROLLER"
    STALE_BROKER_EPOCH = "STALE_BROKER_EPOCH"
    UNKNOWN_SERVER_ERROR = "UNKNOWN_SERVER_ERROR"
    UNKNOWN_TOPIC_ID = "UNKNOWN_TOPIC_ID"
    UNKNOWN_TOPIC_OR_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"
    FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
    INVALID_UPDATE_VERSION = "INVALID_UPDATE_VERSION"
    INVALID_REQUEST = "INVALID_REQUEST"
    INELIGIBLE_REPLICA = "INELIGIBLE_REPLICA"
    OPERATION_NOT_ATTEMPTED = "OPERATION_NOT_ATTEMPTED"


class AlterPartition(NamedTuple):
    """A leader's request to change the ISR of one partition.

    `recovery` None: the request carries a number that is no recovery state.
    """

    broker: BrokerId
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[BrokerId, ...]
    recovery: RecoveryState | None = RecoveryState.RECOVERED


class AlterPartitionAnswer(NamedTuple):
    """The refusal (of the whole request or of this partition), or the state and if it was
    written."""

    error: AlterPartitionError | None
    whole_request: bool = False
    state: PartitionState | None = None
    written: bool = False


def alter_partition(
    current: PartitionState | None,
    request: AlterPartition,
    *,
    registrations: Sequence[Registration],
    rules: RuleSet,
    request_version: int,
    controller_active: bool = True,
    topic_id_known: bool = True,
    controller_epoch: int | None = None,
) -> AlterPartitionAnswer:
    """An ISR change is accepted with the same leader epoch, and the partition epoch rises by
    one.

    The order of the checks is part of the rule: a leader with an outdated view must learn that
    first. A re-sent change that is in force already succeeds and writes nothing. `current` None:
    the partition is not known. A leader is known by its registration, shutting down or not.
    """
    refused = _refuse_request(request, registrations, controller_active=controller_active)
    if refused is not None:
        return AlterPartitionAnswer(refused, whole_request=True)
    if request_version >= _FIRST_VERSION_WITH_TOPIC_IDS and not topic_id_known:
        return AlterPartitionAnswer(AlterPartitionError.UNKNOWN_TOPIC_ID)
    if current is None:
        return AlterPartitionAnswer(AlterPartitionError.UNKNOWN_TOPIC_OR_PARTITION)
    error = _epoch_error(current, request, rules)
    if error is not None:
        return AlterPartitionAnswer(error)
    if _in_force(current, request):
        return AlterPartitionAnswer(None, state=current)
    active = [r.broker for r in registrations if not (r.fenced or r.shutting_down)]
    error = _change_error(current, request, rules, active, request_version)
    if error is not None:
        return AlterPartitionAnswer(error)
    return AlterPartitionAnswer(
        None, state=_altered(current, request, controller_epoch), written=True
    )


def _refuse_request(
    request: AlterPartition, registrations: Sequence[Registration], *, controller_active: bool
) -> AlterPartitionError | None:
    if not controller_active:
        return AlterPartitionError.NOT_CONTROLLER
    known = {registration.broker: registration.broker_epoch for registration in registrations}
    if known.get(request.broker) != request.broker_epoch:
        return AlterPartitionError.STALE_BROKER_EPOCH
    # The controller fails while it decodes such a request, before it looks at any partition.
    if request.recovery is None:
        return AlterPartitionError.UNKNOWN_SERVER_ERROR
    return None


def _epoch_error(
    current: PartitionState, request: AlterPartition, rules: RuleSet
) -> AlterPartitionError | None:
    checks = rules.alter_partition_checks
    if checks is AlterPartitionChecks.NEWER_EPOCHS_THEN_RECOVERY and (
        request.partition_epoch > current.partition_epoch
        or request.leader_epoch > current.leader_epoch
    ):
        # The leader knows more than this controller, which may therefore be an old one.
        return AlterPartitionError.NOT_CONTROLLER
    if checks is AlterPartitionChecks.RECOVERY_THEN_EPOCHS:
        error = _recovery_error(current, request)
        if error is not None:
            return error
    if request.leader_epoch < current.leader_epoch:
        return AlterPartitionError.FENCED_LEADER_EPOCH
    return None


def _in_force(current: PartitionState, request: AlterPartition) -> bool:
    """The request asks for what is there already.

    Its partition epoch does not matter: from 3.3 a larger one was refused before, and up to 3.2
    Kafka did not look at it here.
    """
    return (request.broker, request.leader_epoch, request.isr, request.recovery) == (
        current.leader,
        current.leader_epoch,
        current.isr,
        current.recovery,
    )


def _change_error(
    current: PartitionState,
    request: AlterPartition,
    rules: RuleSet,
    active: Collection[BrokerId],
    request_version: int,
) -> AlterPartitionError | None:
    # Up to 3.2 this is ZooKeeper's own refusal of the write (BADVERSION), with the same answer.
    if request.partition_epoch != current.partition_epoch:
        return AlterPartitionError.INVALID_UPDATE_VERSION
    if rules.alter_partition_checks is AlterPartitionChecks.NEWER_EPOCHS_THEN_RECOVERY:
        error = _recovery_error(current, request)
        if error is not None:
            return error
    if rules.isr_members_must_be_active and not set(request.isr) <= set(active):
        if request_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            return AlterPartitionError.INELIGIBLE_REPLICA
        return AlterPartitionError.OPERATION_NOT_ATTEMPTED
    return None


def _recovery_error(current: PartitionState, request: AlterPartition) -> AlterPartitionError | None:
    if request.recovery is not RecoveryState.RECOVERING:
        return None
    if len(request.isr) > 1 or current.recovery is RecoveryState.RECOVERED:
        return AlterPartitionError.INVALID_REQUEST
    return None


def _altered(
    current: PartitionState, request: AlterPartition, controller_epoch: int | None
) -> PartitionState:
    # The controller writes what the request says, the sender as the leader included.
    return current._replace(
        leader=request.broker,
        leader_epoch=request.leader_epoch,
        isr=request.isr,
        recovery=request.recovery or RecoveryState.RECOVERED,
        partition_epoch=current.partition_epoch + 1,
        controller_epoch=current.controller_epoch if controller_epoch is None else controller_epoch,
    )
