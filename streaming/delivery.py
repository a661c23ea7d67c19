"""Delivery: one thread a sink takes transitions from the outbox, at the sink's own pace.

A sink that fails is tried again with growing pauses and holds nobody up. Its failure becomes an
alert of its own, SRC005, which the other sinks carry.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.model import ProblemKind
from tidestaff.streaming.alerts.errors import StoreError
from tidestaff.streaming.alerts.outbox import Outbox, Retention
from tidestaff.streaming.alerts.store import SINK_FAILING
from tidestaff.streaming.sinks.worker import (
    Patience,
    Pause,
    Route,
    SinkWorker,
    Surroundings,
    sink_health,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.alerts.store import AlertStore

__all__ = ["Dispatcher", "Patience", "Route", "Surroundings"]

log = logging.getLogger(__name__)

HOUSEKEEPING_S: Final = 5.0
PRUNE_EVERY: Final = 12


class Housekeeping:
    """Time for the job's own alerts, an eye on sinks that hang, the bound of the spool, and
    forgetting what is old."""

    def __init__(
        self,
        store: AlertStore,
        retention: Retention,
        around: Surroundings,
        workers: Sequence[SinkWorker],
    ) -> None:
        self._store, self._retention, self._around = store, retention, around
        self._workers = workers
        self._outbox = Outbox(store.path)
        self._rounds = 0

    def attempt(self) -> Pause:
        try:
            for name, count in self._outbox.keep_spool(self._retention.spool_rows).items():
                self._report_dropped(name, count)
            for worker in self._workers:
                if hanging_s := worker.hangs_for_s():
                    worker.report_hanging(hanging_s)
            self._store.tick()
            if self._rounds % PRUNE_EVERY == 0:
                self._outbox.prune(self._retention)
            self._rounds += 1
        except StoreError as error:
            log.warning("housekeeping waits: %s", error)
        return Pause(HOUSEKEEPING_S, failed=True)

    def close(self) -> None:
        self._outbox.close()

    def _report_dropped(self, name: str, count: int) -> None:
        state = next(each for each in self._outbox.sinks() if each.name == name)
        reason = (
            f"the spool is full: {state.dropped} transitions were dropped for sink {name}"
            f" (last error: {state.last_error or 'none'})"
        )
        log.warning("%s, %d of them now", reason, count)
        health = sink_health(
            name,
            ProblemKind.SINK_FAILING,
            self._around.now_ms(),
            reason=reason,
            remedy="bring the sink back; read what was dropped with `tidestaff alerts`",
            since_ms=state.failing_since_ms,
        )
        self._store.report(health)
        for worker in self._workers:
            if worker.name == name:
                worker.was_reported()


class Dispatcher:
    """All sinks of a job. `start`, `notify` after each batch, `stop` within two seconds."""

    def __init__(
        self,
        store: AlertStore,
        routes: Sequence[Route],
        *,
        retention: Retention = Retention(),  # noqa: B008 - frozen
        patience: Patience = Patience(),  # noqa: B008 - frozen
        around: Surroundings | None = None,
    ) -> None:
        names = [route.sink.name for route in routes]
        assert len(set(names)) == len(names), "sinks are told apart by their names"
        self._store, self._routes = store, tuple(routes)
        self._retention, self._patience = retention, patience
        self._around = around or Surroundings()
        self._stopping = threading.Event()
        self._wakes: list[threading.Event] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Sinks that the store does not know yet are entered, those that went are forgotten."""
        outbox = Outbox(self._store.path)
        outbox.register({route.sink.name: route.from_start for route in self._routes})
        outbox.close()
        self._forget_sinks_that_went()
        workers = [self._worker(route) for route in self._routes]
        for worker in workers:
            self._run(f"sink-{worker.name}", worker)
        house = Housekeeping(self._store, self._retention, self._around, workers)
        self._run("sinks-housekeeping", house)

    def notify(self) -> None:
        """There is something new in the outbox."""
        for wake in self._wakes:
            wake.set()

    def drain(self, timeout_s: float) -> bool:
        """Wait until every sink has everything; False if the time is over before."""
        ends_s = time.monotonic() + timeout_s
        outbox = Outbox(self._store.path)
        try:
            while any(state.backlog for state in outbox.sinks()):
                if time.monotonic() >= ends_s:
                    return False
                self.notify()
                time.sleep(0.02)
        finally:
            outbox.close()
        return True

    def stop(self, timeout_s: float = 2.0) -> bool:
        """End the threads. One that hangs in a sink is left behind; what it was at is sent again by
        the next start. Returns whether all ended."""
        self._stopping.set()
        self.notify()
        ends_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, ends_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _worker(self, route: Route) -> SinkWorker:
        own = Outbox(self._store.path)
        return SinkWorker(route, own, self._store, self._patience, self._around)

    def _run(self, name: str, worker: SinkWorker | Housekeeping) -> None:
        wake = threading.Event()
        self._wakes.append(wake)

        def run() -> None:
            while not self._stopping.is_set():
                pause = worker.attempt()
                # A failing sink waits its time out: new alerts do not make it well.
                (self._stopping if pause.failed else wake).wait(pause.seconds)
                wake.clear()
            worker.close()

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _forget_sinks_that_went(self) -> None:
        names = {route.sink.name for route in self._routes}
        for alert in self._store.open_alerts():
            if alert.code == SINK_FAILING and alert.place not in names:
                well = sink_health(alert.place or "", ProblemKind.OK, self._around.now_ms())
                self._store.report(well)
