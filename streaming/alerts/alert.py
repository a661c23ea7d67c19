"""The state of one alert, and how it is written down."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, NamedTuple

from tidestaff.streaming.alerts.identity import Kind, kind_of


class Status(Enum):
    """Where an alert stands; RESOLVED is also where it begins."""

    PENDING = "pending"
    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Member(NamedTuple):
    """One partition of an alert: since when it is suspected or raised, and until when. `doubted`
    while the operator, having lost its memory, has not found it again; `bucket` is whose memory
    that is, None where it was not written down."""

    topic: str | None
    partition: int | None
    at_ms: int
    raised: bool
    cleared_at_ms: int | None = None
    observed: str = ""
    offsets: tuple[int, int] | None = None
    doubted: bool = False
    bucket: int | None = None

    @property
    def active(self) -> bool:
        return self.cleared_at_ms is None


class Ack(NamedTuple):
    """Who took an alert on, when (wall clock) and why."""

    who: str
    at_ms: int
    why: str


@dataclass(slots=True)
class Alert:
    """One alert. `moved_at_ms` is the event time of its last transition; `fire_at_ms` is set while
    a group gathers its members, `cleared_at_ms` while the hold-down runs, `doubt_ends_ms` while
    members are doubted."""

    fingerprint: str
    slot: str
    cluster: str
    code: str
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    place: str | None = None
    broker: int | None = None
    cause: str | None = None
    status: Status = Status.RESOLVED
    number: int = 0
    started_at_ms: int = 0
    fired_at_ms: int | None = None
    resolved_at_ms: int | None = None
    last_seen_ms: int = 0
    moved_at_ms: int | None = None
    fire_at_ms: int | None = None
    cleared_at_ms: int | None = None
    doubt_ends_ms: int | None = None
    since_ms: int | None = None
    leader_epoch: int | None = None
    expected: str = ""
    observed: str = ""
    because: str = ""
    offsets: tuple[int, int] | None = None
    evidence: dict[str, Any] | None = None
    example: str = ""
    reason: str | None = None
    ack: Ack | None = None
    members: dict[str, Member] = field(default_factory=dict)
    active_members: int = 0

    @property
    def kind(self) -> Kind:
        return kind_of(self.code)

    @property
    def open(self) -> bool:
        return self.status is not Status.RESOLVED or self.fire_at_ms is not None

    def put(self, key: str, member: Member) -> None:
        """A member as it is now; there may be thousands, so the active ones are counted along."""
        self.forget(key)
        self.members[key] = member
        self.active_members += member.active

    def forget(self, key: str) -> None:
        known = self.members.pop(key, None)
        if known is not None:
            self.active_members -= known.active

    def copy(self) -> Alert:
        return replace(self, members=dict(self.members))


def text_of(alert: Alert) -> str:
    """All of it as JSON; members as arrays, since there may be thousands."""
    found = {each.name: getattr(alert, each.name) for each in fields(alert)}
    found["status"] = alert.status.value
    found["members"] = list(alert.members.items())
    return json.dumps(found, separators=(",", ":"))


def alert_of(text: str) -> Alert:
    found = json.loads(text)
    found["status"] = Status(found["status"])
    found["members"] = {key: _member(values) for key, values in found["members"]}
    found["ack"] = Ack(*found["ack"]) if found["ack"] else None
    found["offsets"] = tuple(found["offsets"]) if found["offsets"] else None
    return Alert(**found)


def _member(values: list[Any]) -> Member:
    member = Member(*values)
    return member._replace(offsets=tuple(member.offsets) if member.offsets else None)  # type: ignore[arg-type]
