"""One recording, judged in ten different ways of cutting it into batches: the same alerts, byte for
byte."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tidestaff.streaming.replaying import replay_on, settings_for
from tidestaff.streaming.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.longest]


class Cut(NamedTuple):
    """How a recording is cut: files a batch, shuffle partitions, and after how many batches the job
    is ended and started again."""

    files: int
    partitions: int = 2
    restarts: tuple[int, ...] = ()


CUTS = [
    Cut(1_000),
    Cut(1_000, partitions=1),
    Cut(21, partitions=3),
    Cut(13),
    Cut(11, restarts=(1,)),
    Cut(9, partitions=1, restarts=(2,)),
    Cut(8, partitions=4),
    Cut(7, restarts=(1, 2)),
    Cut(5, partitions=3),
    Cut(4, partitions=2, restarts=(3, 4)),
]


def transitions(
    spark: SparkSession, recording: Path, work: Path, cut: Cut, buckets: int = 4
) -> list[str]:
    work.mkdir(parents=True, exist_ok=True)
    spark.conf.set("spark.sql.shuffle.partitions", str(cut.partitions))
    base = Settings.model_validate({"operator": {"buckets": buckets}})
    settings = settings_for(base, recording, work, cut.files)
    for batches in cut.restarts:
        assert not replay_on(spark, settings, batches).complete
    found = replay_on(spark, settings)
    assert found.complete
    return [transition.text for transition in found.transitions]


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, recording: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    return transitions(spark, recording, tmp_path_factory.mktemp("whole"), CUTS[0])


@pytest.mark.parametrize("cut", CUTS[1:], ids=str)
def test_alerts_do_not_depend_on_how_the_rows_are_cut(
    spark: SparkSession, recording: Path, tmp_path: Path, expected: list[str], cut: Cut
) -> None:
    assert transitions(spark, recording, tmp_path, cut) == expected


def test_the_story_raises_what_it_should(expected: list[str]) -> None:
    fired = sorted(
        (text.split('"cluster":"')[1].split('"')[0], text.split('"code":"')[1].split('"')[0])
        for text in expected
        if '"status":"firing"' in text
    )
    lost_by_unclean = [("new-3.9", "ELE009"), ("new-3.9", "REG002"), ("new-3.9", "TRN001")]
    assert [found for found in fired if found[0] == "new-3.9"] == lost_by_unclean
    assert [code for cluster, code in fired if cluster == "old-0.10.2"] == [
        *("ELE009", "HWM004", "REG002", "TRN001", "TRN001", "TRN006")
    ]


def test_the_times_of_the_files_themselves_do_not_matter(
    spark: SparkSession, recording: Path, tmp_path: Path, expected: list[str]
) -> None:
    copied = tmp_path / "copied"
    copied.mkdir()
    for number, path in enumerate(sorted(recording.iterdir(), reverse=True)):
        shutil.copyfile(path, copied / path.name)
        os.utime(copied / path.name, (1_000_000 + number, 1_000_000 + number))
    assert transitions(spark, copied, tmp_path / "work", Cut(9)) == expected


def test_the_number_of_buckets_does_not_matter(
    spark: SparkSession, recording: Path, tmp_path: Path, expected: list[str]
) -> None:
    assert transitions(spark, recording, tmp_path, Cut(17), buckets=7) == expected
