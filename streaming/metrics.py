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
from tidestaff.streaming.alerts.alert import Status
from tidestaff.streaming.alerts.batch import COUNTED, STANDING
from tidestaff.streaming.alerts.errors import StoreError
from tidestaff.streaming.alerts.identity import Kind, kind_of
from tidestaff.streaming.alerts.outbox import Outbox
from tidestaff.streaming.metrics_table import METRICS, PREFIX
from tidestaff.streaming.operator.viewing import VERIFIED_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from prometheus_client.core import Metric
    from tidestaff.streaming.alerts.alert import Alert
    from tidestaff.streaming.alerts.store import AlertStore, BatchReport
    from tidestaff.streaming.view.reading import Covered

log = logging.getLogger(__name__)

PARTITION_SERIES: Final = 200
LADDER: Final = ("behind", "under_replicated", "at_min_isr", "under_min_isr", "offline")
PROVEN: Final = ("unclean", "diverged", "lost")
DURATIONS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_WORST_FIRST: Final = {
    severity: rank
    for rank, severity in enumerate((Severity.CRITICAL, Severity.WARNING, Severity.INFO))
}
_COUNTED: Final = {
    "rows": "rows",
    "quiet": "rows_quiet",
    "stepped": "rows_judged",
    "late": "rows_late",
    "quarantined": "rows_quarantined",
    "state_rebuilt": "state_rebuilt",
}
_STANDING: Final = {
    "partitions": "partitions",
    "replicas_behind": "replicas_behind",
    "unknown": "verdicts_unknown",
    "held": "rows_held",
    "state_bytes": "state_bytes",
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

    alerts: Count[tuple[str, str, str, str]] = field(default_factory=Count)
    proven: dict[tuple[str, str], int] = field(default_factory=dict)
    lost: Count[str] = field(default_factory=Count)
    listed: list[Violation] = field(default_factory=list)
    violations: int = 0
    diverged: int = 0
    clocks: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    buckets: dict[int, dict[str, int]] = field(default_factory=dict)

    def look(self, alerts: Iterable[Alert], series: int) -> None:
        """The open alerts as they are now."""
        shown = [alert for alert in alerts if alert.number > 0]
        self.alerts = Count((a.cluster, a.code, _severity(a.code), a.status.value) for a in shown)
        self.proven, self.lost = _proven(shown)
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
        self.ladder: Callable[[], Mapping[str, Mapping[str, int]]] = dict
        self.covered: Callable[[], Iterable[Covered]] = tuple
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
        self._findings = self._counter("findings")
        self._transitions = self._counter("transitions")
        self._batches = self._counter("batches")
        self._rows = {name: self._counter(_COUNTED[name]) for name in COUNTED}
        duration, last = METRICS["batch_duration_seconds"], METRICS["last_batch_timestamp_seconds"]
        self._duration = Histogram(
            duration.sample, duration.words, buckets=DURATIONS_S, registry=self.registry
        )
        self._last_batch = Gauge(last.sample, last.words, registry=self.registry)
        build = Info(f"{PREFIX}build", METRICS["build"].words, registry=self.registry)
        build.info({"version": _version()})

    def _counter(self, name: str) -> Counter:
        known = METRICS[name]
        return Counter(f"{PREFIX}{name}", known.words, known.labels, registry=self.registry)


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
        alerts = _gauge("alerts")
        for labels, count in snapshot.alerts.items():
            alerts.add_metric(labels, count)
        yield alerts
        partitions = _gauge("partition_violation")
        for each in snapshot.listed:
            subject = (each.cluster, each.topic, str(each.partition))
            partitions.add_metric((*subject, each.code, _severity(each.code)), 1)
        yield partitions
        left_out = _gauge("partition_violations_left_out")
        left_out.add_metric((), snapshot.violations - len(snapshot.listed))
        yield left_out
        diverged = _gauge("replicas_diverged")
        diverged.add_metric((), snapshot.diverged)
        yield diverged
        yield from self._ladder(snapshot)

    def _ladder(self, snapshot: Snapshot) -> Iterator[Metric]:
        """Every rung of every cluster, also those nobody stands on: a graph needs its zeros."""
        state, known = _gauge("partitions_in_state"), _gauge("partitions_known")
        ladder = self._metrics.ladder()
        clusters = dict.fromkeys((*snapshot.clocks, *ladder))
        for cluster in clusters:
            rungs = ladder.get(cluster, {})
            for name in LADDER:
                state.add_metric((cluster, name), rungs.get(name, 0))
            for name in PROVEN:
                state.add_metric((cluster, name), snapshot.proven.get((cluster, name), 0))
            known.add_metric((cluster,), rungs.get("partitions", 0))
        lost = _gauge("lost_offsets")
        for cluster in clusters:
            lost.add_metric((cluster,), snapshot.lost[cluster])
        yield from (state, known, lost)
        yield from self._verified({cluster: ladder.get(cluster, {}) for cluster in clusters})

    def _verified(self, ladder: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
        partitions, age = _gauge("verified_partitions"), _gauge("verification_age_seconds")
        for cluster, rungs in ladder.items():
            partitions.add_metric((cluster,), rungs.get("verified", 0))
            if rungs.get("verified", 0):
                age.add_metric((cluster,), (self._now_ms() - rungs[VERIFIED_MS]) / 1000)
        yield from (partitions, age, *self._covered())

    def _covered(self) -> Iterator[Metric]:
        offset = _gauge("partition_verified_offset")
        age = _gauge("partition_verification_age_seconds")
        try:
            for each in self._metrics.covered():
                labels = (each.cluster, each.topic, str(each.partition))
                offset.add_metric(labels, each.end)
                age.add_metric(labels, (self._now_ms() - each.at_ms) / 1000)
        except StoreError as error:
            log.warning("coverage of partitions is left out: %s", error)
        yield from (offset, age)

    def _ages(self, snapshot: Snapshot) -> Iterator[Metric]:
        now_ms = self._now_ms()
        lag = _gauge("pipeline_lag_seconds")
        for cluster, at_ms in snapshot.clocks.items():
            lag.add_metric((cluster,), (now_ms - at_ms) / 1000)
        yield lag
        stale, last = _gauge("source_staleness_seconds"), _gauge("source_last_timestamp_seconds")
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
        up = _gauge("sink_up")
        backlog = _gauge("sink_backlog")
        delivered = _total("sink_delivered")
        failures = _total("sink_failures")
        dropped = _total("sink_dropped")
        for state in states:
            up.add_metric((state.name,), state.failing_since_ms is None)
            backlog.add_metric((state.name,), state.backlog)
            delivered.add_metric((state.name,), state.delivered)
            failures.add_metric((state.name,), state.failures)
            dropped.add_metric((state.name,), state.dropped)
        yield from (up, backlog, delivered, failures, dropped)


def _sums(snapshot: Snapshot) -> Iterator[Metric]:
    for name in STANDING:
        metric = _gauge(_STANDING[name])
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


def _proven(alerts: Iterable[Alert]) -> tuple[dict[tuple[str, str], int], Count[str]]:
    """By cluster and rung: partitions with an alert that fires; and the offsets that are lost."""
    found: dict[tuple[str, str], set[tuple[str, int]]] = {}
    ranges: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for alert in alerts:
        if alert.status is not Status.FIRING or alert.topic is None or alert.partition is None:
            continue
        for rung in rungs_of(alert.code):
            found.setdefault((alert.cluster, rung), set()).add((alert.topic, alert.partition))
        if alert.kind is Kind.LATCHED and alert.offsets is not None:
            subject = (alert.cluster, alert.topic, alert.partition)
            ranges.setdefault(subject, []).append(alert.offsets)
    lost: Count[str] = Count()
    for (cluster, _, _), lost_here in ranges.items():
        lost[cluster] += _offsets_in(lost_here)
    return {key: len(subjects) for key, subjects in found.items()}, lost


def _offsets_in(ranges: Iterable[tuple[int, int]]) -> int:
    """An unclean election and the loss it brought name the same offsets: they are lost once."""
    count = end = 0
    for first, after in sorted(ranges):
        count += max(0, after - max(first, end))
        end = max(end, after)
    return count


def rungs_of(code: str) -> list[str]:
    """Which of the last rungs of the ladder an alert of this code puts its partition on."""
    tests = {
        "unclean": code == "ELE009",
        "diverged": BY_CODE[code].finding is FindingClass.DIVERGENCE,
        "lost": kind_of(code) is Kind.LATCHED,
    }
    return [rung for rung, is_so in tests.items() if is_so]


def _gauge(name: str) -> GaugeMetricFamily:
    known = METRICS[name]
    return GaugeMetricFamily(known.sample, known.words, labels=known.labels)


def _total(name: str) -> CounterMetricFamily:
    known = METRICS[name]
    return CounterMetricFamily(f"{PREFIX}{name}", known.words, labels=known.labels)


def _severity(code: str) -> str:
    return BY_CODE[code].severity.value


def _version() -> str:
    try:
        return version("tidestaff")
    except PackageNotFoundError:
        return "unknown"
