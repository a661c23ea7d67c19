"""Rows as columns, and back: whatever a row holds, it comes out as it was."""

from __future__ import annotations

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.connectors.wire import MISSING, Row
from tidestaff.streaming import codec
from tidestaff.streaming.operator.rows import block_of
from tidestaff.streaming.operator.slots import WIDTH

_longs = st.integers(-(2**63), 2**63 - 1)
_lists = st.lists(_longs, max_size=WIDTH + 2)


@st.composite
def _rows(draw: st.DrawFn) -> list[Row]:
    found = []
    for _ in range(draw(st.integers(1, 6))):
        count = draw(st.integers(0, WIDTH + 2))
        usual = st.lists(_longs, min_size=count, max_size=count)
        lists = [draw(st.one_of(usual, _lists)) for _ in range(4)]
        again = draw(st.one_of(st.just([]), st.lists(_longs, min_size=4, max_size=4), _lists))
        names = [draw(st.sampled_from(["a", "b", "ü-0"])) for _ in range(4)]
        numbers = [draw(_longs) for _ in range(3)]
        found.append(
            Row(draw(st.integers(0, 9)), *names, *numbers, *lists, again, draw(st.binary()))
        )  # type: ignore[arg-type]
    return found


@settings(deadline=None)
@given(rows=_rows())
def test_a_row_comes_back_whole(rows: list[Row]) -> None:
    block = block_of(rows)
    assert [block.whole(at) for at in range(block.size)] == rows


@settings(deadline=None)
@given(rows=_rows(), cut=st.integers(0, 6))
def test_what_spark_hands_over_is_the_same_block(rows: list[Row], cut: int) -> None:
    """As `operator_input` packs it: one list of numbers a row, in any number of frames."""
    packed = [
        [0, row.schema_version, row.round, row.observed_at_ms, row.previous_at_ms]
        + [len(getattr(row, name)) for name in codec.LISTS]
        + [number for name in codec.LISTS for number in getattr(row, name)]
        for row in rows
    ]
    frame = pd.DataFrame(
        {
            **{name: [getattr(row, name) for row in rows] for name in codec.TEXTS},
            "numbers": pd.Series([pd.array(each, "int64").to_numpy() for each in packed]),
            "body": [row.body for row in rows],
        }
    )
    frames = [part for part in (frame[:cut], frame[cut:]) if len(part)]
    block = codec.block_of_frames(frames, 0)
    assert block is not None
    assert block.home.all()
    assert [block.whole(at) for at in range(block.size)] == rows


def test_a_list_that_is_too_long_or_too_short_is_odd_and_no_other() -> None:
    def row(ends: int, starts: int = 3, again: int = 4) -> Row:
        lists = ([1] * starts, [1] * ends, [1] * ends, [1] * ends, [1] * again)
        return Row(1, "partition", "c", "s", "t-0", 1, MISSING, 1, *lists, b"")

    odd = block_of([row(3), row(3, again=0), row(3, 2), row(3, again=5), row(6, 6)]).odd
    assert odd.tolist() == [False, False, True, True, True]


def test_no_rows_are_no_block_to_stumble_over() -> None:
    assert block_of([]).size == 0
    assert codec.block_of_frames([], 0) is None
