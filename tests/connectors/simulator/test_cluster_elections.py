"""Worked examples on assignments, elections and controllers, state by state."""

from __future__ import annotations

import pytest
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.settings import QUICK, Settings
from tidestaff.connectors.simulator.story import Story
from tidestaff.consistency.model import RecoveryState

SECOND_TOPIC = {"secondTopic": [[1, 0, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0]]}
BY_HAND = Settings(auto_leader_rebalance_enable=False)


def second_topic(controller: int = 2) -> SimulatedCluster:
    brokers = [controller, *(b for b in (0, 1, 2) if b != controller)]
    return SimulatedCluster("3.9.1", brokers, SECOND_TOPIC, BY_HAND)


def lines(cluster: SimulatedCluster) -> list[str]:
    return [Story(cluster, "secondTopic", number).line for number in range(4)]


def versions(cluster: SimulatedCluster) -> list[int]:
    found = [Story(cluster, "secondTopic", number).metadata for number in range(4)]
    return [metadata.state.partition_epoch for metadata in found]


def stop(cluster: SimulatedCluster, broker: int) -> None:
    assert cluster.on("clean_stop", broker)
    cluster.advance(2_000)
    assert not cluster.brokers[broker].up


def start(cluster: SimulatedCluster, broker: int) -> None:
    assert cluster.on("start", broker)
    cluster.advance(3_000)


def prefer(cluster: SimulatedCluster, partition: int) -> None:
    cluster.apply({"do": "preferred_election", "topic": "secondTopic", "partition": partition})
    cluster.advance(200)


@pytest.mark.parametrize("controller", [0, 1, 2])
def test_S_08_to_S_13_broker_0_stops_returns_and_leads_again(controller: int) -> None:
    cluster = second_topic(controller)
    one = Story(cluster, "secondTopic", 1)
    assert lines(cluster) == [
        "P0 L1 AR[1,0,2] ISR[1,0,2] e0",
        "P1 L0 AR[0,2,1] ISR[0,2,1] e0",
        "P2 L2 AR[2,1,0] ISR[2,1,0] e0",
        "P3 L1 AR[1,2,0] ISR[1,2,0] e0",
    ]
    assert versions(cluster) == [0, 0, 0, 0]
    assert [one.epochs(b) for b in (0, 1, 2)] == [((0, 0),), (), ()]

    stop(cluster, 0)
    assert lines(cluster) == [
        "P0 L1 AR[1,0,2] ISR[1,2] e1",
        "P1 L2 AR[0,2,1] ISR[2,1] e1",
        "P2 L2 AR[2,1,0] ISR[2,1] e1",
        "P3 L1 AR[1,2,0] ISR[1,2] e1",
    ]
    assert versions(cluster) == [1, 1, 1, 1]

    start(cluster, 0)
    assert lines(cluster) == [
        "P0 L1 AR[1,0,2] ISR[1,2,0] e1",
        "P1 L2 AR[0,2,1] ISR[2,1,0] e1",
        "P2 L2 AR[2,1,0] ISR[2,1,0] e1",
        "P3 L1 AR[1,2,0] ISR[1,2,0] e1",
    ]
    assert versions(cluster) == [2, 2, 2, 2]
    assert (one.epochs(0), one.epochs(2)) == ((), ((1, 0),))

    prefer(cluster, 1)
    assert lines(cluster)[1] == "P1 L0 AR[0,2,1] ISR[2,1,0] e2"
    assert versions(cluster) == [2, 3, 2, 2]
    prefer(cluster, 1)
    assert versions(cluster) == [2, 3, 2, 2], "already elected: nothing changes"
    assert [one.epochs(b) for b in (0, 1, 2)] == [((2, 0),), (), ((1, 0),)]


