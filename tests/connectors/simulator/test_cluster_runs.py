"""Runs are reproducible, replayable and shrinkable; random histories and what may lose data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tidestaff.connectors.simulator.actions import UnknownActionError
from tidestaff.connectors.simulator.cluster import SimulatedCluster, replay
from tidestaff.connectors.simulator.faults import (
    MAY_LOSE,
    NEVER_LOSE,
    WEIGHTS,
    RandomFaults,
    random_faults,
)
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.settings import QUICK
from tidestaff.connectors.simulator.story import unsettled
from tidestaff.consistency.errors import UnknownVersionError
from tidestaff.consistency.versions import Mode, rules_for

pytestmark = pytest.mark.slow  # hundreds of histories: make test runs them

SAFE_PRESETS = ["2.8.2", "3.9.1", "3.9.1-kraft", "4.1.1-kraft"]
TOPICS = {"a": [[1, 2, 3]], "b": [[2, 3]]}
HISTORIES = 200


def history(
    preset: str, seed: int, kinds: frozenset[str] = NEVER_LOSE, ms: int = 6_000
) -> SimulatedCluster:
    cluster = SimulatedCluster(preset, [1, 2, 3], TOPICS, QUICK, seed)
    random_faults(cluster, seed, kinds, duration_ms=ms)
    return cluster


def fingerprint(cluster: SimulatedCluster) -> str:
    """Everything that is true of the cluster, byte for byte."""
    found: dict[str, Any] = {
        "now": cluster.now_ms,
        "events": cluster.loop.events,
        "actions": cluster.actions,
        "notes": cluster.notes,
        "losses": repr(cluster.truth.losses),
        "divergences": repr(cluster.truth.divergences),
        "registrations": repr(cluster.mode.registrations()),
        "metadata": {str(p): repr(cluster.mode.partition(p)) for p in cluster.mode.partitions()},
    }
    for broker in cluster.sorted_brokers():
        for partition, replica in sorted(broker.replicas.items()):
            found[f"{broker.id} {partition}"] = [
                repr(replica.log.runs),
                repr(replica.epochs.entries),
                replica.high_watermark,
                replica.leader_epoch,
            ]
    return json.dumps(found, sort_keys=True)


def rules(preset: str) -> Any:
    version = preset.removesuffix("-kraft")
    return rules_for(version, Mode.KRAFT if preset.endswith("-kraft") else Mode.ZOOKEEPER)


@pytest.mark.parametrize("preset", ["0.10.2.2", *SAFE_PRESETS])
def test_the_same_seed_gives_the_same_run_and_its_actions_replay_it(preset: str) -> None:
    for seed in range(5):
        one = history(preset, seed, frozenset(WEIGHTS), ms=4_000)
        assert fingerprint(one) == fingerprint(history(preset, seed, frozenset(WEIGHTS), ms=4_000))
        config = json.loads(json.dumps(one.config.as_value()))
        actions = json.loads(json.dumps(one.actions))
        again = replay(config, actions, until_ms=one.now_ms)
        assert json.loads(fingerprint(again)) | {"events": 0} == json.loads(fingerprint(one)) | {
            "events": 0
        }, "a replay has no fault scheduler whose own events would count"


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownVersionError, match="no preset '9"):
        SimulatedCluster("9.9", [1], {})


def test_another_seed_gives_another_run() -> None:
    assert fingerprint(history("3.9.1", 1)) != fingerprint(history("3.9.1", 2))


def test_how_time_is_cut_into_pieces_makes_no_difference() -> None:
    one = SimulatedCluster("3.9.1", [1, 2, 3], TOPICS, QUICK, 7)
    two = SimulatedCluster("3.9.1", [1, 2, 3], TOPICS, QUICK, 7)
    for cluster in (one, two):
        cluster.produce("a", 0, 5)
        cluster.on("crash", 1)
    one.advance(5_000)
    for _ in range(500):
        two.advance(10)
    assert fingerprint(one) == fingerprint(two)


def test_any_part_of_a_list_of_actions_is_a_run() -> None:
    whole = history("3.9.1", 3, frozenset(WEIGHTS))
    for step in (2, 3, 5):
        part = replay(whole.config, whole.actions[::step])
        assert len(part.actions) == len(whole.actions[::step])


def test_an_impossible_action_is_recorded_and_does_nothing() -> None:
    cluster = SimulatedCluster("3.9.1", [1, 2, 3], TOPICS, QUICK)
    before = fingerprint(cluster)
    impossible = [
        {"do": "start", "broker": 1},
        {"do": "crash", "broker": 99},
        {"do": "resume", "broker": 1},
        {"do": "wipe_disk", "broker": 1},
        {"do": "produce", "topic": "no-such-topic", "partition": 0, "records": 1},
        {"do": "reassign", "topic": "a", "partition": 7, "replicas": [1]},
    ]
    for action in impossible:
        assert cluster.apply(action) is False
    assert [action["applied"] for action in cluster.actions] == [False] * len(impossible)
    cluster.actions.clear()
    assert fingerprint(cluster) == before
    with pytest.raises(UnknownActionError, match="unknown action 'explode'"):
        cluster.apply({"do": "explode"})


@pytest.mark.parametrize("preset", SAFE_PRESETS)
def test_protocol_and_process_faults_lose_nothing_on_safe_presets(preset: str) -> None:
    """Crashes, bounces, zombies, pauses, cut links, slow followers, fail-overs, reassignments,
    retention: no committed record is lost, no two members of an ISR differ, and after healing all
    replicas have the same log."""
    for seed in range(HISTORIES):
        cluster = history(preset, seed, ms=3_000 if seed % 20 else 15_000)
        assert (cluster.truth.losses, cluster.truth.divergences) == ([], []), seed
        assert rest(cluster) == [], seed


def rest(cluster: SimulatedCluster) -> list[str]:
    """A change of min.insync.replicas forgets the ELR (4.0+): if nobody led just then, only an
    unclean election brings the partition back. Every other reason to be unsettled counts."""
    forgotten = cluster.preset.elr and any(
        "min_insync_replicas" in action.get("settings", ()) for action in cluster.actions
    )
    reasons = unsettled(cluster)
    return [r for r in reasons if not (forgotten and r.endswith("leaderless"))]


@pytest.mark.parametrize("preset", SAFE_PRESETS)
def test_only_disks_and_unclean_elections_lose_committed_records(preset: str) -> None:
    """With every fault: each loss has a damaged disk of the leader itself, or an election outside
    the ISR, and every history of this kind took such an action."""
    losses = 0
    for seed in range(40):
        cluster = history(preset, seed, frozenset(WEIGHTS), ms=8_000)
        for loss in cluster.truth.losses:
            assert loss.unclean or loss.damaged, (seed, loss)
        verbs = {str(a["do"]) for a in cluster.actions} | {
            name for a in cluster.actions for name in a.get("settings", ())
        }
        if cluster.truth.losses:
            assert verbs & {*MAY_LOSE, "unclean_leader_election_enable"}, seed
        losses += len(cluster.truth.losses)
        assert cluster.truth.divergences == [], seed
        assert rest(cluster) == [], seed
    assert losses > 0, "the faults are strong enough to lose something"


def test_the_high_watermark_protocol_loses_and_diverges_under_the_same_faults() -> None:
    losses = divergences = 0
    for seed in range(HISTORIES // 2):
        cluster = history("0.10.2.2", seed, ms=15_000)
        losses += sum(not (loss.unclean or loss.damaged) for loss in cluster.truth.losses)
        divergences += len(cluster.truth.divergences)
    assert losses > 0
    assert divergences > 0


@pytest.mark.parametrize("preset", SAFE_PRESETS)
def test_sampling_does_not_disturb_the_run(preset: str) -> None:
    plain = history(preset, 11)
    watched = SimulatedCluster(preset, [1, 2, 3], TOPICS, QUICK, 11)
    faults = RandomFaults(watched, 11)
    faults.schedule(6_000)
    end = watched.now_ms + 6_000
    for _ in Sampler(watched, rules(preset), 100, skew=20).run(6_000 - 500):
        pass
    watched.advance(end - watched.now_ms)
    faults.heal()
    assert fingerprint(plain) == fingerprint(watched)
