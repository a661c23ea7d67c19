"""The quick comparison: lineages of leader epochs, a few bytes for each copy.

Copies whose lineages agree up to an offset were fed by the same leaders up to there. That finds
every divergence that elections have made, and none that a disk has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.batches import BatchMark
from tidestaff.consistency.comparison_verdict import Difference, Outcome, Uncompared, Verdict
from tidestaff.consistency.lineages import first_disagreement
from tidestaff.consistency.minority import Reference, minority_of
from tidestaff.consistency.partitions import OffsetRange
from tidestaff.consistency.windows import above, apart, behind, not_comparable, windows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.consistency.batches import Extent
    from tidestaff.consistency.partitions import BrokerId, Lineage


def compare_lineages(extents: Sequence[Extent], leader: BrokerId | None = None) -> Verdict:
    """Every copy with every other, wherever both hold committed offsets. Where a cleaner was, an
    epoch may be missing because nothing of it is left: lineages that agree are equal there as
    elsewhere, others say nothing."""
    refused = not_comparable(extents)
    if refused is not None:
        return Verdict(Outcome.NOT_COMPARABLE, why=refused)
    lineages = {each.broker: each.lineage for each in extents if each.lineage}
    left_out = [
        Uncompared(
            OffsetRange(e.broken_at, e.end), f"the log of broker {e.broker} breaks off there"
        )
        for e in extents
        if e.broken_at is not None and e.broken_at < e.end
    ]
    first: int | None = None
    end, epoch, who = 0, None, tuple[int, ...]()
    for window in windows_of(extents):
        known = [broker for broker in window.brokers if broker in lineages]
        if len(known) < 2:
            left_out.append(Uncompared(window.offsets, "fewer than two lineages are known"))
            continue
        one, *others = known
        at = [_disagree(lineages[one], lineages[each], window.offsets) for each in others]
        differs_at = min((each for each in at if each is not None), default=None)
        if window.cleaned and differs_at is not None:
            left_out.append(Uncompared(window.offsets, "cleaned: epochs may be missing lawfully"))
        elif first is None:
            first = differs_at
            end, who = window.offsets.end, window.brokers
            epoch = _epoch_at(lineages[one], (first or end) - 1)
            if unknown := sorted(set(window.brokers) - set(known)):
                which = ", ".join(map(str, unknown))
                left_out.append(Uncompared(window.offsets, f"no lineage is known of {which}"))
    lagging = behind(extents, leader)
    without = apart(extents, lagging)
    if first is not None:
        difference = _difference(first, end, who, lineages, Reference.of(extents, leader))
        return Verdict(
            Outcome.DIVERGED,
            first,
            epoch,
            (difference,),
            behind=lagging,
            complete=False,
            apart=without,
        )
    partly = left_out or without
    outcome = Outcome.NOT_COMPARABLE if partly else Outcome.BEHIND if lagging else Outcome.EQUAL
    up_to = min((each.offsets.start for each in left_out), default=end)
    return Verdict(
        outcome,
        up_to,
        epoch,
        behind=lagging,
        uncompared=tuple(left_out),
        apart=without,
        above=above(extents),
        compared=bool(windows_of(extents)),
    )


def _disagree(one: Lineage, other: Lineage, offsets: OffsetRange) -> int | None:
    return first_disagreement(one, other, start=offsets.start, end=offsets.end)


def _epoch_at(lineage: Lineage, offset: int) -> int | None:
    return max((e.epoch for e in lineage if e.start_offset <= offset), default=None)


def _difference(
    first: int,
    end: int,
    brokers: Sequence[BrokerId],
    lineages: dict[BrokerId, Lineage],
    reference: Reference,
) -> Difference:
    """Of the batches only the epochs are known; they stand for them."""
    held = {
        broker: BatchMark(first, first, _epoch_at(lineages[broker], first), 0, None)
        for broker in brokers
        if broker in lineages
    }
    minority, why = minority_of(held, first, reference)
    return Difference(OffsetRange(first, end), minority, why, held, 0, 0)
