"""The alert store: the book in SQLite, advanced by one transaction a batch, and the outbox.

One job writes it; the delivery threads, the command line and the web page read it and acknowledge
at the same time (write-ahead log). A batch that Spark repeats after a crash changes nothing.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.checks.sources import sinks_are_reached
from tidestaff.consistency.verdict import Violated
from tidestaff.streaming.alerts.batch import BatchStats, batch_of, refusals
from tidestaff.streaming.alerts.book import NOT_LOST, advance
from tidestaff.streaming.alerts.errors import StoreTakenError, told_as_store_errors
from tidestaff.streaming.alerts.event import (
    NO_CLUSTERS,
    OWN_CLUSTER,
    UNKNOWN_CLUSTER,
    cleared_by,
    raised_by,
)
from tidestaff.streaming.alerts.records import (
    read_book,
    with_alerts,
    with_earlier_lives,
    without_resolved,
    write_counts,
    write_step,
)
from tidestaff.streaming.alerts.schema import connect, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tidestaff.consistency.model import HealthObservation
    from tidestaff.streaming.alerts.alert import Alert
    from tidestaff.streaming.alerts.batch import OutputRow
    from tidestaff.streaming.alerts.book import Book
    from tidestaff.streaming.alerts.event import Event
    from tidestaff.streaming.alerts.policy import AlertPolicy
    from tidestaff.streaming.alerts.transition import Transition

SINK_FAILING: Final = "SRC005"


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one batch did to the store; `repeated` when it had been done before. `findings` counts
    events by code and kind."""

    batch_id: int
    repeated: bool = False
    events: int = 0
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)
    transitions: tuple[Transition, ...] = ()
    stats: BatchStats = field(default_factory=BatchStats)


class AlertStore:
    """The writer's side. Whoever opens it last is the job; an earlier one is told so and stops."""

    def __init__(self, path: Path | str, policy: AlertPolicy, now_ms: Callable[[], int]) -> None:
        self.path = Path(path)
        self._policy, self._now_ms = policy, now_ms
        self._lock = threading.Lock()
        self._token = secrets.token_hex(8)
        self._book: Book | None = None
        self._acks_seen = 0
        self._db = connect(self.path, create=True)
        with transaction(self._db, self.path):
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('writer', ?)", (self._token,))
        with self._writing():
            pass

    def process_batch(self, query_id: str, batch_id: int, rows: Iterable[OutputRow]) -> BatchReport:
        """Take the operator's output of one micro-batch. Repeating it is harmless."""
        batch = batch_of(rows)
        with self._writing() as book:
            if self._is_done(query_id, batch_id):
                return BatchReport(batch_id, repeated=True)
            clocks = batch.stats.clocks | {OWN_CLUSTER: self._own_clock()}
            known = [at_ms for name, at_ms in book.clocks.items() if name not in NO_CLUSTERS]
            now_ms = self._now_ms()
            refused = [each["at_ms"] for each in batch.refused if 0 <= each["at_ms"] <= now_ms]
            newest_ms = max((*known, *batch.stats.clocks.values(), *refused), default=None)
            if newest_ms is not None:
                clocks[UNKNOWN_CLUSTER] = newest_ms
            events = [*batch.events, *refusals(batch.refused, newest_ms)]
            lost = None if self._is_new(query_id) else frozenset(batch.stats.rebuilt)
            told = self._advance(book, events, clocks, lost_buckets=lost)
            write_counts(self._db, query_id, batch)
            self._db.execute("INSERT OR REPLACE INTO batches VALUES (?, ?)", (query_id, batch_id))
        return BatchReport(
            batch_id,
            events=len(batch.events),
            findings=Counter((event.code, event.kind.value) for event in batch.events),
            transitions=told,
            stats=batch.stats,
        )

    def last_batch(self, query_id: str) -> int | None:
        """The newest batch of this query that was taken; None where nothing is known of it."""
        with self._lock, told_as_store_errors(self.path):
            return self._last_batch(query_id)

    def set_back(self, query_id: str, batch_id: int) -> None:
        """Batches beyond this one are other ones when they come again."""
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO batches VALUES (?, ?)", (query_id, batch_id))

    def report(self, health: HealthObservation) -> tuple[Transition, ...]:
        """Take a finding that the job makes of itself: a sink fails, or is well again."""
        found = [raised_by(health, each) for each in _violations(health)]
        events = found or [cleared_by(health, SINK_FAILING)]
        with self._writing() as book:
            return self._advance(book, events, {OWN_CLUSTER: self._own_clock()})

    def tick(self) -> tuple[Transition, ...]:
        """Time passes for the job's own alerts, whether batches come or not."""
        with self._writing() as book:
            return self._advance(book, [], {OWN_CLUSTER: self._own_clock()})

    def open_alerts(self) -> tuple[Alert, ...]:
        """Alerts that are not over, as this job knows them."""
        with self._lock, told_as_store_errors(self.path):
            book = read_book(self._db) if self._book is None else self._book
            return tuple(book.alerts.values())

    def close(self) -> None:
        with self._lock, told_as_store_errors(self.path):
            self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[Book]:
        """The book within a transaction. If that fails, memory is not to be trusted: the next one
        reads the book again."""
        with self._lock:
            book, self._book = self._book, None
            self._next: Book | None = None
            with transaction(self._db, self.path):
                self._check_writer()
                book = read_book(self._db) if book is None else book
                book = self._with_acks(book)
                yield book
            self._book = without_resolved(self._next or book)

    def _advance(
        self,
        book: Book,
        events: list[Event],
        clocks: Mapping[str, int],
        *,
        lost_buckets: frozenset[int] | None = NOT_LOST,
    ) -> tuple[Transition, ...]:
        book = with_earlier_lives(self._db, book, events)
        done = advance(book, events, clocks, self._policy, lost_buckets=lost_buckets)
        write_step(self._db, book, done)
        self._next = done.book
        return done.transitions

    def _with_acks(self, book: Book) -> Book:
        """Other processes acknowledge in the tables; what they touched is read again."""
        query = "SELECT id, fingerprint FROM acks WHERE id > ? ORDER BY id"
        acks = self._db.execute(query, (self._acks_seen,)).fetchall()
        if not acks:
            return book
        self._acks_seen = acks[-1][0]
        return with_alerts(self._db, book, {fingerprint for _, fingerprint in acks})

    def _is_done(self, query_id: str, batch_id: int) -> bool:
        last = self._last_batch(query_id)
        return last is not None and batch_id <= last

    def _is_new(self, query_id: str) -> bool:
        """A checkpoint made anew, with nothing of what the operator knew before."""
        return self._last_batch(query_id) is None

    def _last_batch(self, query_id: str) -> int | None:
        query = "SELECT batch_id FROM batches WHERE query_id = ?"
        row = self._db.execute(query, (query_id,)).fetchone()
        return None if row is None else int(row[0])

    def _check_writer(self) -> None:
        row = self._db.execute("SELECT value FROM meta WHERE key = 'writer'").fetchone()
        if row != (self._token,):
            raise StoreTakenError(
                self.path,
                "another job has opened it since",
                "run one job per store: end this one, or give it a store of its own",
            )

    def _own_clock(self) -> int:
        return self._now_ms() + self._policy.lateness_ms


def _violations(health: HealthObservation) -> Iterable[Violated]:
    return (found for found in sinks_are_reached(health) if isinstance(found, Violated))
