"""What a source has forgotten, journal and all, does not stay open for ever."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.broker_health import HealthBook, Problem
from tidestaff.connectors.linking import Linker
from tidestaff.connectors.wire import Row, observation_of
from tidestaff.consistency.model import ProblemKind
from tidestaff.streaming.operator import saving
from tidestaff.streaming.operator.bucket import Bucket, Limits
from tidestaff.streaming.operator.rows import block_of
from tidestaff.streaming.operator.saving import Keeper, restore
from tidestaff.streaming.operator.silence import REMEMBER_SOURCE_MS

from tests.streaming.operator.histories import canonical, rows_of, through_a_bucket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidestaff.consistency.model import Observation
    from tidestaff.streaming.operator.events import Event

SHORT = Limits(lateness_ms=2_000, silence_ms=5_000)
SILENT = Problem("broker 3", ProblemKind.SILENT, "no answer", "look", 3, "orders")


def _rounds(lasting_ms: int) -> list[tuple[int, list[Observation]]]:
    seen: dict[int, list[Observation]] = {}
    for row in rows_of("3.9.1", 5, faults=False, lasting_ms=lasting_ms):
        seen.setdefault(row.observed_at_ms, []).append(observation_of(row))
    return sorted(seen.items())


def _told(found: Iterable[Event]) -> list[tuple[str, str, int]]:
    return [(each["event"], each["code"], each["at_ms"]) for each in found]


def _rows(*, lost_at_ms: int, back_at_ms: int = 10**9, repeats: bool = False) -> list[Row]:
    """Broker 3 is silent until the journal is lost, and again much later."""
    rows: list[Row] = []
    book, linker = HealthBook("simulated", "simulator", 1), Linker()
    for at_ms, seen in _rounds(30_000):
        if at_ms == lost_at_ms:
            book, linker = HealthBook("simulated", "simulator", 1), Linker()
        bad = repeats or at_ms < lost_at_ms or at_ms >= back_at_ms
        told = book.close_round([SILENT] if bad else [], at_ms, 1)
        rows += linker.link([*seen, *told])
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_a_problem_that_a_new_journal_does_not_know_ends_when_it_is_not_repeated(
    seed: int,
) -> None:
    times = [at_ms for at_ms, _ in _rounds(30_000)]
    lost_ms = times[10]
    _, found, _ = through_a_bucket(_rows(lost_at_ms=lost_ms), seed, SHORT)
    assert _told(found) == [
        ("raised", "SRC001", times[0]),
        ("cleared", "SRC001", times[9] + SHORT.silence_ms),
    ]
    raised, cleared = ({k: each[k] for k in ("place", "broker", "topic")} for each in found)
    assert raised == cleared, "the same alert"


def test_it_ends_and_begins_again_in_any_batches() -> None:
    times = [at_ms for at_ms, _ in _rounds(30_000)]
    rows = _rows(lost_at_ms=times[10], back_at_ms=times[40])
    at_once = Bucket(SHORT).process(block_of(rows)).findings
    assert [event for event, _, _ in _told(at_once)] == ["raised", "cleared", "raised"]
    for seed in range(3):
        assert canonical(through_a_bucket(rows, seed, SHORT)[1]) == canonical(at_once)


def test_a_problem_that_is_repeated_stays() -> None:
    rows = _rows(lost_at_ms=-1, repeats=True)
    found = Bucket(SHORT).process(block_of(rows)).findings
    assert [event for event, _, _ in _told(found)] == ["raised"]


def test_a_partition_left_out_for_a_day_is_gone() -> None:
    rows = rows_of("3.9.1", 5, faults=False, lasting_ms=30_000)
    left = [r for r in rows if r.subject != "b-0" or r.observed_at_ms <= 5_000]
    bucket = Bucket(SHORT)
    found = bucket.process(block_of(left)).findings
    assert [event for event, _, _ in _told(found)] == ["raised"]
    last = [r for r in left if r.subject != "b-0"][-4:]
    late_ms = REMEMBER_SOURCE_MS + 2 * SHORT.lateness_ms
    moved = [
        r._replace(observed_at_ms=r.observed_at_ms + late_ms, previous_at_ms=r.observed_at_ms)
        for r in last
    ]
    found = bucket.process(block_of(moved)).findings
    assert ("cleared", "SRC006") in [(event, code) for event, code, _ in _told(found)]
    assert ("simulated", "b-0") not in bucket.partitions


def test_state_from_before_sources_were_told_apart_is_read() -> None:
    bucket = Bucket(SHORT)
    bucket.process(block_of(_rows(lost_at_ms=-1, repeats=True)))
    saved = Keeper(bucket).save()
    rest: dict[str, Any] = json.loads(saving._unpacked(saved.rest))
    del rest["voices"]
    rest["subjects"] = [each[:8] for each in rest["subjects"]]
    older = saved._replace(rest=saving._packed(saving._json(rest)))
    again = restore(older, SHORT).bucket
    assert again.subjects.keys() == bucket.subjects.keys()
    assert restore(saved, SHORT).bucket.voices.keys() == {("simulated", "simulator")}
