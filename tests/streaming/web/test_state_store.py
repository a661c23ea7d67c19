"""The state store: what the operator tells is what the page shows, whatever is repeated."""

from __future__ import annotations

import base64
import json
import sqlite3
from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.alerts.batch import OutputRow
from tidestaff.streaming.alerts.errors import StoreUnreachableError
from tidestaff.streaming.operator.saving import Keeper, restore
from tidestaff.streaming.operator.viewing import View, unpacked
from tidestaff.streaming.view.limits import HistoryLimits
from tidestaff.streaming.view.numbers import table_of
from tidestaff.streaming.view.reading import PartitionFilter, StateReader
from tidestaff.streaming.view.store import MAX_WAITING, StateReceiver, StateStore

from tests.streaming.operator.histories import rows_of
from tests.streaming.web.watched import CALM, LOSS, Watched, played

if TYPE_CHECKING:
    from pathlib import Path


def content(path: Path) -> list[object]:
    db = sqlite3.connect(path)
    try:
        tables = ("clusters", "brokers", "shapes", "partitions", "moments", "buckets", "batches")
        columns = {"partitions": "cluster, topic, partition, at_ms, flags, shape, slot, doc"}
        return [
            sorted(db.execute(f"SELECT {columns.get(t, '*')} FROM {t}").fetchall())  # noqa: S608
            for t in tables
        ]
    finally:
        db.close()


