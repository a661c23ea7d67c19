"""Copies that are put back, or a power cut, leave a checkpoint and an alert store of different
times. Batches are known by their number, so each such pair could lose alerts without a word."""

from __future__ import annotations

import io
import shutil
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tidestaff.streaming.replaying import replay_on, settings_for
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.status_line import StatusLine

from tests.streaming.job.conftest import FEW_BUCKETS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tidestaff.streaming.replaying import Replayed

pytestmark = pytest.mark.spark

CHECKPOINT, STORE = "checkpoint", "alerts.sqlite"


class Lived(NamedTuple):
    """The work directory of a replay as it was after its first batch and at its end."""

    early: Path
    late: Path
    told: set[tuple[str, ...]]


def judged(spark: SparkSession, recording: Path, work: Path, *, batches: int | None) -> Replayed:
    settings = settings_for(Settings.model_validate({"operator": FEW_BUCKETS}), recording, work, 4)
    return replay_on(spark, settings, batches, StatusLine(io.StringIO()), close=batches is None)


def fired(found: Replayed) -> set[tuple[str, ...]]:
    """Which alerts fired, and where; how often they were told is another matter."""
    names = ("code", "cluster", "topic", "partition", "broker", "offsets")
    return {
        tuple(str(each.fields[name]) for name in names)
        for each in found.transitions
        if each.status.value == "firing"
    }


@pytest.fixture(scope="module")
def lived(spark: SparkSession, recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    folder = tmp_path_factory.mktemp("lived")
    judged(spark, recording, folder / "work", batches=1)
    copied(folder / "work", folder / "early")
    at_end = judged(spark, recording, folder / "work", batches=None)
    copied(folder / "work", folder / "late")
    told = fired(at_end)
    assert len({each[0] for each in told}) >= 3
    return Lived(folder / "early", folder / "late", told)


def copied(source: Path, target: Path) -> None:
    """What Spark's maintenance removes meanwhile nobody needs any more."""

    def copy(one: str, other: str) -> None:
        with suppress(FileNotFoundError):
            shutil.copy2(one, other)

    shutil.copytree(source, target, copy_function=copy)


def put_together(work: Path, checkpoint: Path, store: Path | None) -> None:
    shutil.copytree(checkpoint / CHECKPOINT, work / CHECKPOINT)
    for path in [] if store is None else store.glob(f"{STORE}*"):
        shutil.copy(path, work)


def test_a_store_that_was_moved_aside_is_filled_again(
    spark: SparkSession, recording: Path, lived: Lived, tmp_path: Path
) -> None:
    put_together(tmp_path, checkpoint=lived.late, store=None)
    assert fired(judged(spark, recording, tmp_path, batches=None)) == lived.told
    assert len(list(tmp_path.glob(f"{CHECKPOINT}.aside-*"))) == 1


def test_a_store_that_is_older_than_the_checkpoint_misses_nothing(
    spark: SparkSession, recording: Path, lived: Lived, tmp_path: Path
) -> None:
    put_together(tmp_path, checkpoint=lived.late, store=lived.early)
    assert fired(judged(spark, recording, tmp_path, batches=None)) >= lived.told


def test_a_checkpoint_that_is_older_than_the_store_misses_nothing(
    spark: SparkSession, recording: Path, lived: Lived, tmp_path: Path
) -> None:
    """The rest of the recording comes in other batches than before: their numbers were taken."""
    put_together(tmp_path, checkpoint=lived.early, store=lived.early)
    store = tmp_path / STORE
    ahead(store)
    found = judged(spark, recording, tmp_path, batches=None)
    assert found.complete
    assert fired(found) == lived.told
    assert not list(tmp_path.glob(f"{CHECKPOINT}.aside-*"))


def test_of_one_time_nothing_is_put_aside_and_nothing_is_told_twice(
    spark: SparkSession, recording: Path, lived: Lived, tmp_path: Path
) -> None:
    put_together(tmp_path, checkpoint=lived.early, store=lived.early)
    found = judged(spark, recording, tmp_path, batches=None)
    assert fired(found) == lived.told
    assert len({each.id for each in found.transitions}) == len(found.transitions)
    assert not list(tmp_path.glob(f"{CHECKPOINT}.aside-*"))


def ahead(store: Path) -> None:
    """As if it had taken more batches than the checkpoint knows of."""
    with sqlite3.connect(store) as database:
        database.execute("UPDATE batches SET batch_id = batch_id + 100")
    database.close()
