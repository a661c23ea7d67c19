"""The life of one alert: what an event, the passing of time or a person does to it.

The functions change the alert they are given, which `book` has copied before, and add what is to be
told to `told`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.streaming.alerts.alert import Ack, Alert, Member, Status
from tidestaff.streaming.alerts.event import EventKind
from tidestaff.streaming.alerts.identity import (
    Kind,
    cause_of,
    fingerprint_of,
    kind_of,
    member_of,
    slot_of,
)
from tidestaff.streaming.alerts.transition import (
    DID_NOT_LAST,
    MEMBERS_LISTED,
    Transition,
    transition_from,
)

if TYPE_CHECKING:
    from tidestaff.streaming.alerts.event import Event
    from tidestaff.streaming.alerts.policy import AlertPolicy

OVER = "the condition is over"
OVER_AND_TAKEN_ON = "acknowledged, and the condition is over"


def begun_by(event: Event) -> Alert:
    """An alert that has told nothing yet."""
    alone = kind_of(event.code) is not Kind.GROUPED
    return Alert(
        fingerprint=fingerprint_of(event),
        slot=slot_of(event) if alone else "",
        cluster=event.cluster,
        code=event.code,
        topic=event.topic if alone else None,
        topic_id=event.topic_id if alone else None,
        partition=event.partition if alone else None,
        place=event.place,
        broker=event.broker,
        cause=cause_of(event),
    )


def take(alert: Alert, event: Event, policy: AlertPolicy, told: list[Transition]) -> None:
    """An event happens to its alert. What was due before the event comes first; at the same moment
    the event does."""
    settle(alert, event.at_ms - 1, policy, told)
    # Late beyond the bound: the past has been told already.
    at_ms = event.at_ms if alert.moved_at_ms is None else max(event.at_ms, alert.moved_at_ms)
    if event.kind is EventKind.PENDING:
        _suspect(alert, event, at_ms, told)
    elif event.kind is EventKind.CLEARED:
        _clear(alert, member_of(event), at_ms, told)
    elif event.kind is EventKind.RAISED or not _active(alert, event):
        _raise(alert, event, at_ms, policy, told)
    else:
        _describe(alert, event)


def settle(alert: Alert, now_ms: int, policy: AlertPolicy, told: list[Transition]) -> None:
    """What has become due by now: a group fires, a doubt or a hold-down ends."""
    if alert.fire_at_ms is not None and alert.fire_at_ms <= now_ms:
        _fire(alert, alert.fire_at_ms, told)
    if alert.doubt_ends_ms is not None and alert.doubt_ends_ms <= now_ms:
        _end_doubt(alert, alert.doubt_ends_ms, told)
    due_ms = _ends_at(alert, policy)
    if due_ms is not None and due_ms <= now_ms:
        _resolve(alert, due_ms, OVER, told)
        alert.moved_at_ms = due_ms


def is_due(alert: Alert, now_ms: int, policy: AlertPolicy) -> bool:
    """Whether `settle` would do anything."""
    due_ms = _ends_at(alert, policy) if alert.fire_at_ms is None else alert.fire_at_ms
    return any(at_ms is not None and at_ms <= now_ms for at_ms in (due_ms, alert.doubt_ends_ms))


def may_be_lost(member: Member, buckets: frozenset[int] | None) -> bool:
    """Whether what the operator knew of a member may have been lost with these buckets (None: with
    all of them). A bucket that still has its memory would never say again what it has said."""
    return member.active and (buckets is None or member.bucket is None or member.bucket in buckets)


def doubt(alert: Alert, until_ms: int, buckets: frozenset[int] | None) -> None:
    """The operator has lost its memory: what it does not find again until then is over."""
    for key, member in list(alert.members.items()):
        if may_be_lost(member, buckets):
            alert.put(key, member._replace(doubted=True))
    alert.doubt_ends_ms = until_ms


def _end_doubt(alert: Alert, at_ms: int, told: list[Transition]) -> None:
    alert.doubt_ends_ms = None
    for key in [key for key, member in alert.members.items() if member.doubted]:
        _clear(alert, key, at_ms, told)


def _ends_at(alert: Alert, policy: AlertPolicy) -> int | None:
    """When the hold-down ends; None while the alert goes on, and for a loss nobody has taken on."""
    if alert.fire_at_ms is not None or alert.cleared_at_ms is None:
        return None
    if alert.kind is Kind.LATCHED and alert.ack is None:
        return None
    ends_ms = alert.cleared_at_ms + policy.hold_down_ms(alert.code)
    return ends_ms if alert.moved_at_ms is None else max(ends_ms, alert.moved_at_ms)


def acknowledge(alert: Alert, ack: Ack) -> list[Transition]:
    """Somebody takes the alert on; a loss whose condition is over is thereby resolved.

    The times are wall clock here, so `moved_at_ms`, which is event time, stays.
    """
    told: list[Transition] = []
    if alert.status not in (Status.PENDING, Status.FIRING):
        return told
    if alert.fire_at_ms is not None:
        alert.fired_at_ms, alert.fire_at_ms = alert.fire_at_ms, None
    alert.ack, alert.reason = ack, ack.why or None
    _tell(alert, Status.ACKNOWLEDGED, ack.at_ms, told)
    if alert.kind is Kind.LATCHED and alert.cleared_at_ms is not None:
        _resolve(alert, ack.at_ms, OVER_AND_TAKEN_ON, told)
    return told


def _suspect(alert: Alert, event: Event, at_ms: int, told: list[Transition]) -> None:
    if alert.kind is Kind.LATCHED:
        return
    begins = not alert.open
    if begins:
        _begin(alert, event, at_ms)
    member = alert.members.get(member_of(event))
    if member is None or not member.active:
        alert.put(member_of(event), _member(event, at_ms, raised=False))
    alert.cleared_at_ms = None
    if begins:
        alert.moved_at_ms = at_ms
        _tell(alert, Status.PENDING, at_ms, told)


def _raise(
    alert: Alert, event: Event, at_ms: int, policy: AlertPolicy, told: list[Transition]
) -> None:
    if not alert.open:
        _begin(alert, event, at_ms)
    known = alert.members.get(member_of(event))
    since_ms = known.at_ms if known and known.active and known.raised else at_ms
    alert.put(member_of(event), _member(event, since_ms, raised=True))
    alert.cleared_at_ms = None
    if alert.fired_at_ms is None and alert.fire_at_ms is None:
        alert.example = member_of(event)
        _describe(alert, event)
        if alert.status is Status.ACKNOWLEDGED:
            # Taken on while it was a suspicion: no need to call again.
            alert.fired_at_ms = at_ms
        elif alert.kind is Kind.GROUPED:
            alert.fire_at_ms = at_ms + policy.group_wait_ms
        else:
            _fire(alert, at_ms, told)
    else:
        _describe(alert, event)


def _clear(alert: Alert, key: str, at_ms: int, told: list[Transition]) -> None:
    member = alert.members.get(key)
    if not alert.open or member is None or not member.active:
        return
    if member.raised:
        alert.put(key, member._replace(cleared_at_ms=at_ms))
    else:
        alert.forget(key)
    if alert.active_members:
        return
    if alert.fired_at_ms is None and alert.fire_at_ms is None:
        _resolve(alert, at_ms, DID_NOT_LAST, told)
        alert.moved_at_ms = at_ms
    else:
        alert.cleared_at_ms = at_ms


def _active(alert: Alert, event: Event) -> bool:
    member = alert.members.get(member_of(event))
    return alert.open and member is not None and member.active


def _begin(alert: Alert, event: Event, at_ms: int) -> None:
    """A new life of the alert; its number counts on."""
    alert.members.clear()
    alert.active_members = 0
    alert.started_at_ms, alert.since_ms = at_ms, event.since_ms
    alert.fired_at_ms = alert.resolved_at_ms = alert.cleared_at_ms = alert.ack = None
    alert.doubt_ends_ms = None
    alert.reason = alert.evidence = None
    alert.example = member_of(event)
    _describe(alert, event)


def _describe(alert: Alert, event: Event) -> None:
    """The latest words, of the one partition a group is described by."""
    alert.last_seen_ms = max(alert.last_seen_ms, event.at_ms)
    if alert.example != member_of(event):
        return
    alert.expected, alert.observed, alert.because = event.expected, event.observed, event.because
    alert.offsets, alert.leader_epoch = event.offsets, event.leader_epoch
    alert.since_ms = event.since_ms if event.since_ms is not None else alert.since_ms
    alert.evidence = event.evidence or alert.evidence


def _fire(alert: Alert, at_ms: int, told: list[Transition]) -> None:
    alert.fire_at_ms, alert.fired_at_ms = None, at_ms
    alert.moved_at_ms = at_ms
    _tell(alert, Status.FIRING, at_ms, told)


def _resolve(alert: Alert, at_ms: int, reason: str, told: list[Transition]) -> None:
    alert.resolved_at_ms, alert.reason, alert.cleared_at_ms = at_ms, reason, None
    _tell(alert, Status.RESOLVED, at_ms, told)
    # What is over is kept by its first names, not by all of them.
    kept = sorted(alert.members.items())[:MEMBERS_LISTED]
    alert.members, alert.active_members = dict(kept), 0


def _tell(alert: Alert, status: Status, at_ms: int, told: list[Transition]) -> None:
    alert.status = status
    alert.number += 1
    told.append(transition_from(alert, at_ms))


def _member(event: Event, at_ms: int, *, raised: bool) -> Member:
    return Member(
        event.topic,
        event.partition,
        at_ms,
        raised=raised,
        observed=event.observed,
        offsets=event.offsets,
        bucket=event.bucket,
    )
