"""Short pieces of one file from many places, with one call of the system for hundreds of them.

Where the system has no such call, or forbids it, each piece is read by itself. Files are not
mapped: the kernel would map page by page, which costs more than it saves, and who touches a page
of a file that a broker has just cut is ended by the system.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.connectors.kernel_ring import Ring

FEW: Final = 11
"""Up to so many pieces are read by themselves: a list costs as much."""


class Pieces:
    """Pieces of one length of one open file."""

    def __init__(self, descriptor: int, length: int, ring: Ring | None) -> None:
        self._descriptor, self._length, self._ring = descriptor, length, ring

    def at(self, positions: Any) -> Any:
        """The bytes at each of these positions as a table with a row for each, to be used as long
        as these pieces are; None where the file is too short for one. Raises what a read raises."""
        import numpy as np  # noqa: PLC0415 - slow, and only files of large batches need it

        count, length = len(positions), self._length
        if self._ring is not None and count > FEW:
            try:
                found, left = self._ring.read(positions)
            except OSError:
                self._ring = None
            else:
                for number in left:
                    data = os.pread(self._descriptor, length, int(positions[number]))
                    if len(data) < length:
                        return None
                    found[number] = np.frombuffer(data, np.uint8)
                return found
        places = positions.tolist()
        data = b"".join(map(os.pread, repeat(self._descriptor), repeat(length), places))
        if len(data) < count * length:
            return None
        return np.frombuffer(data, np.uint8).reshape(count, length)

    def joined(self, tables: list[Any]) -> Any:
        """One table of several, all that were read here among them, in the order of reading."""
        import numpy as np  # noqa: PLC0415 - slow, and only files of large batches need it

        if len(tables) == 1:
            return tables[0]
        if self._ring is not None and len(self._ring.rows) == sum(map(len, tables)):
            return self._ring.rows  # they stand there one behind the other
        return np.concatenate(tables)


@contextmanager
def pieces_of(descriptor: int, length: int) -> Iterator[Pieces]:
    ring = _rings.take(length)
    if ring is not None:
        try:
            ring.hold(descriptor)
        except OSError:
            ring.usable = False
            _rings.give(ring)
            ring = None
    try:
        yield Pieces(descriptor, length, ring)
    finally:
        if ring is not None:
            if ring.usable:
                with suppress(OSError):
                    ring.hold(-1)
            _rings.give(ring)


class _Rings:
    """Rings that nobody uses now: making one takes longer than reading with it."""

    def __init__(self) -> None:
        self.refused = sys.platform != "linux"
        """None is to be had."""
        self._free: list[Ring] = []

    def take(self, length: int) -> Ring | None:
        if self.refused:
            return None
        with suppress(IndexError):
            ring = self._free.pop()
            if ring.length == length:
                return ring
            ring.close()
        try:
            from tidestaff.connectors.kernel_ring import Ring  # noqa: PLC0415 - slow, and rare

            return Ring(length)
        except (ImportError, AttributeError, OSError):
            self.refused = True
            return None

    def give(self, ring: Ring) -> None:
        if ring.usable:
            self._free.append(ring)
        else:
            ring.close()

    def forget(self) -> None:
        self._free.clear()


_rings: Final = _Rings()
# A ring belongs to the process that made it.
os.register_at_fork(after_in_child=_rings.forget)
