"""A replay that is told to stop says that it is not all, and goes on when it is called again."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.commands.exits import INTERRUPTED
from tidestaff.streaming.commands.replay import exit_code
from tidestaff.streaming.replaying import replay_on, settings_for
from tidestaff.streaming.settings import Settings

from tests.streaming.job.conftest import FEW_BUCKETS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_replay_in_its_middle(spark: SparkSession, recording: Path, tmp_path: Path) -> None:
    base = Settings.model_validate({"operator": FEW_BUCKETS})
    settings = settings_for(base, recording, tmp_path, 2)

    def tell() -> None:
        while not list((settings.checkpoint / "commits").glob("[0-9]*")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    first = replay_on(spark, settings)
    telling.join()
    assert (first.complete, first.interrupted) == (False, True)
    assert exit_code(first) == INTERRUPTED
    again = replay_on(spark, settings)
    assert (again.complete, again.interrupted) == (True, False)
    assert exit_code(again) == 2
