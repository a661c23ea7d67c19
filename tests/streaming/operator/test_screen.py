"""The screen is sound: whatever it passes over, `step` would have held, with the same memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.connectors.wire import row_of
from tidestaff.consistency.monitor import judge_partition, step
from tidestaff.streaming.operator.rows import block_of
from tidestaff.streaming.operator.screen import quiet, take_over
from tidestaff.streaming.operator.slots import Slots, can_be_screened

from tests.consistency.watch import Watch

if TYPE_CHECKING:
    from tidestaff.consistency.memory import PartitionMemory
    from tidestaff.consistency.model import PartitionObservation, ReplicaReading

_small = st.integers(min_value=-2, max_value=6)


def _settled(version: str, *, lineages: bool) -> tuple[Watch, PartitionObservation]:
    watch = Watch(version=version).settle()
    watch.append(10).see(2)
    observation = watch.observation()
    if not lineages:
        bare = tuple(r._replace(lineage=None) for r in observation.replicas)
        observation = replace(observation, replicas=bare, leader_again=None)
        for more in (5_000, 10_000):
            later = replace(observation, observed_at_ms=observation.observed_at_ms + more)
            watch.memory, _ = step(watch.memory, later)
        observation = later
    return watch, observation


def _moved(draw: st.DrawFn, reading: ReplicaReading) -> ReplicaReading:
    grown = draw(st.sampled_from([0, 0, 3, 3, 3, 3, "any"]))

    def by(value: int | None) -> int | None:
        assert value is not None
        return value + (draw(_small) if grown == "any" else int(grown))

    moved = reading._replace(
        high_watermark=by(reading.high_watermark), log_end_offset=by(reading.log_end_offset)
    )
    rare = draw(st.integers(min_value=0, max_value=30))
    if rare == 0:
        return moved._replace(log_start_offset=draw(st.integers(-1, 25)))
    if rare == 1:
        return moved._replace(log_end_offset=None)
    if rare == 2:
        return moved._replace(high_watermark=None)
    if rare == 3:
        return moved._replace(log_start_offset=None)
    return moved


@st.composite
def _next(draw: st.DrawFn, last: PartitionObservation) -> PartitionObservation:
    readings = tuple(_moved(draw, reading) for reading in last.replicas)
    later = draw(st.sampled_from([5_000, 5_000, 5_000, 31_000, 100_000, 0, -1]))
    again = last.leader_again
    if again is not None:
        assert again.lineage == last.replicas[0].lineage
        leader = next(r for r in readings if r.broker == last.state.leader)
        more = draw(st.sampled_from([0, 0, 3, -1]))
        end = leader.log_end_offset
        again = leader._replace(log_end_offset=None if end is None else end + more)
    return replace(
        last,
        observed_at_ms=last.observed_at_ms + later,
        replicas=readings,
        leader_again=again,
        round=last.round + 1,
    )


@settings(max_examples=500, deadline=None)
@given(data=st.data(), version=st.sampled_from(["3.9.1", "2.0.0"]), lineages=st.booleans())
def test_what_the_screen_passes_over_would_have_held(
    data: st.DataObject, version: str, lineages: bool
) -> None:
    watch, last = _settled(version, lineages=lineages)
    if data.draw(st.booleans()):
        leader = next(r for r in last.replicas if r.broker == last.state.leader)
        later = last.observed_at_ms + 5_000
        last = replace(last, leader_again=leader, observed_at_ms=later)
        watch.memory, _ = step(watch.memory, last)
    memory: PartitionMemory | None = watch.memory
    assert memory is not None
    slots = Slots()
    slot = np.array([slots.add()])
    for _ in range(4):
        if memory.calm is None or not can_be_screened(memory, last):
            return
        slots.arm(0, memory, has_lineage=bool(last.replicas[0].lineage))
        observation = data.draw(_next(last))
        row = row_of(observation, last.observed_at_ms)
        assert row.body == row_of(last).body
        moved = block_of([row]).moved
        if not quiet(slots.numbers, slot, moved)[0]:
            return
        take_over(slots.numbers, slot, moved)
        judged_memory, judged = judge_partition(memory, observation)
        assert judged.violated == ()
        assert judged.unknown == memory.calm.unknown
        after, verdicts = step(memory, observation)
        assert slots.memory(0, memory) == after
        assert after._replace(calm=None) == judged_memory._replace(calm=None)
        assert verdicts is memory.calm
        memory, last = after, observation


def test_an_ordinary_round_passes() -> None:
    watch, last = _settled("3.9.1", lineages=True)
    assert watch.memory is not None
    slots = Slots()
    slots.arm(slots.add(), watch.memory, has_lineage=True)
    grown = tuple(
        r._replace(log_end_offset=r.log_end_offset + 7, high_watermark=r.high_watermark + 7)  # type: ignore[operator]
        for r in last.replicas
    )
    later = replace(
        last, observed_at_ms=last.observed_at_ms + 5_000, replicas=grown, leader_again=grown[0]
    )
    row = row_of(later, watch.memory.observed_at_ms)
    assert quiet(slots.numbers, np.array([0]), block_of([row]).moved).tolist() == [True]


def test_a_row_that_does_not_follow_the_last_one_is_never_passed_over() -> None:
    watch, last = _settled("3.9.1", lineages=True)
    assert watch.memory is not None
    slots = Slots()
    slots.arm(slots.add(), watch.memory, has_lineage=True)
    later = replace(last, observed_at_ms=last.observed_at_ms + 10_000)
    for previous in (None, last.observed_at_ms + 5_000):
        row = row_of(later, previous)
        assert not quiet(slots.numbers, np.array([0]), block_of([row]).moved)[0]
