"""Small words for the stories of alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidestaff.streaming.alerts.book import Book, advance
from tidestaff.streaming.alerts.event import Event, EventKind
from tidestaff.streaming.alerts.policy import AlertPolicy

if TYPE_CHECKING:
    from tidestaff.streaming.alerts.transition import Transition

PLAIN, GROUPED, LATCHED = "TRN004", "ELE012", "TRN001"
POLICY = AlertPolicy(
    lateness_ms=10_000,
    group_wait_ms=5_000,
    hold_down_by_code_ms={PLAIN: 60_000, GROUPED: 60_000, LATCHED: 60_000, "SRC004": 60_000},
)


def event(kind: str, at_ms: int, code: str = PLAIN, **fields: Any) -> Event:
    """An event of t-0 in cluster c, if nothing else is said."""
    values = {"topic": "t", "partition": 0, "expected": "e", "observed": "o", "because": "b"}
    return Event(EventKind(kind), fields.pop("cluster", "c"), code, at_ms, **(values | fields))


class Diary:
    """A book that is advanced batch by batch, with all it told."""

    def __init__(self, policy: AlertPolicy = POLICY) -> None:
        self.book, self.policy = Book(), policy
        self.told: list[Transition] = []

    def batch(self, *events: Event, clock: int | None = None, **clocks: int) -> Diary:
        if clock is not None:
            clocks["c"] = clock
        done = advance(self.book, events, clocks, self.policy)
        self.book = done.book
        self.told += done.transitions
        return self

    @property
    def steps(self) -> list[tuple[str, int]]:
        return [(each.status.value, each.at_ms) for each in self.told]
