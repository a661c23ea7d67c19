"""The adapter and the client library on sockets: what they make of brokers that change, and of
answers that are damaged."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.errors import (
    AnswerMalformedError,
    BrokerSilentError,
    ClusterUnreachableError,
)
from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    from tests.connectors.wire_brokers import WireCluster

# The library reads its schemas in a way that Python 3.11 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")

ORDERS = TopicPartition("orders", 0)
WITHIN_S = 10.0


def cluster_of(brokers: int) -> WireCluster:
    from tests.connectors.wire_brokers import WireCluster  # noqa: PLC0415 - slow

    return WireCluster(brokers)


def reader_of(bootstrap_servers: str) -> Any:
    from tidestaff.connectors.kafka_python_reader import KafkaPythonReader  # noqa: PLC0415 - slow

    return KafkaPythonReader(bootstrap_servers, {}, timeout_ms=2_000)


def until_it_answers(reader: Any, broker: int) -> None:
    """After it has hung up, the first questions may be in vain."""
    until = time.monotonic() + WITHIN_S
    while True:
        try:
            return reader.ping(broker)  # type: ignore[no-any-return]
        except BrokerSilentError:
            assert time.monotonic() < until
            time.sleep(0.05)


def tells_ids(reader: Any) -> list[bool]:
    """Whether broker 1 does, and broker 2."""
    return [reader.metadata(turn).partitions[ORDERS].topic_id is not None for turn in (0, 1)]


def test_after_an_upgrade_of_the_cluster_every_connection_speaks_what_its_broker_does() -> None:
    from tests.connectors.wire_brokers import NEW  # noqa: PLC0415 - slow

    with cluster_of(2) as cluster, closing(reader_of(cluster.bootstrap)) as reader:
        assert tells_ids(reader) == [False, False]
        cluster.brokers[0].restart(NEW)
        until_it_answers(reader, 1)
        assert tells_ids(reader) == [True, False]
        cluster.brokers[1].restart(NEW)
        until_it_answers(reader, 2)
        assert tells_ids(reader) == [True, True]


def test_a_bootstrap_server_of_an_old_release_holds_nobody_back() -> None:
    from tests.connectors.wire_brokers import NEW  # noqa: PLC0415 - slow

    with cluster_of(2) as cluster:
        cluster.brokers[1].knows = dict(NEW)
        with closing(reader_of(cluster.brokers[0].place)) as reader:
            assert tells_ids(reader) == [False, True]


def test_where_an_answer_on_versions_was_damaged_the_next_broker_is_asked() -> None:
    with cluster_of(2) as cluster, closing(reader_of(cluster.bootstrap)) as reader:
        reader.hosts()  # the bootstrap connection is over
        cluster.brokers[0].denies = 1
        assert set(reader.metadata(0).brokers) == {1, 2}
        assert cluster.brokers[0].denies == 0
        reader.ping(2)
        assert set(reader.metadata(0).brokers) == {1, 2}


def test_one_damaged_answer_on_versions_blinds_nobody_for_longer_than_itself() -> None:
    with cluster_of(1) as cluster, closing(reader_of(cluster.bootstrap)) as reader:
        reader.hosts()
        (broker,) = cluster.brokers
        broker.denies = 1
        with pytest.raises(ClusterUnreachableError, match="does not know MetadataRequest"):
            reader.metadata(0)
        assert set(reader.metadata(0).brokers) == {1}


def test_a_broker_that_denies_what_all_know_is_asked_for_its_versions_anew() -> None:
    with cluster_of(1) as cluster, closing(reader_of(cluster.bootstrap)) as reader:
        reader.hosts()
        cluster.brokers[0].denies = 1
        with pytest.raises(BrokerSilentError, match="does not know MetadataRequest"):
            reader.ping(1)
        until_it_answers(reader, 1)


def test_a_topic_with_null_for_its_partitions_is_refused_until_it_has_a_list() -> None:
    with cluster_of(1) as cluster, closing(reader_of(cluster.bootstrap)) as reader:
        reader.hosts()
        cluster.brokers[0].null_partitions = True
        with pytest.raises(AnswerMalformedError, match="MetadataResponse makes no sense"):
            reader.metadata(0)
        cluster.brokers[0].null_partitions = False
        assert set(reader.metadata(0).partitions) == {ORDERS}
