"""A follower takes over a leader epoch first and ends its fetches from the old leader after that:
what the old one answers in between is appended, and cut by the new one's word.

The long form is `python -m tests.proof.search --series "slow fetcher removal"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tidestaff.connectors.simulator import following
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.faults import NEVER_LOSE, ON_REQUEST, WEIGHTS, RandomFaults
from tidestaff.connectors.simulator.settings import QUICK, Settings
from tidestaff.connectors.simulator.story import Story, unsettled

from tests.proof.histories import live
from tests.proof.ledger import judge
from tests.proof.search import SERIES, SLOW_REMOVAL, plan_of

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.leading import Answer
    from tidestaff.connectors.simulator.replica import Replica

# Requests wait long at a leader, so that one is under way when the order comes.
PATIENT = Settings(
    auto_leader_rebalance_enable=False,
    unclean_leader_election_enable=False,
    replica_fetch_wait_max_ms=5_000,
    request_timeout_ms=30_000,
)
REMOVAL_MS = 2_000
PRESETS = ["0.10.2.2", "1.1.1", "2.4.1", "2.8.2", "3.9.1", "3.9.1-kraft", "4.1.1-kraft"]
STEPS = 120
# Seeds in whose histories a follower does append what an old leader sent. 1.1.1 diverges by itself
# where leaders follow each other closely (KIP-279): these are such in which it does not.
SEEDS = {
    "1.1.1": (2, 10),
    "2.8.2": (1, 2, 5),
    "3.9.1": (1, 2, 5),
    "3.9.1-kraft": (2, 4, 8),
    "4.1.1-kraft": (2, 4, 9),
}


def deposed_unawares(
    preset: str, removal_ms: int = REMOVAL_MS, assignment: tuple[int, ...] = (1, 2, 3)
) -> Story:
    """Broker 1 led and does not know that 2 leads now; 3 has a request under way to broker 1, and
    has been told to follow 2."""
    cluster = SimulatedCluster(preset, [9, *sorted(assignment)], {"t": [assignment]}, PATIENT)
    story = Story(cluster, "t")
    story.write("m")
    cluster.advance(11_000)
    assert [story.ends(broker) for broker in (1, 2, 3)] == [(1, 1)] * 3
    cluster.on("slow_fetcher_removal", 3, removal_ms=removal_ms)
    boss = "controller" if cluster.preset.kraft else "zookeeper"
    for other in (boss, "9"):
        cluster.apply({"do": "cut", "source": "1", "target": other})
    story.forget(1)
    assert story.metadata.state.leader == 2
    return story


def belief(story: Story, broker: int = 3) -> tuple[int, int]:
    replica = story.replica(broker)
    return replica.leader, replica.leader_epoch


@pytest.mark.parametrize("preset", PRESETS)
def test_the_old_leaders_answer_is_appended_in_the_new_epoch_and_cut_after_it(preset: str) -> None:
    story = deposed_unawares(preset)
    epoch = story.metadata.state.leader_epoch
    assert belief(story) == (2, epoch), "the epoch is taken over at once"
    assert story.write("x", "y", broker=1)
    story.cluster.advance(100)
    assert (story.log(3), belief(story)) == ("m@0 x@0 y@0", (2, epoch))
    assert story.write("z", broker=1)
    story.cluster.advance(100)
    assert story.log(3) == "m@0 x@0 y@0", "the old leader is not asked again"
    story.cluster.advance(REMOVAL_MS)
    assert story.log(3) == "m@0"
    story.write("n")
    story.cluster.advance(1_000)
    assert story.log(3) == story.log(2) == f"m@0 n@{epoch}"
    assert (story.cluster.truth.losses, story.cluster.truth.divergences) == ([], [])


@pytest.mark.parametrize("removal_ms", [0, 50])
def test_an_answer_that_comes_after_the_removal_is_not_taken(removal_ms: int) -> None:
    story = deposed_unawares("2.8.2", removal_ms)
    assert story.write("x", broker=1)
    story.cluster.advance(1_000)
    assert story.log(3) == "m@0"


def test_nothing_is_asked_between_the_two() -> None:
    story = deposed_unawares("3.9.1")
    story.hold(3)
    assert not story.request(3)
    story.cluster.advance(REMOVAL_MS)
    assert story.request(3)


@pytest.mark.parametrize("preset", PRESETS)
def test_who_is_elected_meanwhile_leads_at_once_with_what_it_holds(preset: str) -> None:
    """As if the old leader's answer had come a moment before the first order."""
    story = deposed_unawares(preset)
    story.write("x", broker=1)
    story.cluster.advance(50)
    story.kill(2)
    replica = story.replica(3)
    assert replica.leads
    assert replica.hand_over is None
    story.write("n")
    story.cluster.advance(REMOVAL_MS)
    assert story.log(3) == f"m@0 x@0 n@{story.metadata.state.leader_epoch}"
    assert not story.cluster.brokers[3].fetchers[1].partitions


