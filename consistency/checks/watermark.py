"""HWM: the high watermark, on every replica and against the in-sync replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.model import OffsetRange
from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Finding, Sight


def watermarks_in_order(sight: Sight) -> Iterator[Finding]:
    """HWM001: log start <= HW <= LEO on one replica, read in that order.

    Judged on two observations in a row: after an unclean election a follower may cut below its HW
    between the two readings. Before 0.11.0.1 retention deletes old segments without a look at the
    HW, which a follower learns one fetch later, so there both are bounded by the LEO alone.
    """
    ordered = sight.rules.retention_stops_at_watermark
    for reading in sight.replicas:
        start = ("log start", reading.log_start_offset)
        watermark = ("HW", reading.high_watermark)
        end = ("LEO", reading.log_end_offset)
        pairs = [(start, end), (watermark, end), *([(start, watermark)] if ordered else [])]
        if any(_above(low[1], high[1]) for low, high in pairs):
            yield Violated(
                "HWM001",
                expected="log start <= HW <= LEO" if ordered else "log start, HW <= LEO",
                observed=", ".join(
                    f"{name} {value}"
                    for name, value in (start, watermark, end)
                    if value is not None
                ),
                because="each bounds the next on one log, and all only grow between truncations",
                broker=reading.broker,
            )


def _above(low: int | None, high: int | None) -> bool:
    return low is not None and high is not None and low > high


def watermark_never_falls_while_leading(sight: Sight) -> Iterator[Finding]:
    """HWM002: the HW of one leader in one epoch never goes back.

    A new leader, a follower, a restarted broker may lawfully show a lower one.
    """
    memory, watermark = sight.memory, sight.leader_watermark
    if memory is None or watermark is None or memory.state.leader != sight.state.leader:
        return
    remembered = sight.remembered(sight.state.leader)
    if remembered is None or remembered.leader_epoch != sight.state.leader_epoch:
        return
    if not sight.same_incarnation(sight.state.leader):
        return
    if watermark < remembered.high_watermark:
        yield Violated(
            "HWM002",
            expected=f"HW {remembered.high_watermark} or more",
            observed=f"HW {watermark}",
            because="consumers have read up to the old one: same leader, same epoch, no restart",
            broker=sight.state.leader,
            offsets=OffsetRange(watermark, remembered.high_watermark),
        )


def watermark_moves(sight: Sight) -> Iterator[Finding]:
    """HWM003: the HW follows the leader's LEO; where it stands still, somebody holds it.

    From 3.7 the HW is frozen below min.insync.replicas; otherwise it waits for the slowest member
    of the ISR or for one about to join. A report, not a fault.
    """
    watermark, end = sight.leader_watermark, sight.leader_end
    remembered = sight.remembered(sight.state.leader)
    if watermark is None or end is None or remembered is None or watermark >= end:
        return
    if remembered.high_watermark != watermark or remembered.log_end_offset <= watermark:
        return
    yield Violated(
        "HWM003",
        expected=f"HW on its way to {end}",
        observed=f"HW {watermark}",
        because=_held_by(sight, watermark),
        broker=sight.state.leader,
    )


def _held_by(sight: Sight, watermark: int) -> str:
    under_minimum = len(sight.state.isr) < sight.effective_min_isr
    if sight.rules.watermark_frozen_under_min_isr and under_minimum:
        return f"frozen: ISR {list(sight.state.isr)} is below min.insync.replicas"
    holders = [
        reading.broker
        for reading in sight.followers()
        if reading.log_end_offset is not None and reading.log_end_offset <= watermark
    ]
    return f"held by {holders}" if holders else "held by a follower's fetch position"


def isr_holds_what_is_committed(sight: Sight) -> Iterator[Finding]:
    """HWM004: every ISR member has all records below the leader's HW.

    The leader's HW is read first, the member's LEO after it, in one coherent bracket: otherwise a
    healthy cluster would be accused.
    """
    if sight.leader_watermark is None:
        yield Unknown("HWM004", "the leader's HW in its own epoch")
        return
    watermark = max(sight.leader_watermark, _committed_before(sight))
    for reading in sight.followers():
        if reading.broker not in sight.state.isr or reading.log_end_offset is None:
            continue
        if reading.log_end_offset < watermark:
            yield Violated(
                "HWM004",
                expected=f"LEO {watermark} or more on every ISR member",
                observed=f"LEO {reading.log_end_offset} on broker {reading.broker}",
                because="if it is elected now, committed offsets are lost",
                broker=reading.broker,
                offsets=OffsetRange(reading.log_end_offset, watermark),
            )


def _committed_before(sight: Sight) -> int:
    """What earlier leaders committed and this one holds: its own HW may lawfully lag behind
    that."""
    memory, end = sight.memory, sight.leader_end
    if memory is None or end is None or not sight.identified or sight.losses:
        return 0
    return memory.committed_end if memory.committed_end <= end else 0


def followers_learn_the_watermark(sight: Sight) -> Iterator[Finding]:
    """HWM005: a follower that has the records learns the leader's HW within a few fetches.

    A follower's HW is always one fetch behind, so it is compared with the leader's of one
    observation earlier.
    """
    watermark = sight.leader_watermark
    remembered_leader = sight.remembered(sight.state.leader)
    if watermark is None or remembered_leader is None:
        return
    if remembered_leader.leader_epoch != sight.state.leader_epoch:
        return
    for reading in sight.followers():
        if reading.high_watermark is None or reading.log_end_offset is None:
            continue
        if reading.broker not in sight.present or reading.log_end_offset < watermark:
            continue
        if reading.high_watermark < min(remembered_leader.high_watermark, watermark):
            yield Violated(
                "HWM005",
                expected=f"HW {remembered_leader.high_watermark} or more",
                observed=f"HW {reading.high_watermark}, LEO {reading.log_end_offset}",
                because="each fetch response carries the leader's HW: this replica is not fetching",
                broker=reading.broker,
            )
