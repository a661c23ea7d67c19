"""As documented for spark-submit: the archive of `tidestaff package`, and what lies beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from tidestaff.streaming.settings import Cluster, Settings

from tests.streaming.job.conftest import record
from tests.streaming.job.processes import PROGRAM, children_of, kill_if_there

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOME = Path(pyspark.__file__).parent


def test_a_submitted_replay_finds_the_loss(tmp_path: Path) -> None:
    recording, archive = tmp_path / "recording", tmp_path / "tidestaff.zip"
    source = {"type": "simulator", "scenario": "story-0.10.2"}
    cluster = Cluster.model_validate({"name": "c", "source": source})
    record(recording, Settings(clusters=(cluster,)), rounds=60, rounds_a_file=30)
    subprocess.run([*PROGRAM, "package", "-o", str(archive)], check=True, capture_output=True)

    config = tmp_path / "t.yaml"
    config.write_text("spark: {master: 'local[2]', quick_start: true}\noperator: {buckets: 2}\n")
    command = [str(HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--driver-memory", "700m", "--archives", f"{archive}#tidestaff_archive"]
    command += ["--conf", "spark.executorEnv.PYTHONPATH=tidestaff_archive"]
    command += ["--conf", "spark.driver.host=127.0.0.1", str(tmp_path / "tidestaff_main.py")]
    command += ["replay", str(recording), "--config", str(config)]
    command += ["--work-dir", str(tmp_path / "work")]
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (tmp_path / "out").open("w+") as out, (tmp_path / "err").open("w+") as err:
        job = subprocess.Popen(
            command, stdout=out, stderr=err, cwd=tmp_path, env=environment, start_new_session=True
        )
        try:
            ended = job.wait(300)
        finally:
            below = children_of(job.pid)
            kill_if_there(job.pid)
            job.wait()
            for child in below:
                kill_if_there(child)
    assert ended == 2, (tmp_path / "err").read_text()[-3_000:]
    said = (tmp_path / "out").read_text()
    assert "of 2 files (all of it)" in said
    assert "TRN001 committed-offsets-lost" in said
