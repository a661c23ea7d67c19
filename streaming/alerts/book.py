"""The book of all alerts: `advance(book, events, clocks)` is pure and deterministic.

Event time only. Whatever the batches the same events come in, and however the events of different
partitions interleave, the transitions are the same: an alert of one partition sees its events in
order, and where several partitions meet, events wait until the cluster's clock has passed them by
the lateness bound and are then taken in one order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.alerts.event import NO_CLUSTERS, UNKNOWN_CLUSTER, Event, EventKind
from tidestaff.streaming.alerts.identity import (
    REFUSED,
    Kind,
    fingerprint_of,
    kind_of,
    slot_of,
    waits_for_order,
)
from tidestaff.streaming.alerts.life import begun_by, doubt, is_due, may_be_lost, settle, take

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidestaff.streaming.alerts.alert import Alert
    from tidestaff.streaming.alerts.policy import AlertPolicy
    from tidestaff.streaming.alerts.transition import Transition

NOT_LOST: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Book:
    """Open alerts (resolved ones may be among them), events that wait for their turn, and how far
    each cluster's clock has come."""

    alerts: Mapping[str, Alert] = field(default_factory=dict)
    waiting: Mapping[int, Event] = field(default_factory=dict)
    clocks: Mapping[str, int] = field(default_factory=dict)
    next_waiting: int = 1


@dataclass(frozen=True, slots=True)
class Advanced:
    """The next book, what is to be told, and which alerts are not as they were."""

    book: Book
    transitions: tuple[Transition, ...]
    touched: frozenset[str]


def advance(
    book: Book,
    events: Iterable[Event],
    clocks: Mapping[str, int],
    policy: AlertPolicy,
    *,
    lost_buckets: frozenset[int] | None = NOT_LOST,
) -> Advanced:
    """Take a batch of events, and the clocks as they stand at its end. `lost_buckets` of
    the operator (None: all) began anew with this batch, and will not say of what they had found
    before that it is over."""
    work = _Work(book, policy)
    waiting, number = dict(book.waiting), book.next_waiting
    if lost_buckets is None or lost_buckets:
        work.doubt(_later(book.clocks, clocks), lost_buckets)
    for event in events:
        if waits_for_order(event.code):
            waiting[number] = event
            number += 1
        else:
            work.take(event)
    merged = _later(book.clocks, clocks)
    names = {_clock_of(event) for event in waiting.values()}
    passed = {name: _passed(merged, name, policy) for name in names}
    ripe = [key for key, event in waiting.items() if _is_ripe(event, passed[_clock_of(event)])]
    ripe.sort(key=lambda key: _order(waiting[key]))
    for key in ripe:
        work.take(waiting.pop(key))
    work.settle(merged)
    return Advanced(
        Book(work.alerts, waiting, merged, number), tuple(work.told), frozenset(work.mine)
    )


def latched_in_slot(alerts: Mapping[str, Alert], slot: str) -> list[str]:
    """The facts of one finding that are not over, oldest first."""
    found = [
        alert
        for alert in alerts.values()
        if alert.slot == slot and alert.open and alert.cleared_at_ms is None
    ]
    found.sort(key=lambda alert: (alert.started_at_ms, alert.fingerprint))
    return [alert.fingerprint for alert in found]


class _Work:
    """Copies of the alerts that change, made once each; the book that came in stays as it was."""

    def __init__(self, book: Book, policy: AlertPolicy) -> None:
        self.alerts = dict(book.alerts)
        self.policy = policy
        self.told: list[Transition] = []
        self.mine: set[str] = set()

    def take(self, event: Event) -> None:
        if kind_of(event.code) is Kind.LATCHED and event.kind is not EventKind.RAISED:
            self._take_latched(event)
            return
        fingerprint = fingerprint_of(event)
        if fingerprint not in self.alerts:
            if event.kind is EventKind.CLEARED:
                return
            self.alerts[fingerprint] = begun_by(event)
            self.mine.add(fingerprint)
        take(self._own(fingerprint), event, self.policy, self.told)

    def _take_latched(self, event: Event) -> None:
        """A loss is named by its offsets, which an event that ends it need not repeat: it ends all
        that were found there. One that changes it means the newest, unless it is about other
        offsets: then it is another loss."""
        facts = latched_in_slot(self.alerts, slot_of(event))
        if event.kind is EventKind.CHANGED and not any(
            _overlap(self.alerts[fact].offsets, event.offsets) for fact in facts[-1:]
        ):
            self.take(event._replace(kind=EventKind.RAISED))
            return
        for fingerprint in facts if event.kind is EventKind.CLEARED else facts[-1:]:
            take(self._own(fingerprint), event, self.policy, self.told)

    def doubt(self, clocks: Mapping[str, int], buckets: frozenset[int] | None) -> None:
        """What the job finds of itself is not the operator's."""
        for fingerprint, alert in list(self.alerts.items()):
            clock_ms = clocks.get(alert.cluster)
            if not alert.open or clock_ms is None or alert.cluster in NO_CLUSTERS:
                continue
            if any(may_be_lost(member, buckets) for member in alert.members.values()):
                doubt(self._own(fingerprint), clock_ms + self.policy.doubt_ms, buckets)

    def settle(self, clocks: Mapping[str, int]) -> None:
        for fingerprint, alert in list(self.alerts.items()):
            now_ms = _passed(clocks, _clock_of(alert), self.policy)
            if now_ms is not None and is_due(alert, now_ms, self.policy):
                settle(self._own(fingerprint), now_ms, self.policy, self.told)

    def _own(self, fingerprint: str) -> Alert:
        if fingerprint not in self.mine:
            self.alerts[fingerprint] = self.alerts[fingerprint].copy()
            self.mine.add(fingerprint)
        return self.alerts[fingerprint]


def _overlap(known: tuple[int, int] | None, now: tuple[int, int] | None) -> bool:
    """Whether two findings may be about the same records; those without offsets may."""
    return known is None or now is None or (known[0] < now[1] and now[0] < known[1])


def _later(clocks: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    merged = dict(clocks)
    for cluster, at_ms in others.items():
        merged[cluster] = max(at_ms, merged.get(cluster, at_ms))
    return merged


def _clock_of(about: Event | Alert) -> str:
    """Where records are refused the cluster's own clock may stand still, or be nobody's."""
    return UNKNOWN_CLUSTER if about.code == REFUSED else about.cluster


def _is_ripe(event: Event, passed_ms: int | None) -> bool:
    return passed_ms is not None and event.at_ms <= passed_ms


def _passed(clocks: Mapping[str, int], cluster: str, policy: AlertPolicy) -> int | None:
    """Up to when everything is known of a cluster; None before its clock is heard."""
    clock_ms = clocks.get(cluster)
    return None if clock_ms is None else clock_ms - policy.lateness_ms


def _order(event: Event) -> tuple[object, ...]:
    """Equal keys are events of one partition, whose order of arrival is kept; but refused records
    of one source have no order but their own words."""
    ends = event.kind is EventKind.CLEARED
    words = (event.observed, event.because, ends) if event.code == REFUSED else ()
    return (
        event.at_ms,
        event.topic or "",
        -1 if event.partition is None else event.partition,
        event.code,
        -1 if event.broker is None else event.broker,
        event.place or "",
        words,
    )
