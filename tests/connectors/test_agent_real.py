"""The agent beside a real Kafka 3.9.1 broker, and segment headers against Kafka's own tool."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.connectors.log_directories import LogDirectories
from tidestaff.connectors.log_directories_files import opened_directory
from tidestaff.connectors.segments import Ending, SegmentScan
from tidestaff.connectors.segments_in_log import LogScan
from tidestaff.consistency.model import (
    HealthObservation,
    LineageSource,
    PartitionObservation,
    TopicPartition,
)
from tidestaff.consistency.monitor import step
from tidestaff.streaming.jars import JarError, jars
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

from tests import brokers
from tests.brokers import LOCK, start_broker
from tests.connectors.segment_bytes import GZIP, old, v2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidestaff.connectors.disk_replica import DiskReplica
    from tidestaff.connectors.segments import Batch
    from tidestaff.consistency.model import Observation

    from tests.brokers import Broker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

TOPICS = ("orders", "payments")
FIRST, SECOND = 40, 25


@pytest.fixture(scope="module")
def class_path() -> str:
    try:
        return ":".join(map(str, jars(LOCK, {})))
    except JarError as error:
        pytest.skip(f"the jars of a broker cannot be had: {error}")


@pytest.fixture(scope="module")
def broker(class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Restarted once between two loads: the logs have records of two leader epochs."""
    work = tmp_path_factory.mktemp("broker")
    running = start_broker(work, TOPICS)
    try:
        produce(running, FIRST)
        produce_in_transaction(running)
        running.stop()
        running = started_again(running, class_path)
        produce(running, SECOND)
        yield running
    finally:
        running.stop()


def started_again(broker: Broker, class_path: str) -> Broker:
    """The same broker on its own files and ports."""
    log = broker.work_dir / "again.log"
    properties = str(broker.work_dir / "server.properties")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*brokers._JAVA, "-cp", class_path, "kafka.Kafka", properties],
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    again = broker._replace(process=process)
    try:
        brokers._wait(again, log)
    except BaseException:
        again.kill()
        raise
    return again


def produce(broker: Broker, count: int) -> None:
    from kafka import KafkaProducer  # noqa: PLC0415 - slow

    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, acks="all", linger_ms=3, compression_type="gzip"
    )
    try:
        sent = [
            producer.send(topic, b"some text that can be compressed " * 20)
            for topic in TOPICS
            for _ in range(count)
        ]
        for each in sent:
            each.get(60)
    finally:
        producer.close()


def produce_in_transaction(broker: Broker) -> None:
    from kafka import KafkaProducer  # noqa: PLC0415 - slow

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="agent-test")
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"within a transaction").get(60)
        producer.commit_transaction()
    finally:
        producer.close()


@contextmanager
def agent(broker: Broker) -> Iterator[str]:
    """The command as a process; where it answers."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tidestaff.streaming.cli", "agent", "--json"),
            *("--log-dir", str(broker.work_dir / "data"), "--listen", "127.0.0.1:0"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield str(json.loads(process.stdout.readline())["url"])
    finally:
        process.terminate()
        process.communicate(timeout=15)


@contextmanager
def collecting(broker: Broker, **options: Any) -> Iterator[BrokerConnector]:
    source = {
        "type": "direct",
        "collector": "brokers",
        "options": {"bootstrap_servers": broker.bootstrap, "version": "3.9.1", **options},
    }
    collector = collector_of(Cluster.model_validate({"name": "field", "source": source}))
    assert isinstance(collector, BrokerConnector)
    try:
        yield collector
    finally:
        collector.close()


def partitions(seen: list[Observation]) -> dict[TopicPartition, PartitionObservation]:
    return {
        TopicPartition(each.topic, each.partition): each
        for each in seen
        if isinstance(each, PartitionObservation)
    }


def on_disk(broker: Broker) -> dict[TopicPartition, DiskReplica]:
    directories = LogDirectories([str(broker.work_dir / "data")], lambda: int(time.time() * 1_000))
    found = directories.read(None, log_ends=True)
    assert found.problems == ()
    return found.replicas


def test_files_say_what_the_broker_says_over_the_wire(broker: Broker) -> None:
    with collecting(broker) as collector:
        wire = partitions(collector.round())
    assert {partition.topic for partition in wire} >= set(TOPICS)
    # The watermark is written every five seconds.
    until = time.monotonic() + 120
    while True:
        disk = on_disk(broker)
        told = {partition: each.replicas[0].high_watermark for partition, each in wire.items()}
        if {partition: each.high_watermark for partition, each in disk.items()} == told:
            break
        assert time.monotonic() < until
        time.sleep(0.5)
    assert disk.keys() == wire.keys()
    for partition, seen in wire.items():
        (reading,) = seen.replicas
        replica = disk[partition]
        assert replica.log_end_offset == reading.log_end_offset
        assert replica.log_start_offset == reading.log_start_offset
        assert replica.topic_id == seen.topic_id
        assert reading.lineage_source is LineageSource.LEADER_ANSWERS
        assert replica.lineage == reading.lineage
    for topic in TOPICS:
        lineage = disk[TopicPartition(topic, 0)].lineage
        assert lineage is not None
        assert len(lineage) > 1  # two offices of one leader


def test_rounds_with_the_agent_have_lineages_of_files_and_raise_nothing(broker: Broker) -> None:
    with agent(broker) as url:
        port = url.rpartition(":")[2]
        with collecting(broker, agents=f"http://{{host}}:{port}") as collector:
            memories: dict[TopicPartition, Any] = {}
            for _ in range(3):
                seen = collector.round()
                assert [each for each in seen if isinstance(each, HealthObservation)] == []
                found = partitions(seen)
                for partition, each in found.items():
                    memories[partition], verdicts = step(memories.get(partition), each)
                    assert verdicts.violated == ()
        assert {reading.lineage_source for each in found.values() for reading in each.replicas} == {
            LineageSource.CHECKPOINT_FILE
        }
        for each in found.values():
            assert each.replicas[0].topic_id == each.topic_id
            assert each.replicas[0].lineage


def test_an_agent_that_dies_leaves_the_brokers_own_words(broker: Broker) -> None:
    with agent(broker) as url:
        pass
    with collecting(broker, agents=f"1={url}", missed_rounds=1) as collector:
        seen = collector.round()
    told = [each for each in seen if isinstance(each, HealthObservation)]
    assert [each.place for each in told] == ["agent of broker 1"]
    (reading,) = partitions(seen)[TopicPartition("orders", 0)].replicas
    assert reading.lineage_source is LineageSource.LEADER_ANSWERS
    assert reading.log_end_offset is not None


# -- headers against kafka.tools.DumpLogSegments


class Dumped(NamedTuple):
    """What Kafka's tool and our scan both tell of a batch."""

    position: int
    size: int
    magic: int
    first: int | None
    last: int
    epoch: int | None
    crc: int
    records: int | None
    compression: str
    flags: tuple[bool, bool]
    intact: bool


