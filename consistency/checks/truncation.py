"""TRN: what was committed and is gone, and logs cut at another offset than the rules say."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.checks.lineages import ConflictKind, conflicts, is_rising
from tidestaff.consistency.epochs import first_disagreement, next_agreement
from tidestaff.consistency.kept_tails import diverged
from tidestaff.consistency.model import OffsetRange
from tidestaff.consistency.origins import differing
from tidestaff.consistency.ranges import merged, without
from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Finding, Sight
    from tidestaff.consistency.model import BrokerId, Lineage, ReplicaReading


class _Proof(NamedTuple):
    """Offsets [start, end) that were committed once, and the epochs they have as far as known.

    `repeats`: it stays where it is after the loss was reported, as a replica that is not cut does;
    the ledger is cut with the report. What it proves beyond the report is new, and so is all from
    `new_from` on: a deposed leader that goes on committing.
    """

    start: int
    end: int
    epochs: Lineage
    epochs_end: int
    repeats: bool = False
    new_from: int = 0


def lost_ranges(sight: Sight) -> tuple[OffsetRange, ...]:
    """The committed offsets the current leader does not have, or has from another leader.

    Proof of a commit is the ledger, and the HW of every other replica of this round: a follower
    takes its HW from a leader. What was reported before is not reported again.
    """
    memory, leader, end = sight.memory, sight.leader, sight.leader_end
    if leader is None or end is None or not sight.identified:
        return ()
    if sight.origins is not None:
        return sight.origins.pending
    reported = memory.lost if memory is not None else ()
    gone: list[OffsetRange] = []
    for proof in _proofs(sight):
        for lost in _missing(sight, proof):
            old = OffsetRange(lost.start, min(lost.end, proof.new_from))
            gone += without(old, reported) if proof.repeats else (lost,)
            gone.append(OffsetRange(max(lost.start, proof.new_from), lost.end))
    return merged(gone)


def _proofs(sight: Sight) -> Iterator[_Proof]:
    memory = sight.memory
    if memory is not None:
        yield _Proof(memory.committed_start, memory.committed_end, memory.ledger, memory.ledger_end)
    for reading in sight.followers():
        if reading.high_watermark is None or not reading.log_dir_online:
            continue
        if reading.broker not in sight.observation.assignment.replicas:
            continue
        if reading.leads and not leads_by_its_own_word(sight, reading):
            continue
        start = max(reading.log_start_offset or 0, memory.committed_start if memory else 0)
        end = min(reading.high_watermark, reading.log_end_offset or 0)
        # In-sync replicas that hold other epochs than the leader have diverged: that is EPO004.
        in_isr = reading.broker in sight.state.isr
        usable = reading.lineage is not None and not in_isr and is_rising(reading.lineage)
        epochs = reading.lineage if usable and reading.lineage else ()
        yield _Proof(start, end, epochs, end, repeats=True, new_from=_new_from(sight, reading, end))


def _new_from(sight: Sight, reading: ReplicaReading, end: int) -> int:
    remembered = sight.remembered(reading.broker)
    if not reading.leads or remembered is None or not sight.same_incarnation(reading.broker):
        return end
    return remembered.high_watermark


def leads_by_its_own_word(sight: Sight, reading: ReplicaReading) -> bool:
    """It leads in this or an older epoch: below its HW is what it has committed, whoever else was
    elected since.

    In a newer epoch than the metadata's it may have been elected meanwhile; or, without a topic id,
    still speak of an older topic of that name.
    """
    if not reading.leads or reading.leader_epoch is None:
        return False
    same_topic = reading.topic_id is not None and reading.topic_id == sight.observation.topic_id
    return same_topic or reading.leader_epoch <= sight.state.leader_epoch


def _missing(sight: Sight, proof: _Proof) -> tuple[OffsetRange, ...]:
    leader, end = sight.leader, sight.leader_end
    assert leader is not None
    assert end is not None
    log_start = leader.log_start_offset or 0
    missing = [OffsetRange(max(end, proof.start), proof.end)]
    if leader.lineage and proof.epochs and is_rising(leader.lineage) and not sight.compacted:
        common = min(proof.epochs_end, proof.end, end)
        start: int | None = max(log_start, proof.start)
        while start is not None:
            first = first_disagreement(proof.epochs, leader.lineage, start=start, end=common)
            if first is None:
                break
            start = next_agreement(proof.epochs, leader.lineage, start=first, end=common)
            # A difference that reaches as far as the epochs are known goes on to the end.
            missing.append(OffsetRange(first, proof.end if start is None else start))
    return merged(missing)


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
    for lost in lost_ranges(sight):
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
    away, the replica holds the leader's records. Contents settle it.
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
