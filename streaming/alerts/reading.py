"""What people ask of the store: which alerts there are, one of them whole, and to take one on."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidestaff.streaming.alerts.alert import Ack, Status, alert_of
from tidestaff.streaming.alerts.errors import NoSuchAlertError, told_as_store_errors
from tidestaff.streaming.alerts.life import acknowledge
from tidestaff.streaming.alerts.outbox import Outbox
from tidestaff.streaming.alerts.records import write_alerts, write_transitions
from tidestaff.streaming.alerts.schema import connect, transaction
from tidestaff.streaming.alerts.transition import story, transition_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from tidestaff.streaming.alerts.alert import Alert
    from tidestaff.streaming.alerts.outbox import SinkState
    from tidestaff.streaming.alerts.transition import Transition

FIND_ANOTHER = "list them with `tidestaff alerts`"


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """Which alerts are wanted; None is any. `since_ms` is event time: last seen or resolved then or
    later."""

    since_ms: int | None = None
    codes: Collection[str] | None = None
    topic: str | None = None
    cluster: str | None = None
    statuses: Collection[Status] | None = None

    def takes(self, alert: Alert) -> bool:
        newest = max(alert.last_seen_ms, alert.resolved_at_ms or 0)
        topics = {alert.topic, *(member.topic for member in alert.members.values())}
        return (
            (self.since_ms is None or newest >= self.since_ms)
            and (self.codes is None or alert.code in self.codes)
            and (self.topic is None or self.topic in topics)
            and (self.cluster is None or alert.cluster == self.cluster)
            and (self.statuses is None or alert.status in self.statuses)
        )


class AlertReader:
    """A second process at the store, while the job runs or when it does not."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self._db = connect(path)

    def alerts(self, wanted: AlertFilter | None = None) -> list[Alert]:
        """Newest first, all of them: an old critical one left out would make an exit code a lie. A
        group that still gathers its members has told nothing yet and is not listed."""
        found: list[Alert] = []
        with told_as_store_errors(self.path):
            for (state,) in self._db.execute(
                "SELECT state FROM alerts WHERE number > 0 ORDER BY last_seen_ms DESC, fingerprint"
            ):
                alert = alert_of(state)
                if wanted is None or wanted.takes(alert):
                    found.append(alert)
        return found

    def alert(self, fingerprint: str) -> Alert:
        """One alert, by its fingerprint or the beginning of it."""
        with told_as_store_errors(self.path):
            return alert_of(self._state(fingerprint))

    def whole(self, fingerprint: str) -> dict[str, Any]:
        """One alert with its rule, its evidence, its history and who took it on."""
        alert = self.alert(fingerprint)
        with told_as_store_errors(self.path):
            key = (alert.fingerprint,)
            steps = self._db.execute(
                "SELECT number, at_ms, status, text FROM transitions WHERE fingerprint = ?"
                " ORDER BY seq",
                key,
            ).fetchall()
            acks = self._db.execute(
                "SELECT who, at_ms, why FROM acks WHERE fingerprint = ? ORDER BY id", key
            ).fetchall()
        return {
            **story(alert),
            "history": [
                {
                    "number": number,
                    "at_ms": at_ms,
                    "status": status,
                    "reason": json.loads(text)["reason"],
                }
                for number, at_ms, status, text in steps
            ],
            "acks": [Ack(*ack)._asdict() for ack in acks],
        }

    def transitions(self, after_seq: int = 0, limit: int = 1_000) -> list[tuple[int, Transition]]:
        """The history of all alerts as far as it is kept, in the order it was told."""
        with told_as_store_errors(self.path):
            rows = self._db.execute(
                "SELECT seq, text FROM transitions WHERE seq > ? ORDER BY seq LIMIT ?",
                (after_seq, limit),
            ).fetchall()
        return [(seq, transition_of(text)) for seq, text in rows]

    def counts(self) -> Counter[tuple[str, str, str]]:
        """Open alerts by code, severity and status."""
        with told_as_store_errors(self.path):
            rows = self._db.execute(
                "SELECT code, severity, status, count(*) FROM alerts"
                " WHERE open = 1 AND number > 0 GROUP BY code, severity, status"
            ).fetchall()
        return Counter({(code, severity, status): n for code, severity, status, n in rows})

    def totals(self) -> dict[str, int]:
        """What was counted since the store was made, and `source NAME`: when it was last heard."""
        with told_as_store_errors(self.path):
            return dict(self._db.execute("SELECT name, value FROM totals"))

    def clocks(self) -> dict[str, int]:
        with told_as_store_errors(self.path):
            return dict(self._db.execute("SELECT cluster, at_ms FROM clocks"))

    def quarantine(self, limit: int = 20) -> list[dict[str, Any]]:
        """The newest refused records."""
        with told_as_store_errors(self.path):
            rows = self._db.execute(
                "SELECT record FROM quarantine ORDER BY id DESC LIMIT ?", (limit,)
            ).fetchall()
        return [json.loads(record) for (record,) in rows]

    def sinks(self) -> tuple[SinkState, ...]:
        outbox = Outbox(self.path)
        try:
            return outbox.sinks()
        finally:
            outbox.close()

    def acknowledge(self, fingerprint: str, *, who: str, why: str, now_ms: int) -> Alert:
        """Take an alert on. The job learns of it with its next batch, the sinks within a second."""
        with transaction(self._db, self.path):
            alert = alert_of(self._state(fingerprint))
            told = acknowledge(alert, Ack(who, now_ms, why))
            if not told:
                problem = f"alert {alert.fingerprint} is {alert.status.value} already"
                raise NoSuchAlertError(self.path, problem, FIND_ANOTHER)
            self._db.execute(
                "INSERT INTO acks (fingerprint, number, who, at_ms, why) VALUES (?, ?, ?, ?, ?)",
                (alert.fingerprint, alert.number, who, now_ms, why),
            )
            write_alerts(self._db, [alert])
            write_transitions(self._db, told)
        return alert

    def close(self) -> None:
        with told_as_store_errors(self.path):
            self._db.close()

    def _state(self, fingerprint: str) -> str:
        wanted = fingerprint.lower()
        if not re.fullmatch(r"[0-9a-f]{1,16}", wanted):
            problem = f"{fingerprint!r} is no alert's id (up to 16 hex digits)"
            raise NoSuchAlertError(self.path, problem, FIND_ANOTHER)
        query = "SELECT fingerprint, state FROM alerts WHERE fingerprint LIKE ? AND number > 0"
        rows = self._db.execute(query, (wanted + "%",)).fetchall()
        if len(rows) != 1:
            several = f"{len(rows)} alerts begin with {wanted}" if rows else f"no alert {wanted}"
            raise NoSuchAlertError(self.path, several, FIND_ANOTHER)
        state: str = rows[0][1]
        return state