LINE = re.compile(r"^\|?\s*(?:baseOffset|offset): .*isvalid: \w+.*$", re.MULTILINE)
FIELD = re.compile(r"(\w+): (\S+)")


def dumped(class_path: str, paths: list[Path]) -> dict[str, list[Dumped]]:
    """By file; one start of the tool for all."""
    done = subprocess.run(
        [
            *("nice", "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path),
            *("kafka.tools.DumpLogSegments", "--files", ",".join(map(str, paths))),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    parts = re.split(r"^Dumping (.+)$", done.stdout, flags=re.MULTILINE)[1:]
    return {
        name: [_batch(line) for line in LINE.findall(text)]
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _batch(line: str) -> Dumped:
    """Of an old message the tool tells one offset."""
    found = dict(FIELD.findall(line))
    magic, compression = int(found["magic"]), found["compresscodec"].lower()
    plain = magic < 2 and compression == "none"
    offset = found.get("offset")
    return Dumped(
        int(found["position"]),
        int(found["size"]),
        magic,
        int(found["baseOffset"]) if offset is None else int(offset) if plain else None,
        int(found["lastOffset"] if offset is None else offset),
        int(found["partitionLeaderEpoch"]) if offset is None else None,
        int(found["crc"]),
        int(found["count"]) if offset is None else 1 if plain else None,
        compression,
        (found.get("isTransactional") == "true", found.get("isControl") == "true"),
        found["isvalid"] == "true",
    )


def ours(batch: Batch) -> Dumped:
    assert batch.intact is not None
    return Dumped(
        *(batch.position, batch.size, batch.magic, batch.base_offset, batch.last_offset),
        *(batch.leader_epoch, batch.crc, batch.records, batch.compression.name.lower()),
        flags=(batch.is_transactional, batch.is_control),
        intact=batch.intact,
    )


def scanned(path: Path) -> list[Dumped]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        scan = SegmentScan(descriptor, check=True)
        found = [ours(batch) for batch in scan]
    finally:
        os.close(descriptor)
    assert scan.end is not None
    assert scan.end.ending is Ending.COMPLETE
    return found


def test_headers_are_those_that_kafkas_own_tool_prints(
    broker: Broker, class_path: str, tmp_path: Path
) -> None:
    """Segments of the running broker, and crafted ones of the old formats."""
    altered = bytearray(v2(0, 3) + v2(3, 2))
    altered[70] ^= 1
    crafted = {
        "v0": old(0, 0, 4) + old(0, 4, 3, compression=GZIP) + old(0, 7),
        "v1": old(1, 0, 4) + old(1, 4, 3, compression=GZIP) + old(1, 7),
        "mixed": old(0, 0, 2) + old(1, 2, 5, compression=GZIP) + v2(7, 3, epoch=6),
        "altered": bytes(altered),
    }
    paths = []
    for name, data in crafted.items():
        paths.append(tmp_path / name / f"{0:020d}.log")
        paths[-1].parent.mkdir()
        paths[-1].write_bytes(data)
    for topic in TOPICS:
        paths += sorted((broker.work_dir / "data" / f"{topic}-0").glob("*.log"))

    expected = dumped(class_path, paths)

    assert {str(path): scanned(path) for path in paths} == expected
    told = [batch for batches in expected.values() for batch in batches]
    assert {batch.magic for batch in told} == {0, 1, 2}
    assert {batch.intact for batch in told} == {True, False}
    assert {batch.flags for batch in told} >= {(True, True), (True, False), (False, False)}
    assert {batch.epoch for batch in told if batch.magic == 2} >= {0, 6}


def test_a_whole_log_is_read_over_its_segments(broker: Broker) -> None:
    place = str(broker.work_dir / "data" / "payments-0")
    with opened_directory(place, None, place) as directory:
        scan = LogScan(directory, place, check=True)
        batches = list(scan)
    assert sum(batch.records or 0 for batch in batches) == FIRST + SECOND
    assert batches[-1].last_offset == FIRST + SECOND - 1
    assert all(batch.intact for batch in batches)