def test_a_repeated_batch_changes_nothing(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w")
    for rows in played(LOSS, "c"):
        watched.see(rows)
        once = content(watched.places.state)
        watched.batch -= 1
        watched.put()
        watched.batch += 1
        assert content(watched.places.state) == once
    watched.close()


def test_settings_are_shown_with_where_they_come_from_where_the_store_knows(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path / "w").play(CALM, "c").finish()
    watched.close()
    names = ("min_insync_replicas_source", "unclean_election_source")
    with StateReader(watched.places.state) as reader:
        shown, _ = reader.partitions(PartitionFilter(), limit=1)
    assert [shown[0][name] for name in names] == ["brokers' properties"] * 2
    with sqlite3.connect(watched.places.state) as db:
        for number, text in db.execute("SELECT id, text FROM shapes").fetchall():
            older = {k: v for k, v in json.loads(text).items() if k != "sources"}
            db.execute("UPDATE shapes SET text = ? WHERE id = ?", (json.dumps(older), number))
    db.close()
    with StateReader(watched.places.state) as reader:
        shown, _ = reader.partitions(PartitionFilter(), limit=1)
    assert [shown[0][name] for name in names] == ["", ""]


def test_offsets_shown_are_those_in_memory(watched: Watched) -> None:
    with StateReader(watched.places.state) as reader:
        shown, total = reader.partitions(PartitionFilter(), limit=100)
    assert total == len(shown) == len(watched.bucket.partitions)
    for each in shown:
        name = f"{each['topic']}-{each['partition']}"
        partition = watched.bucket.partitions[each["cluster"], name]
        watched.bucket.catch_up(partition)
        memory = partition.memory
        assert memory is not None
        assert [
            (r["broker"], r["log_start"], r["high_watermark"], r["log_end"])
            for r in each["replicas"]
        ] == [
            (r.broker, r.log_start_offset, r.high_watermark, r.log_end_offset)
            for r in memory.replicas
        ]
        assert each["at_ms"] == memory.observed_at_ms
        assert each["leader"] == memory.state.leader


def test_the_past_shows_the_election_the_cut_and_the_loss(watched: Watched) -> None:
    with StateReader(watched.places.state) as reader:
        moments = reader.moments("old", "t", 0)
    leaders = [moment["leader"] for moment in moments]
    assert [a for a, b in zip([None, *leaders], leaders, strict=False) if a != b] != []
    assert list(dict.fromkeys(leaders)) == [3, 2, 1]
    cuts = [cut for moment in moments for cut in moment["truncated"]]
    assert [1, 2, 1] in cuts, "broker 1 cut from 2 to 1"
    assert moments[-1]["lost"] == [[1, 2]]
    assert "TRN001" in {f["code"] for moment in moments for f in moment["findings"]}


def test_a_cut_is_shown_before_it_happens(watched: Watched) -> None:
    with StateReader(watched.places.state) as reader:
        moments = reader.moments("old", "t", 0)
    predicted = [
        (moment["at_ms"], r["cut"]["offset"])
        for moment in moments
        for r in moment["replicas"]
        if r["broker"] == 1 and r["cut"] is not None
    ]
    assert any(offset == 1 for _, offset in predicted)


def test_partitions_of_a_calm_cluster_leave_no_trail(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w")
    rows = rows_of("3.9.1", 1, lasting_ms=20_000, faults=False)
    watched.see(rows[: len(rows) // 2])
    settled = len(content(watched.places.state)[4])
    watched.see(rows[len(rows) // 2 :])
    assert len(content(watched.places.state)[4]) == settled
    with StateReader(watched.places.state) as reader:
        shown, _ = reader.partitions(PartitionFilter(), limit=10)
    assert min(replica["log_end"] for each in shown for replica in each["replicas"]) > 0
    watched.close()


def test_history_is_bounded(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w", HistoryLimits(per_partition=3)).play(LOSS, "c")
    with StateReader(watched.places.state) as reader:
        assert len(reader.moments("c", "t", 0)) == 3
    watched.close()


def test_all_history_together_is_bounded(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w", HistoryLimits(rows=5)).play(LOSS, "c")
    watched.state._prune()
    with StateReader(watched.places.state) as reader:
        assert 0 < len(reader.moments("c", "t", 0)) <= 6
    watched.close()


def test_after_a_restart_everything_is_told_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w")
    rows = list(played(CALM, "c"))
    for each in rows[:-3]:
        watched.see(each)
    keeper = restore(Keeper(watched.bucket).save(), watched.bucket.limits)
    watched.state.close()
    for path in (tmp_path / "w").glob("state.sqlite*"):
        path.unlink()
    watched.state = StateStore(watched.places.state, HistoryLimits())
    watched.bucket = keeper.bucket
    watched.bucket.view = View("second")
    for each in rows[-3:]:
        watched.see(each)
    with StateReader(watched.places.state) as reader:
        shown, total = reader.partitions(PartitionFilter(), limit=10)
        ladder = reader.ladder()
    assert total == len(watched.bucket.partitions)
    assert ladder["c"]["partitions"] == total
    assert shown[0]["replicas"][0]["log_end"] > 0
    watched.close()


def in_another_worker(watched: Watched, keeper: Keeper, listener: str = "") -> Keeper:
    """What Spark does when it gives the bucket to another of its Python workers."""
    keeper = restore(keeper.save(), watched.bucket.limits)
    watched.bucket = keeper.bucket
    watched.bucket.view = View.resumed(keeper.told, keeper.bucket, listener)
    return keeper


@pytest.mark.parametrize("scenario", [CALM, LOSS])
def test_another_worker_goes_on_telling_where_the_last_one_ended(
    tmp_path: Path, scenario: str
) -> None:
    """In one worker, and in another one for every batch: people are shown the same."""
    one, many = Watched(tmp_path / "one"), Watched(tmp_path / "many")
    keeper = Keeper(many.bucket)
    for rows in played(scenario, "c"):
        one.see(rows)
        many.see(rows)
        keeper = in_another_worker(many, keeper)
        assert many.bucket.view is not None
    assert content(many.places.state) == content(one.places.state)
    one.close()
    many.close()


def test_another_worker_does_not_tell_all_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w")
    *rows, last = played(CALM, "c")
    for each in rows:
        watched.see(each)
    in_another_worker(watched, Keeper(watched.bucket))
    watched.see(last)
    for message in (json.loads(row.payload) for row in watched.last if row.kind == "state"):
        assert json.loads(unpacked(base64.b64decode(message["told"])))["docs"] == []
        assert message["generation"] == "first"
    watched.close()


def test_another_listener_is_told_all_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w").play(CALM, "c")
    in_another_worker(watched, Keeper(watched.bucket), "another start of the job")
    assert watched.bucket.view is None
    watched.close()


def test_slots_that_have_other_numbers_in_another_worker_are_told_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w").play(CALM, "c").play(CALM, "d")
    first, *_ = watched.bucket.partitions.values()
    watched.bucket.partitions[first.cluster, first.name] = watched.bucket.partitions.pop(
        (first.cluster, first.name)
    )
    assert watched.bucket.view is not None
    watched.bucket.view.gone(first)
    assert watched.bucket.view.saved(watched.bucket) is None
    watched.close()


def test_numbers_of_another_life_are_not_believed(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w").play(CALM, "c")
    db = watched.state._db
    db.execute("UPDATE buckets SET generation = 'other'")
    with StateReader(watched.places.state) as reader:
        shown, _ = reader.partitions(PartitionFilter(), limit=10)
    told = db.execute("SELECT at_ms FROM partitions ORDER BY cluster, topic, partition").fetchall()
    assert [each["at_ms"] for each in shown] == [at for (at,) in told]
    watched.close()


def test_numbers_are_unpacked_as_they_were(watched: Watched) -> None:
    db = sqlite3.connect(watched.places.state)
    (blob,) = db.execute("SELECT numbers FROM buckets").fetchone()
    db.close()
    table, slots = table_of(blob), watched.bucket.slots
    for slot in range(slots.count):
        count = int(slots.numbers.replicas[slot])
        assert table.offsets(slot, count) == [
            (
                int(slots.numbers.start[slot, n]),
                int(slots.numbers.watermark[slot, n]),
                int(slots.numbers.end[slot, n]),
            )
            for n in range(count)
        ]
        assert table.offsets(slot, count + 1) is None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param(PartitionFilter(cluster="old"), {("old", "t")}, id="by-cluster"),
        pytest.param(PartitionFilter(text="img src"), {("odd",)}, id="by-part-of-a-topic"),
        pytest.param(PartitionFilter(text="t-0", cluster="new"), {("new", "t")}, id="by-name"),
        pytest.param(PartitionFilter(broker=77), set(), id="by-a-broker-nobody-has"),
        pytest.param(PartitionFilter(cluster="new", broker=3), {("new", "t")}, id="by-broker"),
        pytest.param(PartitionFilter(flag="offline"), set(), id="by-flag"),
        pytest.param(PartitionFilter(topic="t' OR 1=1 --"), set(), id="a-quote-is-a-letter"),
    ],
)
def test_partitions_are_found(
    watched: Watched, wanted: PartitionFilter, found: set[tuple[str, ...]]
) -> None:
    with StateReader(watched.places.state) as reader:
        shown, total = reader.partitions(wanted, limit=100)
    assert total == len(shown)
    names = {(each["cluster"], each["topic"]) for each in shown}
    assert {name[: len(next(iter(found), ()))] for name in names} == found


def test_brokers_that_are_gone_stay_listed_as_down(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w")
    for rows in list(played(LOSS, "c"))[:-6]:
        watched.see(rows)
    with StateReader(watched.places.state) as reader:
        (cluster,) = reader.clusters()
    assert {each["broker"] for each in cluster["brokers"]} >= {1, 2, 3}
    watched.close()


def test_a_store_that_fails_does_not_stop_the_job(tmp_path: Path) -> None:
    said: list[str] = []
    watched = Watched(tmp_path / "w")
    watched.see(next(played(CALM, "c")))
    rows = watched.last
    receiver = StateReceiver(watched.state, said.append)
    watched.state._db.execute("ALTER TABLE partitions RENAME TO away")
    for batch in range(MAX_WAITING + 5):
        receiver.process_batch("query", batch, rows)
    assert len(said) == 1
    assert "state.sqlite" in said[0]
    watched.state._db.execute("ALTER TABLE away RENAME TO partitions")
    receiver.process_batch("query", 100, [OutputRow("stats", 0, "{}")])
    with StateReader(watched.places.state) as reader:
        assert reader.last_batch() == 100
    watched.close()


def test_a_store_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachableError, match="no state of partitions yet"):
        StateReader(tmp_path / "none.sqlite")
