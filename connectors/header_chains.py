"""Headers of large batches, walked from many bytes of a segment side by side.

An offset index has one entry for each append. A leader appends batch by batch; a follower appends
what one fetch brought, and of the batches in it only the first is in the index. So the stretches
between entries are walked together: one gathering reads the first header of each stretch, the next
one the second of all that have a second, and so on. Nothing of an index is believed: what is
handed out is one chain, each batch ending where the next begins, as a walk alone would find it.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.gathering import pieces_of

if TYPE_CHECKING:
    from tidestaff.connectors.gathering import Pieces

HEADER: Final = 61
OVERHEAD: Final = 12
LEAST: Final = HEADER - OVERHEAD
LARGE: Final = 1 << 13
"""Batches from this size on are worth a read of their own."""
_TOGETHER: Final = 12
"""Fewer stretches than this are walked one after the other: a gathering costs as much."""
_OFFSET_AND_SIZE: Final = Struct(">qi")
_SIZE_AT: Final = 8


class Chain(NamedTuple):
    """Headers joined, and how many were read to find them."""

    headers: bytes
    read: int


def chain_from(descriptor: int, starts: Any) -> Chain | None:
    """Headers of batches from the first of these bytes on, as far as one follows the other up
    to the last of them; None where the file has become shorter. Bytes ascend."""
    with pieces_of(descriptor, HEADER) as pieces:
        return _chain(descriptor, starts, pieces)


def _chain(descriptor: int, starts: Any, pieces: Pieces) -> Chain | None:
    import numpy as np  # noqa: PLC0415 - slow, and only files of large batches need it

    tables: list[Any] = []
    places: list[Any] = []
    lengths: list[Any] = []
    # The last of them has no end: what follows it is another question.
    behind, until = starts, np.append(starts[1:], 0)
    # A small batch between large ones is read along; where there are many, windows are cheaper.
    most = 2 + (until - starts) // (LARGE // 2)
    while len(behind) >= _TOGETHER or not tables:
        found = pieces.at(behind)
        if found is None:
            return None
        sizes = _sizes(found, np)
        tables.append(found)
        places.append(behind)
        lengths.append(sizes)
        behind = behind + OVERHEAD + sizes
        going = (behind < until) & (sizes >= LEAST) & (most > len(tables))
        behind, until, most = behind[going], until[going], most[going]
    for at, end, left in zip(behind.tolist(), until.tolist(), most.tolist(), strict=True):
        data, came_to = walked(descriptor, at, end - 1, most=left, least=LEAST)
        if data:
            found = np.frombuffer(data, np.uint8).reshape(-1, HEADER)
            sizes = _sizes(found, np)
            tables.append(found)
            lengths.append(sizes)
            places.append(at + np.append(0, (sizes + OVERHEAD).cumsum()[:-1]))
        if came_to != end:
            # Small batches stand there, or the file has become shorter: the chain ends here.
            break
    return _one_chain(tables, places, lengths, np)


def _one_chain(tables: list[Any], places: list[Any], lengths: list[Any], np: Any) -> Chain:
    headers, places_, sizes = tables[0], places[0], lengths[0]
    if len(tables) > 1:
        joined = np.concatenate(places)
        order = joined.argsort(kind="stable")
        places_, sizes = joined[order], np.concatenate(lengths)[order]
        headers = np.concatenate(tables)[order]
    ends = (places_[:-1] + OVERHEAD + sizes[:-1] != places_[1:]) | (sizes[1:] < LEAST)
    count = int(ends.argmax()) + 1 if ends.any() else len(sizes)
    if sizes[0] < LEAST:
        count = 0
    return Chain(headers[:count].tobytes(), len(sizes))


def walked(
    descriptor: int,
    position: int,
    last: int,
    *,
    end_offset: int = 1 << 63,
    most: int,
    least: int = LARGE,
) -> tuple[bytes, int]:
    """Headers of batches of this size at least that begin up to the byte `last`, up to the first
    that begins at `end_offset` or above, and where the next one would begin."""
    found: list[bytes] = []
    pread, unpack, append = os.pread, _OFFSET_AND_SIZE.unpack_from, found.append
    while position <= last:
        header = pread(descriptor, HEADER, position)
        if len(header) < HEADER:
            break
        base, length = unpack(header)
        if length < least:
            break
        append(header)
        if base >= end_offset:
            break
        position += length + OVERHEAD
        if len(found) == most:
            break
    return b"".join(found), position


def _sizes(headers: Any, np: Any) -> Any:
    return np.ndarray((len(headers),), ">i4", headers, _SIZE_AT, (HEADER,)).astype(np.int64)
