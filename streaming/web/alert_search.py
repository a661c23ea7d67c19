"""Alerts as the page lists them. Grouped alerts may have thousands of members: those are left to
SQLite, which counts them without making Python objects of them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.streaming.alerts.alert import alert_of
from tidestaff.streaming.alerts.errors import told_as_store_errors
from tidestaff.streaming.alerts.schema import connect
from tidestaff.streaming.alerts.transition import story
from tidestaff.streaming.sinks.words import when

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_STATE: Final = "json_set(state, '$.members', json('[]')), json_extract(state, '$.active_members')"
LISTED: Final = (
    *("fingerprint", "status", "code", "name", "severity", "class", "cluster", "topic"),
    *("partition", "broker", "cause", "place", "offsets", "started_at_ms", "fired_at_ms"),
    *("resolved_at_ms", "last_seen_ms", "expected", "observed", "because", "next_step"),
    *("acknowledged", "members_count", "leader_epoch"),
)
_TIMES: Final = ("started_at_ms", "fired_at_ms", "resolved_at_ms", "last_seen_ms")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class AlertQuery:
    """Which alerts are wanted; None is any."""

    cluster: str | None = None
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    code: str | None = None
    severity: str | None = None
    status: str | None = None
    open_only: bool = False
    since_ms: int | None = None
    until_ms: int | None = None
    text: str | None = None

    def where(self) -> tuple[str, tuple[Any, ...]]:
        tests: list[tuple[str, tuple[Any, ...]]] = [("number > 0", ())]
        for name in ("cluster", "severity", "status"):
            value = getattr(self, name)
            if value is not None:
                tests.append((f"{name} = ?", (value,)))
        if self.open_only:
            tests.append(("open = 1", ()))
        if self.code is not None:
            tests.append(("substr(code, 1, ?) = ?", (len(self.code), self.code.upper())))
        if self.topic is not None and self.partition is not None:
            member = json.dumps(f"{self.topic}-{self.partition}") + ",["
            one = "topic = ? AND partition = ?"
            tests.append(
                (f"(({one}) OR instr(state, ?) > 0)", (self.topic, self.partition, member))
            )
        elif self.topic is not None:
            quoted = json.dumps(self.topic)
            tests.append(("(topic = ? OR instr(state, ?) > 0)", (self.topic, quoted)))
        if self.broker is not None:
            tests.append(("json_extract(state, '$.broker') = ?", (self.broker,)))
        if self.since_ms is not None:
            tests.append(("last_seen_ms >= ?", (self.since_ms,)))
        if self.until_ms is not None:
            tests.append(("json_extract(state, '$.started_at_ms') <= ?", (self.until_ms,)))
        if self.text:
            tests.append(self._text())
        return (
            " AND ".join(text for text, _ in tests),
            tuple(value for _, values in tests for value in values),
        )

    def _text(self) -> tuple[str, tuple[Any, ...]]:
        """Part of a topic, of a sentence, of a code's name, or the beginning of an id."""
        text = self.text or ""
        codes = [c for c, r in BY_CODE.items() if text.lower() in f"{c} {r.name}".lower()]
        listed = ", ".join(f"'{code}'" for code in codes) or "''"
        test = (
            f"(instr(coalesce(topic, ''), ?) > 0 OR code IN ({listed})"
            " OR instr(json_extract(state, '$.because'), ?) > 0"
            " OR instr(fingerprint, ?) = 1 OR instr(state, ?) > 0)"
        )
        return test, (text, text, text.lower(), json.dumps(text))


def search(
    path: Path, query: AlertQuery, *, limit: int, offset: int = 0
) -> tuple[list[dict[str, Any]], int]:
    """A page of alerts, the newest first, and how many there are."""
    where, values = query.where()
    with told_as_store_errors(path):
        db = connect(path)
        try:
            count = db.execute(f"SELECT count(*) FROM alerts WHERE {where}", values)  # noqa: S608
            total = int(count.fetchone()[0])
            rows = db.execute(
                f"SELECT {_STATE} FROM alerts WHERE {where}"  # noqa: S608
                " ORDER BY open DESC, last_seen_ms DESC, fingerprint LIMIT ? OFFSET ?",
                (*values, limit, offset),
            ).fetchall()
        finally:
            db.close()
    return [_listed(state, members) for state, members in rows], total


def _listed(state: str, members: int | None) -> dict[str, Any]:
    told = story(alert_of(state))
    told["members_count"] = members or 0
    return {name: told[name] for name in LISTED}


def as_csv(alerts: Iterable[dict[str, Any]]) -> str:
    """For a spreadsheet, which must not take a topic's name for a formula."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(LISTED)
    for alert in alerts:
        writer.writerow([_cell(name, alert[name]) for name in LISTED])
    return out.getvalue()


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in _TIMES:
        return when(value)
    if name == "offsets":
        return f"[{value[0]},{value[1]})"
    if name == "acknowledged":
        return f"{_safe(value['who'])}: {value['why']}"
    return _safe(str(value))


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
