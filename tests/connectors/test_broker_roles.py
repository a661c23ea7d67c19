"""Who leads is asked of leaders in every round, of followers when something may have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidestaff.connectors.broker_roles import ASKED_EVERY
from tidestaff.consistency.monitor import step

from tests.connectors.fake_brokers import ORDERS, FakeCluster
from tests.connectors.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Sequence


def asked_of_each(watched: Watched, rounds: int) -> list[dict[int, int]]:
    """How often each broker was asked whether it leads, round by round."""
    found = []
    for _ in range(rounds):
        asked: list[str] = []
        watched.cluster.before = asked.append
        watched.round()
        found.append({broker: asked.count(f"epoch_ends {broker}") for broker in (1, 2, 3)})
    return found


def leading(watched: Watched) -> Sequence[bool | None]:
    return [each.leads for each in watched.partition().replicas]


def test_a_follower_that_said_so_is_asked_every_fourth_time() -> None:
    watched = Watched(FakeCluster.with_topic())
    once, not_now = {1: 2, 2: 1, 3: 1}, {1: 2, 2: 0, 3: 0}
    quiet = [not_now] * (ASKED_EVERY - 1)
    assert asked_of_each(watched, 2 * ASKED_EVERY + 1) == [once, *quiet, once, *quiet, once]


def test_what_it_said_counts_in_between() -> None:
    watched = Watched(FakeCluster.with_topic())
    assert [leading(watched) for _ in range(6)] == [[True, False, False]] * 6


def test_in_a_new_epoch_everybody_is_asked() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    watched.round()
    cluster.elect(2)
    # The new leader for its lineage besides.
    assert asked_of_each(watched, 1) == [{1: 1, 2: 2 + 1, 3: 1}]
    assert leading(watched) == [False, True, False]


def test_whoever_the_metadata_calls_a_leader_is_asked_every_time_whatever_it_said() -> None:
    """A topic made again has the same epoch, and may have given its first office to another."""
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    watched.round()
    cluster.partitions[ORDERS] = cluster.partitions[ORDERS]._replace(leader=2)
    for broker in (1, 2):
        cluster.replicas[broker, ORDERS].leads = broker == 2
    assert leading(watched) == [False, True, False]


def test_one_that_leads_although_the_metadata_does_not_say_so_is_asked_every_time() -> None:
    cluster = FakeCluster.with_topic()
    cluster.replicas[3, ORDERS].leads = True
    watched = Watched(cluster)
    assert [each[3] for each in asked_of_each(watched, 3)] == [1, 1, 1]
    cluster.replicas[3, ORDERS].leads = False
    assert leading(watched) == [True, False, False]


def test_a_follower_that_takes_office_in_the_epoch_of_its_leader_is_found() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    memory: Any = None
    codes: set[str] = set()
    for number in range(2 + ASKED_EVERY):
        if number == 2:
            cluster.replicas[3, ORDERS].leads = True
        memory, verdicts = step(memory, watched.partition())
        codes |= {each.code for each in verdicts.violated}
    assert "ELE006" in codes


def test_everybody_is_asked_anew_with_the_settings() -> None:
    watched = Watched(FakeCluster.with_topic())
    watched.round()
    watched.now_ms += 300_000
    assert asked_of_each(watched, 1) == [{1: 2, 2: 1, 3: 1}]
