"""The leader epoch cache (leader-epoch-checkpoint) in both generations: functions on a `Lineage`.

Mirrors LeaderEpochFileCache: 0.11.0 to 2.0.0 is the first generation, 2.0.1 and later the second.
Each function gives a new lineage and changes nothing. Lineages are short (one entry per leader
epoch that wrote), so scans are linear.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.lineages import first_disagreement as first_disagreement
from tidestaff.consistency.model import (
    UNDEFINED_EPOCH,
    UNDEFINED_OFFSET,
    EpochEntry,
    Lineage,
    OffsetRange,
)
from tidestaff.consistency.ranges import merged
from tidestaff.consistency.versions import EpochCacheGeneration, RuleSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EMPTY: Final[Lineage] = ()


class EndOffset(NamedTuple):
    """Where an epoch ends: the largest known epoch <= the one asked, the first offset after it."""

    epoch: int
    end_offset: int

    @property
    def is_undefined(self) -> bool:
        return self.end_offset == UNDEFINED_OFFSET


UNDEFINED_END: Final = EndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


def assign(
    lineage: Lineage, epoch: int, start_offset: int, *, generation: EpochCacheGeneration
) -> Lineage:
    """A new entry never leaves an older one with an equal or larger epoch or start (2.0.1+).

    Up to 2.0.0 it was the other way round: the entry itself is ignored unless its epoch is larger
    and its start not smaller than the last one's, so two entries could share a start.
    """
    if epoch < 0 or start_offset < 0:
        raise FormatError(
            "epoch cache", "entry", f"({epoch},{start_offset})", "an epoch and an offset >= 0"
        )
    entry = EpochEntry(epoch, start_offset)
    if not lineage:
        return (entry,)
    last = lineage[-1]
    if generation is EpochCacheGeneration.FIRST:
        newer = epoch > last.epoch and start_offset >= last.start_offset
        return (*lineage, entry) if newer else lineage
    if epoch == last.epoch and start_offset >= last.start_offset:
        return lineage
    kept = len(lineage)
    while kept and (
        lineage[kept - 1].epoch >= epoch or lineage[kept - 1].start_offset >= start_offset
    ):
        kept -= 1
    return (*lineage[:kept], entry)


def truncate_from_end(lineage: Lineage, offset: int) -> Lineage:
    """Entries that start at or after the new log end go, even when no record is cut.

    So a replica that led and wrote nothing loses its empty epoch at its next truncation. A negative
    offset is Kafka's "undefined" and changes nothing.
    """
    if offset < 0 or not lineage or lineage[-1].start_offset < offset:
        return lineage
    return tuple(entry for entry in lineage if entry.start_offset < offset)


def truncate_from_start(
    lineage: Lineage,
    offset: int,
    *,
    generation: EpochCacheGeneration = EpochCacheGeneration.SECOND,
) -> Lineage:
    """The first entry's start follows the log start: the epoch in force there now begins there.

    The generations differ only where several entries share the start `offset`: the first keeps
    all of them, the second only the last.
    """
    if offset < 0:
        return lineage
    if generation is EpochCacheGeneration.FIRST:
        before = [entry for entry in lineage if entry.start_offset < offset]
        rest = lineage[len(before) :]
        if not before or (rest and rest[0].start_offset <= offset):
            return rest
        return (EpochEntry(before[-1].epoch, offset), *rest)
    passed = [entry for entry in lineage if entry.start_offset <= offset]
    if not passed:
        return lineage
    rest = tuple(entry for entry in lineage if entry.start_offset > offset)
    return (EpochEntry(passed[-1].epoch, offset), *rest)


def end_offset_for(
    lineage: Lineage, epoch: int, *, log_end_offset: int, rules: RuleSet
) -> EndOffset:
    """An epoch ends where the first larger one starts; the latest ends at the log end.

    Before 2.0.0 the answer carries no epoch (it is UNDEFINED then). An epoch older than the first
    one known ends at the first one's start from 2.0.1, and is undefined before.
    """
    if epoch == UNDEFINED_EPOCH:
        # The latest epoch of an empty cache was -1 too: the early code took it for the same one.
        if not lineage and rules.empty_cache_answers_log_end:
            return EndOffset(UNDEFINED_EPOCH, log_end_offset)
        return UNDEFINED_END
    found = _end_offset(lineage, epoch, log_end_offset=log_end_offset, generation=rules.epoch_cache)
    return found if rules.end_offset_answer_has_epoch else found._replace(epoch=UNDEFINED_EPOCH)


def _end_offset(
    lineage: Lineage, epoch: int, *, log_end_offset: int, generation: EpochCacheGeneration
) -> EndOffset:
    if lineage and lineage[-1].epoch == epoch:
        return EndOffset(epoch, log_end_offset)
    larger = next((entry for entry in lineage if entry.epoch > epoch), None)
    if larger is None:
        return UNDEFINED_END
    floor = previous_entry(lineage, epoch + 1)
    if floor is not None:
        return EndOffset(floor.epoch, larger.start_offset)
    if generation is EpochCacheGeneration.FIRST:
        return UNDEFINED_END
    return EndOffset(epoch, larger.start_offset)


def epoch_for_offset(lineage: Lineage, offset: int) -> int | None:
    """The epoch a record at this offset was written in; None before the first known epoch."""
    found = None
    for entry in lineage:
        if entry.start_offset > offset:
            break
        found = entry.epoch
    return found


def latest_epoch(lineage: Lineage) -> int | None:
    return lineage[-1].epoch if lineage else None


def earliest_entry(lineage: Lineage) -> EpochEntry | None:
    return lineage[0] if lineage else None


def latest_entry(lineage: Lineage) -> EpochEntry | None:
    return lineage[-1] if lineage else None


def entry_of(lineage: Lineage, epoch: int) -> EpochEntry | None:
    return next((entry for entry in lineage if entry.epoch == epoch), None)


def previous_entry(lineage: Lineage, epoch: int) -> EpochEntry | None:
    """The entry with the largest epoch below this one."""
    found = None
    for entry in lineage:
        if entry.epoch >= epoch:
            break
        found = entry
    return found


def previous_epoch(lineage: Lineage) -> int | None:
    """The epoch before the latest one."""
    return lineage[-2].epoch if len(lineage) > 1 else None


def next_epoch(lineage: Lineage, epoch: int) -> int | None:
    """The smallest known epoch above this one."""
    return next((entry.epoch for entry in lineage if entry.epoch > epoch), None)


def lineage_from_epochs(
    epochs_of_records: Iterable[int],
    log_start: int = 0,
    *,
    generation: EpochCacheGeneration = EpochCacheGeneration.SECOND,
) -> Lineage:
    """A log's records alone give its lineage: an entry where the epoch changes.

    A record without an epoch (-1, message format v0 or v1) clears what was known before it.
    """
    lineage = EMPTY
    for offset, epoch in enumerate(epochs_of_records, start=log_start):
        if epoch < 0:
            lineage = EMPTY
        elif not lineage or lineage[-1].epoch != epoch:
            lineage = assign(lineage, epoch, offset, generation=generation)
    return lineage


def normalise(lineage: Lineage, *, log_start_offset: int, end_offset: int) -> Lineage:
    """Only what a lineage says of offsets in [log start, end) is comparable between replicas.

    The first start follows each replica's own log start, trailing epochs may hold no record, and
    equal starts (up to 2.0.0) or entries not yet dropped from the file (3.8+) mean nothing.
    """
    if end_offset <= log_start_offset:
        return EMPTY
    trimmed = truncate_from_start(lineage, log_start_offset)
    kept: list[EpochEntry] = []
    for entry in trimmed:
        if entry.start_offset >= end_offset:
            continue
        if kept and kept[-1].start_offset == entry.start_offset:
            kept.pop()
        kept.append(entry)
    return tuple(kept)


def stretches(
    lineage: Lineage, *, start: int, end: int
) -> Iterator[tuple[OffsetRange, int | None]]:
    """[start, end) cut where the epoch changes; None where the lineage does not reach."""
    turns = {entry.start_offset for entry in lineage if start < entry.start_offset < end}
    for low, high in pairwise(sorted({start, *turns, max(start, end)})):
        yield OffsetRange(low, high), epoch_for_offset(lineage, low)


def proven_differences(
    a: Lineage, b: Lineage, *, start: int, end: int, own_a: int | None, own_b: int | None
) -> tuple[OffsetRange, ...]:
    """Where two lineages of the first generation (0.11 - 2.0.0) prove other records.

    Such a list ignores an epoch that is not larger than its last: a log that was cut to its HW and
    went on with older epochs does not show them. So a record is of the listed epoch or an older
    one; of the listed one for certain where an entry starts, and from `own_a` (or `own_b`) on: what
    a leader has written itself. The first entry's start follows the log start, unless that is 0.
    """
    if not a or not b:
        return ()
    known = max(start, a[0].start_offset, b[0].start_offset)
    turns = {e.start_offset for e in (*a, *b) if known < e.start_offset < end}
    found: list[OffsetRange] = []
    for low, high in pairwise(sorted({known, *turns, max(known, end)})):
        one, other = epoch_for_offset(a, low), epoch_for_offset(b, low)
        if one is None or other is None or one == other:
            continue
        newer, own = (a, own_a) if one > other else (b, own_b)
        if low == 0 or any(entry.start_offset == low for entry in newer[1:]):
            found.append(OffsetRange(low, low + 1))
        if own is not None and own < high:
            found.append(OffsetRange(max(low, own), high))
    return merged(found)


def next_agreement(a: Lineage, b: Lineage, *, start: int, end: int) -> int | None:
    """The first offset in [start, end) that both lineages know with the same epoch.

    Of two logs of one history there is none after a disagreement; diverged logs may have one.
    """
    starts = {entry.start_offset for entry in (*a, *b) if start < entry.start_offset < end}
    for offset in sorted({start, *starts}):
        one, other = epoch_for_offset(a, offset), epoch_for_offset(b, offset)
        if one is not None and one == other:
            return offset
    return None
