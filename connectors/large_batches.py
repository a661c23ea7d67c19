"""Headers of large batches, one after the other, payloads skipped: each costs a read of its own.

These reads are most of what comparing logs on disks costs. A mapped file would cost more (the
kernel maps page by page), and so would reading payloads along. Where the offset index tells where
batches should begin, their headers are read without a look at each; it is believed only where the
batch before ends exactly there.
"""

from __future__ import annotations

import os
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.connectors.offset_index import OffsetIndex

HEADER: Final = 61
OVERHEAD: Final = 12
LARGE: Final = 1 << 13
"""Batches from this size on are worth a read of their own."""
WALKED: Final = 16
"""Up to so many headers no index is asked: opening it costs more."""
_OFFSET_AND_SIZE: Final = Struct(">qi")


class Headers(NamedTuple):
    """Headers joined. With `expected` they were read at these bytes and nobody has seen yet whether
    each batch but the last ends where the next was read."""

    data: bytes
    expected: Any = None

    def __len__(self) -> int:
        return len(self.data) // HEADER


def large_headers(
    descriptor: int, position: int, size: int, index: OffsetIndex, *, end_offset: int, most: int
) -> Headers:
    """Headers from a byte on, each of a large batch as far as its size tells, up to the first that
    begins at `end_offset` or above; fewer where the file ends. About `most`, if there are."""
    room = (size - position) // LARGE + 1
    if most > WALKED and room > WALKED:
        expected = index.expected(position, end_offset, apart=LARGE, most=min(most, room))
        if len(expected) >= WALKED and expected[-1] <= size - HEADER:
            starts = [position, *expected.tolist()]
            data = b"".join(map(os.pread, repeat(descriptor), repeat(HEADER), starts))
            if len(data) == HEADER * len(starts):
                return Headers(data, expected)
            # Else the file has been cut meanwhile.
    return Headers(_walked(descriptor, position, size - HEADER, end_offset, most)[0])


def completed(
    descriptor: int,
    position: int,
    headers: Headers,
    missing: Sequence[int],
    index: OffsetIndex,
    *,
    end_offset: int,
) -> Headers:
    """With those that stand between the batches of these numbers and the next ones that were read;
    up to where there are none."""
    starts, found = [position, *headers.expected.tolist()], []
    for number, until in zip([-1, *missing], [*missing, len(starts)], strict=True):
        if number >= 0:
            last = starts[number + 1] - 1
            between, at = _walked(descriptor, starts[number], last, end_offset, 1 << 30)
            found.append(between)
            if at != starts[number + 1]:
                # A small batch or the end of the range is there; or the entry leads into a batch.
                index.misleads = at > starts[number + 1] or number < len(starts) // 2
                break
        found.append(headers.data[(number + 1) * HEADER : until * HEADER])
    return Headers(b"".join(found))


def _walked(
    descriptor: int, position: int, last: int, end_offset: int, most: int
) -> tuple[bytes, int]:
    """Headers that begin up to the byte `last`, and where the next one would."""
    found: list[bytes] = []
    pread, unpack, append = os.pread, _OFFSET_AND_SIZE.unpack_from, found.append
    while position <= last:
        header = pread(descriptor, HEADER, position)
        if len(header) < HEADER:
            break
        base, length = unpack(header)
        if length < LARGE:
            break
        append(header)
        if base >= end_offset or len(found) == most:
            break
        position += length + OVERHEAD
    return b"".join(found), position
