"""The simulator's own ledger: what is committed, and what counts as lost, once or again."""

from __future__ import annotations

from typing import Any

import pytest
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.settings import QUICK
from tidestaff.connectors.simulator.story import Story
from tidestaff.consistency.model import TopicPartition

from tests.proof.histories import live_again
from tests.proof.ledger import judge
from tests.proof.search import plan_of

A, B, C = 1, 2, 3
UNCLEANLY = {"unclean_leader_election_enable": True}


def lost_while_its_heir_is_asleep(preset: str) -> Story:
    """A sleeps with the record and is elected in its sleep; B, elected after it, has lost it with
    the power, and C has cut it off. Then B dies, so that nobody is in office."""
    cluster = SimulatedCluster(preset, [A, B, C], {"t": [[C, A, B]]}, QUICK)
    story = Story(cluster, "t")
    story.write("M0")
    cluster.advance(1_000)
    assert [story.ends(b) for b in (A, B, C)] == [(1, 1)] * 3
    cluster.on("pause", A)
    cluster.on("session_expiry", C)
    cluster.advance(50)
    assert story.metadata.state.leader == A
    cluster.on("power_loss", B)
    cluster.on("start", B)
    cluster.advance(cluster.settings.session_ms)
    assert story.metadata.state.leader == B
    assert [story.ends(b) for b in (A, B, C)] == [(1, 1), (0, 0), (0, 0)]
    cluster.on("crash", B)
    return story


@pytest.mark.parametrize("preset", ["3.9.1-kraft", "4.1.1-kraft"])
def test_what_is_lost_is_not_committed_again_by_a_leader_that_was_deposed_in_its_sleep(
    preset: str,
) -> None:
    """KRaft's metadata is a log: who wakes up goes through every epoch, also the one it led in."""
    story = lost_while_its_heir_is_asleep(preset)
    cluster, led = story.cluster, []
    [loss] = cluster.truth.losses
    assert (loss.offsets, loss.leader) == ((0, 1), B)
    cluster.after_event = lambda _: led.append(story.replica(A).leads)
    cluster.on("resume", A)
    cluster.advance(cluster.settings.session_ms + story.reaction_ms)
    assert any(led), "it led for a moment, in an epoch that is over"
    assert story.metadata.state.leader == C
    assert cluster.truth.losses == [loss]


def test_a_leader_writes_the_epoch_of_the_controller_that_made_it_the_leader() -> None:
    """Seed 36013 of the search, 0.10.2.2: a controller that had been replaced in its sleep told
    broker 3, which its successor could not reach, what that one had written."""
    cut = {"do": "cut", "source": "1", "target": "3", "one_way": False}
    actions: list[dict[str, Any]] = [
        {"at_ms": 21_398, "do": "crash", "broker": 1},
        {"at_ms": 22_572, "do": "crash", "broker": 3},
        {"at_ms": 24_625, "do": "pause", "broker": 2},
        {"at_ms": 27_435, "do": "start", "broker": 1},
        {"at_ms": 29_229, "do": "start", "broker": 3},
        {"at_ms": 29_577, "do": "crash", "broker": 3},
        {"at_ms": 29_796, **cut},
        {"at_ms": 30_123, "do": "unclean_election", "topic": "b", "partition": 0},
        {"at_ms": 30_560, "do": "start", "broker": 3},
        {"at_ms": 31_409, "do": "resume", "broker": 2},
    ]
    watched = live_again(plan_of("all faults", "0.10.2.2", 36_013, 200), actions, 32_300)
    metadata = watched.cluster.mode.partition(TopicPartition("b", 0))
    assert metadata is not None
    state = metadata.state
    assert (state.leader, state.isr) == (3, (3, 2)), "the ISR was changed by its leader"
    assert state.controller_epoch == watched.cluster.mode.controller_epoch()
    assert judge(watched).disagreements == 0


def test_replacing_a_reassignment_deletes_the_last_replica_in_sync_and_leaves_it_in_the_isr() -> (
    None
):
    """In ZooKeeper mode what was being added goes at once; the last ISR member stays by name."""
    cluster = SimulatedCluster("3.9.1", [A, B, C], {"t": [[B]]}, QUICK)
    story = Story(cluster, "t")
    story.write("M0")
    cluster.apply({"do": "pause", "broker": C})
    cluster.apply({"do": "reassign", "topic": "t", "partition": 0, "replicas": [A, C]})
    cluster.advance(1_000)
    assert set(story.metadata.state.isr) == {A, B}
    cluster.on("crash", B)
    cluster.advance(2 * cluster.settings.session_ms)
    assert story.metadata.state.isr == (A,)
    assert cluster.truth.stranded == []
    cluster.apply({"do": "reassign", "topic": "t", "partition": 0, "replicas": [C]})
    cluster.advance(1_000)
    [stranded] = cluster.truth.stranded
    assert stranded.broker == A
    assert story.metadata.state.isr == (A,)
    assert A not in story.metadata.assignment.replicas


