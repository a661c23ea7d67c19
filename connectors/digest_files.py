"""Digests of ranges from the segments of a partition directory: headers are read, payloads skipped.

Nothing is written and nothing is mapped. A segment that vanishes or shrinks while it is read is
retention or truncation at work: the question is answered by what is there now.
"""

from __future__ import annotations

import os
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.digests import Fold, Stop
from tidestaff.connectors.header_chains import HEADER, LARGE
from tidestaff.connectors.log_directories_files import (
    FileGoneError,
    FileUnreadableError,
    names_in,
    opened,
    opened_directory,
)
from tidestaff.connectors.offset_index import OffsetIndex
from tidestaff.connectors.segments import Batch, checked_from, checksum, decode_header
from tidestaff.connectors.segments_in_log import segment_files, segments_from
from tidestaff.consistency.batches import RangeDigest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.connectors.segments_in_log import SegmentFile
    from tidestaff.consistency.batches import BatchMark
    from tidestaff.consistency.model import OffsetRange

_WINDOW: Final = 1 << 16
_FIRST: Final = 1 << 12
"""Enough to see whether batches are large."""
_CHUNK: Final = 1 << 20
_TRIES: Final = 3


class RangeReader:
    """Reads ranges of one partition directory. `pace` is told how many payload bytes are to be
    read, and may wait."""

    def __init__(self, path: str, pace: Callable[[int], None] = lambda _: None) -> None:
        self._path, self._pace = path, pace
        self._after: tuple[SegmentFile, int, int] | None = None

    def digest(self, offsets: OffsetRange, *, check: bool = False) -> RangeDigest:
        return self._read(offsets, check=check, keep=False)[0]

    def marks(self, offsets: OffsetRange) -> list[BatchMark]:
        """One by one, each looked at whole."""
        return self._read(offsets, check=True, keep=True)[1]

    def _read(
        self, offsets: OffsetRange, *, check: bool, keep: bool
    ) -> tuple[RangeDigest, list[BatchMark]]:
        for turn in range(_TRIES):
            try:
                with opened_directory(self._path, None, self._path) as directory:
                    return self._once(directory, offsets, check=check, keep=keep)
            except FileGoneError as error:
                if turn + 1 == _TRIES:
                    return _unreadable(offsets, offsets.start, error.reason), []
            except FileUnreadableError as error:
                return _unreadable(offsets, offsets.start, error.reason), []
        raise AssertionError("the last turn returns")

    def _once(
        self, directory: int, offsets: OffsetRange, *, check: bool, keep: bool
    ) -> tuple[RangeDigest, list[BatchMark]]:
        files = segment_files(names_in(directory, self._path))
        if not files or files[0].base_offset > offsets.start:
            first = files[0].base_offset if files else offsets.end
            return RangeDigest(offsets, starts_at=max(first, offsets.start + 1)), []
        reading = _Reading(self._pace)
        fold = Fold(offsets, check=reading.intact if check or keep else None, keep=keep)
        segments = segments_from(files, offsets.start)
        for segment, further in zip_longest(segments, segments[1:]):
            if segment.base_offset >= offsets.end:
                break
            if segment.base_offset <= fold.last_offset:
                # Kafka reads an offset from the last segment that begins at or below it: whoever
                # asks again from there on is told what that one holds.
                why = f"{segment.name} begins below the end of the segment before it"
                return fold.digest(unreadable_at=segment.base_offset, reason=why), fold.marks
            with opened(segment.name, directory, f"{self._path}/{segment.name}") as descriptor:
                reading.descriptor = descriptor
                index = OffsetIndex(directory, segment)
                try:
                    begin = self._begin(descriptor, segment, offsets.start, index)
                    at, stop = _scan(fold, descriptor, begin, index)
                except OSError as error:
                    why = error.strerror or type(error).__name__
                    return _unreadable(offsets, fold.last_offset + 1, why), []
            where = max(fold.last_offset + 1, segment.base_offset, offsets.start)
            if stop is Stop.BROKEN:
                why = f"no batch at byte {at} of {segment.name}"
                why += "" if fold.broken is None else f": {fold.broken.reason}"
                return fold.digest(unreadable_at=where, reason=why), fold.marks
            up_to = offsets.end if further is None else further.base_offset
            if stop is Stop.PARTIAL and where < min(up_to, offsets.end):
                self._see_that_both_are_there(directory, segment, further)
                why = f"no whole batch at byte {at} of {segment.name}, offsets up to {up_to} are "
                return fold.digest(unreadable_at=where, reason=f"{why}missing"), fold.marks
            if stop is Stop.PAST:
                self._after = (segment, at, offsets.end)
                break
        return fold.digest(), fold.marks

    def _see_that_both_are_there(
        self, directory: int, segment: SegmentFile, further: SegmentFile | None
    ) -> None:
        """Between them offsets are missing; but if one of them has gone meanwhile, and the log was
        cut, nothing is missing."""
        there = segment_files(names_in(directory, self._path))
        for each in (segment, further):
            if each is not None and each not in there:
                raise FileGoneError(f"{self._path}/{each.name}")

    def _begin(self, descriptor: int, segment: SegmentFile, offset: int, index: OffsetIndex) -> int:
        """A byte at or before the batch that holds the offset: where the last question ended, or
        where the offset index says, if a batch stands there."""
        if offset <= segment.base_offset:
            return 0
        if self._after is not None and self._after[::2] == (segment, offset):
            return self._after[1]
        position = index.below(offset)
        if position:
            found = decode_header(os.pread(descriptor, HEADER, position), 0, position)
            if isinstance(found, Batch) and segment.base_offset <= found.last_offset < offset:
                return position
        return 0


class _Reading:
    """Looks at payloads of the segment that is open."""

    def __init__(self, pace: Callable[[int], None]) -> None:
        self._pace = pace
        self.descriptor = -1

    def intact(self, batch: Batch) -> bool | None:
        """None where the bytes are not there any more."""
        self._pace(batch.size)
        crc, at = 0, batch.position + checked_from(batch.magic)
        while at < batch.end_position:
            chunk = os.pread(self.descriptor, min(_CHUNK, batch.end_position - at), at)
            if not chunk:
                return None
            crc = checksum(batch.magic, crc, chunk)
            at += len(chunk)
        return crc == batch.crc


def _scan(fold: Fold, descriptor: int, position: int, index: OffsetIndex) -> tuple[int, Stop]:
    """One segment from a byte on. Between large batches a header is read alone."""
    size, window = os.fstat(descriptor).st_size, _FIRST
    while True:
        data = os.pread(descriptor, window, position)
        window = _WINDOW
        at, stop = fold.scan(data, 0, position=position, limit=size - position)
        position += at
        if stop is not Stop.ENDS or position >= size or at == 0:
            return position, stop
        if at - len(data) > LARGE // 2:
            # So far beyond the data reaches only a large batch.
            position, stop = fold.skim(descriptor, position, size, index)
            if stop is Stop.PAST or position >= size:
                return position, stop


def _unreadable(offsets: OffsetRange, at: int, reason: str) -> RangeDigest:
    return RangeDigest(offsets, unreadable_at=max(at, offsets.start), reason=reason)
