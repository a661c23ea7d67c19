"""Silence is a finding: who stops reporting while others go on is named, at the time it was due.

A partition is silent against its own source's reports on the cluster: if the source itself fell
silent, that is one finding, not ten thousand. Only what lies `lateness_ms` behind the newest report
is judged; by then nothing that could explain it is still on its way, so the batches do not matter.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final, NamedTuple

MAX_REPORTS: Final = 256


class Gap(NamedTuple):
    """A subject was not heard of between two rows."""

    cluster: str
    subject: str
    start_ms: int
    end_ms: int


class Clock:
    """When a cluster's source reported, as this bucket has heard it."""

    __slots__ = ("reports",)

    def __init__(self, reports: list[int] | None = None) -> None:
        self.reports = reports if reports is not None else []

    def hear(self, at_ms: int) -> None:
        if at_ms not in self.reports[-8:]:
            insort(self.reports, at_ms)
            del self.reports[:-MAX_REPORTS]

    @property
    def now_ms(self) -> int | None:
        return self.reports[-1] if self.reports else None

    def reported_between(self, start_ms: int, end_ms: int) -> bool:
        """Whether the source reported in [start, end)."""
        at = bisect_left(self.reports, start_ms)
        return at < len(self.reports) and self.reports[at] < end_ms
