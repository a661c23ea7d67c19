"""Kafka's nodes in ZooKeeper: bytes to values, and back where we write one.

Read as Kafka 3.9 reads them: a number is an int32 without fraction and never a boolean, order of
keys and unknown keys do not matter, later versions are accepted. What makes a broker throw is a
`FormatError`. In one point we are stricter: a node that is no JSON, which Kafka often takes for an
empty one, is refused, because nobody wrote it so on purpose. Doubtful but readable values (a
replica named twice, a negative broker id) are handed on as Kafka does; the rules judge them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from tidestaff.consistency.checkpoint_files import (
    INT32,
    INT64,
    first_json_value,
    java_int,
)
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import Assignment, PartitionState, RecoveryState, TopicPartition
from tidestaff.consistency.topic_ids import parse_topic_id, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidestaff.consistency.model import BrokerId

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CLUSTER_ID: Final = "/cluster/id"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
DELETE_TOPICS: Final = "/admin/delete_topics"
ISR_CHANGE_NOTIFICATION: Final = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATION: Final = "/log_dir_event_notification"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"
MIGRATION: Final = "/migration"

NodeData: TypeAlias = bytes | str | None
NO_KRAFT_CONTROLLER: Final = -1
_T = TypeVar("_T")
_PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
_ENDPOINT = re.compile(r"([^\r\n]*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")


class Controller(NamedTuple):
    """Who holds /controller. `kraft_controller_epoch` is -1 for a ZooKeeper controller."""

    broker: BrokerId
    timestamp_ms: int | None = None
    kraft_controller_epoch: int = NO_KRAFT_CONTROLLER


class Endpoint(NamedTuple):
    """Where one listener of a broker is reached; `host` is None for "every interface"."""

    listener: str
    host: str | None
    port: int
    security_protocol: str = "PLAINTEXT"


class BrokerNode(NamedTuple):
    """/brokers/ids/N: what a broker wrote about itself; features as (lowest, highest) version."""

    broker: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    features: Mapping[str, tuple[int, int]]
    version: int
    jmx_port: int
    timestamp_ms: int | None

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener; names of listeners are compared as Kafka writes them."""
        return next((point for point in self.endpoints if point.listener == listener), None)


class TopicNode(NamedTuple):
    """/brokers/topics/T: the assignment of each partition; no `topic_id` before 2.8."""

    topic: str
    topic_id: str | None
    assignment: Mapping[int, Assignment]


class Migration(NamedTuple):
    """/migration (3.4 - 3.9): how far the move to KRaft has come."""

    kraft_controller_id: BrokerId
    kraft_controller_epoch: int
    kraft_metadata_offset: int
    kraft_metadata_epoch: int


class _Fields:
    """A JSON object with its place, so that every refusal names node and field."""

    def __init__(self, place: str, value: object, name: str = "content") -> None:
        self.place = place
        self.values: dict[str, object] = _typed(place, name, value, dict, "a JSON object")

    def get(self, name: str) -> object:
        if name not in self.values:
            raise FormatError(self.place, name, "missing", "a value")
        return self.values[name]

    def number(self, name: str, bits: int = INT32, default: int | None = None) -> int:
        if default is not None and name not in self.values:
            return default
        return _number(self.place, name, self.get(name), bits)

    def text(self, name: str) -> str:
        return _typed(self.place, name, self.get(name), str, "a text")

    def fields(self, name: str) -> _Fields:
        return _Fields(self.place, self.get(name), name)

    def items(self, name: str) -> list[object]:
        return _typed(self.place, name, self.get(name), list, "a JSON array")

    def milliseconds(self, name: str) -> int | None:
        """Kafka writes timestamps as text and never reads them: an odd one is just unknown."""
        value = self.values.get(name)
        return java_int(value, INT64) if isinstance(value, str) else None


def _typed(place: str, name: str, value: object, kind: type[_T], wanted: str) -> _T:
    # Exactly this type: in Python a boolean is an int, in JSON it is not.
    if type(value) is not kind:
        raise FormatError(place, name, shown(value), wanted)
    return value


def _number(place: str, name: str, value: object, bits: int = INT32) -> int:
    wanted = f"a whole number of {bits} bits"
    number = _typed(place, name, value, int, wanted)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise FormatError(place, name, shown(value), wanted)
    return number


def _brokers(place: str, name: str, value: object) -> tuple[BrokerId, ...]:
    return tuple(
        _number(place, name, item) for item in _typed(place, name, value, list, "a JSON array")
    )


def _partition(place: str, name: str, number: int | None, found: object) -> int:
    # Kafka reads a negative number here, but its log directory T--1 would come back as topic "T-".
    if number is None or number < 0:
        raise FormatError(place, name, shown(found), "a partition number, 0 or more")
    return number


def _decoded(place: str, data: NodeData) -> str:
    if not data:
        raise FormatError(place, "content", "empty", "data: read it again, it may be half created")
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(place, "content", shown(data), "UTF-8") from error


