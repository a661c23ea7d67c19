"""A broker that asks to stop, in ZooKeeper mode: what it hands over, and who is refused.

Mirrors KafkaController.doControlledShutdown (0.8 - 3.9). `registered` and `shutting_down` mean what
they mean in `election`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.election import controlled_shutdown_election, remove_from_isr
from tidestaff.consistency.model import (
    UNKNOWN_BROKER_EPOCH,
    Assignment,
    BrokerId,
    PartitionState,
    Registration,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tidestaff.consistency.versions import RuleSet


class ShutdownError(Enum):
    """Why a controlled shutdown request is refused as a whole."""

    STALE_BROKER_EPOCH = "STALE_BROKER_EPOCH"
    BROKER_NOT_AVAILABLE = "BROKER_NOT_AVAILABLE"


class ShutdownAnswer(NamedTuple):
    """The refusal, or the states written by partition and the partitions the broker still leads."""

    error: ShutdownError | None
    written: Mapping[str, PartitionState]
    remaining: tuple[str, ...]


def controlled_shutdown(
    partitions: Mapping[str, tuple[Assignment, PartitionState]],
    *,
    broker: BrokerId,
    broker_epoch: int,
    registrations: Sequence[Registration],
    rules: RuleSet,
    unclean_allowed: bool = False,
    controller_epoch: int | None = None,
) -> ShutdownAnswer:
    """A broker that asks to stop hands over what it leads and leaves every ISR it follows in.

    `partitions` are those with leadership info whose topic is not queued for deletion.
    Partitions of one replica are left alone and are not among the remaining ones, or such a
    broker could never stop.
    """
    refused = _refuse_shutdown(broker, broker_epoch, registrations, rules)
    if refused is not None:
        return ShutdownAnswer(refused, {}, ())
    registered = frozenset(registration.broker for registration in registrations)
    going = frozenset(r.broker for r in registrations if r.shutting_down) | {broker}
    written: dict[str, PartitionState] = {}
    remaining: list[str] = []
    for name, (assignment, state) in partitions.items():
        after = shutdown_of_replica(
            state,
            assignment=assignment.replicas,
            broker=broker,
            registered=registered,
            shutting_down=going,
            rules=rules,
            unclean_allowed=unclean_allowed,
            controller_epoch=controller_epoch,
        )
        if after is not None:
            written[name] = after
        if (after or state).leader == broker and len(assignment.replicas) > 1:
            remaining.append(name)
    return ShutdownAnswer(None, written, tuple(remaining))


def shutdown_of_replica(
    state: PartitionState,
    *,
    assignment: Sequence[BrokerId],
    broker: BrokerId,
    registered: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
    rules: RuleSet,
    unclean_allowed: bool = False,
    controller_epoch: int | None = None,
) -> PartitionState | None:
    """What a controlled shutdown of `broker` writes to one partition: an election where it
    leads, its removal from the ISR where it follows, nothing where it is the only replica or
    nobody can lead."""
    if broker not in assignment or len(assignment) == 1:
        return None
    if state.leader == broker:
        return controlled_shutdown_election(
            state,
            assignment=assignment,
            registered=registered,
            shutting_down=frozenset(shutting_down) | {broker},
            controller_epoch=controller_epoch,
        )
    return remove_from_isr(
        state,
        replica=broker,
        rules=rules,
        unclean_allowed=unclean_allowed,
        controller_epoch=controller_epoch,
    )


def _refuse_shutdown(
    broker: BrokerId, broker_epoch: int, registrations: Iterable[Registration], rules: RuleSet
) -> ShutdownError | None:
    registered = {registration.broker: registration for registration in registrations}
    if broker not in registered:
        return ShutdownError.BROKER_NOT_AVAILABLE
    # A broker that does not know its epoch yet (before KIP-380) is let through, as Kafka does.
    if not rules.broker_epoch_known or broker_epoch == UNKNOWN_BROKER_EPOCH:
        return None
    if broker_epoch < registered[broker].broker_epoch:
        return ShutdownError.STALE_BROKER_EPOCH
    return None
