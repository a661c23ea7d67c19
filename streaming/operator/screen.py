"""The vectorised screen: rounds in which nothing but offsets moved, and moved as they should.

The same conditions as `consistency.quiet.quiet_step`, for all partitions of a bucket at once. Sound
by a property test: whatever passes here, `step` would have held, and would have left the same
memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tidestaff.connectors.wire import MISSING
from tidestaff.streaming.operator.slots import WIDTH

if TYPE_CHECKING:
    from tidestaff.streaming.operator.slots import Flags, Longs, Numbers


class Moved(NamedTuple):
    """The moving part of rows, a row each: times, and offsets with a column a replica."""

    at: Longs
    previous: Longs
    replicas: Longs
    start: Longs
    watermark: Longs
    end: Longs
    leader_again_end: Longs

    def taken(self, rows: Longs) -> Moved:
        return Moved(*(column[rows] for column in self))


_PLACES = np.arange(WIDTH)


def quiet(numbers: Numbers, slots: Longs, moved: Moved) -> Flags:
    """Which of these rows, one for each slot, plainly hold; `slots` are armed and their bodies are
    those of the rows before."""
    leader = numbers.leader[slots]
    each = np.arange(len(slots))
    present = numbers.replicas[slots][:, None] > _PLACES
    known_watermark = numbers.watermark[slots]
    leader_watermark = moved.watermark[each, leader]
    leader_end = moved.end[each, leader]
    leader_known = known_watermark[each, leader]
    last_end = np.where(moved.leader_again_end == MISSING, leader_end, moved.leader_again_end)

    fine = (
        (moved.previous == numbers.at[slots])
        & (moved.at > numbers.at[slots])
        & (moved.replicas == numbers.replicas[slots])
        & (moved.start[each, leader] == numbers.start[slots, leader])
        & ((leader_watermark == leader_end) | (leader_watermark > leader_known))
    )
    # MISSING is below every offset: what was not read fails the comparisons from below.
    grown = (
        (moved.start >= numbers.start[slots])
        & (moved.start != MISSING)
        & (moved.watermark >= moved.start)
        & (moved.end >= moved.watermark)
        & (moved.watermark >= known_watermark)
        & (moved.end >= numbers.end[slots])
        & (moved.end >= np.maximum(leader_watermark, numbers.committed[slots])[:, None])
        & (moved.end <= last_end[:, None])
    )
    follows_well = (moved.watermark >= np.minimum(leader_known, leader_watermark)[:, None]) & (
        (moved.end >= leader_end[:, None]) | (moved.end >= numbers.mark[slots])
    )
    is_leader = leader[:, None] == _PLACES
    passed: Flags = fine & ((grown & (follows_well | is_leader)) | ~present).all(axis=1)
    return passed


def take_over(numbers: Numbers, slots: Longs, moved: Moved) -> None:
    """Remember the rows that passed, as `quiet_step` would."""
    each = np.arange(len(slots))
    leader = numbers.leader[slots]
    leader_end = moved.end[each, leader][:, None]
    now = moved.at[:, None]

    caught_up, mark_at = numbers.caught_up[slots], numbers.mark_at[slots]
    after_gap = (moved.at - numbers.at[slots] > numbers.lag_time[slots])[:, None]
    at_end = (moved.end >= leader_end) | after_gap
    numbers.caught_up[slots] = np.where(at_end, now, np.maximum(caught_up, mark_at))
    numbers.mark_at[slots] = now
    numbers.mark[slots] = leader_end

    numbers.start[slots], numbers.watermark[slots] = moved.start, moved.watermark
    numbers.end[slots] = moved.end
    numbers.interval[slots] = moved.at - numbers.at[slots]
    numbers.at[slots] = moved.at
    # A follower read after its leader may show a commit that the leader did not show yet.
    present = numbers.replicas[slots][:, None] > _PLACES
    shown = np.where(present, moved.watermark, MISSING).max(axis=1)
    committed = np.maximum(numbers.committed[slots], shown)
    numbers.committed[slots] = committed
    numbers.ledger[slots] = np.where(numbers.has_lineage[slots], committed, numbers.ledger[slots])
