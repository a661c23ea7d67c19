"""How long `tidestaff what-if` looks at a live cluster before it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidestaff.connectors.broker_answers import Quorum, Voter
from tidestaff.streaming.what_if import seen

from tests.connectors.fake_brokers import FakeCluster
from tests.connectors.watched import Watched

if TYPE_CHECKING:
    import pytest
    from tidestaff.connectors.brokers import BrokerConnector
    from tidestaff.streaming.what_if.seen import Seen


class Looked:
    """A cluster of three brokers, and how many rounds it was looked at."""

    def __init__(self, partitions: int, patch: pytest.MonkeyPatch) -> None:
        self.cluster = FakeCluster.with_topic(partitions=partitions)
        for replica in self.cluster.replicas.values():
            replica.leo = replica.hw = 10
        self._watched = Watched(self.cluster, header_fetches=1)
        patch.setattr("tidestaff.streaming.sources.collecting.collector_of", self._collector)
        patch.setattr(seen, "BETWEEN_ROUNDS_S", 0)

    def _collector(self, _: Any) -> BrokerConnector:
        return self._watched.connector

    def out_of_sync(self, broker: int) -> None:
        for partition, known in self.cluster.partitions.items():
            isr = tuple(each for each in known.isr if each != broker)
            self.cluster.partitions[partition] = known._replace(isr=isr)

    def live(self) -> Seen:
        class Named:
            name = "west"

        return seen.live(Named())  # type: ignore[arg-type]

    @property
    def rounds(self) -> int:
        return self._watched.connector.rounds


def test_of_members_of_the_isr_no_lineage_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One fetch a round reads 32 partitions; there are more."""
    looked = Looked(100, monkeypatch)
    found = looked.live()
    assert len(found.partitions) == 100
    assert looked.rounds == 2
    assert looked.cluster.asked["batches"] <= 3


def test_lineages_of_replicas_out_of_sync_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(40, monkeypatch)
    looked.out_of_sync(3)
    found = looked.live()
    told = [r.lineage for o in found.partitions for r in o.replicas if r.broker == 3]
    assert None not in told
    assert looked.rounds > 2


def test_a_lineage_that_cannot_be_known_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its batches are of a format without epochs."""
    looked = Looked(1, monkeypatch)
    looked.out_of_sync(3)
    for (broker, _), replica in looked.cluster.replicas.items():
        if broker == 3:
            replica.lineage = ((-1, 0),)
    looked.live()
    assert looked.rounds == 4


def test_an_empty_log_has_no_lineage_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(1, monkeypatch)
    looked.out_of_sync(3)
    for replica in looked.cluster.replicas.values():
        replica.leo = replica.hw = 0
    looked.live()
    assert looked.rounds == 2


def test_who_elects_the_controller_is_told_by_a_live_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = Looked(1, monkeypatch)
    looked.cluster.leader_of_quorum = Quorum(1, 5, voters=(Voter(1, 9), Voter(4, 9)))
    assert looked.live().voters == (1, 4)


def test_a_voter_that_is_away_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(1, monkeypatch)
    leader = Voter(1, 9, last_fetch_ms=50_000, last_caught_up_ms=50_000)
    away = Voter(4, 9, last_fetch_ms=20_000, last_caught_up_ms=20_000)
    looked.cluster.leader_of_quorum = Quorum(1, 5, voters=(leader, away))
    assert looked.live().silent_voters == (4,)
