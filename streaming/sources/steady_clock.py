"""Time that never goes back, and what a collector tells of itself.

A row that is older than the last one of its subject says nothing. So where the machine's clock is
set back, times go on from where they were, a little slower than the clock, until it has caught up.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.broker_health import HealthBook, Problem
from tidestaff.connectors.errors import ConnectorError
from tidestaff.consistency.model import ProblemKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidestaff.consistency.model import HealthObservation

TOLERATED_MS: Final = 1_000
_RATE_WHILE_AHEAD: Final = 0.99


class SteadyClock:
    """The wall clock, but never back."""

    def __init__(
        self,
        wall_ms: Callable[[], float] = lambda: time.time() * 1_000,
        monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1_000,
    ) -> None:
        self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
        self._lock = threading.Lock()
        self._at_ms = wall_ms()
        self._heard_ms = monotonic_ms()

    def __call__(self) -> int:
        with self._lock:
            heard_ms = self._monotonic_ms()
            passed_ms = (heard_ms - self._heard_ms) * _RATE_WHILE_AHEAD
            self._at_ms = max(self._wall_ms(), self._at_ms + passed_ms)
            self._heard_ms = heard_ms
            return int(self._at_ms)

    def go_on_from(self, at_ms: int) -> None:
        """Whoever told times before this one told this one last."""
        with self._lock:
            self._at_ms = max(self._at_ms, at_ms)

    def ahead_ms(self) -> int:
        """By how much the machine's clock is behind what was told already."""
        return self() - int(self._wall_ms())


class SelfWatch:
    """The health of a collector itself: it failed, or its clock was set back. Told in every round
    for as long as it lasts, and when it is over."""

    FAILING: Final = "collector"
    CLOCK: Final = "clock of the collector"

    def __init__(self, cluster: str, source: str) -> None:
        self._cluster, self._source = cluster, source
        self._book = HealthBook(cluster, source, 1)
        self._open = False

    def resume(self, told: Iterable[HealthObservation]) -> list[HealthObservation]:
        """Go on after a restart; what is not the collector's own is given back."""
        told = list(told)
        own = [each for each in told if each.place in (self.FAILING, self.CLOCK)]
        for source in {each.source for each in own}:
            self.speak_as(source)
        self._book.resume(own)
        self._open = bool(own)
        return [each for each in told if each not in own]

    def speak_as(self, source: str) -> None:
        """The name its collector goes by, once that is known; what is open ends by the name it
        began with."""
        if source and source != self._source and not self._open:
            self._source, self._book = source, HealthBook(self._cluster, source, 1)

    def close_round(
        self, at_ms: int, number: int, *, ahead_ms: int = 0, error: Exception | None = None
    ) -> list[HealthObservation]:
        problems = []
        if error is not None:
            reason, remedy = _words(error)
            problems.append(Problem(self.FAILING, ProblemKind.SILENT, reason, remedy))
        if ahead_ms > TOLERATED_MS:
            problems.append(
                Problem(
                    self.CLOCK,
                    ProblemKind.CLOCK_SKEW,
                    f"the collector's clock was set back: it is {ahead_ms} ms behind times that "
                    "were told already; they go on from there",
                    "see that the machine's clock is kept by NTP and is never stepped back",
                )
            )
        self._open = bool(problems)
        return self._book.close_round(problems, at_ms, number)


def _words(error: Exception) -> tuple[str, str]:
    if isinstance(error, ConnectorError):
        return error.reason, error.remedy
    # The text of a stranger's error may hold an address with a password in it.
    traceback, where = error.__traceback__, ""
    while traceback is not None:
        path = Path(traceback.tb_frame.f_code.co_filename)
        where = f" in {path.name}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return (
        f"the round failed ({type(error).__name__}{where})",
        "report it with this line; the next round is tried again",
    )
