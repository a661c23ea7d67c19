"""What is fuzzed: every decoder of bytes from outside, with the errors it may raise.

A target takes any bytes and comes back, or raises something that is a defect. The property tests,
the coverage-guided run and the replay of its corpus all call these.
"""

from __future__ import annotations

import json
import os
import re
import struct
import uuid
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors import broker_decoding, wire
from tidestaff.connectors.agent_answers import (
    AgentFormatError,
    decode_answer,
    decode_question,
    encode_answer,
)
from tidestaff.connectors.agent_client import parse_agents
from tidestaff.connectors.agent_digests import (
    decode_digest_answer,
    decode_digest_question,
    encode_digest_answer,
    encode_digest_question,
)
from tidestaff.connectors.agent_server import parse_listen
from tidestaff.connectors.broker_answers import ClusterMetadata, Software, TopicValues
from tidestaff.connectors.broker_health import HealthBook
from tidestaff.connectors.broker_options import BrokerOptions
from tidestaff.connectors.broker_settings import BROKER_KEYS, TOPIC_KEYS, ClusterSettings
from tidestaff.connectors.client_properties import parse_properties
from tidestaff.connectors.cluster_view import ChangedValues
from tidestaff.connectors.errors import ConnectorError
from tidestaff.connectors.fetch_sockets import decode_fetch, decode_versions
from tidestaff.connectors.log_directories import Disk
from tidestaff.connectors.segments import SegmentScan
from tidestaff.connectors.setting_values import Told
from tidestaff.connectors.zookeeper_configs import decode_config
from tidestaff.consistency import checkpoint_files, znodes
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import (
    Assignment,
    PartitionObservation,
    PartitionState,
    TopicPartition,
)

from tests.fuzz.znode_tree import two_rounds

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", ".*_text is deprecated", DeprecationWarning)
    from kafka.cluster import (  # type: ignore[import-untyped]
        ClusterMetadata as KnownToTheLibrary,
    )
    from kafka.protocol.admin import (  # type: ignore[import-untyped]
        DescribeClusterResponse,
        DescribeConfigsResponse,
        DescribeLogDirsResponse,
        DescribeQuorumResponse,
        DescribeTopicPartitionsResponse,
        ListPartitionReassignmentsResponse,
    )
    from kafka.protocol.broker_version_data import (  # type: ignore[import-untyped]
        BrokerVersionData,
    )
    from kafka.protocol.consumer import ListOffsetsResponse  # type: ignore[import-untyped]
    from kafka.protocol.metadata import (  # type: ignore[import-untyped]
        ApiVersionsResponse,
        MetadataResponse,
    )

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidestaff.consistency.model import BrokerId

TOPIC, PARTITION = TopicPartition("t", 0)


class Target(NamedTuple):
    """A decoder, or a family of them of which the first byte takes one."""

    name: str
    run: Callable[[bytes], None]


# As repr shows it; a backslash of the text itself is shown as two.
_HALF_CHARACTER: Final = re.compile(r"(?<!\\)(?:\\\\)*\\ud[89a-f]")


def _one_of(
    decoders: tuple[Callable[[bytes], object], ...], *allowed: type[Exception]
) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        if data:
            try:
                found = decoders[data[0] % len(decoders)](data[1:])
            except allowed as error:
                _is_clear(error)
            else:
                # All of it travels on in Avro, which has no half characters.
                assert not _HALF_CHARACTER.search(repr(found)), found

    return run


def _is_clear(error: Exception) -> None:
    """An error says something, on one screen, in characters that can be written down."""
    text = str(error)
    assert text
    assert len(text) < 2_000
    text.encode("utf-8")


def _text(data: bytes) -> str:
    """As the agent reads files."""
    return data.decode("utf-8", errors="replace")


CHECKPOINT_FILES: Final = _one_of(
    (
        lambda data: checkpoint_files.parse_leader_epochs(_text(data)),
        lambda data: checkpoint_files.parse_offsets(_text(data)),
        lambda data: checkpoint_files.parse_partition_metadata(_text(data)),
        lambda data: checkpoint_files.parse_meta_properties(_text(data)),
        lambda data: checkpoint_files.parse_clean_shutdown(_text(data)),
        lambda data: checkpoint_files.parse_partition_directory(_text(data)),
        lambda data: checkpoint_files.parse_topic_id(_text(data), "place"),
    ),
    FormatError,
)

