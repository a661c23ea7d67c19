"""The job: sources, operator, alerts, as one streaming query that is watched over until its end."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidestaff.streaming import checkpoint, session
from tidestaff.streaming.alerts.batch import OutputRow
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.hadoop_folder import HadoopFolder
from tidestaff.streaming.operator.judging import judge
from tidestaff.streaming.sources.reader import TICK_KEY
from tidestaff.streaming.sources.streams import streams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from tidestaff.streaming.checkpoint import Folder
    from tidestaff.streaming.settings import Settings

_PATIENCE_S: Final = 5.0
_LOOK_S: Final = 0.1
_TRIES: Final = 5
_GONE_WITHIN_S: Final = 1.0
_HEALTHY_S: Final = 600.0
_LONGEST_PAUSE_S: Final = 30.0
_CAUSE: Final = "Caused by: "
_DEAD_WORKER: Final = ("Stream closed", "PythonWorkerFactory.stopWorker")
"""What Spark says when it takes a worker for idle whose daemon was killed with it, and where."""
_MOST_WORKERS: Final = 64
_PY4J: Final = "An error occurred while calling "


class Stopped(Exception):  # noqa: N818 - not an error
    """The job ends: a batch is not begun any more."""


class Receiver(Protocol):
    """Takes the output of a batch; the same batch may come twice, after a crash."""

    def process_batch(self, query_id: str, batch_id: int, rows: Sequence[OutputRow]) -> object: ...


@dataclass
class Progress:
    """What has been done so far, for people to read."""

    batches: int = 0
    rows: int = 0
    quarantined: int = 0
    last_batch: int = -1
    clocks: dict[str, int] = field(default_factory=dict)
    duration_ms: int = 0
    finished_at: float = 0.0

    def take(self, batch_id: int, rows: Sequence[OutputRow], duration_ms: int) -> None:
        self.batches += 1
        self.last_batch, self.duration_ms, self.finished_at = batch_id, duration_ms, time.time()
        for row in rows:
            if row.kind == "stats":
                found = json.loads(row.payload)
                self.rows += int(found.get("rows", 0))
                for cluster, at_ms in (found.get("clocks") or {}).items():
                    self.clocks[cluster] = max(at_ms, self.clocks.get(cluster, at_ms))
            elif row.kind == "quarantine":
                self.quarantined += 1


class Job:
    """One query on one checkpoint. `receivers` are called one after the other, on the driver."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        receivers: Sequence[Receiver],
        *,
        live: bool = True,
        view: bool = False,
        since_ms: int | None = None,
    ) -> None:
        self.spark, self.settings, self.receivers = spark, settings, receivers
        self.live, self.view, self.since_ms = live, view, since_ms
        self.progress = Progress()
        self.query: StreamingQuery | None = None
        self.batch_began = 0.0
        self.folder: Folder = settings.checkpoint.resolve()
        if settings.checkpoint_dir is not None:
            self.folder = HadoopFolder(spark, settings.checkpoint_dir)
        # No threading.Event: its lock may be held by whom a signal interrupts to set it.
        self._stopping = False
        self._error: BaseException | None = None

    def start(self) -> StreamingQuery:
        settings = self.settings
        folder = self.folder
        after = checkpoint.planned(folder)
        tick = self.live and not settings.only_recordings
        found = streams(self.spark, settings, after, tick=tick, since_ms=self.since_ms)
        output = judge(
            found.rows,
            buckets=settings.operator.buckets,
            lateness_ms=settings.operator.lateness_ms,
            silence_ms=settings.operator.silence_ms,
            run=str(folder),
            # After a start nobody knows what the page's store has.
            view=secrets.token_hex(4) if self.view else "",
        )
        if found.refused is not None:
            output = output.unionByName(found.refused)
        interval = settings.operator.trigger_interval_ms if self.live else 0
        self.query = (
            output.writeStream.foreachBatch(self._batch)
            .outputMode("append")
            .option("checkpointLocation", str(folder))
            .queryName("tidestaff")
            .trigger(processingTime=f"{interval} milliseconds")
            .start()
        )
        return self.query

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        if self._stopping:
            # Nothing of this batch is done yet: the next start does it.
            raise Stopped
        self.batch_began = time.monotonic()
        try:
            rows = [OutputRow(row[0], row[1], row[2]) for row in frame.collect()]
            query_id = self.query_id
            for receiver in self.receivers:
                receiver.process_batch(query_id, batch_id, rows)
        except BaseException as error:
            self._error = error
            raise
        self.progress.take(batch_id, rows, int(1_000 * (time.monotonic() - self.batch_began)))

    @cached_property
    def query_id(self) -> str:
        """The name that Spark gave the query when the checkpoint was made: it outlives restarts."""
        return checkpoint.query_id(self.folder)

    def stop(self) -> None:
        """End soon; may be called from a signal handler."""
        self._stopping = True

    @property
    def busy(self) -> bool:
        """Whether a batch is planned and not done."""
        return checkpoint.planned(self.folder) != checkpoint.done(self.folder)

    @property
    def read_up_to(self) -> dict[str, Any]:
        """How far the job's own source has been through complete batches, ticks apart."""
        found = checkpoint.done(self.folder)
        return {name: value for name, value in found.items() if name != TICK_KEY}

    def watch(self, look: Callable[[], bool], say: Callable[[str], None]) -> None:
        """Run until told to stop, or until `look`, called often, says that it is enough.

        A query that fails is started again after a pause; one that keeps failing is given up. Where
        Python workers were killed, every try ends at one of those that Spark still holds for idle,
        and rids it of that one: such tries do not count as long as there may be more of them.
        """
        failures = dead_workers = 0
        while not self._stopping:
            began = time.monotonic()
            error = self._tried(look)
            if error is None:
                self._end()
                return
            if session.is_gone(self.spark, _GONE_WITHIN_S):
                raise self.without_jvm()
            if time.monotonic() - began > _HEALTHY_S:
                failures = dead_workers = 0
            dead = all(each in _with_traces(error) for each in _DEAD_WORKER)
            if self.live and dead and dead_workers < _MOST_WORKERS:
                dead_workers += 1
                if dead_workers == 1:
                    say("Python workers of Spark's were killed; trying again with others")
                self._wait(_LOOK_S)
                continue
            failures += 1
            if failures >= _TRIES or not self.live:
                raise self.failed(error)
            pause = min(_LONGEST_PAUSE_S, 2.0**failures)
            say(f"the query failed ({first_line(error)}); trying again in {pause:.0f} s")
            self._wait(pause)

    def _tried(self, look: Callable[[], bool]) -> BaseException | None:
        """What ended the query that is started here, None if it was told to."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - slow
        from pyspark.errors import PySparkException  # noqa: PLC0415

        self._error = self.query = None
        try:
            self.start()
            return self._until_end(look)
        except (Py4JError, PySparkException, ConnectionError) as error:
            return error

    def _until_end(self, look: Callable[[], bool]) -> BaseException | None:
        assert self.query is not None
        while not self._stopping:
            if not self.query.isActive:
                error: BaseException | None = self._error or self.query.exception()
                return error or RuntimeError("the query ended by itself")
            if look():
                return None
            time.sleep(_LOOK_S)
        return None

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def _end(self) -> None:
        """Let the batch that runs come to its end, if it does so soon; then stop.

        The batch after it ends the query by itself. To interrupt one would throw its work away.
        """
        self._stopping = True
        query, until = self.query, time.monotonic() + _PATIENCE_S
        while query is not None and query.isActive:
            if not query.status["isTriggerActive"] or time.monotonic() > until:
                query.stop()
            time.sleep(_LOOK_S / 2)

    def without_jvm(self) -> CommandError:
        return CommandError(
            "Spark's Java process is gone: it was killed, or ran out of memory",
            f"look into {self.settings.work / 'logs'}/jvm.log and the system's log; give the"
            " machine more memory, or less to spark.driver_memory; a new start goes on where this"
            " one was",
        )

    def failed(self, error: BaseException) -> CommandError:
        logs = self.settings.work / "logs"
        return CommandError(
            f"the streaming query failed: {first_line(error)}",
            f"Spark's own words are in {logs}; the checkpoint is as it was after the last batch",
        )


def _with_traces(error: BaseException | None) -> str:
    """pyspark shows the traces of some of its errors, and keeps those of others to itself."""
    found = ""
    while error is not None:
        found += f"{error}\n{getattr(error, '_stackTrace', '')}\n"
        error = getattr(error, "_cause", None)
    return found


def first_line(error: BaseException) -> str:
    """The line of an error that a person can use: the Python error inside Spark's, if there is,
    else the last cause that Java names."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if line.startswith(("tidestaff.", "pyspark.errors."))]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    said = [line.removeprefix(": ") for line in lines if not line.startswith(_PY4J)]
    found = [*(python or causes)[-1:], *said, type(error).__name__]
    return found[0][:400]
