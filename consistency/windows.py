"""Which offsets of which copies may lawfully be compared.

A copy takes part from its own log start up to its own high watermark: retention runs on every
broker for itself, and above the high watermark a replica may hold what its leader never committed.
So the offsets fall into windows, each with the copies that take part in it. Below the point up to
which one of them has been cleaned a window is `cleaned`: batches may be missing or rewritten there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.partitions import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.consistency.batches import Extent
    from tidestaff.consistency.partitions import BrokerId


class Window(NamedTuple):
    """Offsets, and the copies that can be compared there (two or more); or the one that holds them
    alone, where it is read against its own checksums."""

    offsets: OffsetRange
    brokers: tuple[BrokerId, ...]
    cleaned: bool = False


class Behind(NamedTuple):
    """A copy that ends before what is known to be committed."""

    broker: BrokerId
    end: int
    committed: int

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.end, self.committed)


class Apart(NamedTuple):
    """A copy that has no committed offset in common with another."""

    broker: BrokerId
    offsets: OffsetRange


class Above(NamedTuple):
    """What a copy holds above its own high watermark: nobody promised it."""

    broker: BrokerId
    offsets: OffsetRange


def windows_of(extents: Sequence[Extent], *, least: int = 2) -> tuple[Window, ...]:
    """In the order of their offsets; neighbours differ in who takes part, or in being cleaned.
    `least`: so many copies take part at least."""
    bounds = {bound for each in extents for bound in (each.log_start_offset, each.end)}
    bounds |= {each.cleaned_up_to for each in extents if each.cleaned_up_to}
    found: list[Window] = []
    for start, end in pairwise(sorted(bounds)):
        present = [e for e in extents if e.log_start_offset <= start and end <= e.end]
        if len(present) < least:
            continue
        cleaned = any(e.cleaned_up_to is None or start < e.cleaned_up_to for e in present)
        new = Window(OffsetRange(start, end), tuple(e.broker for e in present), cleaned)
        last = found[-1] if found else None
        if last is not None and last.offsets.end == start and last[1:] == new[1:]:
            found[-1] = last._replace(offsets=OffsetRange(last.offsets.start, end))
        else:
            found.append(new)
    return tuple(found)


def behind(extents: Sequence[Extent], leader: BrokerId | None = None) -> tuple[Behind, ...]:
    """Copies that end below the highest watermark anybody knows, and are not in the ISR. That one
    may be known to copies which do not hold it themselves any more: all of them may have lost it.

    A member of the ISR holds it or is about to: its own reading may only be older. But it is read
    after its leader, and so it must hold what its leader called committed then: else whoever told
    the ISR has not heard that it shrank.
    """
    committed = max((each.high_watermark for each in extents), default=0)
    by_leader = max((each.end for each in extents if each.broker == leader), default=0)
    return tuple(
        Behind(each.broker, each.log_end_offset, committed)
        for each in extents
        if each.log_end_offset < (by_leader if each.in_sync else committed)
    )


def apart(extents: Sequence[Extent], lagging: Sequence[Behind]) -> tuple[Apart, ...]:
    """Copies that take part nowhere where others are compared: emptied by retention before the
    others were, or without a high watermark yet. Of those that are behind that is told."""
    compared = {broker for window in windows_of(extents) for broker in window.brokers}
    told = compared | {each.broker for each in lagging}
    left = [each for each in extents if each.broker not in told] if compared else []
    return tuple(Apart(e.broker, OffsetRange(e.log_start_offset, e.end)) for e in left)


def above(extents: Sequence[Extent]) -> tuple[Above, ...]:
    return tuple(
        Above(each.broker, OffsetRange(each.end, each.log_end_offset))
        for each in extents
        if each.end < each.log_end_offset
    )


def not_comparable(extents: Sequence[Extent]) -> str | None:
    """Why there is nothing to compare, in words; None where there is."""
    if len(extents) < 2:
        return "there is only one copy to read" if extents else "no copy can be read"
    ids = {each.topic_id for each in extents if each.topic_id is not None}
    if len(ids) > 1:
        told = ", ".join(f"broker {each.broker} {each.topic_id}" for each in extents)
        return f"the copies are of different topics of one name: topic ids {told}"
    if windows_of(extents):
        return None
    if all(each.end <= each.log_start_offset for each in extents):
        return None  # empty everywhere: equal
    told = ", ".join(f"broker {e.broker} {OffsetRange(e.log_start_offset, e.end)}" for e in extents)
    return f"no two copies hold committed offsets in common: {told}"