ZNODES: Final = _one_of(
    (
        znodes.decode_controller,
        znodes.decode_controller_epoch,
        lambda data: znodes.decode_broker(1, data),
        lambda data: znodes.decode_topic(TOPIC, data),
        znodes.decode_partition_state,
        znodes.decode_reassign_partitions,
        lambda data: znodes.decode_partition_set(data, "/set"),
        znodes.decode_log_dir_event,
        znodes.decode_cluster_id,
        znodes.decode_producer_id_block,
        znodes.decode_feature,
        znodes.decode_migration,
        lambda data: decode_config(data, "/config", {"retention.ms"}),
    ),
    FormatError,
)


def segments(data: bytes) -> None:
    """Both ways of reading give the same batches, in order, inside the file, and come to an end."""
    descriptor = os.memfd_create("segment")
    try:
        os.write(descriptor, data)
        plain, checked = SegmentScan(descriptor), SegmentScan(descriptor, check=True)
        found = list(plain)
        assert [each._replace(intact=None) for each in checked] == found
        assert plain.end is not None
        assert checked.end is not None
        position = 0
        for batch in found:
            assert batch.position == position
            assert batch.size > 0
            position = batch.end_position
            assert batch.compression is not None
        assert position == plain.end.position <= len(data)
    finally:
        os.close(descriptor)
    broker_decoding.headers_of(data)


def _answer(data: bytes) -> None:
    """What is accepted can be passed on: as health, and to another agent's reader."""
    answer = decode_answer(data)
    for told in HealthBook("c", "brokers", 1).close_round(answer.problems, 1, 1):
        wire.to_bytes(wire.row_of(told))
    disk = Disk((), answer.replicas, answer.others, answer.problems)
    again = decode_answer(encode_answer(answer.broker, answer.at_ms, disk))
    assert again.replicas == answer.replicas
    assert set(again.others) == set(answer.others)


AGENT: Final = _one_of(
    (
        decode_question,
        _answer,
        lambda data: parse_listen(_text(data)),
        lambda data: parse_agents(_text(data)),
    ),
    AgentFormatError,
    ConnectorError,
)


def _digest_question(data: bytes) -> None:
    question = decode_digest_question(data)
    assert decode_digest_question(encode_digest_question(question)) == question


def _digest_answer(data: bytes) -> None:
    found = decode_digest_answer(data)
    assert decode_digest_answer(encode_digest_answer(found.broker, found.answers)) == found


DIGESTS: Final = _one_of((_digest_question, _digest_answer), AgentFormatError)

# What the reader of sockets takes for a broker that makes no sense.
FETCHES: Final = _one_of(
    (
        lambda data: decode_fetch(memoryview(data)).keys(),
        lambda data: decode_versions(memoryview(data)),
    ),
    *(struct.error, ValueError),
)

PROPERTIES: Final = _one_of((lambda data: parse_properties(_text(data), "file"),), ConnectorError)

SETTING_KEYS: Final = frozenset((*TOPIC_KEYS, *BROKER_KEYS, "log.cleanup.policy"))


ZOOKEEPER_28: Final = Software("2.8", kraft=False)


class _Says:
    """Implements SettingsReader: all that is asked for has these values."""

    def __init__(self, values: Mapping[str, str], told: Software = ZOOKEEPER_28) -> None:
        self._values, self._told = values, told

    def software(self) -> Software:
        return self._told

    def topic_values(self, topics: Sequence[str], keys: Sequence[str]) -> TopicValues:
        return TopicValues(dict.fromkeys(topics, self._of(keys)))

    def broker_values(self, broker: BrokerId, keys: Sequence[str]) -> Mapping[str, Told]:
        del broker
        return self._of(keys)

    def _of(self, keys: Sequence[str]) -> dict[str, Told]:
        return {key: Told(value) for key, value in self._values.items() if key in keys}


def settings_from(answers: Mapping[str, str], changed: ChangedValues | None) -> None:
    """Whatever is said, a round has settings and rules, and they travel."""
    settings = ClusterSettings(_Says(answers), BrokerOptions("somewhere:9092"))
    settings.refresh([1], {TOPIC: None}, 0, changed)
    observation = PartitionObservation(
        *("c", TOPIC, PARTITION, 1_000, settings.rules, PartitionState(1, 2, (1,))),
        Assignment((1, 2)),
        live=(),
        settings=settings.of(TOPIC),
    )
    assert wire.observation_of(wire.row_of(observation)) == observation
    for told in HealthBook("c", "brokers", 1).close_round(settings.problems, 1, 1):
        wire.to_bytes(wire.row_of(told))


def _config(data: bytes) -> None:
    found = decode_config(data, "/config/brokers/1", SETTING_KEYS)
    settings_from({}, ChangedValues({TOPIC: found}, {1: found, None: found}))


