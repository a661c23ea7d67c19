"""Prometheus Alertmanager, by its v2 API.

Alertmanager holds the state: the same labels are the same alert, however often they are sent, and
one that is not sent again within its resolve_timeout is taken for resolved. So firing alerts are
sent again and again.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.alerts.transition import story
from tidestaff.streaming.sinks.http import Poster
from tidestaff.streaming.sinks.webhook import runbook_url
from tidestaff.streaming.sinks.words import details_of, harmless, members_of, summary_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.streaming.alerts.alert import Alert
    from tidestaff.streaming.alerts.outbox import Outgoing

PATH: Final = "/api/v2/alerts"
# The end of the year 9999.
_LAST_MS: Final = 253_402_300_799_000
# What makes an alert this one: none of it changes between firing and resolved.
_LABELS: Final = (
    *("code", "severity", "class", "cluster", "topic", "partition", "broker", "place", "cause"),
    "fingerprint",
)


class AlertmanagerSink:
    """Sends alerts as they stand; of several steps of one alert the last counts."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "alertmanager",
        labels: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        runbook_base: str = "",
        refresh_every_s: float = 60.0,
        timeout_s: float = 5.0,
    ) -> None:
        self.name = name
        self.refresh_every_s = refresh_every_s
        self._labels, self._runbook_base = dict(labels or {}), runbook_base
        self._poster = Poster(name, url.rstrip("/") + PATH, headers or {}, timeout_s)

    def deliver(self, outgoing: Sequence[Outgoing]) -> None:
        last = {each.transition.fingerprint: each.transition.fields for each in outgoing}
        self._post([self.alert_of(fields) for fields in last.values()])

    def refresh(self, firing: Sequence[Alert]) -> None:
        if firing:
            self._post([self.alert_of(story(alert)) for alert in firing])

    def close(self) -> None:
        """Every request has a connection of its own."""

    def alert_of(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """One alert as the API takes it."""
        own = {"alertname": fields["name"], **{name: fields[name] for name in _LABELS}}
        found = {
            "labels": self._labels | {k: str(v) for k, v in own.items() if v not in (None, "")},
            "annotations": self._annotations(fields),
            "startsAt": _instant(fields["started_at_ms"]),
        }
        if fields["status"] == "resolved":
            ends_ms = max(fields["resolved_at_ms"], fields["started_at_ms"])
            found["endsAt"] = _instant(ends_ms)
        return found

    def _annotations(self, fields: Mapping[str, Any]) -> dict[str, str]:
        details = details_of(fields)
        found = {
            "summary": summary_of(fields),
            "description": "\n".join(f"{label}: {text}" for label, text in details),
            "next_step": fields["next_step"],
            "runbook": fields["runbook"],
            "runbook_url": runbook_url(self._runbook_base, fields["code"]),
            "offsets": "[{},{})".format(*fields["offsets"]) if fields["offsets"] else "",
            "members": members_of(fields) if fields["members"] else "",
            "members_count": str(fields["members_count"]) if fields["members"] else "",
            "acknowledged_by": (fields["acknowledged"] or {}).get("who", ""),
        }
        return {name: harmless_lines(text) for name, text in found.items() if text}

    def _post(self, alerts: list[dict[str, Any]]) -> None:
        self._poster.post(json.dumps(alerts).encode(), {"Content-Type": "application/json"})


def harmless_lines(text: str) -> str:
    return "\n".join(harmless(line) for line in text.split("\n"))


def _instant(at_ms: int) -> str:
    """A damaged time becomes the nearest one there is: it must not keep an alert back."""
    at_ms = min(max(at_ms, 0), _LAST_MS)
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
