"""What is not worked out anew while nothing changes must be what working it out would give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.faults import WEIGHTS, RandomFaults
from tidestaff.connectors.simulator.presets import PRESETS
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.settings import QUICK
from tidestaff.connectors.simulator.story import Story

TOPICS = {"a": [[1, 2, 3], [2, 3, 1]], "b": [[2, 3]]}


def history(preset: str, seed: int) -> list[Any]:
    """All that a run shows and leaves behind, with messages lost on the way."""
    cluster = SimulatedCluster(preset, [1, 2, 3], TOPICS, replace(QUICK, loss=0.02), seed)
    RandomFaults(cluster, seed, frozenset(WEIGHTS), every_ms=(100, 1_000)).schedule(8_000)
    seen: list[Any] = list(Sampler(cluster, None, 400, skew=20, seed=seed).run(8_000))
    told = [(r.partition, r) for b in cluster.sorted_brokers() for r in b.replicas.values()]
    kept = [
        (p, r.broker, r.log.runs, r.epochs.entries, r.phase, r.not_before_ms, r.followers)
        for p, r in sorted(told, key=lambda each: each[0])
    ]
    return [*seen, cluster.actions, cluster.notes, cluster.loop.events, kept, cluster.truth.losses]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_history_is_the_same_as_one_in_which_every_exchange_is_worked_out(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = range(1, 4)
    quick = [history(preset, seed) for seed in seeds]
    monkeypatch.setattr(SimulatedCluster, "changes", None)
    for seed, found in zip(seeds, quick, strict=True):
        assert repr(found) == repr(history(preset, seed)), seed


def test_exchanges_of_a_quiet_cluster_are_not_worked_out_anew() -> None:
    cluster = SimulatedCluster("3.9.1", [1, 2, 3], TOPICS)
    cluster.advance(5_000)
    story = Story(cluster, "a")
    progress = story.replica(1).followers[2]
    answered = progress.answered
    assert answered is not None
    before_ms = progress.last_caught_up_ms
    progress.answered = None
    cluster.advance(5_000)
    assert progress.answered is None, "nobody asked for it"
    assert progress.last_caught_up_ms >= before_ms + 4_000, "but its time goes on"
    cluster.produce("b", 0)
    cluster.advance(2_000)
    assert progress.answered == answered
