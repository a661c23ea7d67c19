"""One sink's worker: an attempt at a time, with what failure and success mean for the alerts."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.model import HealthObservation, ProblemKind
from tidestaff.streaming.alerts.alert import Status
from tidestaff.streaming.alerts.errors import StoreError
from tidestaff.streaming.alerts.event import OWN_CLUSTER
from tidestaff.streaming.sinks.sink import (
    DELIVERY_LIMIT,
    EVERYTHING,
    RefreshedSink,
    SinkError,
    is_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidestaff.streaming.alerts.outbox import Outbox, Outgoing
    from tidestaff.streaming.alerts.store import AlertStore
    from tidestaff.streaming.sinks.sink import Sink

log = logging.getLogger(__name__)

POLL_S: Final = 1.0
SHOWN: Final = (Status.FIRING, Status.ACKNOWLEDGED)


@dataclass(frozen=True, slots=True)
class Route:
    """A sink, what it is given, and whether a new one gets all that is kept or only what comes."""

    sink: Sink
    statuses: frozenset[Status] = EVERYTHING
    from_start: bool = False


@dataclass(frozen=True, slots=True)
class Patience:
    """How failures are met: pauses that double up to a limit, give or take a share of chance; an
    alert when they go on."""

    first_s: float = 1.0
    longest_s: float = 60.0
    jitter: float = 0.2
    alert_after_s: float = 30.0
    alert_after_failures: int = 3

    def pause_s(self, failures: int, chance: float) -> float:
        pause = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30))
        return pause * (1 + self.jitter * (2 * chance - 1))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a test replaces: clocks and chance."""

    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    monotonic_s: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = field(default_factory=lambda: random.SystemRandom().random)


class Pause(NamedTuple):
    """How long to wait before the next attempt; a failed one is not hurried by new alerts."""

    seconds: float
    failed: bool = False


