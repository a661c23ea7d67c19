"""Collectors inside the job: each runs in a thread, and what it sees is kept in files until Spark
has dealt with it.

A batch that Spark repeats after a crash must see the very same rows, and a cluster cannot be asked
twice for the past: so every round is written to the journal first and read from there.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import TypeAdapter
from tidestaff.connectors.agent_options import agent_options
from tidestaff.connectors.broker_options import options_of
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.connectors.digest_rounds import DigestRounds
from tidestaff.connectors.digest_wire import WireRanges
from tidestaff.connectors.errors import ConnectorError, OptionError
from tidestaff.connectors.importing import load_client_library
from tidestaff.connectors.linking import Linker
from tidestaff.connectors.pacing import Pace
from tidestaff.connectors.wire import CLUSTER, HEALTH, WireError, observation_of
from tidestaff.connectors.zookeeper import ZookeeperConnector, options_without_brokers
from tidestaff.connectors.zookeeper_metadata import zookeeper_source
from tidestaff.connectors.zookeeper_options import zookeeper_options
from tidestaff.consistency.model import HealthObservation
from tidestaff.streaming.commands.arguments import did_you_mean
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.settings import (
    Cluster,
    DirectSource,
    RecordingSource,
    SimulatorSource,
)
from tidestaff.streaming.sources.row_files import (
    PARQUET,
    RowFileError,
    batches,
    listed,
    to_rows,
    write,
)
from tidestaff.streaming.sources.simulated import SimulatedCollector, script_of
from tidestaff.streaming.sources.steady_clock import SelfWatch, SteadyClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.connectors.broker_options import BrokerOptions
    from tidestaff.connectors.digest_wire import RecordsReader
    from tidestaff.connectors.wire import Row
    from tidestaff.consistency.model import Observation
    from tidestaff.streaming.sources.simulated import Told

STORY: Final = "story.jsonl"
KEPT_FILES: Final = 200
LONGEST_PAUSE_MS: Final = 60_000


class Collector(Protocol):
    """Looks at a cluster once: everything it sees in one round."""

    def round(self) -> list[Observation]: ...


def _as_simulator(source: DirectSource) -> SimulatorSource:
    options: dict[str, Any] = {**source.options, "round_interval_ms": source.round_interval_ms}
    return TypeAdapter(SimulatorSource).validate_python(options)


# One for all collectors of a process.
_now_ms: Final = SteadyClock()


def _brokers(name: str, source: DirectSource) -> Collector:
    """A live cluster through its brokers. What the options say wrong is told here."""
    load_client_library()
    from tidestaff.connectors.kafka_python_reader import KafkaPythonReader  # noqa: PLC0415 - slow

    secrets = {key: value.get_secret_value() for key, value in source.secrets.items()}
    try:
        zookeeper, given, plain, secrets = zookeeper_options(source.options, secrets)
        asking, plain, secrets = agent_options(plain, secrets)
        options = options_of(plain, secrets)
        if zookeeper is not None and options.mode == "kraft":
            raise OptionError("mode", "is kraft beside zookeeper_connect", "leave one of them out")
        pace = Pace(options.requests_per_second, lambda: time.monotonic() * 1_000, time.sleep)
        reader = KafkaPythonReader(
            options.bootstrap_servers,
            options.properties,
            timeout_ms=options.timeout_ms,
            pace=pace.wait,
        )
    except ConnectorError as error:
        raise CommandError(f"clusters: {name}: {error.reason}", error.remedy) from None
    pool = ThreadPoolExecutor(options.concurrency, thread_name_prefix=f"asking-{name}")
    metadata = None
    if zookeeper is not None:
        options = replace(options, mode="zookeeper")
        metadata = zookeeper_source(zookeeper, options.wants, locate=reader.metadata)
    return BrokerConnector(
        reader,
        name,
        options,
        now_ms=_now_ms,
        each=pool.map,
        metadata=metadata,
        given=given,
        agents=asking and asking.agents(reader.hosts, options, _now_ms),
        digests=_digests(reader, options),
        closing=lambda: pool.shutdown(wait=False, cancel_futures=True),
    )


def _digests(reader: RecordsReader, options: BrokerOptions) -> DigestRounds | None:
    """Contents are compared all the time where the options give bytes for it."""
    if not options.verify_bytes_per_round:
        return None
    state = options.verify_state or None
    return DigestRounds(
        WireRanges(reader), options.verify_bytes_per_round, state, options.verify_again_after_ms
    )


def _zookeeper(name: str, source: DirectSource) -> Collector:
    """A live cluster through ZooKeeper alone."""
    secrets = {key: value.get_secret_value() for key, value in source.secrets.items()}
    try:
        zookeeper, given, plain, secrets = zookeeper_options(source.options, secrets)
        if zookeeper is None:
            raise OptionError("zookeeper_connect", "is missing", "write host:port/chroot")
        options = options_without_brokers(plain, secrets)
        return ZookeeperConnector(
            zookeeper_source(zookeeper, options.wants),
            name,
            options,
            now_ms=_now_ms,
            given=given,
        )
    except ConnectorError as error:
        raise CommandError(f"clusters: {name}: {error.reason}", error.remedy) from None


COLLECTORS: Final[dict[str, Callable[[str, DirectSource], Collector]]] = {
    "simulator": lambda name, source: SimulatedCollector(name, _as_simulator(source)),
    "brokers": _brokers,
    "zookeeper": _zookeeper,
}


def check(cluster: Cluster) -> None:
    """Tell what can be told of a source before Spark is started."""
    source = cluster.source
    if isinstance(source, SimulatorSource):
        script_of(cluster.name, source)
    elif isinstance(source, RecordingSource) and not Path(source.path).is_dir():
        raise CommandError(
            f"clusters: {cluster.name}: {source.path}: there is no such directory",
            "correct path; 'tidestaff record' makes recordings",
        )
    elif isinstance(source, DirectSource) and source.collector not in COLLECTORS:
        hint = did_you_mean(source.collector, COLLECTORS)
        raise CommandError(
            f"clusters: {cluster.name}: no collector {source.collector!r}, "
            f"expected one of {', '.join(COLLECTORS)}{hint}",
            "take another source, or a release that has this collector",
        )


def check_options(cluster: Cluster) -> None:
    """Tell what is wrong with a collector's options: it is made and closed, and asks nobody."""
    source = cluster.source
    if isinstance(source, DirectSource) and source.collector != "simulator":
        collector_of(cluster).close()  # type: ignore[attr-defined]


