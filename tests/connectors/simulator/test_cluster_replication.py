"""Worked examples on LEO, HW, the ISR's clock, and recovery after a failure."""

from __future__ import annotations

import pytest
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.replica import Phase
from tidestaff.connectors.simulator.settings import Settings
from tidestaff.connectors.simulator.story import Story, unsettled

BY_HAND = Settings(auto_leader_rebalance_enable=False, unclean_leader_election_enable=False)
EVERY_PROTOCOL = ["0.10.2.2", "1.1.1", "2.0.1", "2.4.1", "2.8.2", "3.9.1", "3.9.1-kraft"]


@pytest.mark.parametrize("preset", [*EVERY_PROTOCOL, "4.1.1-kraft"])
def test_S_22_one_record_takes_two_fetch_rounds(preset: str) -> None:
    cluster = SimulatedCluster(preset, [1, 2], {"t": [[1, 2]]}, BY_HAND)
    story = Story(cluster, "t")
    cluster.advance(1_000)
    story.hold(2)

    def row() -> tuple[int, ...]:
        remote = story.replica(1).followers[2].log_end_offset
        return (*story.ends(1), remote, *story.ends(2))

    assert row() == (0, 0, 0, 0, 0)
    story.write("m0")
    assert row() == (1, 0, 0, 0, 0)
    assert story.request(2)
    assert row() == (1, 0, 0, 0, 0)
    assert story.response(2)
    assert row() == (1, 0, 0, 1, 0)
    assert story.request(2)
    assert row() == (1, 1, 1, 1, 0)
    assert story.response(2)
    assert row() == (1, 1, 1, 1, 1)


def three_with_a_tail(preset: str, assignment: list[int]) -> Story:
    """Leader 0 with LEO 8 and HW 4; follower 1 with LEO 4, follower 2 with LEO 6 and HW 4."""
    cluster = SimulatedCluster(preset, [9, 0, 1, 2], {"t": [assignment]}, BY_HAND)
    story = Story(cluster, "t")
    story.hold(1, 2)
    story.write("m0", "m1", "m2", "m3")
    story.fetch(1, 2)
    story.fetch(1, 2)
    story.fetch(1, 2)
    story.write("m4", "m5")
    story.fetch(2)
    story.write("m6", "m7")
    assert [story.ends(b) for b in (0, 1, 2)] == [(8, 4), (4, 4), (6, 4)]
    return story


@pytest.mark.parametrize("preset", EVERY_PROTOCOL)
def test_S_20_consumers_see_what_the_slowest_member_of_the_isr_has(preset: str) -> None:
    story = three_with_a_tail(preset, [0, 1, 2])
    story.fetch(2, 2)
    assert story.ends(0) == (8, 4), "4..7 are on two replicas and still not visible"
    story.fetch(1, 1)
    assert story.ends(0) == (8, 8)


@pytest.mark.parametrize("preset", EVERY_PROTOCOL)
def test_S_35_a_follower_that_failed_joins_when_it_has_everything_committed(preset: str) -> None:
    story = three_with_a_tail(preset, [0, 1, 2])
    story.kill(2)
    assert story.metadata.state.isr == (0, 1)
    story.write("m8", "m9")
    for _ in range(4):
        story.fetch(1)
    assert (story.ends(0), story.ends(1)) == ((10, 10), (10, 10))
    story.start(2)
    if story.replica(2).phase is Phase.TRUNCATING:
        story.fetch(2)
    # 0.10 cuts to the HW it had stored, and no checkpoint was written since the start.
    assert story.ends(2)[0] == (0 if preset == "0.10.2.2" else 6)
    assert story.metadata.state.isr == (0, 1)
    for _ in range(3):
        story.fetch(2)
    story.cluster.advance(100)
    assert story.metadata.state.isr == (0, 1, 2)
    assert story.log(2) == story.log(0)


