"""The short cut is sound: whatever it waves through, every rule would have held, and the memory it
leaves is the one the full judgement leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.consistency.model import Bracket
from tidestaff.consistency.monitor import judge_partition, step
from tidestaff.consistency.quiet import quiet_step

from tests.consistency.watch import Watch, lineage

if TYPE_CHECKING:
    from tidestaff.consistency.model import PartitionObservation, ReplicaReading

_small = st.integers(min_value=-2, max_value=6)


def _calm_watch(version: str) -> Watch:
    watch = Watch(version=version).settle()
    watch.append(10).see(2)
    return watch


@st.composite
def _next_observation(draw: st.DrawFn, watch: Watch) -> PartitionObservation:
    """Something like the last observation: mostly growth, sometimes anything else."""
    watch.now_ms += draw(st.sampled_from([5_000, 5_000, 5_000, 0, 100_000]))
    observation = watch.observation()
    readings = tuple(_moved(draw, reading) for reading in observation.replicas)
    again = draw(st.sampled_from([None, "same", "grown"]))
    leader = next((r for r in readings if r.broker == watch.leader), None)
    if again == "grown" and leader is not None and leader.log_end_offset is not None:
        leader = leader._replace(log_end_offset=leader.log_end_offset + draw(_small))
    changes: dict[str, object] = {
        "replicas": readings,
        "leader_again": leader if again else None,
        "bracket": draw(st.sampled_from([Bracket.COHERENT] * 8 + [Bracket.NONE])),
    }
    rare = draw(st.integers(min_value=0, max_value=30))
    if rare == 0:
        changes["state"] = observation.state._replace(isr=observation.state.isr[:2])
    elif rare == 1:
        changes["live"] = observation.live[:2]
    elif rare == 2:
        changes["deleting"] = True
    elif rare == 3:
        changes["replicas"] = readings[:2]
    elif rare == 4:
        changes["cluster_controller_epoch"] = 9
    return replace(observation, **changes)


def _moved(draw: st.DrawFn, reading: ReplicaReading) -> ReplicaReading:
    grown = draw(st.sampled_from([0, 0, 3, 3, 3, "any"]))

    def by(value: int | None) -> int | None:
        assert value is not None
        return value + (draw(_small) if grown == "any" else int(grown))

    moved = reading._replace(
        high_watermark=by(reading.high_watermark), log_end_offset=by(reading.log_end_offset)
    )
    rare = draw(st.integers(min_value=0, max_value=40))
    if rare == 0:
        return moved._replace(lineage=lineage((0, 0), (1, 5)))
    if rare == 1:
        return moved._replace(log_start_offset=draw(st.integers(0, 25)))
    if rare == 2:
        return moved._replace(log_dir_online=False)
    if rare == 3:
        return moved._replace(broker_epoch=7)
    if rare == 4:
        return moved._replace(log_end_offset=None)
    if rare == 5:
        return moved._replace(leads=True, leader_epoch=draw(st.integers(0, 2)))
    return moved


@settings(max_examples=400, deadline=None)
@given(data=st.data(), version=st.sampled_from(["3.9.1", "0.10.2.2", "2.0.0"]))
def test_what_is_waved_through_would_have_held(data: st.DataObject, version: str) -> None:
    watch = _calm_watch(version)
    for _ in range(3):
        assert watch.memory is not None
        observation = data.draw(_next_observation(watch))
        quiet = quiet_step(watch.memory, observation)
        if quiet is not None:
            memory, verdicts = quiet
            judged_memory, judged = judge_partition(watch.memory, observation)
            assert judged.violated == ()
            assert judged.unknown == verdicts.unknown
            assert memory._replace(calm=None) == judged_memory._replace(calm=None)
            assert judged_memory.calm is not None
        watch.memory, _ = step(watch.memory, observation)


@pytest.mark.parametrize("records", [0, 1, 1_000])
def test_an_ordinary_round_takes_the_short_cut(records: int) -> None:
    watch = _calm_watch("3.9.1")
    watch.append(records)
    watch.now_ms += 5_000
    assert watch.memory is not None
    assert quiet_step(watch.memory, watch.observation()) is not None


def test_a_first_record_of_a_new_epoch_is_judged_in_full_so_that_the_ledger_learns_it() -> None:
    watch = _calm_watch("3.9.1")
    end = watch.logs[1].leo
    watch.change(epoch=1).log(1, epochs=lineage((0, 0), (1, end))).see(3)
    watch.append(2).all_logs(epochs=lineage((0, 0), (1, end))).see(3)
    assert watch.memory is not None
    assert watch.memory.ledger[-1] == (1, end)
    assert not watch.raised