def collector_of(cluster: Cluster) -> Collector:
    """The collector a cluster's source asks for."""
    source = cluster.source
    if isinstance(source, SimulatorSource):
        return SimulatedCollector(cluster.name, source)
    assert isinstance(source, DirectSource)
    check(cluster)
    return COLLECTORS[source.collector](cluster.name, source)


class Journal:
    """Rounds as numbered files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The last round that saw the cluster is kept: links and what was told go on from there.
        self.sighted = 0
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def last(self) -> int:
        """The number of the newest file, 0 before the first."""
        names = listed(self.folder)
        return number_of(names[-1]) if names else 0

    def path(self, number: int) -> Path:
        return self.folder / f"{number:012d}.{PARQUET}"

    def forget(self, before: int) -> None:
        for name in listed(self.folder):
            if number_of(name) < before and number_of(name) != self.sighted:
                (self.folder / name).unlink(missing_ok=True)


def number_of(name: str) -> int:
    return int(name.partition(".")[0])


def _health_of(row: Row) -> HealthObservation | None:
    """None for a row of another release, which cannot be gone on from."""
    try:
        seen = observation_of(row)
    except WireError:
        return None
    return seen if isinstance(seen, HealthObservation) else None


class Collecting(threading.Thread):
    """Runs one collector at its rate until it is told to stop."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        after: int = 0,
        *,
        clock: SteadyClock = _now_ms,
        since_ms: int | None = None,
    ) -> None:
        """A story that is not begun yet is taken to have begun at `since_ms`."""
        super().__init__(name=f"collecting-{cluster.name}", daemon=True)
        self.cluster, self.journal = cluster, Journal(folder)
        self.error: BaseException | None = None
        # Files may be gone; a number that Spark has seen is never given again.
        self.newest = max(self.journal.last, after)
        self.ended = False
        self._clock, self._at_ms, self._round = clock, 0, 0
        self._since_ms = since_ms
        self._stopped = threading.Event()
        self._linker = Linker()
        named = getattr(cluster.source, "collector", cluster.source.type)
        self._watch = SelfWatch(cluster.name, named)
        self._told: list[HealthObservation] = []
        self._resume()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        try:
            collector = collector_of(self.cluster)
            try:
                self._collect(collector)
            finally:
                if hasattr(collector, "close"):
                    collector.close()
        except BaseException as error:  # noqa: BLE001 - told by the thread that asks for offsets
            self.error = error

    def _collect(self, collector: Collector) -> None:
        source = self.cluster.source
        assert isinstance(source, SimulatorSource | DirectSource)
        interval_ms = source.round_interval_ms / getattr(source, "speed", 1.0)
        lived = 0
        if isinstance(collector, SimulatedCollector):
            lived = self._catch_up(collector, interval_ms)
        elif hasattr(collector, "resume"):
            collector.resume(self._told)
        due, failures = time.monotonic(), 0
        while not self._stopped.is_set():
            if getattr(collector, "finished", False):
                self.ended = True
                return
            seen, failed = self._round_of(collector)
            self._write(self._linker.link(seen), collector)
            failures = failures + 1 if failed else 0
            if lived:
                lived -= 1
                continue
            pause_ms = min(
                interval_ms * 2.0 ** min(failures, 30), max(interval_ms, LONGEST_PAUSE_MS)
            )
            due = max(due + pause_ms / 1_000, time.monotonic() - 1.0)
            self._stopped.wait(max(0.0, due - time.monotonic()))

    def _round_of(self, collector: Collector) -> tuple[list[Observation], bool]:
        """What a round saw, and whether it failed. A collector tells by itself what it cannot read;
        what it did not foresee must not leave the cluster unwatched for good."""
        seen: list[Observation] = []
        error: Exception | None = None
        try:
            seen = collector.round()
        except Exception as failed:  # noqa: BLE001 - told as the collector's health
            error = failed
        lives = not isinstance(collector, SimulatedCollector)
        if seen:
            self._watch.speak_as(seen[0].source)
            self._round = seen[0].round
        else:
            self._round += 1
        now_ms = max((each.observed_at_ms for each in seen), default=self._clock())
        self._at_ms = max(self._at_ms + 1, now_ms)
        ahead_ms = self._clock.ahead_ms() if lives else 0
        own = self._watch.close_round(self._at_ms, self._round, ahead_ms=ahead_ms, error=error)
        return [*seen, *own], error is not None

    def _resume(self) -> None:
        """Go on where the journal ends: at its last round that saw the cluster, and after."""
        rounds: list[list[Row]] = []
        for name in reversed(listed(self.journal.folder)):
            try:
                found = [r for batch in batches(self.journal.folder / name) for r in to_rows(batch)]
            except (RowFileError, FileNotFoundError):
                # The reader tells of it; the links begin anew there.
                break
            rounds.insert(0, found)
            if any(row.kind == CLUSTER for row in found):
                self.journal.sighted = number_of(name)
                break
        for found in rounds:
            self._linker.resume(found)
        rows = [row for found in rounds for row in found]
        self._at_ms = max((row.observed_at_ms for row in rows), default=0)
        if isinstance(self.cluster.source, DirectSource):
            self._clock.go_on_from(self._at_ms + 1)
        seen = [_health_of(row) for row in (rounds[-1] if rounds else []) if row.kind == HEALTH]
        self._told = self._watch.resume([each for each in seen if each is not None])

    def _catch_up(self, collector: SimulatedCollector, interval_ms: float) -> int:
        """Live once more through what was written already; then time goes on from now. Of a new
        story, how many rounds are over already: clusters do not wait until somebody watches."""
        while collector.rounds < self.newest:
            collector.round()
        now_ms = max(self._clock(), self._at_ms + 1)
        collector.origin_ms = now_ms - collector.cluster.now_ms
        if self.newest or self._since_ms is None or not collector.script.told:
            return 0
        lived = int(max(0, now_ms - self._since_ms) // interval_ms)
        collector.origin_ms -= lived * collector.every_ms
        return lived

    def _write(self, rows: list[Any], collector: Collector) -> None:
        number = self.newest + 1
        write(self.journal.path(number), rows)
        self.newest = number
        if any(row.kind == CLUSTER for row in rows):
            self.journal.sighted = number
        if isinstance(collector, SimulatedCollector):
            self._tell(collector.told())

    def _tell(self, told: list[Told]) -> None:
        if told:
            with (self.journal.folder / STORY).open("a", encoding="utf-8") as out:
                for each in told:
                    line = {"cluster": self.cluster.name, "at_ms": each.at_ms, "text": each.text}
                    out.write(json.dumps(line) + "\n")
