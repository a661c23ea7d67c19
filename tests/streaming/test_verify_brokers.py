"""The quick mode of `tidestaff verify` over the brokers' protocol: it waits for lineages, and says
which ones it could not know."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.consistency.comparison_verdict import Outcome
from tidestaff.consistency.model import TopicPartition
from tidestaff.streaming.verify.brokers import BrokerSource
from tidestaff.streaming.verify.running import Verification

from tests.connectors.fake_brokers import ORDERS, FakeCluster
from tests.connectors.watched import Watched

if TYPE_CHECKING:
    from tidestaff.streaming.verify.running import Result


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidestaff.streaming.verify.brokers._BETWEEN_ROUNDS_S", 0)


def quickly(cluster: FakeCluster, **options: Any) -> list[Result]:
    watched = Watched(cluster, **options)
    source = BrokerSource(watched, cluster, bytes_a_second=0, agents=None, lineages=True)
    found = source.partitions(lambda _: True)
    return Verification(source, stop=threading.Event(), quick=True).run(found)


def test_lineages_are_waited_for_however_many_rounds_it_takes() -> None:
    """One fetch a round reads one batch of 32 partitions."""
    cluster = FakeCluster.with_topic(partitions=200)
    for replica in cluster.replicas.values():
        replica.leo = replica.hw = 10
    found = quickly(cluster, header_fetches=1)
    assert {each.verdict.outcome for each in found} == {Outcome.EQUAL}
    assert len(found) == 200


def test_a_lineage_that_cannot_be_known_is_named_and_not_waited_for_for_ever() -> None:
    cluster = FakeCluster.with_topic(partitions=2)
    for replica in cluster.replicas.values():
        replica.leo = replica.hw = 10
    # Nothing but its batches tells a follower's lineage, and these are of a format without epochs.
    cluster.replicas[3, TopicPartition("orders", 1)].lineage = ((-1, 0),)
    one, other = quickly(cluster, header_fetches=4)
    assert one.verdict.outcome is Outcome.EQUAL
    assert other.verdict.outcome is Outcome.NOT_COMPARABLE
    assert [each.why for each in other.verdict.uncompared] == ["no lineage is known of 3"]


def test_an_empty_log_has_no_lineage_to_wait_for() -> None:
    cluster = FakeCluster.with_topic(partitions=1)
    for replica in cluster.replicas.values():
        replica.leo = replica.hw = 0
    quickly(cluster, header_fetches=4)
    assert cluster.asked["metadata"] <= 4


@pytest.mark.parametrize("mended", [True, False], ids=["it-was-under-way", "it-stays"])
def test_a_divergence_by_lineage_is_told_once_it_was_seen_twice(mended: bool) -> None:
    cluster = FakeCluster.with_topic(epoch=2)
    for replica in cluster.replicas.values():
        replica.leo = replica.hw = 10
    whole = cluster.replicas[1, ORDERS].lineage
    cluster.replicas[3, ORDERS].lineage = (whole[0], (1, 3), whole[2])
    source = BrokerSource(Watched(cluster), cluster, bytes_a_second=0, agents=None, lineages=True)
    found = source.partitions(lambda _: True)
    if mended:  # its new leader has made it cut its log meanwhile
        cluster.replicas[3, ORDERS].lineage = whole
        cluster.elect(2)
        for replica in cluster.replicas.values():
            replica.leo = replica.hw = 12
    (told,) = Verification(source, stop=threading.Event(), quick=True).run(found)
    assert told.verdict.outcome is (Outcome.EQUAL if mended else Outcome.DIVERGED)
