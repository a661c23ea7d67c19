"""Since when a follower is behind, reckoned over samples so that a healthy one is never accused."""

from __future__ import annotations

from typing import NamedTuple

from tidestaff.consistency.memory import Mark


class CaughtUp(NamedTuple):
    """When a replica was last known to hold all that its leader had, and what it has to reach
    next."""

    at_ms: int
    mark: Mark


def caught_up(*, at_ms: int, mark: Mark, own_end: int, leader_end: int, now_ms: int) -> CaughtUp:
    """A follower that reaches the leader's end of some moment was caught up at that moment.

    Kafka reckons from fetch to fetch, which cannot be seen; from mark to mark the time behind comes
    out at most twice as long as it is, and the limit it is held against allows for that.
    """
    if own_end >= leader_end:
        return CaughtUp(now_ms, Mark(now_ms, leader_end))
    if own_end >= mark.leader_end:
        return CaughtUp(max(at_ms, mark.at_ms), Mark(now_ms, leader_end))
    return CaughtUp(at_ms, mark)
