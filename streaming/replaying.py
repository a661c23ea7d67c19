"""A recording judged again by the very same job, as fast as it goes."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.streaming.alerts.batch import OutputRow
from tidestaff.streaming.alerts.reading import AlertReader
from tidestaff.streaming.alerts.store import AlertStore
from tidestaff.streaming.checkpoint import CheckpointLock
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.commands.leaving import leave_if
from tidestaff.streaming.one_time import make_of_one_time
from tidestaff.streaming.pipeline import Job
from tidestaff.streaming.running import (
    StoreReceiver,
    now_ms,
    quarantine_of,
    spark_session,
    stopped_by_signals,
)
from tidestaff.streaming.settings import Cluster, RecordingSource, Settings
from tidestaff.streaming.sources.row_files import listed
from tidestaff.streaming.status_line import StatusLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tidestaff.streaming.alerts.transition import Transition
    from tidestaff.streaming.pipeline import Receiver

NAME: Final = "replay"
_PAGE: Final = 10_000


class Replayed(NamedTuple):
    """What came of it: transitions in the order of their event times. `interrupted` by a signal,
    before the end."""

    transitions: list[Transition]
    rows: int
    files: int
    complete: bool
    interrupted: bool = False
    quarantined: int = 0


def settings_for(base: Settings, folder: Path, work: Path, files_per_batch: int) -> Settings:
    """The base's operator and alert settings, on a recording. What the base's own job keeps, and
    where, is left alone."""
    if not folder.is_dir():
        raise CommandError(f"{folder}: there is no such directory, expected a recording")
    if not listed(folder):
        raise CommandError(
            f"{folder}: no .parquet or .avro files, expected those 'tidestaff record' writes"
        )
    path = str(folder.resolve())
    source = RecordingSource(path=path, files_per_batch=files_per_batch)
    changed = {
        "clusters": (Cluster(name=NAME, source=source),),
        "sinks": (),
        "checkpoint_dir": None,
        "alerts": base.alerts.model_copy(update={"store": None}),
        "view": base.view.model_copy(update={"store": None}),
        "quarantine": base.quarantine.model_copy(update={"path": None}),
    }
    return base.model_copy(update={**changed, "work_dir": str(work)})


def replay(settings: Settings, max_batches: int | None, told: list[int]) -> Replayed:
    """Judge it from where the work directory has come to, to its end or for so many batches.
    Signals of before and during it are in `told`."""
    status = StatusLine(sys.stderr)
    with ExitStack() as stack:
        stack.enter_context(CheckpointLock(settings.work))
        status.show("starting Spark")
        spark = stack.enter_context(spark_session(settings, status, told))
        leave_if(told)
        found = replay_on(spark, settings, max_batches, status, told)
        status.clear()
    return found


def replay_on(
    spark: SparkSession,
    settings: Settings,
    max_batches: int | None = None,
    status: StatusLine | None = None,
    told: list[int] | None = None,
    *,
    close: bool = True,
) -> Replayed:
    """The same on a session that is there. Without `close` the recording is taken as one that may
    go on: what waits for its time is left waiting."""
    source = settings.clusters[0].source
    assert isinstance(source, RecordingSource)
    names = listed(Path(source.path))
    settings.work.mkdir(parents=True, exist_ok=True)
    store = AlertStore(settings.store_path, settings.policy, now_ms)
    try:
        quarantine = quarantine_of(settings)
        receivers: list[Receiver] = [StoreReceiver(store, lambda _: None), quarantine]
        job = Job(spark, settings, receivers, live=False)
        say = (lambda _: None) if status is None else status.say
        make_of_one_time(job.folder, store, quarantine, say)

        def at_end() -> bool:
            return str(job.read_up_to.get(NAME, "")) >= names[-1]

        def look() -> bool:
            if status is not None:
                status.show(f"{job.progress.rows} rows judged")
            return at_end() or (max_batches is not None and job.progress.batches >= max_batches)

        told = [] if told is None else told
        with stopped_by_signals(job, told):
            job.watch(look, lambda _: None)
        complete = at_end()
        if complete and close:
            _close(store, settings, job.query_id)
    finally:
        store.close()
    found, rows = _transitions(settings.store_path), job.progress.rows
    ended = bool(told) and not complete
    return Replayed(found, rows, len(names), complete, ended, job.progress.quarantined)


def _close(store: AlertStore, settings: Settings, query_id: str) -> None:
    """The recording is over: what waits for a time to pass is told, as if nothing more happened."""
    reader = AlertReader(settings.store_path)
    try:
        clocks = reader.clocks()
    finally:
        reader.close()
    wait_ms = settings.operator.lateness_ms + settings.alerts.group_wait_ms
    later = {cluster: at_ms + wait_ms for cluster, at_ms in clocks.items()}
    payload = json.dumps({"bucket": -1, "clocks": later})
    store.process_batch(f"{query_id} is over", 0, [OutputRow("stats", 0, payload)])


def _transitions(path: Path) -> list[Transition]:
    reader = AlertReader(path)
    found: list[Transition] = []
    try:
        after = 0
        while page := reader.transitions(after, _PAGE):
            found += [transition for _, transition in page]
            after = page[-1][0]
    finally:
        reader.close()
    return sorted(found, key=lambda each: each.order)
