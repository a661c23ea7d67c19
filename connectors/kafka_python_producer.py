"""The transport topic through kafka-python's producer: the one file that can write to a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka import KafkaAdminClient, KafkaProducer  # type: ignore[import-untyped]
from kafka import errors as kafka_errors
from tidestaff.connectors import kafka_python_requests as requests
from tidestaff.connectors.broker_answers import (
    NO_ERROR,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_name,
)
from tidestaff.connectors.errors import (
    NotAuthorizedError,
    TopicMissingError,
    TransportAwayError,
)
from tidestaff.connectors.kafka_python_client import KafkaPythonClient, library_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.connectors.publishing import Record

CLIENT_ID: Final = "tidestaff-collect"
DAY_MS: Final = 86_400_000
_LINGER_MS: Final = 20
_BATCH_BYTES: Final = 131_072
_LARGEST_BYTES: Final = 8_000_000


class KafkaTransport:
    """Implements Transport. The producer is made when it is first needed, and made anew after
    anything has failed: an idempotent one may have lost its place."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        properties: Mapping[str, object],
        *,
        timeout_ms: int = 10_000,
    ) -> None:
        self._bootstrap_servers, self._topic, self._timeout_ms = (
            bootstrap_servers,
            topic,
            timeout_ms,
        )
        self._properties = {"client_id": CLIENT_ID, **properties}
        self._producer: Any = None

    def check(self) -> None:
        """The topic is there and may be seen; nothing is made by asking."""
        client = KafkaPythonClient(
            self._bootstrap_servers, self._properties, timeout_ms=self._timeout_ms
        )
        try:
            told = client.ask_any(requests.metadata([self._topic])).topics
        finally:
            client.close()
        found = next((each for each in told if each.name == self._topic), None)
        if found is None:
            raise self._away("the answer does not name the topic")
        if found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            raise TopicMissingError(self._topic, self._bootstrap_servers)
        if found.error_code == TOPIC_AUTHORIZATION_FAILED:
            raise NotAuthorizedError("Write", "topic", self._topic)
        if found.error_code != NO_ERROR:
            raise self._away(error_name(found.error_code))

    def create(self, partitions: int) -> None:
        """The replication factor is the cluster's own default; records are kept for a day."""
        try:
            admin = KafkaAdminClient(**self._config(KafkaAdminClient.DEFAULT_CONFIG))
            try:
                wanted = {
                    "num_partitions": partitions,
                    "replication_factor": -1,
                    "configs": {"retention.ms": str(DAY_MS), "cleanup.policy": "delete"},
                }
                admin.create_topics({self._topic: wanted})
            finally:
                admin.close()
        except kafka_errors.TopicAlreadyExistsError:
            return
        except (
            kafka_errors.TopicAuthorizationFailedError,
            kafka_errors.ClusterAuthorizationFailedError,
        ):
            raise NotAuthorizedError("Create", "topic", self._topic) from None
        except kafka_errors.KafkaError as error:
            raise self._away(type(error).__name__) from None

    def publish(self, records: Sequence[Record]) -> int:
        if self._producer is None:
            self.check()
        refused = 0
        try:
            if self._producer is None:
                self._producer = self._made()
            sent = []
            for key, value in records:
                try:
                    sent.append(self._producer.send(self._topic, key=key, value=value))
                except kafka_errors.MessageSizeTooLargeError:
                    refused += 1
            self._producer.flush(self._timeout_ms / 1_000)
            for each in sent:
                try:
                    each.get(0)
                except kafka_errors.MessageSizeTooLargeError:
                    refused += 1
        except kafka_errors.KafkaError as error:
            self.close()
            if isinstance(error, kafka_errors.TopicAuthorizationFailedError):
                raise NotAuthorizedError("Write", "topic", self._topic) from None
            if isinstance(error, kafka_errors.ClusterAuthorizationFailedError):
                # Before 2.8 the right to write to a topic is not enough for this producer.
                raise NotAuthorizedError("IdempotentWrite", "cluster", "kafka-cluster") from None
            raise self._away(type(error).__name__) from None
        return refused

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=1)

    def _made(self) -> Any:
        return KafkaProducer(
            **{
                **self._config(KafkaProducer.DEFAULT_CONFIG),
                "acks": "all",
                "enable_idempotence": True,
                "compression_type": "gzip",
                "linger_ms": _LINGER_MS,
                "batch_size": _BATCH_BYTES,
                "max_request_size": _LARGEST_BYTES,
                "allow_auto_create_topics": False,
                "max_block_ms": self._timeout_ms,
                "delivery_timeout_ms": self._timeout_ms,
            }
        )

    def _config(self, known: Mapping[str, object]) -> dict[str, object]:
        given = {
            **library_options(self._properties),
            "bootstrap_servers": [each.strip() for each in self._bootstrap_servers.split(",")],
            "bootstrap_timeout_ms": self._timeout_ms,
            # Half of the whole: a broker that falls silent leaves time for another one.
            "request_timeout_ms": self._timeout_ms // 2,
        }
        return {name: value for name, value in given.items() if name in known}

    def _away(self, cause: str) -> TransportAwayError:
        return TransportAwayError(self._topic, self._bootstrap_servers, cause)
