"""The partitions of a bucket as columns: what moves every round, ready for the vectorised screen.

A slot is *armed* when its last observation was calm and another like it would take the short cut
of `consistency.quiet`: from then on only numbers can change, and they live in these arrays. The
rest of the memory waits untouched in `entries.Partition`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from tidestaff.consistency.quiet import quiet_step

if TYPE_CHECKING:
    import numpy.typing as npt
    from tidestaff.consistency.memory import PartitionMemory
    from tidestaff.consistency.model import PartitionObservation

    Longs = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

WIDTH: Final = 5
"""Replicas a screened partition may have; one with more is judged in full every round."""

_FIRST: Final = 64


class Numbers(NamedTuple):
    """What the slots of one bucket keep as numbers: a row a slot, a column a replica."""

    at: Longs
    interval: Longs
    committed: Longs
    ledger: Longs
    lag_time: Longs
    start: Longs
    watermark: Longs
    end: Longs
    caught_up: Longs
    mark_at: Longs
    mark: Longs
    fetched: Flags
    follows: Flags
    replicas: npt.NDArray[np.int8]
    leader: npt.NDArray[np.int8]
    has_lineage: Flags
    armed: Flags


def _empty(size: int) -> Numbers:
    def longs(*shape: int) -> Longs:
        return np.zeros(shape, np.int64)

    def flags(*shape: int) -> Flags:
        return np.zeros(shape, np.bool_)

    return Numbers(
        at=longs(size),
        interval=longs(size),
        committed=longs(size),
        ledger=longs(size),
        lag_time=longs(size),
        start=longs(size, WIDTH),
        watermark=longs(size, WIDTH),
        end=longs(size, WIDTH),
        caught_up=longs(size, WIDTH),
        mark_at=longs(size, WIDTH),
        mark=longs(size, WIDTH),
        fetched=flags(size, WIDTH),
        follows=flags(size, WIDTH),
        replicas=np.zeros(size, np.int8),
        leader=np.zeros(size, np.int8),
        has_lineage=flags(size),
        armed=flags(size),
    )


class Slots:
    """Arrays that grow; a slot's number never changes while its partition is in memory. `free` are
    those of partitions that are forgotten."""

    def __init__(self, size: int = _FIRST) -> None:
        self.numbers = _empty(max(size, _FIRST))
        self.count = 0
        self.free: list[int] = []

    def add(self) -> int:
        if self.free:
            return self.free.pop()
        if self.count == len(self.numbers.at):
            grown = _empty(2 * self.count)
            for name in Numbers._fields:
                getattr(grown, name)[: self.count] = getattr(self.numbers, name)
            self.numbers = grown
        self.count += 1
        return self.count - 1

    def arm(self, slot: int, memory: PartitionMemory, *, has_lineage: bool) -> None:
        """Take the moving numbers of a calm memory over."""
        numbers = self.numbers
        numbers.at[slot] = memory.observed_at_ms
        numbers.interval[slot] = memory.interval_ms
        numbers.committed[slot] = memory.committed_end
        numbers.ledger[slot] = memory.ledger_end
        numbers.lag_time[slot] = memory.settings.replica_lag_time_max_ms
        numbers.replicas[slot] = len(memory.replicas)
        numbers.has_lineage[slot] = has_lineage
        for place, replica in enumerate(memory.replicas):
            if replica.broker == memory.state.leader:
                numbers.leader[slot] = place
            numbers.start[slot, place] = replica.log_start_offset
            numbers.watermark[slot, place] = replica.high_watermark
            numbers.end[slot, place] = replica.log_end_offset
            numbers.caught_up[slot, place] = replica.caught_up_at_ms
            numbers.mark_at[slot, place] = replica.mark_at_ms
            numbers.mark[slot, place] = replica.mark_offset
            numbers.fetched[slot, place] = replica.fetched_in_epoch
            numbers.follows[slot, place] = replica.following
        numbers.armed[slot] = True

    def note(self, slot: int, memory: PartitionMemory) -> None:
        """The offsets of a partition that is not calm, for people to look at."""
        numbers = self.numbers
        if numbers.armed[slot]:
            return
        replicas = memory.replicas if len(memory.replicas) <= WIDTH else ()
        numbers.replicas[slot] = len(replicas)
        numbers.leader[slot] = 0
        for place, replica in enumerate(replicas):
            if replica.broker == memory.state.leader:
                numbers.leader[slot] = place
            numbers.start[slot, place] = replica.log_start_offset
            numbers.watermark[slot, place] = replica.high_watermark
            numbers.end[slot, place] = replica.log_end_offset

    def memory(self, slot: int, kept: PartitionMemory) -> PartitionMemory:
        """The memory as it is now: `kept`, with what quiet rounds since have made of it."""
        numbers = self.numbers
        if int(numbers.at[slot]) == kept.observed_at_ms:
            return kept
        replicas = []
        for place, replica in enumerate(kept.replicas):
            replicas.append(
                replica._replace(
                    log_start_offset=int(numbers.start[slot, place]),
                    high_watermark=int(numbers.watermark[slot, place]),
                    log_end_offset=int(numbers.end[slot, place]),
                    caught_up_at_ms=int(numbers.caught_up[slot, place]),
                    mark_at_ms=int(numbers.mark_at[slot, place]),
                    mark_offset=int(numbers.mark[slot, place]),
                    partition_epoch=kept.state.partition_epoch,
                    following=bool(numbers.follows[slot, place]),
                    fetched_in_epoch=bool(numbers.fetched[slot, place]),
                )
            )
        return kept._replace(
            observed_at_ms=int(numbers.at[slot]),
            interval_ms=int(numbers.interval[slot]),
            committed_end=int(numbers.committed[slot]),
            ledger_end=int(numbers.ledger[slot]),
            controller_epoch_before_state=kept.controller_epoch,
            replicas=tuple(replicas),
        )

    def behind(self) -> int:
        """Replicas whose log ends below their leader's HW."""
        numbers, rows = self.numbers, np.flatnonzero(self.numbers.replicas[: self.count])
        if not len(rows):
            return 0
        places = np.arange(WIDTH) < numbers.replicas[rows][:, None]
        watermark = numbers.watermark[rows, numbers.leader[rows]]
        return int(((numbers.end[rows] < watermark[:, None]) & places).sum())


def can_be_screened(memory: PartitionMemory, observation: PartitionObservation) -> bool:
    """Whether another observation like this one would take the short cut and change nothing but
    numbers: the columns are wide enough, and the ledger has the leader's latest epoch already."""
    if len(memory.replicas) > WIDTH:
        return False
    again = replace(observation, observed_at_ms=observation.observed_at_ms + 1)
    taken = quiet_step(memory, again)
    if taken is None:
        return False
    pairs = zip(taken[0].replicas, memory.replicas, strict=True)
    settled = all(then.following == now.following for then, now in pairs)
    leader = next(r for r in observation.replicas if r.broker == observation.state.leader)
    known = not leader.lineage or bool(memory.ledger and memory.ledger[-1] == leader.lineage[-1])
    return known and settled
