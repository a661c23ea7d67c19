"""One Spark session for all tests of the job, and a recording to judge."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming import session
from tidestaff.streaming.jars import jars
from tidestaff.streaming.recording import Recorder
from tidestaff.streaming.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

FEW_BUCKETS = {"buckets": 4}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    work = tmp_path_factory.mktemp("spark")
    settings = Settings.model_validate(
        {
            "work_dir": str(work),
            "operator": FEW_BUCKETS,
            "spark": {"master": "local[2]", "driver_memory": "1g", "quick_start": True},
        }
    )
    started = session.start(settings, jars())
    yield started
    started.stop()


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded story of both clusters, all of it, seven rounds a file."""
    folder = tmp_path_factory.mktemp("recording")
    record(folder, Settings(), rounds=140, rounds_a_file=7)
    return folder


def record(
    folder: Path, settings: Settings, *, rounds: int, rounds_a_file: int, suffix: str = "parquet"
) -> None:
    for cluster in settings.clusters:
        recorder = Recorder(cluster, folder, suffix, rounds_a_file)
        recorder.run(rounds, True, threading.Event())  # noqa: FBT003
        if recorder.error is not None:
            raise recorder.error
