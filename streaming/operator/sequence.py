"""Rows in their order: each row of a subject names the one before it, so a gap is seen at once.

A row that follows the last one is taken at once. Anything else may have overtaken another: it waits
until that one comes, or until rows of a time `lateness_ms` later show that it is not to come. What
is not newer than the last row changes nothing. So the sequence does not depend on how rows were
shuffled or cut into batches, as long as none is later than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.connectors.wire import GONE, MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.connectors.wire import Row

MAX_HELD: Final = 256
"""Of one subject, when one row is missing: as many as come within the lateness, were they to come
every 40 ms. It bounds what a source that has gone mad can make us keep."""


class Sequence:
    """The place of one subject in its sequence. `at_ms` is MISSING before the first row; `ended`
    after a row that said the subject is gone: what comes later begins anew."""

    __slots__ = ("at_ms", "ended", "held", "source")

    def __init__(self, source: str = "", at_ms: int = MISSING) -> None:
        self.source, self.at_ms = source, at_ms
        self.ended = False
        self.held: list[Row] = []

    def offer(self, row: Row) -> bool:
        """Take a row in; False if it comes too late to say anything."""
        if row.observed_at_ms <= self.at_ms:
            return False
        if any(_moment(row) == _moment(held) for held in self.held):
            return False
        self.held.append(row)
        self.held.sort(key=_moment)
        return True

    def ready(self, horizon_ms: int) -> Iterator[Row]:
        """The rows whose turn it is; nothing up to `horizon_ms` is still on its way."""
        while True:
            self.held = [row for row in self.held if row.observed_at_ms > self.at_ms]
            row = next((row for row in self.held if self._follows(row)), None)
            if row is None and self.held:
                first = self.held[0]
                if first.observed_at_ms <= horizon_ms or len(self.held) > MAX_HELD:
                    row = first
            if row is None:
                return
            self.at_ms, self.source = row.observed_at_ms, row.source
            self.ended = row.kind == GONE
            yield row

    def _follows(self, row: Row) -> bool:
        if self.at_ms == MISSING or self.ended:
            return row.previous_at_ms == MISSING
        return row.previous_at_ms == self.at_ms and row.source == self.source

    @property
    def newest_ms(self) -> int:
        return self.held[-1].observed_at_ms if self.held else self.at_ms


def _moment(row: Row) -> tuple[int, str]:
    """Two sources may look at the same moment."""
    return row.observed_at_ms, row.source
