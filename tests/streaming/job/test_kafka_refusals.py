"""Records as Kafka gives them, without a broker: what is refused, and what is told of it."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T  # noqa: N812 - what everybody calls it
from tidestaff.connectors.wire import Row, signal, to_bytes
from tidestaff.streaming.codec import TEXTS
from tidestaff.streaming.running import now_ms
from tidestaff.streaming.sources.kafka import mark, refusals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RAW = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("value", T.BinaryType()),
    ]
)
FUTURE_MS = 600_000
NOT_TEXT = "a text of the observation record is not UTF-8"
PLACE = "PLACE"
GOOD = signal("gone", cluster="c", source="s", subject="t-0", at_ms=1_000)


def with_bytes(column: str, text: bytes) -> bytes:
    """A record with these bytes as the text of a column."""
    return to_bytes(GOOD._replace(**{column: PLACE[: len(text)]})).replace(
        PLACE[: len(text)].encode(), text
    )


def marked(spark: SparkSession, values: list[bytes]) -> DataFrame:
    at = dt.datetime.fromtimestamp(2, dt.UTC)
    records = [("seen", 3, offset, at, bytearray(v)) for offset, v in enumerate(values)]
    return mark(spark.createDataFrame(records, RAW), FUTURE_MS)


def told(found: DataFrame) -> list[dict[str, Any]]:
    """By way of Arrow, as the job's own Python is given it."""
    table = refusals(found.where("reason is not null"), "east").toArrow()
    table.validate(full=True)
    return [json.loads(payload) for payload in table["payload"].to_pylist()]


BAD = [
    *(pytest.param(with_bytes(column, b"t\xff-0"), id=f"a-{column}") for column in TEXTS),
    pytest.param(with_bytes("subject", b"\xed\xa0\x80"), id="half-of-a-surrogate-pair"),
    pytest.param(with_bytes("subject", b"\xc0\x80"), id="a-character-longer-than-needed"),
    pytest.param(with_bytes("subject", b"t-\xe2\x82"), id="a-character-that-breaks-off"),
]


@pytest.mark.parametrize("bad", BAD)
def test_a_record_whose_text_is_no_utf_8_is_refused_by_its_place_and_the_rest_goes_on(
    spark: SparkSession, bad: bytes
) -> None:
    good = GOOD._replace(subject="t\u00fc\U0001f40b-0")
    found = marked(spark, [to_bytes(good), bad, to_bytes(GOOD)])
    rows = found.where("reason is null").select("record.*").select(*Row._fields).toArrow()
    rows.validate(full=True)
    assert rows["subject"].to_pylist() == [good.subject, GOOD.subject]
    (line,) = told(found)
    del line["raw"]
    assert line == {
        "cluster": "east",
        "source": "kafka/seen",
        "subject": "seen-3@1",
        "reason": NOT_TEXT,
        "remedy": "look at what writes to this topic; is it the topic of observations?",
        "at_ms": 2_000,
    }


def test_a_refused_record_that_is_text_says_itself_what_it_is_about(spark: SparkSession) -> None:
    ahead = GOOD._replace(observed_at_ms=now_ms() + 2 * FUTURE_MS)
    (line,) = told(marked(spark, [to_bytes(ahead)]))
    assert (line["cluster"], line["subject"]) == (GOOD.cluster, GOOD.subject)
    assert "ahead of the clock" in line["reason"]
