"""Columns: the only place that knows what rows, the operator's input and its output are called.

The Spark schema of rows is derived from the Avro schema in conf/avro, so that the two cannot part.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql import types as T  # noqa: N812
from tidestaff.connectors.wire import CLUSTER, MISSING, TICK, schema_text
from tidestaff.streaming.operator.rows import Block
from tidestaff.streaming.operator.saving import Saved
from tidestaff.streaming.operator.screen import Moved
from tidestaff.streaming.operator.slots import WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from pyspark.sql import Column, DataFrame

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

_PER_REPLICA: Final = ("log_start_offsets", "high_watermarks", "log_end_offsets", "read_at_ms")
_AGAIN: Final = 4


def _at(column: str, place: int) -> Column:
    return F.coalesce(F.get(F.col(column), F.lit(place)), F.lit(MISSING))


def operator_input(rows: DataFrame, buckets: int) -> DataFrame:
    """Rows as the operator takes them: numbers as plain columns, a bucket each.

    Reports on a cluster, and ticks, go to every bucket: they are the clock there. The state of the
    cluster itself is kept at home, in one bucket.
    """
    home = F.pmod(F.xxhash64("cluster", "subject"), F.lit(buckets)).cast("int")
    everywhere = F.sequence(F.lit(0), F.lit(buckets - 1))
    fans_out = F.col("kind").isin(CLUSTER, TICK)
    size = F.size("log_end_offsets")
    lists = [F.col(name) for name in _PER_REPLICA]
    odd = (size > WIDTH) | ~(
        (F.size(lists[0]) == size) & (F.size(lists[1]) == size) & (F.size(lists[3]) == size)
    )
    return rows.select(
        F.explode(F.when(fans_out, everywhere).otherwise(F.array(home))).alias("bucket"),
        home.alias("home"),
        *("schema_version", "kind", "cluster", "source", "subject", "round"),
        *("observed_at_ms", "previous_at_ms"),
        size.alias("replicas"),
        *(_at(name, i).alias(f"{name}_{i}") for name in _PER_REPLICA for i in range(WIDTH)),
        *(_at("leader_again", i).alias(f"leader_again_{i}") for i in range(_AGAIN)),
        F.size("leader_again").alias("again_count"),
        F.when(odd, F.to_json(F.array(*lists))).alias("more"),
        "body",
    )


def block_of_frames(frames: Iterable[pd.DataFrame], bucket: int) -> Block | None:
    """One batch of a bucket, whatever number of frames it came in."""
    parts = list(frames)
    if not parts:
        return None
    columns: dict[str, Any] = {}
    for name in parts[0].columns:
        arrays = [part[name].to_numpy() for part in parts]
        columns[name] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def wide(name: str, width: int) -> Any:
        return np.column_stack([columns[f"{name}_{i}"] for i in range(width)])

    per_replica = [wide(name, WIDTH) for name in _PER_REPLICA]
    again = wide("leader_again", _AGAIN)
    moved = Moved(
        at=columns["observed_at_ms"],
        previous=columns["previous_at_ms"],
        replicas=columns["replicas"].astype(np.int64),
        start=per_replica[0],
        watermark=per_replica[1],
        end=per_replica[2],
        leader_again_end=again[:, 2],
    )
    return Block(
        home=columns["home"] == bucket,
        version=columns["schema_version"],
        kind=columns["kind"].tolist(),
        cluster=columns["cluster"].tolist(),
        source=columns["source"].tolist(),
        subject=columns["subject"].tolist(),
        round=columns["round"],
        moved=moved,
        read_at=per_replica[3],
        again=again,
        again_count=columns["again_count"],
        more=[json.loads(text) if isinstance(text, str) else None for text in columns["more"]],
        body=columns["body"].tolist(),
    )


def saved_of_state(value: tuple[Any, ...]) -> Saved:
    return Saved(int(value[0]), *(bytes(part) for part in value[1:]))
