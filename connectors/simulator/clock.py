"""Logical time: a heap of (time, rank, sequence, event), so that ties have one order."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Event: TypeAlias = "Callable[[], None]"

_INSIDE = 0
_OUTSIDE = 1


class EventLoop:
    """Runs events in order of time; what comes from outside comes after all the cluster itself does
    in that millisecond. That is what lets a recorded run be replayed by applying its actions from
    outside."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.events = 0
        self._heap: list[tuple[int, int, int, Event]] = []
        self._sequence = 0

    def at(self, time_ms: int, event: Event, *, outside: bool = False) -> None:
        self._sequence += 1
        rank = _OUTSIDE if outside else _INSIDE
        heapq.heappush(self._heap, (max(time_ms, self.now_ms), rank, self._sequence, event))

    def after(self, delay_ms: int, event: Event) -> None:
        self.at(self.now_ms + delay_ms, event)

    def run_until(self, time_ms: int, after_each: Event) -> None:
        """Run every event up to `time_ms`, included."""
        while self._heap and self._heap[0][0] <= time_ms:
            self.now_ms, _, _, event = heapq.heappop(self._heap)
            event()
            self.events += 1
            after_each()
        self.now_ms = max(self.now_ms, time_ms)

    def settle(self, after_each: Event) -> None:
        """Run what the cluster itself still has to do in this millisecond."""
        while self._heap and self._heap[0][:2] <= (self.now_ms, _INSIDE):
            _, _, _, event = heapq.heappop(self._heap)
            event()
            self.events += 1
            after_each()
