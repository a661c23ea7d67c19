"""The outbox: transitions in the order they were told, and how far each sink has taken them.

Each delivery thread has an Outbox of its own; SQLite keeps them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.streaming.alerts.errors import told_as_store_errors
from tidestaff.streaming.alerts.event import NO_CLUSTERS
from tidestaff.streaming.alerts.schema import connect, transaction
from tidestaff.streaming.alerts.transition import transition_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidestaff.streaming.alerts.transition import Transition

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept: delivered transitions and resolved alerts by age and number, and for a sink
    that takes nothing the newest `spool_rows`."""

    days: int = 30
    rows: int = 100_000
    spool_rows: int = 50_000


class Outgoing(NamedTuple):
    """A transition on its way, with its place in the outbox of its store."""

    seq: int
    transition: Transition
    store_id: str


class SinkState(NamedTuple):
    """How a sink is doing."""

    name: str
    seq: int
    backlog: int
    delivered: int
    dropped: int
    failures: int
    failing_since_ms: int | None
    last_error: str | None


class Outbox:
    """One thread's view of the outbox."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self._db = connect(path)
        with told_as_store_errors(path):
            query = "SELECT value FROM meta WHERE key = 'store'"
            self.store_id: str = self._db.execute(query).fetchone()[0]

    def register(self, sinks: Mapping[str, bool]) -> None:
        """These sinks and no others. One that is new begins at the end of the outbox, or, where its
        value is True, at the beginning of what is kept."""
        with transaction(self._db, self.path):
            last = self._db.execute("SELECT coalesce(max(seq), 0) FROM transitions").fetchone()[0]
            known = {name for (name,) in self._db.execute("SELECT sink FROM cursors")}
            gone = [(name,) for name in known - sinks.keys()]
            self._db.executemany("DELETE FROM cursors WHERE sink = ?", gone)
            new = [(name, 0 if all_kept else last) for name, all_kept in sinks.items()]
            self._db.executemany("INSERT OR IGNORE INTO cursors (sink, seq) VALUES (?, ?)", new)

    def waiting(self, sink: str, limit: int) -> list[Outgoing]:
        """The next transitions that a sink has not taken."""
        with told_as_store_errors(self.path):
            rows = self._db.execute(
                "SELECT seq, text FROM transitions"
                " WHERE seq > (SELECT seq FROM cursors WHERE sink = ?) ORDER BY seq LIMIT ?",
                (sink, limit),
            ).fetchall()
        return [Outgoing(seq, transition_of(text), self.store_id) for seq, text in rows]

    def delivered(self, sink: str, seq: int, count: int, dropped: int = 0) -> None:
        """The sink has everything up to `seq` but what it can never take, and is well."""
        with transaction(self._db, self.path):
            self._db.execute(
                "UPDATE cursors SET seq = max(seq, ?), delivered = delivered + ?,"
                " dropped = dropped + ?, failing_since_ms = NULL, last_error = NULL WHERE sink = ?",
                (seq, count, dropped, sink),
            )

    def failed(self, sink: str, at_ms: int, error: str) -> None:
        with transaction(self._db, self.path):
            self._db.execute(
                "UPDATE cursors SET failures = failures + 1, last_error = ?,"
                " failing_since_ms = coalesce(failing_since_ms, ?) WHERE sink = ?",
                (error, at_ms, sink),
            )

    def sinks(self) -> tuple[SinkState, ...]:
        with told_as_store_errors(self.path):
            rows = self._db.execute(
                "SELECT sink, seq, (SELECT count(*) FROM transitions t WHERE t.seq > c.seq),"
                " delivered, dropped, failures, failing_since_ms, last_error"
                " FROM cursors c ORDER BY sink"
            ).fetchall()
        return tuple(SinkState(*row) for row in rows)

    def keep_spool(self, rows: int) -> dict[str, int]:
        """Drop the oldest of what waits for a sink beyond this many; tells how many by sink."""
        dropped = {state.name: state.backlog - rows for state in self.sinks()}
        dropped = {name: count for name, count in dropped.items() if count > 0}
        if not dropped:
            return {}
        with transaction(self._db, self.path):
            for name, count in dropped.items():
                self._db.execute(
                    "UPDATE cursors SET dropped = dropped + ?, seq = (SELECT seq FROM transitions"
                    " WHERE seq > cursors.seq ORDER BY seq LIMIT 1 OFFSET ?) WHERE sink = ?",
                    (count, count - 1, name),
                )
        return dropped

    def prune(self, retention: Retention) -> int:
        """Forget what every sink has taken and what is over, by age (event time) and number; where
        there are no sinks everything is taken."""
        with transaction(self._db, self.path):
            query = "SELECT max(at_ms) FROM clocks WHERE cluster NOT IN (?, ?)"
            newest = self._db.execute(query, NO_CLUSTERS).fetchone()[0]
            oldest = -1 if newest is None else newest - retention.days * DAY_MS
            pruned = self._db.execute(
                "DELETE FROM transitions WHERE"
                " seq <= (SELECT coalesce(min(seq), 9223372036854775807) FROM cursors) AND"
                " (at_ms < ? OR seq <= (SELECT max(seq) FROM transitions) - ?)",
                (oldest, retention.rows),
            ).rowcount
            over = "DELETE FROM alerts WHERE open = 0 AND last_seen_ms < ?"
            self._db.execute(over, (oldest,))
        return pruned

    def close(self) -> None:
        with told_as_store_errors(self.path):
            self._db.close()
