"""A checkpoint that is named by a URI and read through Spark's own file systems, as an object store
is. The scheme here is Hadoop's own local one: the same calls, without a store to log in to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming import checkpoint
from tidestaff.streaming.hadoop_folder import HadoopFolder
from tidestaff.streaming.replaying import replay_on, settings_for
from tidestaff.streaming.settings import Settings

from tests.streaming.job.conftest import FEW_BUCKETS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_job_goes_on_from_a_checkpoint_elsewhere(
    spark: SparkSession, recording: Path, tmp_path: Path
) -> None:
    base = Settings.model_validate({"operator": FEW_BUCKETS})
    here = settings_for(base, recording, tmp_path / "here", 20)
    expected = replay_on(spark, here).transitions
    uri = (tmp_path / "store" / "checkpoint").as_uri()
    there = settings_for(base, recording, tmp_path / "there", 20)
    there = there.model_copy(update={"checkpoint_dir": uri})
    first = replay_on(spark, there, max_batches=1)
    assert not first.complete
    second = replay_on(spark, there)
    assert second.complete
    assert not there.checkpoint.exists(), "nothing of it is in the work directory"
    assert [t.text for t in second.transitions] == [t.text for t in expected]
    folder = HadoopFolder(spark, uri)
    assert folder.is_dir()
    assert checkpoint.planned(folder) == checkpoint.done(folder) != {}
    assert checkpoint.query_id(folder) == checkpoint.query_id(tmp_path / "store" / "checkpoint")

    # A store that knows nothing of it: it is put aside there, and everything is judged anew.
    anew = settings_for(base, recording, tmp_path / "anew", 20)
    third = replay_on(spark, anew.model_copy(update={"checkpoint_dir": uri}))
    assert [t.text for t in third.transitions] == [t.text for t in expected]
    names = sorted(path.name for path in (tmp_path / "store").iterdir())
    assert [name.partition("-")[0] for name in names] == ["checkpoint", "checkpoint.aside"]


def test_a_replay_never_runs_on_the_checkpoint_of_the_job(recording: Path, tmp_path: Path) -> None:
    base = Settings(checkpoint_dir="s3a://bucket/live")
    assert settings_for(base, recording, tmp_path, 10).checkpoint_dir is None
