"""A broker connector on a cluster of plain values, and what its rounds hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidestaff.connectors.broker_options import BrokerOptions
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.consistency.model import (
    ClusterObservation,
    HealthObservation,
    PartitionObservation,
)

if TYPE_CHECKING:
    from tidestaff.consistency.model import Observation

    from tests.connectors.fake_brokers import FakeCluster

ROUND_MS = 5_000


class Watched:
    """A connector whose clock moves by one round at a time."""

    def __init__(self, cluster: FakeCluster, **options: Any) -> None:
        self.cluster, self.now_ms = cluster, 1_000_000
        made = BrokerOptions("somewhere:9092", **{"jitter_ms": 0, "burst_rounds": 0, **options})
        self.connector = BrokerConnector(
            cluster, "west", made, now_ms=lambda: self.now_ms, sleep=self._sleep, seed=1
        )

    def _sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1_000)

    def round(self) -> list[Observation]:
        self.now_ms += ROUND_MS
        return self.connector.round()

    def partition(self) -> PartitionObservation:
        (found,) = partitions(self.round())
        return found


def partitions(seen: list[Observation]) -> list[PartitionObservation]:
    return [each for each in seen if isinstance(each, PartitionObservation)]


def health(seen: list[Observation]) -> list[HealthObservation]:
    return [each for each in seen if isinstance(each, HealthObservation)]


def cluster_of(seen: list[Observation]) -> ClusterObservation:
    (found,) = [each for each in seen if isinstance(each, ClusterObservation)]
    return found
