"""Observations through a real broker: the same alerts as from files, and bad records in
quarantine."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.wire import SINGLE_OBJECT_MARK, header, to_bytes
from tidestaff.streaming.alerts.reading import AlertReader
from tidestaff.streaming.alerts.store import AlertStore
from tidestaff.streaming.pipeline import Job
from tidestaff.streaming.running import StoreReceiver, now_ms, quarantine_of
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.sources.row_files import batches, listed, to_rows

from tests.brokers import start_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tidestaff.connectors.wire import Row

    from tests.brokers import Broker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

TOPICS = ["observations-a", "observations-b"]
WITHIN_S = 180


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = start_broker(tmp_path_factory.mktemp("broker"), TOPICS)
    yield started
    started.stop()


def rows_of(recording: Path) -> list[Row]:
    """The whole recording, oldest first; it may begin long before this test does."""
    found = [
        row
        for name in listed(recording)
        for batch in batches(recording / name)
        for row in to_rows(batch)
    ]
    return sorted(found, key=lambda row: row.observed_at_ms)


def bad_records(good: Row) -> dict[str, bytes]:
    ahead = good._replace(observed_at_ms=now_ms() + 3_600_000)
    return {
        "the record is not single-object encoded Avro": b"hello",
        "the record has schema fingerprint 0102030405060708, which this release does not know": (
            SINGLE_OBJECT_MARK + bytes(range(1, 9)) + b"anything"
        ),
        "the observation record cannot be decoded": header() + b"\x02",
        "the observation is 3": to_bytes(ahead),
        "a text of the observation record is not UTF-8": (
            to_bytes(good._replace(subject="no-text")).replace(b"no-text", b"\xff\xfetext!", 1)
        ),
    }


def send(broker: Broker, rows: list[Row]) -> None:
    from kafka import KafkaProducer  # noqa: PLC0415 - slow

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    refused_at_ms = rows[0].observed_at_ms
    for number, row in enumerate(rows):
        topic = TOPICS[row.cluster.startswith("new")]
        producer.send(topic, key=row.subject.encode(), value=to_bytes(row))
        if number == len(rows) // 2:
            # Of the time of the rows around them: a recording made a quarter of an hour ago ends
            # before the records of now, and what was refused after its end is not told yet.
            refused_at_ms = row.observed_at_ms
            for value in bad_records(rows[0]).values():
                producer.send(TOPICS[0], value=value, timestamp_ms=refused_at_ms)
    producer.send(TOPICS[0], value=None, key=b"tombstone", timestamp_ms=refused_at_ms)
    producer.flush()
    producer.close()


def settings_of(broker: Broker, work: Path) -> Settings:
    source = {
        "type": "kafka",
        "bootstrap_servers": broker.bootstrap,
        "topics": TOPICS,
        "starting_offsets": "earliest",
        "max_offsets_per_trigger": 400,
        "properties": {"client.id": "tidestaff-test"},
    }
    value: dict[str, Any] = {
        "work_dir": str(work),
        "clusters": [{"name": "east", "source": source}],
        "operator": {"buckets": 4, "trigger_interval_ms": 100, "future_ms": 1_800_000},
    }
    return Settings.model_validate(value)


def run_until(spark: SparkSession, settings: Settings, newest_ms: int) -> None:
    store = AlertStore(settings.store_path, settings.policy, now_ms)
    receivers = [StoreReceiver(store, lambda _: None), quarantine_of(settings)]
    job = Job(spark, settings, receivers)
    until = time.monotonic() + WITHIN_S

    def look() -> bool:
        assert time.monotonic() < until, f"not done: {job.progress}"
        clocks = job.progress.clocks
        return len(clocks) == 2 and min(clocks.values()) >= newest_ms - 2_000

    try:
        job.watch(look, print)
    finally:
        store.close()


def test_a_topic_gives_the_alerts_of_the_recording_and_bad_records_are_kept_apart(
    spark: SparkSession, broker: Broker, recording: Path, tmp_path: Path
) -> None:
    rows = rows_of(recording)
    send(broker, rows)
    settings = settings_of(broker, tmp_path)
    run_until(spark, settings, rows[-1].observed_at_ms)

    reader = AlertReader(settings.store_path)
    fired = {(a.cluster, a.code) for a in reader.alerts() if a.fired_at_ms is not None}
    reader.close()
    assert {("old-0.10.2", "TRN001"), ("old-0.10.2", "TRN006"), ("new-3.9", "ELE009")} <= fired
    assert "SRC004" in {code for _, code in fired}, "what is refused is told"

    lines = [json.loads(line) for line in settings.quarantine_path.read_text().splitlines()]
    reasons = [line["reason"] for line in lines]
    for expected in bad_records(rows[0]):
        assert any(reason.startswith(expected) for reason in reasons), (expected, reasons)
    assert len(lines) == 6
    assert all(line["remedy"] for line in lines)
    assert lines[0]["source"] == f"kafka/{TOPICS[0]}"
