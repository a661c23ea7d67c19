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

    found = pieces.at(starts)
    if found is None:
        return None
    sizes = _sizes(found, np)
    if (starts[:-1] + sizes[:-1] + OVERHEAD == starts[1:]).all() and sizes.min() >= LEAST:
        # Each batch was an append of its own: there is nothing between them.
        return Chain(found.tobytes(), len(found))
    walks = _Walks(starts, np)
    walks.step(found)
    while len(walks.behind) >= _TOGETHER:
        found = pieces.at(walks.behind)
        if found is None:
            return None
        walks.step(found)
    for stretch, at, end, left in walks.unfinished():
        data, came_to = walked(descriptor, at, end - 1, most=left, least=LEAST)
        if data:
            walks.alone(stretch, np.frombuffer(data, np.uint8).reshape(-1, HEADER))
        if came_to != end:
            # Small batches stand there, or the file has become shorter: the chain ends here.
            walks.breaks(stretch)
            break
    return walks.one_chain(pieces)


class _Walks:
    """Stretches of a segment, each walked from its start up to the start of the next."""

    def __init__(self, starts: Any, np: Any) -> None:
        self._np = np
        self.behind = starts
        """Where the next header begins, of each stretch that is not at its end."""
        # The last of them has no end: what follows it is another question.
        self._until = np.append(starts[1:], 0)
        # A small batch between large ones is read along; where there are many, windows are cheaper.
        self._most = 2 + (self._until - starts) // (LARGE // 2)
        self._who = np.arange(len(starts))
        self._counts = np.zeros(len(starts), np.int64)
        self._last = len(starts) - 1
        """The first stretch that does not end where the next begins: there the chain ends."""
        self.tables: list[Any] = []
        self._whose: list[tuple[Any, Any]] = []
        """For each table which stretches its rows are of, and which of their headers."""

    def step(self, headers: Any) -> None:
        """One header further in all of them."""
        np, who, until = self._np, self._who, self._until
        self.tables.append(headers)
        self._whose.append((who, len(self._whose)))
        steps = len(self.tables)
        self._counts[who] = steps
        sizes = _sizes(headers, np)
        behind = self.behind + (sizes + OVERHEAD)
        whole = sizes >= LEAST
        going = (behind < until) & whole & (self._most > steps)
        astray = ~(going | ((behind == until) & whole))
        if astray.any():
            self.breaks(int(who[astray.argmax()]))
        self.behind, self._until = behind[going], until[going]
        self._most, self._who = self._most[going], who[going]

    def unfinished(self) -> list[tuple[int, int, int, int]]:
        """Stretch, next byte, end, and how many headers may be read."""
        left = (self._who, self.behind, self._until, self._most)
        return list(zip(*(each.tolist() for each in left), strict=True))

    def alone(self, stretch: int, headers: Any) -> None:
        """Headers of one stretch from where it was left on; no step follows."""
        self.tables.append(headers)
        count, before = len(headers), int(self._counts[stretch])
        steps = self._np.arange(before, before + count)
        self._whose.append((self._np.full(count, stretch), steps))
        self._counts[stretch] += count

    def breaks(self, stretch: int) -> None:
        self._last = min(self._last, stretch)

    def one_chain(self, pieces: Pieces) -> Chain:
        """Rows stand in the order of reading; in a chain one stretch follows the other."""
        rows = pieces.joined(self.tables)
        headers = rows[: self._last + 1]
        if len(self.tables) > 1:
            count, order = self._order(len(rows))
            headers = rows.view(f"V{HEADER}")[:, 0].take(order[:count]).view(self._np.uint8)
            headers = headers.reshape(-1, HEADER)
        if _sizes(headers[-1:], self._np)[0] < LEAST:
            headers = headers[:-1]
        return Chain(headers.tobytes(), len(rows))

    def _order(self, rows: int) -> tuple[int, Any]:
        """How many rows the chain has, and which ones, one after the other."""
        np, counts = self._np, self._counts
        begins = counts.cumsum() - counts
        order, at = np.empty(rows, np.intp), 0
        for stretch, step in self._whose:
            order[begins[stretch] + step] = np.arange(at, at + len(stretch))
            at += len(stretch)
        return int(begins[self._last] + counts[self._last]), order


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
