"""Worked examples on truncation: what the high watermark loses and what leader epochs keep."""

from __future__ import annotations

import pytest
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.settings import Settings
from tidestaff.connectors.simulator.story import Story, unsettled

A, B, C = 1, 2, 3
BY_HAND = Settings(auto_leader_rebalance_enable=False, unclean_leader_election_enable=False)
WITH_EPOCHS = ["1.1.1", "2.0.1", "2.4.1", "2.8.2", "3.9.1", "3.9.1-kraft", "4.1.1-kraft"]


def between_the_rounds(preset: str) -> Story:
    """C leads with LEO 2 and HW 2; B and A have both records and have heard of HW 1 only."""
    cluster = SimulatedCluster(preset, [9, A, B, C], {"t": [[C, B, A]]}, BY_HAND)
    story = Story(cluster, "t")
    story.hold(A, B)
    story.write("M0")
    story.fetch(A, B)
    story.fetch(A, B)
    story.fetch(A, B)
    story.write("M1")
    story.fetch(A, B)
    story.request(A)
    story.request(B)
    # Long enough for C to write its checkpoint, too short for the ISR to shrink.
    cluster.advance(6_000)
    assert [story.ends(b) for b in (C, B, A)] == [(2, 2), (2, 1), (2, 1)]
    return story


def the_clean_form(preset: str) -> Story:
    """S-23: C dies, B leads, A is told to follow B, and B dies before A's next fetch."""
    story = between_the_rounds(preset)
    story.kill(C)
    assert (story.metadata.state.leader, story.metadata.state.isr) == (B, (B, A))
    story.kill(B)
    assert (story.metadata.state.leader, story.metadata.state.isr) == (A, (A,))
    return story


def test_S_23_the_high_watermark_protocol_loses_a_record_all_three_had() -> None:
    story = the_clean_form("0.10.2.2")
    assert story.ends(A) == (1, 1)
    [loss] = story.cluster.truth.losses
    assert (loss.offsets, loss.leader, loss.unclean, loss.damaged) == ((1, 2), A, False, False)
    # C comes back ahead of its leader; without unclean election a broker of 0.10 then exits.
    story.start(C)
    story.cluster.advance(2_000)
    assert not story.cluster.brokers[C].up
    assert story.cluster.notes[-1]["reason"].startswith("log truncation is not allowed")


@pytest.mark.parametrize("preset", WITH_EPOCHS)
def test_S_23_leader_epochs_lose_nothing(preset: str) -> None:
    story = the_clean_form(preset)
    assert story.ends(A) == (2, 2), "its HW rises as soon as it is alone"
    story.release(A, B)
    story.start(B)
    story.start(C)
    story.cluster.advance(3_000)
    assert [story.log(b) for b in (A, B, C)] == ["M0@0 M1@0"] * 3
    assert story.cluster.truth.losses == []
    assert unsettled(story.cluster) == []


def test_S_26_then_the_new_leaders_record_stands_where_the_old_one_was() -> None:
    story = the_clean_form("0.10.2.2")
    story.write("X")
    assert story.ends(A) == (2, 2)
    story.start(C)
    story.cluster.advance(3_000)
    assert (story.log(A).split()[1][:1], story.log(C)) == ("X", "M0@0 M1@0")
    assert story.ends(A) == story.ends(C) == (2, 2), "the end state shows nothing"
    [found] = story.cluster.truth.divergences
    assert (found.offsets, found.brokers) == ((1, 2), (A, C))


def a_power_cut(preset: str) -> Story:
    """S-24 and S-28: both go down, A without its unflushed M1; ZooKeeper keeps A in the ISR."""
    settings = Settings(
        auto_leader_rebalance_enable=False,
        unclean_leader_election_enable=False,
        page_cache_flush_ms=20_000,
    )
    cluster = SimulatedCluster(preset, [9, A, B], {"t": [[B, A]]}, settings)
    story = Story(cluster, "t")
    story.write("M0")
    cluster.advance(20_100 - cluster.now_ms)
    story.hold(A)
    story.write("M1")
    story.fetch(A)
    story.request(A)
    assert (story.ends(A), story.ends(B)) == ((2, 1), (2, 2))
    cluster.advance(6_000)
    cluster.on("power_loss", A)
    cluster.on("crash", B)
    story.forget(B)
    story.forget(A)
    assert (story.metadata.state.leader, story.metadata.state.isr) == (-1, (A,))
    story.release(A)
    story.start(A)
    assert (story.metadata.state.leader, story.log(A)) == (A, "M0@0")
    story.write("M2")
    assert story.ends(A) == (2, 2)
    story.start(B)
    cluster.advance(3_000)
    assert set(story.metadata.state.isr) == {A, B}
    return story


