"""On a Spark cluster: a standalone master and two workers on this machine, with the archive."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from tidestaff.streaming.lab.plan import free_ports
from tidestaff.streaming.settings import Cluster, Settings

from tests.streaming.job.conftest import record
from tests.streaming.job.processes import PROGRAM, children_of, kill_if_there

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JARS = Path(pyspark.__file__).parent / "jars"


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


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    port, *ports = free_ports(6)
    folder = tmp_path / "cluster"
    folder.mkdir()
    address = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1"]
    started = [
        java(
            "org.apache.spark.deploy.master.Master",
            [*here, "--port", str(port), "--webui-port", str(ports[0])],
            folder,
        )
    ]
    try:
        wait_for(port)
        for number in (1, 3):
            more = ["--port", str(ports[number]), "--webui-port", str(ports[number + 1])]
            more += ["--cores", "1", "--memory", "900m", "--work-dir", str(folder / f"w{number}")]
            name = "org.apache.spark.deploy.worker.Worker"
            started.append(java(name, [*here, *more, address], folder))
        for number in (1, 3):
            wait_for(ports[number])
        yield address
    finally:
        for process in reversed(started):
            below = children_of(process.pid)
            process.kill()
            process.wait()
            for child in below:
                kill_if_there(child)


def wait_for(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"nobody listens on {port}")


def test_executors_run_what_the_archive_holds(tmp_path: Path, master: str) -> None:
    recording = tmp_path / "recording"
    source = {"type": "simulator", "scenario": "story-0.10.2"}
    cluster = Cluster.model_validate({"name": "c", "source": source})
    record(recording, Settings(clusters=(cluster,)), rounds=50, rounds_a_file=10)
    config = tmp_path / "t.yaml"
    config.write_text(
        f"spark: {{master: '{master}', driver_memory: 700m, shuffle_partitions: 2, "
        "quick_start: true, conf: {spark.executor.memory: 600m, spark.driver.host: 127.0.0.1, "
        "spark.driver.bindAddress: 127.0.0.1}}\n"
        "operator: {buckets: 4}\n"
    )
    shared = tmp_path / "shared"
    arguments = ["--config", str(config), "--work-dir", str(shared), "--files-per-batch", "2"]
    done = subprocess.run(
        [*PROGRAM, "replay", str(recording), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "TRN001 committed-offsets-lost" in done.stdout
    unpacked = list((tmp_path / "cluster").glob("w*/app-*/*/tidestaff_archive/tidestaff"))
    assert len(unpacked) == 2, "both executors have taken the archive"
    assert list((shared / "checkpoint" / "state").rglob("*.changelog"))
