"""The monitor from its configuration to its end: everything the job needs, put together."""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from tidestaff.streaming import session
from tidestaff.streaming.alerts.store import AlertStore
from tidestaff.streaming.checkpoint import CheckpointLock
from tidestaff.streaming.commands.leaving import code_of, leave_if
from tidestaff.streaming.delivery import Dispatcher
from tidestaff.streaming.jars import jars
from tidestaff.streaming.metrics import Metrics
from tidestaff.streaming.one_time import make_of_one_time
from tidestaff.streaming.pipeline import Job
from tidestaff.streaming.quarantine import Quarantine
from tidestaff.streaming.routes import routes_of
from tidestaff.streaming.settings import RecordingSource
from tidestaff.streaming.sources.collecting import STORY, check, check_options
from tidestaff.streaming.sources.row_files import listed
from tidestaff.streaming.sources.streams import journals
from tidestaff.streaming.status_line import StatusLine
from tidestaff.streaming.view.reading import Covered, StateReader
from tidestaff.streaming.view.store import StateReceiver, StateStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from pyspark.sql import SparkSession
    from tidestaff.streaming.alerts.batch import OutputRow
    from tidestaff.streaming.alerts.store import BatchReport
    from tidestaff.streaming.pipeline import Receiver
    from tidestaff.streaming.settings import Settings

