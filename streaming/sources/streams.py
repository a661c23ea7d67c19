"""All sources of a configuration as one stream of rows."""

from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.streaming.settings import KafkaSource
from tidestaff.streaming.settings_loading import plain
from tidestaff.streaming.sources import reader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tidestaff.streaming.settings import Cluster, Settings
    from tidestaff.streaming.sources.reader import Offset


class Streams(NamedTuple):
    """Rows for the operator, and what the sources themselves refused."""

    rows: DataFrame
    refused: DataFrame | None


def journals(settings: Settings) -> Path:
    """Where the collectors of the job keep their rounds."""
    return settings.work.resolve() / "journal"


def streams(
    spark: SparkSession,
    settings: Settings,
    after: Offset,
    *,
    tick: bool = True,
    since_ms: int | None = None,
) -> Streams:
    """`after` is where the checkpoint says the job's own source has come to; new stories have
    begun at `since_ms`."""
    own = [c for c in settings.clusters if not isinstance(c.source, KafkaSource)]
    rows: list[DataFrame] = []
    refused: list[DataFrame] = []
    if own or tick:
        options = {reader.AFTER_OPTION: json.dumps(after)}
        options[reader.TICK_OPTION] = str(settings.operator.tick_interval_ms if tick else 0)
        if since_ms is not None:
            options[reader.SINCE_OPTION] = str(since_ms)
        rows.append(_own(spark, settings, own, options))
    for cluster in settings.clusters:
        if isinstance(cluster.source, KafkaSource):
            from tidestaff.streaming.sources import kafka  # noqa: PLC0415 - only with Kafka

            found = kafka.received(spark, cluster, settings.operator.future_ms)
            rows.append(found.rows)
            refused.append(found.refused)
    return Streams(_union(rows), _union(refused) if refused else None)


def _own(
    spark: SparkSession, settings: Settings, own: Sequence[Cluster], options: dict[str, str]
) -> DataFrame:
    spark.dataSource.register(reader.RowSource)
    clusters = [plain(cluster, reveal=True) for cluster in own]
    return (
        spark.readStream.format(reader.NAME)
        .option(reader.CLUSTERS_OPTION, json.dumps(clusters))
        .option(reader.FOLDER_OPTION, str(journals(settings)))
        .options(**options)
        .load()
    )


def _union(frames: list[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)
