"""Batch headers of a log segment, in every message format (v0, v1, v2); payloads are skipped.

Read with pread, never mapped: a broker may cut the file while it is read, and a mapped page that is
gone would end the process. However a segment ends, the scan says how; it raises nothing.
"""

from __future__ import annotations

import os
import zlib
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import google_crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.model import OffsetRange

# offset, size | epoch, magic, crc, attributes, last offset delta, times, producer, count.
_V2: Final = Struct(">qiibIhiqqqhii")
# offset, size | crc, magic, attributes, time (from v1).
_OLD: Final = Struct(">qiIbbq")
_OVERHEAD: Final = 12
_MAGIC_AT: Final = 16
_CHECKED_FROM: Final = {0: 16, 1: 16, 2: 21}
_SMALLEST: Final = {0: 26, 1: 34, 2: _V2.size}
_PREFIX: Final = 17

_WINDOW: Final = 1 << 16
_LARGE_BATCH: Final = 1 << 13
_CHUNK: Final = 1 << 20

_COMPRESSION_MASK: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class Compression(Enum):
    """The codec of a batch, by the number in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
    UNKNOWN = -1


class Batch(NamedTuple):
    """One batch as its header tells it.

    In formats v0 and v1 a message is a batch of its own; a compressed set of them is one message
    that has the offset of its last. Its first offset and the number of its records stand in the
    payload: None. `leader_epoch` is None before v2, `intact` where checksums were not compared.
    """

    position: int
    size: int
    magic: int
    base_offset: int | None
    last_offset: int
    leader_epoch: int | None
    crc: int
    records: int | None
    base_timestamp: int | None
    max_timestamp: int | None
    attributes: int
    producer_id: int | None = None
    intact: bool | None = None

    @property
    def end_position(self) -> int:
        return self.position + self.size

    @property
    def compression(self) -> Compression:
        number = self.attributes & _COMPRESSION_MASK
        return Compression(number) if number <= Compression.ZSTD.value else Compression.UNKNOWN

    @property
    def is_transactional(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & _CONTROL)

    def within(self, offsets: OffsetRange) -> bool:
        """Whether the whole batch lies there; of a compressed set only its last offset counts."""
        first = self.last_offset if self.base_offset is None else self.base_offset
        return offsets.start <= first and self.last_offset < offsets.end


class Ending(Enum):
    """How a scan came to its end."""

    COMPLETE = "complete"  # the file ends where a batch ends
    TRUNCATED = "truncated"  # part of a batch: a crash, or an append that is under way
    ZERO_FILLED = "zero-filled"  # a preallocated tail
    CORRUPT = "corrupt"  # what stands there is no header
    SHRUNK = "shrunk"  # the file was cut while it was read
    VANISHED = "vanished"  # there is no such file any more
    UNREADABLE = "unreadable"  # the system refuses to read


class SegmentEnd(NamedTuple):
    """The end of a scan: how, at which byte, and why."""

    ending: Ending
    position: int
    reason: str = ""


class SegmentScan:
    """The batches of one open segment file from `position` on, once and in order.

    Memory is flat: a window of the file, and one chunk at a time where checksums are compared
    (`check`). `end` says after the last batch how the scan ended. The file stays the caller's.
    """

    def __init__(self, descriptor: int, *, position: int = 0, check: bool = False) -> None:
        self._descriptor, self._check = descriptor, check
        self._position = position
        self._size = 0
        self._read = b""
        self._read_at = 0
        self.end: SegmentEnd | None = None
        self.last: Batch | None = None

    def __iter__(self) -> Iterator[Batch]:
        try:
            self._size = os.fstat(self._descriptor).st_size
            yield from self._batches()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            self.end = SegmentEnd(Ending.UNREADABLE, self._position, reason)

    def _batches(self) -> Iterator[Batch]:
        large = False
        while True:
            at = self._position - self._read_at
            if not 0 <= at <= len(self._read) - _V2.size:
                # Between large batches a header is read alone: that is how payloads are skipped.
                at, span = 0, _V2.size if large and not self._check else _WINDOW
                self._read = os.pread(self._descriptor, span, self._position)
                self._read_at = self._position
            found = decode_header(self._read, at, self._position)
            if not isinstance(found, Batch):
                self.end = self._ended(found)
                return
            fault = self._does_not_fit(found)
            if fault is None and self._check:
                intact = self._is_intact(found)
                if intact is None:
                    fault = self._ended(SegmentEnd(Ending.TRUNCATED, self._position, "cut short"))
                found = found._replace(intact=intact)
            if fault is not None:
                self.end = fault
                return
            self.last = found
            self._position += found.size
            large = found.size > _LARGE_BATCH
            yield found

    def _does_not_fit(self, batch: Batch) -> SegmentEnd | None:
        if batch.end_position > self._size:
            size = os.fstat(self._descriptor).st_size
            if size < self._size:
                return self._shrunk(size)
            self._size = size
            if batch.end_position > size:
                reason = f"a batch of {batch.size} bytes, and {size - batch.position} are there"
                return SegmentEnd(Ending.TRUNCATED, batch.position, reason)
        if self.last is not None and _first(batch) <= self.last.last_offset:
            reason = f"offset {_first(batch)} after offset {self.last.last_offset}"
            return SegmentEnd(Ending.CORRUPT, batch.position, reason)
        return None

    def _ended(self, end: SegmentEnd) -> SegmentEnd:
        """A file that is shorter than it was has been cut under our hands, whatever we saw."""
        size = os.fstat(self._descriptor).st_size
        if size < max(self._size, end.position):
            return self._shrunk(size)
        if end.ending is Ending.ZERO_FILLED and self._check and not self._zeros_follow(size):
            return SegmentEnd(Ending.CORRUPT, end.position, "zeros, and data behind them")
        return end

    def _shrunk(self, size: int) -> SegmentEnd:
        reason = f"the file was cut to {size} bytes while it was read"
        return SegmentEnd(Ending.SHRUNK, min(self._position, size), reason)

    def _zeros_follow(self, size: int) -> bool:
        for position in range(self._position, size, _CHUNK):
            if os.pread(self._descriptor, _CHUNK, position).strip(b"\0"):
                return False
        return True

    def _is_intact(self, batch: Batch) -> bool | None:
        """None: bytes that were there are not there any more."""
        begin = batch.position + _CHECKED_FROM[batch.magic]
        at = begin - self._read_at
        if at >= 0 and batch.end_position - self._read_at <= len(self._read):
            covered = self._read[at : batch.end_position - self._read_at]
            return checksum(batch.magic, 0, covered) == batch.crc
        crc = 0
        while begin < batch.end_position:
            chunk = os.pread(self._descriptor, min(_CHUNK, batch.end_position - begin), begin)
            if not chunk:
                return None
            crc = checksum(batch.magic, crc, chunk)
            begin += len(chunk)
        return crc == batch.crc


def decode_header(data: bytes, at: int, position: int) -> Batch | SegmentEnd:
    """The header at `data[at:]`, which stands at byte `position` of its file; or why there is none.

    `data` may end soon after: a file does, too.
    """
    there = len(data) - at
    if there < _PREFIX:
        return _short(data[at:], position)
    magic = data[at + _MAGIC_AT]
    if magic == 2 and there >= _V2.size:
        (offset, size, epoch, _, crc, attributes, delta, base_at, max_at, producer, _, _, count) = (
            _V2.unpack_from(data, at)
        )
        if size >= _V2.size - _OVERHEAD and offset >= 0 and delta >= 0 and count >= 0:
            return Batch(
                position,
                size + _OVERHEAD,
                2,
                offset,
                offset + delta,
                epoch,
                crc,
                count,
                base_at,
                max_at,
                attributes,
                producer,
            )
        reason = f"offset {offset}, size {size}, {count} records up to {delta} further"
        return SegmentEnd(Ending.CORRUPT, position, reason)
    return _old_header(data, at, position, magic)


def _old_header(data: bytes, at: int, position: int, magic: int) -> Batch | SegmentEnd:
    if data.startswith(bytes(_PREFIX), at):
        return SegmentEnd(Ending.ZERO_FILLED, position, "zeros where a batch would begin")
    if magic not in _SMALLEST:
        return SegmentEnd(Ending.CORRUPT, position, f"there is no message format {magic}")
    offset, size = int.from_bytes(data[at : at + 8], signed=True), _size_at(data, at)
    if offset < 0 or size + _OVERHEAD < _SMALLEST[magic]:
        return SegmentEnd(Ending.CORRUPT, position, f"offset {offset}, size {size}")
    if len(data) - at < _SMALLEST[magic]:
        return SegmentEnd(Ending.TRUNCATED, position, "part of a header")
    _, _, crc, _, attributes, time = _OLD.unpack_from(data, at)
    timestamp = time if magic else None
    wrapped = bool(attributes & _COMPRESSION_MASK)
    return Batch(
        position,
        size + _OVERHEAD,
        magic,
        None if wrapped else offset,
        offset,
        None,
        crc,
        None if wrapped else 1,
        None if wrapped else timestamp,
        timestamp,
        attributes & 0xFF,
    )


def _short(rest: bytes, position: int) -> SegmentEnd:
    if not rest:
        return SegmentEnd(Ending.COMPLETE, position)
    if not any(rest):
        return SegmentEnd(Ending.ZERO_FILLED, position, f"{len(rest)} zeros")
    return SegmentEnd(Ending.TRUNCATED, position, f"{len(rest)} bytes of a header")


def _size_at(data: bytes, at: int) -> int:
    return int.from_bytes(data[at + 8 : at + _OVERHEAD], signed=True)


def _first(batch: Batch) -> int:
    return batch.last_offset if batch.base_offset is None else batch.base_offset


def checksum(magic: int, crc: int, data: bytes) -> int:
    """Castagnoli's from v2 on, the one of zip before."""
    return google_crc32c.extend(crc, data) if magic >= 2 else zlib.crc32(data, crc)


def checked_from(magic: int) -> int:
    """The first byte of a batch that its checksum covers."""
    return _CHECKED_FROM[magic]
