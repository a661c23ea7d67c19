"""The epoch cache: both generations, the worked examples of the seeds, and what always holds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency import epochs
from tidestaff.consistency.epochs import EMPTY, EndOffset, assign, end_offset_for
from tidestaff.consistency.errors import ConsistencyError
from tidestaff.consistency.model import EpochEntry, Lineage
from tidestaff.consistency.versions import EpochCacheGeneration, rules_for

FIRST, SECOND = EpochCacheGeneration.FIRST, EpochCacheGeneration.SECOND
OLD, NEW = "2.0.0", "2.0.1"


def lineage(*entries: tuple[int, int]) -> Lineage:
    return tuple(EpochEntry(*entry) for entry in entries)


def assigned(*entries: tuple[int, int], generation: EpochCacheGeneration) -> Lineage:
    cache = EMPTY
    for epoch, start in entries:
        cache = assign(cache, epoch, start, generation=generation)
    return cache


@pytest.mark.parametrize(
    ("generation", "entries", "expected"),
    [
        pytest.param(FIRST, [(1, 0), (2, 0)], [(1, 0), (2, 0)], id="up-to-2.0.0-starts-may-equal"),
        pytest.param(SECOND, [(1, 0), (2, 0)], [(2, 0)], id="2.0.1-drops-an-epoch-without-record"),
        pytest.param(FIRST, [(1, 5), (2, 6), (1, 7)], [(1, 5), (2, 6)], id="old-ignores-old-epoch"),
        pytest.param(SECOND, [(1, 5), (2, 6), (1, 7)], [(1, 7)], id="new-drops-what-conflicts"),
        pytest.param(FIRST, [(2, 6), (3, 5)], [(2, 6)], id="old-ignores-a-lower-start"),
        pytest.param(SECOND, [(2, 6), (3, 5)], [(3, 5)], id="new-takes-a-lower-start"),
        pytest.param(SECOND, [(2, 6), (2, 9)], [(2, 6)], id="an-epoch-keeps-its-first-start"),
        pytest.param(SECOND, [(0, 0), (1, 0), (2, 0)], [(2, 0)], id="S-13-empty-log-one-entry"),
        pytest.param(SECOND, [(29, 2485991681)], [(29, 2485991681)], id="S-31-64-bit-offsets"),
    ],
)
def test_assign(
    generation: EpochCacheGeneration,
    entries: list[tuple[int, int]],
    expected: list[tuple[int, int]],
) -> None:
    assert assigned(*entries, generation=generation) == lineage(*expected)


@pytest.mark.parametrize(
    ("entries", "offset", "expected"),
    [
        pytest.param([(2, 6), (3, 8)], 8, [(2, 6)], id="an-entry-at-the-new-end-goes"),
        pytest.param([(2, 6), (3, 8)], 9, [(2, 6), (3, 8)], id="an-entry-below-the-new-end-stays"),
        pytest.param([(19, 27), (20, 29)], 29, [(19, 27)], id="a-no-op-cut-drops-an-empty-epoch"),
        pytest.param([(2, 6)], -1, [(2, 6)], id="undefined-changes-nothing"),
        pytest.param([(2, 6)], 0, [], id="full-cut-empties"),
    ],
)
def test_truncate_from_end(
    entries: list[tuple[int, int]], offset: int, expected: list[tuple[int, int]]
) -> None:
    assert epochs.truncate_from_end(lineage(*entries), offset) == lineage(*expected)


@pytest.mark.parametrize(
    ("generation", "entries", "offset", "expected"),
    [
        pytest.param(SECOND, [(0, 0), (1, 7)], 5, [(0, 5), (1, 7)], id="first-start-follows-log"),
        pytest.param(SECOND, [(0, 0), (1, 7)], 7, [(1, 7)], id="an-epoch-wholly-deleted-goes"),
        pytest.param(SECOND, [(0, 0), (1, 7)], 9, [(1, 9)], id="the-latest-epoch-stays"),
        pytest.param(SECOND, [(2, 6)], 1, [(2, 6)], id="before-the-first-start-nothing-happens"),
        pytest.param(SECOND, [(2, 6)], -1, [(2, 6)], id="undefined-changes-nothing"),
        pytest.param(FIRST, [(1, 0), (2, 5), (3, 5)], 5, [(2, 5), (3, 5)], id="old-keeps-equals"),
        pytest.param(SECOND, [(1, 0), (2, 5), (3, 5)], 5, [(3, 5)], id="new-keeps-last-of-equals"),
        pytest.param(FIRST, [(2, 6), (3, 8), (4, 11)], 9, [(3, 9), (4, 11)], id="old-moves-start"),
        pytest.param(FIRST, [(2, 6)], 20, [(2, 20)], id="old-keeps-the-latest-epoch"),
    ],
)
def test_truncate_from_start(
    generation: EpochCacheGeneration,
    entries: list[tuple[int, int]],
    offset: int,
    expected: list[tuple[int, int]],
) -> None:
    got = epochs.truncate_from_start(lineage(*entries), offset, generation=generation)
    assert got == lineage(*expected)


S29 = [(0, 0), (1, 100), (2, 150)]


@pytest.mark.parametrize(
    ("version", "entries", "asked", "log_end", "expected"),
    [
        pytest.param(NEW, S29, 2, 170, (2, 170), id="S-29-latest-epoch-ends-at-the-log-end"),
        pytest.param(NEW, S29, 1, 170, (1, 150), id="S-29-older-epoch-ends-at-the-next-start"),
        pytest.param(NEW, S29, 0, 170, (0, 100), id="S-29-not-the-start-of-the-latest-epoch"),
        pytest.param(NEW, S29, 3, 170, (-1, -1), id="S-29-larger-than-any-is-undefined"),
        pytest.param(NEW, S29, -1, 170, (-1, -1), id="S-29-undefined-stays-undefined"),
        pytest.param(NEW, [(0, 0), (2, 100)], 1, 120, (0, 100), id="S-29-gap-largest-not-above"),
        pytest.param(NEW, [(0, 0), (2, 100)], 0, 120, (0, 100), id="S-29-gap-next-is-not-plus-one"),
        pytest.param(NEW, [(0, 0), (1, 100)], 0, 120, (0, 100), id="S-30-end-of-0-is-start-of-1"),
        pytest.param(NEW, [(0, 0), (1, 100)], 1, 120, (1, 120), id="S-30-end-of-1-is-log-end"),
        pytest.param(NEW, [(29, 2485991681)], 28, 0, (28, 2485991681), id="S-31-older-than-first"),
        pytest.param(OLD, [(29, 2485991681)], 28, 0, (-1, -1), id="2.0.0-older-than-first-unknown"),
        pytest.param(OLD, S29, 1, 170, (1, 150), id="2.0.0-answers-with-an-epoch"),
        pytest.param("1.1.1", S29, 1, 170, (-1, 150), id="before-2.0.0-without-an-epoch"),
        pytest.param("1.1.0", [], -1, 73, (-1, 73), id="1.1.0-empty-cache-answers-the-log-end"),
        pytest.param("1.1.1", [], -1, 73, (-1, -1), id="1.1.1-empty-cache-answers-undefined"),
        pytest.param("0.11.0.2", [], -1, 73, (-1, 73), id="0.11.0.2-empty-cache-answers-log-end"),
        pytest.param("1.1.0", [(2, 0)], -1, 73, (-1, -1), id="1.1.0-only-an-empty-cache-does-that"),
    ],
)
def test_end_offset_for(
    version: str,
    entries: list[tuple[int, int]],
    asked: int,
    log_end: int,
    expected: tuple[int, int],
) -> None:
    got = end_offset_for(lineage(*entries), asked, log_end_offset=log_end, rules=rules_for(version))
    assert got == EndOffset(*expected)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(99, 0, id="S-30-offset-99-is-of-epoch-0"),
        pytest.param(100, 1, id="S-30-offset-100-is-of-epoch-1"),
        pytest.param(-1, None, id="before-the-first-entry-the-epoch-is-unknown"),
    ],
)
def test_epoch_for_offset(offset: int, expected: int | None) -> None:
    assert epochs.epoch_for_offset(lineage((0, 0), (1, 100)), offset) == expected


def test_neighbours_of_an_epoch() -> None:
    cache = lineage((2, 10), (4, 15), (10, 20))
    assert epochs.latest_epoch(cache) == 10
    assert epochs.previous_epoch(cache) == 4
    assert epochs.previous_entry(cache, 4) == EpochEntry(2, 10)
    assert epochs.previous_entry(cache, 2) is None
    assert epochs.next_epoch(cache, 4) == 10
    assert epochs.next_epoch(cache, 10) is None
    assert epochs.entry_of(cache, 4) == EpochEntry(4, 15)
    assert epochs.earliest_entry(cache) == EpochEntry(2, 10)
    assert epochs.latest_entry(cache) == EpochEntry(10, 20)
    assert epochs.latest_epoch(EMPTY) is None
    assert epochs.previous_epoch(EMPTY) is None
    assert epochs.earliest_entry(EMPTY) is None
    assert epochs.latest_entry(EMPTY) is None


@pytest.mark.parametrize(
    ("records", "log_start", "expected"),
    [
        pytest.param([0, 0, 1, 3], 0, [(0, 0), (1, 2), (3, 3)], id="an-entry-where-epochs-change"),
        pytest.param([4, 4], 7, [(4, 7)], id="offsets-count-from-the-log-start"),
        pytest.param([1, -1, 2], 0, [(2, 2)], id="an-old-format-record-clears-what-was-known"),
        pytest.param([], 5, [], id="no-record-no-entry"),
    ],
)
def test_lineage_from_epochs(
    records: list[int], log_start: int, expected: list[tuple[int, int]]
) -> None:
    assert epochs.lineage_from_epochs(records, log_start) == lineage(*expected)


@pytest.mark.parametrize(
    ("entries", "start", "end", "expected"),
    [
        pytest.param([(0, 0), (1, 9)], 3, 9, [(0, 3)], id="both-ends-are-trimmed"),
        pytest.param([(0, 0), (1, 5), (2, 5)], 0, 9, [(0, 0), (2, 5)], id="last-of-equal-starts"),
        pytest.param(
            [(0, 0), (7, 20), (1, 5)], 0, 9, [(0, 0), (1, 5)], id="stale-entry-is-dropped"
        ),
        pytest.param([(2, 0)], 0, 0, [], id="S-13-no-record-nothing-to-compare"),
        pytest.param([(2, 6)], 0, 9, [(2, 6)], id="unknown-before-the-first-entry-stays-unknown"),
    ],
)
def test_normalise(
    entries: list[tuple[int, int]], start: int, end: int, expected: list[tuple[int, int]]
) -> None:
    got = epochs.normalise(lineage(*entries), log_start_offset=start, end_offset=end)
    assert got == lineage(*expected)


@pytest.mark.parametrize(
    ("a", "b", "start", "end", "expected"),
    [
        pytest.param([(0, 0)], [(0, 0), (1, 2)], 0, 5, 2, id="first-offset-with-two-epochs"),
        pytest.param([(0, 0)], [(0, 0), (1, 2)], 0, 2, None, id="beyond-the-range-does-not-count"),
        pytest.param([(0, 0)], [(0, 0), (1, 2)], 4, 5, 4, id="starts-inside-the-range"),
        pytest.param([(1, 6)], [(0, 0), (1, 5)], 0, 9, None, id="unknown-offsets-do-not-disagree"),
        pytest.param([], [(0, 0)], 0, 9, None, id="an-empty-lineage-knows-nothing"),
        pytest.param([(0, 0), (1, 1)], [(0, 0), (2, 1)], 0, 2, 1, id="S-28-variant-two-leaders"),
        pytest.param([(0, 0), (1, 5), (2, 5)], [(0, 0), (2, 5)], 0, 9, None, id="equal-starts"),
    ],
)
def test_first_disagreement(
    a: list[tuple[int, int]], b: list[tuple[int, int]], start: int, end: int, expected: int | None
) -> None:
    assert epochs.first_disagreement(lineage(*a), lineage(*b), start=start, end=end) == expected
    assert epochs.first_disagreement(lineage(*b), lineage(*a), start=start, end=end) == expected


small = st.integers(min_value=-1, max_value=12)
operations = st.lists(
    st.tuples(st.sampled_from(["assign", "end", "start"]), small, small), max_size=12
)


def run(ops: list[tuple[str, int, int]], generation: EpochCacheGeneration) -> Lineage:
    cache = EMPTY
    for name, one, two in ops:
        try:
            if name == "assign":
                cache = assign(cache, one, two, generation=generation)
            elif name == "end":
                cache = epochs.truncate_from_end(cache, one)
            else:
                cache = epochs.truncate_from_start(cache, one, generation=generation)
        except ConsistencyError:
            assert name == "assign"
            assert min(one, two) < 0
    return cache


@given(operations)
def test_both_columns_rise_strictly_after_any_operations_from_2_0_1(
    ops: list[tuple[str, int, int]],
) -> None:
    cache = run(ops, SECOND)
    for before, after in itertools.pairwise(cache):
        assert before.epoch < after.epoch
        assert before.start_offset < after.start_offset


@given(operations)
def test_epochs_rise_and_starts_never_fall_up_to_2_0_0(ops: list[tuple[str, int, int]]) -> None:
    cache = run(ops, FIRST)
    for before, after in itertools.pairwise(cache):
        assert before.epoch < after.epoch
        assert before.start_offset <= after.start_offset


@given(operations, small, small)
def test_an_end_offset_is_never_before_the_epochs_own_start(
    ops: list[tuple[str, int, int]], asked: int, beyond: int
) -> None:
    cache = run(ops, SECOND)
    log_end = max((entry.start_offset for entry in cache), default=0) + beyond + 1
    end = end_offset_for(cache, asked, log_end_offset=log_end, rules=rules_for("3.9"))
    own = epochs.entry_of(cache, end.epoch)
    assert end.is_undefined or own is None or own.start_offset <= end.end_offset <= log_end


@given(operations, operations, small, small)
def test_disagreement_is_what_looking_at_every_offset_finds(
    one: list[tuple[str, int, int]], two: list[tuple[str, int, int]], start: int, end: int
) -> None:
    a, b = run(one, FIRST), run(two, SECOND)
    slow = None
    for offset in range(start, end):
        known = epochs.epoch_for_offset(a, offset), epochs.epoch_for_offset(b, offset)
        if None not in known and known[0] != known[1]:
            slow = offset
            break
    assert epochs.first_disagreement(a, b, start=start, end=end) == slow
