"""The segments of one partition directory as one log: where an offset is, where the log ends."""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.log_directories_files import (
    FileGoneError,
    FileUnreadableError,
    names_in,
    opened,
)
from tidestaff.connectors.segments import Batch, Ending, SegmentEnd, SegmentScan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_DIGITS: Final = 20
_NAME: Final = _DIGITS + len(".log")
_INDEX_ENTRY: Final = Struct(">ii")
_INDEX_READ: Final = 1 << 12
_LONGEST_OFFSET: Final = (1 << 63) - 1
_TRIES: Final = 3

TAILS: Final = frozenset({Ending.COMPLETE, Ending.TRUNCATED, Ending.ZERO_FILLED})
"""How the newest segment of a broker that appends may end at any moment."""


class SegmentFile(NamedTuple):
    """A segment by its name: the offset it begins with. Sorted by it."""

    base_offset: int
    name: str


class LogEnd(NamedTuple):
    """Where a log ends by its files. `mark` is the last batch, to go on from the next time.

    `end` is how the newest segment ends, `older_bytes` the size of the segments before it.
    """

    log_start_offset: int
    log_end_offset: int
    end: SegmentEnd
    segment: SegmentFile
    mark: Batch | None = None
    older_bytes: int = 0

    @property
    def size(self) -> int:
        return self.older_bytes + self.end.position


def segment_files(names: Iterable[str]) -> list[SegmentFile]:
    """The segments among the files of a directory; those being deleted or cleaned are none."""
    found = [
        SegmentFile(offset, name)
        for name in names
        if name.endswith(".log")
        and len(name) == _NAME
        and (digits := name[:_DIGITS]).isdigit()
        and digits.isascii()
        and (offset := int(digits)) <= _LONGEST_OFFSET
    ]
    found.sort()
    return found


def segments_from(files: Sequence[SegmentFile], offset: int) -> Sequence[SegmentFile]:
    """The segment that holds this offset and all after it, by their names alone."""
    first = bisect_right(files, offset, key=lambda each: each.base_offset) - 1
    return files[max(first, 0) :]


class LogScan:
    """The batches of a partition directory that end at `offset` or above, over all its segments.

    A segment that does not end as a whole one ends the scan; `end` and `segment` say how and where.
    """

    def __init__(self, directory: int, place: str, *, offset: int = 0, check: bool = False) -> None:
        self._directory, self._place = directory, place
        self._offset, self._check = offset, check
        self.end: SegmentEnd | None = None
        self.segment: SegmentFile | None = None

    def __iter__(self) -> Iterator[Batch]:
        files = segment_files(names_in(self._directory, self._place))
        for segment in segments_from(files, self._offset):
            self.segment = segment
            try:
                with opened(segment.name, self._directory, self._place) as descriptor:
                    scan = SegmentScan(descriptor, check=self._check)
                    for batch in scan:
                        if batch.last_offset >= self._offset:
                            yield batch
                    self.end = scan.end
            except FileGoneError as error:
                self.end = SegmentEnd(Ending.VANISHED, 0, error.reason)
            except FileUnreadableError as error:
                self.end = SegmentEnd(Ending.UNREADABLE, 0, error.reason)
            if self.end is None or self.end.ending is not Ending.COMPLETE:
                return


def log_end(directory: int, place: str, known: LogEnd | None = None) -> LogEnd | None:
    """Where the log ends: after the last whole batch of the newest segment. None: no segment.

    `known` is the last answer. If its last batch still stands where it stood, only what came after
    it is read; else the offset index says where to begin, and if that misleads, the beginning.
    """
    for _ in range(_TRIES):
        files = segment_files(names_in(directory, place))
        if not files:
            return None
        newest = files[-1]
        with_known = known if known is not None and known.segment == newest else None
        try:
            with opened(newest.name, directory, f"{place}/{newest.name}") as descriptor:
                scan = _scan_of_tail(descriptor, directory, newest, with_known)
        except FileGoneError:
            continue
        if segment_files(names_in(directory, place))[-1:] != [newest]:
            continue  # rolled, or truncated away, meanwhile
        assert scan.end is not None
        if scan.end.ending is Ending.SHRUNK:
            continue
        end_offset = newest.base_offset if scan.last is None else scan.last.last_offset + 1
        older = _older_bytes(files, directory, known)
        return LogEnd(files[0].base_offset, end_offset, scan.end, newest, scan.last, older)
    raise FileGoneError(f"the newest segment of {place}")


def _older_bytes(files: Sequence[SegmentFile], directory: int, known: LogEnd | None) -> int:
    """Looked up when segments came or went, not every round: a log may have thousands."""
    if known is not None and (known.log_start_offset, known.segment) == (
        files[0].base_offset,
        files[-1],
    ):
        return known.older_bytes
    found = 0
    for each in files[:-1]:
        with suppress(OSError):  # removed meanwhile
            found += os.stat(each.name, dir_fd=directory, follow_symlinks=False).st_size
    return found


def _scan_of_tail(
    descriptor: int, directory: int, segment: SegmentFile, known: LogEnd | None
) -> SegmentScan:
    if known is not None and known.mark is not None:
        scan = SegmentScan(descriptor, position=known.mark.position)
        if next(iter(batches := iter(scan)), None) == known.mark:
            _exhaust(batches)
            return scan
    hint = _index_hint(directory, segment)
    if hint is not None:
        offset, position = hint
        scan = SegmentScan(descriptor, position=position)
        first = next(batches := iter(scan), None)
        if first is not None and segment.base_offset <= _begin(first) <= offset:
            _exhaust(batches)
            assert scan.last is not None
            if scan.last.last_offset >= offset and _is_tail(scan.end):
                return scan
    scan = SegmentScan(descriptor)
    _exhaust(iter(scan))
    return scan


def _begin(batch: Batch) -> int:
    return batch.last_offset if batch.base_offset is None else batch.base_offset


def _is_tail(end: SegmentEnd | None) -> bool:
    return end is not None and end.ending in TAILS


def _exhaust(batches: Iterator[Batch]) -> None:
    for _ in batches:
        pass


def _index_hint(directory: int, segment: SegmentFile) -> tuple[int, int] | None:
    """Offset and byte position of the last index entry. The file of the newest segment is made
    larger than it is filled: entries, then zeros. Most are short, and seen with one read."""
    name = segment.name.removesuffix(".log") + ".index"
    each = _INDEX_ENTRY.size
    try:
        with opened(name, directory, name) as descriptor:
            beginning = os.pread(descriptor, _INDEX_READ, 0)
            low, high = 0, len(beginning) // each
            found: tuple[int, int] | None = None
            if high == _INDEX_READ // each and _is_entry(beginning, high - 1):
                high = os.fstat(descriptor).st_size // each
            while low < high:
                middle = (low + high) // 2
                data, at = beginning, middle
                if (middle + 1) * each > len(beginning):
                    data, at = os.pread(descriptor, each, middle * each), 0
                if len(data) < each:
                    return None
                if _is_entry(data, at):
                    relative, position = _INDEX_ENTRY.unpack_from(data, at * each)
                    found, low = (segment.base_offset + relative, position), middle + 1
                else:
                    high = middle
            return found
    except (FileGoneError, FileUnreadableError, OSError):
        return None


def _is_entry(data: bytes, number: int) -> bool:
    relative, position = _INDEX_ENTRY.unpack_from(data, number * _INDEX_ENTRY.size)
    return bool(relative > 0 and position >= 0)
