"""The short way to a replica's offsets tells what the long way tells, and asks for less."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.connectors.broker_answers import (
    KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
)

from tests.connectors.fake_brokers import ORDERS, FakeCluster, FakeReplica
from tests.connectors.watched import Watched

# The library reads its schemas in a way that Python 3.11 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")

OF_OFFSETS = ("earliest", "latest", "fetch")


def asked_in_a_round(watched: Watched, rounds: int = 1) -> Counter[str]:
    """The questions on offsets, in the last of some rounds."""
    for _ in range(rounds):
        watched.cluster.asked.clear()
        watched.round()
    return Counter({n: count for n, count in watched.cluster.asked.items() if n in OF_OFFSETS})


def follower(watched: Watched) -> tuple[int | None, int | None, int | None]:
    """Log start, HW and LEO of broker 2."""
    (reading,) = [each for each in watched.partition().replicas if each.broker == 2]
    return reading.log_start_offset, reading.high_watermark, reading.log_end_offset


def grow(cluster: FakeCluster) -> None:
    for place, replica in cluster.replicas.items():
        cluster.replicas[place] = replace(replica, leo=replica.leo + 5, hw=replica.hw + 5)


def quiet() -> tuple[FakeCluster, Watched]:
    """A cluster that was seen to stand still."""
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    for _ in range(4):
        watched.round()
    return cluster, watched


def test_a_log_that_stands_still_costs_a_fetch_and_its_end() -> None:
    """Four readings: the leader's is taken twice."""
    _, watched = quiet()
    assert asked_in_a_round(watched) == Counter(latest=4, fetch=4)


def test_a_log_that_grows_is_fetched_from_its_end_of_now() -> None:
    cluster, watched = quiet()
    for _ in range(2):
        grow(cluster)
        found = asked_in_a_round(watched)
    assert found == Counter(latest=8, fetch=4)
    assert {cluster.fetched_from[2, ORDERS], cluster.fetched_from[3, ORDERS]} == {20}


def test_a_broker_whose_fetches_tell_no_log_start_is_asked_for_it() -> None:
    """Before 0.11. It is asked the short way once, not in every round."""
    cluster = FakeCluster.with_topic()
    for replica in cluster.replicas.values():
        replica.fetch_tells_start, replica.start = False, 3
    watched = Watched(cluster)
    assert follower(watched) == (3, 10, 10)
    assert asked_in_a_round(watched) == Counter(earliest=4, latest=8, fetch=4)


def test_a_log_whose_end_has_no_epoch_is_asked_for_its_end() -> None:
    """Before 2.1: nobody could tell that it was cut in between."""
    cluster = FakeCluster.with_topic()
    for replica in cluster.replicas.values():
        replica.names_epoch = False
    assert asked_in_a_round(Watched(cluster), rounds=5) == Counter(latest=8, fetch=4)


def test_a_refused_fetch_leaves_the_log_start_and_costs_no_more_than_the_long_way() -> None:
    cluster = FakeCluster.with_topic()
    for replica in cluster.replicas.values():
        replica.fetch_error, replica.start = TOPIC_AUTHORIZATION_FAILED, 3
    watched = Watched(cluster)
    assert follower(watched) == (3, None, 10)
    assert asked_in_a_round(watched) == Counter(earliest=4, latest=8, fetch=4)
    for replica in cluster.replicas.values():
        replica.fetch_error = 0
    assert follower(watched) == (3, 10, 10)
    assert asked_in_a_round(watched, rounds=3) == Counter(latest=4, fetch=4)


def test_a_log_that_was_cut_below_where_it_ended_keeps_its_watermark() -> None:
    cluster, watched = quiet()
    cluster.replicas[2, ORDERS] = FakeReplica(leo=6, hw=5, start=1)
    assert follower(watched) == (1, 5, 6)


def test_a_log_that_is_cut_before_its_end_is_read_keeps_its_watermark() -> None:
    cluster, watched = quiet()
    cut = [FakeReplica(leo=6, hw=5)]

    def live_on(asked: str) -> None:
        if asked == "latest 2" and cut:
            cluster.replicas[2, ORDERS] = cut.pop()

    cluster.before = live_on
    assert follower(watched) == (0, 5, 6)


def test_a_new_epoch_leaves_no_watermark_out() -> None:
    """Where a log ended in the last epoch says nothing of whether it was cut in this one."""
    cluster, watched = quiet()
    cluster.elect(3)
    assert follower(watched) == (0, 10, 10)