@pytest.mark.parametrize("preset", EVERY_PROTOCOL)
@pytest.mark.parametrize(
    ("assignment", "leader", "end"),
    [
        pytest.param([0, 1, 2], 1, 4, id="the-shorter-one-leads"),
        pytest.param([0, 2, 1], 2, 6, id="the-longer-one-leads"),
    ],
)
def test_S_36_what_a_failed_leader_had_alone_is_gone(
    preset: str, assignment: list[int], leader: int, end: int
) -> None:
    story = three_with_a_tail(preset, assignment)
    story.kill(0)
    assert story.metadata.state.leader == leader
    assert set(story.metadata.state.isr) == {1, 2}
    if story.cluster.preset.epoch_written_at_once:
        assert story.epochs(leader)[-1] == (story.metadata.state.leader_epoch, end)
    story.release(1, 2)
    story.start(0)
    story.cluster.advance(5_000)
    assert [story.ends(b) for b in (0, 1, 2)] == [(end, end)] * 3
    assert story.log(0) == " ".join(f"m{n}@0" for n in range(end))
    assert unsettled(story.cluster) == []
    assert story.cluster.truth.losses == [], "nothing of it was committed"


def lagging(preset: str, lag_ms: int) -> tuple[Story, int]:
    """A follower that has just caught up, and when."""
    settings = Settings(replica_lag_time_max_ms=lag_ms, auto_leader_rebalance_enable=False)
    cluster = SimulatedCluster(preset, [1, 2], {"t": [[1, 2]]}, settings)
    story = Story(cluster, "t")
    story.hold(2)
    story.write("m0")
    for _ in range(3):
        story.fetch(2)
    return story, cluster.now_ms


