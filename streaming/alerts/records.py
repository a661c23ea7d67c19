"""The book as rows: how it is read from the tables, and how a step of it is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.streaming.alerts.alert import alert_of, text_of
from tidestaff.streaming.alerts.book import Book
from tidestaff.streaming.alerts.event import event_of
from tidestaff.streaming.alerts.identity import fingerprint_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable

    from tidestaff.streaming.alerts.alert import Alert
    from tidestaff.streaming.alerts.batch import Batch
    from tidestaff.streaming.alerts.book import Advanced
    from tidestaff.streaming.alerts.event import Event
    from tidestaff.streaming.alerts.transition import Transition

QUARANTINE_KEPT: Final = 1_000
_AT_ONCE: Final = 500


def read_book(db: sqlite3.Connection) -> Book:
    """Open alerts, waiting events and clocks: all that the next step needs."""
    alerts = (alert_of(row[0]) for row in db.execute("SELECT state FROM alerts WHERE open = 1"))
    waiting = db.execute("SELECT id, event FROM waiting ORDER BY id")
    events = {number: event_of(text) for number, text in waiting}
    clocks = dict(db.execute("SELECT cluster, at_ms FROM clocks"))
    by_fingerprint = {alert.fingerprint: alert for alert in alerts}
    return Book(by_fingerprint, events, clocks, max(events, default=0) + 1)


def without_resolved(book: Book) -> Book:
    """What has to be kept in memory."""
    alerts = {key: alert for key, alert in book.alerts.items() if alert.open}
    return Book(alerts, book.waiting, book.clocks, book.next_waiting)


def with_earlier_lives(db: sqlite3.Connection, book: Book, events: Iterable[Event]) -> Book:
    """Resolved alerts that events name again: their numbers count on."""
    named = {fingerprint_of(event) for event in (*events, *book.waiting.values())}
    return with_alerts(db, book, named - set(book.alerts))


def with_alerts(db: sqlite3.Connection, book: Book, fingerprints: Collection[str]) -> Book:
    """These alerts as the tables have them."""
    wanted, found = sorted(fingerprints), dict(book.alerts)
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        marks = ",".join("?" * len(some))
        query = f"SELECT state FROM alerts WHERE fingerprint IN ({marks})"  # noqa: S608 - marks
        for (state,) in db.execute(query, some):
            alert = alert_of(state)
            found[alert.fingerprint] = alert
    return Book(found, book.waiting, book.clocks, book.next_waiting)


def write_step(db: sqlite3.Connection, before: Book, done: Advanced) -> None:
    """What has changed since `before`, and the transitions into the outbox."""
    book = done.book
    write_alerts(db, (book.alerts[key] for key in done.touched))
    write_transitions(db, done.transitions)
    gone = before.waiting.keys() - book.waiting.keys()
    db.executemany("DELETE FROM waiting WHERE id = ?", [(key,) for key in gone])
    new = [(key, book.waiting[key].text()) for key in book.waiting.keys() - before.waiting.keys()]
    db.executemany("INSERT INTO waiting VALUES (?, ?)", new)
    clocks = [pair for pair in book.clocks.items() if before.clocks.get(pair[0]) != pair[1]]
    db.executemany("INSERT OR REPLACE INTO clocks VALUES (?, ?)", clocks)


def write_alerts(db: sqlite3.Connection, alerts: Iterable[Alert]) -> None:
    rows = [
        (
            alert.fingerprint,
            int(alert.open),
            alert.status.value,
            alert.number,
            alert.cluster,
            alert.code,
            BY_CODE[alert.code].severity.value,
            alert.topic,
            alert.partition,
            alert.last_seen_ms,
            text_of(alert),
        )
        for alert in alerts
    ]
    db.executemany("INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def write_transitions(db: sqlite3.Connection, transitions: Iterable[Transition]) -> None:
    """Into the outbox, in the order they were told."""
    rows = [
        (each.fingerprint, each.number, each.at_ms, each.status.value, each.code, each.text)
        for each in transitions
    ]
    db.executemany(
        "INSERT INTO transitions (fingerprint, number, at_ms, status, code, text)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        rows,
    )


def write_counts(db: sqlite3.Connection, query_id: str, batch: Batch) -> None:
    """What the operator counted, and the newest of the refused records."""
    standing = [
        (query_id, bucket, json.dumps(stats)) for bucket, stats in batch.stats.buckets.items()
    ]
    db.executemany("INSERT OR REPLACE INTO buckets VALUES (?, ?, ?)", standing)
    add_to_totals(db, batch.stats.counted)
    newest = [(f"source {name}", at_ms) for name, at_ms in batch.stats.sources.items()]
    db.executemany("INSERT OR REPLACE INTO totals VALUES (?, ?)", newest)
    refused = [
        (each["at_ms"], each["cluster"] or "", each["source"] or "", json.dumps(each))
        for each in batch.refused[-QUARANTINE_KEPT:]
    ]
    if refused:
        db.executemany(
            "INSERT INTO quarantine (at_ms, cluster, source, record) VALUES (?, ?, ?, ?)", refused
        )
        db.execute(
            "DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - ?",
            (QUARANTINE_KEPT,),
        )


def add_to_totals(db: sqlite3.Connection, counted: dict[str, int]) -> None:
    db.executemany(
        "INSERT INTO totals VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        [(name, count) for name, count in counted.items() if count],
    )