def test_S_14_to_S_17_broker_2_stops_twice() -> None:
    cluster = second_topic(controller=0)
    stop(cluster, 2)
    start(cluster, 2)
    prefer(cluster, 2)
    assert lines(cluster) == [
        "P0 L1 AR[1,0,2] ISR[1,0,2] e1",
        "P1 L0 AR[0,2,1] ISR[0,1,2] e1",
        "P2 L2 AR[2,1,0] ISR[1,0,2] e2",
        "P3 L1 AR[1,2,0] ISR[1,0,2] e1",
    ]
    stop(cluster, 2)
    assert lines(cluster) == [
        "P0 L1 AR[1,0,2] ISR[1,0] e2",
        "P1 L0 AR[0,2,1] ISR[0,1] e2",
        "P2 L1 AR[2,1,0] ISR[1,0] e3",
        "P3 L1 AR[1,2,0] ISR[1,0] e2",
    ]
    assert versions(cluster)[0] == 3
    start(cluster, 2)
    assert lines(cluster) == [
        "P0 L1 AR[1,0,2] ISR[1,0,2] e2",
        "P1 L0 AR[0,2,1] ISR[0,1,2] e2",
        "P2 L1 AR[2,1,0] ISR[1,0,2] e3",
        "P3 L1 AR[1,2,0] ISR[1,0,2] e2",
    ]
    prefer(cluster, 2)
    assert lines(cluster)[2] == "P2 L2 AR[2,1,0] ISR[1,0,2] e4"
    assert [line[-2:] for line in lines(cluster)] == ["e2", "e2", "e4", "e2"]


def test_S_19_the_rebalance_moves_leadership_back_by_itself() -> None:
    settings = Settings(leader_imbalance_check_interval_ms=10_000)
    cluster = SimulatedCluster("3.9.1", [2, 0, 1], SECOND_TOPIC, settings)
    stop(cluster, 0)
    cluster.advance(20_000)
    assert lines(cluster)[1] == "P1 L2 AR[0,2,1] ISR[2,1] e1", "its first replica is not live"
    start(cluster, 0)
    cluster.advance(10_000)
    assert lines(cluster)[1] == "P1 L0 AR[0,2,1] ISR[2,1,0] e2"


def test_S_04_another_broker_becomes_controller_with_the_next_epoch() -> None:
    cluster = second_topic(controller=2)
    assert (cluster.mode.controller(), cluster.mode.controller_epoch()) == (2, 1)
    stop(cluster, 2)
    assert cluster.mode.controller() in {0, 1}
    assert cluster.mode.controller_epoch() == 2
    prefer(cluster, 0)
    written = [Story(cluster, "secondTopic", n).metadata.state.controller_epoch for n in range(4)]
    assert written == [1, 1, 1, 1], "older state nodes keep the epoch they were written in"
    start(cluster, 2)
    prefer(cluster, 2)
    assert Story(cluster, "secondTopic", 2).metadata.state.controller_epoch == 2


def test_S_05_a_stale_registration_blocks_a_restart_until_its_session_ends() -> None:
    cluster = second_topic(controller=2)
    before = {r.broker: r.broker_epoch for r in cluster.mode.registrations()}
    cluster.on("crash", 1)
    cluster.advance(1_000)
    cluster.on("start", 1)
    cluster.advance(1_000)
    assert not cluster.brokers[1].up
    assert [note["note"] for note in cluster.notes] == ["NodeExists", "exit"]
    assert cluster.notes[0]["owner"] != cluster.notes[0]["session"]
    still = {r.broker: r.broker_epoch for r in cluster.mode.registrations()}
    assert still == before, "no process serves it, yet it counts as registered"
    cluster.advance(18_000)
    assert 1 not in {r.broker for r in cluster.mode.registrations()}
    start(cluster, 1)
    back = {r.broker: r.broker_epoch for r in cluster.mode.registrations()}
    assert back[1] > before[1]


def test_S_32_an_unclean_election_on_the_way_back() -> None:
    settings = Settings(auto_leader_rebalance_enable=False, unclean_leader_election_enable=True)
    cluster = SimulatedCluster("3.9.1", [2, 1, 0], {"t": [[1, 0]]}, settings)
    story = Story(cluster, "t")
    story.write("m0")
    cluster.advance(1_000)
    assert story.line == "P0 L1 AR[1,0] ISR[1,0] e0"
    story.kill(0)
    assert story.line == "P0 L1 AR[1,0] ISR[1] e1"
    story.write("m1")
    assert (story.log(1), story.epochs(1)) == ("m0@0 m1@1", ((0, 0), (1, 1)))
    story.kill(1)
    assert story.line == "P0 L-1 AR[1,0] ISR[1] e2"
    story.start(0)
    assert story.line == "P0 L0 AR[1,0] ISR[0] e3"
    assert story.metadata.state.recovery is RecoveryState.RECOVERING
    story.write("M2")
    assert (story.log(0), story.epochs(0)) == ("m0@0 M2@3", ((0, 0), (3, 1)))
    story.start(1)
    cluster.advance(2_000)
    assert story.line == "P0 L0 AR[1,0] ISR[0,1] e3"
    assert story.metadata.state.recovery is RecoveryState.RECOVERED
    assert (story.log(1), story.epochs(1)) == ("m0@0 M2@3", ((0, 0), (3, 1)))
    [loss] = cluster.truth.losses
    assert (loss.offsets, loss.leader, loss.unclean) == ((1, 2), 0, True)
    assert cluster.truth.divergences == []


