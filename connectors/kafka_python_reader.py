"""Questions to a cluster through kafka-python, their answers as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka.net.manager import KafkaConnectionManager  # type: ignore[import-untyped]
from kafka.protocol.broker_version_data import BrokerVersionData  # type: ignore[import-untyped]
from tidestaff.connectors import kafka_python_requests as requests
from tidestaff.connectors.broker_answers import (
    EARLIEST_LOCAL,
    LATEST,
    NO_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED,
    EpochEnd,
    FetchedBatches,
    FetchedState,
    TopicValues,
)
from tidestaff.connectors.broker_decoding import (
    by_partition,
    by_topic,
    eligible_of,
    headers_of,
    items,
    learn,
    listed_offset,
    log_dirs_of,
    metadata_of,
    moving_of,
    quorum_of,
    refuse,
    registered_of,
    software_of,
    uuid_of,
    values_of,
)
from tidestaff.connectors.digest_wire import FetchedRecords
from tidestaff.connectors.errors import AnswerMalformedError, NotAuthorizedError
from tidestaff.connectors.fetch_sockets import Address
from tidestaff.connectors.kafka_python_client import KafkaPythonClient
from tidestaff.connectors.kafka_python_requests import Limits
from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidestaff.connectors.broker_answers import (
        ClusterMetadata,
        Eligible,
        EpochQuestion,
        ListedOffset,
        LogDir,
        Moving,
        Quorum,
        Software,
    )
    from tidestaff.connectors.setting_values import Told
    from tidestaff.consistency.model import BrokerId, Registration

_TOPICS_A_REQUEST: Final = 500
_DETOURS: Final = ("socks5_proxy", "proxy_url", "sasl_mechanism")
_WITH_LOCAL_START: Final = 8
"""The version of ListOffsets that knows where the local part of a tiered log starts."""


class KafkaPythonReader(KafkaPythonClient):
    """Implements BrokerReader."""

    # -- about the cluster

    def metadata(self, turn: int) -> ClusterMetadata:
        """From another broker each turn: the cache of one may lag."""
        answer = self.ask_any(requests.metadata(None), turn)
        found = metadata_of(answer)
        # The manager learns addresses from it. It may change the answer, so this comes last.
        cluster = self.manager().cluster
        learn(answer, cluster.update_metadata)
        self._addresses |= {each.node_id: each for each in cluster.brokers()}
        # Whoever is not listed any more may still be there, and is found where it was. The manager
        # has no other place for such addresses than this one, where it looks last.
        cluster._coordinator_brokers.update(self._addresses)  # noqa: SLF001
        return found

    def hosts(self) -> Mapping[BrokerId, str]:
        """Of the brokers, as they are known from the last metadata."""
        return {each.node_id: each.host for each in self.manager().cluster.brokers()}

    def address(self, broker: BrokerId) -> Address | None:
        """Where a broker is, if a plain socket reaches it as the library would."""
        plain = self._config.get("security_protocol", "PLAINTEXT") == "PLAINTEXT"
        found = self.manager().cluster.broker_metadata(broker)
        if not plain or found is None or any(self._config.get(name) for name in _DETOURS):
            return None
        return Address(found.host, found.port)

    def refused_topics(self, topics: Sequence[str]) -> Sequence[str]:
        found: list[str] = []
        for some in _some(topics):
            answer = self.ask_any(requests.metadata(some))
            found += [
                topic.name
                for topic in items(answer.topics)
                if topic.error_code == TOPIC_AUTHORIZATION_FAILED
            ]
        return found

    def software(self) -> Software:
        answer = self.ask_any(requests.api_versions(KafkaConnectionManager.DEFAULT_CONFIG))
        ranges = {
            each.api_key: (each.min_version, each.max_version) for each in items(answer.api_keys)
        }
        return software_of(answer, BrokerVersionData(api_versions=ranges).broker_version)

    def quorum(self) -> Quorum:
        answer = self.ask_controller(requests.quorum(), "DescribeQuorum")
        refuse(answer.error_code, "Describe", "DescribeQuorum")
        partition = items(items(answer.topics, 1)[0].partitions, 1)[0]
        refuse(partition.error_code, "Describe", "DescribeQuorum")
        return quorum_of(partition)

    def registered(self) -> Sequence[Registration]:
        answer = self.ask_any(requests.registered_brokers())
        refuse(answer.error_code, "Describe", "DescribeCluster")
        return registered_of(answer)

    def reassignments(self, controller: BrokerId) -> Mapping[TopicPartition, Moving]:
        request = requests.reassignments(self.timeout_ms)
        if controller >= 0:
            answer = self.ask(request, controller)
        else:
            answer = self.ask_controller(request, "ListPartitionReassignments")
        refuse(answer.error_code, "Describe", "ListPartitionReassignments")
        return moving_of(answer)

    def eligible(self) -> Mapping[TopicPartition, Eligible]:
        found: dict[TopicPartition, Eligible] = {}
        cursor, at = None, ("", -1)
        while True:
            answer = self.ask_any(requests.topic_partitions(cursor))
            found |= eligible_of(answer)
            cursor = answer.next_cursor
            if cursor is None:
                return found
            before, at = at, (cursor.topic_name or "", cursor.partition_index)
            if at <= before:  # topics and partitions are told in their order
                raise AnswerMalformedError("DescribeTopicPartitions", "it does not come to an end")

    def topic_values(self, topics: Sequence[str], keys: Sequence[str]) -> TopicValues:
        found: dict[str, dict[str, Told]] = {}
        refused: list[str] = []
        for some in _some(topics):
            answer = self.ask_any(requests.configs(requests.TOPIC, some, keys))
            for result in items(answer.results):
                if result.error_code == NO_ERROR:
                    found[result.resource_name] = values_of(result, topic=True)
                elif result.error_code == TOPIC_AUTHORIZATION_FAILED:
                    refused.append(result.resource_name)
        return TopicValues(found, tuple(refused))

    def broker_values(self, broker: BrokerId, keys: Sequence[str]) -> Mapping[str, Told]:
        request = requests.configs(requests.BROKER, [str(broker)], keys)
        result = items(self.ask(request, broker).results, 1)[0]
        refuse(result.error_code, "DescribeConfigs", "DescribeConfigs")
        return values_of(result, topic=False)

    # -- about one broker's replicas

    def ping(self, broker: BrokerId) -> None:
        self.ask(requests.metadata([]), broker)

    def log_dirs(self, broker: BrokerId) -> Sequence[LogDir]:
        answer = self.ask(requests.log_dirs(), broker)
        refuse(answer.error_code, "Describe", "DescribeLogDirs")
        found = log_dirs_of(answer)
        if not found:
            # Before 3.2 a refusal is told by naming no directory.
            raise NotAuthorizedError("Describe", "cluster", "kafka-cluster")
        return found

    def list_offsets(
        self, broker: BrokerId, partitions: Sequence[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, ListedOffset]:
        least = _WITH_LOCAL_START if timestamp == EARLIEST_LOCAL else 0
        request = requests.list_offsets(partitions, timestamp, self.timeout_ms, least)
        return {
            TopicPartition(topic.name, each.partition_index): listed_offset(each)
            for topic, each in by_partition(self.ask(request, broker).topics)
        }

    def leading(
        self, broker: BrokerId, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, bool]:
        """A follower sends a consumer away, whatever its release; -2 it would answer."""
        request = requests.list_offsets(
            partitions, LATEST, self.timeout_ms, replica=requests.CONSUMER
        )
        return {
            TopicPartition(topic.name, each.partition_index): each.error_code == NO_ERROR
            for topic, each in by_partition(self.ask(request, broker).topics)
            if each.error_code in (NO_ERROR, NOT_LEADER_OR_FOLLOWER)
        }

    def fetch(
        self,
        broker: BrokerId,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
    ) -> Mapping[TopicPartition, FetchedState]:
        answer = self.ask(requests.fetch(positions, topic_ids, Limits()), broker)
        by_id = answer.API_VERSION >= 13
        return {
            partition: FetchedState(
                each.error_code, each.high_watermark, by_id, each.log_start_offset
            )
            for partition, each in _fetched(answer, positions, topic_ids)
        }

    def batches(
        self,
        broker: BrokerId,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
        *,
        whole_bytes: int,
        partition_bytes: int,
    ) -> Mapping[TopicPartition, FetchedBatches]:
        limits = Limits(whole_bytes, partition_bytes)
        answer = self.ask(requests.fetch(positions, topic_ids, limits), broker)
        return {
            partition: FetchedBatches(
                each.error_code, each.high_watermark, headers_of(each.records or b"")
            )
            for partition, each in _fetched(answer, positions, topic_ids)
        }

    def records(
        self,
        broker: BrokerId,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
        *,
        whole_bytes: int,
        partition_bytes: int,
    ) -> Mapping[TopicPartition, FetchedRecords]:
        """The batches themselves, as they stand in the log."""
        limits = Limits(whole_bytes, partition_bytes)
        answer = self.ask(requests.fetch(positions, topic_ids, limits), broker)
        return {
            partition: FetchedRecords(each.error_code, each.records or b"")
            for partition, each in _fetched(answer, positions, topic_ids)
        }

    def epoch_ends(self, broker: BrokerId, asked: Sequence[EpochQuestion]) -> Sequence[EpochEnd]:
        found = {
            TopicPartition(topic.topic, each.partition): EpochEnd(
                each.error_code, each.leader_epoch, each.end_offset
            )
            for topic, each in by_partition(self.ask(requests.epoch_ends(asked), broker).topics)
        }
        return [found.get(question.partition, EpochEnd(-1)) for question in asked]


def _fetched(
    answer: Any,
    positions: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str | None],
) -> Iterator[tuple[TopicPartition, Any]]:
    by_id = answer.API_VERSION >= 13
    names = {uuid_of(topic_ids.get(topic)): topic for topic in by_topic(positions)}
    for topic, each in by_partition(answer.responses):
        name = names.get(topic.topic_id) if by_id else topic.topic
        if name is not None:  # else nobody asked for it
            yield TopicPartition(name, each.partition_index), each


def _some(topics: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(topics), _TOPICS_A_REQUEST):
        yield topics[begin : begin + _TOPICS_A_REQUEST]
