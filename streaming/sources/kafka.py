"""Observations from Kafka topics, by Spark's own Kafka source.

A value is Avro in single-object encoding. Its ten-byte head names the schema: a record whose head
is not known here is refused before anything tries to read it, one that cannot be decoded is refused
as well, and both are kept in quarantine with the reason.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro
from tidestaff.connectors.wire import HEADER_LENGTH, SINGLE_OBJECT_MARK, Row, header, schema_text
from tidestaff.streaming.codec import TEXTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from tidestaff.streaming.settings import Cluster, KafkaSource

MAX_RAW: Final = 4_096
_UPGRADE: Final = (
    "run the monitor and the collectors in the same release, the monitor upgraded first"
)
_TOPIC: Final = "look at what writes to this topic; is it the topic of observations?"
_CLOCK: Final = "set the clock of the machine where the collector runs"


class Received(NamedTuple):
    """Rows to judge, and what was refused, as output rows of the operator."""

    rows: DataFrame
    refused: DataFrame


def received(spark: SparkSession, cluster: Cluster, future_ms: int) -> Received:
    """The stream of one cluster's topics."""
    raw = subscribed(spark, cluster.source)  # type: ignore[arg-type]
    marked = mark(raw, future_ms)
    rows = marked.where("reason is null").select("record.*").select(*Row._fields)
    return Received(rows, refusals(marked.where("reason is not null"), cluster.name))


def subscribed(spark: SparkSession, source: KafkaSource) -> DataFrame:
    reader = (
        spark.readStream.format("kafka")
        .option("subscribe", ",".join(source.topics))
        .option("startingOffsets", source.starting_offsets)
        # What retention took away is noticed by the links between rows; the monitor goes on.
        .option("failOnDataLoss", "false")
    )
    if source.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", source.max_offsets_per_trigger)
    for key, value in source.properties.items():
        reader = reader.option(f"kafka.{key.removeprefix('kafka.')}", value.get_secret_value())
    return reader.option("kafka.bootstrap.servers", source.bootstrap_servers).load()


def mark(raw: DataFrame, future_ms: int) -> DataFrame:
    """Every record with what it says, and the reason why it is refused, or null."""
    value = f.coalesce(f.col("value"), f.lit(b""))
    head = f.substring(value, 1, HEADER_LENGTH)
    known = head == f.lit(header())
    body = f.substring(value, HEADER_LENGTH + 1, 2**31 - 1)
    options = {"mode": "PERMISSIVE"}
    decoded = raw.select(
        "topic",
        "partition",
        "offset",
        f.unix_millis("timestamp").alias("at_ms"),
        value.alias("value"),
        head.alias("head"),
        f.when(known, from_avro(body, schema_text("observation"), options)).alias("record"),
    )
    return decoded.withColumn("reason", _reason(future_ms)).withColumn("remedy", _remedy())


def _reason(future_ms: int) -> Column:
    mark_of = f.substring("head", 1, len(SINGLE_OBJECT_MARK))
    fingerprint = f.lower(f.hex(f.substring("head", len(SINGLE_OBJECT_MARK) + 1, 8)))
    ahead = f.col("record.observed_at_ms") - f.unix_millis(f.current_timestamp())
    unknown = f.concat(
        f.lit("the record has schema fingerprint "),
        fingerprint,
        f.lit(", which this release does not know"),
    )
    early = f.concat(
        f.lit("the observation is "), (ahead / 1_000).cast("long"), f.lit(" s ahead of the clock")
    )
    return (
        f.when(mark_of != f.lit(SINGLE_OBJECT_MARK), "the record is not single-object encoded Avro")
        .when(f.col("head") != f.lit(header()), unknown)
        .when(f.col("record.kind").isNull(), "the observation record cannot be decoded")
        .when(~_is_text(), "a text of the observation record is not UTF-8")
        .when(ahead > future_ms, early)
    )


def _is_text() -> Column:
    """Avro gives whatever bytes a text has, and the first that takes them for text fails: in every
    batch anew, since a batch that fails is read again."""
    return reduce(and_, (f.is_valid_utf8(f"record.{name}") for name in TEXTS))


def _remedy() -> Column:
    return (
        f.when(f.col("reason").contains("fingerprint"), _UPGRADE)
        .when(f.col("reason").contains("ahead of the clock"), _CLOCK)
        .otherwise(_TOPIC)
    )


def refusals(marked: DataFrame, cluster: str) -> DataFrame:
    """Refused records as the operator itself would put them out. A record that is not text is named
    by its place."""
    place = f.concat_ws("", "topic", f.lit("-"), "partition", f.lit("@"), "offset")
    said = {name: f.when(_is_text(), f.col(f"record.{name}")) for name in ("cluster", "subject")}
    payload = f.to_json(
        f.struct(
            f.coalesce(said["cluster"], f.lit(cluster)).alias("cluster"),
            f.concat(f.lit("kafka/"), "topic").alias("source"),
            f.coalesce(said["subject"], place).alias("subject"),
            "reason",
            "remedy",
            "at_ms",
            f.base64(f.substring("value", 1, MAX_RAW)).alias("raw"),
        )
    )
    return marked.select(f.lit("quarantine").alias("kind"), "at_ms", payload.alias("payload"))
