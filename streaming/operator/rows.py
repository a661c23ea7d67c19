"""Rows of one batch and bucket as columns, whatever brought them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from tidestaff.connectors.wire import MISSING, OLDEST_VERSION, SCHEMA_VERSION, Row
from tidestaff.streaming.operator.screen import Moved
from tidestaff.streaming.operator.slots import WIDTH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.streaming.operator.slots import Flags, Longs


_PER_REPLICA: Final = 4
"""Lists with a number a replica; the leader's second reading, with as many numbers, comes last."""


class Block(NamedTuple):
    """Rows as columns. `whole` gives a row back; only rows that are judged are ever asked for.

    `home` is False for the copies of a cluster's reports that go to every bucket as a clock. Rows
    that are `odd` have more replicas than there is room for, lists that do not fit together, or a
    version that is not known here; none of them is screened, and their lists are kept in `more`.
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
    odd: Flags
    more: Mapping[int, list[list[int]]]
    body: Sequence[bytes]

    @property
    def size(self) -> int:
        return len(self.body)

    def whole(self, at: int) -> Row:
        moved = self.moved
        columns = self.more.get(at)
        if columns is None:
            count, again_count = int(moved.replicas[at]), int(self.again_count[at])
            wide = (moved.start, moved.watermark, moved.end, self.read_at)
            columns = [column[at][:count].tolist() for column in wide]
            columns.append(self.again[at][:again_count].tolist())
        return Row(
            int(self.version[at]),
            self.kind[at],
            self.cluster[at],
            self.source[at],
            self.subject[at],
            int(moved.at[at]),
            int(moved.previous[at]),
            int(self.round[at]),
            *(columns[0], columns[1], columns[2], columns[3], columns[4]),
            self.body[at],
        )


class Lists(NamedTuple):
    """The lists of numbers of every row: those of a row stand one after the other in `flat` from
    `begin` on, with their `lengths`, a column a list."""

    flat: Longs
    begin: Longs
    lengths: Longs

    def wide(self, which: int) -> Longs:
        """One of the lists, as far as there is room for it."""
        begin = self.begin + self.lengths[:, :which].sum(axis=1)
        places = begin[:, None] + np.arange(WIDTH)
        there = np.arange(WIDTH) < self.lengths[:, which, None]
        if not len(self.flat):
            return np.full(there.shape, MISSING, np.int64)
        return np.where(there, self.flat[np.minimum(places, len(self.flat) - 1)], MISSING)

    def odd(self) -> Flags:
        each, again = self.lengths[:, :_PER_REPLICA], self.lengths[:, _PER_REPLICA]
        same = (each == each[:, :1]).all(axis=1) & (each[:, 0] <= WIDTH)
        fits: Flags = same & ((again == 0) | (again == _PER_REPLICA))
        return ~fits

    def of_row(self, at: int) -> list[list[int]]:
        ends = self.begin[at] + np.cumsum(self.lengths[at])
        pairs = zip(ends.tolist(), self.lengths[at].tolist(), strict=True)
        return [self.flat[end - length : end].tolist() for end, length in pairs]


def block_of_columns(
    *,
    home: Flags,
    version: Longs,
    kind: Sequence[str],
    cluster: Sequence[str],
    source: Sequence[str],
    subject: Sequence[str],
    round: Longs,  # noqa: A002 - the column's name
    at: Longs,
    previous: Longs,
    lists: Lists,
    body: Sequence[bytes],
) -> Block:
    again = lists.wide(_PER_REPLICA)
    odd = lists.odd() | (version < OLDEST_VERSION) | (version > SCHEMA_VERSION)
    moved = Moved(
        at=at,
        previous=previous,
        replicas=lists.lengths[:, 2],
        start=lists.wide(0),
        watermark=lists.wide(1),
        end=lists.wide(2),
        leader_again_end=again[:, 2],
    )
    return Block(
        home,
        version,
        kind,
        cluster,
        source,
        subject,
        round,
        moved,
        lists.wide(3),
        again,
        lists.lengths[:, _PER_REPLICA],
        odd,
        {at: lists.of_row(at) for at in np.flatnonzero(odd).tolist()},
        body,
    )


def block_of(rows: Sequence[Row], *, home: bool = True) -> Block:
    """Columns of plain rows, for everything that is not Spark."""
    lists = [
        (r.log_start_offsets, r.high_watermarks, r.log_end_offsets, r.read_at_ms, r.leader_again)
        for r in rows
    ]
    lengths = _longs([[len(each) for each in row] for row in lists]).reshape(
        len(rows), _PER_REPLICA + 1
    )
    sizes = lengths.sum(axis=1)
    return block_of_columns(
        home=np.full(len(rows), home),
        version=_longs([row.schema_version for row in rows]),
        kind=[row.kind for row in rows],
        cluster=[row.cluster for row in rows],
        source=[row.source for row in rows],
        subject=[row.subject for row in rows],
        round=_longs([row.round for row in rows]),
        at=_longs([row.observed_at_ms for row in rows]),
        previous=_longs([row.previous_at_ms for row in rows]),
        lists=Lists(
            _longs([number for row in lists for each in row for number in each]),
            np.cumsum(sizes) - sizes,
            lengths,
        ),
        body=[row.body for row in rows],
    )


def _longs(values: Any) -> Longs:
    return np.asarray(values, np.int64)
