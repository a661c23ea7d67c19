"""Rows of one batch and bucket as columns, whatever brought them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tidestaff.connectors.wire import MISSING, Row
from tidestaff.streaming.operator.screen import Moved
from tidestaff.streaming.operator.slots import WIDTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from tidestaff.streaming.operator.slots import Flags, Longs


class Block(NamedTuple):
    """Rows as columns. `whole` gives a row back; only rows that are judged are ever asked for.

    `home` is False for the copies of a cluster's reports that go to every bucket as a clock.
    """

    home: Flags
    version: Longs
    kind: Sequence[str]
    cluster: Sequence[str]
    source: Sequence[str]
    subject: Sequence[str]
    round: Longs
    moved: Moved
    read_at: Longs
    again: Longs
    again_count: Longs
    more: Sequence[Any]
    body: Sequence[bytes]

    @property
    def size(self) -> int:
        return len(self.body)

    def whole(self, at: int) -> Row:
        moved = self.moved
        count = int(moved.replicas[at])
        columns: list[list[int]] = [
            [int(number) for number in column[at][:count]]
            for column in (moved.start, moved.watermark, moved.end, self.read_at)
        ]
        if self.more[at] is not None:
            columns = self.more[at]
        again = [int(number) for number in self.again[at]]
        return Row(
            int(self.version[at]),
            self.kind[at],
            self.cluster[at],
            self.source[at],
            self.subject[at],
            int(moved.at[at]),
            int(moved.previous[at]),
            int(self.round[at]),
            columns[0],
            columns[1],
            columns[2],
            columns[3],
            again[: int(self.again_count[at])],
            self.body[at],
        )


def block_of(rows: Sequence[Row], *, home: bool = True) -> Block:
    """Columns of plain rows, for everything that is not Spark."""
    numbers = [
        _wide([getattr(row, name) for row in rows])
        for name in ("log_start_offsets", "high_watermarks", "log_end_offsets", "read_at_ms")
    ]
    again = _wide([row.leader_again for row in rows])
    moved = Moved(
        at=_longs([row.observed_at_ms for row in rows]),
        previous=_longs([row.previous_at_ms for row in rows]),
        replicas=_longs([len(row.log_end_offsets) for row in rows]),
        start=numbers[0],
        watermark=numbers[1],
        end=numbers[2],
        leader_again_end=again[:, 2].copy(),
    )
    return Block(
        np.full(len(rows), home),
        _longs([row.schema_version for row in rows]),
        [row.kind for row in rows],
        [row.cluster for row in rows],
        [row.source for row in rows],
        [row.subject for row in rows],
        _longs([row.round for row in rows]),
        moved,
        numbers[3],
        again,
        _longs([len(row.leader_again) for row in rows]),
        [_more(row) for row in rows],
        [row.body for row in rows],
    )


def _more(row: Row) -> list[list[int]] | None:
    """All offsets of a row that has more replicas than the columns hold."""
    columns = [row.log_start_offsets, row.high_watermarks, row.log_end_offsets, row.read_at_ms]
    lengths = {len(column) for column in columns}
    return columns if len(lengths) > 1 or max(lengths) > WIDTH else None


def _longs(values: Sequence[int]) -> Longs:
    return np.asarray(values, np.int64)


def _wide(lists: Sequence[Sequence[int]]) -> Longs:
    wide: npt.NDArray[np.int64] = np.full((len(lists), WIDTH), MISSING, np.int64)
    for at, values in enumerate(lists):
        kept = values[:WIDTH]
        wide[at, : len(kept)] = kept
    return wide
