"""Columns: the only place that knows what rows, the operator's input and its output are called.

The Spark schema of rows is derived from the Avro schema in conf/avro, so that the two cannot part.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql import types as T  # noqa: N812
from tidestaff.connectors.wire import CLUSTER, TICK, schema_text
from tidestaff.streaming.operator.rows import Lists, block_of_columns
from tidestaff.streaming.operator.saving import Saved

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from pyspark.sql import DataFrame
    from tidestaff.streaming.operator.rows import Block

_TYPES: Final[dict[str, T.DataType]] = {
    "int": T.IntegerType(),
    "long": T.LongType(),
    "string": T.StringType(),
    "bytes": T.BinaryType(),
}


def _spark_type(avro: Any) -> T.DataType:
    if isinstance(avro, dict) and avro["type"] == "array":
        return T.ArrayType(_spark_type(avro["items"]), containsNull=False)
    return _TYPES[avro]


ROW_SCHEMA: Final = T.StructType(
    [
        T.StructField(field["name"], _spark_type(field["type"]), nullable=False)
        for field in json.loads(schema_text("observation"))["fields"]
    ]
)
OUTPUT_SCHEMA: Final = "kind string, at_ms long, payload string"
STATE_SCHEMA: Final = "version int, numbers binary, entries binary, bodies binary, rest binary"

LISTS: Final = (
    *("log_start_offsets", "high_watermarks", "log_end_offsets", "read_at_ms", "leader_again"),
)
TEXTS: Final = ("kind", "cluster", "source", "subject")
_SINGLE: Final = ("home", "schema_version", "round", "observed_at_ms", "previous_at_ms")
_HEAD: Final = len(_SINGLE) + len(LISTS)


def operator_input(rows: DataFrame, buckets: int) -> DataFrame:
    """Rows as the operator takes them: all numbers as one list, a bucket each.

    Every column costs time in every batch of every bucket, however few its rows are; so single
    numbers, the lengths of the lists and the lists themselves travel together. Reports on a
    cluster, and ticks, go to every bucket: they are the clock there. The state of the cluster
    itself is kept at home, in one bucket.
    """
    home = F.pmod(F.xxhash64("cluster", "subject"), F.lit(buckets)).cast("int")
    everywhere = F.sequence(F.lit(0), F.lit(buckets - 1))
    fans_out = F.col("kind").isin(CLUSTER, TICK)
    single = [home, *(F.col(name) for name in _SINGLE[1:])]
    head = [*single, *(F.size(name) for name in LISTS)]
    return rows.select(
        F.explode(F.when(fans_out, everywhere).otherwise(F.array(home))).alias("bucket"),
        *TEXTS,
        F.concat(F.array(*(column.cast("long") for column in head)), *LISTS).alias("numbers"),
        "body",
    )


def block_of_frames(frames: Iterable[pd.DataFrame], bucket: int) -> Block | None:
    """One batch of a bucket, whatever number of frames it came in."""
    parts = list(frames)
    if not parts:
        return None

    def column(name: str) -> list[Any]:
        return [value for part in parts for value in part[name].tolist()]

    numbers = [part["numbers"].to_numpy() for part in parts]
    flat, starts = _flat(numbers[0] if len(numbers) == 1 else np.concatenate(numbers))
    head = flat[starts[:, None] + np.arange(_HEAD)]
    single = dict(zip(_SINGLE, head[:, : len(_SINGLE)].T, strict=True))
    lengths = head[:, len(_SINGLE) :]
    return block_of_columns(
        home=single["home"] == bucket,
        version=single["schema_version"],
        **{name: column(name) for name in TEXTS},
        round=single["round"],
        at=single["observed_at_ms"],
        previous=single["previous_at_ms"],
        lists=Lists(flat, starts + _HEAD, lengths),
        body=column("body"),
    )


def _flat(lists: Any) -> tuple[Any, Any]:
    """Lists of numbers as one array, and where each of them begins."""
    sizes = np.fromiter(map(len, lists), np.int64, len(lists))
    return np.concatenate(lists), np.cumsum(sizes) - sizes


def saved_of_state(value: tuple[Any, ...]) -> Saved:
    return Saved(int(value[0]), *(bytes(part) for part in value[1:]))
