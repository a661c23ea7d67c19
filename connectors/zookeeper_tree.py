"""Kafka's tree in ZooKeeper at one moment: read once, then only what a watch told of.

ZooKeeper delivers a watch before the answer to anything asked later. So if no watch was told by the
time a fresh read has come back, all that is kept was still true at that read. The fresh read is
/controller_epoch, which must be read after the states anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tidestaff.connectors.broker_settings import BROKER_KEYS, TOPIC_KEYS
from tidestaff.connectors.zookeeper_answers import (
    SessionLostError,
    Znode,
    ZnodeMissingError,
    ZnodeRefusedError,
    ZookeeperBehindError,
)
from tidestaff.connectors.zookeeper_configs import (
    BROKER_CONFIGS,
    DEFAULT,
    TOPIC_CONFIGS,
    decode_config,
)
from tidestaff.connectors.zookeeper_nodes import (
    NO_SESSION,
    About,
    RegisteredBroker,
    Tree,
    broker_named,
    lasting,
    log_dir_event,
    log_dir_lost,
    malformed,
    not_readable,
    partition_set,
    producer_ids,
    registration,
    state_node,
    state_path,
)
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import TopicPartition
from tidestaff.consistency.znodes import (
    BROKER_IDS,
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    FEATURE,
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    MIGRATION,
    PREFERRED_REPLICA_ELECTION,
    PRODUCER_ID_BLOCK,
    REASSIGN_PARTITIONS,
    TOPICS,
    TopicNode,
    decode_cluster_id,
    decode_controller,
    decode_controller_epoch,
    decode_feature,
    decode_migration,
    decode_reassign_partitions,
    decode_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidestaff.connectors.broker_health import Problem
    from tidestaff.connectors.zookeeper_answers import ZnodeReader
    from tidestaff.consistency.model import BrokerId

T = TypeVar("T")

_PASSES: Final = 4
_LAGGING_ROUNDS: Final = 3
_WANTED: Final = frozenset((*TOPIC_KEYS, *BROKER_KEYS, "log.cleanup.policy"))
_LISTED: Final = (
    *(BROKER_IDS, TOPICS, DELETE_TOPICS, ISR_CHANGE_NOTIFICATION, TOPIC_CONFIGS, BROKER_CONFIGS),
    LOG_DIR_EVENT_NOTIFICATION,
)
_SINGLE: Final = (
    *(CONTROLLER, REASSIGN_PARTITIONS, PREFERRED_REPLICA_ELECTION),
    *(CLUSTER_ID, FEATURE, MIGRATION, PRODUCER_ID_BLOCK),
)


class ZookeeperTree:
    """Keeps what was read while its watches stand. Everything is read anew after a lost session,
    and once in `reread_rounds` in case a watch was lost."""

    def __init__(self, reader: ZnodeReader, *, reread_rounds: int) -> None:
        self._reader, self._reread_rounds = reader, reread_rounds
        self._session: int | None = None
        self._nodes: dict[str, Znode | ZnodeRefusedError | None] = {}
        self._children: dict[str, tuple[str, ...] | ZnodeRefusedError | None] = {}
        self._decoded: dict[str, tuple[Znode, object]] = {}
        self._changes = 0
        self._complete: int | None = None
        self._last: Tree | None = None
        self._newest_zxid = 0
        self._lagging = 0
        self._read_in_turn = 0
        self._hints: set[str] = set()
        self._log_dir_events = 0
        self._lost_log_dirs: set[str] = set()

    def look(self, turn: int) -> Tree:
        """The tree now. Raises a ConnectorError where it cannot be read as a whole."""
        session = self._reader.session
        if session != self._session or turn - self._read_in_turn >= self._reread_rounds:
            self._forget(turn)
        self._session = session
        epoch_before = self._epoch()
        epoch: int | None = None
        for _ in range(_PASSES):
            self._take_changes()
            self._read()
            epoch = self._epoch()
            if not self._take_changes():
                break
        else:
            # Not one moment, but all of it: what is missing would be taken for deleted.
            self._read()
            epoch = self._epoch()
        self._check(session)
        if self._last is not None and self._last.moment == (session, self._changes):
            self._last = self._last._replace(epoch_before=epoch_before, epoch=epoch)
        else:
            self._last = self._tree(epoch_before, epoch)
        return self._last

    def _forget(self, turn: int) -> None:
        self._nodes.clear()
        self._children.clear()
        self._told()
        self._changes += 1
        self._read_in_turn = turn

    def _check(self, session: int) -> None:
        """What was read is of one session, and not older than what an earlier session saw."""
        if self._reader.session != session:
            raise SessionLostError(self._reader.servers)
        zxid = self._reader.last_zxid
        if zxid < self._newest_zxid and self._lagging < _LAGGING_ROUNDS:
            self._lagging += 1
            self._session = None
            raise ZookeeperBehindError(self._reader.servers, zxid, self._newest_zxid)
        self._newest_zxid, self._lagging = zxid, 0

    def _told(self) -> set[str]:
        changed = self._reader.changed()
        self._log_dir_events += LOG_DIR_EVENT_NOTIFICATION in changed
        return changed

    def _take_changes(self) -> bool:
        changed = self._told()
        for path in changed:
            self._nodes.pop(path, None)
            self._children.pop(path, None)
            self._decoded.pop(path, None)
        self._changes += bool(changed)
        return bool(changed)

    def _epoch(self) -> int | None:
        node = self._reader.get([CONTROLLER_EPOCH])[CONTROLLER_EPOCH]
        self._nodes[CONTROLLER_EPOCH] = node
        if not isinstance(node, Znode):
            return None
        try:
            return decode_controller_epoch(node.data)
        except FormatError:
            return None  # told when the tree is made

    # -- reading what is not kept

    def _read(self) -> None:
        """Top down: who is there, then what each of them says, then the states."""
        if self._complete == self._changes:
            return
        self._list(_LISTED)
        if self._children[BROKER_IDS] is None and self._children[TOPICS] is None:
            raise ZnodeMissingError(BROKER_IDS, self._reader.servers)
        self._get(_SINGLE)
        for parent in _LISTED:
            if parent != DELETE_TOPICS:  # its nodes are empty
                self._get(f"{parent}/{name}" for name in self._names(parent))
        # Without a watch in between: told while there was no session.
        events = set(self._names(LOG_DIR_EVENT_NOTIFICATION))
        self._log_dir_events += bool(events - self._lost_log_dirs)
        self._lost_log_dirs = events
        self._take_hints()
        self._get(
            state_path(topic, partition)
            for topic in self._names(TOPICS)
            if (node := self._topic(topic, [])) is not None
            for partition in node.assignment
        )
        self._complete = self._changes

    def _take_hints(self) -> None:
        """Up to 2.6 leaders that changed an ISR name the partition here, for the controller."""
        named = {f"{ISR_CHANGE_NOTIFICATION}/{n}" for n in self._names(ISR_CHANGE_NOTIFICATION)}
        for path in named - self._hints:
            for partition in self._value(path, partition_set, []) or ():
                self._nodes.pop(state_path(*partition), None)
        self._hints = named

    def _list(self, paths: Iterable[str]) -> None:
        self._children |= self._reader.children([p for p in paths if p not in self._children])

    def _get(self, paths: Iterable[str]) -> None:
        self._nodes |= self._reader.get([p for p in paths if p not in self._nodes])

    def _names(self, parent: str) -> tuple[str, ...]:
        found = self._children.get(parent)
        return tuple(sorted(found)) if isinstance(found, tuple) else ()

    # -- making values of it

    def _tree(self, epoch_before: int | None, epoch: int | None) -> Tree:
        problems = [
            not_readable(path, refused)
            for path in _LISTED
            if isinstance(refused := self._children.get(path), ZnodeRefusedError)
        ]
        self._value(CONTROLLER_EPOCH, lambda node, _: decode_controller_epoch(node.data), problems)
        topics, states = {}, {}
        missing: set[TopicPartition] = set()
        unreadable: set[str] = set()
        for topic in self._names(TOPICS):
            node = self._topic(topic, problems)
            if node is None:
                if self._nodes.get(f"{TOPICS}/{topic}") is not None:
                    unreadable.add(topic)
                continue
            topics[topic] = node
            for number in node.assignment:
                partition, path = TopicPartition(topic, number), state_path(topic, number)
                state = self._value(path, state_node, problems, topic)
                if state is not None:
                    states[partition] = state
                elif self._nodes.get(path) is None:
                    missing.add(partition)
                else:
                    unreadable.add(str(partition))
        return Tree(
            moment=(self._session or 0, self._changes),
            epoch_before=epoch_before,
            epoch=epoch,
            controller=self._value(CONTROLLER, lambda n, _: decode_controller(n.data), problems),
            brokers=self._brokers(problems),
            topics=topics,
            states=states,
            without_state=frozenset(missing),
            unreadable=frozenset(unreadable),
            deleting=frozenset(self._names(DELETE_TOPICS)),
            reassigning=self._value(
                REASSIGN_PARTITIONS, lambda n, _: decode_reassign_partitions(n.data), problems
            )
            or {},
            electing=self._value(PREFERRED_REPLICA_ELECTION, partition_set, problems)
            or frozenset(),
            topic_configs=self._configs(TOPIC_CONFIGS, problems),
            broker_configs=self._broker_configs(problems),
            about=self._about(problems),
            problems=tuple(problems),
        )

    def _topic(self, topic: str, problems: list[Problem]) -> TopicNode | None:
        return self._value(
            f"{TOPICS}/{topic}", lambda node, _: decode_topic(topic, node.data), problems, topic
        )

    def _brokers(self, problems: list[Problem]) -> dict[BrokerId, RegisteredBroker]:
        found = {}
        for name in self._names(BROKER_IDS):
            broker = self._value(f"{BROKER_IDS}/{name}", registration, problems)
            if broker is not None:
                found[broker.node.broker] = broker
                if broker.session == NO_SESSION:
                    problems.append(lasting(f"{BROKER_IDS}/{name}", broker.node.broker))
        return found

    def _about(self, problems: list[Problem]) -> About:
        for name in self._names(LOG_DIR_EVENT_NOTIFICATION):
            path = f"{LOG_DIR_EVENT_NOTIFICATION}/{name}"
            broker = self._value(path, log_dir_event, problems)
            if broker is not None:
                problems.append(log_dir_lost(path, broker))
        return About(
            self._value(CLUSTER_ID, lambda n, _: decode_cluster_id(n.data), problems),
            self._value(MIGRATION, lambda n, _: decode_migration(n.data), problems),
            self._value(FEATURE, lambda n, _: decode_feature(n.data), problems),
            self._value(PRODUCER_ID_BLOCK, producer_ids, problems),
            self._log_dir_events,
        )

    def _configs(self, parent: str, problems: list[Problem]) -> dict[str, Mapping[str, str]]:
        found: dict[str, Mapping[str, str]] = {}
        for name in self._names(parent):
            config = self._value(
                f"{parent}/{name}",
                lambda n, p: decode_config(n.data, p, _WANTED),
                problems,
                topic=name if parent == TOPIC_CONFIGS else None,
            )
            if config:
                found[name] = config
        return found

    def _broker_configs(self, problems: list[Problem]) -> dict[BrokerId | None, Mapping[str, str]]:
        found: dict[BrokerId | None, Mapping[str, str]] = {}
        for name, config in self._configs(BROKER_CONFIGS, problems).items():
            if name == DEFAULT:
                found[None] = config
            elif (broker := broker_named(name)) is not None:
                found[broker] = config
        return found

    def _value(
        self,
        path: str,
        decode: Callable[[Znode, str], T],
        problems: list[Problem],
        topic: str | None = None,
    ) -> T | None:
        """Decoded once for each version of a node. None where there is none, or it is a problem."""
        node = self._nodes.get(path)
        if node is None:
            return None
        if isinstance(node, ZnodeRefusedError):
            problems.append(not_readable(path, node, topic))
            return None
        known = self._decoded.get(path)
        if known is not None and known[0] == node:
            return known[1]  # type: ignore[return-value]
        try:
            value = decode(node, path)
        except FormatError as error:
            # A node may be seen between being made and being filled.
            problems.append(malformed(path, error, topic, at_once=bool(node.data)))
            return None
        self._decoded[path] = (node, value)
        return value
