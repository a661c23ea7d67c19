"""Transitions for sinks to take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidestaff.streaming.alerts.outbox import Outgoing

from tests.streaming.alerts.lives import GROUPED, LATCHED, Diary, event

if TYPE_CHECKING:
    from tidestaff.streaming.alerts.event import Event

STORE = "5eed"
ESCAPES = "evil\x1b]0;title\x07\x1b[2J\r\n\u202etopic"


def parcels(*events: Event, clock: int | None = None, first: int = 1) -> list[Outgoing]:
    """What these events make an outbox of."""
    told = Diary().batch(*events, clock=clock).told
    return [Outgoing(seq, each, STORE) for seq, each in enumerate(told, first)]


def many(count: int) -> list[Outgoing]:
    return parcels(*(event("raised", 1_000 + number, partition=number) for number in range(count)))


def loss(**fields: Any) -> Event:
    """The alert of README's example."""
    words = {
        "topic": "orders",
        "offsets": (8, 10),
        "broker": 2,
        "leader_epoch": 1,
        "expected": "leader LEO >= 10",
        "observed": "leader 2 LEO 8",
        "because": "offsets [8,10) were committed and are gone",
        "evidence": {"round": 7, "replicas": [{"broker": 2, "read_at_ms": 990}]},
    }
    return event("raised", 1_000, LATCHED, **(words | fields))


def life_of_a_group() -> list[Outgoing]:
    raised = [event("raised", 1_000, GROUPED, partition=n, broker=3) for n in range(25)]
    cleared = [event("cleared", 20_000, GROUPED, partition=n, broker=3) for n in range(25)]
    return parcels(*raised, *cleared, clock=200_000)
