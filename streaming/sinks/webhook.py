"""A POST for every transition, its body made from a template.

A template is text with $names; `FIELDS` lists them. What comes from outside is escaped for a JSON
string, `$json` is the whole transition as a JSON object. The default is a message for Slack's
incoming webhooks (and those of Mattermost and Rocket.Chat).
"""

from __future__ import annotations

import json
from string import Template
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.sinks.http import Poster
from tidestaff.streaming.sinks.sink import TAIL, SinkError
from tidestaff.streaming.sinks.words import details_of, members_of, summary_of, when

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.streaming.alerts.outbox import Outgoing
    from tidestaff.streaming.alerts.transition import Transition

SLACK: Final = '{"text": "$slack_text"}'

PLAIN_FIELDS: Final = (
    *("id", "fingerprint", "number", "status", "reason", "code", "name", "severity", "class"),
    *("claim", "cluster", "topic", "partition", "place", "broker", "cause", "leader_epoch"),
    *("expected", "observed", "because", "members_count", "next_step", "runbook"),
)
FIELDS: Final = {
    **{name: f"the transition's {name}; empty where it has none" for name in PLAIN_FIELDS},
    "at": "when it happened, UTC",
    "since": "since when the condition holds, UTC",
    "offsets": "the offsets concerned, [start,end)",
    "members": "the partitions of a group, the first twenty by name",
    "summary": "one line: code, name, severity and where",
    "text": "several lines: the summary, what was expected and observed, what to do",
    "slack_text": "the same, escaped for Slack",
    "runbook_url": "address of the runbook page, if a base address is configured",
    "json": "the whole transition as a JSON object, not as a string",
}


class WebhookSink:
    """Posts transitions one by one, in order. Each carries an Idempotency-Key, by which a receiver
    knows one that it is sent again after a crash."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "webhook",
        template: str | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        runbook_base: str = "",
        timeout_s: float = 5.0,
    ) -> None:
        self.name = name
        self._template = Template(template or SLACK)
        self._content_type, self._runbook_base = content_type, runbook_base
        self._check_template()
        self._poster = Poster(name, url, headers or {}, timeout_s)
        self._sent: dict[str, None] = {}

    def deliver(self, outgoing: Sequence[Outgoing]) -> None:
        for each in outgoing:
            key = each.transition.id
            if key in self._sent:
                continue
            headers = {"Content-Type": self._content_type, "Idempotency-Key": key}
            self._poster.post(self.body(each.transition).encode(), headers)
            self._sent[key] = None
            if len(self._sent) > TAIL:
                del self._sent[next(iter(self._sent))]

    def close(self) -> None:
        """Every request has a connection of its own."""

    def body(self, transition: Transition) -> str:
        return self._template.substitute(_values(transition, self._runbook_base))

    def _check_template(self) -> None:
        remedy = f"it may hold these: {', '.join(sorted(FIELDS))}; write $$ for a dollar sign"
        if not self._template.is_valid():
            raise SinkError(self.name, "its template has a $ that begins no name", remedy)
        strange = sorted(set(self._template.get_identifiers()) - set(FIELDS))
        if strange:
            raise SinkError(self.name, f"its template has {', '.join(strange)}", remedy)
        if "json" in self._content_type:
            sample = self._template.substitute({**dict.fromkeys(FIELDS, "x"), "json": "{}"})
            try:
                json.loads(sample)
            except ValueError as error:
                problem = f"its template does not make JSON ({error})"
                remedy = 'put each $name between quotes, as in {"text": "$summary"}'
                raise SinkError(self.name, problem, remedy) from None


def text_of(fields: Mapping[str, Any]) -> str:
    """Several lines for people."""
    lines = [f"{fields['status'].upper()}: {summary_of(fields)}"]
    if fields["status"] == "resolved":
        return f"{lines[0]} ({fields['reason']})"
    return "\n".join([*lines, *(f"{label}: {text}" for label, text in details_of(fields))])


def _values(transition: Transition, runbook_base: str) -> dict[str, str]:
    fields = transition.fields
    values: dict[str, Any] = {name: fields[name] for name in PLAIN_FIELDS}
    text = text_of(fields)
    values |= {
        "at": when(fields["at_ms"]),
        "since": when(fields["since_ms"]) if fields["since_ms"] is not None else "",
        "offsets": "[{},{})".format(*fields["offsets"]) if fields["offsets"] else "",
        "members": members_of(fields) if fields["members"] else "",
        "summary": summary_of(fields),
        "text": text,
        # Slack's own escapes; without them a topic could ping a whole channel.
        "slack_text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
        "runbook_url": runbook_url(runbook_base, fields["code"]),
    }
    escaped = {name: _in_json_string(value) for name, value in values.items()}
    return {**escaped, "json": transition.text}


def runbook_url(base: str, code: str) -> str:
    """The page of a code below the configured address; empty without one."""
    return f"{base.rstrip('/')}/{code}.md" if base else ""


def _in_json_string(value: object) -> str:
    return json.dumps("" if value is None else str(value))[1:-1]
