"""The Kafka sink sends every transition once, in one transaction a delivery."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from tidestaff.connectors.wire import WireError
from tidestaff.streaming.sinks import kafka
from tidestaff.streaming.sinks.kafka import KafkaSink, kafka_sink, record_in, value_of
from tidestaff.streaming.sinks.kafka_clients import KafkaPythonClients
from tidestaff.streaming.sinks.kafka_properties import options_of
from tidestaff.streaming.sinks.record import record_of
from tidestaff.streaming.sinks.sink import SinkError

from tests.brokers import Broker, create_topics, start_broker
from tests.streaming.sinks.parcels import life_of_a_group, loss, many, parcels

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")

ROOT = Path(__file__).resolve().parents[3]
SECRET = "s3cr3t"  # noqa: S105 - made up


class Refused(Exception):  # noqa: N818 - a broker's answer
    """What the client raises."""


class Topic:
    """A topic with transactions, and clients that fail where a test says."""

    errors: tuple[type[Exception], ...] = (Refused,)

    def __init__(self) -> None:
        self.committed: list[tuple[bytes, bytes, str]] = []
        self.open: list[tuple[bytes, bytes, str]] = []
        self.fail_at: str | None = None
        self.transactional_ids: list[str] = []
        self.closed = 0

    def producer(self, transactional_id: str) -> Topic:
        self._maybe_fail("connect")
        self.transactional_ids.append(transactional_id)
        return self

    def last_ids(self, topic: str, count: int) -> list[str]:
        assert topic == "alerts"
        return [each[2] for each in self.committed[-count:]]

    def init_transactions(self) -> None:
        self.open = []

    def begin_transaction(self) -> None:
        assert not self.open

    def send(self, topic: str, value: bytes, key: bytes, headers: list[tuple[str, bytes]]) -> Any:
        if len(self.open) == 2:
            self._maybe_fail("send")
        self.open.append((key, value, dict(headers)["tidestaff-id"].decode()))
        return self

    def get(self, timeout: float) -> None:
        assert timeout == 0

    def commit_transaction(self) -> None:
        self._maybe_fail("before commit")
        self.committed += self.open
        self.open = []
        self._maybe_fail("after commit")

    def close(self, timeout: float) -> None:
        assert timeout == 1
        self.closed += 1

    def _maybe_fail(self, place: str) -> None:
        if self.fail_at == place:
            self.fail_at = None
            raise Refused(f"no {place}")

    @property
    def ids(self) -> list[str]:
        return [each[2] for each in self.committed]


def test_records_are_avro_and_keyed_by_fingerprint() -> None:
    topic = Topic()
    told = [*parcels(loss()), *life_of_a_group()]
    KafkaSink("alerts", topic).deliver(told)
    keys, values, ids = zip(*topic.committed, strict=True)
    assert list(keys) == [each.transition.fingerprint.encode() for each in told]
    assert [record_in(value) for value in values] == [
        record_of(each.transition.fields) for each in told
    ]
    assert list(ids) == [each.transition.id for each in told]
    assert values[0][:2] == b"\xc3\x01"
    assert topic.transactional_ids == ["tidestaff-5eed-kafka"]


@pytest.mark.parametrize("place", ["connect", "send", "before commit", "after commit"])
def test_wherever_it_fails_every_transition_arrives_once(place: str) -> None:
    topic, told = Topic(), many(10)
    KafkaSink("alerts", topic).deliver(told[:3])
    sink = KafkaSink("alerts", topic)
    topic.fail_at = place
    with pytest.raises(SinkError, match=f"Refused: no {place}"):
        sink.deliver(told[2:8])
    sink.deliver(told[2:])
    assert topic.ids == [each.transition.id for each in told]


def test_a_process_that_was_killed_after_the_commit_does_not_send_again() -> None:
    topic, told = Topic(), many(10)
    KafkaSink("alerts", topic).deliver(told)
    KafkaSink("alerts", topic).deliver(told)
    assert len(topic.committed) == 10


def test_what_a_stranger_raises_is_told_by_its_name_only() -> None:
    class Strange(Topic):
        def producer(self, transactional_id: str) -> Topic:
            raise ValueError(f"Unrecognized configs: {SECRET}")

    with pytest.raises(SinkError, match="ValueError") as caught:
        KafkaSink("alerts", Strange()).deliver(many(1))
    assert SECRET not in str(caught.value)


def test_evidence_too_large_for_a_broker_stays_in_the_store() -> None:
    (told,) = parcels(loss(evidence={"huge": "x" * kafka.LARGEST_VALUE}))
    value = value_of(told.transition)
    assert len(value) < 10_000
    assert record_in(value)["evidence"] is None


def test_a_record_of_another_schema_is_refused() -> None:
    with pytest.raises(WireError, match="no alert of this schema"):
        record_in(b"\xc3\x01" + bytes(20))


KNOWN = {"security_protocol", "linger_ms", "compression_type", "request_timeout_ms"}
PLAIN = {"security_protocol": "PLAINTEXT"}
JAAS = 'x.ScramLoginModule required username="u" password="p\'=;";'


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        pytest.param(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": JAAS,
            },
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "u",
                "sasl_plain_password": "p'=;",
            },
            id="as-every-other-client-here",
        ),
        pytest.param(
            {"linger.ms": "5", "compression.type": "gzip"},
            {**PLAIN, "linger_ms": 5, "compression_type": "gzip"},
            id="a-producer-s",
        ),
        pytest.param({"group.id": "x"}, PLAIN, id="without-meaning-here"),
        pytest.param(
            {"request_timeout_ms": "500"}, {**PLAIN, "request_timeout_ms": 500}, id="own-names"
        ),
    ],
)
def test_client_properties_pass_through(
    properties: dict[str, str], options: dict[str, object]
) -> None:
    assert options_of("kafka", properties, KNOWN) == options


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        pytest.param(
            {"sasl.mechanisn": SECRET},
            "sasl.mechanisn is not a known client property; did you mean sasl.mechanism",
            id="misspelt",
        ),
        pytest.param(
            {"sasl.jaas.config": SECRET},
            "has no effect with security.protocol PLAINTEXT",
            id="credentials-that-would-not-count",
        ),
        pytest.param(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": SECRET,
            },
            "no username and password",
            id="jaas",
        ),
    ],
)
def test_properties_that_cannot_be_used_are_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(SinkError, match=words) as caught:
        options_of("kafka", properties, KNOWN)
    assert SECRET not in str(caught.value)


def test_both_clients_know_the_options_they_are_given() -> None:
    clients = KafkaPythonClients(
        "kafka",
        "a:1, b:2",
        {"security.protocol": "SSL", "linger.ms": "5", "fetch.min.bytes": "1"},
    )
    assert clients._producer["bootstrap_servers"] == ["a:1", "b:2"]
    assert (clients._producer["linger_ms"], clients._consumer["fetch_min_bytes"]) == (5, 1)
    assert "fetch_min_bytes" not in clients._producer
    assert clients._producer["ssl_context"] is clients._consumer["ssl_context"] is not None


def test_brokers_that_are_not_there_are_a_failure_of_the_sink(free_port: int) -> None:
    sink = kafka_sink(f"127.0.0.1:{free_port}", "alerts", {})
    with pytest.raises(SinkError, match=r"no bootstrap server is reached.*check the brokers"):
        sink.deliver(many(1))
    sink.close()


def test_the_schema_is_one_that_avro_readers_take() -> None:
    fastavro = pytest.importorskip("fastavro")
    schema = json.loads(kafka.wire.schema_text("alert"))
    assert fastavro.parse_schema(schema)["name"] == "tidestaff.v1.Alert"


# --- a real broker ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = start_broker(tmp_path_factory.mktemp("broker"))
    try:
        yield started
    finally:
        started.stop()


def committed(broker: Broker, topic: str) -> list[tuple[bytes, dict[str, Any]]]:
    """What a reader of committed records gets."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        group_id=None,
        enable_auto_commit=False,
    )
    try:
        partitions = [TopicPartition(topic, 0)]
        consumer.assign(partitions)
        end = consumer.end_offsets(partitions)[partitions[0]]
        found = []
        while consumer.position(partitions[0]) < end:
            for records in consumer.poll(timeout_ms=500).values():
                found += [(each.key, record_in(each.value)) for each in records]
        return found
    finally:
        consumer.close()