def test_S_24_two_replicas_differ_for_ever_under_the_high_watermark_protocol() -> None:
    story = a_power_cut("0.10.2.2")
    assert story.ends(A) == story.ends(B) == (2, 2)
    assert story.log(B) == "M0@0 M1@0"
    assert story.log(A).startswith("M0@0 M2@")
    [found] = story.cluster.truth.divergences
    assert (found.offsets, found.brokers) == ((1, 2), (A, B))


@pytest.mark.parametrize("preset", [p for p in WITH_EPOCHS if "kraft" not in p])
def test_S_28_leader_epochs_cut_the_record_that_the_leader_lost(preset: str) -> None:
    story = a_power_cut(preset)
    assert story.log(A) == story.log(B)
    assert story.epochs(A)[:2] == story.epochs(B)[:2]
    [first, second] = story.epochs(B)
    assert (first, second[1]) == ((0, 0), 1)
    [loss] = story.cluster.truth.losses
    assert (loss.offsets, loss.damaged) == ((1, 2), True)
    assert story.cluster.truth.divergences == []


@pytest.mark.parametrize("preset", ["2.8.2", "3.9.1", "3.9.1-kraft", "4.1.1-kraft"])
def test_what_a_zombie_leader_wrote_is_cut(preset: str) -> None:
    cluster = SimulatedCluster(preset, [9, 1, 2, 3], {"t": [[1, 2, 3]]}, BY_HAND)
    story = Story(cluster, "t")
    story.write("m0")
    cluster.advance(1_000)
    boss = "controller" if cluster.preset.kraft else "zookeeper"
    for other in (boss, "9"):
        cluster.apply({"do": "cut", "source": "1", "target": other})
    for other in ("2", "3"):
        cluster.apply({"do": "cut", "source": "1", "target": other})
    story.forget(1)
    assert story.metadata.state.leader == 2
    assert story.replica(1).leads, "it does not know yet"
    assert story.write("zombie", broker=1)
    assert story.ends(1) == (2, 1), "nobody fetches it, so it is never committed"
    story.write("m1")
    cluster.apply({"do": "heal"})
    cluster.advance(15_000)
    assert not story.replica(1).leads
    assert {story.log(b) for b in (1, 2, 3)} == {f"m0@0 m1@{story.metadata.state.leader_epoch}"}
    assert cluster.truth.losses == []
    assert unsettled(cluster) == []


@pytest.mark.parametrize("preset", ["2.8.2", "3.9.1", "3.9.1-kraft", "4.1.1-kraft"])
@pytest.mark.parametrize("alone", [False, True])
def test_a_wiped_disk_loses_data_only_where_it_was_the_last(preset: str, alone: bool) -> None:
    cluster = SimulatedCluster(preset, [9, 1, 2], {"t": [[1, 2]]}, BY_HAND)
    story = Story(cluster, "t")
    story.write("m0", "m1")
    cluster.advance(1_000)
    if alone:
        story.kill(2)
    story.kill(1)
    assert cluster.on("wipe_disk", 1)
    story.start(1)
    if alone:
        story.start(2)
    cluster.advance(15_000)
    assert unsettled(cluster) == []
    if alone:
        assert story.ends(2) == (0, 0)
        [loss] = cluster.truth.losses
        assert (loss.offsets, loss.leader, loss.damaged) == ((0, 2), 1, True)
    else:
        assert story.log(1) == "m0@0 m1@0"
        assert cluster.truth.losses == []


def test_a_fast_bounce_with_the_log_kept_loses_nothing() -> None:
    cluster = SimulatedCluster("3.9.1", [9, 1, 2], {"t": [[1, 2]]}, BY_HAND)
    story = Story(cluster, "t")
    story.write("m0")
    cluster.advance(1_000)
    assert cluster.on("bounce", 1)
    cluster.advance(3_000)
    assert story.line == "P0 L2 AR[1,2] ISR[2,1] e1", "death and birth in one event"
    assert unsettled(cluster) == []
    assert cluster.truth.losses == []
