"""ZooKeeper mode: sessions, registration, the race for /controller, ISR changes, admin calls."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidestaff.connectors.simulator import alter_partition
from tidestaff.connectors.simulator.coordination import PartitionMetadata
from tidestaff.connectors.simulator.network import ZOOKEEPER
from tidestaff.connectors.simulator.zk_controller import ZkController
from tidestaff.connectors.simulator.zk_isr import write_isr
from tidestaff.connectors.simulator.zk_topics import ZkTopics
from tidestaff.connectors.simulator.zookeeper import ZooKeeper
from tidestaff.consistency.model import ControllerClaim, Registration, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.replica import LeadershipOrder, Replica
    from tidestaff.consistency.model import BrokerId

R = TypeVar("R")

_SHUTDOWN_TRIES = 3
_FIRST_REBALANCE_MS = 5_000


class ZooKeeperMode:
    """Every broker has a session; one of them is controller."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.zk = ZooKeeper(self._node_changed)
        self.sessions: dict[BrokerId, int] = {}
        self.terms: dict[BrokerId, ZkController] = {}

    # -- what is true now

    def partitions(self) -> list[TopicPartition]:
        return sorted(self.zk.states)

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        node = self.zk.states.get(partition)
        if node is None:
            return None
        topic = self.zk.topics[partition.topic]
        assignment = topic.partitions[partition.partition]
        return PartitionMetadata(node.state, assignment, topic.topic_id, node.czxid, topic.deleting)

    def registrations(self) -> tuple[Registration, ...]:
        return tuple(
            Registration(broker, node.czxid) for broker, node in sorted(self.zk.brokers.items())
        )

    def controller(self) -> BrokerId | None:
        return self.zk.controller.broker if self.zk.controller else None

    def controller_epoch(self) -> int:
        return self.zk.controller_epoch

    def claims(self) -> tuple[ControllerClaim, ...]:
        """Brokers that answer and believe to be the controller."""
        return tuple(
            ControllerClaim(broker, term.epoch)
            for broker, term in sorted(self.terms.items())
            if term.active and self.cluster.brokers[broker].answers
        )

    def active_term(self) -> ZkController | None:
        """The controller that /controller names, if it has taken office."""
        if self.zk.controller is None:
            return None
        term = self.terms.get(self.zk.controller.broker)
        return term if term is not None and term.active else None

    def topics_of(self, term: ZkController) -> ZkTopics:
        return ZkTopics(term)

    # -- sessions and registration

    def started(self, broker: Broker) -> None:
        """A new process opens a session and creates /brokers/ids/N, or ends (S-05)."""
        self.terms.pop(broker.id, None)
        incarnation, settings = broker.incarnation, self.cluster.settings
        broker.loop.after(settings.start_ms, lambda: self._connect(broker, incarnation))
        broker.every(
            lambda: max(1, self.cluster.settings.session_ms // 3), partial(self._beat, broker)
        )

    def _connect(self, broker: Broker, incarnation: int) -> None:
        if not broker.up or broker.incarnation != incarnation:
            return
        if broker.paused or not self.cluster.network.talks(broker.place, ZOOKEEPER):
            broker.loop.after(1_000, lambda: self._connect(broker, incarnation))
            return
        self.sessions[broker.id] = self.zk.open_session(broker.id, broker.now_ms)
        self._watch_session(self.sessions[broker.id])
        self._register(broker)

    def _register(self, broker: Broker) -> None:
        session = self.sessions[broker.id]
        czxid = self.zk.register(broker.id, session)
        if czxid is None:
            owner = self.zk.brokers[broker.id].session
            self.cluster.note("NodeExists", broker=broker.id, owner=owner, session=session)
            self.zk.end_session(session)
            broker.exit(f"/brokers/ids/{broker.id} exists and belongs to session {owner}")
            return
        broker.broker_epoch = czxid
        self._race(broker)

    def _beat(self, broker: Broker) -> None:
        """Heartbeat; a client whose session is over opens a new one and registers again."""
        session = self.sessions.get(broker.id)
        if session is None or not self.cluster.network.talks(broker.place, ZOOKEEPER):
            return
        if self.zk.heartbeat(session, broker.now_ms):
            self._watch_session(session)
            return
        term = self.terms.pop(broker.id, None)
        if term is not None:
            term.resign()
        self.sessions[broker.id] = self.zk.open_session(broker.id, broker.now_ms)
        self._watch_session(self.sessions[broker.id])
        self._register(broker)

    def _watch_session(self, session: int) -> None:
        """Expire it when nothing more is heard of it for the timeout."""
        heard = self.zk.sessions[session].last_heard_ms

        def check() -> None:
            known = self.zk.sessions.get(session)
            if known is not None and known.last_heard_ms == heard:
                self.zk.end_session(session)

        self.cluster.loop.at(heard + self.cluster.settings.session_ms, check)

    # -- watches

    def _node_changed(self, what: str) -> None:
        delay = self.cluster.network.delay
        if what == "controller":
            for broker in self.cluster.sorted_brokers():
                self.cluster.loop.after(delay(), partial(self._race, broker))
        else:
            self.cluster.loop.after(delay(), self._brokers_changed)

    def _brokers_changed(self) -> None:
        for broker in sorted(self.terms):
            term = self.terms[broker]
            term.handle(term.brokers_changed)

    def _race(self, broker: Broker) -> None:
        """Try to create /controller; whoever comes first has it."""
        session = self.sessions.get(broker.id)
        if not broker.answers or session not in self.zk.sessions or self.zk.controller is not None:
            return
        if not self.cluster.network.talks(broker.place, ZOOKEEPER) or broker.stopping:
            return
        assert session is not None
        epoch = self.zk.claim_controller(broker.id, session)
        assert epoch is not None
        old = self.terms.get(broker.id)
        if old is not None:
            old.resign()
        term = self.terms[broker.id] = ZkController(broker, self.zk, epoch)
        pause = self.cluster.settings.controller_pause_ms
        self.cluster.loop.after(pause, lambda: term.handle(term.take_office))
        self._rebalance_later(term, _FIRST_REBALANCE_MS)

    def _rebalance_later(self, term: ZkController, delay_ms: int) -> None:
        def run() -> None:
            if term.active and term.broker.incarnation == term.incarnation:
                if self.cluster.settings.auto_leader_rebalance_enable:
                    term.handle(ZkTopics(term).rebalance)
                period = self.cluster.settings.leader_imbalance_check_interval_ms
                self._rebalance_later(term, period)

        self.cluster.loop.after(delay_ms, run)

    # -- stopping

    def stop(self, broker: Broker) -> None:
        """Controlled shutdown, tried three times, then the process ends and closes its session."""
        broker.stopping = True
        self._ask_to_stop(broker, broker.incarnation, _SHUTDOWN_TRIES)

    def _ask_to_stop(self, broker: Broker, incarnation: int, tries: int) -> None:
        if not broker.up or broker.incarnation != incarnation:
            return
        if tries == 0:
            self._stopped(broker, incarnation)
            return
        answers: list[bool] = []

        def answered(left: tuple[TopicPartition, ...]) -> None:
            if not left:
                answers.append(True)
                self._stopped(broker, incarnation)

        def retry() -> None:
            if not answers:
                self._ask_to_stop(broker, incarnation, tries - 1)

        self.cluster.loop.after(self.cluster.settings.request_timeout_ms, retry)
        self.call_controller(broker, lambda term: term.shut_down(broker.id), answered)

    def _stopped(self, broker: Broker, incarnation: int) -> None:
        if not broker.up or broker.incarnation != incarnation:
            return
        for replica in broker.replicas.values():
            replica.flush()
            replica.checkpoint()
        broker.clean_shutdown_epoch = broker.broker_epoch
        broker.die()
        session = self.sessions.pop(broker.id, None)
        if session is not None and self.cluster.network.talks(broker.place, ZOOKEEPER):
            self.zk.end_session(session)

    def bounce(self, broker: Broker) -> bool:
        """The process ends without controlled shutdown, its session with it, and it is back before
        the controller has looked."""
        session = self.sessions.get(broker.id)
        if session is None or not self.cluster.network.talks(broker.place, ZOOKEEPER):
            return False
        broker.checkpoint()
        broker.die()
        self.zk.end_session(session)
        broker.boot()
        self.terms.pop(broker.id, None)
        self._connect(broker, broker.incarnation)
        broker.every(
            lambda: max(1, self.cluster.settings.session_ms // 3), partial(self._beat, broker)
        )
        return True

    def expire(self, broker: Broker) -> bool:
        session = self.sessions.get(broker.id)
        if session not in self.zk.sessions:
            return False
        assert session is not None
        self.zk.end_session(session)
        return True

    def fail_over(self) -> bool:
        """/controller is deleted; its holder learns of it and the brokers race again."""
        if self.zk.controller is None:
            return False
        term = self.terms.pop(self.zk.controller.broker, None)
        if term is not None:
            term.resign()
        self.zk.next_zxid()
        self.zk.controller = None
        self._node_changed("controller")
        return True

    def links_changed(self) -> None:
        """Brokers find out by themselves, at their next heartbeat or request."""

    # -- replicas

    def is_active(self, follower: BrokerId, broker_epoch: int | None) -> bool:
        del broker_epoch
        return follower in self.zk.brokers

    def accepts(self, replica: Replica, order: LeadershipOrder) -> bool:
        """A higher leader epoch, and a leader that lives: else the transition is given up."""
        state = order.state
        if state.leader != replica.broker and state.leader not in self.zk.brokers:
            return False
        return state.leader_epoch > replica.leader_epoch

    def propose_isr(self, broker: Broker, replica: Replica, isr: tuple[BrokerId, ...]) -> None:
        if self.cluster.preset.alter_partition:
            alter_partition.propose_isr(self, broker, replica, isr)
        else:
            write_isr(self, broker, replica, isr)

    def call_controller(
        self,
        broker: Broker,
        request: Callable[[ZkController], R],
        answered: Callable[[R], None],
    ) -> bool:
        """Send a request to the broker that /controller names; False if it names none."""
        term = self.active_term()
        if term is None:
            return False
        network, incarnation = self.cluster.network, broker.incarnation

        def handled() -> None:
            result = request(term)
            network.send(
                term.broker.place,
                broker.place,
                lambda: broker.receive(lambda: answered(result), incarnation),
            )

        network.send(
            broker.place,
            term.broker.place,
            lambda: term.broker.receive(lambda: term.handle(handled), term.incarnation),
        )
        return True

    # -- admin

    def create_topic(
        self, topic: str, topic_id: str, partitions: tuple[tuple[BrokerId, ...], ...]
    ) -> bool:
        return self._ask(lambda term: ZkTopics(term).create(topic, topic_id, partitions))

    def delete_topic(self, topic: str) -> bool:
        return self._ask(lambda term: ZkTopics(term).delete(topic))

    def reassign(self, partition: TopicPartition, target: tuple[BrokerId, ...]) -> bool:
        return self._ask(lambda term: ZkTopics(term).reassign(partition, target))

    def elect_preferred(self, partition: TopicPartition) -> bool:
        return self._ask(lambda term: term.elect_preferred(partition))

    def elect_unclean(self, partition: TopicPartition) -> bool:
        return self._ask(lambda term: term.elect_unclean(partition))

    def settings_changed(self, topic: str | None, names: tuple[str, ...]) -> None:
        """A topic's unclean election switched on is noticed by the controller (1.1+)."""
        del topic
        if "unclean_leader_election_enable" in names:
            self._ask(lambda term: term.try_offline_partitions())

    def _ask(self, call: Callable[[ZkController], object]) -> bool:
        """An admin's request to the controller; nothing happens where there is none."""
        term = self.active_term()
        if term is None or not term.broker.answers:
            return False

        def event() -> None:
            call(term)

        term.handle(event)
        return True
