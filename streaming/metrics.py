"""Prometheus metrics of the job, in a registry of their own.

Counters are kept as batches are done. What ages by itself (how far the stream is behind, since when
a source is silent, what waits for a sink) is computed when it is asked for, so that it tells the
truth when no batch comes at all. A partition is named only while it is violating, and at most
`partition_series` of them are.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import Counter as Count
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.verdict import FindingClass, Severity
from tidestaff.streaming.alerts.batch import COUNTED, STANDING
from tidestaff.streaming.alerts.errors import StoreError
from tidestaff.streaming.alerts.identity import Kind
from tidestaff.streaming.alerts.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from prometheus_client.core import Metric
    from tidestaff.streaming.alerts.alert import Alert
    from tidestaff.streaming.alerts.store import AlertStore, BatchReport

log = logging.getLogger(__name__)

PARTITION_SERIES: Final = 200
DURATIONS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_WORST_FIRST: Final = {
    severity: rank
    for rank, severity in enumerate((Severity.CRITICAL, Severity.WARNING, Severity.INFO))
}
_COUNTED: Final = {
    "rows": ("rows", "Observations taken."),
    "quiet": ("rows_quiet", "Observations the screen passed over: nothing but offsets moved."),
    "stepped": ("rows_judged", "Observations that every rule was asked about."),
    "late": ("rows_late", "Observations that came too late and were left out."),
    "quarantined": ("rows_quarantined", "Records that could not be read and were put aside."),
    "state_rebuilt": ("state_rebuilt", "Buckets whose saved state was not read and began anew."),
}
_STANDING: Final = {
    "partitions": ("partitions", "Partitions the monitor knows."),
    "replicas_behind": ("replicas_behind", "Replicas whose log ends below their leader's."),
    "unknown": ("verdicts_unknown", "Rules that could not be judged on the last observations."),
    "held": ("rows_held", "Observations that wait for one that comes before them."),
    "state_bytes": ("state_bytes", "Size of the saved state of all buckets."),
}


class Violation(NamedTuple):
    """A partition that violates a rule now; they sort with the worst first."""

    rank: int
    code: str
    cluster: str
    topic: str
    partition: int


def violations_of(alert: Alert) -> Iterator[Violation]:
    """The partitions an open alert is about, as long as the condition lasts."""
    rank = _WORST_FIRST[BY_CODE[alert.code].severity]
    if alert.kind is Kind.GROUPED:
        members = [member for member in alert.members.values() if member.raised and member.active]
        subjects = [(member.topic, member.partition) for member in members]
    else:
        lasts = alert.fired_at_ms is not None and alert.cleared_at_ms is None
        subjects = [(alert.topic, alert.partition)] if lasts else []
    for topic, partition in subjects:
        if topic is not None and partition is not None:
            yield Violation(rank, alert.code, alert.cluster, topic, partition)


@dataclass(slots=True)
class Snapshot:
    """What stands after the last batch."""

    alerts: Count[tuple[str, str, str]] = field(default_factory=Count)
    listed: list[Violation] = field(default_factory=list)
    violations: int = 0
    diverged: int = 0
    clocks: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    buckets: dict[int, dict[str, int]] = field(default_factory=dict)

    def look(self, alerts: Iterable[Alert], series: int) -> None:
        """The open alerts as they are now."""
        shown = [alert for alert in alerts if alert.number > 0]
        self.alerts = Count((a.code, _severity(a.code), a.status.value) for a in shown)
        found = [each for alert in shown for each in violations_of(alert)]
        self.violations = len(found)
        self.listed = heapq.nsmallest(series, found)
        diverged = {
            (alert.cluster, alert.topic, alert.partition, alert.broker)
            for alert in shown
            if BY_CODE[alert.code].finding is FindingClass.DIVERGENCE and any(violations_of(alert))
        }
        self.diverged = len(diverged)


class Metrics:
    """`after_batch` feeds them; `serve` answers on a port."""

    def __init__(
        self,
        store_path: Path | str,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        partition_series: int = PARTITION_SERIES,
    ) -> None:
        self.registry = CollectorRegistry()
        self._series = partition_series
        self._lock = threading.Lock()
        self._snapshot = Snapshot()
        self._make_counters()
        self.registry.register(_Standing(self, store_path, now_ms))

    def after_batch(self, report: BatchReport, duration_s: float, store: AlertStore) -> None:
        """Take in what a batch did and how the store stands now."""
        self._batches.inc()
        self._duration.observe(duration_s)
        self._last_batch.set_to_current_time()
        if not report.repeated:
            for name in COUNTED:
                self._rows[name].inc(report.stats.counted[name])
            for (code, kind), count in report.findings.items():
                self._findings.labels(code, _severity(code), kind).inc(count)
        for each in report.transitions:
            self._transitions.labels(each.code, _severity(each.code), each.status.value).inc()
        alerts = store.open_alerts()
        with self._lock:
            self._snapshot.look(alerts, self._series)
            self._snapshot.clocks |= report.stats.clocks
            self._snapshot.sources |= report.stats.sources
            self._snapshot.buckets |= report.stats.buckets

    def serve(self, host: str = "127.0.0.1", port: int = 0) -> MetricsServer:
        return MetricsServer(self.registry, host, port)

    def standing(self) -> tuple[threading.Lock, Snapshot]:
        return self._lock, self._snapshot

    def _make_counters(self) -> None:
        labels = ("code", "severity")
        self._findings = self._counter(
            "findings", "Findings of the rules, by what happened to them.", *labels, "event"
        )
        self._transitions = self._counter(
            "transitions", "Steps of alerts, by the status they led to.", *labels, "status"
        )
        self._batches = self._counter("batches", "Micro-batches done.")
        self._rows = {name: self._counter(*_COUNTED[name]) for name in COUNTED}
        self._duration = Histogram(
            "tidestaff_batch_duration_seconds",
            "How long a micro-batch took, from its rows to the store.",
            buckets=DURATIONS_S,
            registry=self.registry,
        )
        self._last_batch = Gauge(
            "tidestaff_last_batch_timestamp_seconds",
            "When the last micro-batch was done.",
            registry=self.registry,
        )
        build = Info("tidestaff_build", "The release that runs.", registry=self.registry)
        build.info({"version": _version()})

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"tidestaff_{name}", words, labels, registry=self.registry)


class _Standing(Collector):
    """What is computed when it is asked for."""

    def __init__(self, metrics: Metrics, store_path: Path | str, now_ms: Callable[[], int]) -> None:
        self._metrics, self._store_path, self._now_ms = metrics, store_path, now_ms
        self._outbox: Outbox | None = None
        self._outbox_lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Nothing is promised before the store exists."""
        return ()

    def collect(self) -> Iterator[Metric]:
        lock, snapshot = self._metrics.standing()
        with lock:
            found = [*self._alerts(snapshot), *self._ages(snapshot), *_sums(snapshot)]
        yield from found
        yield from self._sinks()

    def _alerts(self, snapshot: Snapshot) -> Iterator[Metric]:
        alerts = _gauge("alerts", "Alerts that are not over.", "code", "severity", "status")
        for labels, count in snapshot.alerts.items():
            alerts.add_metric(labels, count)
        yield alerts
        named = ("cluster", "topic", "partition", "code", "severity")
        partitions = _gauge("partition_violation", "1 for a partition that breaks a rule.", *named)
        for each in snapshot.listed:
            subject = (each.cluster, each.topic, str(each.partition))
            partitions.add_metric((*subject, each.code, _severity(each.code)), 1)
        yield partitions
        words = "Violating partitions that are not named, because there are too many."
        left_out = _gauge("partition_violations_left_out", words)
        left_out.add_metric((), snapshot.violations - len(snapshot.listed))
        yield left_out
        diverged = _gauge("replicas_diverged", "Replicas that hold other records than they should.")
        diverged.add_metric((), snapshot.diverged)
        yield diverged

    def _ages(self, snapshot: Snapshot) -> Iterator[Metric]:
        now_ms = self._now_ms()
        lag = _gauge("pipeline_lag_seconds", "Now minus the newest event time judged.", "cluster")
        for cluster, at_ms in snapshot.clocks.items():
            lag.add_metric((cluster,), (now_ms - at_ms) / 1000)
        yield lag
        labels = ("cluster", "source")
        stale = _gauge("source_staleness_seconds", "Time since a source was last heard.", *labels)
        last = _gauge("source_last_timestamp_seconds", "When a source was last heard.", *labels)
        for name, at_ms in snapshot.sources.items():
            cluster, _, source = name.partition("/")
            stale.add_metric((cluster, source), (now_ms - at_ms) / 1000)
            last.add_metric((cluster, source), at_ms / 1000)
        yield from (stale, last)

    def _sinks(self) -> Iterator[Metric]:
        try:
            with self._outbox_lock:
                if self._outbox is None:
                    self._outbox = Outbox(self._store_path)
                states = self._outbox.sinks()
        except StoreError as error:
            log.warning("metrics of the sinks are left out: %s", error)
            return
        up = _gauge("sink_up", "1 while a sink takes what it is sent.", "sink")
        backlog = _gauge("sink_backlog", "Transitions that wait for a sink.", "sink")
        delivered = _total("sink_delivered", "Transitions a sink has taken.", "sink")
        failures = _total("sink_failures", "Deliveries that a sink did not take.", "sink")
        dropped = _total("sink_dropped", "Transitions dropped because the spool was full.", "sink")
        for state in states:
            up.add_metric((state.name,), state.failing_since_ms is None)
            backlog.add_metric((state.name,), state.backlog)
            delivered.add_metric((state.name,), state.delivered)
            failures.add_metric((state.name,), state.failures)
            dropped.add_metric((state.name,), state.dropped)
        yield from (up, backlog, delivered, failures, dropped)


def _sums(snapshot: Snapshot) -> Iterator[Metric]:
    for name in STANDING:
        metric = _gauge(*_STANDING[name])
        metric.add_metric((), sum(stats[name] for stats in snapshot.buckets.values()))
        yield metric


class MetricsServer:
    """Answers GET /metrics until it is closed."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_address[1]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tidestaff_{name}", words, labels=labels)


def _total(name: str, words: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"tidestaff_{name}", words, labels=labels)


def _severity(code: str) -> str:
    return BY_CODE[code].severity.value


def _version() -> str:
    try:
        return version("tidestaff")
    except PackageNotFoundError:
        return "unknown"
