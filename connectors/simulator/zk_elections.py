"""Whom a ZooKeeper-mode controller elects, and what it writes (kafka.controller.Election)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.model import NO_LEADER, RecoveryState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidestaff.connectors.simulator.presets import Preset
    from tidestaff.consistency.model import BrokerId, PartitionState


def offline(
    state: PartitionState,
    assignment: Sequence[BrokerId],
    live: Collection[BrokerId],
    *,
    unclean: bool,
    preset: Preset,
) -> PartitionState | None:
    """The first live ISR member in assignment order; else, if allowed, the first live replica."""
    for replica in assignment:
        if replica in live and replica in state.isr:
            isr = tuple(b for b in state.isr if b in live)
            return state._replace(leader=replica, isr=isr)
    for replica in assignment if unclean else ():
        if replica in live:
            recovery = RecoveryState.RECOVERING if preset.recovery_state else state.recovery
            return state._replace(leader=replica, isr=(replica,), recovery=recovery)
    return None


def preferred(
    state: PartitionState, assignment: Sequence[BrokerId], live: Collection[BrokerId]
) -> PartitionState | None:
    """The first replica of the assignment and no other; the ISR stays as it is."""
    first = assignment[0]
    return state._replace(leader=first) if first in live and first in state.isr else None


def reassigned(
    state: PartitionState, target: Sequence[BrokerId], live: Collection[BrokerId]
) -> PartitionState | None:
    """The first live ISR member of the target."""
    for replica in target:
        if replica in live and replica in state.isr:
            return state._replace(leader=replica)
    return None


def shutting_down(
    state: PartitionState,
    assignment: Sequence[BrokerId],
    registered: Collection[BrokerId],
    going: Collection[BrokerId],
) -> PartitionState | None:
    """The first registered ISR member that is not going down itself."""
    for replica in assignment:
        if replica in registered and replica in state.isr and replica not in going:
            isr = tuple(b for b in state.isr if b not in going)
            return state._replace(leader=replica, isr=isr)
    return None


def without(
    state: PartitionState, replica: BrokerId, *, keep_last: bool = True
) -> PartitionState | None:
    """What taking a replica out of the ISR writes; None if it is not in it."""
    if replica not in state.isr:
        return None
    leader = NO_LEADER if state.leader == replica else state.leader
    isr = state.isr
    if len(isr) > 1 or not keep_last:
        isr = tuple(b for b in isr if b != replica)
    return state._replace(leader=leader, isr=isr)
