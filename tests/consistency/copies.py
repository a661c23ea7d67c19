"""Copies of a partition in memory, and a comparison of them driven to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidestaff.consistency.batches import BatchMark, Extent, RangeDigest
from tidestaff.consistency.comparison import Comparison
from tidestaff.consistency.model import EpochEntry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tidestaff.consistency.comparison_verdict import Verdict
    from tidestaff.consistency.model import Lineage, OffsetRange


def batch(
    first: int, records: int = 1, *, epoch: int = 0, crc: int | None = None, **more: Any
) -> BatchMark:
    last = first + records - 1
    return BatchMark(first, last, epoch, crc if crc is not None else first * 7, records, **more)


def log(ends: Sequence[int], *, epoch: int = 0, start: int = 0) -> list[BatchMark]:
    """Batches that end before these offsets, one after the other."""
    found = []
    for end in ends:
        found.append(batch(start, end - start, epoch=epoch))
        start = end
    return found


def lineage(batches: Sequence[BatchMark]) -> Lineage:
    found: list[EpochEntry] = []
    for each in batches:
        assert each.leader_epoch is not None
        if not found or found[-1].epoch != each.leader_epoch:
            found.append(EpochEntry(each.leader_epoch, each.first_offset))
    return tuple(found)


@dataclass
class Copy:
    """One replica. `broken_from`: what stands there is no header; a digest is of
    what stands before it, as that of files is."""

    broker: int
    batches: list[BatchMark]
    log_start: int = 0
    watermark: int | None = None
    cleaned_up_to: int | None = 0
    in_sync: bool | None = None
    broken_from: int | None = None
    asked: list[OffsetRange] = field(default_factory=list)

    @property
    def extent(self) -> Extent:
        end = self.batches[-1].last_offset + 1 if self.batches else self.log_start
        return Extent(
            self.broker,
            self.log_start,
            end if self.watermark is None else self.watermark,
            end,
            lineage(self.batches),
            self.cleaned_up_to,
            self.in_sync,
        )

    def within(self, offsets: OffsetRange) -> list[BatchMark]:
        return [b for b in self.batches if offsets.start <= b.last_offset < offsets.end]

    def digest(self, offsets: OffsetRange) -> RangeDigest:
        self.asked.append(offsets)
        held = self.within(offsets)
        if offsets.start < self.log_start:
            return RangeDigest(offsets, starts_at=self.log_start)
        broken_at = None
        if self.broken_from is not None and self.broken_from <= offsets.end:
            broken_at = max(self.broken_from, offsets.start)
            held = [b for b in held if b.last_offset < broken_at]
        return RangeDigest(
            offsets,
            hash(tuple(b.identity for b in held)),
            len(held),
            sum(b.records or 1 for b in held),
            held[-1].leader_epoch if held else None,
            invalid_at=next((b.first_offset for b in held if b.intact is False), None),
            unreadable_at=broken_at,
            reason="" if broken_at is None else "no header",
        )


def compared(copies: Sequence[Copy], **more: Any) -> Verdict:
    comparison = Comparison([copy.extent for copy in copies], **more)
    by_broker = {copy.broker: copy for copy in copies}
    while (question := comparison.question()) is not None:
        asked = [by_broker[broker] for broker in question.window.brokers]
        if question.marks:
            comparison.marks(question, {c.broker: c.within(question.offsets) for c in asked})
        else:
            comparison.digests(question, {c.broker: c.digest(question.offsets) for c in asked})
    return comparison.verdict()
