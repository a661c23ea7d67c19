"""A transition: what the sinks are told when an alert changes its status."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.streaming.alerts.advice import next_step
from tidestaff.streaming.alerts.alert import Status
from tidestaff.streaming.alerts.identity import Kind

if TYPE_CHECKING:
    from tidestaff.streaming.alerts.alert import Alert, Member

SCHEMA_VERSION: Final = 1
MEMBERS_LISTED: Final = 20
DID_NOT_LAST: Final = "did not last"


@dataclass(frozen=True)
class Transition:
    """One step of an alert. `text` is the whole of it as canonical JSON: equal text, equal step."""

    fingerprint: str
    number: int
    at_ms: int
    status: Status
    code: str
    text: str

    @property
    def id(self) -> str:
        """Names this step for ever. The time is in it because a store that was deleted counts from
        one again."""
        return f"{self.fingerprint}-{self.number}-{self.at_ms}"

    @cached_property
    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text)
        return found

    @property
    def order(self) -> tuple[int, str, int]:
        return (self.at_ms, self.fingerprint, self.number)


def transition_of(text: str) -> Transition:
    fields = json.loads(text)
    status = Status(fields["status"])
    return Transition(
        fields["fingerprint"], fields["number"], fields["at_ms"], status, fields["code"], text
    )


def transition_from(alert: Alert, at_ms: int) -> Transition:
    """The step an alert has just made."""
    fields = {"at_ms": at_ms, "id": f"{alert.fingerprint}-{alert.number}-{at_ms}", **story(alert)}
    if alert.status is Status.RESOLVED:
        fields["evidence"] = None
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return Transition(alert.fingerprint, alert.number, at_ms, alert.status, alert.code, text)


def story(alert: Alert) -> dict[str, Any]:
    """All that is known of an alert, with the rule behind it and what to do next."""
    rule = BY_CODE[alert.code]
    return {
        "schema_version": SCHEMA_VERSION,
        "fingerprint": alert.fingerprint,
        "number": alert.number,
        "status": alert.status.value,
        "reason": alert.reason,
        "code": alert.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "class": rule.finding.value,
        "scope": rule.scope.value,
        "claim": rule.claim,
        "inputs": rule.inputs,
        "cluster": alert.cluster,
        "topic": alert.topic,
        "topic_id": alert.topic_id,
        "partition": alert.partition,
        "place": alert.place,
        "broker": alert.broker,
        "cause": alert.cause,
        "leader_epoch": alert.leader_epoch,
        "since_ms": alert.since_ms,
        "started_at_ms": alert.started_at_ms,
        "fired_at_ms": alert.fired_at_ms,
        "resolved_at_ms": alert.resolved_at_ms,
        "last_seen_ms": alert.last_seen_ms,
        "expected": alert.expected,
        "observed": alert.observed,
        "because": alert.because,
        "offsets": alert.offsets,
        "latched": alert.kind is Kind.LATCHED,
        "acknowledged": alert.ack._asdict() if alert.ack else None,
        "evidence": alert.evidence,
        "next_step": next_step(alert.code),
        "runbook": f"docs/runbooks/{alert.code}.md",
        **_members(alert),
    }


def _members(alert: Alert) -> dict[str, Any]:
    """At most twenty partitions by name, and how many there are."""
    if alert.kind is not Kind.GROUPED:
        return {"members": [], "members_count": 0, "members_affected": 0}
    active = [member for member in alert.members.values() if member.active and member.raised]
    affected = sum(member.raised for member in alert.members.values())
    listed = active or [member for member in alert.members.values() if member.raised]
    listed = listed or list(alert.members.values())
    first = heapq.nsmallest(MEMBERS_LISTED, listed, key=_by_name)
    return {
        "members": [_named(member) for member in first],
        "members_count": len(active),
        "members_affected": affected,
    }


def _by_name(member: Member) -> tuple[str, int]:
    return (member.topic or "", -1 if member.partition is None else member.partition)


def _named(member: Member) -> dict[str, Any]:
    return {
        "topic": member.topic,
        "partition": member.partition,
        "at_ms": member.at_ms,
        "observed": member.observed,
        "offsets": member.offsets,
    }
