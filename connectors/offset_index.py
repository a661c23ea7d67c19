"""The offset index beside a segment: an offset and the byte its batch begins at, again and again.

It is a hint and no more. An index may be old, wrong or missing: whoever follows an entry looks
whether a batch stands there. The file of the newest segment is larger than it is filled: entries,
then zeros.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.log_directories_files import (
    FileGoneError,
    FileUnreadableError,
    opened,
)

if TYPE_CHECKING:
    from tidestaff.connectors.segments_in_log import SegmentFile

_ENTRY: Final = Struct(">ii")
_NEIGHBOURS: Final = 8
_AT_ONCE: Final = 4_095
"""Entries that are read at once."""


class OffsetIndex:
    """The index of one segment; opened whenever it is asked, since most segments never ask."""

    def __init__(self, directory: int, segment: SegmentFile) -> None:
        self._directory, self._base = directory, segment.base_offset
        self._name = segment.name.removesuffix(".log") + ".index"
        self._next = 0
        self.misleads = False
        """There is none, or following it did not pay: it is not asked again."""

    def below(self, offset: int) -> int:
        """The byte of the last entry below an offset; 0 where there is none."""
        wanted = offset - self._base
        try:
            with opened(self._name, self._directory, self._name) as descriptor:
                first = _first(descriptor, lambda relative, _: relative >= wanted)
                return _entry(descriptor, first - 1)[1] if first else 0
        except (FileGoneError, FileUnreadableError, OSError):
            return 0

    def expected(self, position: int, end_offset: int, *, apart: int, last: int) -> Any:
        """`position` and bytes behind it at which batches should begin, as an array: up to `last`,
        up to the first that should hold `end_offset`, and up to where entries are less than
        `apart` bytes apart on the average."""
        import numpy as np  # noqa: PLC0415 - slow, and only files of large batches need it

        offsets, found = self._behind(position, np)
        there = len(found)
        if not there:
            return found
        # Zeros follow the last entry.
        back = found[1:] <= found[:-1]
        if back.any():
            there = int(back.argmax()) + 1
        if there > _NEIGHBOURS:
            near = found[_NEIGHBOURS:there] - found[: there - _NEIGHBOURS] < _NEIGHBOURS * apart
            there = int(near.argmax()) + 1 if near.any() else there
        if offsets[there - 1] >= end_offset - self._base:
            there = int((offsets[:there] >= end_offset - self._base).argmax()) + 1
        if found[there - 1] > last:
            there = int(found[:there].searchsorted(last, "right"))
        return np.concatenate(([position], found[:there]))

    def _behind(self, position: int, np: Any) -> tuple[Any, Any]:
        """Offsets and bytes of entries from the first behind a byte on; and whatever follows the
        last one."""
        none = np.zeros(0, np.int64)
        if self.misleads:
            return none, none
        try:
            with opened(self._name, self._directory, self._name) as descriptor:
                for _ in range(2):
                    data = os.pread(descriptor, _AT_ONCE * _ENTRY.size, self._next * _ENTRY.size)
                    whole = len(data) // _ENTRY.size
                    entries = np.frombuffer(data, ">i4", 2 * whole).reshape(-1, 2)
                    found = entries[:, 1].astype(np.int64)
                    behind = found > position
                    if behind.any():
                        first = int(behind.argmax())
                        self._next += first
                        return entries[first:, 0], found[first:]
                    # Not where it was left: it is looked for everywhere.
                    self._next = _first(descriptor, lambda _, byte: byte > position)
        except (FileGoneError, FileUnreadableError, OSError):
            self.misleads = True
        return none, none


def _first(descriptor: int, is_it: Any) -> int:
    """The number of the first entry for which it holds, or which is none; entries are in order."""
    low, high = 0, os.fstat(descriptor).st_size // _ENTRY.size
    while low < high:
        middle = (low + high) // 2
        relative, byte = _entry(descriptor, middle)
        if relative <= 0 or byte < 0 or is_it(relative, byte):
            high = middle
        else:
            low = middle + 1
    return low


def _entry(descriptor: int, number: int) -> tuple[int, int]:
    data = os.pread(descriptor, _ENTRY.size, number * _ENTRY.size)
    if len(data) < _ENTRY.size:
        return 0, 0
    relative, byte = _ENTRY.unpack(data)
    return relative, byte
