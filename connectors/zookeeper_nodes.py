"""What znodes become once they are read: the values of the tree, and what is said of a node that
cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.broker_health import Problem
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import PartitionState, ProblemKind, TopicPartition
from tidestaff.consistency.znodes import (
    TOPICS,
    BrokerNode,
    Controller,
    Migration,
    TopicNode,
    decode_broker,
    decode_log_dir_event,
    decode_partition_set,
    decode_partition_state,
    decode_producer_id_block,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidestaff.connectors.zookeeper_answers import Znode, ZnodeRefusedError
    from tidestaff.consistency.model import BrokerId

NO_SESSION: Final = 0
_LARGEST_ID: Final = 2**31 - 1


class StateNode(NamedTuple):
    """A partition's state and the transaction that made its node."""

    state: PartitionState
    czxid: int


class RegisteredBroker(NamedTuple):
    """A broker's registration: the node's czxid is the broker epoch."""

    node: BrokerNode
    czxid: int
    session: int


class About(NamedTuple):
    """What the tree says of the cluster as a whole. None where a node is not there (old releases
    lack most of them) or cannot be read.

    `log_dir_events` rises with whatever happens below /log_dir_event_notification: the controller
    removes an event as soon as it has seen it, often before we can.
    """

    cluster_id: str | None = None
    migration: Migration | None = None
    features: Mapping[str, int] | None = None
    producer_ids: range | None = None
    log_dir_events: int = 0


class Tree(NamedTuple):
    """Everything below the chroot that Kafka's rules need, and what of it could not be read.

    `epoch` was read after everything else, `epoch_before` before it. `unreadable` are the topics
    and partitions that are there, but not understood. `moment` is the same for two trees without
    a change in between.
    """

    moment: tuple[int, int]
    epoch_before: int | None
    epoch: int | None
    controller: Controller | None
    brokers: Mapping[BrokerId, RegisteredBroker]
    topics: Mapping[str, TopicNode]
    states: Mapping[TopicPartition, StateNode]
    without_state: frozenset[TopicPartition]
    unreadable: frozenset[str]
    deleting: frozenset[str]
    reassigning: Mapping[TopicPartition, tuple[BrokerId, ...]]
    electing: frozenset[TopicPartition]
    topic_configs: Mapping[str, Mapping[str, str]]
    broker_configs: Mapping[BrokerId | None, Mapping[str, str]]
    about: About
    problems: tuple[Problem, ...]


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def state_node(node: Znode, path: str) -> StateNode:
    return StateNode(
        decode_partition_state(node.data, zk_version=node.version, place=path), node.czxid
    )


def partition_set(node: Znode, path: str) -> frozenset[TopicPartition]:
    return decode_partition_set(node.data, path)


def registration(node: Znode, path: str) -> RegisteredBroker:
    name = path.rpartition("/")[2]
    broker = broker_named(name)
    if broker is None:
        raise FormatError(path, "name", name, "a broker id")
    return RegisteredBroker(decode_broker(broker, node.data), node.czxid, node.ephemeral_owner)


def broker_named(name: str) -> BrokerId | None:
    """None where it is not the way Kafka writes an id: other digits, noughts before it, too large.
    Two names must never mean the same broker."""
    if not (name.isascii() and name.isdigit() and len(name) <= len(str(_LARGEST_ID))):
        return None
    return int(name) if str(int(name)) == name and int(name) <= _LARGEST_ID else None


def lasting(path: str, broker: BrokerId) -> Problem:
    """The controller takes it for a live broker all the same, so we do, too."""
    return Problem(
        path,
        ProblemKind.MALFORMED,
        f"{path} belongs to no session: it stays when its broker is gone, and the broker counts "
        "as live until then",
        "delete it when the broker is down; until then the broker cannot register",
        broker=broker,
        at_once=True,
    )


def not_readable(path: str, error: ZnodeRefusedError, topic: str | None = None) -> Problem:
    return Problem(
        path, ProblemKind.UNREADABLE, error.reason, error.remedy, topic=topic, at_once=True
    )


def malformed(path: str, error: FormatError, topic: str | None, *, at_once: bool) -> Problem:
    return Problem(
        path,
        ProblemKind.MALFORMED,
        str(error),
        "compare it with what a broker of this version writes; who wrote it is in ZooKeeper's "
        "transaction log",
        topic=topic,
        at_once=at_once,
    )


def log_dir_lost(path: str, broker: BrokerId) -> Problem:
    """The controller removes it when it has moved the leaders away: told only where it stays."""
    return Problem(
        path,
        ProblemKind.LOG_DIR_OFFLINE,
        f"broker {broker} has told that a log directory failed, and no controller has heard of it",
        f"mend the disk of broker {broker}, then restart it; see in the controller's log why it "
        "does not take up what stands there",
        broker=broker,
    )


def producer_ids(node: Znode, _: str) -> range | None:
    """Brokers make the node when they start; it is empty until a producer asks for an id."""
    return decode_producer_id_block(node.data) if node.data else None


def log_dir_event(node: Znode, path: str) -> BrokerId:
    return decode_log_dir_event(node.data, path)
