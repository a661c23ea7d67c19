"""What stands behind the place where the newest segment of a log has no whole batch any more.

A crash leaves part of a batch there, or zeros, and the copy fetches again what it lost. Bytes that
have changed in the middle leave whole batches behind them.
"""

from __future__ import annotations

import os
import re
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.log_directories_files import (
    FileGoneError,
    opened,
    opened_directory,
)
from tidestaff.connectors.segments import Batch, Ending, checked_from, checksum, decode_header

if TYPE_CHECKING:
    from tidestaff.connectors.segments_in_log import LogEnd
    from tidestaff.consistency.model import TopicPartition

_CHUNK: Final = 1 << 20
_FARTHEST: Final = 1 << 26
"""So far is looked: a log breaks off for good in few places, but none may take minutes."""
_HEADER: Final = 61
_LARGEST_BATCH: Final = 1 << 26
_MAGIC_BEHIND_OFFSET: Final = b".{8}\x02"
_OFFSET: Final = 8


def breaks_off(
    parent: int,
    partition: TopicPartition,
    end: LogEnd,
    watermark: int | None,
    recovery_point: int | None,
) -> bool:
    """Whether a log that ends below its own high watermark has lost the rest to a fault of its
    bytes: what lies below the recovery point was on the disk, and what stands behind was, too."""
    torn = end.end.ending in (Ending.TRUNCATED, Ending.ZERO_FILLED)
    if not torn or watermark is None or end.log_end_offset >= watermark:
        return False
    if end.log_end_offset < (recovery_point or 0):
        return True
    try:
        with opened_directory(str(partition), parent, str(partition)) as directory:
            return data_behind(directory, str(partition), end, below=watermark)
    except FileGoneError:
        return False  # retention, or a log that was cut: the next reading tells


def data_behind(directory: int, place: str, end: LogEnd, *, below: int) -> bool:
    """Whether data goes on behind the end of a log: a byte behind zeros, or behind part of a batch
    a whole one of an offset below `below`. May raise that the file is gone or cannot be read."""
    name = end.segment.name
    with opened(name, directory, f"{place}/{name}") as descriptor:
        if end.end.ending is Ending.ZERO_FILLED:
            return _no_zeros_from(descriptor, end.end.position)
        return _a_batch_from(descriptor, end.end.position + 1, end.log_end_offset, below)


def _no_zeros_from(descriptor: int, position: int) -> bool:
    while chunk := os.pread(descriptor, _CHUNK, position):
        if chunk.strip(b"\0"):
            return True
        position += len(chunk)
    return False


def _a_batch_from(descriptor: int, position: int, first: int, below: int) -> bool:
    """By the bytes that offsets in between begin with, by the message format, by the checksum."""
    alike = _alike_in_front(first, below - 1)
    rest = b".{%d}" % (_OFFSET - len(alike))
    looks_like = re.compile(b"(?s)(?=" + re.escape(alike) + rest + _MAGIC_BEHIND_OFFSET + b")")
    size = os.fstat(descriptor).st_size
    until = min(size, position + _FARTHEST)
    while position < until:
        chunk = os.pread(descriptor, _CHUNK + _HEADER, position)
        for found in looks_like.finditer(chunk):
            if found.start() >= _CHUNK:
                break
            batch = decode_header(chunk, found.start(), position + found.start())
            if not isinstance(batch, Batch) or not first <= batch.last_offset < below:
                continue
            if batch.end_position <= size and _intact(descriptor, batch):
                return True
        position += _CHUNK
    return False


def _alike_in_front(low: int, high: int) -> bytes:
    pairs = zip(low.to_bytes(_OFFSET), high.to_bytes(_OFFSET), strict=True)
    return bytes(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _intact(descriptor: int, batch: Batch) -> bool:
    if batch.size > _LARGEST_BATCH:
        return False
    begin = batch.position + checked_from(batch.magic)
    covered = os.pread(descriptor, batch.end_position - begin, begin)
    return checksum(batch.magic, 0, covered) == batch.crc
