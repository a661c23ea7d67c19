"""Answers of the wire protocol as plain values; nothing here imports the client library."""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.broker_answers import (
    NO_ERROR,
    ClusterMetadata,
    Eligible,
    ListedOffset,
    ListedPartition,
    Moving,
    Software,
    error_name,
)
from tidestaff.connectors.errors import ConnectorError, NotAuthorizedError
from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

_CLUSTER_AUTHORIZATION_FAILED: Final = 31
_DESCRIBE_QUORUM_KEY: Final = 55
_NO_TOPIC_ID: Final = uuid.UUID(int=0)


def metadata_of(answer: Any) -> ClusterMetadata:
    partitions = {}
    for topic in answer.topics:
        topic_id = id_text(topic.topic_id)
        for each in topic.partitions or ():
            partitions[TopicPartition(topic.name, each.partition_index)] = ListedPartition(
                each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                topic_id,
            )
    brokers = {each.node_id: each.rack for each in answer.brokers}
    return ClusterMetadata(brokers, answer.controller_id, partitions)


def moving_of(answer: Any) -> dict[TopicPartition, Moving]:
    return {
        TopicPartition(topic.name, each.partition_index): Moving(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def eligible_of(answer: Any) -> dict[TopicPartition, Eligible]:
    return {
        TopicPartition(topic.name, each.partition_index): Eligible(
            each.leader_epoch,
            tuple(each.isr_nodes),
            tuple(each.eligible_leader_replicas or ()),
            tuple(each.last_known_elr or ()),
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def software_of(answer: Any, version: tuple[int, ...]) -> Software:
    keys = {each.api_key for each in answer.api_keys}
    levels = {each.name: each.max_version_level for each in answer.finalized_features or ()}
    level = levels.get("metadata.version")
    return Software(
        ".".join(map(str, version)),
        kraft=level is not None or _DESCRIBE_QUORUM_KEY in keys,
        metadata_level=level,
        elr=levels.get("eligible.leader.replicas.version", 0) > 0,
    )


def listed_offset(answer: Any) -> ListedOffset:
    offset = answer.offset
    if answer.old_style_offsets:
        offset = answer.old_style_offsets[0]
    epoch = answer.leader_epoch
    return ListedOffset(answer.error_code, offset, epoch if epoch >= 0 else None)


def values_of(result: Any) -> dict[str, str]:
    return {each.name: each.value for each in result.configs if each.value is not None}


def refuse(code: int, operation: str, request: str) -> None:
    if code == _CLUSTER_AUTHORIZATION_FAILED:
        raise NotAuthorizedError(operation, "cluster", "kafka-cluster")
    if code != NO_ERROR:
        raise ConnectorError(f"{request} answers {error_name(code)}", "it is asked again next time")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def id_text(value: uuid.UUID | None) -> str | None:
    """As Kafka writes it; the zero id of old brokers is none."""
    if value is None or value == _NO_TOPIC_ID:
        return None
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_of(text: str | None) -> uuid.UUID:
    return _NO_TOPIC_ID if text is None else uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
