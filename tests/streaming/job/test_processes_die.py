"""What becomes of the monitor when the system kills a process below it, as it does when memory runs
out."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.streaming.job.processes import Monitor, children_of
from tests.streaming.job.test_run_process import config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    told = config(tmp_path, {"type": "simulator"})
    # More idle workers than a query is tried to start: Spark rids itself of one a try.
    told["spark"] = {**told["spark"], "master": "local[8]", "shuffle_partitions": 8}
    told["operator"]["buckets"] = 8
    watching = Monitor(tmp_path / "run", told)
    try:
        yield watching
    finally:
        watching.kill()


def batches(tmp_path: Path) -> int:
    done = (tmp_path / "data" / "checkpoint" / "commits").glob("[0-9]*")
    return max((int(path.name) for path in done), default=-1)


def split(monitor: Monitor) -> tuple[list[int], list[int]]:
    """The JVM, and the Python processes below it."""
    found: tuple[list[int], list[int]] = [], []
    for pid in children_of(monitor.process.pid):
        try:
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        except FileNotFoundError:
            continue
        found[not program.endswith(b"java")].append(pid)
    return found


def test_a_jvm_that_is_killed_is_told_in_a_sentence(tmp_path: Path, monitor: Monitor) -> None:
    monitor.until(lambda: batches(tmp_path) >= 1)
    (jvm,), _ = split(monitor)
    os.kill(jvm, signal.SIGKILL)
    assert monitor.wait() == 3
    assert "tidestaff: Spark's Java process is gone" in monitor.err
    assert "Traceback" not in monitor.err
    assert "py4j" not in monitor.err


def test_python_workers_that_are_killed_are_started_again(tmp_path: Path, monitor: Monitor) -> None:
    monitor.until(lambda: batches(tmp_path) >= 1)
    _, workers = split(monitor)
    assert workers
    for pid in workers:
        # One may have ended by itself since: an idle one, or one whose daemon is dead.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    monitor.until(lambda: "trying again" in monitor.err)
    before = batches(tmp_path)
    monitor.until(lambda: batches(tmp_path) > before + 1)
    assert "Traceback" not in monitor.err
    monitor.signal(signal.SIGTERM)
    assert monitor.wait() == 0


def test_spark_takes_ctrl_c_from_nobody(spark: SparkSession) -> None:
    assert spark.sparkContext is not None
    handler = signal.getsignal(signal.SIGINT)
    assert not getattr(handler, "__module__", "").startswith("pyspark")
