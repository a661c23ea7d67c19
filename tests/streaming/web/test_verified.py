"""Coverage of verification: from the digests of an observation to the page and the metrics."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.linking import Linker
from tidestaff.consistency.memory import PartitionMemory
from tidestaff.consistency.model import BatchDigest, OffsetRange
from tidestaff.streaming.metrics import Metrics
from tidestaff.streaming.operator.saving import Keeper, restore
from tidestaff.streaming.operator.viewing import View, unpacked
from tidestaff.streaming.running import covered_in
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.view.reading import PartitionFilter, StateReader
from tidestaff.streaming.view.store import StateReceiver

from tests.consistency.watch import Watch
from tests.streaming.web.test_api import answer, client_of
from tests.streaming.web.watched import CALM, Watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLUSTER, TOPIC = "new", "orders"


class Compared(Watched):
    """A cluster with partitions of ten records each, which are compared when a test says so."""

    def __init__(self, folder: Path, partitions: int = 2) -> None:
        super().__init__(folder)
        self.watches = [Watch() for _ in range(partitions)]
        self.linker = Linker()
        self.play(CALM, CLUSTER)
        for _ in range(8):
            self.round()

    def round(self, compared: dict[int, tuple[int, int]] | None = None) -> dict[str, Any]:
        """One look at all of them; what it told."""
        seen = []
        for number, watch in enumerate(self.watches):
            watch.now_ms += 5_000
            start, end = (compared or {}).get(number, (0, 0))
            watch.digests = tuple(
                BatchDigest(broker, OffsetRange(start, end), 7, 0)
                for broker in watch.replicas
                if end
            )
            known = replace(watch.observation(), cluster=CLUSTER, topic=TOPIC, partition=number)
            seen.append(known)
        self.see(self.linker.link(seen))
        (state,) = [json.loads(row.payload) for row in self.last if row.kind == "state"]
        told: dict[str, Any] = json.loads(unpacked(base64.b64decode(state["told"])))
        return told

    def shown(self, number: int = 0) -> Any:
        with StateReader(self.places.state) as reader:
            found = reader.partition(CLUSTER, TOPIC, number)
        assert found is not None
        return found["verified"]

    def ladder(self) -> dict[str, int]:
        with StateReader(self.places.state) as reader:
            return reader.ladder()[CLUSTER]


@pytest.fixture
def compared(tmp_path: Path) -> Iterator[Compared]:
    found = Compared(tmp_path / "w")
    yield found
    found.close()


def test_what_was_compared_is_shown_with_its_partition(compared: Compared) -> None:
    assert compared.shown() is None
    compared.round({0: (0, 4)})
    began_ms = compared.watches[0].now_ms
    compared.round({0: (4, 8)})
    at_ms = compared.watches[0].now_ms
    expected = {"offsets": [0, 8], "epoch": 0, "leader_epoch": 0, "share": 0.8}
    assert compared.shown() == expected | {"began_ms": began_ms, "at_ms": at_ms}
    assert compared.shown(1) is None


def test_comparing_is_told_once_and_is_no_event_of_the_past(compared: Compared) -> None:
    told = compared.round({0: (0, 4)})
    assert [doc["name"] for doc in told["docs"]] == [f"{TOPIC}-0"]
    assert told["moments"] == []
    for _ in range(3):
        told = compared.round()
        assert told["docs"] == told["moments"] == []
    with StateReader(compared.places.state) as reader:
        assert reader.moments(CLUSTER, TOPIC, 0) == []


def test_a_partition_that_was_never_compared_costs_no_state_for_it(compared: Compared) -> None:
    """What one saves of it has room for a word that is not there, and no more."""
    Keeper(compared.bucket).save()
    line = compared.bucket.partitions[CLUSTER, f"{TOPIC}-1"].packed
    assert line is not None
    place = PartitionMemory._fields.index("verified")
    assert json.loads(line.rsplit(b"\t", 1)[1])[1][place] is None


def test_clusters_count_what_was_compared_and_name_the_oldest(compared: Compared) -> None:
    assert compared.ladder()["verified"] == 0
    compared.round({1: (0, 9)})
    oldest_ms = compared.watches[1].now_ms
    compared.round({0: (0, 9)})
    ladder = compared.ladder()
    assert (ladder["verified"], ladder["verified_ms"]) == (2, oldest_ms)
    assert ladder["partitions"] == 3
    compared.round({1: (9, 10)})
    assert compared.ladder()["verified_ms"] == oldest_ms + 5_000


def test_after_a_restart_it_is_told_again(compared: Compared) -> None:
    compared.round({0: (0, 8)})
    before = compared.shown()
    compared.bucket = restore(Keeper(compared.bucket).save(), compared.bucket.limits).bucket
    compared.bucket.view = View("second")
    compared.state._db.execute("DELETE FROM partitions")
    compared.round()
    assert compared.shown() == before
    assert compared.ladder()["verified"] == 1


def deleted_by_age(watch: Watch) -> None:
    watch.all_logs(leo=20, hw=20).all_logs(start=9)


def made_again(watch: Watch) -> None:
    watch.set(topic_id="topic-id-0000000000002", czxid=99)


def cut_to_the_start(watch: Watch) -> None:
    watch.change(isr=(1, 2)).log(3, leo=0, hw=0)


@pytest.mark.parametrize("happens", [deleted_by_age, made_again, cut_to_the_start])
def test_old_coverage_is_not_shown(compared: Compared, happens: Any) -> None:
    compared.round({0: (0, 8), 1: (0, 8)})
    assert compared.ladder()["verified"] == 2
    happens(compared.watches[0])
    for _ in range(2):
        compared.round()
    assert compared.shown() is None
    assert compared.ladder()["verified"] == 1


def test_what_is_left_after_some_was_deleted_by_age(compared: Compared) -> None:
    compared.round({0: (0, 8)})
    compared.watches[0].all_logs(start=6)
    compared.round()
    assert compared.shown()["offsets"] == [6, 8]
    assert compared.shown()["share"] == 0.5


def test_partitions_that_were_never_compared_are_found(compared: Compared) -> None:
    compared.round({0: (0, 8)})
    with StateReader(compared.places.state) as reader:
        for verified, names in ((True, {(TOPIC, 0)}), (False, {(TOPIC, 1), ("t", 0)})):
            found, total = reader.partitions(PartitionFilter(verified=verified), limit=10)
            assert {(each["topic"], each["partition"]) for each in found} == names
            assert total == len(names)


def test_the_api_says_which_partitions_have_waited_longest(compared: Compared) -> None:
    with client_of(compared.places) as client:
        (nothing,) = answer(client, "coverage")["clusters"]
        compared.round({1: (0, 9)})
        compared.round({0: (0, 5)})
        (cluster,) = answer(client, "coverage")["clusters"]
        partition = answer(client, f"partitions/{CLUSTER}/{TOPIC}/0")
        search = answer(client, "partitions", verified="false")
    assert nothing["verified"]["partitions"] == 0
    assert nothing["verified"]["oldest_ms"] is None
    assert nothing["verified"]["worst"] == []
    known = cluster["verified"]
    assert (known["partitions"], known["of"]) == (2, 3)
    assert known["oldest_ms"] == compared.watches[1].now_ms - 5_000
    waiting = [(one["topic"], one["partition"]) for one in known["worst"]]
    assert waiting == [("t", 0), (TOPIC, 1), (TOPIC, 0)]
    assert known["worst"][0]["verified"] is None
    assert partition["now"]["verified"]["offsets"] == [0, 5]
    assert [each["topic"] for each in search["partitions"]] == ["t"]


def test_metrics_tell_how_many_and_how_old(compared: Compared) -> None:
    receiver = StateReceiver(compared.state, pytest.fail)
    metrics = Metrics(compared.places.alerts, now_ms=lambda: compared.watches[0].now_ms + 2_000)
    metrics.ladder = receiver.ladder

    def value(name: str) -> float | None:
        receiver.process_batch("query", compared.batch, compared.last)
        labels = {"cluster": CLUSTER}
        return metrics.registry.get_sample_value(f"tidestaff_{name}", labels)

    assert value("verified_partitions") == 0
    assert value("verification_age_seconds") is None, "nothing was compared: there is no age"
    compared.round({0: (0, 9)})
    assert value("verified_partitions") == 1
    assert value("verification_age_seconds") == 2
    compared.round({1: (0, 9)})
    assert value("verified_partitions") == 2
    assert value("verification_age_seconds") == 7


def test_metrics_name_the_partitions_of_topics_that_are_asked_for(compared: Compared) -> None:
    compared.round({0: (0, 9)})
    settings = Settings.model_validate(
        {"view": {"store": str(compared.places.state)}, "metrics": {"coverage_topics": "ord.*"}}
    )
    metrics = Metrics(compared.places.alerts, now_ms=lambda: compared.watches[0].now_ms + 2_000)

    def value(name: str, partition: int) -> float | None:
        labels = {"cluster": CLUSTER, "topic": TOPIC, "partition": str(partition)}
        return metrics.registry.get_sample_value(f"tidestaff_partition_{name}", labels)

    assert value("verified_offset", 0) is None, "nobody asked"
    metrics.covered = partial(covered_in, settings)
    assert (value("verified_offset", 0), value("verification_age_seconds", 0)) == (9, 2)
    assert value("verified_offset", 1) is None, "it was never compared"
    with StateReader(compared.places.state) as reader:
        assert reader.covered(re.compile("rders"), 10) == []
        assert reader.covered(re.compile("orders"), 0) == []


def test_what_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ValueError, match="coverage_topics"):
        Settings.model_validate({"metrics": {"coverage_topics": "a("}})
