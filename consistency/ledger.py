"""The ledger of a partition: what was ever committed, with its epochs, what of it is lost, and what
leaders committed beside it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.checks.lineages import is_rising, own_from
from tidestaff.consistency.checks.losses import (
    by_epoch,
    leads_by_its_own_word,
    names_the_topic,
    seen_to,
)
from tidestaff.consistency.epochs import (
    first_disagreement,
    normalise,
    proven_differences,
    stretches,
)
from tidestaff.consistency.memory import (
    MAX_BESIDE,
    MAX_LEDGER_ENTRIES,
    MAX_LOST_RANGES,
    UNKNOWN_EPOCH,
    Beside,
    Lost,
)
from tidestaff.consistency.model import OffsetRange
from tidestaff.consistency.ranges import merged, without
from tidestaff.consistency.versions import EpochCacheGeneration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Sight
    from tidestaff.consistency.model import Lineage, ReplicaReading


class Ledger(NamedTuple):
    start: int
    end: int
    epochs: Lineage
    epochs_end: int
    lost: tuple[Lost, ...]
    beside: tuple[Beside, ...]


def ledger(sight: Sight) -> Ledger:
    """What was ever committed: the highest HW seen on a leader, and the epochs as far as known.

    What is lost is reported once and leaves the ledger, which then follows the new leader. Epochs
    may end below the HW: in some rounds the leader's lineage is not read.
    """
    memory = sight.memory
    known = (
        Ledger(
            memory.committed_start,
            memory.committed_end,
            memory.ledger,
            memory.ledger_end,
            memory.losses,
            memory.beside,
        )
        if memory is not None
        else Ledger(0, 0, (), 0, (), ())
    )
    if memory is not None and sight.state.leader_epoch < memory.state.leader_epoch:
        # The metadata went back: epochs are given out anew.
        known = known._replace(epochs=(), epochs_end=0, beside=())
    watermark, leader = sight.leader_watermark, sight.leader
    if not sight.coherent or watermark is None or leader is None:
        return _committed_out_of_office(sight, known)
    if gone := sight.losses_of_ledger:
        first = min(lost.offsets.start for lost in gone)
        known = known._replace(
            end=min(known.end, first),
            epochs=tuple(e for e in known.epochs if e.start_offset < first),
            epochs_end=min(known.epochs_end, first),
        )
    known = known._replace(
        lost=_few((*known.lost, *sight.losses)),
        beside=_still_beside(sight, known.beside),
    )
    log_start = leader.log_start_offset or 0
    known = known._replace(start=max(known.start, log_start))
    watermark = max(watermark, _shown_by_others(sight, known))
    if watermark >= known.end:
        known = known._replace(end=watermark)
        if leader.lineage:
            told = watermark
            if not sight.rules.leader_writes_epoch_at_once and sight.epoch_start is None:
                # What it has written since it was read may be the first of its epoch.
                told = min(watermark, leader.log_end_offset or 0)
            trimmed = normalise(leader.lineage, log_start_offset=log_start, end_offset=told)
            epochs = _bounded(trimmed, MAX_LEDGER_ENTRIES, like=leader.lineage)
            known = known._replace(epochs=epochs, epochs_end=told)
    return known._replace(end=max(known.end, known.start))


def _shown_by_others(sight: Sight, known: Ledger) -> int:
    """How far others show that a leader had committed: a new one's HW starts lower, and may have
    risen since it was read. A follower counts if it is in sync, or has fetched in this epoch.

    As far as the leader in office has it; what it does not have is lost, and reported. Of a replica
    that keeps other records only what both have counts, be it a deposed leader or a member of the
    ISR that has not come to be cut: it shows nothing of the new leader's records at those offsets.
    """
    shown = [
        _shown_by_follower(sight, known, reading)
        for reading in sight.followers()
        if not reading.leads
        and (reading.broker in sight.state.isr or sight.has_fetched(reading.broker))
    ]
    shown += [
        _in_common(sight, reading)
        for reading in sight.followers()
        if leads_by_its_own_word(sight, reading) and names_the_topic(sight, reading)
    ]
    return min(max(shown, default=0), sight.leader_end or 0)


def _shown_by_follower(sight: Sight, known: Ledger, reading: ReplicaReading) -> int:
    """Where the epochs do not tell, its HW may be of records that were lost, and reported."""
    watermark = reading.high_watermark or 0
    if watermark <= (sight.leader_watermark or 0) or sight.has_fetched(reading.broker):
        return watermark
    common = None if sight.compacted else _agree_up_to(sight, reading)
    if common is not None and sight.rules.epoch_cache is not EpochCacheGeneration.FIRST:
        return common
    lost = (each.offsets for each in known.lost if each.offsets.end > known.end)
    others = [] if common is None else _proven_others(sight, reading)
    return min([watermark, *(offsets.start for offsets in (*lost, *others))])


def _proven_others(sight: Sight, reading: ReplicaReading) -> tuple[OffsetRange, ...]:
    """Where it keeps other records than the leader, by lists that leave out older epochs."""
    leader = sight.leader
    assert leader is not None
    return proven_differences(
        *(reading.lineage or (), leader.lineage or ()),
        start=0,
        end=min(reading.high_watermark or 0, sight.leader_end or 0),
        own_a=own_from(sight, reading),
        own_b=own_from(sight, leader),
    )


def _in_common(sight: Sight, deposed: ReplicaReading) -> int:
    """Up to where a deposed leader has committed what the leader in office has, too."""
    return _agree_up_to(sight, deposed) or 0


def _agree_up_to(sight: Sight, reading: ReplicaReading) -> int | None:
    """Up to where a replica shows as committed what the leader in office has, too; None where their
    epochs do not tell."""
    theirs = reading.lineage or ()
    mine = (sight.leader.lineage if sight.leader is not None else None) or ()
    end = min(reading.high_watermark or 0, sight.leader_end or 0)
    if not theirs or not mine or not is_rising(theirs) or not is_rising(mine):
        return None
    known = max(theirs[0].start_offset, mine[0].start_offset)
    if known >= end:
        return None
    first = first_disagreement(theirs, mine, start=known, end=end)
    return end if first is None else first


def _committed_out_of_office(sight: Sight, known: Ledger) -> Ledger:
    """While nobody is seen in office, a leader of an older epoch may still commit.

    Only what it has beyond the ledger is taken over, and only what was not reported as lost. Where
    it has written since, other records were lost there: these are not reported yet. What it has
    where the ledger has something else, or beyond a loss that was reported, is kept beside it.

    One that is in office in a round that straddles a change has all of it committed, as in any
    other round: the same records again where they were lost, or others.
    """
    for reading in sight.replicas:
        watermark = reading.high_watermark
        if watermark is None or not leads_by_its_own_word(sight, reading) or not sight.identified:
            continue
        seen = seen_to(sight, reading)
        if seen is not None:
            offsets = OffsetRange(seen, watermark)
            written = tuple(by_epoch(offsets, reading.lineage or (), watermark))
            known = known._replace(lost=_without_written(known.lost, written))
        beyond = OffsetRange(known.end, watermark)
        in_office = reading is sight.leader and not sight.known_to_be_old
        lost = () if in_office else known.lost
        if beyond.start < beyond.end and _was_lost(lost, beyond, reading.lineage or ()):
            for each in _committed_beyond_lost(known, reading, watermark):
                known = known._replace(beside=_with(known.beside, each))
        elif beyond.start < beyond.end:
            if reading.lineage and is_rising(reading.lineage) and known.epochs_end == known.end:
                known = _going_on(known, reading.lineage, watermark)
            known = known._replace(end=watermark)
        # Before topic ids a deleted topic is gone from every broker before it can be made again;
        # and who was in office beside the ledger goes on in that epoch.
        was = any(each.leader_epoch == reading.leader_epoch for each in known.beside)
        alone = sight.observation.topic_id is None and (in_office or was)
        if alone or names_the_topic(sight, reading):
            for each in _committed_beside(known, reading, watermark):
                known = known._replace(beside=_with(known.beside, each))
    return known


def _going_on(known: Ledger, lineage: Lineage, watermark: int) -> Ledger:
    """The ledger with the epochs of what was committed beyond its end.

    A lineage tells nothing of what lies before its first entry and was removed. Where that begins
    above the ledger's end in another epoch, nobody knows which one ends where: the older epochs are
    given up for the newer, or kept where there are none.
    """
    trimmed = normalise(lineage, log_start_offset=known.end, end_offset=watermark)
    older = known.epochs
    gap = lineage[0].start_offset > known.end
    if older and gap and lineage[0].epoch != older[-1].epoch:
        if not trimmed:
            return known
        older = ()
    if older and trimmed and trimmed[0].epoch == older[-1].epoch:
        trimmed = trimmed[1:]  # the same epoch goes on
    epochs = _bounded((*older, *trimmed), MAX_LEDGER_ENTRIES, like=())
    return known._replace(epochs=epochs, epochs_end=watermark)


def _committed_beyond_lost(
    known: Ledger, reading: ReplicaReading, watermark: int
) -> Iterator[Beside]:
    """What a leader has committed beyond the ledger, without what was reported as lost. The ledger
    has no gaps: with it, it would claim those again."""
    if reading.leader_epoch is None:
        return
    for part in by_epoch(OffsetRange(known.end, watermark), reading.lineage or (), watermark):
        told = [lost.offsets for lost in known.lost if lost.may_be(part)]
        for left in without(part.offsets, told):
            yield Beside(left, part.epoch, reading.leader_epoch)


def _committed_beside(known: Ledger, reading: ReplicaReading, watermark: int) -> Iterator[Beside]:
    """Records of known epochs that a leader has below its HW, and the ledger has not: it has those
    of other epochs there, or ends before them. What was reported as lost is not among them."""
    if not reading.lineage or not is_rising(reading.lineage) or reading.leader_epoch is None:
        return
    start = max(known.start, reading.log_start_offset or 0)
    # Between these two the ledger does not know which records it has.
    unknown = OffsetRange(known.epochs_end, known.end)
    mine = tuple(stretches(known.epochs, start=start, end=max(start, known.epochs_end)))
    for part in by_epoch(OffsetRange(start, watermark), reading.lineage, watermark):
        held = [offsets for offsets, epoch in mine if epoch in (part.epoch, None)]
        told = [lost.offsets for lost in known.lost if lost.may_be(part)]
        for left in without(part.offsets, [unknown, *held, *told]):
            if part.epoch != UNKNOWN_EPOCH:
                yield Beside(left, part.epoch, reading.leader_epoch)


def _with(beside: tuple[Beside, ...], new: Beside) -> tuple[Beside, ...]:
    """A leader's commits grow from round to round: one entry for each of its ranges."""
    same = [known for known in beside if known[1:] == new[1:]]
    ranges = merged(known.offsets for known in (*same, new))
    others = (known for known in beside if known not in same)
    return (*others, *(new._replace(offsets=offsets) for offsets in ranges))[-MAX_BESIDE:]


