"""Offset ranges as sets of offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.model import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable


def merged(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The same offsets in as few ranges as possible, in order."""
    found: list[OffsetRange] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if found and start <= found[-1].end:
            found[-1] = OffsetRange(found[-1].start, max(found[-1].end, end))
        else:
            found.append(OffsetRange(start, end))
    return tuple(found)


def without(offsets: OffsetRange, taken: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """What is left of a range once others are taken away."""
    left: list[OffsetRange] = []
    position = offsets.start
    for start, end in merged(taken):
        if start > position:
            left.append(OffsetRange(position, min(start, offsets.end)))
        position = max(position, end)
    left.append(OffsetRange(position, offsets.end))
    return tuple(part for part in left if part.start < part.end)
