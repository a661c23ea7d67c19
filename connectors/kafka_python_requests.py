"""Requests as kafka-python sends them. Only requests that read are ever built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.protocol.admin import (  # type: ignore[import-untyped]
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.consumer import (  # type: ignore[import-untyped]
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import (  # type: ignore[import-untyped]
    ApiVersionsRequest,
    MetadataRequest,
)
from tidestaff.connectors.broker_decoding import by_topic, uuid_of
from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.connectors.broker_answers import EpochQuestion

DEBUGGING_REPLICA: Final = -2
CONSUMER: Final = -1
"""A follower answers it, too."""
TOPIC, BROKER = 2, 4
_METADATA_TOPIC: Final = "__cluster_metadata"
_BY_NAME: Final = 12
"""The last version of Fetch that goes by topic names."""


class Limits(NamedTuple):
    """How many bytes a fetch may bring. A broker exceeds them for one batch, or none would come."""

    whole: int = 1
    partition: int = 1


def metadata(topics: Sequence[str] | None) -> Any:
    wanted = (
        None if topics is None else [MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
    )
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def api_versions(client: Mapping[str, Any]) -> Any:
    return ApiVersionsRequest(
        client_software_name=client["client_software_name"],
        client_software_version=client["client_software_version"],
    )


def quorum() -> Any:
    partition = DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name=_METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumRequest(topics=[topic])


def reassignments(timeout_ms: int) -> Any:
    return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)


def topic_partitions(after: Any = None) -> Any:
    """The next page; `after` is the cursor of the last one."""
    cursor = None
    if after is not None:
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=after.topic_name, partition_index=after.partition_index
        )
    return DescribeTopicPartitionsRequest(topics=[], cursor=cursor)


def registered_brokers() -> Any:
    """Version 2 tells fenced ones (4.0+)."""
    return DescribeClusterRequest(
        include_cluster_authorized_operations=False, include_fenced_brokers=True, min_version=2
    )


def log_dirs() -> Any:
    return DescribeLogDirsRequest(topics=None)


def configs(kind: int, names: Sequence[str], keys: Sequence[str]) -> Any:
    return DescribeConfigsRequest(resources=[(kind, name, list(keys)) for name in names])


def list_offsets(
    partitions: Sequence[TopicPartition],
    timestamp: int,
    timeout_ms: int,
    min_version: int = 0,
    *,
    replica: int = DEBUGGING_REPLICA,
) -> Any:
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=replica,
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
        timeout_ms=timeout_ms,
        min_version=min_version,
    )


def fetch(
    positions: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str | None],
    limits: Limits,
) -> Any:
    """Without a session, and without waiting for anything."""
    names = by_topic(positions)
    by_id = all(topic_ids.get(topic) is not None for topic in names)
    topic_type = FetchRequest.FetchTopic
    return FetchRequest(
        replica_id=DEBUGGING_REPLICA,
        replica_state=FetchRequest.ReplicaState(replica_id=DEBUGGING_REPLICA, replica_epoch=-1),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=limits.whole,
        topics=[
            topic_type(
                topic=topic,
                topic_id=uuid_of(topic_ids.get(topic)),
                partitions=[
                    topic_type.FetchPartition(
                        partition=number,
                        fetch_offset=positions[TopicPartition(topic, number)],
                        partition_max_bytes=limits.partition,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in names.items()
        ],
        forgotten_topics_data=[],
        # Without a topic id for all of them the last version that goes by names is spoken.
        **({} if by_id else {"max_version": _BY_NAME}),
    )


def epoch_ends(asked: Sequence[EpochQuestion]) -> Any:
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    grouped: dict[str, list[EpochQuestion]] = {}
    for question in asked:
        grouped.setdefault(question.partition.topic, []).append(question)
    return OffsetForLeaderEpochRequest(
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