def _few(lost: tuple[Lost, ...]) -> tuple[Lost, ...]:
    """What was reported last must be known whole, or a replica that still shows it would have it
    reported again: so neighbours become one, of an epoch that is not known, before any is dropped.
    """
    kept = list(lost)
    while len(kept) > MAX_LOST_RANGES:
        pairs = ((n, a, b) for n, (a, b) in enumerate(pairwise(kept)))
        for number, one, other in pairs:
            if one.offsets.end == other.offsets.start:
                both = OffsetRange(one.offsets.start, other.offsets.end)
                kept[number : number + 2] = [Lost(both, UNKNOWN_EPOCH)]
                break
        else:
            del kept[0]
    return tuple(kept)


def _still_beside(sight: Sight, beside: tuple[Beside, ...]) -> tuple[Beside, ...]:
    """Without what is settled now that somebody in office has answered: lost, and reported, or
    below its HW, or removed by retention."""
    leader = sight.leader
    if leader is None:
        return beside
    watermark = min(leader.high_watermark or 0, leader.log_end_offset or 0)
    gone = [lost.offsets for lost in sight.losses]
    return tuple(
        known
        for known in beside
        if known.leader_epoch > sight.state.leader_epoch
        or (known.epoch != UNKNOWN_EPOCH and not leader.lineage)
        or (
            watermark < known.offsets.end > (leader.log_start_offset or 0)
            and without(known.offsets, gone) == (known.offsets,)
        )
    )


def _without_written(lost: tuple[Lost, ...], written: tuple[Lost, ...]) -> tuple[Lost, ...]:
    """Records of another epoch that were lost at those offsets stay reported, and so do those of
    the very same: a leader writes an offset once in its epoch, and others had shown them before."""
    return tuple(
        each._replace(offsets=part)
        for each in lost
        for part in without(
            each.offsets,
            [w.offsets for w in written if UNKNOWN_EPOCH in (w.epoch, each.epoch)],
        )
    )


def _was_lost(lost: tuple[Lost, ...], offsets: OffsetRange, lineage: Lineage) -> bool:
    """Whether some of these records may be among those that were lost."""
    return any(
        known.may_be(part) and without(part.offsets, [known.offsets]) != (part.offsets,)
        for part in by_epoch(offsets, lineage, offsets.end)
        for known in lost
    )


def _bounded(lineage: Lineage, at_most: int, *, like: Lineage) -> Lineage:
    """The newest entries; the very object of the reading where nothing was taken away."""
    if len(lineage) > at_most:
        return lineage[-at_most:]
    return like if lineage == like else lineage
