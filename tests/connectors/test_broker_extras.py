"""What a round tells beyond metadata and offsets: log directories, topics that are hidden, fenced
brokers, voters of the quorum; and the closer look after a leader epoch has changed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from tidestaff.connectors.broker_answers import (
    KAFKA_STORAGE_ERROR,
    NO_ERROR,
    HeldReplica,
    LogDir,
    Quorum,
    Voter,
)
from tidestaff.connectors.broker_options import BrokerOptions
from tidestaff.connectors.broker_settings import METADATA_LEVELS
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.connectors.errors import (
    BrokerSilentError,
    ClusterUnreachableError,
    ControllerSilentError,
    NotAuthorizedError,
    UnsupportedRequestError,
)
from tidestaff.connectors.linking import Linker
from tidestaff.connectors.pacing import Pace, Rest
from tidestaff.connectors.wire import GONE
from tidestaff.consistency.model import (
    Bracket,
    EpochEntry,
    LineageSource,
    ProblemKind,
    Registration,
    TopicPartition,
)
from tidestaff.consistency.monitor import step

from tests.connectors.fake_brokers import ORDERS, FakeCluster
from tests.connectors.watched import Watched, cluster_of, health, partitions

HELD = (HeldReplica(ORDERS, 100),)


# -- log directories


def test_a_log_directory_that_is_offline_is_told_at_once_and_when_it_is_back() -> None:
    cluster = FakeCluster.with_topic()
    cluster.directories[2] = (LogDir("/a", NO_ERROR, HELD), LogDir("/b", KAFKA_STORAGE_ERROR))
    watched = Watched(cluster, log_dirs_refresh_ms=1)
    (told,) = health(watched.round())
    assert told.problem is ProblemKind.LOG_DIR_OFFLINE
    assert (told.place, told.broker) == ("log directory /b of broker 2", 2)
    assert "KAFKA_STORAGE_ERROR" in told.reason
    cluster.directories[2] = (LogDir("/a", NO_ERROR, HELD), LogDir("/b", NO_ERROR))
    (told,) = health(watched.round())
    assert told.problem is ProblemKind.OK


def test_log_directories_are_asked_now_and_then_only() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster, log_dirs_refresh_ms=60_000)
    for _ in range(10):
        watched.round()
    assert cluster.asked["log_dirs"] == 3
    for _ in range(3):
        watched.round()
    assert cluster.asked["log_dirs"] == 6


@pytest.mark.parametrize(
    ("error", "told"),
    [
        pytest.param(UnsupportedRequestError("DescribeLogDirs"), [], id="before-1.0"),
        pytest.param(BrokerSilentError(1, "timed out"), [], id="told-by-others"),
        pytest.param(
            NotAuthorizedError("Describe", "cluster", "kafka-cluster"),
            ["not authorised: ACL Describe on cluster kafka-cluster is missing"],
            id="refused",
        ),
    ],
)
def test_what_cannot_be_asked_of_log_directories(error: Any, told: list[str]) -> None:
    cluster = FakeCluster.with_topic()
    cluster.errors["log_dirs"] = error
    assert [each.reason for each in health(Watched(cluster).round())] == told


def hidden(*names: str) -> FakeCluster:
    """Topics that lie on broker 3 and are not listed."""
    cluster = FakeCluster.with_topic()
    held = [HeldReplica(TopicPartition(name, 0), 1) for name in names]
    cluster.directories[3] = (LogDir("/a", NO_ERROR, (*HELD, *held)),)
    cluster.hidden_topics = names
    return cluster


def test_a_topic_that_may_not_be_described_is_named_with_its_acl() -> None:
    (told,) = health(Watched(hidden("pay")).round())
    assert told.place == "topic pay"
    assert told.reason == "not authorised: ACL Read on topic pay is missing"
    assert told.remedy.endswith("--operation Read --topic pay")


def test_a_topic_that_was_deleted_or_is_not_wanted_is_not_hidden() -> None:
    cluster = hidden("pay")
    cluster.hidden_topics = ()
    assert health(Watched(cluster).round()) == []
    unwanted = hidden("pay")
    assert health(Watched(unwanted, exclude="pa.*").round()) == []
    assert unwanted.asked["refused_topics"] == 0


def test_many_hidden_topics_are_told_together() -> None:
    (told,) = health(Watched(hidden(*(f"t{n}" for n in range(9)))).round())
    assert told.place == "topics that are hidden"
    assert "t0, t1, t2, t3, t4 and 4 more" in told.reason


# -- KRaft


def test_a_fenced_broker_is_registered_and_not_asked() -> None:
    cluster = FakeCluster.with_topic()
    del cluster.live[3]
    cluster.registrations = (Registration(1), Registration(3, fenced=True, rack="r"))
    watched = Watched(cluster, missed_rounds=1)
    seen = watched.round()
    assert cluster_of(seen).registrations == (
        Registration(1),
        Registration(2),
        Registration(3, fenced=True, rack="r"),
    )
    assert cluster_of(seen).answering == (1, 2)
    (told,) = health(seen)
    assert told.reason == "broker 3 does not answer (it is fenced)"
    assert [r.broker for r in partitions(seen)[0].replicas] == [1, 2]
    assert partitions(seen)[0].live[2].fenced


def test_a_broker_that_the_metadata_lists_is_live_whatever_was_told_later() -> None:
    cluster = FakeCluster.with_topic()
    cluster.registrations = (Registration(3, fenced=True),)
    assert not any(r.fenced for r in cluster_of(Watched(cluster).round()).registrations)


def test_brokers_that_do_not_tell_fenced_ones_tell_them_after_an_upgrade() -> None:
    cluster = FakeCluster.with_topic()
    cluster.registrations = (Registration(4, fenced=True),)
    cluster.errors["registered"] = UnsupportedRequestError("DescribeCluster")
    watched = Watched(cluster)
    for _ in range(3):
        seen = watched.round()
        assert health(seen) == []
        assert not any(r.fenced for r in cluster_of(seen).registrations)
    del cluster.errors["registered"]
    assert Registration(4, fenced=True) in cluster_of(watched.round()).registrations


def voters(silent_ms: int) -> tuple[Voter, ...]:
    now_ms = 1_000_000
    return (
        Voter(1, 50, -1, now_ms),
        Voter(2, 50, now_ms - 100, now_ms - 100),
        Voter(3, 20, now_ms - silent_ms, now_ms - silent_ms),
    )


def test_a_voter_that_does_not_fetch_is_told() -> None:
    cluster = FakeCluster.with_topic()
    cluster.leader_of_quorum = Quorum(1, 5, 50, voters(30_000))
    watched = Watched(cluster, missed_rounds=1)
    (told,) = health(watched.round())
    assert (told.place, told.problem) == ("controller 3", ProblemKind.SILENT)
    assert "for 30 s and is 30 records behind" in told.reason
    cluster.leader_of_quorum = Quorum(1, 5, 50, voters(500))
    (told,) = health(watched.round())
    assert told.problem is ProblemKind.OK


def test_a_voter_that_was_away_before_the_leader_came_is_told() -> None:
    """As 3.9.1 answers when the leader of the quorum has died: the next one never heard of it."""
    cluster = FakeCluster.with_topic()
    now_ms = 1_000_000
    there = (Voter(2, 50, now_ms, now_ms), Voter(3, 50, now_ms - 100, now_ms - 100))
    cluster.leader_of_quorum = Quorum(2, 6, 50, (Voter(1, -1, -1, -1), *there))
    watched = Watched(cluster, missed_rounds=1)
    (told,) = health(watched.round())
    assert (told.place, told.problem) == ("controller 1", ProblemKind.SILENT)
    assert "since controller 2 leads the quorum" in told.reason
    cluster.leader_of_quorum = Quorum(2, 6, 50, (Voter(1, 50, now_ms, now_ms), *there))
    (told,) = health(watched.round())
    assert told.problem is ProblemKind.OK


def test_a_voter_that_is_named_twice_does_not_end_the_round() -> None:
    cluster = FakeCluster.with_topic()
    twice = (Voter(1, 10, 90_000, 90_000), Voter(1, 10, 100_000, 100_000))
    cluster.leader_of_quorum = Quorum(1, 5, 10, (*twice, Voter(2, 10, 50_000, 50_000)))
    watched = Watched(cluster)
    seen = [watched.round() for _ in range(3)]
    assert [each.place for each in health(seen[-1])] == ["controller 2"]


def test_where_the_quorum_tells_no_times_nothing_is_said_of_voters() -> None:
    cluster = FakeCluster.with_topic()
    cluster.leader_of_quorum = Quorum(1, 5, 50, (Voter(1, 50), Voter(2, -1)))
    assert health(Watched(cluster, missed_rounds=1).round()) == []


def test_metadata_levels_are_those_of_the_jars() -> None:
    """As MetadataVersion of 3.9.1 and 4.1.1 has them; its level is the place in the list."""
    assert (METADATA_LEVELS[0], METADATA_LEVELS[20]) == ("3.0-IV1", "3.9-IV0")
    assert METADATA_LEVELS[21:] == (
        *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1"),
    )


# -- the closer look


def test_a_partition_with_a_new_leader_is_looked_at_a_few_times_more() -> None:
    cluster = FakeCluster.with_topic(partitions=3)
    watched = Watched(cluster, burst_rounds=2, burst_interval_ms=500)
    assert len(partitions(watched.round())) == 3
    cluster.elect(2, TopicPartition("orders", 1))
    seen = partitions(watched.round())
    assert [each.partition for each in seen] == [0, 1, 2, 1, 1]
    again = [each for each in seen if each.partition == 1]
    times = [each.observed_at_ms for each in again]
    assert [b - a for a, b in pairwise(times)] == [500, 500]
    assert {each.bracket for each in again} == {Bracket.COHERENT}
    assert {each.state.leader_epoch for each in again} == {1}
    assert len(partitions(watched.round())) == 3


def test_a_burst_asks_for_nothing_but_the_partitions_that_moved() -> None:
    cluster = FakeCluster.with_topic(partitions=3)
    watched = Watched(cluster, burst_rounds=1)
    watched.round()
    cluster.elect(2, TopicPartition("orders", 1))
    cluster.sizes.clear()
    watched.round()
    # The leaders again, of which one has stood still; then the burst: three brokers, the leader
    # twice, two questions each but where it has stood still.
    assert cluster.sizes[-10:] == [2, *[1] * (2 + 7)]


def test_a_burst_is_limited() -> None:
    cluster = FakeCluster.with_topic(partitions=5)
    watched = Watched(cluster, burst_rounds=1, burst_partitions=2)
    watched.round()
    for number in range(5):
        cluster.elect(2, TopicPartition("orders", number))
    assert len(partitions(watched.round())) == 5 + 2


def test_a_burst_ends_where_the_cluster_falls_silent() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster, burst_rounds=3)
    watched.round()
    cluster.elect(2)
    asked: list[str] = []

    def fall_silent(question: str) -> None:
        asked.append(question)
        if asked.count("metadata") > 2:
            cluster.errors["metadata"] = ClusterUnreachableError("somewhere", "timed out")

    cluster.before = fall_silent
    assert len(partitions(watched.round())) == 1


def test_a_burst_asks_nobody_who_was_silent_in_the_round() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster, burst_rounds=2)
    watched.round()
    cluster.elect(2)
    cluster.silent = {1}
    cluster.errors["quorum"] = ControllerSilentError("DescribeQuorum")
    cluster.asked.clear()
    assert len(partitions(watched.round())) == 3
    assert cluster.asked["in vain 1"] == 1
    assert cluster.asked["quorum"] == 1


def test_a_burst_that_takes_long_is_cut_short() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster, burst_rounds=5, timeout_ms=3_000)
    watched.round()
    cluster.elect(2)

    def pass_time(_: str) -> None:
        watched.now_ms += 200

    cluster.before = pass_time
    assert len(partitions(watched.round())) == 2


def test_log_directories_of_a_silent_broker_are_not_asked_for() -> None:
    cluster = FakeCluster.with_topic()
    cluster.silent = {3}
    Watched(cluster).round()
    assert cluster.asked["log_dirs"] == 2


def test_rows_of_a_burst_follow_each_other_and_nothing_is_gone() -> None:
    cluster = FakeCluster.with_topic(partitions=2)
    watched, linker = Watched(cluster, burst_rounds=2), Linker()
    linker.link(watched.round())
    cluster.elect(2)
    rows = [row for row in linker.link(watched.round()) if row.subject == "orders-0"]
    assert [row.previous_at_ms for row in rows[1:]] == [row.observed_at_ms for row in rows[:-1]]
    assert len(rows) == 3
    assert GONE not in {row.kind for row in linker.link(watched.round())}


def test_elections_with_bursts_raise_nothing() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster, burst_rounds=2)
    memory: Any = None
    raised: list[Any] = []
    for number in range(12):
        if number in (3, 6, 7):
            cluster.elect(1 + number % 3)
        for replica in cluster.replicas.values():
            replica.leo += 5
            replica.hw += 5
        for each in partitions(watched.round()):
            memory, verdicts = step(memory, each)
            raised += verdicts.violated
    assert raised == []


# -- followers


def test_followers_lineages_come_with_the_readings() -> None:
    cluster = FakeCluster.with_topic(epoch=3)
    watched = Watched(cluster)
    for _ in range(3):
        (seen,) = partitions(watched.round())
    told = {r.broker: (r.lineage_source, r.lineage) for r in seen.replicas}
    truth = tuple(EpochEntry(epoch, 2 * epoch) for epoch in range(4))
    assert told[1] == (LineageSource.LEADER_ANSWERS, truth)
    assert told[2] == told[3] == (LineageSource.BATCH_HEADERS, truth)


def test_a_broker_that_hands_out_no_batches_is_read_without_lineage() -> None:
    cluster = FakeCluster.with_topic()
    cluster.errors["batches"] = BrokerSilentError(2, "timed out")
    watched = Watched(cluster)
    for _ in range(3):
        (seen,) = partitions(watched.round())
    assert [r.lineage for r in seen.replicas] == [((0, 0),), None, None]
    assert seen.bracket is Bracket.COHERENT


def test_of_a_tiered_log_the_local_start_is_read_and_no_batch_is_fetched() -> None:
    cluster = FakeCluster.with_topic()
    cluster.topic_settings["orders"] = {"remote.storage.enable": "true"}
    for replica in cluster.replicas.values():
        replica.local_start = 6
    watched = Watched(cluster)
    for _ in range(3):
        (seen,) = partitions(watched.round())
    told = [(r.log_start_offset, r.local_log_start_offset, r.lineage) for r in seen.replicas]
    assert told == [(0, 6, ((0, 0),)), (0, 6, None), (0, 6, None)]
    assert cluster.asked["batches"] == 0


def test_of_an_ordinary_log_no_local_start_is_asked() -> None:
    cluster = FakeCluster.with_topic()
    (seen,) = partitions(Watched(cluster).round())
    assert {r.local_log_start_offset for r in seen.replicas} == {None}
    assert cluster.asked["earliest_local"] == 0


def test_a_broker_that_does_not_know_local_starts_is_read_without() -> None:
    cluster = FakeCluster.with_topic()
    cluster.topic_settings["orders"] = {"remote.storage.enable": "true"}
    cluster.errors["earliest_local"] = UnsupportedRequestError("ListOffsets")
    (seen,) = partitions(Watched(cluster).round())
    assert {r.local_log_start_offset for r in seen.replicas} == {None}
    assert {r.log_end_offset for r in seen.replicas} == {10}


# -- how often


def test_requests_of_several_threads_are_spread_evenly() -> None:
    slept: list[float] = []
    pace = Pace(10, lambda: 1_000.0, slept.append)
    for _ in range(4):
        pace.wait()
    assert slept == pytest.approx([0.1, 0.2, 0.3])


def test_who_fails_rests_twice_as_long_each_time_up_to_a_limit() -> None:
    longest = Random(1)  # noqa: S311 - its values are set
    longest.uniform = lambda _, most: most  # type: ignore[method-assign]
    rest: Rest[str] = Rest(1_000, 5_000, longest)
    for pause_ms in (1_000, 2_000, 4_000, 5_000, 5_000):
        rest.failed("broker", 0)
        assert rest.resting("broker", pause_ms - 1)
        assert not rest.resting("broker", pause_ms)
    rest.succeeded("broker")
    assert not rest.resting("broker", 0)


def test_several_who_failed_together_are_not_asked_again_together() -> None:
    rest: Rest[int] = Rest(10_000, 10_000, Random(1))  # noqa: S311 - the same each time
    for broker in range(50):
        rest.failed(broker, 0)
    awake = [sum(not rest.resting(b, at_ms) for b in range(50)) for at_ms in range(0, 10_001, 500)]
    assert awake[16] == 0  # after 8 s
    assert awake[-1] == 50
    assert len(set(awake)) > 3


def test_a_round_begins_a_little_later_by_chance() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster, jitter_ms=1_000)
    begun = [cluster_of(watched.round()).observed_at_ms for _ in range(20)]
    late = [at % 5_000 for at in begun]
    assert len(set(late)) > 10


def test_no_more_brokers_are_asked_at_once_than_allowed() -> None:
    cluster = FakeCluster.with_topic()
    busy: set[int] = set()
    most: list[int] = []

    def take_time(question: str) -> None:
        if question.startswith("fetch"):
            busy.add(threading.get_ident())
            most.append(len(busy))
            time.sleep(0.05)
            busy.discard(threading.get_ident())

    cluster.before = take_time
    options = BrokerOptions("somewhere:9092", jitter_ms=0)
    for allowed in (1, 2):
        most.clear()
        with ThreadPoolExecutor(allowed) as pool:
            connector = BrokerConnector(
                cluster, "west", options, now_ms=lambda: 1_000_000, each=pool.map
            )
            assert len(partitions(connector.round())[0].replicas) == 3
        assert max(most) == allowed


@pytest.mark.parametrize(
    ("include", "exclude", "seen"),
    [
        pytest.param("", "", {"orders", "orders.eu", "pay", "__offsets"}, id="everything"),
        pytest.param("orders", "", {"orders"}, id="whole-names"),
        pytest.param(r"orders.*", "", {"orders", "orders.eu"}, id="include"),
        pytest.param("", "__.*", {"orders", "orders.eu", "pay"}, id="exclude"),
        pytest.param(r"orders.*|pay", r".*\.eu", {"orders", "pay"}, id="both"),
    ],
)
def test_only_topics_that_are_wanted_are_asked_for(
    include: str, exclude: str, seen: set[str]
) -> None:
    cluster = FakeCluster()
    for name in ("orders", "orders.eu", "pay", "__offsets"):
        topic = FakeCluster.with_topic(name)
        cluster.partitions |= topic.partitions
        cluster.replicas |= topic.replicas
    found = partitions(Watched(cluster, include=include, exclude=exclude).round())
    assert {each.topic for each in found} == seen
    assert set(cluster.sizes) == {len(seen)}