def _json(place: str, data: NodeData) -> _Fields:
    text = _decoded(place, data)
    try:
        return _Fields(place, first_json_value(text))
    except ValueError as error:
        raise FormatError(place, "content", shown(text), "JSON") from error


def decode_controller(data: NodeData) -> Controller:
    """/controller, v1 and v2 (3.4+): only `brokerid` must be there."""
    node = _json(CONTROLLER, data)
    epoch = node.number("kraftControllerEpoch", default=NO_KRAFT_CONTROLLER)
    return Controller(node.number("brokerid"), node.milliseconds("timestamp"), epoch)


def decode_controller_epoch(data: NodeData) -> int:
    """/controller_epoch: a plain decimal number, no JSON."""
    text = _decoded(CONTROLLER_EPOCH, data)
    epoch = java_int(text)
    if epoch is None:
        raise FormatError(CONTROLLER_EPOCH, "content", shown(text), "a whole number of 32 bits")
    return epoch


def decode_broker(broker: BrokerId, data: NodeData) -> BrokerNode:
    """/brokers/ids/N: v1 names one host and port, v2 and later list endpoints (0.9+)."""
    node = _json(f"{BROKER_IDS}/{broker}", data)
    version = node.number("version")
    if version < 1:
        raise FormatError(node.place, "version", str(version), "1 or later")
    jmx_port = node.number("jmx_port")
    if version == 1:
        endpoints = [Endpoint("PLAINTEXT", node.text("host"), node.number("port"))]
    else:
        endpoints = _endpoints(node)
    rack = node.text("rack") if node.values.get("rack") is not None else None
    stamp = node.milliseconds("timestamp")
    return BrokerNode(broker, tuple(endpoints), rack, _supported(node), version, jmx_port, stamp)


def _endpoints(node: _Fields) -> list[Endpoint]:
    protocols = {name: name for name in _PROTOCOLS}
    if "listener_security_protocol_map" in node.values:
        listed = node.fields("listener_security_protocol_map")
        protocols = {listener: listed.text(listener).upper() for listener in listed.values}
    if unknown := set(protocols.values()) - _PROTOCOLS:
        wanted = f"one of {', '.join(sorted(_PROTOCOLS))}"
        raise FormatError(node.place, "security protocol", shown(min(unknown)), wanted)
    listed_as = [_typed(node.place, "endpoints", e, str, "a text") for e in node.items("endpoints")]
    found: dict[str, Endpoint] = {}
    for text in filter(None, _COMMA.split(",".join(listed_as).strip())):
        match = _ENDPOINT.fullmatch(text)
        port = java_int(match[3]) if match else None
        if match is None or port is None:
            raise FormatError(node.place, "endpoints", shown(text), "LISTENER://host:port")
        listener = match[1].upper()
        if listener in found:
            raise FormatError(node.place, "endpoints", f"{listener} twice", "each listener once")
        if listener not in protocols:
            wanted = "its security protocol in listener_security_protocol_map"
            raise FormatError(node.place, "endpoints", f"{listener} alone", wanted)
        found[listener] = Endpoint(listener, match[2] or None, port, protocols[listener])
    return list(found.values())


def _supported(node: _Fields) -> dict[str, tuple[int, int]]:
    if node.values.get("features") is None:
        return {}
    ranges, listed = {}, node.fields("features")
    for name in listed.values:
        levels = listed.fields(name)
        lowest, highest = levels.number("min_version"), levels.number("max_version")
        if not 0 <= lowest <= highest:
            raise FormatError(node.place, f"feature {name}", f"{lowest} to {highest}", "a range")
        ranges[name] = (lowest, highest)
    return ranges


def decode_topic(topic: str, data: NodeData) -> TopicNode:
    """/brokers/topics/T, v1 - v3: order of the replicas is the assignment's, keys are numbers."""
    node = _json(f"{TOPICS}/{topic}", data)
    written = node.text("topic_id") if "topic_id" in node.values else None
    adding = _replica_lists(node, "adding_replicas")
    removing = _replica_lists(node, "removing_replicas")
    assignment = {
        _partition(node.place, "partitions", java_int(key), key): Assignment(
            replicas, adding.get(key, ()), removing.get(key, ())
        )
        for key, replicas in _replica_lists(node, "partitions").items()
    }
    topic_id = None if written is None else parse_topic_id(written, node.place)
    return TopicNode(topic, topic_id, assignment)


def _replica_lists(node: _Fields, name: str) -> dict[str, tuple[BrokerId, ...]]:
    if name not in node.values:
        return {}
    listed = node.fields(name).values
    return {key: _brokers(node.place, f"{name}.{key}", value) for key, value in listed.items()}


def encode_topic(assignment: Mapping[int, Assignment], topic_id: str | None = None) -> str:
    """The v3 topic node (2.8+); only partitions being reassigned are listed as such."""
    written = None if topic_id is None else parse_topic_id(topic_id, TOPICS)
    content = {
        "partitions": {str(p): a.replicas for p, a in assignment.items()},
        **({} if written is None else {"topic_id": written}),
        "adding_replicas": {str(p): a.adding for p, a in assignment.items() if a.adding},
        "removing_replicas": {str(p): a.removing for p, a in assignment.items() if a.removing},
        "version": 3,
    }
    return _encoded(content)


