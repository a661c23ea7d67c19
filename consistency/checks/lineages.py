"""How two replicas' lineages compare: one comparison, which the EPO and TRN rules share out."""

from __future__ import annotations

from enum import Enum
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.epochs import (
    first_disagreement,
    next_agreement,
    normalise,
    proven_differences,
)
from tidestaff.consistency.versions import EpochCacheGeneration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Sight
    from tidestaff.consistency.model import BrokerId, Lineage, ReplicaReading


class ConflictKind(Enum):
    """Which promise two disagreeing lineages break."""

    COMMITTED = "committed"  # below both HWs, both in the ISR: committed data differs
    TAIL = "tail"  # a follower keeps what its leader does not have
    START = "start"  # one epoch, two start offsets: not of one history


class Conflict(NamedTuple):
    """Two replicas whose logs cannot both be right from `offset` on."""

    kind: ConflictKind
    one: BrokerId
    other: BrokerId
    offset: int
    end: int


def conflicts(sight: Sight) -> tuple[Conflict, ...]:
    """Every pair of replicas whose lineages disagree, each pair once, under its gravest name."""
    comparable = [r for r in sight.replicas if _comparable(r)]
    if sight.compacted:
        # A replica built anew of a compacted topic takes its entries from the batches that
        # survived.
        return ()
    found = [
        conflict
        for one, other in combinations(comparable, 2)
        for conflict in _compare(sight, one, other)
    ]
    graver = {
        broker
        for conflict in found
        if conflict.kind is not ConflictKind.START
        for broker in (conflict.one, conflict.other)
    }
    return tuple(
        conflict
        for conflict in found
        if conflict.kind is not ConflictKind.START or not {conflict.one, conflict.other} & graver
    )


def is_rising(lineage: Lineage) -> bool:
    """Epochs rise from entry to entry, start offsets never fall, and none is negative."""
    if any(entry.epoch < 0 or entry.start_offset < 0 for entry in lineage):
        return False
    return all(
        low.epoch < high.epoch and low.start_offset <= high.start_offset
        for low, high in pairwise(lineage)
    )


def _comparable(reading: ReplicaReading) -> bool:
    return (
        reading.lineage is not None
        and len(reading.lineage) > 0
        and is_rising(reading.lineage)
        and reading.log_start_offset is not None
        and reading.log_end_offset is not None
        and reading.high_watermark is not None
    )


def own_from(sight: Sight, reading: ReplicaReading) -> int | None:
    """From where on a replica's records are of the epochs it lists, and of no older one.

    What came since its present epoch began is of that. A leader has followed nobody after the
    leader of the epoch before, so what it has of that one is whole, too. Brokers before 2.1 name no
    epoch in their answers: of the leader in office the bracket tells it.
    """
    in_office = sight.leader is not None and reading.broker == sight.leader.broker
    epoch = sight.state.leader_epoch if in_office else reading.leader_epoch
    if not reading.lineage or epoch is None:
        return None
    return own_start(reading.lineage, epoch, leads=in_office or bool(reading.leads))


def own_start(lineage: Lineage, leader_epoch: int, *, leads: bool) -> int | None:
    found = None
    for entry in reversed(lineage):
        if entry.epoch < leader_epoch - leads:
            break
        found = entry.start_offset
    return found


def _compare(sight: Sight, one: ReplicaReading, other: ReplicaReading) -> Iterator[Conflict]:
    assert one.lineage is not None
    assert other.lineage is not None
    start = max(one.log_start_offset or 0, other.log_start_offset or 0)
    end = min(one.log_end_offset or 0, other.log_end_offset or 0)
    if sight.rules.epoch_cache is EpochCacheGeneration.FIRST:
        for differing in proven_differences(
            *(one.lineage, other.lineage),
            start=start,
            end=end,
            own_a=own_from(sight, one),
            own_b=own_from(sight, other),
        ):
            conflict = _named(sight, one, other, *differing)
            if conflict is not None:
                yield conflict
        return
    offset = first_disagreement(one.lineage, other.lineage, start=start, end=end)
    if offset is None:
        return
    # One epoch at one offset is one record: where diverged logs agree again they hold the same.
    again = next_agreement(one.lineage, other.lineage, start=offset, end=end)
    conflict = _named(sight, one, other, offset, end if again is None else again)
    if conflict is not None:
        yield conflict


def _named(
    sight: Sight, one: ReplicaReading, other: ReplicaReading, offset: int, end: int
) -> Conflict | None:
    committed = min(one.high_watermark or 0, other.high_watermark or 0)
    in_isr = one.broker in sight.state.isr and other.broker in sight.state.isr
    if sight.leader is not None and sight.state.leader in (one.broker, other.broker):
        # What the leader has committed, every ISR member must have, whatever its own HW says yet.
        ends = (one.log_end_offset or 0, other.log_end_offset or 0)
        committed = min(*ends, sight.leader.high_watermark or 0)
    if offset < committed and in_isr and sight.coherent:
        committed = min(committed, end)
        return Conflict(ConflictKind.COMMITTED, one.broker, other.broker, offset, committed)
    if sight.coherent and sight.state.leader == one.broker:
        return Conflict(ConflictKind.TAIL, one.broker, other.broker, offset, end)
    if sight.coherent and sight.state.leader == other.broker:
        return Conflict(ConflictKind.TAIL, other.broker, one.broker, offset, end)
    return _different_start(sight, one, other)


def _different_start(sight: Sight, one: ReplicaReading, other: ReplicaReading) -> Conflict | None:
    """The same epoch at two start offsets, where both hold records of it.

    The first entry of a lineage does not count: its start follows the log start. Up to 2.0.0
    followers and leaders wrote entries at different moments, so it proves nothing there.
    """
    if sight.rules.epoch_cache is EpochCacheGeneration.FIRST:
        return None
    starts = dict(_held_entries(one)[1:])
    for epoch, offset in _held_entries(other)[1:]:
        known = starts.get(epoch)
        if known is not None and known != offset:
            low, high = sorted((known, offset))
            return Conflict(ConflictKind.START, one.broker, other.broker, low, high)
    return None


def _held_entries(reading: ReplicaReading) -> Lineage:
    """The entries of epochs a replica holds records of: a trailing empty epoch says nothing."""
    assert reading.lineage is not None
    return normalise(
        reading.lineage,
        log_start_offset=reading.log_start_offset or 0,
        end_offset=reading.log_end_offset or 0,
    )
