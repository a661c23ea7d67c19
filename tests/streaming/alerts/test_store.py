"""The store keeps the book, repeats nothing, and is used by several processes at once."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING

import pytest
from tidestaff.consistency.model import HealthObservation, ProblemKind
from tidestaff.streaming.alerts import schema
from tidestaff.streaming.alerts.alert import Status
from tidestaff.streaming.alerts.errors import (
    NoSuchAlertError,
    StoreBusyError,
    StoreCorruptError,
    StoreFullError,
    StoreTakenError,
    StoreUnreachableError,
    StoreVersionError,
)
from tidestaff.streaming.alerts.event import OWN_CLUSTER
from tidestaff.streaming.alerts.outbox import Outbox, Retention
from tidestaff.streaming.alerts.reading import AlertFilter, AlertReader
from tidestaff.streaming.alerts.store import AlertStore

from tests.streaming.alerts.lives import GROUPED, LATCHED, PLAIN, POLICY, event
from tests.streaming.alerts.shop import QUERY, Shop, clock_row, finding, refused, stats

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def steps(shop: Shop) -> list[tuple[str, int]]:
    told = AlertReader(shop.path).transitions()
    return [(each.status.value, each.at_ms) for _, each in told]


def test_a_batch_that_is_repeated_changes_nothing(shop: Shop) -> None:
    rows = [finding(event("raised", 1_000))]
    first = shop.store.process_batch(QUERY, 0, rows)
    again = shop.store.process_batch(QUERY, 0, rows)
    assert (first.repeated, len(first.transitions)) == (False, 1)
    assert (again.repeated, again.transitions) == (True, ())
    assert steps(shop) == [("firing", 1_000)]


def test_two_queries_count_their_batches_apart(shop: Shop) -> None:
    shop.store.process_batch("one", 5, [finding(event("raised", 1_000))])
    report = shop.store.process_batch("two", 0, [finding(event("raised", 1_000, partition=1))])
    assert not report.repeated


def test_all_of_the_book_survives_a_restart(shop: Shop) -> None:
    shop.batch(event("raised", 1_000), event("raised", 1_000, GROUPED), event("raised", 2, LATCHED))
    shop.reopen()
    shop.batch(event("cleared", 2_000), clock=20_000)
    shop.reopen()
    shop.batch(event("raised", 16_000, GROUPED, partition=1), clock=80_000)
    assert steps(shop) == [
        ("firing", 1_000),
        ("firing", 2),
        ("firing", 6_000),
        ("resolved", 62_000),
    ]


def test_a_new_life_counts_on_after_a_restart(shop: Shop) -> None:
    shop.batch(event("raised", 1_000), event("cleared", 2_000), clock=100_000)
    shop.reopen()
    (told,) = shop.batch(event("raised", 200_000)).transitions
    assert told.number == 3


def test_a_batch_that_fails_leaves_nothing_behind(shop: Shop) -> None:
    shop.batch(event("raised", 1_000))
    shop.store._db.execute(
        "CREATE TEMP TRIGGER no BEFORE INSERT ON batches BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    with pytest.raises(StoreUnreachableError):
        shop.batch(event("cleared", 2_000), event("raised", 1_000, partition=1), clock=100_000)
    shop.store._db.execute("DROP TRIGGER temp.no")
    assert steps(shop) == [("firing", 1_000)]
    shop.batch(event("cleared", 2_000), event("raised", 1_000, partition=1), clock=100_000)
    assert steps(shop) == [("firing", 1_000), ("firing", 1_000), ("resolved", 62_000)]


def test_another_process_acknowledges_while_the_job_runs(shop: Shop) -> None:
    (told,) = shop.batch(event("raised", 1_000, LATCHED, offsets=(8, 10))).transitions
    reader = AlertReader(shop.path)
    alert = reader.acknowledge(told.fingerprint[:6], who="ann", why="on it", now_ms=77)
    assert (alert.status, alert.number) == (Status.ACKNOWLEDGED, 2)
    shop.batch(event("cleared", 2_000, LATCHED), clock=100_000)
    assert steps(shop) == [("firing", 1_000), ("acknowledged", 77), ("resolved", 62_000)]
    whole = reader.whole(told.fingerprint)
    assert [step["number"] for step in whole["history"]] == [1, 2, 3]
    assert whole["acks"] == [{"who": "ann", "at_ms": 77, "why": "on it"}]


def test_an_acknowledgement_made_while_the_job_was_down_counts(shop: Shop) -> None:
    (told,) = shop.batch(event("raised", 1_000, LATCHED)).transitions
    shop.store.close()
    AlertReader(shop.path).acknowledge(told.fingerprint, who="ann", why="", now_ms=77)
    shop.store = AlertStore(shop.path, POLICY, shop.clock)
    shop.batch(event("cleared", 2_000, LATCHED), clock=100_000)
    assert steps(shop)[-1] == ("resolved", 62_000)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        pytest.param("ffffffffffffffff", "no alert ffffffffffffffff", id="unknown"),
        pytest.param("not hex", "is no alert's id", id="not-an-id"),
        pytest.param("%", "is no alert's id", id="no-wildcards"),
    ],
)
def test_an_alert_that_is_not_there_cannot_be_acknowledged(
    shop: Shop, wanted: str, words: str
) -> None:
    with pytest.raises(NoSuchAlertError, match=words):
        AlertReader(shop.path).acknowledge(wanted, who="ann", why="", now_ms=1)


def test_an_alert_is_acknowledged_once(shop: Shop) -> None:
    (told,) = shop.batch(event("raised", 1_000)).transitions
    reader = AlertReader(shop.path)
    reader.acknowledge(told.fingerprint, who="ann", why="", now_ms=1)
    with pytest.raises(NoSuchAlertError, match="acknowledged already"):
        reader.acknowledge(told.fingerprint, who="bob", why="", now_ms=2)


@pytest.mark.parametrize(
    ("wanted", "codes"),
    [
        pytest.param(AlertFilter(), {PLAIN, GROUPED, LATCHED}, id="all"),
        pytest.param(AlertFilter(codes={PLAIN}), {PLAIN}, id="code"),
        pytest.param(AlertFilter(topic="in-a-group"), {GROUPED}, id="topic-of-a-member"),
        pytest.param(AlertFilter(topic="t"), {PLAIN, LATCHED}, id="topic"),
        pytest.param(AlertFilter(cluster="d"), {LATCHED}, id="cluster"),
        pytest.param(AlertFilter(since_ms=5_000), {LATCHED}, id="since"),
        pytest.param(AlertFilter(statuses={Status.RESOLVED}), set(), id="status"),
    ],
)
def test_alerts_are_found(shop: Shop, wanted: AlertFilter, codes: set[str]) -> None:
    shop.batch(
        event("raised", 1_000),
        event("raised", 1_000, GROUPED, topic="in-a-group"),
        event("raised", 9_000, LATCHED, cluster="d"),
        clock=50_000,
    )
    assert {alert.code for alert in AlertReader(shop.path).alerts(wanted)} == codes


def test_open_alerts_are_counted(shop: Shop) -> None:
    shop.batch(
        event("raised", 1_000), event("raised", 1_000, partition=1), event("pending", 1, "ELE001")
    )
    assert AlertReader(shop.path).counts() == {
        (PLAIN, "critical", "firing"): 2,
        ("ELE001", "critical", "pending"): 1,
    }


# --- refused records, failing sinks -------------------------------------------------------------


def test_refused_records_are_one_alert_until_there_are_none_for_a_while(shop: Shop) -> None:
    shop.rows(refused(1_000), refused(3_000), refused(2_000), clock_row(20_000))
    shop.rows(refused(40_000), clock_row(60_000))
    shop.rows(clock_row(110_000))
    assert steps(shop) == [("firing", 1_000), ("resolved", 100_000)]
    fields = AlertReader(shop.path).transitions()[0][1].fields
    assert (fields["code"], fields["place"]) == ("SRC004", "zk")
    assert "schema version 9 is not known (t-0)" in fields["observed"]
    assert len(AlertReader(shop.path).quarantine()) == 4


def test_a_refused_record_that_does_not_even_tell_its_cluster_is_reported(shop: Shop) -> None:
    shop.rows(refused(10**15, cluster="", subject=""), clock_row(20_000))
    shop.rows(clock_row(30_000))
    (fields,) = (each.fields for _, each in AlertReader(shop.path).transitions())
    assert (fields["code"], fields["cluster"], fields["at_ms"]) == (
        "SRC004",
        "(unknown)",
        20_000,
    )


@pytest.mark.parametrize(
    ("clocks", "cluster"),
    [
        pytest.param(range(0, 200_000, 5_000), "east", id="a-cluster-that-no-row-names"),
        pytest.param([1_000], "c", id="a-cluster-of-which-nothing-else-is-read"),
    ],
)
def test_refused_records_are_told_without_the_clock_of_their_cluster(
    shop: Shop, clocks: Sequence[int], cluster: str
) -> None:
    for at_ms in range(0, 200_000, 5_000):
        clock = [clock_row(at_ms, "c")] if at_ms in clocks else []
        shop.rows(*clock, refused(at_ms, cluster=cluster))
    (alert,) = AlertReader(shop.path).alerts()
    assert (alert.cluster, alert.code, alert.status) == (cluster, "SRC004", Status.FIRING)
    assert shop.store._book is not None
    assert len(shop.store._book.waiting) < 10, "what is told does not wait any more"


def test_a_refused_record_of_the_future_does_not_hurry_the_others(shop: Shop) -> None:
    shop.rows(clock_row(1_000), refused(900), refused(10**15))
    assert AlertReader(shop.path).alerts() == []


def test_quarantine_is_bounded(shop: Shop) -> None:
    for start in range(0, 3_000, 600):
        shop.rows(*(refused(start + number) for number in range(600)))
    kept = AlertReader(shop.path).quarantine(limit=5_000)
    assert len(kept) == 1_000
    assert kept[0]["at_ms"] == 2_999


def test_a_failing_sink_is_an_alert_and_resolves_by_the_wall_clock(shop: Shop) -> None:
    failing = HealthObservation(
        OWN_CLUSTER, 1_000_000, "sinks", ProblemKind.SINK_FAILING, place="webhook", reason="refused"
    )
    shop.store.report(failing)
    shop.clock.at_ms = 1_001_000
    well = HealthObservation(OWN_CLUSTER, 1_001_000, "sinks", ProblemKind.OK, place="webhook")
    shop.store.report(well)
    shop.clock.at_ms = 1_060_999
    assert shop.store.tick() == ()
    shop.clock.at_ms = 1_061_000
    shop.store.tick()
    assert steps(shop) == [("firing", 1_000_000), ("resolved", 1_061_000)]


def test_what_the_operator_counted_adds_up(shop: Shop) -> None:
    shop.rows(stats(0, rows=5, late=1, sources={"c/zk": 900}), stats(1, rows=7))
    shop.rows(stats(0, rows=1, sources={"c/zk": 1_900}))
    totals = AlertReader(shop.path).totals()
    assert (totals["rows"], totals["late"], totals["source c/zk"]) == (13, 1, 1_900)


# --- what is kept -------------------------------------------------------------------------------


def test_what_every_sink_has_taken_is_forgotten_by_age_and_number(shop: Shop) -> None:
    day = 86_400_000
    outbox = Outbox(shop.path)
    outbox.register({"a": True, "b": True})
    for number in range(10):
        shop.batch(event("raised", number * day, partition=number), clock=number * day)
    outbox.delivered("a", 10, 10)
    outbox.delivered("b", 4, 4)
    assert outbox.prune(Retention(days=6, rows=100)) == 3
    assert outbox.prune(Retention(days=100, rows=2)) == 1
    assert [seq for seq, _ in AlertReader(shop.path).transitions()] == [5, 6, 7, 8, 9, 10]


def test_without_any_sink_what_is_old_is_forgotten_too(shop: Shop) -> None:
    shop.batch(*(event("raised", 1_000, partition=number) for number in range(10)))
    assert Outbox(shop.path).prune(Retention(rows=4)) == 6


def test_open_alerts_are_never_forgotten(shop: Shop) -> None:
    outbox = Outbox(shop.path)
    outbox.register({"a": True})
    shop.batch(
        event("raised", 1_000), event("raised", 1, partition=1), event("cleared", 2, partition=1)
    )
    shop.batch(clock=10**12)
    outbox.delivered("a", 99, 9)
    outbox.prune(Retention(days=1))
    assert [alert.partition for alert in AlertReader(shop.path).alerts()] == [0]


def test_the_spool_of_a_dead_sink_is_bounded_and_counts_what_it_dropped(shop: Shop) -> None:
    outbox = Outbox(shop.path)
    outbox.register({"dead": True, "well": True})
    shop.batch(*(event("raised", 1_000, partition=number) for number in range(30)))
    outbox.delivered("well", 30, 30)
    assert outbox.keep_spool(10) == {"dead": 20}
    dead, well = outbox.sinks()
    assert (dead.backlog, dead.dropped, well.dropped) == (10, 20, 0)
    assert outbox.waiting("dead", 100)[0].seq == 21
    assert outbox.keep_spool(10) == {}


def test_a_new_sink_gets_what_is_kept_or_what_comes(shop: Shop) -> None:
    shop.batch(event("raised", 1_000))
    outbox = Outbox(shop.path)
    outbox.register({"files": True, "people": False})
    shop.batch(event("raised", 2_000, partition=1))
    assert [each.seq for each in outbox.waiting("files", 9)] == [1, 2]
    assert [each.seq for each in outbox.waiting("people", 9)] == [2]
    outbox.register({"files": False})
    assert [state.name for state in outbox.sinks()] == ["files"]


# --- what goes wrong ----------------------------------------------------------------------------


def test_an_earlier_job_is_told_that_another_took_over(shop: Shop) -> None:
    AlertStore(shop.path, POLICY, shop.clock).close()
    with pytest.raises(StoreTakenError, match="one job per store"):
        shop.batch(event("raised", 1_000))


def test_a_damaged_file_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "alerts.db"
    path.write_bytes(b"this is not a database, but it is long enough to be looked at" * 100)
    with pytest.raises(StoreCorruptError, match="move it aside"):
        AlertStore(path, POLICY, lambda: 0)


def test_damage_in_the_middle_is_called_damage(shop: Shop) -> None:
    shop.batch(*(event("raised", 1_000, partition=number) for number in range(500)))
    shop.store.close()
    with shop.path.open("r+b") as opened:
        opened.seek(4096)
        opened.write(os.urandom(os.path.getsize(shop.path) - 4096))  # noqa: PTH202
    with pytest.raises(StoreCorruptError, match="restore a backup"):
        AlertStore(shop.path, POLICY, lambda: 0)


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(StoreCorruptError, match="another program"):
        AlertStore(path, POLICY, lambda: 0)


def test_a_locked_store_says_so(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sqlite3.connect(shop.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    shop.store._db.execute("PRAGMA busy_timeout = 50")
    with pytest.raises(StoreBusyError, match="locked"):
        shop.batch(event("raised", 1_000))
    other.execute("ROLLBACK")
    other.close()
    shop.batch(event("raised", 1_000))
    assert steps(shop) == [("firing", 1_000)]


def test_a_full_disk_says_so_and_the_batch_can_be_repeated(shop: Shop) -> None:
    pages = shop.store._db.execute("PRAGMA page_count").fetchone()[0]
    shop.store._db.execute(f"PRAGMA max_page_count = {pages}")
    many = [event("raised", 1_000, partition=number) for number in range(200)]
    with pytest.raises(StoreFullError, match="free some space"):
        shop.batch(*many)
    shop.store._db.execute("PRAGMA max_page_count = 1000000")
    assert len(shop.batch(*many).transitions) == 200


def test_a_store_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachableError, match="no such file"):
        AlertReader(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachableError, match="directory exists"):
        AlertStore(tmp_path / "none" / "alerts.db", POLICY, lambda: 0)


def test_tables_of_a_newer_release_are_refused(shop: Shop) -> None:
    shop.store._db.execute("PRAGMA user_version = 99")
    shop.store.close()
    with pytest.raises(StoreVersionError, match="run the release that wrote it"):
        AlertStore(shop.path, POLICY, lambda: 0)


def test_tables_of_an_older_release_are_brought_up(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.batch(event("raised", 1_000))
    shop.store.close()
    monkeypatch.setattr(schema, "VERSION", 2)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: "ALTER TABLE alerts ADD COLUMN note TEXT"})
    reader = AlertReader(shop.path)
    assert reader._db.execute("PRAGMA user_version").fetchone() == (2,)
    assert len(reader.alerts()) == 1


def test_however_many_there_are_all_are_listed(shop: Shop) -> None:
    """The exit code of `tidestaff alerts` is the gravest of them, which may be the oldest."""
    shop.batch(*(event("raised", 1_000 + number, partition=number) for number in range(1_001)))
    reader = AlertReader(shop.path)
    assert len(reader.alerts()) == 1_001
    reader.close()