MOST_COVERED: Final = 10_000
IDLE_S: Final = 5.0
_LAST_WORDS_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When to end by oneself: after so many batches, or when nothing new has come for a while."""

    max_batches: int | None = None
    until_idle: bool = False


class StoreReceiver:
    """Hands each batch to the alert store and keeps what it reported."""

    def __init__(self, store: AlertStore, then: Callable[[BatchReport], None]) -> None:
        self.store, self._then = store, then

    def process_batch(self, query_id: str, batch_id: int, rows: Sequence[OutputRow]) -> None:
        self._then(self.store.process_batch(query_id, batch_id, rows))


def now_ms() -> int:
    return int(time.time() * 1_000)


def quarantine_of(settings: Settings) -> Quarantine:
    held = settings.quarantine
    return Quarantine(settings.quarantine_path, held.max_bytes, held.files)


@contextmanager
def spark_session(
    settings: Settings, status: StatusLine, told: Sequence[int] = ()
) -> Iterator[SparkSession]:
    """Started only if nobody was told to stop before. Once it starts it comes up: a JVM that is
    left alone half way stays behind."""
    found = jars(say=status.say, stopped=lambda: bool(told)) if settings.needs_kafka else []
    leave_if(told)
    with session.quiet_connections(settings.work / "logs"):
        spark = session.start(settings, found)
        try:
            yield spark
        finally:
            if not session.is_gone(spark):
                spark.stop()


def run(settings: Settings, limits: Limits, told: list[int]) -> int:
    """Watch until told to stop by a signal: those of before and during the watch are in `told`."""
    for cluster in settings.clusters:
        check(cluster)
        check_options(cluster)
    status = StatusLine(sys.stderr)
    routes = routes_of(settings, cast("TextIO", status.below(sys.stdout)))
    settings.work.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(CheckpointLock(settings.work))
        began, since_ms = time.monotonic(), now_ms()
        status.say(f"starting Spark ({settings.spark.master}); its log is in {settings.work}/logs")
        store = AlertStore(settings.store_path, settings.policy, now_ms)
        stack.callback(store.close)
        stack.enter_context(_web(settings, status))
        stories = Stories(journals(settings))
        spark = stack.enter_context(spark_session(settings, status, told))
        names = ", ".join(f"{c.name} ({c.source.type})" for c in settings.clusters)
        took = time.monotonic() - began
        status.say(f"Spark is up after {took:.0f} s; watching {names}; Ctrl-C ends")
        leave_if(told)
        dispatcher = Dispatcher(store, routes, retention=settings.retention)
        dispatcher.start()
        stack.callback(dispatcher.stop)
        metrics = stack.enter_context(_metrics(settings, store, status))

        def judged(report: BatchReport) -> None:
            dispatcher.notify()
            if metrics is not None:
                metrics.after_batch(report, time.monotonic() - job.batch_began, store)

        quarantine = quarantine_of(settings)
        receivers: list[Receiver] = [StoreReceiver(store, judged), quarantine]
        if settings.view.enabled:
            state = stack.enter_context(_state(settings, status))
            receivers.append(state)
            if metrics is not None:
                metrics.ladder = state.ladder
                metrics.covered = partial(covered_in, settings)
        job = Job(spark, settings, receivers, view=settings.view.enabled, since_ms=since_ms)
        make_of_one_time(job.folder, store, quarantine, status.say)
        watcher = Watcher(job, store, status, stories, limits)
        with stopped_by_signals(job, told):
            job.watch(watcher.look, status.say)
        status.say("stopping; the state is saved")
        dispatcher.drain(_LAST_WORDS_S)
    return code_of(told)


@contextmanager
def _metrics(settings: Settings, store: AlertStore, status: StatusLine) -> Iterator[Metrics | None]:
    """Served while the job runs. A port that is taken does not keep the monitor from watching."""
    if not settings.metrics.enabled:
        yield None
        return
    metrics = Metrics(store.path)
    host, port = settings.metrics.host, settings.metrics.port
    try:
        server = metrics.serve(host, port)
    except OSError as error:
        status.say(
            f"no metrics: {host}:{port} cannot be listened on ({error.strerror}); "
            "free it or set metrics.port"
        )
        yield None
        return
    try:
        yield metrics
    finally:
        server.close()


def covered_in(settings: Settings) -> list[Covered]:
    """How far the partitions that metrics are to name have been compared."""
    topics = settings.metrics.coverage_topics
    if topics is None:
        return []
    with StateReader(settings.state_path) as reader:
        return reader.covered(topics, MOST_COVERED)


@contextmanager
def _state(settings: Settings, status: StatusLine) -> Iterator[StateReceiver]:
    store = StateStore(settings.state_path, settings.history)
    try:
        yield StateReceiver(store, status.say)
    finally:
        store.close()


@contextmanager
def _web(settings: Settings, status: StatusLine) -> Iterator[None]:
    """Served while the job runs. What keeps the page from being served is no reason not to
    watch."""
    if not settings.web.enabled:
        yield
        return
    from tidestaff.streaming.web.server import WebServer  # noqa: PLC0415 - only where it is served

    try:
        server = WebServer(settings, status.say)
    except OSError as error:
        host = f"{settings.web.host}:{settings.web.port}"
        status.say(f"no web page: {host} cannot be listened on ({error.strerror}); set web.host")
        yield
        return
    status.say(f"the web page is at {server.url}")
    try:
        yield
    finally:
        server.close()


@contextmanager
def stopped_by_signals(job: Job, told: list[int] | None = None) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the job in good order; a second one ends it at once."""
    received = [] if told is None else told

    def stop(number: int, _: FrameType | None) -> None:
        if received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        received.append(number)
        job.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    if received:
        job.stop()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stories:
    """What simulated clusters tell while they live, as their collectors write it down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, int] = {path: path.stat().st_size for path in self._files()}
        self._held: list[dict[str, Any]] = []

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*/{STORY}"))

    def new(self) -> list[dict[str, Any]]:
        """What is new, once a look has found no more of it: clusters that live through the same do
        not write it down in the same moment."""
        found = self._further()
        self._held += found
        if found:
            return []
        told, self._held = self._held, []
        return sorted(told, key=lambda each: (each["at_ms"], each["cluster"]))

    def _further(self) -> list[dict[str, Any]]:
        found = []
        for path in self._files():
            with path.open("r", encoding="utf-8") as source:
                source.seek(self._read.get(path, 0))
                while (line := source.readline()).endswith("\n"):
                    found.append(json.loads(line))
                    self._read[path] = source.tell()
        return found


def together(told: Sequence[dict[str, Any]]) -> list[str]:
    """What clusters tell at the same time in the same words is said once."""
    found: dict[str, tuple[int, list[str]]] = {}
    for each in told:
        found.setdefault(each["text"], (each["at_ms"], []))[1].append(each["cluster"])
    return [
        f"{time.strftime('%H:%M:%S', time.localtime(at_ms / 1_000))} "
        f"{', '.join(dict.fromkeys(clusters))}: {text}"
        for text, (at_ms, clusters) in found.items()
    ]


class Watcher:
    """Looks at the job now and then: says how it goes, and when it is enough."""

    def __init__(
        self, job: Job, store: AlertStore, status: StatusLine, stories: Stories, limits: Limits
    ) -> None:
        self.job, self.store, self.status = job, store, status
        self.stories, self.limits = stories, limits
        self._offset: dict[str, Any] = {}
        self._moved = time.monotonic()
        self._seen_first = False

    def look(self) -> bool:
        for line in together(self.stories.new()):
            self.status.say(line)
        if self.job.progress.batches and not self._seen_first:
            self._seen_first = True
            self.status.say("the first batch is done")
        self.status.show(self._line())
        most = self.limits.max_batches
        if most is not None and self.job.progress.batches >= most:
            return True
        return self.limits.until_idle and self._idle()

    def _line(self) -> str:
        done = self.job.progress
        if not done.batches:
            return "waiting for the first batch, which takes longest"
        oldest = min(done.clocks.values(), default=now_ms())
        open_alerts = [a for a in self.store.open_alerts() if a.status.value == "firing"]
        return (
            f"{done.batches} batches, {done.rows} rows, lag {(now_ms() - oldest) / 1_000:.1f} s, "
            f"last batch {done.duration_ms} ms, {len(open_alerts)} firing"
            + (f", {done.quarantined} in quarantine" if done.quarantined else "")
        )

    def _idle(self) -> bool:
        """Nothing is under way, and nothing has come for a while."""
        offset = self.job.read_up_to
        if offset != self._offset or self.job.busy or self._recordings_left(offset):
            self._offset, self._moved = offset, time.monotonic()
        return bool(offset) and time.monotonic() - self._moved > IDLE_S

    def _recordings_left(self, offset: dict[str, Any]) -> bool:
        return any(
            listed(Path(cluster.source.path))[-1:] > [str(offset.get(cluster.name, ""))]
            for cluster in self.job.settings.clusters
            if isinstance(cluster.source, RecordingSource)
        )
