"""A replica's log as run lengths, so that memory does not grow with the number of records.

Two records are the same iff leader epoch, writer and offset are the same; the writer is the process
that led when the record was written, one number for each start of a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.model import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Run(NamedTuple):
    """Records [start, end) written in one leader epoch by one process."""

    epoch: int
    writer: int
    start: int
    end: int


class ReplicaLog:
    """Records [start, end) of one replica; `cuts` counts whatever took records from its end."""

    __slots__ = ("cuts", "end", "runs", "start")

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.cuts = 0
        self.runs: list[Run] = []

    def append(self, epoch: int, writer: int, records: int) -> None:
        if records:
            self._join(Run(epoch, writer, self.end, self.end + records))

    def extend(self, runs: Iterable[Run]) -> None:
        """Take over runs that begin where this log ends."""
        for run in runs:
            assert run.start == self.end, (run, self.end)
            self._join(run)

    def _join(self, run: Run) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and last[:2] == run[:2] and last.end == run.start:
            self.runs[-1] = last._replace(end=run.end)
        else:
            self.runs.append(run)
        self.end = run.end

    def slice(self, start: int, end: int) -> list[Run]:
        """The runs of [start, end), clipped."""
        found: list[Run] = []
        if start >= end:
            return found
        for run in reversed(self.runs):
            if run.end <= start:
                break
            if run.start < end:
                clipped = run._replace(start=max(run.start, start), end=min(run.end, end))
                found.append(clipped)
        return found[::-1]

    def truncate_to(self, offset: int) -> None:
        """Drop every record at or above `offset`; at or below the log start nothing is left."""
        if offset >= self.end:
            return
        self.cuts += 1
        if offset <= self.start:
            self.runs, self.start, self.end = [], offset, offset
            return
        self.runs = self.slice(self.start, offset)
        self.end = offset

    def restart_at(self, offset: int) -> None:
        """Drop everything and begin anew at `offset`."""
        self.cuts += 1
        self.runs, self.start, self.end = [], offset, offset

    def raise_start(self, offset: int) -> None:
        """Retention: records below `offset` are gone; never beyond the end."""
        if offset > self.start:
            self.runs = self.slice(offset, self.end)
            self.start = offset


def shared(left: Sequence[Run], right: Sequence[Run]) -> list[OffsetRange]:
    """The ranges in which both hold the same records, in order."""
    found: list[OffsetRange] = []
    mine, other = 0, 0
    while mine < len(left) and other < len(right):
        a, b = left[mine], right[other]
        start, end = max(a.start, b.start), min(a.end, b.end)
        if start < end and a[:2] == b[:2]:
            if found and found[-1].end == start:
                found[-1] = OffsetRange(found[-1].start, end)
            else:
                found.append(OffsetRange(start, end))
        if a.end <= b.end:
            mine += 1
        if b.end <= a.end:
            other += 1
    return found


def unshared(left: Sequence[Run], right: Sequence[Run], within: OffsetRange) -> list[OffsetRange]:
    """The ranges of `within` in which the two do not hold the same records."""
    missing: list[OffsetRange] = []
    position = within.start
    for start, end in shared(left, right):
        if end <= position or start >= within.end:
            continue
        if start > position:
            missing.append(OffsetRange(position, start))
        position = end
    if position < within.end:
        missing.append(OffsetRange(position, within.end))
    return missing
