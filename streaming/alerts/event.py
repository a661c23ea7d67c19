"""What the operator says of one finding: it is suspected, was raised, has changed, was cleared."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from tidestaff.consistency.model import HealthObservation
    from tidestaff.consistency.verdict import Violated

# The monitor itself, where a finding is about no cluster.
OWN_CLUSTER: Final = "tidestaff"
# A refused record may not even tell its cluster; it goes by the newest clock of all.
UNKNOWN_CLUSTER: Final = "(unknown)"
NO_CLUSTERS: Final = (OWN_CLUSTER, UNKNOWN_CLUSTER)


class EventKind(Enum):
    """What happened to a finding."""

    PENDING = "pending"
    RAISED = "raised"
    CHANGED = "changed"
    CLEARED = "cleared"


class Event(NamedTuple):
    """One event in the life of a finding, in event time."""

    kind: EventKind
    cluster: str
    code: str
    at_ms: int
    topic: str | None = None
    partition: int | None = None
    topic_id: str | None = None
    place: str | None = None
    broker: int | None = None
    leader_epoch: int | None = None
    since_ms: int | None = None
    expected: str = ""
    observed: str = ""
    because: str = ""
    offsets: tuple[int, int] | None = None
    evidence: dict[str, Any] | None = None
    bucket: int | None = None

    def text(self) -> str:
        """As the operator writes it."""
        fields = self._asdict()
        fields["event"] = fields.pop("kind").value
        return json.dumps(fields, separators=(",", ":"))


def event_of(payload: str) -> Event:
    """The event an output row of kind `finding` carries."""
    fields = json.loads(payload)
    offsets = fields.get("offsets")
    return Event(
        kind=EventKind(fields["event"]),
        cluster=fields["cluster"],
        code=fields["code"],
        at_ms=fields["at_ms"],
        topic=fields.get("topic"),
        partition=fields.get("partition"),
        topic_id=fields.get("topic_id"),
        place=fields.get("place"),
        broker=fields.get("broker"),
        leader_epoch=fields.get("leader_epoch"),
        since_ms=fields.get("since_ms"),
        expected=fields.get("expected") or "",
        observed=fields.get("observed") or "",
        because=fields.get("because") or "",
        offsets=(offsets[0], offsets[1]) if offsets else None,
        evidence=fields.get("evidence"),
        bucket=fields.get("bucket"),
    )


def raised_by(health: HealthObservation, found: Violated) -> Event:
    """The event of a finding that the job makes of itself."""
    return Event(
        EventKind.RAISED,
        health.cluster,
        found.code,
        health.observed_at_ms,
        place=health.place,
        broker=found.broker,
        since_ms=found.since_ms,
        expected=found.expected,
        observed=found.observed,
        because=found.because,
        evidence={"source": health.source, "observed_at_ms": health.observed_at_ms},
    )


def cleared_by(health: HealthObservation, code: str) -> Event:
    return Event(EventKind.CLEARED, health.cluster, code, health.observed_at_ms, place=health.place)
