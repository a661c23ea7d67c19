"""Recordings: rounds of a collector, or records of a topic, as files in the order of their
events."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidestaff.connectors.client_properties import client_options
from tidestaff.connectors.errors import ConnectorError
from tidestaff.connectors.importing import load_client_library
from tidestaff.connectors.linking import Linker
from tidestaff.connectors.wire import WireError, from_bytes
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.settings import DirectSource, KafkaSource, RecordingSource, SimulatorSource
from tidestaff.streaming.sources.collecting import collector_of
from tidestaff.streaming.sources.row_files import file_name, listed, write
from tidestaff.streaming.sources.simulated import SimulatedCollector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tidestaff.connectors.broker_health import Problem
    from tidestaff.connectors.wire import Row
    from tidestaff.streaming.settings import Cluster

_POLL_MS = 500
_JOIN_S = 0.2
_KAFKA_ROUND = 1_000


@dataclass(frozen=True, slots=True)
class Written:
    """How much a recorder has written."""

    rows: int = 0
    rounds: int = 0
    files: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(self.rows + other.rows, self.rounds + other.rounds, self.files + other.files)

    __radd__ = __add__

    def as_value(self) -> dict[str, int]:
        return {"rows": self.rows, "rounds": self.rounds, "files": self.files}


class Recorder:
    """Writes what one source sees; several may write into one folder."""

    def __init__(self, cluster: Cluster, folder: Path, suffix: str, rounds_a_file: int) -> None:
        self.cluster, self.folder = cluster, folder
        self.written = Written()
        self.error: BaseException | None = None
        self.untold: Sequence[Problem] = ()
        """What the last round could not read, where it had not lasted long enough for a row."""
        self._suffix, self._rounds_a_file = suffix, rounds_a_file
        self._kept: list[Row] = []
        self._rounds = 0
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, rounds: int | None, fast: bool, stopping: threading.Event) -> None:
        try:
            for number, rows in enumerate(self._source(fast, stopping), 1):
                self._take(rows)
                if stopping.is_set() or (rounds is not None and number >= rounds):
                    break
            self._close_file()
        except BaseException as error:  # noqa: BLE001 - told by whoever joins the thread
            self.error = error

    def _source(self, fast: bool, stopping: threading.Event) -> Iterator[list[Row]]:
        source = self.cluster.source
        if isinstance(source, SimulatorSource | DirectSource):
            return self._collected(source, fast, stopping)
        if isinstance(source, KafkaSource):
            return _consumed(source, stopping)
        assert isinstance(source, RecordingSource)
        raise CommandError(
            f"clusters: {self.cluster.name}: found a recording, expected a source that lives",
            f"{source.path} can be copied as it is",
        )

    def _collected(
        self,
        source: SimulatorSource | DirectSource,
        fast: bool,
        stopping: threading.Event,
    ) -> Iterator[list[Row]]:
        collector, linker = collector_of(self.cluster), Linker()
        pause_s = source.round_interval_ms / 1_000 / getattr(source, "speed", 1.0)
        if isinstance(collector, SimulatedCollector):
            collector.origin_ms = int(time.time() * 1_000) - collector.cluster.now_ms
        due = time.monotonic()
        while not stopping.is_set() and not getattr(collector, "finished", False):
            seen = collector.round()
            self.untold = getattr(collector, "untold", ())
            yield linker.link(seen)
            due += pause_s
            if not fast:
                stopping.wait(max(0.0, due - time.monotonic()))

    def _take(self, rows: list[Row]) -> None:
        self._kept += rows
        self._rounds += 1
        if self._rounds % self._rounds_a_file == 0:
            self._close_file()

    def _close_file(self) -> None:
        if not self._kept:
            return
        first_ms = min(row.observed_at_ms for row in self._kept)
        counter = len(listed(self.folder)) + 1
        while (path := self._path(first_ms, counter)).exists():
            counter += 1
        write(path, self._kept)
        new = Written(len(self._kept), self._rounds - self.written.rounds, 1)
        self.written = self.written + new
        self._kept = []

    def _path(self, first_ms: int, counter: int) -> Path:
        name = file_name(first_ms, counter, self._suffix)
        stem, _, suffix = name.rpartition(".")
        return self.folder / f"{stem}-{self.cluster.name}.{suffix}"


def record_all(
    recorders: Sequence[Recorder],
    rounds: int | None,
    fast: bool,
    stopping: threading.Event,
    look: Callable[[], None] = lambda: None,
) -> Written:
    """Run them side by side. One that fails ends the others, too: that a cluster is missing must
    not come out only when somebody ends the rest. `look` is called now and then."""
    threads = [
        threading.Thread(target=each.run, args=(rounds, fast, stopping)) for each in recorders
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        next(thread for thread in threads if thread.is_alive()).join(_JOIN_S)
        if any(each.error is not None for each in recorders):
            stopping.set()
        look()
    for each in recorders:
        if each.error is not None:
            raise each.error
    total = sum((each.written for each in recorders), Written())
    if not total.rows and rounds is not None:
        raise _nothing_seen(recorders, rounds)
    return total


def _nothing_seen(recorders: Sequence[Recorder], rounds: int) -> CommandError:
    """A source that is silent says so after some rounds only; fewer must not hide the reason."""
    names = ", ".join(each.cluster.name for each in recorders)
    what = f"clusters: {names}: nothing was seen in {rounds} rounds, so nothing was written"
    problem = next((problem for each in recorders for problem in each.untold), None)
    if problem is None:
        return CommandError(what, "check that the cluster can be reached, and take more rounds")
    return CommandError(f"{what}: {problem.reason}", problem.remedy)


def _consumed(source: KafkaSource, stopping: threading.Event) -> Iterator[list[Row]]:
    """Records of the topics as they come; one that cannot be read is left out."""
    load_client_library()
    from kafka import KafkaConsumer  # type: ignore[import-untyped]  # noqa: PLC0415 - with Kafka
    from kafka.errors import KafkaError  # type: ignore[import-untyped]  # noqa: PLC0415
    from tidestaff.connectors.kafka_python_client import library_options  # noqa: PLC0415

    given = {
        key.removeprefix("kafka."): value.get_secret_value()
        for key, value in source.properties.items()
    }
    try:
        properties = library_options(client_options(given))
    except ConnectorError as error:
        raise CommandError(error.reason, error.remedy) from None
    try:
        consumer = KafkaConsumer(
            *source.topics,
            bootstrap_servers=source.bootstrap_servers,
            auto_offset_reset=source.starting_offsets,
            enable_auto_commit=False,
            **properties,
        )
    except KafkaError as error:
        raise CommandError(
            f"{source.bootstrap_servers}: not reached ({type(error).__name__})",
            "check bootstrap_servers, that the brokers run, and the properties for security",
        ) from None
    try:
        while not stopping.is_set():
            found = consumer.poll(timeout_ms=_POLL_MS, max_records=_KAFKA_ROUND)
            rows = [
                row for each in found.values() for record in each if (row := _row(record.value))
            ]
            if rows:
                yield rows
    finally:
        consumer.close()


def _row(value: bytes) -> Row | None:
    try:
        return from_bytes(value)
    except WireError:
        return None