@pytest.mark.parametrize("unclean", [False, True])
def test_S_39_no_isr_member_alive(unclean: bool) -> None:
    settings = Settings(auto_leader_rebalance_enable=False, unclean_leader_election_enable=unclean)
    cluster = SimulatedCluster("3.9.1", [9, 0, 1, 2], {"t": [[0, 1, 2]]}, settings)
    story = Story(cluster, "t")
    story.kill(1)
    story.kill(2)
    story.write("only-on-0")
    cluster.on("crash", 0)
    # They come back and neither may fetch: 1 and 2 stay outside the ISR.
    story.hold(1, 2)
    story.start(1)
    story.start(2)
    story.forget(0)
    epoch = story.metadata.state.leader_epoch
    if unclean:
        assert story.line == f"P0 L1 AR[0,1,2] ISR[1] e{epoch}"
        assert [loss.offsets for loss in cluster.truth.losses] == [(0, 1)]
        return
    assert story.line == f"P0 L-1 AR[0,1,2] ISR[0] e{epoch}"
    story.start(0)
    assert story.line == f"P0 L0 AR[0,1,2] ISR[0] e{epoch + 1}"
    assert cluster.truth.losses == []


@pytest.mark.parametrize(
    ("preset", "bump"),
    [
        pytest.param("0.10.2.2", 1, id="zookeeper-0.10"),
        pytest.param("3.9.1", 1, id="zookeeper-3.9"),
        pytest.param("3.3.2-kraft", 1, id="kraft-before-3.6"),
        pytest.param("3.9.1-kraft", 0, id="kraft-3.9"),
        pytest.param("4.1.1-kraft", 0, id="kraft-4.1"),
    ],
)
def test_a_followers_death_bumps_the_leader_epoch_or_not(preset: str, bump: int) -> None:
    cluster = SimulatedCluster(preset, [1, 2, 3], {"t": [[1, 2, 3]]}, BY_HAND)
    story = Story(cluster, "t")
    story.kill(3)
    assert story.line == f"P0 L1 AR[1,2,3] ISR[1,2] e{bump}"
    assert story.metadata.state.partition_epoch == 1


def test_the_eligible_leader_replicas_of_4_1_can_lead_cleanly() -> None:
    settings = Settings(auto_leader_rebalance_enable=False, min_insync_replicas=2)
    cluster = SimulatedCluster("4.1.1-kraft", [1, 2, 3], {"t": [[1, 2, 3]]}, settings)
    story = Story(cluster, "t")
    story.write("m0")
    cluster.advance(1_000)
    story.kill(3)
    stop(cluster, 2)
    assert (story.line, story.metadata.state.elr) == ("P0 L1 AR[1,2,3] ISR[1] e0", (2,))
    story.write("m1")
    cluster.advance(1_000)
    assert story.ends(1) == (2, 1), "below min ISR the high watermark stands still"
    story.kill(1)
    assert story.metadata.state.isr == ()
    assert set(story.metadata.state.elr) == {1, 2}
    start(cluster, 2)
    assert story.line == "P0 L2 AR[1,2,3] ISR[2] e2"
    assert story.metadata.state.recovery is RecoveryState.RECOVERED, "an ELR member leads cleanly"
    start(cluster, 1)
    start(cluster, 3)
    assert set(story.metadata.state.isr) == {1, 2, 3}
    assert story.log(1) == "m0@0", "m1 was never committed"
    assert cluster.truth.losses == []


def test_kraft_refuses_a_second_process_while_the_first_may_live() -> None:
    cluster = SimulatedCluster("3.9.1-kraft", [1, 2, 3], {"t": [[1, 2, 3]]}, BY_HAND)
    before = cluster.mode.registrations()[0].broker_epoch
    cluster.on("crash", 1)
    cluster.on("start", 1)
    cluster.advance(3_000)
    assert {note["note"] for note in cluster.notes} == {"DUPLICATE_BROKER_REGISTRATION"}
    assert cluster.brokers[1].up, "it tries again instead of ending"
    assert cluster.replica(1, Story(cluster, "t").partition).known is False  # type: ignore[union-attr]
    cluster.advance(15_000)
    assert cluster.mode.registrations()[0].broker_epoch > before
    assert Story(cluster, "t").line == "P0 L2 AR[1,2,3] ISR[2,3,1] e1"


