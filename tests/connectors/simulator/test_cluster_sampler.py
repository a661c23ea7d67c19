"""What the sampler emits of a cluster whose state is known."""

from __future__ import annotations

from typing import Any

import pytest
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.places import Trouble
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.settings import Settings
from tidestaff.connectors.simulator.story import Story
from tidestaff.consistency.model import (
    Bracket,
    ClusterObservation,
    ControllerClaim,
    HealthObservation,
    PartitionObservation,
    ProblemKind,
)

BY_HAND = Settings(auto_leader_rebalance_enable=False)
RULES: Any = "passed through unread"


def settled(preset: str = "3.9.1") -> SimulatedCluster:
    cluster = SimulatedCluster(preset, [9, 1, 2, 3], {"t": [[1, 2, 3]]}, BY_HAND)
    cluster.produce("t", 0, 10)
    cluster.advance(6_000)
    return cluster


def of_partition(observations: list[Any]) -> PartitionObservation:
    [found] = [o for o in observations if isinstance(o, PartitionObservation)]
    return found


def test_a_faithful_sample_says_what_is_true() -> None:
    cluster = settled()
    seen = of_partition(Sampler(cluster, RULES).round())
    metadata = Story(cluster, "t").metadata
    assert (seen.state, seen.assignment) == (metadata.state, metadata.assignment)
    assert (seen.topic_id, seen.state_czxid) == (metadata.topic_id, metadata.czxid)
    assert seen.bracket is Bracket.COHERENT
    assert [r.broker for r in seen.replicas] == [1, 2, 3]
    for reading in seen.replicas:
        assert (reading.log_start_offset, reading.high_watermark, reading.log_end_offset) == (
            0,
            10,
            10,
        )
        assert reading.lineage == ((0, 0),)
        assert (reading.leader_epoch, reading.leads) == (0, reading.broker == 1)
        assert reading.broker_epoch == cluster.brokers[reading.broker].broker_epoch
    assert seen.leader_again == seen.replicas[0]
    assert [r.broker for r in seen.live] == [1, 2, 3]
    assert (seen.controller, seen.cluster_controller_epoch) == (9, 1)
    assert (seen.preferred_imbalance, seen.deleting, seen.authoritative) == (0.0, False, True)
    assert seen.rules == RULES


def test_the_cluster_is_observed_too() -> None:
    cluster = settled()
    [seen] = [o for o in Sampler(cluster, RULES).round() if isinstance(o, ClusterObservation)]
    assert (seen.controller, seen.controller_epoch, seen.controller_epoch_before) == (9, 1, 1)
    assert [r.broker for r in seen.registrations] == [1, 2, 3, 9]
    assert (seen.answering, seen.leading) == ((1, 2, 3, 9), (1,))
    assert seen.claims == (ControllerClaim(9, 1),)


@pytest.mark.parametrize("verb", ["crash", "pause"])
def test_dead_and_paused_brokers_give_no_reading(verb: str) -> None:
    cluster = settled()
    sampler = Sampler(cluster, RULES)
    cluster.on(verb, 3)
    round_ = sampler.round()
    assert [r.broker for r in of_partition(round_).replicas] == [1, 2]
    [silent] = [o for o in round_ if isinstance(o, HealthObservation)]
    assert (silent.problem, silent.broker, silent.since_ms) == (
        ProblemKind.SILENT,
        3,
        cluster.now_ms,
    )
    cluster.advance(30_000)
    cluster.on("resume" if verb == "pause" else "start", 3)
    cluster.advance(1_000)
    [well] = [o for o in sampler.round() if isinstance(o, HealthObservation)]
    assert (well.problem, well.broker) == (ProblemKind.OK, 3)


def test_versions_differ_in_what_can_be_read() -> None:
    old = of_partition(Sampler(settled("0.10.2.2"), RULES).round())
    assert (old.topic_id, old.replicas[0].lineage) == (None, None)
    new = of_partition(Sampler(settled("4.1.1-kraft"), RULES).round())
    assert (new.state_czxid, new.state.controller_epoch, new.cluster_controller_epoch) == (
        None,
    ) * 3
    assert new.controller == 3000
    assert new.topic_id is not None


