"""A cluster under watch while an experiment goes on: rounds of a collector in a thread of its own,
judged as the job would judge them."""

from __future__ import annotations

import threading
import time
from collections import deque
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.model import ClusterObservation, HealthObservation, PartitionObservation
from tidestaff.consistency.monitor import step
from tidestaff.consistency.verdict import FindingClass
from tidestaff.streaming.lab.properties import settings_to_give
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tidestaff.consistency.model import Observation, OffsetRange
    from tidestaff.consistency.verdict import Violated

    from tests.field.lab import Lab

GRAVE = frozenset({FindingClass.LOSS, FindingClass.DIVERGENCE, FindingClass.PROTOCOL})
"""What a healthy cluster must never be accused of, whatever is done to its processes."""

_KEPT = 12
"""Samples of each subject that are kept for whoever must find out why something was raised."""


class Alert(NamedTuple):
    """A finding when it was raised on its subject, and when it was raised again after its end."""

    code: str
    subject: str
    expected: str
    observed: str
    broker: int | None
    first: int | None
    end: int | None
    at_s: float
    round: int = 0
    """The number of the watch's round that raised it."""

    @property
    def grave(self) -> bool:
        rule = BY_CODE[self.code]
        # What the catalogue calls information accuses nobody.
        return rule.finding in GRAVE and rule.severity.value != "info"

    def __str__(self) -> str:
        offsets = "" if self.first is None else f" offsets [{self.first}, {self.end})"
        broker = "" if self.broker is None else f" broker {self.broker}"
        name = BY_CODE[self.code].name
        return f"{self.code} {name} {self.subject}{broker}{offsets}"


class Watch(threading.Thread):
    """Begin it with `with`; every round is judged, every finding is kept."""

    def __init__(self, lab: Lab, include: str = ".*", every_s: float = 1.0, **options: Any) -> None:
        super().__init__(name="watch", daemon=True)
        # Before there are threads: two that first import the client library block each other.
        import_module("tidestaff.connectors.kafka_python_reader")
        asked = {
            "bootstrap_servers": lab.bootstrap,
            "version": lab.plan.version,
            "mode": lab.plan.mode,
            "include": include,
            "timeout_ms": 2_000,
            **({"zookeeper_connect": lab.zookeeper_connect} if lab.zookeeper_connect else {}),
            **_given(lab),
            **options,
        }
        source = {"type": "direct", "collector": "brokers", "options": asked}
        self._cluster = Cluster.model_validate({"name": "field", "source": source})
        self._every_s = every_s
        self._ends = threading.Event()
        self._lock = threading.Condition()
        self._memories: dict[tuple[str, ...], Any] = {}
        self._found: list[Alert] = []
        self._open: dict[str, set[tuple[str, int | None, OffsetRange | None]]] = {}
        self._last: list[Observation] = []
        self._lately: dict[str, deque[Observation]] = {}
        self._shown: dict[Alert, tuple[Observation, ...]] = {}
        self.began = time.monotonic()
        self.took: list[float] = []
        self.judged: list[float] = []
        """When each round had been judged, in seconds since the beginning."""
        self.rounds = 0
        self.failure: BaseException | None = None

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self.join(30)
        if self.failure is not None and error is None:
            raise self.failure

    def run(self) -> None:
        try:
            collector = collector_of(self._cluster)
            try:
                while not self._ends.is_set():
                    began = time.monotonic()
                    self._judge(collector.round())
                    self.took.append(time.monotonic() - began)
                    self._ends.wait(max(0.0, began + self._every_s - time.monotonic()))
            finally:
                collector.close()  # type: ignore[attr-defined]
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for a round
            with self._lock:
                self.failure = error
                self._lock.notify_all()

    def _judge(self, seen: list[Observation]) -> None:
        with self._lock:
            for observation in seen:
                key = subject(observation)
                self._lately.setdefault("/".join(key), deque(maxlen=_KEPT)).append(observation)
                self._memories[key], verdicts = step(self._memories.get(key), observation)
                self._keep("/".join(key), verdicts.violated)
            self._last = seen
            self.rounds += 1
            self.judged.append(time.monotonic() - self.began)
            self._lock.notify_all()

    def _keep(self, place: str, violated: tuple[Violated, ...]) -> None:
        before = self._open.get(place, set())
        now: set[tuple[str, int | None, OffsetRange | None]] = set()
        for each in violated:
            known = (each.code, each.broker, each.offsets)
            if known not in before | now:
                first, end = each.offsets or (None, None)
                at_s, number = time.monotonic() - self.began, self.rounds + 1
                said = (each.expected, each.observed, each.broker, first, end)
                alert = Alert(each.code, place, *said, at_s, number)
                self._found.append(alert)
                if alert.grave:
                    self._shown[alert] = tuple(self._lately[place])
            now.add(known)
        self._open[place] = now

    # -- what was found

    @property
    def alerts(self) -> list[Alert]:
        with self._lock:
            return list(self._found)

    def shown(self, alert: Alert) -> tuple[Observation, ...]:
        """The samples up to the one that raised a grave alert: what to look at if it is false."""
        with self._lock:
            return self._shown.get(alert, ())

    @property
    def grave(self) -> list[Alert]:
        return [alert for alert in self.alerts if alert.grave]

    def codes(self) -> list[str]:
        return sorted({alert.code for alert in self.alerts})

    def found(self, code: str) -> list[Alert]:
        return [alert for alert in self.alerts if alert.code == code]

    def partition(self, topic: str, partition: int = 0) -> PartitionObservation | None:
        with self._lock:
            for each in self._last:
                if isinstance(each, PartitionObservation) and (each.topic, each.partition) == (
                    topic,
                    partition,
                ):
                    return each
        return None

    @property
    def cluster(self) -> ClusterObservation | None:
        with self._lock:
            return next((e for e in self._last if isinstance(e, ClusterObservation)), None)

    @property
    def health(self) -> list[HealthObservation]:
        with self._lock:
            return [e for e in self._last if isinstance(e, HealthObservation)]

    # -- waiting

    def wait_rounds(self, count: int, within_s: float = 120.0) -> None:
        """Until so many whole rounds were judged that began after this call."""
        with self._lock:
            wanted = self.rounds + count + 1
        self.wait_until(lambda: self.rounds >= wanted, within_s)

    def wait_code(self, code: str, within_s: float = 60.0) -> Alert | None:
        """The finding, or None when it does not come in time."""
        self.wait_until(
            lambda: any(each.code == code for each in self._found), within_s, must=False
        )
        found = self.found(code)
        return found[0] if found else None

    def wait_until(
        self, done: Callable[[], bool], within_s: float = 120.0, *, must: bool = True
    ) -> bool:
        until = time.monotonic() + within_s
        with self._lock:
            while not done():
                if self.failure is not None:
                    raise self.failure
                left = until - time.monotonic()
                if left <= 0:
                    if must:
                        raise AssertionError(f"the watch did not see it within {within_s} s")
                    return False
                self._lock.wait(left)
        return True


def subject(observation: Observation) -> tuple[str, ...]:
    if isinstance(observation, PartitionObservation):
        return (f"{observation.topic}-{observation.partition}",)
    if isinstance(observation, HealthObservation):
        return ("health", observation.place)
    return ("cluster",)


def _given(lab: Lab) -> dict[str, str]:
    """Brokers before 0.11 cannot be asked for their settings."""
    return {} if lab.release.tells_settings else settings_to_give(lab.plan)