class SinkWorker:
    """Brings one sink up to date, one attempt at a time; the thread around it only waits."""

    def __init__(
        self,
        route: Route,
        outbox: Outbox,
        store: AlertStore,
        patience: Patience,
        around: Surroundings,
    ) -> None:
        self.route, self.name = route, route.sink.name
        self._outbox, self._store = outbox, store
        self._patience, self._around = patience, around
        self.failures = 0
        self._stumbles = 0
        self.busy_since_s: float | None = None
        self._failing_since_ms = 0
        self._alerted: bool | None = None  # not known after a restart
        self._refreshed_at_s: float | None = None

    def attempt(self) -> Pause:
        """Deliver what waits."""
        self.busy_since_s = self._around.monotonic_s()
        try:
            return self._attempt()
        finally:
            self.busy_since_s = None

    def hangs_for_s(self) -> float:
        """How long the attempt that is under way has taken, once that is too long; else 0."""
        since_s = self.busy_since_s
        lasted_s = 0.0 if since_s is None else self._around.monotonic_s() - since_s
        return lasted_s if lasted_s > self._patience.alert_after_s else 0.0

    def report_hanging(self, lasted_s: float) -> None:
        """Said by somebody else: the worker itself waits for its sink."""
        self._failing_since_ms = self._around.now_ms() - int(lasted_s * 1000)
        problem = f"sink {self.name} has not answered for {lasted_s:.0f} s"
        remedy = "look whether the receiver hangs; the job goes on when it answers"
        self._store.report(self._health(ProblemKind.SINK_FAILING, problem, remedy))
        self.was_reported()

    def was_reported(self) -> None:
        """There is an alert about this sink: that it is well is to be said when it is."""
        self._alerted = True

    def _attempt(self) -> Pause:
        try:
            more = self._deliver()
            self._refresh()
        except SinkError as error:
            return self._failed(str(error), error.remedy)
        except StoreError as error:
            log.warning("delivery to %s waits: %s", self.name, error)
            return Pause(POLL_S)
        except Exception as error:  # noqa: BLE001 - one sink's fault must not end its thread
            # The text of a stranger's error may hold an address with a password in it.
            self._stumbles += 1
            return self._failed(f"sink {self.name}: {type(error).__name__}", "see the job's log")
        return Pause(0.0 if more else POLL_S)

    def close(self) -> None:
        """The worker's thread ends."""
        try:
            self.route.sink.close()
            self._outbox.close()
        except (SinkError, StoreError) as error:
            log.warning("%s", error)

    def _deliver(self) -> bool:
        waiting = self._outbox.waiting(self.name, DELIVERY_LIMIT)
        wanted = [each for each in waiting if is_for(self.route.statuses, each.transition)]
        dropped = 0
        if wanted:
            dropped = self._hand_over(wanted)
        if waiting:
            self._outbox.delivered(self.name, waiting[-1].seq, len(wanted) - dropped, dropped)
        if wanted or self.failures == 0:
            self._is_well()
        return len(waiting) == DELIVERY_LIMIT

    def _hand_over(self, wanted: Sequence[Outgoing]) -> int:
        """All at once. A sink that stumbles over them again and again gets them one by one: what it
        cannot take although it takes others is dropped. Tells how many were."""
        if self._stumbles < self._patience.alert_after_failures:
            self.route.sink.deliver(wanted)
            self._stumbles = 0
            return 0
        refused: list[tuple[Outgoing, Exception]] = []
        for each in wanted:
            try:
                self.route.sink.deliver([each])
            except (SinkError, StoreError):
                raise
            except Exception as error:  # noqa: BLE001 - see above
                refused.append((each, error))
        if len(refused) == len(wanted):
            raise refused[0][1]
        for each, why in refused:
            code, kind = each.transition.code, type(why).__name__
            log.warning("sink %s cannot take %s %s: %s", self.name, code, each.seq, kind)
        self._stumbles = 0
        return len(refused)

    def _refresh(self) -> None:
        sink = self.route.sink
        if not isinstance(sink, RefreshedSink):
            return
        now_s = self._around.monotonic_s()
        if self._refreshed_at_s is None or now_s - self._refreshed_at_s >= sink.refresh_every_s:
            sink.refresh([alert for alert in self._store.open_alerts() if alert.status in SHOWN])
            self._refreshed_at_s = now_s
            self._is_well()

    def _is_well(self) -> None:
        self.failures = 0
        if self._alerted is not False:
            self._store.report(self._health(ProblemKind.OK, "", ""))
            self._alerted = False

    def _failed(self, problem: str, remedy: str) -> Pause:
        now_ms = self._around.now_ms()
        self.failures += 1
        if self.failures == 1:
            self._failing_since_ms = now_ms
            log.warning("%s", problem)
        lasted_s = (now_ms - self._failing_since_ms) / 1000
        patience = self._patience
        pause_s = patience.pause_s(self.failures, self._around.chance())
        try:
            self._outbox.failed(self.name, now_ms, problem)
            long = lasted_s >= patience.alert_after_s
            if long and self.failures >= patience.alert_after_failures:
                self._store.report(self._health(ProblemKind.SINK_FAILING, problem, remedy))
                self._alerted = True
        except StoreError as error:
            log.warning("the failure of %s is not written down: %s", self.name, error)
        return Pause(pause_s, failed=True)

    def _health(self, problem: ProblemKind, reason: str, remedy: str) -> HealthObservation:
        failing = problem is ProblemKind.SINK_FAILING
        return sink_health(
            self.name,
            problem,
            self._around.now_ms(),
            reason=reason,
            remedy=remedy,
            since_ms=self._failing_since_ms if failing else None,
        )


def sink_health(
    name: str,
    problem: ProblemKind,
    now_ms: int,
    *,
    reason: str = "",
    remedy: str = "",
    since_ms: int | None = None,
) -> HealthObservation:
    return HealthObservation(
        OWN_CLUSTER,
        now_ms,
        "sinks",
        problem,
        place=name,
        reason=reason,
        remedy=remedy,
        since_ms=since_ms,
    )