def test_a_change_between_the_readings_is_told_by_the_bracket() -> None:
    cluster = settled()
    sampler = Sampler(cluster, RULES, skew=50)
    cluster.on("session_expiry", 3)
    assert of_partition(sampler.round()).bracket is Bracket.STRADDLED
    cluster.advance(20_000)
    assert of_partition(sampler.round()).bracket is Bracket.COHERENT
    bare = of_partition(Sampler(cluster, RULES, bracketed=False).round())
    assert (bare.bracket, bare.leader_again) == (Bracket.NONE, None)


def test_a_leader_not_yet_told_is_no_coherent_sample() -> None:
    cluster = settled()
    cluster.apply({"do": "cut", "source": 9, "target": 2})
    Story(cluster, "t").kill(1)
    seen = of_partition(Sampler(cluster, RULES).round())
    assert (seen.state.leader, seen.bracket) == (2, Bracket.STRADDLED)


def test_skewed_readings_keep_log_start_below_hw_below_leo() -> None:
    cluster = settled()
    sampler = Sampler(cluster, RULES, 200, skew=30, seed=5)
    seen = []
    for _ in range(40):
        cluster.produce("t", 0, 7)
        seen += [o for o in sampler.round() if isinstance(o, PartitionObservation)]
    for observation in seen:
        for reading in (*observation.replicas, observation.leader_again):
            assert reading is not None
            assert reading.log_start_offset is not None
            assert reading.high_watermark is not None
            assert reading.log_end_offset is not None
            assert reading.log_start_offset <= reading.high_watermark <= reading.log_end_offset


def test_loss_duplication_and_disorder_come_from_the_seed() -> None:
    def run(seed: int) -> list[Any]:
        sampler = Sampler(
            settled(), RULES, 1_000, loss=0.3, duplication=0.3, reorder=0.3, seed=seed
        )
        return list(sampler.run(60_000))

    once = run(1)
    assert once == run(1)
    assert once != run(2)
    times = [o.observed_at_ms for o in once]
    assert times != sorted(times)
    assert len(set(map(id, once))) < len(once)


def test_each_place_is_late_in_its_own_way() -> None:
    """Broker 2's words arrive 400 ms after they were said, and the records of that time with
    them."""
    cluster = settled()
    sampler = Sampler(cluster, RULES, places={"broker 2": Trouble(delay_ms=400)}, seed=3)
    began = cluster.now_ms
    seen = of_partition(sampler.round())
    assert began < cluster.now_ms <= began + 400
    assert [r.broker for r in seen.replicas] == [1, 2, 3]
    assert seen.bracket is Bracket.COHERENT


def test_a_place_that_does_not_answer_is_missing_alone() -> None:
    cluster = settled()
    sampler = Sampler(cluster, RULES, 100, places={"broker 3": Trouble(loss=0.5)}, seed=3)
    answered = [
        frozenset(r.broker for r in o.replicas)
        for o in sampler.run(4_000)
        if isinstance(o, PartitionObservation)
    ]
    assert {frozenset({1, 2, 3}), frozenset({1, 2})} == set(answered)


def test_late_metadata_is_what_was_true_then() -> None:
    cluster = settled()
    sampler = Sampler(cluster, RULES, places={"metadata": Trouble(delay_ms=3_000)})
    before = Story(cluster, "t").metadata.state
    cluster.on("clean_stop", 1)
    cluster.advance(2_000)
    assert Story(cluster, "t").metadata.state.leader == 2
    late = of_partition(sampler.round())
    assert (late.state, late.bracket) == (before, Bracket.COHERENT)
    assert 1 in {r.broker for r in late.live}
    cluster.advance(3_000)
    assert of_partition(sampler.round()).state == Story(cluster, "t").metadata.state


def test_troubles_of_places_come_from_the_seed() -> None:
    def run(seed: int) -> list[Any]:
        places = {"broker 1": Trouble(300, 0.3), "metadata": Trouble(200)}
        return list(Sampler(settled(), RULES, 500, places=places, seed=seed).run(20_000))

    assert run(1) == run(1)
    assert run(1) != run(2)