@pytest.mark.parametrize("preset", ["2.8.2", "3.9.1", "3.9.1-kraft", "4.1.1-kraft"])
def test_a_reassignment_ends_with_the_target_alone(preset: str) -> None:
    cluster = SimulatedCluster(preset, [1, 2, 3, 4], {"t": [[1, 2]]}, BY_HAND)
    story = Story(cluster, "t")
    story.write(*(f"m{n}" for n in range(5)))
    cluster.on("hold_fetches", 3)
    cluster.at("reassign", story.partition, replicas=[3, 4])
    cluster.advance(2_000)
    running = story.metadata.assignment
    assert (set(running.adding), set(running.removing)) == ({3, 4}, {1, 2})
    assert running.replicas[:2] == (3, 4), "the target comes first"
    cluster.on("release_fetches", 3)
    cluster.advance(3_000)
    done = story.metadata
    assert (done.assignment.replicas, done.assignment.being_reassigned) == ((3, 4), False)
    assert (done.state.leader, set(done.state.isr)) == (3, {3, 4})
    assert cluster.replica(1, story.partition) is None, "removed replicas drop their directory"
    assert cluster.truth.losses == []


@pytest.mark.parametrize("preset", ["2.8.2", "3.9.1"])
def test_going_back_to_the_origin_raises_the_epoch_and_the_leader_forgets_who_was_being_added(
    preset: str,
) -> None:
    """Without it the leader would take whom nobody told to stop into the ISR, once it is back."""
    cluster = SimulatedCluster(preset, [1, 2, 3], {"t": [[3, 1]]}, QUICK)
    story = Story(cluster, "t")
    story.write("m0")
    cluster.advance(1_000)
    cluster.on("hold_fetches", 2)
    cluster.at("reassign", story.partition, replicas=[3, 2])
    cluster.advance(500)
    assert story.metadata.assignment.replicas == (3, 2, 1)
    cluster.apply({"do": "cut", "source": "2", "target": "zookeeper"})
    cluster.advance(2 * cluster.settings.session_ms)
    before = story.metadata.state
    cluster.at("reassign", story.partition, replicas=[3, 1])
    assert story.line == f"P0 L3 AR[3,1] ISR[3,1] e{before.leader_epoch + 1}"
    cluster.on("release_fetches", 2)
    cluster.apply({"do": "heal"})
    cluster.advance(3_000)
    assert story.line == f"P0 L3 AR[3,1] ISR[3,1] e{before.leader_epoch + 1}"


def test_a_reassignment_ends_although_nobody_of_the_target_can_lead() -> None:
    """Kafka's controller goes on where the election of its last step fails."""
    cluster = SimulatedCluster("3.9.1", [1, 2, 3], {"t": [[1, 2]]}, QUICK)
    story = Story(cluster, "t")
    for broker in (1, 2):
        cluster.on("crash", broker)
        cluster.advance(2 * cluster.settings.session_ms)
    assert story.line == "P0 L-1 AR[1,2] ISR[2] e2"
    cluster.at("reassign", story.partition, replicas=[2])
    assert story.line == "P0 L-1 AR[2] ISR[2] e2"
    assert not story.metadata.assignment.being_reassigned


@pytest.mark.parametrize("preset", ["1.1.1", "3.9.1", "4.1.1-kraft"])
def test_a_topic_made_again_is_another_topic(preset: str) -> None:
    cluster = SimulatedCluster(preset, [1, 2, 3], {"t": [[1, 2, 3]]}, BY_HAND)
    story = Story(cluster, "t")
    story.write("m0")
    story.kill(1)
    first = story.metadata
    cluster.apply({"do": "delete_topic", "topic": "t"})
    cluster.advance(1_000)
    if not cluster.preset.kraft:
        assert story.metadata.deleting, "it waits for the broker that is down"
    story.start(1)
    cluster.advance(2_000)
    assert cluster.mode.partitions() == []
    assert all(not broker.replicas for broker in cluster.brokers.values())
    cluster.apply({"do": "create_topic", "topic": "t", "partitions": [[1, 2, 3]]})
    cluster.advance(1_000)
    assert story.line == "P0 L1 AR[1,2,3] ISR[1,2,3] e0"
    assert story.metadata.topic_id != first.topic_id
    assert story.ends(1) == (0, 0)
    assert cluster.truth.losses == []