def test_a_divergence_that_lasts_is_entered_once_though_logs_are_cut_above_it() -> None:
    """0.10.2.2, seed 1006 of the search, its fewest actions: a new leader makes 3 cut its end."""
    at = {"topic": "b", "partition": 0}
    actions: list[dict[str, Any]] = [
        {"at_ms": 40_664, "do": "produce", **at, "records": 9},
        {"at_ms": 41_385, "do": "power_loss", "broker": 3},
        {"at_ms": 41_596, "do": "crash", "broker": 2},
        {"at_ms": 48_418, "do": "start", "broker": 3},
        {"at_ms": 49_706, "do": "power_loss", "broker": 1},
        {"at_ms": 51_171, "do": "produce", **at, "records": 11},
        {"at_ms": 51_421, "do": "start", "broker": 2},
        {"at_ms": 52_615, "do": "cut", "source": "2", "target": "3", "one_way": False},
        {"at_ms": 54_198, "do": "produce", **at, "records": 6},
        {"at_ms": 54_275, "do": "bounce", "broker": 3},
        {"at_ms": 56_382, "do": "preferred_election", **at},
    ]
    plan = plan_of("every step", "0.10.2.2", 1006, 200)
    watched = live_again(plan, actions, 75_642)
    [found] = watched.cluster.truth.divergences
    assert found.brokers == (2, 3)
    assert judge(watched).disagreements == 0


def test_what_a_deposed_leader_commits_beside_what_it_lost_is_lost_too() -> None:
    """0.10.2.2, seed 1118 of the search, its fewest actions: 2 goes on where it fell asleep, hears
    of the epoch it was alone in, and commits the rest of what it wrote there."""
    at = {"topic": "a", "partition": 0}
    actions: list[dict[str, Any]] = [
        {"at_ms": 38_683, "do": "pause", "broker": 1},
        {"at_ms": 39_957, "do": "produce", **at, "records": 7},
        {"at_ms": 40_249, "do": "hold_fetches", "broker": 3},
        {"at_ms": 40_531, "do": "produce", **at, "records": 16},
        {"at_ms": 40_839, "do": "pause", "broker": 2},
        {"at_ms": 41_044, "do": "session_expiry", "broker": 3},
        {"at_ms": 41_558, "do": "resume", "broker": 1},
        {"at_ms": 50_389, "do": "unclean_election", **at},
        {"at_ms": 50_710, "do": "resume", "broker": 2},
    ]
    plan = plan_of("every step", "0.10.2.2", 1118, 200)
    watched = live_again(plan, actions, 50_720)
    assert [loss.offsets for loss in watched.cluster.truth.losses] == [(0, 7), (7, 23)]
    assert judge(watched).disagreements == 0


def test_what_two_leaders_commit_while_nobody_is_in_office_is_lost_when_one_of_them_takes_it() -> (
    None
):
    """2.4.1, seed 91025 of the search, its fewest actions: 2 and 1 write on at the same offsets,
    each cut off or asleep when it is replaced. 1 is elected again, and has kept all of its own."""
    at = {"topic": "b", "partition": 0}
    actions: list[dict[str, Any]] = [
        {"at_ms": 30_650, "do": "reassign", **at, "replicas": [1, 2]},
        {"at_ms": 36_196, "do": "change_settings", "topic": "b", "settings": UNCLEANLY},
        {"at_ms": 46_057, "do": "clean_stop", "broker": 1},
        {"at_ms": 46_649, "do": "cut", "source": "2", "target": "zookeeper", "one_way": False},
        {"at_ms": 46_940, "do": "start", "broker": 1},
        {"at_ms": 47_208, "do": "pause", "broker": 1},
        {"at_ms": 51_330, "do": "produce", **at, "records": 14},
        {"at_ms": 51_484, "do": "cut", "source": "3", "target": "zookeeper", "one_way": False},
        {"at_ms": 51_712, "do": "resume", "broker": 1},
        {"at_ms": 52_063, "do": "produce", **at, "records": 14},
    ]
    watched = live_again(plan_of("every step", "2.4.1", 91_025, 200), actions, 53_500)
    [loss] = watched.cluster.truth.losses
    assert (loss.offsets, loss.leader, loss.unclean) == ((0, 14), 1, True)
    [run] = loss.records
    kept = watched.cluster.truth.committed(TopicPartition("b", 0))[0]
    assert (run.epoch, kept.epoch) == (5, 6), "what 2 had written is lost, not what 1 has"
    found = judge(watched)
    assert (found.exact["loss"], found.disagreements) == (1, 0)
