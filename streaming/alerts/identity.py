"""Which events are about the same alert."""

from __future__ import annotations

import hashlib
import json
from enum import Enum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.verdict import FindingClass, Scope, Severity

if TYPE_CHECKING:
    from tidestaff.streaming.alerts.event import Event

GROUPED_CLASSES: Final = (
    FindingClass.AVAILABILITY,
    FindingClass.EXPOSURE,
    FindingClass.FORECAST,
)
REFUSED: Final = "SRC004"
GROUPED_CODES: Final = ("SRC006",)


class Kind(Enum):
    """PLAIN: one finding, one alert. GROUPED: one alert for all partitions that one cause hits.
    LATCHED: a proven loss, a fact of its own that does not end by itself."""

    PLAIN = "plain"
    GROUPED = "grouped"
    LATCHED = "latched"


@cache
def kind_of(code: str) -> Kind:
    rule = BY_CODE[code]
    if rule.finding is FindingClass.LOSS and rule.severity is Severity.CRITICAL:
        return Kind.LATCHED
    if rule.scope is Scope.PARTITION and rule.finding in GROUPED_CLASSES:
        return Kind.GROUPED
    if code in GROUPED_CODES:
        return Kind.GROUPED
    return Kind.PLAIN


@cache
def waits_for_order(code: str) -> bool:
    """Whether events of several partitions meet in one alert, so that their order must be made.

    Refused records of one source come from any bucket.
    """
    return kind_of(code) is Kind.GROUPED or code == REFUSED


def cause_of(event: Event) -> str | None:
    """What a grouped alert is grouped by; None for the others."""
    if kind_of(event.code) is not Kind.GROUPED:
        return None
    return "cluster" if event.broker is None else f"broker {event.broker}"


def fingerprint_of(event: Event) -> str:
    """Sixteen hex digits that name the alert for ever."""
    kind = kind_of(event.code)
    if kind is Kind.GROUPED:
        return _digest(event.cluster, event.code, cause_of(event))
    if kind is Kind.LATCHED:
        fact = event.leader_epoch if event.offsets is None else event.offsets
        return _digest(*_subject(event), fact)
    return slot_of(event)


def slot_of(event: Event) -> str:
    """The finding an event is about, whatever it found there: all facts of one slot are cleared
    together."""
    return _digest(*_subject(event))


def member_of(event: Event) -> str:
    """The partition (and broker) within its alert."""
    if kind_of(event.code) is not Kind.GROUPED:
        return ""
    return f"{event.topic}-{event.partition}"


def _subject(event: Event) -> tuple[str | int | None, ...]:
    return (
        event.cluster,
        event.code,
        event.topic,
        event.topic_id,
        event.partition,
        event.place,
        event.broker,
    )


@lru_cache(maxsize=65_536)
def _digest(*fields: object) -> str:
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:16]
