"""Where two lineages disagree."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidestaff.consistency.partitions import Lineage


def first_disagreement(a: Lineage, b: Lineage, *, start: int, end: int) -> int | None:
    """The first offset in [start, end) that both lineages know, with different epochs.

    None is agreement. Below the first entry of a lineage the epoch is unknown and cannot disagree.
    In-sync replicas mostly share one lineage, and then one object.
    """
    if a is b or not a or not b:
        return None
    first_known = max(start, a[0].start_offset, b[0].start_offset)
    if first_known >= end:
        return None
    turns = {entry.start_offset for entry in (*a, *b) if first_known < entry.start_offset < end} | {
        first_known
    }
    starts_a = [entry.start_offset for entry in a]
    starts_b = [entry.start_offset for entry in b]
    for offset in sorted(turns):
        in_a = a[bisect_right(starts_a, offset) - 1].epoch
        in_b = b[bisect_right(starts_b, offset) - 1].epoch
        if in_a != in_b:
            return offset
    return None
