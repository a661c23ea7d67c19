"""Answers of the wire protocol as plain values; nothing here imports the client library."""

from __future__ import annotations

import base64
import uuid
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from tidestaff.connectors.broker_answers import (
    NO_ERROR,
    BatchHeader,
    ClusterMetadata,
    Eligible,
    HeldReplica,
    ListedOffset,
    ListedPartition,
    LogDir,
    Moving,
    Quorum,
    Software,
    Voter,
    error_name,
)
from tidestaff.connectors.errors import (
    AnswerMalformedError,
    ConnectorError,
    NotAuthorizedError,
)
from tidestaff.connectors.segments import Batch, decode_header
from tidestaff.connectors.setting_values import Told
from tidestaff.consistency.model import Registration, SettingSource, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

P = ParamSpec("P")
T = TypeVar("T")

_CLUSTER_AUTHORIZATION_FAILED: Final = 31
_DESCRIBE_QUORUM_KEY: Final = 55
_NO_TOPIC_ID: Final = uuid.UUID(int=0)
# By the numbers DescribeConfigs has for them from 1.1 on.
_SOURCES: Final = {
    1: SettingSource.TOPIC,
    2: SettingSource.BROKER,
    3: SettingSource.CLUSTER,
    4: SettingSource.STATIC,
    5: SettingSource.DEFAULT,
}


def _of_an_answer(decode: Callable[P, T]) -> Callable[P, T]:
    """The library takes null for a list or a name where the protocol allows none: such an answer
    is refused as a whole."""

    @wraps(decode)
    def decoded(*given: P.args, **named: P.kwargs) -> T:
        try:
            return decode(*given, **named)
        except (TypeError, AttributeError, ValueError, IndexError) as error:
            raise AnswerMalformedError(type(given[0]).__name__, type(error).__name__) from error

    return decoded


def _named(topic: Any, number: int) -> TopicPartition:
    if not isinstance(topic, str):
        raise TypeError(topic)
    return TopicPartition(topic, number)


@_of_an_answer
def metadata_of(answer: Any) -> ClusterMetadata:
    partitions = {}
    for topic in answer.topics:
        topic_id = id_text(topic.topic_id)
        for each in topic.partitions:
            partitions[_named(topic.name, each.partition_index)] = ListedPartition(
                each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                topic_id,
            )
    brokers = {each.node_id: each.rack for each in answer.brokers}
    return ClusterMetadata(brokers, answer.controller_id, partitions, answer.cluster_id or None)


@_of_an_answer
def learn(answer: Any, update: Callable[[Any], object]) -> None:
    """The library takes it over, as it stands."""
    update(answer)


@_of_an_answer
def moving_of(answer: Any) -> dict[TopicPartition, Moving]:
    return {
        _named(topic.name, each.partition_index): Moving(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


@_of_an_answer
def eligible_of(answer: Any) -> dict[TopicPartition, Eligible]:
    return {
        _named(topic.name, each.partition_index): Eligible(
            each.leader_epoch,
            tuple(each.isr_nodes),
            tuple(each.eligible_leader_replicas or ()),
            tuple(each.last_known_elr or ()),
        )
        for topic in answer.topics
        for each in topic.partitions
    }


@_of_an_answer
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


@_of_an_answer
def quorum_of(partition: Any) -> Quorum:
    def voters(found: Any) -> tuple[Voter, ...]:
        return tuple(
            Voter(
                each.replica_id,
                each.log_end_offset,
                each.last_fetch_timestamp,
                each.last_caught_up_timestamp,
            )
            for each in found
        )

    return Quorum(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        voters(partition.current_voters),
        voters(partition.observers),
    )


@_of_an_answer
def registered_of(answer: Any) -> tuple[Registration, ...]:
    return tuple(
        Registration(each.broker_id, fenced=bool(each.is_fenced), rack=each.rack)
        for each in answer.brokers
    )


@_of_an_answer
def log_dirs_of(answer: Any) -> tuple[LogDir, ...]:
    return tuple(
        LogDir(
            result.log_dir,
            result.error_code,
            tuple(
                HeldReplica(
                    _named(topic.name, each.partition_index),
                    each.partition_size,
                    each.is_future_key,
                )
                for topic in result.topics
                for each in topic.partitions
            ),
            result.total_bytes if result.total_bytes >= 0 else None,
            result.usable_bytes if result.usable_bytes >= 0 else None,
        )
        for result in answer.results
    )


def headers_of(records: bytes) -> tuple[BatchHeader, ...]:
    """Of every whole batch; an answer may end within one. Formats before 0.11 have no epochs."""
    found: list[BatchHeader] = []
    at = 0
    while at < len(records):
        batch = decode_header(records, at, at)
        if not isinstance(batch, Batch) or batch.end_position > len(records):
            break
        first = batch.last_offset if batch.base_offset is None else batch.base_offset
        found.append(BatchHeader(first, batch.last_offset, batch.leader_epoch))
        at = batch.end_position
    return tuple(found)


@_of_an_answer
def listed_offset(answer: Any) -> ListedOffset:
    offset = answer.offset
    if answer.old_style_offsets:
        offset = answer.old_style_offsets[0]
    epoch = answer.leader_epoch
    return ListedOffset(answer.error_code, offset, epoch if epoch >= 0 else None)


@_of_an_answer
def values_of(result: Any, *, topic: bool) -> dict[str, Told]:
    return {
        each.name: Told(each.value, _source(each, topic=topic))
        for each in items(result.configs)
        if each.value is not None
    }


def _source(config: Any, *, topic: bool) -> SettingSource:
    """Before 1.1 only whether it is a default: then a topic's may still be set for its broker,
    while a broker's can be set in its properties only."""
    if config.config_source is not None and config.config_source >= 0:
        return _SOURCES.get(config.config_source, SettingSource.UNKNOWN)
    if topic:
        return SettingSource.UNKNOWN if config.is_default else SettingSource.TOPIC
    return SettingSource.DEFAULT if config.is_default else SettingSource.STATIC


def items(found: Any, least: int = 0) -> Sequence[Any]:
    """A list of an answer, where the library may have left null or too little."""
    if not isinstance(found, list | tuple) or len(found) < least:
        raise AnswerMalformedError("an answer", "a list is missing")
    return found


def by_partition(topics: Any) -> Iterator[tuple[Any, Any]]:
    """Every partition of an answer, with its topic."""
    return ((topic, each) for topic in items(topics) for each in items(topic.partitions))


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
