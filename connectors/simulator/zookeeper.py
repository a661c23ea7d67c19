"""ZooKeeper as Kafka uses it: sessions, ephemerals with their czxid, versioned state nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.model import Assignment, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.consistency.model import BrokerId, PartitionState


class Session(NamedTuple):
    """A client's session; it ends when it is closed or not heard of for its timeout."""

    number: int
    broker: BrokerId
    last_heard_ms: int


class Registered(NamedTuple):
    """/brokers/ids/N: whose session owns it, and its czxid, which is the broker epoch (2.2+)."""

    session: int
    czxid: int


class Claim(NamedTuple):
    """/controller."""

    broker: BrokerId
    session: int


@dataclass(slots=True)
class TopicNode:
    """/brokers/topics/T."""

    topic_id: str
    partitions: dict[int, Assignment]
    deleting: bool = False


class StateNode(NamedTuple):
    """/brokers/topics/T/partitions/P/state; the zkVersion is in the state's partition_epoch."""

    state: PartitionState
    czxid: int


@dataclass(slots=True)
class ZooKeeper:
    """The tree; `on_change` is called with `brokers` or `controller` when such a node goes or
    comes."""

    on_change: Callable[[str], None]
    zxid: int = 0
    sessions: dict[int, Session] = field(default_factory=dict)
    brokers: dict[BrokerId, Registered] = field(default_factory=dict)
    controller: Claim | None = None
    controller_epoch: int = 0
    topics: dict[str, TopicNode] = field(default_factory=dict)
    states: dict[TopicPartition, StateNode] = field(default_factory=dict)

    def next_zxid(self) -> int:
        self.zxid += 1
        return self.zxid

    def open_session(self, broker: BrokerId, now_ms: int) -> int:
        number = self.next_zxid()
        self.sessions[number] = Session(number, broker, now_ms)
        return number

    def heartbeat(self, session: int, now_ms: int) -> bool:
        """False: the session is over, the client has to open a new one."""
        known = self.sessions.get(session)
        if known is None:
            return False
        self.sessions[session] = known._replace(last_heard_ms=now_ms)
        return True

    def end_session(self, session: int) -> None:
        """Closed or expired: its ephemerals go, and who watches them is told."""
        if self.sessions.pop(session, None) is None:
            return
        self.next_zxid()
        gone = [b for b, node in self.brokers.items() if node.session == session]
        for broker in gone:
            del self.brokers[broker]
        if self.controller is not None and self.controller.session == session:
            self.controller = None
            self.on_change("controller")
        if gone:
            self.on_change("brokers")

    def register(self, broker: BrokerId, session: int) -> int | None:
        """Create /brokers/ids/N; None if another session owns it."""
        owner = self.brokers.get(broker)
        if owner is not None and owner.session != session:
            return None
        czxid = self.next_zxid()
        self.brokers[broker] = Registered(session, czxid)
        self.on_change("brokers")
        return czxid

    def claim_controller(self, broker: BrokerId, session: int) -> int | None:
        """Create /controller and raise /controller_epoch; None if somebody else holds it."""
        if self.controller is not None:
            return None
        self.next_zxid()
        self.controller = Claim(broker, session)
        self.controller_epoch += 1
        return self.controller_epoch

    def create_state(self, partition: TopicPartition, state: PartitionState) -> None:
        assert partition not in self.states
        self.states[partition] = StateNode(state._replace(partition_epoch=0), self.next_zxid())

    def set_state(self, partition: TopicPartition, state: PartitionState) -> PartitionState:
        """Write the state node; its version rises by one."""
        node = self.states[partition]
        self.next_zxid()
        written = state._replace(partition_epoch=node.state.partition_epoch + 1)
        self.states[partition] = node._replace(state=written)
        return written

    def delete_topic(self, topic: str) -> None:
        self.next_zxid()
        node = self.topics.pop(topic)
        for partition in node.partitions:
            self.states.pop(TopicPartition(topic, partition), None)

    def assignment(self, partition: TopicPartition) -> Assignment:
        return self.topics[partition.topic].partitions[partition.partition]
