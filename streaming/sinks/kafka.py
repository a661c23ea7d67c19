"""A Kafka topic of Avro records, each transition in it once.

A delivery is one transaction. After a crash the broker aborts what was not committed, and what was
committed is read from the end of the topic, so it is not sent again. Readers use
isolation.level=read_committed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidestaff.connectors import wire
from tidestaff.connectors.importing import load_client_library
from tidestaff.streaming.sinks.record import record_of
from tidestaff.streaming.sinks.sink import TAIL, SinkError
from tidestaff.streaming.sinks.words import harmless

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.streaming.alerts.outbox import Outgoing
    from tidestaff.streaming.alerts.transition import Transition

SCHEMA: Final = "alert"
ID_HEADER: Final = "tidestaff-id"
LARGEST_VALUE: Final = 900_000
_OTHER_ERRORS: Final = (OSError, ValueError, AssertionError)


class Producer(Protocol):
    """What of kafka-python's transactional producer is used."""

    def init_transactions(self) -> None: ...
    def begin_transaction(self) -> None: ...
    def commit_transaction(self) -> None: ...
    def send(
        self, topic: str, value: bytes, key: bytes, headers: list[tuple[str, bytes]]
    ) -> Any: ...
    def close(self, timeout: float) -> None: ...


class Clients(Protocol):
    """Makes clients; a test has its own. `errors` is what they raise."""

    errors: tuple[type[Exception], ...]

    def producer(self, transactional_id: str) -> Producer: ...
    def last_ids(self, topic: str, count: int) -> list[str]: ...


class KafkaSink:
    """Sends to one topic, keyed by fingerprint, so that the steps of an alert stay in order."""

    def __init__(self, topic: str, clients: Clients, *, name: str = "kafka") -> None:
        self.name = name
        self._topic, self._clients = topic, clients
        self._producer: Producer | None = None
        self._seen: dict[str, None] = {}

    def deliver(self, outgoing: Sequence[Outgoing]) -> None:
        try:
            self._send(outgoing)
        except self._clients.errors as error:
            raise self._error(f"{type(error).__name__}: {error}") from None
        except _OTHER_ERRORS as error:
            # Its text may repeat what the client was configured with.
            raise self._error(type(error).__name__) from None

    def close(self) -> None:
        self._drop_producer()

    def _send(self, outgoing: Sequence[Outgoing]) -> None:
        producer = self._opened(outgoing[0].store_id)
        new = [each.transition for each in outgoing if each.transition.id not in self._seen]
        if not new:
            return
        producer.begin_transaction()
        sent = [
            producer.send(
                self._topic,
                value=value_of(each),
                key=each.fingerprint.encode(),
                headers=[(ID_HEADER, each.id.encode())],
            )
            for each in new
        ]
        producer.commit_transaction()
        for future in sent:
            future.get(timeout=0)
        self._remember([each.id for each in new])

    def _opened(self, store_id: str) -> Producer:
        if self._producer is None:
            self._producer = self._clients.producer(f"tidestaff-{store_id}-{self.name}")
            # Ends the transaction of an earlier life first: the end of the topic is settled then.
            self._producer.init_transactions()
            self._seen.clear()
            self._remember(self._clients.last_ids(self._topic, TAIL))
        return self._producer

    def _remember(self, ids: list[str]) -> None:
        """Those of one delivery at least; of several partitions, as many for each."""
        self._seen |= dict.fromkeys(ids)
        while len(self._seen) > max(TAIL, len(ids)):
            del self._seen[next(iter(self._seen))]

    def _error(self, problem: str) -> SinkError:
        self._drop_producer()
        remedy = "check the brokers, and Write and Read on the topic and the transactional id"
        return SinkError(self.name, harmless(f"topic {self._topic}: {problem}"), remedy)

    def _drop_producer(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            with contextlib.suppress(*self._clients.errors, *_OTHER_ERRORS):
                producer.close(timeout=1)


def value_of(transition: Transition) -> bytes:
    """Single-object encoded Avro, as the observations are."""
    record = record_of(transition.fields)
    value = wire.header(SCHEMA) + wire.encode(SCHEMA, record)
    if len(value) > LARGEST_VALUE:
        # A broker would refuse it for ever. The store has the evidence.
        value = wire.header(SCHEMA) + wire.encode(SCHEMA, {**record, "evidence": None})
    return value


def record_in(value: bytes) -> dict[str, Any]:
    """The record back, as a reader of the topic gets it."""
    head = wire.header(SCHEMA)
    if value[: len(head)] != head:
        raise wire.WireError("the record is no alert of this schema", "read it with its own schema")
    return wire.decode(SCHEMA, value[len(head) :])


def kafka_sink(
    bootstrap_servers: str, topic: str, properties: Mapping[str, str], *, name: str = "kafka"
) -> KafkaSink:
    """The sink on kafka-python's clients."""
    load_client_library()
    from tidestaff.streaming.sinks.kafka_clients import KafkaPythonClients  # noqa: PLC0415 - slow

    return KafkaSink(topic, KafkaPythonClients(name, bootstrap_servers, properties), name=name)
