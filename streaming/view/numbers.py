"""The offsets of a bucket's partitions, as the operator packs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tidestaff.streaming.operator.viewing import unpacked

if TYPE_CHECKING:
    from tidestaff.streaming.operator.slots import Longs


class Table(NamedTuple):
    """A row a slot, a column a replica, in the order of the partition's own list of replicas."""

    at: Longs
    replicas: Longs
    end: Longs
    watermark: Longs
    start: Longs

    def offsets(self, slot: int, count: int) -> list[tuple[int, int, int]] | None:
        """Log start, HW and LEO of each replica; None where the slot does not have so many."""
        if slot >= len(self.at) or int(self.replicas[slot]) != count:
            return None
        return [
            (int(self.start[slot, n]), int(self.watermark[slot, n]), int(self.end[slot, n]))
            for n in range(count)
        ]


def table_of(blob: bytes) -> Table:
    """What `viewing.numbers_text` packed."""
    flat: Any = np.frombuffer(unpacked(blob), np.int64)
    count, width, newest = (int(n) for n in flat[:3])
    at, replicas = flat[3 : 3 + count] + newest, flat[3 + count : 3 + 2 * count]
    wide = flat[3 + 2 * count :].reshape(3, count, width).copy()
    end, watermark, start = wide
    for column in (end, start):
        column[:, 1:] += column[:, :1]
    watermark += end
    return Table(at, replicas, end, watermark, start)
