"""Headers of large batches, one after the other, payloads skipped: each costs a read of its own.

These reads are most of what comparing logs on disks costs. Where the offset index tells where
batches should begin, many headers are read at once; it is believed only where the batch before
ends exactly there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.connectors.header_chains import HEADER, LARGE, chain_from, walked

if TYPE_CHECKING:
    from tidestaff.connectors.offset_index import OffsetIndex

_WALKED: Final = 64
"""Where there is no room for more large batches than this no index is asked: it costs as much."""
_FEW: Final = 16
_AT_ONCE: Final = 4_096
_SPAN: Final = 1 << 26
"""Bytes of a segment whose headers are read at once: memory does not grow with it."""


def large_headers(
    descriptor: int, position: int, size: int, index: OffsetIndex, *, end_offset: int
) -> bytes:
    """Headers joined, from a byte on, each of a large batch as far as its size tells, up to the
    first that begins at `end_offset` or above, or some further; fewer where the file ends."""
    if (size - position) // LARGE > _WALKED:
        last = min(size - HEADER, position + _SPAN)
        starts = index.expected(position, end_offset, apart=LARGE, last=last)
        if len(starts) > _FEW and (chain := chain_from(descriptor, starts)) is not None:
            # Else there are small batches between large ones, or it leads into batches.
            index.misleads = len(chain.headers) < chain.read * HEADER // 2
            if chain.headers:
                return chain.headers
    return walked(descriptor, position, size - HEADER, end_offset=end_offset, most=_AT_ONCE)[0]
