"""Since when a follower is behind, reckoned over samples so that a healthy one is never accused."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidestaff.consistency.memory import ReplicaMemory


class CaughtUp(NamedTuple):
    """When a replica was last known to hold all its leader had, and what it has to reach next."""

    at_ms: int
    mark_at_ms: int
    mark_offset: int


def caught_up(
    replica: ReplicaMemory, own_end: int, leader_end: int, now_ms: int, *, after_gap: bool
) -> tuple[int, int, int]:
    """A follower that reaches the leader's end of some moment was caught up at that moment; after a
    gap in the observations longer than the lag time there is nothing to reckon from.

    Kafka reckons from fetch to fetch, which cannot be seen; from mark to mark the time behind comes
    out at most twice as long as it is, and the limit it is held against allows for that. Gives the
    fields of `CaughtUp` as a plain tuple: it runs for every replica in every round.
    """
    if own_end >= leader_end or after_gap:
        return now_ms, now_ms, leader_end
    if own_end >= replica.mark_offset:
        return max(replica.caught_up_at_ms, replica.mark_at_ms), now_ms, leader_end
    return replica.caught_up_at_ms, replica.mark_at_ms, replica.mark_offset
