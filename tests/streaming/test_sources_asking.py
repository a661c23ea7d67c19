"""How many brokers of a cluster a collector asks at once."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import pytest
from tidestaff.connectors.broker_answers import ListedPartition
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

from tests.connectors.fake_brokers import ORDERS, FakeCluster, FakeReplica
from tests.connectors.watched import partitions

pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")

FOLLOWERS = range(2, 8)
READER: Final = "tidestaff.connectors.kafka_python_reader.KafkaPythonReader"


class Crowd:
    """Lets nobody go before as many as may be asked at once are there; counts who is."""

    def __init__(self, expected: int) -> None:
        self._meet, self._lock = threading.Barrier(expected, timeout=30), threading.Lock()
        self._there = self.most = 0

    def __call__(self, question: str) -> None:
        name, _, broker = question.partition(" ")
        if name != "fetch" or int(broker) not in FOLLOWERS:
            return
        with self._lock:
            self._there += 1
            self.most = max(self.most, self._there)
        self._meet.wait()
        # Whoever else is let in comes meanwhile.
        time.sleep(0.02)
        with self._lock:
            self._there -= 1


def _cluster() -> FakeCluster:
    """One partition, led by broker 1, with six followers."""
    brokers = (1, *FOLLOWERS)
    made = FakeCluster(live=dict.fromkeys(brokers))
    made.partitions[ORDERS] = ListedPartition(1, 0, brokers, brokers, "id-of-orders")
    for broker in brokers:
        made.replicas[broker, ORDERS] = FakeReplica(leads=broker == 1)
    return made


def _collector(**options: object) -> Any:
    source = {
        "type": "direct",
        "collector": "brokers",
        "options": {"bootstrap_servers": "somewhere:9092", **options},
    }
    return collector_of(Cluster.model_validate({"name": "east", "source": source}))


@pytest.mark.parametrize("concurrency", [1, 2, 3])
def test_no_more_brokers_are_asked_at_once_than_the_options_allow(
    concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, crowd = _cluster(), Crowd(concurrency)
    cluster.before = crowd
    monkeypatch.setattr(READER, lambda *_, **__: cluster)
    collector = _collector(concurrency=concurrency, jitter_ms=0)
    try:
        (seen,) = partitions(collector.round())
    finally:
        collector.close()
    assert len(seen.replicas) == 1 + len(FOLLOWERS)
    assert crowd.most == concurrency


def test_no_more_requests_a_second_are_sent_than_the_options_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(READER, lambda *_, **more: given.update(more) or _cluster())
    _collector(requests_per_second=50).close()
    began = time.monotonic()
    for _ in range(6):  # the reader asks its pace before each request
        given["pace"]()
    assert time.monotonic() - began >= 5 / 50 * 0.95