@pytest.mark.parametrize("preset", PRESETS)
def test_a_newer_leader_takes_the_place_of_the_new_one(preset: str) -> None:
    story = deposed_unawares(preset, assignment=(1, 2, 4, 3))
    story.cluster.advance(1_000)
    story.kill(2)
    assert belief(story) == (4, story.metadata.state.leader_epoch)
    story.write("x", broker=1)
    story.cluster.advance(REMOVAL_MS - 500)
    assert story.log(3) == "m@0 x@0", "the time runs anew, the request is still under way"
    story.cluster.advance(500)
    assert story.log(3) == "m@0"
    assert [leader for leader, f in story.cluster.brokers[3].fetchers.items() if f.partitions] == [
        4
    ]


@pytest.mark.parametrize("preset", PRESETS)
def test_news_that_start_no_fetcher_over_leave_it_as_it_is(preset: str) -> None:
    """Another follower dies: the leader stays, and only ZooKeeper's controller raises the epoch."""
    story = deposed_unawares(preset, assignment=(1, 2, 4, 3))
    before = story.replica(3).hand_over
    story.kill(4)
    assert belief(story) == (2, story.metadata.state.leader_epoch)
    starts_over = preset in {"2.4.1", "2.8.2", "3.9.1"}
    assert (story.replica(3).hand_over is before) is not starts_over
    story.write("x", broker=1)
    story.cluster.advance(100)
    assert story.log(3) == "m@0 x@0"
    story.cluster.advance(REMOVAL_MS)
    assert story.log(3) == "m@0"


def test_a_crash_ends_it() -> None:
    story = deposed_unawares("3.9.1")
    story.write("x", broker=1)
    story.cluster.advance(50)
    story.kill(3)
    assert story.log(3) == "m@0 x@0", "the page cache outlives the process"
    story.start(3)
    assert story.replica(3).hand_over is not None, "told anew, as slow as before"
    story.cluster.advance(REMOVAL_MS)
    assert story.log(3) == "m@0"


def test_a_deleted_topic_ends_it() -> None:
    story = deposed_unawares("3.9.1-kraft")
    replica = story.replica(3)
    assert replica.hand_over is not None
    story.cluster.apply({"do": "delete_topic", "topic": "t"})
    story.cluster.advance(REMOVAL_MS)
    assert replica.hand_over is None
    assert story.cluster.replica(3, story.partition) is None
    assert all(not fetcher.partitions for fetcher in story.cluster.brokers[3].fetchers.values())


def test_a_paused_broker_ends_nothing() -> None:
    story = deposed_unawares("2.8.2")
    story.cluster.on("pause", 3)
    story.cluster.advance(REMOVAL_MS)
    assert story.replica(3).hand_over is not None
    story.cluster.on("resume", 3)
    story.cluster.advance(100)
    assert story.replica(3).hand_over is None


def test_it_heals_and_the_cluster_settles() -> None:
    story = deposed_unawares("3.9.1")
    story.write("x", broker=1)
    faults = RandomFaults(story.cluster, 1)
    faults.heal()
    assert story.cluster.brokers[3].fetcher_removal_ms == 0
    assert unsettled(story.cluster) == []


def test_who_does_not_ask_for_it_gets_the_histories_of_before() -> None:
    assert not set(ON_REQUEST) & {*WEIGHTS, *NEVER_LOSE}
    assert SLOW_REMOVAL not in SERIES
    cluster = SimulatedCluster("3.9.1", [1, 2, 3], {"t": [[1, 2, 3]]}, QUICK)
    RandomFaults(cluster, 1, WEIGHTS).run(20_000)
    assert len(cluster.actions) > 50
    assert not {action["do"] for action in cluster.actions} & set(ON_REQUEST)


@pytest.mark.slow
@pytest.mark.parametrize("preset", SEEDS)
def test_nothing_grave_is_raised(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On safe protocols. But for two that are true: before 2.1 nothing fences a controller that was
    replaced, and from 4.1 the last known leader may be elected out of nobody's ISR."""
    late, take = [], following.take

    def noted(broker: Broker, replica: Replica, answer: Answer) -> bool:
        before, hand_over = replica.log_end, replica.hand_over
        changed = take(broker, replica, answer)
        if hand_over is not None and replica.log_end > before:
            late.append(replica.partition)
        return changed

    monkeypatch.setattr(following, "take", noted)
    allowed = {"1.1.1": {"CTL004"}, "4.1.1-kraft": {"ELE009"}}.get(preset, set())
    for seed in SEEDS[preset]:
        watched = live(plan_of(SLOW_REMOVAL, preset, seed, STEPS))
        truth, outcome = watched.cluster.truth, judge(watched)
        assert (truth.losses, truth.divergences) == ([], []), seed
        assert outcome.disagreements == 0, (seed, outcome)
        assert set(outcome.confirmed) <= allowed, (seed, outcome.confirmed)
    assert late, "it did happen"
