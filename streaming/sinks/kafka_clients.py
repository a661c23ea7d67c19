"""kafka-python's producer and consumer for the Kafka sink: the one place that imports it here."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from tidestaff.connectors.kafka_python_client import library_options
from tidestaff.streaming.sinks.kafka import ID_HEADER
from tidestaff.streaming.sinks.kafka_properties import options_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidestaff.streaming.sinks.kafka import Producer

_PATIENCE_MS: Final = 10_000
_KNOCK_S: Final = 3.0
_PRODUCER: Final = {
    "acks": "all",
    "max_block_ms": _PATIENCE_MS,
    "bootstrap_timeout_ms": _PATIENCE_MS,
    "request_timeout_ms": _PATIENCE_MS,
    "delivery_timeout_ms": 2 * _PATIENCE_MS,
    "transaction_timeout_ms": 6 * _PATIENCE_MS,
    "allow_auto_create_topics": False,
}
_CONSUMER: Final = {
    "group_id": None,
    "enable_auto_commit": False,
    "isolation_level": "read_committed",
    "bootstrap_timeout_ms": _PATIENCE_MS,
}


class KafkaPythonClients:
    """Clients of one cluster."""

    errors: tuple[type[Exception], ...] = (KafkaError,)

    def __init__(self, sink: str, bootstrap_servers: str, properties: Mapping[str, str]) -> None:
        servers = [each.strip() for each in bootstrap_servers.split(",")]
        given = {"bootstrap_servers": servers, "client_id": f"tidestaff-{sink}"}
        producer, consumer = KafkaProducer.DEFAULT_CONFIG, KafkaConsumer.DEFAULT_CONFIG
        options = library_options(options_of(sink, properties, {*producer, *consumer}))
        self._servers = servers
        self._producer: dict[str, Any] = (
            _PRODUCER | given | {k: v for k, v in options.items() if k in producer}
        )
        self._consumer: dict[str, Any] = (
            _CONSUMER | given | {k: v for k, v in options.items() if k in consumer}
        )

    def producer(self, transactional_id: str) -> Producer:
        if not self._producer.get("proxy_url"):
            _knock(self._servers)
        made: Producer = KafkaProducer(**self._producer, transactional_id=transactional_id)
        return made

    def last_ids(self, topic: str, count: int) -> list[str]:
        """The ids of the last committed records of every partition."""
        consumer = KafkaConsumer(**self._consumer)
        try:
            return _last_ids(consumer, topic, count)
        finally:
            consumer.close()


def _knock(servers: list[str]) -> None:
    """One of the servers takes a connection. A producer that finds none takes long to say so and
    leaves its sockets to the garbage collector."""
    problem = "none is given"
    for server in servers:
        host, _, port = server.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S):
                return
        except (OSError, ValueError) as error:
            problem = f"{server}: {error}"
    raise KafkaError(f"no bootstrap server is reached ({problem})")


def _last_ids(consumer: Any, topic: str, count: int) -> list[str]:
    partitions = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic) or ()]
    if not partitions:
        raise KafkaError(f"topic {topic} does not exist or may not be described")
    consumer.assign(partitions)
    ends, starts = consumer.end_offsets(partitions), consumer.beginning_offsets(partitions)
    # Every transaction leaves a mark that takes an offset too.
    for each in partitions:
        consumer.seek(each, max(starts[each], ends[each] - 2 * count))
    found: list[str] = []
    behind = {each for each in partitions if starts[each] < ends[each]}
    give_up_s = time.monotonic() + _PATIENCE_MS / 1000
    while behind:
        if time.monotonic() > give_up_s:
            raise KafkaError(f"the end of topic {topic} is not reached in time")
        for records in consumer.poll(timeout_ms=500).values():
            found += [
                value.decode()
                for record in records
                for name, value in record.headers
                if name == ID_HEADER
            ]
        behind = {each for each in behind if consumer.position(each) < ends[each]}
    return found
