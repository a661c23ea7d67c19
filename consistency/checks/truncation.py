"""TRN: what was committed and is gone, and logs cut at another offset than the rules say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.checks.lineages import ConflictKind
from tidestaff.consistency.kept_tails import diverged
from tidestaff.consistency.model import OffsetRange
from tidestaff.consistency.origins import differing
from tidestaff.consistency.ranges import merged
from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Finding, Sight
    from tidestaff.consistency.model import BrokerId


def committed_offsets_kept(sight: Sight) -> Iterator[Finding]:
    """TRN001: a leader holds every offset that was ever committed.

    The leader's LEO is compared, not its HW: a new leader's HW may lawfully lag until its followers
    have fetched. What retention removed does not count.
    """
    if sight.leader is None or sight.leader_end is None:
        if sight.state.leader >= 0:
            yield Unknown("TRN001", "the leader's own log end in this leader epoch")
        return
    if not sight.identified:
        yield Unknown("TRN001", "topic id or czxid: the topic may have been deleted and made again")
        return
    for lost in merged(each.offsets for each in sight.losses):
        yield _lost(sight, lost)


def _lost(sight: Sight, lost: OffsetRange) -> Violated:
    assert sight.leader_end is not None
    previous = sight.previous or sight.state
    unclean = sight.state.leader != previous.leader and sight.state.leader not in previous.isr
    same_leader = sight.state.leader == previous.leader
    return Violated(
        "TRN001",
        expected=f"leader LEO >= {lost.end}",
        observed=f"leader {sight.state.leader} LEO {sight.leader_end}"
        + ("" if sight.leader_end < lost.end else f", other records from offset {lost.start} on"),
        because=f"offsets {lost} were committed and are gone: "
        + (
            "an unclean election chose a leader without them"
            if unclean
            else "the leader does not hold them any more"
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
    for conflict in sight.conflicts:
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
        start = max(end, reading.log_start_offset or 0)
        if reading.log_end_offset > start:
            yield reading.broker, start, reading.log_end_offset


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


def overwritten_tail_not_kept(sight: Sight) -> Iterator[Finding]:
    """TRN006: a replica that comes back does not keep records its leader has overwritten.

    Up to 0.10.2 it does, wherever its own HW covers them, and in the end LEO and HW are equal.
    Shown by the history alone, so it is a warning: if the disk was replaced while the broker was
    away, the replica holds the leader's records, and if the power went, from where the log had not
    been flushed on. Contents settle it.
    """
    if sight.origins is not None:
        for one, other, offsets in differing(sight):
            yield _other_records(sight, one, other, offsets)
        return
    for tail in diverged(sight):
        # What retention has taken from either of them cannot differ.
        both = (sight.readings.get(tail.broker) or sight.remembered(tail.broker), sight.leader)
        starts = [each.log_start_offset or 0 for each in both if each is not None]
        offsets = OffsetRange(max([tail.start, *starts]), tail.end)
        if offsets.start >= offsets.end:
            continue
        yield Violated(
            "TRN006",
            expected=f"the leader's records from offset {offsets.start} on",
            observed=f"broker {tail.broker} came back with older records in {offsets}",
            because="its own HW covered them, so the rule cut nothing; leader "
            f"{sight.state.leader} had written others there in epoch {tail.leader_epoch}",
            broker=tail.broker,
            offsets=offsets,
        )


def _other_records(sight: Sight, one: BrokerId, other: BrokerId, offsets: OffsetRange) -> Violated:
    right, wrong = (other, one) if sight.state.leader == other else (one, other)
    return Violated(
        "TRN006",
        expected=f"the records of broker {right} in {offsets}",
        observed=f"broker {wrong} has other records there",
        because="both are in the ISR and count them as committed, but they were written by "
        "different leaders: every write and every cut of both logs was seen",
        broker=wrong,
        offsets=offsets,
    )
