"""The quick mode of `tidestaff verify` over the brokers' protocol: it waits for lineages, and says
which ones it could not know."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.agent_client import AgentClient, parse_agents
from tidestaff.connectors.broker_answers import UNKNOWN_TOPIC_OR_PARTITION
from tidestaff.connectors.digest_wire import FetchedRecords, WireRanges
from tidestaff.consistency.comparison_verdict import Outcome
from tidestaff.consistency.model import TopicPartition
from tidestaff.streaming.commands.layout import Paint
from tidestaff.streaming.verify.brokers import BrokerSource
from tidestaff.streaming.verify.report import text
from tidestaff.streaming.verify.running import Verification

from tests.connectors.agents import agents
from tests.connectors.disk import write_log_dir
from tests.connectors.fake_brokers import ORDERS, FakeCluster
from tests.connectors.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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


class Refusing:
    """Brokers that do not know the topic any more."""

    def records(
        self, _: int, positions: Mapping[TopicPartition, int], *__: Any, **___: Any
    ) -> Mapping[TopicPartition, FetchedRecords]:
        return {each: FetchedRecords(UNKNOWN_TOPIC_OR_PARTITION) for each in positions}


def test_a_topic_that_is_deleted_in_the_middle_is_named_with_what_brokers_say() -> None:
    cluster = FakeCluster.with_topic()
    for replica in cluster.replicas.values():
        replica.leo = replica.hw = 10
    source = BrokerSource(Watched(cluster), cluster, bytes_a_second=0, agents=None, lineages=False)
    found = source.partitions(lambda _: True)
    source._wire = WireRanges(Refusing())  # type: ignore[arg-type]
    (told,) = Verification(source, stop=threading.Event()).run(found)
    assert told.verdict.outcome is Outcome.NOT_COMPARABLE
    assert all("UNKNOWN_TOPIC_OR_PARTITION" in why for _, why in told.verdict.unread)
    lines = " ".join(" ".join(text([told], Paint(colour=False))).split())
    assert "brokers 1, 2, 3 not read: orders-0 is refused with" in lines


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


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    """Of orders-0; on broker 1 offsets 1 and 2 are cleaned away."""
    found = [write_log_dir(tmp_path / f"b{b}", broker=b, orders_0=10) for b in (1, 2, 3)]
    log = found[0] / "orders-0" / f"{0:020d}.log"
    data = log.read_bytes()
    size = len(data) // 10
    log.write_bytes(data[:size] + data[3 * size :])
    return found


def with_agents(disks: list[Path], urls: str) -> tuple[BrokerSource, FakeCluster]:
    cluster = FakeCluster.with_topic()
    for replica in cluster.replicas.values():
        replica.leo = replica.hw = 10
    beside = (AgentClient(token=None, timeout_ms=5_000), parse_agents(urls))
    source = BrokerSource(
        Watched(cluster, missed_rounds=1),
        cluster,
        bytes_a_second=0,
        agents=beside,
        lineages=False,
    )
    return source, cluster


@pytest.mark.parametrize(
    ("cleaner", "outcome"),
    [
        pytest.param("0\n1\norders 0 5\n", Outcome.NOT_COMPARABLE, id="it-was-compacted-before"),
        pytest.param("half of a fi", Outcome.NOT_COMPARABLE, id="nobody-can-read-it"),
        pytest.param("0\n0\n", Outcome.DIVERGED, id="no-cleaner-was-there"),
    ],
)
def test_what_a_cleaner_did_before_the_policy_was_changed_accuses_nobody(
    disks: list[Path], cleaner: str, outcome: Outcome
) -> None:
    """The brokers call the topic not compacted."""
    (disks[0] / "cleaner-offset-checkpoint").write_text(cleaner)
    with agents(disks) as urls:
        source, _ = with_agents(disks, urls)
        found = source.partitions(lambda _: True)
        (told,) = Verification(source, stop=threading.Event()).run(found)
    assert told.verdict.outcome is outcome


def test_where_no_broker_answers_any_more_what_was_found_is_told(disks: list[Path]) -> None:
    with agents(disks) as urls:
        source, cluster = with_agents(disks, urls)
        found = source.partitions(lambda _: True)
        cluster.silent |= {1, 2, 3}
        (told,) = Verification(source, stop=threading.Event()).run(found)
    assert told.verdict.outcome is Outcome.DIVERGED