@pytest.mark.parametrize(("preset", "lag_ms"), [("1.1.1", 10_000), ("3.9.1", 30_000)])
def test_S_37a_a_silent_follower_leaves_between_1_and_1_5_times_the_lag(
    preset: str, lag_ms: int
) -> None:
    story, caught_up = lagging(preset, lag_ms)
    story.write("m1")
    story.cluster.advance(caught_up + lag_ms - story.cluster.now_ms)
    assert story.metadata.state.isr == (1, 2)
    story.cluster.advance(lag_ms // 2 + 100)
    assert story.metadata.state.isr == (1,)
    assert story.metadata.state.leader_epoch == 0, "the leader's own shrink does not bump the epoch"
    assert story.metadata.state.partition_epoch == 1


def test_S_37b_fetching_without_ever_reaching_the_end_is_no_better() -> None:
    story, _ = lagging("3.9.1", 30_000)
    story.write(*(f"x{n}" for n in range(100)))
    story.cluster.on("slow_follower", 2, records=1)
    for _ in range(95):
        story.fetch(2)
        story.write("more", "more")
        story.cluster.advance(500)
    assert story.metadata.state.isr == (1,)


def test_S_37c_reaching_the_end_of_the_fetch_before_counts_as_caught_up_then() -> None:
    story, caught_up = lagging("3.9.1", 30_000)
    for second in range(60):
        story.write("a")
        story.fetch(2)
        progress = story.replica(1).followers[2]
        assert story.cluster.now_ms - progress.last_caught_up_ms <= 1_000, second
        story.cluster.advance(1_000)
    assert story.cluster.now_ms - caught_up > 45_000
    assert story.metadata.state.isr == (1, 2), "it is always one fetch behind, never 30 s"


@pytest.mark.parametrize(("preset", "stays"), [("2.0.1", False), ("2.4.1", True), ("3.9.1", True)])
def test_S_37d_at_the_leaders_end_a_silent_follower_stays_from_2_1_on(
    preset: str, stays: bool
) -> None:
    story, _ = lagging(preset, 10_000)
    story.cluster.advance(40_000)
    assert story.metadata.state.isr == ((1, 2) if stays else (1,))


def test_S_37e_it_comes_back_when_it_has_caught_up() -> None:
    story, _ = lagging("3.9.1", 10_000)
    story.write("m1")
    story.cluster.advance(20_000)
    assert (story.metadata.state.isr, story.ends(1)) == ((1,), (2, 2))
    story.release(2)
    story.cluster.advance(2_000)
    assert story.metadata.state.isr == (1, 2)
    assert story.metadata.state.partition_epoch == 2


@pytest.mark.parametrize("preset", ["1.1.1", "3.9.1", "4.1.1-kraft"])
def test_retention_moves_the_log_start_and_a_late_follower_starts_there(preset: str) -> None:
    cluster = SimulatedCluster(preset, [1, 2, 3], {"t": [[1, 2, 3]]}, BY_HAND)
    story = Story(cluster, "t")
    cluster.produce("t", 0, 10)
    cluster.advance(1_000)
    story.kill(3)
    cluster.produce("t", 0, 40)
    cluster.advance(1_000)
    assert cluster.at("delete_records", story.partition, offset=30)
    cluster.produce("t", 0, 1)
    cluster.advance(1_000)
    assert [story.replica(b).log.start for b in (1, 2)] == [30, 30], "it spreads with the fetches"
    assert story.epochs(2)[0][1] == 30, "the first entry follows the log start"
    story.start(3)
    cluster.advance(3_000)
    assert (story.replica(3).log.start, story.ends(3)) == (30, (51, 51))
    assert unsettled(cluster) == []
    assert cluster.truth.losses == []


@pytest.mark.parametrize("preset", ["0.8.2.2", "0.10.2.2"])
def test_before_0_11_no_log_start_comes_from_the_leader(preset: str) -> None:
    """Neither DeleteRecords nor the log start in an answer to a fetch is known: retention is each
    broker's own."""
    cluster = SimulatedCluster(preset, [1, 2, 3], {"t": [[1, 2, 3]]}, BY_HAND)
    story = Story(cluster, "t")
    cluster.produce("t", 0, 50)
    cluster.advance(1_000)
    assert not cluster.at("delete_records", story.partition, offset=30)
    assert cluster.at("retention", story.partition, broker=1, offset=30)
    cluster.produce("t", 0, 1)
    cluster.advance(1_000)
    assert [story.replica(b).log.start for b in (1, 2, 3)] == [30, 0, 0]
    assert [story.ends(b) for b in (1, 2, 3)] == [(51, 51)] * 3


@pytest.mark.parametrize(
    ("preset", "log_start"), [("0.8.2.2", 6), ("0.10.2.2", 6), ("1.1.1", 4), ("3.9.1-kraft", 4)]
)
def test_before_0_11_0_1_retention_does_not_look_at_the_high_watermark(
    preset: str, log_start: int
) -> None:
    story = three_with_a_tail(preset, [0, 1, 2])
    for broker in (0, 2):
        assert story.cluster.at("retention", story.partition, broker=broker, offset=6)
    assert [story.replica(b).log.start for b in (0, 2)] == [log_start] * 2
    assert [story.ends(b) for b in (0, 1, 2)] == [(8, 4), (4, 4), (6, 4)]
    story.release(1, 2)
    story.cluster.advance(2_000)
    assert [story.ends(b) for b in (0, 1, 2)] == [(8, 8)] * 3
    assert story.replica(1).log.start == log_start, "up to 0.10.2 it begins anew there"
    assert story.cluster.truth.losses == []


def test_a_log_that_begins_above_the_high_watermark_is_cut_to_nothing_there() -> None:
    """0.10.2: a follower cuts to its HW, and its log begins there again."""
    story = three_with_a_tail("0.10.2.2", [0, 1, 2])
    assert story.cluster.at("retention", story.partition, broker=2, offset=5)
    assert (story.replica(2).log.start, story.ends(2)) == (5, (6, 4))
    story.kill(0)
    assert story.metadata.state.leader == 1
    assert (story.replica(2).log.start, story.ends(2)) == (4, (4, 4))


def test_memory_does_not_grow_with_the_number_of_records() -> None:
    cluster = SimulatedCluster("3.9.1", [1, 2, 3], {"t": [[1, 2, 3]]}, BY_HAND)
    for _ in range(50):
        cluster.produce("t", 0, 1_000_000)
        cluster.advance(200)
    cluster.change_cluster_settings({"fetch_max_records": 50_000_000})
    cluster.advance(5_000)
    story = Story(cluster, "t")
    assert story.ends(3) == (50_000_000, 50_000_000)
    assert [len(story.replica(b).log.runs) for b in (1, 2, 3)] == [1, 1, 1]
    assert len(cluster.truth.committed(story.partition)) == 1