CHILD = """
import os, sys, warnings
warnings.simplefilter("ignore")
from tests.streaming.sinks.parcels import many
from tidestaff.streaming.sinks.kafka import kafka_sink
bootstrap, topic, place = sys.argv[1:]
sink = kafka_sink(bootstrap, topic, {})
told = many(40)
sink.deliver(told[:10])
producer = sink._producer
commit = producer.commit_transaction
def killed():
    if place == "before":
        producer.flush()
        os.kill(os.getpid(), 9)
    commit()
    os.kill(os.getpid(), 9)
producer.commit_transaction = killed
sink.deliver(told[:30])
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_real_topic_has_every_transition_once_after_a_kill(broker: Broker, place: str) -> None:
    topic = f"alerts-{place}"
    create_topics(broker.bootstrap, [topic])
    command = [sys.executable, "-c", CHILD, broker.bootstrap, topic, place]
    killed = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, timeout=60)
    assert killed.returncode == -9, killed.stderr.decode()
    told = many(40)
    sink = kafka_sink(broker.bootstrap, topic, {})
    sink.deliver(told)
    sink.close()
    found = committed(broker, topic)
    assert [record["id"] for _, record in found] == [each.transition.id for each in told]
    assert [record for _, record in found] == [record_of(each.transition.fields) for each in told]
    assert {key.decode() for key, _ in found} == {each.transition.fingerprint for each in told}


@pytest.mark.slow
def test_a_topic_that_is_not_there_is_a_failure_of_the_sink(broker: Broker) -> None:
    sink = kafka_sink(broker.bootstrap, "nowhere", {})
    with pytest.raises(SinkError, match="does not exist"):
        sink.deliver(many(1))
    sink.close()