def decode_partition_state(
    data: NodeData, *, zk_version: int = 0, place: str = f"{TOPICS}/*/partitions/*/state"
) -> PartitionState:
    """A partition's state node; the node's zkVersion is the partition epoch."""
    node = _json(place, data)
    recovery = node.number("leader_recovery_state", default=RecoveryState.RECOVERED.value)
    if recovery not in {state.value for state in RecoveryState}:
        raise FormatError(place, "leader_recovery_state", str(recovery), "0 or 1")
    return PartitionState(
        leader=node.number("leader"),
        leader_epoch=node.number("leader_epoch"),
        isr=_brokers(place, "isr", node.get("isr")),
        partition_epoch=zk_version,
        controller_epoch=node.number("controller_epoch"),
        recovery=RecoveryState(recovery),
    )


def _partition_list(node: _Fields) -> Iterable[tuple[TopicPartition, _Fields]]:
    for item in node.items("partitions"):
        entry = _Fields(node.place, item, "partitions")
        number = entry.number("partition")
        partition = _partition(node.place, "partition", number, number)
        yield TopicPartition(entry.text("topic"), partition), entry


def decode_reassign_partitions(
    data: NodeData,
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """/admin/reassign_partitions: the replicas asked for; of a partition named twice the later.

    A list that is empty or names a broker twice is read; the controller then turns it down.
    """
    node = _json(REASSIGN_PARTITIONS, data)
    return {
        partition: _brokers(node.place, f"replicas of {partition}", entry.get("replicas"))
        for partition, entry in _partition_list(node)
    }


def encode_reassign_partitions(replicas: Mapping[TopicPartition, Iterable[BrokerId]]) -> str:
    """The request node, to the letter as Kafka writes it."""
    partitions = [
        {"topic": at.topic, "partition": at.partition, "replicas": list(brokers)}
        for at, brokers in replicas.items()
    ]
    return _encoded({"version": 1, "partitions": partitions})


def decode_partition_set(
    data: NodeData, place: str = PREFERRED_REPLICA_ELECTION
) -> frozenset[TopicPartition]:
    """/admin/preferred_replica_election, and /isr_change_notification/isr_change_* (before 2.7)."""
    return frozenset(partition for partition, _ in _partition_list(_json(place, data)))


def decode_log_dir_event(data: NodeData, place: str = LOG_DIR_EVENT_NOTIFICATION) -> BrokerId:
    """/log_dir_event_notification/log_dir_event_* (1.0+): the broker that lost a log directory."""
    return _json(place, data).number("broker")


def decode_cluster_id(data: NodeData) -> str:
    """/cluster/id: taken as it is (its version is a text, unlike everywhere else)."""
    return _json(CLUSTER_ID, data).text("id")


def decode_producer_id_block(data: NodeData) -> range:
    """/latest_producer_id_block: the ids handed out last (its ends are texts)."""
    node = _json(PRODUCER_ID_BLOCK, data)
    first, last = (java_int(node.text(name), INT64) for name in ("block_start", "block_end"))
    if first is None or last is None:
        raise FormatError(node.place, "block", shown(node.values), "ends of 64 bits as texts")
    return range(first, last + 1)


def decode_feature(data: NodeData) -> dict[str, int]:
    """/feature, v1 and v2 (3.3+): the finalized level of each feature; later versions as v2."""
    listed = _json(FEATURE, data).fields("features")
    return {name: listed.fields(name).number("max_version_level") for name in listed.values}


def decode_migration(data: NodeData) -> Migration:
    """/migration, v0; Kafka refuses later versions, we read what we know of them."""
    node = _json(MIGRATION, data)
    return Migration(
        node.number("kraft_controller_id"),
        node.number("kraft_controller_epoch"),
        node.number("kraft_metadata_offset", INT64),
        node.number("kraft_metadata_epoch"),
    )


def topics_of(paths: Iterable[str], chroot: str = "") -> frozenset[str]:
    """The topics of a znode tree, given its paths; whatever else the tree holds is ignored."""
    return _children(paths, chroot, TOPICS)


def topics_being_deleted(paths: Iterable[str], chroot: str = "") -> frozenset[str]:
    """The topics queued under /admin/delete_topics, whose nodes are empty."""
    return _children(paths, chroot, DELETE_TOPICS)


def _children(paths: Iterable[str], chroot: str, parent: str) -> frozenset[str]:
    start = f"{chroot.strip('/')}{parent}/".removeprefix("/")
    below = (path.lstrip("/") for path in paths)
    names = (path.removeprefix(start).split("/")[0] for path in below if path.startswith(start))
    return frozenset(filter(None, names))


def _encoded(content: Mapping[str, object]) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