def test_retention_beyond_where_a_log_ended_keeps_its_watermark() -> None:
    cluster, watched = quiet()
    cluster.replicas[2, ORDERS] = FakeReplica(leo=40, hw=40, start=30)
    assert follower(watched) == (30, 40, 40)


def test_a_log_start_that_passed_the_watermark_in_between_is_read_again_in_order() -> None:
    """A broker looks at the HW first, and both may move before it looks at the log start."""
    cluster = FakeCluster.with_topic()
    between, after = FakeReplica(leo=20, hw=10, start=15), FakeReplica(leo=20, hw=20, start=15)
    states = {"latest 2": [FakeReplica(leo=20)], "fetch 2": [between], "earliest 2": [after]}

    def live_on(asked: str) -> None:
        if states.get(asked):
            cluster.replicas[2, ORDERS] = states[asked].pop()

    cluster.before = live_on
    assert follower(Watched(cluster)) == (15, 20, 20)
    assert not any(states.values())


def test_a_tiered_log_is_fetched_from_its_end_of_now() -> None:
    cluster = FakeCluster.with_topic()
    cluster.topic_settings["orders"] = {"remote.storage.enable": "true"}
    assert asked_in_a_round(Watched(cluster), rounds=5) == Counter(latest=8, fetch=4)


def test_everything_is_asked_anew_now_and_then() -> None:
    """So that what is gone is not kept, and a broker of a newer release is read as such."""
    _, watched = quiet()
    watched.now_ms += 300_000
    assert asked_in_a_round(watched)["latest"] > 4


replicas = st.builds(
    FakeReplica,
    start=st.integers(0, 3),
    hw=st.integers(2, 6),
    leo=st.integers(4, 8),
    epoch=st.integers(0, 2),
    leads=st.booleans(),
    lineage=st.sampled_from([((0, 0),), ((0, 0), (1, 3)), ((0, 0), (1, 3), (2, 3))]),
    error=st.sampled_from([0, 0, 0, 0, KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER]),
    fetch_error=st.sampled_from([0, 0, 0, 0, OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED]),
    names_epoch=st.sampled_from([True, True, True, False]),
)
situations = st.lists(st.tuples(*[replicas] * 3), min_size=1, max_size=3)
rounds = situations.flatmap(lambda some: st.lists(st.sampled_from(some), min_size=1, max_size=9))


@given(lived=rounds)
@settings(max_examples=150, deadline=None)
def test_both_ways_tell_the_same_whatever_the_replicas_are_like(
    lived: list[tuple[FakeReplica, ...]],
) -> None:
    """States that come again and again, so that logs stand still, go back and leave an epoch."""
    short, long = FakeCluster.with_topic(), FakeCluster.with_topic()
    by_short_way, by_long_way = Watched(short), Watched(long)
    for state in lived:
        for broker, replica in enumerate(state, start=1):
            short.replicas[broker, ORDERS] = replica
            long.replicas[broker, ORDERS] = replace(replica, fetch_tells_start=False)
        assert by_short_way.round() == by_long_way.round()


@pytest.mark.parametrize(
    ("version", "told"),
    [
        pytest.param(4, -1, id="0.10.2-and-before"),
        pytest.param(5, 7, id="from-0.11-on"),
        pytest.param(12, 7, id="the-last-by-names"),
        pytest.param(13, 7, id="by-topic-ids"),
        pytest.param(17, 7, id="4.1"),
    ],
)
def test_the_log_start_is_in_the_answer_of_the_versions_that_have_it(
    version: int, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the bytes of an answer, so that a field the version lacks is not there."""
    from kafka.protocol.consumer import (  # type: ignore[import-untyped]  # noqa: PLC0415 - slow
        FetchResponse,
    )
    from tidestaff.connectors.broker_decoding import uuid_of  # noqa: PLC0415
    from tidestaff.connectors.kafka_python_reader import KafkaPythonReader  # noqa: PLC0415

    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    topic = FetchResponse.FetchableTopicResponse
    partition = topic.PartitionData(
        partition_index=0, error_code=0, high_watermark=9, log_start_offset=7, records=b""
    )
    answer = FetchResponse(
        responses=[topic(topic="orders", topic_id=uuid_of(topic_id), partitions=[partition])]
    )
    answered: Any = FetchResponse.decode(answer.encode(version=version), version=version)
    reader = KafkaPythonReader("127.0.0.1:9", {}, timeout_ms=300)
    monkeypatch.setattr(reader, "ask", lambda *_: answered)
    (found,) = reader.fetch(1, {ORDERS: 9}, {"orders": topic_id}).values()
    assert (found.high_watermark, found.log_start_offset) == (9, told)
