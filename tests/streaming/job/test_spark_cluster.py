"""On a Spark cluster: a standalone master and two workers on this machine, with the archive. One
worker dies in the middle of the stream."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyspark
import pytest
from tidestaff.streaming.alerts.reading import AlertReader
from tidestaff.streaming.lab.plan import free_ports
from tidestaff.streaming.replaying import replay_on, settings_for
from tidestaff.streaming.settings import Cluster, Settings

from tests.streaming.job.conftest import record
from tests.streaming.job.processes import (
    PROGRAM,
    SUBMITTED_WITHIN_S,
    children_of,
    kill_if_there,
    submit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JARS = Path(pyspark.__file__).parent / "jars"
# Nothing begins before both executors are there, however slowly they come up.
BOTH = {
    "spark.cores.max": 2,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
}


def java(name: str, arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", f"{JARS}/*", name, *arguments]
    environment = {
        **os.environ,
        "SPARK_HOME": str(JARS.parent),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / f"{name.rpartition('.')[2]}.log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True
        )


class Standalone(NamedTuple):
    """A master's address, and its workers with the folders of their executors."""

    address: str
    workers: list[subprocess.Popen[bytes]]
    folders: list[Path]


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    port, *ports = free_ports(6)
    folder = tmp_path / "cluster"
    folder.mkdir()
    address = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1"]
    ours = [*here, "--port", str(port), "--webui-port", str(ports[0])]
    started = [java("org.apache.spark.deploy.master.Master", ours, folder)]
    try:
        wait_for(port)
        folders = [folder / "w1", folder / "w2"]
        for number, work in enumerate(folders):
            listens, page = ports[1 + 2 * number : 3 + 2 * number]
            more = ["--port", str(listens), "--webui-port", str(page), "--work-dir", str(work)]
            more += ["--cores", "1", "--memory", "900m", address]
            started.append(java("org.apache.spark.deploy.worker.Worker", [*here, *more], folder))
        for number in (1, 3):
            wait_for(ports[number])
        yield Standalone(address, started[1:], folders)
    finally:
        for process in reversed(started):
            kill_with_children(process)


def kill_with_children(process: subprocess.Popen[bytes]) -> None:
    """At once; an executor does not outlive its worker."""
    below = children_of(process.pid)
    process.kill()
    process.wait()
    for child in below:
        kill_if_there(child)


def wait_for(port: int) -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"nobody listens on {port}")


def test_a_worker_dies_in_the_middle_and_no_alert_is_lost_or_doubled(
    spark: SparkSession, tmp_path: Path, standalone: Standalone
) -> None:
    recording = tmp_path / "recording"
    source = {"type": "simulator", "scenario": "story-0.10.2"}
    cluster = Cluster.model_validate({"name": "c", "source": source})
    record(recording, Settings(clusters=(cluster,)), rounds=60, rounds_a_file=5)
    operator = {"buckets": 4}
    (tmp_path / "calm").mkdir()
    base = Settings.model_validate({"operator": operator})
    settings = settings_for(base, recording, tmp_path / "calm", 1_000)
    calm = replay_on(spark, settings).transitions

    config = tmp_path / "t.yaml"
    conf = {
        "spark.executor.memory": "600m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **BOTH,
    }
    config.write_text(
        f"spark: {{master: '{standalone.address}', driver_memory: 700m, shuffle_partitions: 2, "
        f"quick_start: true, conf: {json.dumps(conf)}}}\n"
        f"operator: {json.dumps(operator)}\n"
    )
    shared = tmp_path / "shared"
    command = [*PROGRAM, "replay", str(recording), "--config", str(config)]
    command += ["--work-dir", str(shared), "--files-per-batch", "1"]
    with (tmp_path / "out").open("w+") as out, (tmp_path / "err").open("w+") as err:
        job = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
        try:
            until(lambda: committed(shared) >= 2 or job.poll() is not None)
            assert job.poll() is None, (tmp_path / "err").read_text()[-2_000:]
            both = [list(f.glob("app-*/*/tidestaff_archive/tidestaff")) for f in standalone.folders]
            kill_with_children(standalone.workers[0])
            struck = committed(shared)
            assert job.wait(SUBMITTED_WITHIN_S) == 2, (tmp_path / "err").read_text()[-2_000:]
        finally:
            below = children_of(job.pid)
            kill_if_there(job.pid)
            job.wait()
            for child in below:
                kill_if_there(child)
    assert all(both), "both executors had taken the archive"
    assert struck < committed(shared), "it had work left when the worker died"
    assert "TRN001 committed-offsets-lost" in (tmp_path / "out").read_text()
    assert list((shared / "checkpoint" / "state").rglob("*.changelog"))

    reader = AlertReader(shared / "alerts.sqlite")
    kept = [transition for _, transition in reader.transitions(limit=99_999)]
    reader.close()
    own = [each for each in kept if each.fields["code"] != "SRC005"]
    assert sorted(each.text for each in own) == sorted(each.text for each in calm)


def test_spark_submit_brings_the_archive_to_both_workers(
    tmp_path: Path, standalone: Standalone
) -> None:
    """The configuration names no master: the one of the command line counts."""
    recording = tmp_path / "recording"
    source = {"type": "simulator", "scenario": "story-0.10.2"}
    cluster = Cluster.model_validate({"name": "c", "source": source})
    record(recording, Settings(clusters=(cluster,)), rounds=60, rounds_a_file=30)
    config = tmp_path / "t.yaml"
    config.write_text("spark: {shuffle_partitions: 2, quick_start: true}\noperator: {buckets: 4}\n")
    shared = tmp_path / "shared"
    arguments = ["replay", str(recording), "--config", str(config), "--work-dir", str(shared)]
    options = ["--conf", "spark.executor.memory=600m"]
    options += [part for key, value in BOTH.items() for part in ("--conf", f"{key}={value}")]
    done = submit(tmp_path, standalone.address, options, arguments)
    assert done.code == 2, done.err[-3_000:]
    assert "TRN001 committed-offsets-lost" in done.out
    for folder in standalone.folders:
        assert list(folder.glob("app-*/*/tidestaff_archive/tidestaff")), "it ran here, too"
    assert list((shared / "checkpoint" / "state").rglob("*.changelog"))


def committed(folder: Path) -> int:
    """Batches that were ended, of which the newest are kept."""
    entries = (folder / "checkpoint" / "commits").glob("[0-9]*")
    return max((int(path.name) + 1 for path in entries), default=0)


def until(condition: Callable[[], bool], within_s: float = SUBMITTED_WITHIN_S) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.2)
