"""Digests of ranges of a log, folded from the headers of its batches as they come.

A header is hashed as it stands: base offset, size, leader epoch, checksum, offsets, times, count.
Followers copy it unchanged, so equal digests are equal logs. The loop runs once for every batch of
a cluster and is kept as short as can be; whatever is unusual is left to `decode_header`.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.header_chains import HEADER, OVERHEAD
from tidestaff.connectors.large_batches import large_headers
from tidestaff.connectors.segments import Batch, decode_header
from tidestaff.consistency.batches import BatchMark, RangeDigest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.connectors.offset_index import OffsetIndex
    from tidestaff.connectors.segments import SegmentEnd
    from tidestaff.consistency.model import OffsetRange

# base offset, size | magic, last offset delta, count; between them what is only hashed.
_HEAD: Final = Struct(">qi4xB6xi30xi")
_OLD_HEADER: Final = 18
_LEAST: Final = HEADER - OVERHEAD
_FEW: Final = 64
"""Up to so many headers are folded one by one: setting up tables of numbers costs more."""
_EPOCH: Final = slice(12, 16)
_BYTES: Final = 8
"""Of a SHA-256, which processors compute themselves: BLAKE2b took more than twice as long."""


class Stop(Enum):
    """Why a scan of some bytes came to its end."""

    PAST = "past"  # the next batch ends behind the range
    PARTIAL = "partial"  # the next batch is not whole
    ENDS = "ends"  # there are no more bytes
    BROKEN = "broken"  # what stands there is no batch


class Fold:
    """One range of one copy. `check` says of a batch whether its payload is intact; with `keep`
    batches are kept one by one as well."""

    def __init__(
        self,
        offsets: OffsetRange,
        *,
        check: Callable[[Batch], bool | None] | None = None,
        keep: bool = False,
    ) -> None:
        self.offsets, self._check, self._keep = offsets, check, keep
        self._hash = hashlib.sha256()
        self._parts: list[bytes | memoryview] = []
        self._last_header = b""
        self.batches = self.records = 0
        self.last_offset = -1
        self.invalid_at: int | None = None
        self.marks: list[BatchMark] = []
        self.broken: SegmentEnd | None = None

    def scan(
        self, data: bytes | memoryview, at: int, *, position: int, limit: int
    ) -> tuple[int, Stop]:
        """Batches of `data` from `at` on; a batch may reach up to `limit`, beyond the data too.

        `position` is where `data` stands in its file. Returns where it came to, and why it ended.
        """
        if self._check is not None or self._keep:
            return self._slowly(data, at, position, limit)
        unpack, parts = _HEAD.unpack_from, self._parts
        start, end, last = self.offsets.start, self.offsets.end, self.last_offset
        stop, enough = Stop.ENDS, len(data) - HEADER
        count = 0
        while at <= enough:
            base, size, magic, delta, records = unpack(data, at)
            if magic != 2 or size < _LEAST or base <= last or delta < 0 or records < 0:
                break
            if base + delta >= end:
                stop = Stop.PAST
                break
            if at + size + OVERHEAD > limit:
                stop = Stop.PARTIAL
                break
            last = base + delta
            if last >= start:
                parts.append(data[at : at + HEADER])
                count += records
            at += size + OVERHEAD
        else:
            # Less than a header is left, of this format; a message of an old one may be shorter.
            self._note(last, count)
            return self._slowly(data, at, position, limit) if at < len(data) else (at, stop)
        self._note(last, count)
        if stop is Stop.ENDS:
            return self._slowly(data, at, position, limit)
        return at, stop

    def skim(
        self, descriptor: int, position: int, size: int, index: OffsetIndex
    ) -> tuple[int, Stop]:
        """Large batches of a file, header by header, payloads skipped. Ends (`ENDS`) where `scan`
        must look: at a small batch, at the end of the file, at anything unusual."""
        if self._check is not None or self._keep:
            return position, Stop.ENDS
        last, end = size - HEADER, self.offsets.end
        while position <= last:
            headers = large_headers(descriptor, position, size, index, end_offset=end)
            count = len(headers) // HEADER
            fold = self._fold_few if count <= _FEW else self._fold_many
            taken, length, stop = fold(headers, size - position) if count else (0, 0, Stop.ENDS)
            position += length
            if not taken or stop is Stop.PAST or taken < count:
                return position, stop
        return position, Stop.ENDS

    def _fold_few(self, headers: bytes, room: int) -> tuple[int, int, Stop]:
        """As `_fold_many`, for few."""
        start, end = self.offsets.start, self.offsets.end
        last, at, count, taken, stop = self.last_offset, 0, 0, 0, Stop.ENDS
        for base, size, magic, delta, records in _HEAD.iter_unpack(headers):
            if magic != 2 or base <= last or delta < 0 or records < 0:
                break
            if base + delta >= end:
                stop = Stop.PAST
                break
            if at + size + OVERHEAD > room:
                break
            last = base + delta
            if last >= start:
                self._parts.append(headers[taken * HEADER : (taken + 1) * HEADER])
                count += records
            at += size + OVERHEAD
            taken += 1
        self._note(last, count)
        return taken, at, stop

    def _fold_many(self, headers: bytes, room: int) -> tuple[int, int, Stop]:
        """As `scan` folds them, all at once: how many were batches of the range, how many bytes
        they take, and whether the next one ends behind it. `room` is what the file has for them."""
        import numpy as np  # noqa: PLC0415 - slow, and only files of large batches need it

        table: Any = np.frombuffer(headers, _table())
        base, delta = table["base"].astype(np.int64), table["delta"].astype(np.int32)
        records, last = table["records"].astype(np.int32), base + delta
        ends = (table["size"].astype(np.int64) + OVERHEAD).cumsum()
        count, stop = len(table), Stop.ENDS
        usual = (
            min(delta.min(), records.min()) >= 0
            and base[0] > self.last_offset
            and (base[1:] > last[:-1]).all()
            and (table["magic"] == 2).all()
        )
        if not usual or last[-1] >= self.offsets.end or ends[-1] > room:
            whole = (table["magic"] == 2) & (delta >= 0) & (records >= 0)
            whole[1:] &= base[1:] > last[:-1]
            whole[0] &= base[0] > self.last_offset
            past = last >= self.offsets.end
            stopping = past | (ends > room) | ~whole
            count = int(stopping.argmax()) if stopping.any() else count
            if count < len(table) and past[count] and whole[count]:
                stop = Stop.PAST
            if not count:
                return 0, 0, stop
        first = 0
        if last[0] < self.offsets.start:
            first = int(np.searchsorted(last[:count], self.offsets.start))
        self._hash.update(headers[first * HEADER : count * HEADER])
        self.batches += count - first
        self.records += int(records[first:count].sum(dtype=np.int64))
        self.last_offset = int(last[count - 1])
        if first < count:
            self._last_header = headers[(count - 1) * HEADER : count * HEADER]
        return count, int(ends[count - 1]), stop

    def _note(self, last: int, records: int) -> None:
        self.last_offset = last
        self.records += records
        self.batches += len(self._parts)
        if self._parts:
            self._last_header = bytes(self._parts[-1])
            self._hash.update(b"".join(self._parts))
            self._parts.clear()

    def _slowly(
        self, data: bytes | memoryview, at: int, position: int, limit: int
    ) -> tuple[int, Stop]:
        """One by one: old formats, batches that are looked at, and what is no batch."""
        if isinstance(data, memoryview):
            came_to, stop = self._slowly(bytes(data[at:]), 0, position + at, limit - at)
            return at + came_to, stop
        while True:
            found = decode_header(data, at, position + at)
            if not isinstance(found, Batch):
                if len(data) - at < HEADER and len(data) < limit:
                    return at, Stop.ENDS  # the rest of the header comes with the next bytes
                whole = found.ending.value in ("complete", "truncated", "zero-filled")
                self.broken = None if whole else found
                return at, Stop.PARTIAL if whole else Stop.BROKEN
            first = found.last_offset if found.base_offset is None else found.base_offset
            if first <= self.last_offset:
                return at, Stop.BROKEN
            if found.last_offset >= self.offsets.end:
                return at, Stop.PAST
            if at + found.size > limit:
                return at, Stop.PARTIAL
            self.last_offset = found.last_offset
            if found.last_offset >= self.offsets.start:
                self._take(found, data[at : at + (HEADER if found.magic >= 2 else _OLD_HEADER)])
            at += found.size
            if at >= len(data):
                return at, Stop.ENDS

    def _take(self, batch: Batch, header: bytes) -> None:
        intact = None if self._check is None else self._check(batch)
        first = batch.last_offset if batch.base_offset is None else batch.base_offset
        if intact is False and self.invalid_at is None:
            self.invalid_at = first
        if self._keep:
            self.marks.append(mark_of(batch._replace(intact=intact)))
        self._hash.update(header)
        self._last_header = header
        self.batches += 1
        self.records += 1 if batch.records is None else batch.records

    def digest(self, *, unreadable_at: int | None = None, reason: str = "") -> RangeDigest:
        """Of everything that was scanned."""
        epoch = None
        if len(self._last_header) == HEADER:
            epoch = int.from_bytes(self._last_header[_EPOCH], signed=True)
        value = int.from_bytes(self._hash.digest()[:_BYTES]) if self.batches else 0
        return RangeDigest(
            self.offsets,
            value,
            self.batches,
            self.records,
            epoch,
            self.invalid_at,
            unreadable_at=unreadable_at,
            reason=reason,
        )


@cache
def _table() -> Any:
    """Headers as a table, for many at once."""
    import numpy as np  # noqa: PLC0415 - slow, and only files of large batches need it

    return np.dtype(
        {
            "names": ("base", "size", "magic", "delta", "records"),
            "formats": (">i8", ">i4", "u1", ">i4", ">i4"),
            "offsets": (0, 8, 16, 23, 57),
            "itemsize": HEADER,
        }
    )


def mark_of(batch: Batch) -> BatchMark:
    first = batch.last_offset if batch.base_offset is None else batch.base_offset
    return BatchMark(
        first,
        batch.last_offset,
        batch.leader_epoch,
        batch.crc,
        batch.records,
        batch.max_timestamp,
        batch.attributes,
        batch.intact,
    )
