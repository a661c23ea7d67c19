"""How often a cluster is asked: a limit of requests, and rest for what does not answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Hashable

Place = TypeVar("Place", bound="Hashable")


class Pace:
    """At most so many requests a second, evenly spread, whoever sends them."""

    def __init__(
        self,
        per_second: float,
        now_ms: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._every_ms = 1_000 / per_second
        self._now_ms, self._sleep = now_ms, sleep
        self._free_at_ms = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Comes back when the next request may be sent."""
        with self._lock:
            now_ms = self._now_ms()
            at_ms = max(now_ms, self._free_at_ms)
            self._free_at_ms = at_ms + self._every_ms
        if at_ms > now_ms:
            self._sleep((at_ms - now_ms) / 1_000)


class Rest(Generic[Place]):
    """Who failed is left alone for a while: twice as long each time, with some chance in it."""

    def __init__(self, first_ms: int, longest_ms: int, chance: random.Random) -> None:
        self._first_ms, self._longest_ms, self._chance = first_ms, longest_ms, chance
        self._failures: dict[Place, tuple[int, float]] = {}

    def failed(self, place: Place, now_ms: int) -> None:
        count = self._failures.get(place, (0, 0.0))[0] + 1
        pause_ms = min(self._first_ms * 2 ** min(count - 1, 20), self._longest_ms)
        self._failures[place] = (count, now_ms + pause_ms * self._chance.uniform(0.8, 1.0))

    def succeeded(self, place: Place) -> None:
        self._failures.pop(place, None)

    def resting(self, place: Place, now_ms: int) -> bool:
        return place in self._failures and now_ms < self._failures[place][1]


class ByteRate:
    """At most so many bytes a second; who is too fast waits before he reads on."""

    def __init__(
        self,
        per_second: float,
        now_s: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._per_second, self._now_s, self._sleep = per_second, now_s, sleep
        self._free_at_s = 0.0
        self._lock = threading.Lock()
        self.passed = 0
        """Bytes so far, for whoever shows how far it has come."""

    def wait(self, size: int) -> None:
        """Comes back when these bytes may be read."""
        with self._lock:
            self.passed += size
            if not self._per_second:
                return
            now_s = self._now_s()
            at_s = max(now_s, self._free_at_s)
            self._free_at_s = at_s + size / self._per_second
        if at_s > now_s:
            self._sleep(at_s - now_s)
