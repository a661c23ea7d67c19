"""As documented for spark-submit: the archive of `tidestaff package`, and what lies beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.settings import Cluster, Settings

from tests.streaming.job.conftest import record
from tests.streaming.job.processes import submit

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_submitted_replay_finds_the_loss(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    source = {"type": "simulator", "scenario": "story-0.10.2"}
    cluster = Cluster.model_validate({"name": "c", "source": source})
    record(recording, Settings(clusters=(cluster,)), rounds=60, rounds_a_file=30)
    config = tmp_path / "t.yaml"
    config.write_text("spark: {master: 'local[2]', quick_start: true}\noperator: {buckets: 2}\n")
    arguments = ["replay", str(recording), "--config", str(config)]
    arguments += ["--work-dir", str(tmp_path / "work")]
    done = submit(tmp_path, "local[2]", [], arguments)
    assert done.code == 2, done.err[-3_000:]
    assert "of 2 files (all of it)" in done.out
    assert "TRN001 committed-offsets-lost" in done.out
