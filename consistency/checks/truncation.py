"""TRN: what was committed and is gone, and logs cut at another offset than the rules say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.checks.lineages import ConflictKind, conflicts
from tidestaff.consistency.epochs import first_disagreement
from tidestaff.consistency.model import OffsetRange
from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Finding, Sight


def lost_range(sight: Sight) -> OffsetRange | None:
    """The committed offsets the current leader does not have, or has from another leader.

    The leader's LEO is compared, not its HW: a new leader's HW may lawfully lag until its followers
    have fetched. Offsets below its log start were removed by retention, not lost.
    """
    memory, leader, end = sight.memory, sight.leader, sight.leader_end
    if memory is None or leader is None or end is None:
        return None
    first = end if end < memory.committed_end else None
    if leader.lineage and memory.ledger and not sight.compacted:
        log_start = leader.log_start_offset or 0
        disagreement = first_disagreement(
            memory.ledger,
            leader.lineage,
            start=max(log_start, memory.committed_start),
            end=min(memory.committed_end, end),
        )
        if disagreement is not None:
            first = disagreement
    if first is None:
        return None
    start = max(first, memory.committed_start)
    return OffsetRange(start, memory.committed_end) if start < memory.committed_end else None


def committed_offsets_kept(sight: Sight) -> Iterator[Finding]:
    """TRN001: a leader holds every offset that was ever committed.

    The leader's LEO is compared, not its HW: a new leader's HW may lawfully lag until its followers
    have fetched. What retention removed does not count.
    """
    if sight.leader is None or sight.leader_end is None:
        if sight.state.leader >= 0:
            yield Unknown("TRN001", "the leader's own log end in this leader epoch")
        return
    lost = lost_range(sight)
    if lost is None or sight.memory is None:
        return
    previous = sight.memory.state
    unclean = sight.state.leader != previous.leader and sight.state.leader not in previous.isr
    same_leader = sight.state.leader == previous.leader
    yield Violated(
        "TRN001",
        expected=f"leader LEO >= {sight.memory.committed_end}",
        observed=f"leader {sight.state.leader} LEO {sight.leader_end}"
        + ("" if sight.leader_end < lost.end else f", other records from offset {lost.start} on"),
        because=f"offsets {lost} were committed and are gone: "
        + (
            "an unclean election chose a leader without them"
            if unclean
            else "the leader came back without them"
            if same_leader
            else "the new leader was elected without them"
        ),
        broker=sight.state.leader,
        offsets=lost,
    )


def not_cut_too_far(sight: Sight) -> Iterator[Finding]:
    """TRN002: a follower that truncates keeps all that it shares with its leader.

    Judged as a bound: after the cut a log only grows. A broker that restarted may have lost its
    unflushed tail, which is no truncation.
    """
    for reading in sight.followers():
        cut = sight.cuts.get(reading.broker)
        if cut is None or reading.log_end_offset is None:
            continue
        if reading.log_end_offset >= cut.at_least:
            continue
        if not sight.same_incarnation(reading.broker):
            yield Unknown("TRN002", "an unbroken life of the broker: it restarted", reading.broker)
            continue
        yield Violated(
            "TRN002",
            expected=f"truncation to {cut.offset} ({cut.because})",
            observed=f"LEO {reading.log_end_offset}",
            because=f"offsets from {reading.log_end_offset} on are the leader's too and were cut",
            broker=reading.broker,
            offsets=OffsetRange(reading.log_end_offset, cut.at_least),
        )


def cut_far_enough(sight: Sight) -> Iterator[Finding]:
    """TRN003: a follower drops what its leader does not have, at the predicted offset.

    The point is predicted when the leader epoch begins, from the follower's log before it and the
    leader's in it; judged once the follower is known to have fetched.
    """
    yield from _tails(sight, predicted=True)


def followers_match_their_leader(sight: Sight) -> Iterator[Finding]:
    """TRN004: a follower in its leader's epoch has no other record than the leader at any offset.

    Legal between learning of the epoch and the first fetch, hence judged after a fetch was seen.
    """
    yield from _tails(sight, predicted=False)


def _tails(sight: Sight, *, predicted: bool) -> Iterator[Finding]:
    for broker, offset, end in _differing_tails(sight):
        cut = sight.cuts.get(broker)
        if (cut is not None and cut.offset <= offset) is not predicted:
            continue
        if not sight.has_fetched(broker):
            yield Unknown(
                "TRN003" if predicted else "TRN004", "a fetch in this leader epoch", broker
            )
            continue
        yield Violated(
            "TRN003" if predicted else "TRN004",
            expected=f"truncation to {cut.offset} ({cut.because})"
            if predicted and cut is not None
            else f"the leader's records from offset {offset} on",
            observed=f"broker {broker} still holds other records in {OffsetRange(offset, end)}",
            because="a consumer that reads from this replica, or after it is elected, reads other "
            "records than before",
            broker=broker,
            offsets=OffsetRange(offset, end),
        )


def _differing_tails(sight: Sight) -> Iterator[tuple[int, int, int]]:
    seen: set[int] = set()
    for conflict in conflicts(sight):
        if conflict.kind is ConflictKind.TAIL:
            seen.add(conflict.other)
            yield conflict.other, conflict.offset, conflict.end
        elif conflict.kind is ConflictKind.COMMITTED:
            seen.update((conflict.one, conflict.other))
    end = sight.leader_end
    if end is None or sight.observation.leader_again is None:
        return
    for reading in sight.followers():
        if reading.broker in seen or reading.log_end_offset is None:
            continue
        if reading.log_end_offset > end:
            yield reading.broker, end, reading.log_end_offset


def uncommitted_tail_reported(sight: Sight) -> Iterator[Finding]:
    """TRN005: records of the old leader above its HW are dropped when a shorter replica leads.

    Nothing acknowledged to acks=all producers is among them; acks=1 and acks=0 producers lose them.
    """
    memory, end = sight.memory, sight.leader_end
    if memory is None or end is None or memory.state.leader == sight.state.leader:
        return
    old = sight.remembered(memory.state.leader)
    if old is None or old.log_end_offset <= end:
        return
    start = max(end, memory.committed_end)
    if start < old.log_end_offset:
        yield Violated(
            "TRN005",
            expected=f"leader LEO {old.log_end_offset}",
            observed=f"leader {sight.state.leader} LEO {end}",
            because=f"offsets {OffsetRange(start, old.log_end_offset)} were only on the old leader "
            f"{old.broker} and never committed",
            broker=old.broker,
            offsets=OffsetRange(start, old.log_end_offset),
        )
