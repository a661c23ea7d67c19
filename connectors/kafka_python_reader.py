"""The one file that touches kafka-python: questions become requests, answers plain values.

The client library has no public call for replica -2, so requests are built here and sent through
its connection manager. Only requests that read are ever built.
"""

from __future__ import annotations

import copy
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from kafka import errors as kafka_errors  # type: ignore[import-untyped]
from kafka.net.manager import KafkaConnectionManager  # type: ignore[import-untyped]
from kafka.net.selector import NetworkSelector  # type: ignore[import-untyped]
from kafka.protocol.admin import (  # type: ignore[import-untyped]
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.broker_version_data import BrokerVersionData  # type: ignore[import-untyped]
from kafka.protocol.consumer import (  # type: ignore[import-untyped]
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import (  # type: ignore[import-untyped]
    ApiVersionsRequest,
    MetadataRequest,
)
from tidestaff.connectors.broker_answers import (
    NO_ERROR,
    TOPIC_AUTHORIZATION_FAILED,
    EpochEnd,
    FetchedState,
    Quorum,
    TopicValues,
)
from tidestaff.connectors.broker_decoding import (
    by_topic,
    eligible_of,
    listed_offset,
    metadata_of,
    moving_of,
    refuse,
    software_of,
    uuid_of,
    values_of,
)
from tidestaff.connectors.errors import (
    AuthenticationRefusedError,
    BrokerSilentError,
    ClusterUnreachableError,
    ConnectorError,
    ControllerSilentError,
    OptionError,
    UnsupportedRequestError,
)
from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidestaff.connectors.broker_answers import (
        ClusterMetadata,
        Eligible,
        EpochQuestion,
        ListedOffset,
        Moving,
        Software,
    )
    from tidestaff.consistency.model import BrokerId

# What the library has to say of connections is reported as the health of this source.
logging.getLogger("kafka").addHandler(logging.NullHandler())

DEBUGGING_REPLICA: Final = -2
_TOPIC, _BROKER = 2, 4
_METADATA_TOPIC: Final = "__cluster_metadata"
_TOPICS_A_REQUEST: Final = 500
_AUTHENTICATION: Final = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.AuthorizationError,
)


class KafkaPythonReader:
    """Implements BrokerReader. Connects at the first question, and anew when nobody answers."""

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, object],
        *,
        timeout_ms: int,
        pace: Callable[[], None] = lambda: None,
    ) -> None:
        self._bootstrap_servers, self._timeout_ms, self._pace = bootstrap_servers, timeout_ms, pace
        known = KafkaConnectionManager.DEFAULT_CONFIG
        for name in properties:
            if name not in known:
                raise OptionError(
                    name.replace("_", "."),
                    "is not a property of the client",
                    "take one of " + ", ".join(k.replace("_", ".") for k in sorted(known)),
                )
        self._config: dict[str, Any] = {
            "client_id": "tidestaff",
            "reconnect_backoff_max_ms": 2_000,
            "receive_message_max_bytes": 100_000_000,
            **properties,
            "bootstrap_servers": [each.strip() for each in bootstrap_servers.split(",")],
            "request_timeout_ms": timeout_ms,
            "socket_connection_setup_timeout_ms": timeout_ms,
            "socket_connection_setup_timeout_max_ms": timeout_ms,
        }
        self._held: tuple[Any, Any] | None = None
        self._silent: set[BrokerId] = set()
        self._lock = threading.Lock()

    # -- about the cluster

    def metadata(self, turn: int) -> ClusterMetadata:
        """From another broker each turn: the cache of one may lag."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self._ask_any(request, turn)
        found = metadata_of(answer)
        # The manager learns addresses from it. It may change the answer, so this comes last.
        self._manager().cluster.update_metadata(answer)
        return found

    def software(self) -> Software:
        config = KafkaConnectionManager.DEFAULT_CONFIG
        answer = self._ask_any(
            ApiVersionsRequest(
                client_software_name=config["client_software_name"],
                client_software_version=config["client_software_version"],
            )
        )
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        return software_of(answer, BrokerVersionData(api_versions=ranges).broker_version)

    def quorum(self) -> Quorum:
        request = DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequest.TopicData(
                    topic_name=_METADATA_TOPIC,
                    partitions=[DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)],
                )
            ]
        )
        answer = self._ask_controller(request, "DescribeQuorum")
        refuse(answer.error_code, "Describe", "DescribeQuorum")
        partition = answer.topics[0].partitions[0]
        refuse(partition.error_code, "Describe", "DescribeQuorum")
        return Quorum(partition.leader_id, partition.leader_epoch)

    def reassignments(self, controller: BrokerId) -> Mapping[TopicPartition, Moving]:
        request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=None)
        if controller >= 0:
            answer = self._ask(request, controller)
        else:
            answer = self._ask_controller(request, "ListPartitionReassignments")
        refuse(answer.error_code, "Describe", "ListPartitionReassignments")
        return moving_of(answer)

    def eligible(self) -> Mapping[TopicPartition, Eligible]:
        found: dict[TopicPartition, Eligible] = {}
        cursor = None
        while True:
            answer = self._ask_any(DescribeTopicPartitionsRequest(topics=[], cursor=cursor))
            found |= eligible_of(answer)
            if answer.next_cursor is None:
                return found
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=answer.next_cursor.topic_name,
                partition_index=answer.next_cursor.partition_index,
            )

    def topic_values(self, topics: Sequence[str], keys: Sequence[str]) -> TopicValues:
        found: dict[str, dict[str, str]] = {}
        refused: list[str] = []
        for begin in range(0, len(topics), _TOPICS_A_REQUEST):
            some = topics[begin : begin + _TOPICS_A_REQUEST]
            for result in self._ask_any(_describe(_TOPIC, some, keys)).results:
                if result.error_code == NO_ERROR:
                    found[result.resource_name] = values_of(result)
                elif result.error_code == TOPIC_AUTHORIZATION_FAILED:
                    refused.append(result.resource_name)
        return TopicValues(found, tuple(refused))

    def broker_values(self, broker: BrokerId, keys: Sequence[str]) -> Mapping[str, str]:
        result = self._ask(_describe(_BROKER, [str(broker)], keys), broker).results[0]
        refuse(result.error_code, "DescribeConfigs", "DescribeConfigs")
        return values_of(result)

    # -- about one broker's replicas

    def ping(self, broker: BrokerId) -> None:
        self._ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), broker)

    def list_offsets(
        self, broker: BrokerId, partitions: Sequence[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, ListedOffset]:
        topic_type = ListOffsetsRequest.ListOffsetsTopic
        request = ListOffsetsRequest(
            replica_id=DEBUGGING_REPLICA,
            isolation_level=0,
            topics=[
                topic_type(
                    name=topic,
                    partitions=[
                        topic_type.ListOffsetsPartition(
                            partition_index=number, timestamp=timestamp, max_num_offsets=1
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(partitions).items()
            ],
            timeout_ms=self._timeout_ms,
        )
        return {
            TopicPartition(topic.name, each.partition_index): listed_offset(each)
            for topic in self._ask(request, broker).topics
            for each in topic.partitions
        }

    def fetch(
        self,
        broker: BrokerId,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
    ) -> Mapping[TopicPartition, FetchedState]:
        names = by_topic(positions)
        by_id = all(topic_ids.get(topic) is not None for topic in names)
        topic_type = FetchRequest.FetchTopic
        request = FetchRequest(
            replica_id=DEBUGGING_REPLICA,
            replica_state=FetchRequest.ReplicaState(replica_id=DEBUGGING_REPLICA, replica_epoch=-1),
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1,
            topics=[
                topic_type(
                    topic=topic,
                    topic_id=uuid_of(topic_ids.get(topic)),
                    partitions=[
                        topic_type.FetchPartition(
                            partition=number,
                            fetch_offset=positions[TopicPartition(topic, number)],
                            partition_max_bytes=1,
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in names.items()
            ],
            forgotten_topics_data=[],
            # Without a topic id for all of them the last version that goes by names is spoken.
            **({} if by_id else {"max_version": 12}),
        )
        answer = self._ask(request, broker)
        topic_of = {uuid_of(topic_ids.get(topic)): topic for topic in names} if by_id else {}
        asked_by_id = answer.API_VERSION >= 13
        return {
            TopicPartition(
                topic_of[topic.topic_id] if asked_by_id else topic.topic, each.partition_index
            ): FetchedState(each.error_code, each.high_watermark, asked_by_id)
            for topic in answer.responses
            for each in topic.partitions
        }

    def epoch_ends(self, broker: BrokerId, asked: Sequence[EpochQuestion]) -> Sequence[EpochEnd]:
        topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        grouped: dict[str, list[EpochQuestion]] = {}
        for question in asked:
            grouped.setdefault(question.partition.topic, []).append(question)
        request = OffsetForLeaderEpochRequest(
            replica_id=DEBUGGING_REPLICA,
            topics=[
                topic_type(
                    topic=topic,
                    partitions=[
                        topic_type.OffsetForLeaderPartition(
                            partition=each.partition.partition,
                            current_leader_epoch=each.current_leader_epoch,
                            leader_epoch=each.epoch,
                        )
                        for each in questions
                    ],
                )
                for topic, questions in grouped.items()
            ],
        )
        found = {
            TopicPartition(topic.topic, each.partition): EpochEnd(
                each.error_code, each.leader_epoch, each.end_offset
            )
            for topic in self._ask(request, broker).topics
            for each in topic.partitions
        }
        return [found.get(question.partition, EpochEnd(-1)) for question in asked]

    def close(self) -> None:
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            net, manager = held
            net.run(_closing, manager)
            net.close()

    # -- sending

    def _manager(self) -> Any:
        with self._lock:
            if self._held is None:
                net = NetworkSelector(**self._config)
                manager = KafkaConnectionManager(net, **self._config)
                net.start()
                self._held = (net, manager)
                try:
                    manager.bootstrap(self._timeout_ms)
                except BaseException as error:
                    self._held = None
                    net.run(_closing, manager)
                    net.close()
                    if isinstance(error, kafka_errors.KafkaError):
                        raise self._unreachable(error) from None
                    raise
            return self._held[1]

    def _unreachable(self, error: Exception) -> ConnectorError:
        refused = isinstance(error, _AUTHENTICATION)
        kind = AuthenticationRefusedError if refused else ClusterUnreachableError
        return kind(self._bootstrap_servers, type(error).__name__)

    def _brokers(self, turn: int = 0) -> list[BrokerId]:
        """Beginning with the one whose turn it is. Who did not answer the last time comes last: it
        may cost a whole timeout again."""
        brokers = sorted(each.node_id for each in self._manager().cluster.brokers())
        first = turn % max(len(brokers), 1)
        return sorted(brokers[first:] + brokers[:first], key=self._silent.__contains__)

    def _ask_controller(self, request: Any, name: str) -> Any:
        """One broker passes it on. Silence is not this broker's, so no other is asked."""
        for broker in self._brokers()[:1]:
            try:
                return self._ask(request, broker)
            except BrokerSilentError:
                self._silent.discard(broker)
        raise ControllerSilentError(name)

    def _ask_any(self, request: Any, turn: int = 0) -> Any:
        """From the broker whose turn it is, or the next that answers."""
        failed: ConnectorError | None = None
        for broker in self._brokers(turn):
            try:
                # Sending gives a request its version; the next broker may speak another.
                return self._ask(copy.deepcopy(request), broker)
            except (BrokerSilentError, AuthenticationRefusedError) as error:
                failed = error
        # Everybody may have moved: begin with the bootstrap servers again.
        self.close()
        if isinstance(failed, AuthenticationRefusedError):
            raise failed
        cause = failed.cause if isinstance(failed, BrokerSilentError) else "none is known"
        raise ClusterUnreachableError(self._bootstrap_servers, cause)

    def _ask(self, request: Any, broker: BrokerId) -> Any:
        manager = self._manager()
        self._pace()

        async def send() -> Any:
            future = manager.send(request, node_id=broker, request_timeout_ms=self._timeout_ms)
            return await manager.wait_for(future, self._timeout_ms + 500)

        try:
            answer = manager.run(send)
        except kafka_errors.IncompatibleBrokerVersion:
            raise UnsupportedRequestError(request.name) from None
        except _AUTHENTICATION as error:
            # The manager would remember it for ever; whoever mends the ACL need not restart us.
            manager._auth_failures.pop(broker, None)  # noqa: SLF001
            raise AuthenticationRefusedError(f"broker {broker}", type(error).__name__) from None
        except kafka_errors.KafkaError as error:
            self._silent.add(broker)
            raise BrokerSilentError(broker, type(error).__name__) from None
        self._silent.discard(broker)
        return answer


async def _closing(manager: Any) -> None:
    manager.close()


def _describe(kind: int, names: Sequence[str], keys: Sequence[str]) -> Any:
    return DescribeConfigsRequest(resources=[(kind, name, list(keys)) for name in names])