def _said(data: bytes) -> None:
    """The same content as answers of the brokers, which no decoder has looked at."""
    try:
        values = json.loads(data)["config"].items()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return
    settings_from({name: value for name, value in values if isinstance(value, str)}, None)


SETTINGS: Final = _one_of((_config, _said), FormatError)


def _row(data: bytes) -> None:
    wire.observation_of(wire.from_bytes(wire.header() + data))


WIRE: Final = _one_of(
    (
        wire.from_bytes,
        _row,
        *(
            lambda data, version=version, kind=kind: wire.observation_of(  # type: ignore[misc]
                wire.Row(version, kind, "c", "s", "t-0", 1, 0, 1, [], [], [], [], [], data)
            )
            for version, kind in (
                *((wire.SCHEMA_VERSION, kind) for kind in (wire.PARTITION, wire.CLUSTER)),
                *((wire.OLDEST_VERSION, kind) for kind in (wire.HEALTH, wire.PARTITION)),
            )
        ),
    ),
    wire.WireError,
)


def _metadata(answer: Any) -> ClusterMetadata:
    """As the reader does: what was decoded counts once the library has taken the answer over. One
    that was never on a wire has no version, and is not taken over."""
    found = broker_decoding.metadata_of(answer)
    if answer.API_VERSION is not None:
        known = KnownToTheLibrary(bootstrap_servers="somewhere:9092")
        broker_decoding.learn(answer, known.update_metadata)
    return found


def _software(answer: Any) -> None:
    """Whatever brokers say they are, there are rules for it, or it is refused."""
    found = broker_decoding.items(answer.api_keys)
    ranges = {each.api_key: (each.min_version, each.max_version) for each in found}
    version = BrokerVersionData(api_versions=ranges).broker_version
    software = broker_decoding.software_of(answer, version)
    for mode in (None, "zookeeper", "kraft"):
        options = BrokerOptions("somewhere:9092", mode=mode)
        with suppress(ConnectorError):
            ClusterSettings(_Says({}, software), options).refresh([1], {TOPIC: None}, 0)


ANSWERS: Final[tuple[tuple[Any, Callable[[Any], object]], ...]] = (
    (MetadataResponse, _metadata),
    (ListPartitionReassignmentsResponse, broker_decoding.moving_of),
    (DescribeTopicPartitionsResponse, broker_decoding.eligible_of),
    (ApiVersionsResponse, _software),
    (DescribeClusterResponse, broker_decoding.registered_of),
    (DescribeLogDirsResponse, broker_decoding.log_dirs_of),
    (
        DescribeConfigsResponse,
        lambda answer: [
            broker_decoding.values_of(each, topic=topic)
            for each in broker_decoding.items(answer.results)
            for topic in (True, False)
        ],
    ),
    (
        ListOffsetsResponse,
        lambda answer: [
            broker_decoding.listed_offset(each)
            for _, each in broker_decoding.by_partition(answer.topics)
        ],
    ),
    (
        DescribeQuorumResponse,
        lambda answer: [
            broker_decoding.quorum_of(each)
            for _, each in broker_decoding.by_partition(answer.topics)
        ],
    ),
)


def protocol(data: bytes) -> None:
    """Whatever the client library makes of an answer is decoded; what it refuses is its own."""
    if len(data) < 2:
        return
    kind, decode = ANSWERS[data[0] % len(ANSWERS)]
    version = kind.min_version + data[1] % (kind.max_version - kind.min_version + 1)
    try:
        answer = kind.decode(data[2:], version=version)
    except Exception:  # noqa: BLE001 - the library's own
        return
    try:
        found = decode(answer)
    except ConnectorError as error:
        _is_clear(error)
        return
    partitions = found.partitions if isinstance(found, ClusterMetadata) else found
    if isinstance(partitions, dict):
        assert all(isinstance(getattr(each, "topic", ""), str) for each in partitions)


def topic_ids(data: bytes) -> None:
    if len(data) >= 16:
        value = uuid.UUID(bytes=data[:16])
        assert broker_decoding.uuid_of(broker_decoding.id_text(value)) == value


TARGETS: Final = (
    Target("checkpoint-files", CHECKPOINT_FILES),
    Target("znodes", ZNODES),
    Target("znode-tree", two_rounds),
    Target("segments", segments),
    Target("agent", AGENT),
    Target("digests", DIGESTS),
    Target("fetches", FETCHES),
    Target("properties", PROPERTIES),
    Target("settings", SETTINGS),
    Target("wire", WIRE),
    Target("protocol", protocol),
    Target("topic-ids", topic_ids),
)
BY_NAME: Final = {target.name: target for target in TARGETS}
