"""KRaft mode: registration, heartbeats, fencing, and the metadata log's way to the brokers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidestaff.connectors.simulator import alter_partition
from tidestaff.connectors.simulator.coordination import PartitionMetadata
from tidestaff.connectors.simulator.kraft_controller import (
    CONTROLLERS,
    FIRST_CONTROLLER,
    KRaftController,
)
from tidestaff.connectors.simulator.network import CONTROLLER
from tidestaff.connectors.simulator.replica import LeadershipOrder, StopOrder
from tidestaff.consistency.model import ControllerClaim, Registration, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import BrokerId

R = TypeVar("R")

_REGISTRATION_RETRY_MS = 200
_UNCLEAN_CHECK_MS = 300_000


class KRaftMode:
    """One logical controller, and brokers that replay its log."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.quorum = KRaftController(cluster)
        self._repeat(lambda: cluster.settings.leader_imbalance_check_interval_ms, self._balance)
        self._repeat(lambda: _UNCLEAN_CHECK_MS, self.quorum.try_leaderless)

    def _repeat(self, period: Callable[[], int], action: Callable[[], None]) -> None:
        def run() -> None:
            if self.quorum.active:
                action()
                self._publish()
            self.cluster.loop.after(period(), run)

        self.cluster.loop.after(period(), run)

    def _balance(self) -> None:
        if self.cluster.settings.auto_leader_rebalance_enable:
            self.quorum.balance()

    # -- what is true now

    def partitions(self) -> list[TopicPartition]:
        return sorted(self.quorum.partitions)

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        known = self.quorum.partitions.get(partition)
        if known is None:
            return None
        return PartitionMetadata(known.state, known.assignment, known.topic_id, None, False)  # noqa: FBT003

    def registrations(self) -> tuple[Registration, ...]:
        return tuple(
            Registration(broker, known.epoch, known.fenced, known.shutting_down)
            for broker, known in sorted(self.quorum.brokers.items())
        )

    def controller(self) -> BrokerId | None:
        return self.quorum.id if self.quorum.active else None

    def controller_epoch(self) -> int:
        return self.quorum.epoch

    def claims(self) -> tuple[ControllerClaim, ...]:
        if not self.quorum.active:
            return ()
        return (ControllerClaim(self.quorum.id, self.quorum.epoch),)

    # -- the way to the controller and back

    def call_controller(
        self,
        broker: Broker,
        request: Callable[[KRaftController], R],
        answered: Callable[[R], None],
    ) -> bool:
        """Send a request to the active controller; its answer goes to this process only."""
        network, incarnation = self.cluster.network, broker.incarnation

        def arrive() -> None:
            if not self.quorum.active:
                return
            result = request(self.quorum)
            self._publish()
            network.send(
                CONTROLLER,
                broker.place,
                lambda: broker.receive(lambda: answered(result), incarnation),
            )

        network.send(broker.place, CONTROLLER, arrive)
        return True

    def _publish(self) -> None:
        """What the log has beyond a broker's end goes on its way to it."""
        for broker in self.cluster.sorted_brokers():
            if broker.up and broker.metadata_offset < self.quorum.offset:
                self._push(broker)

    def _push(self, broker: Broker) -> None:
        """A process takes no role before it is registered (BrokerServer waits for its catch-up)."""
        if broker.broker_epoch < 0:
            return
        upto, incarnation = self.quorum.offset, broker.incarnation
        orders = self._orders_for(broker)

        def arrive() -> None:
            if upto > broker.metadata_offset:
                broker.metadata_offset = upto
                broker.obey(orders)

        self.cluster.network.send(
            CONTROLLER, broker.place, lambda: broker.receive(arrive, incarnation)
        )

    def _orders_for(self, broker: Broker) -> list[LeadershipOrder | StopOrder]:
        orders: list[LeadershipOrder | StopOrder] = []
        if self.quorum.last_deletion > broker.metadata_offset:
            for partition, replica in broker.replicas.items():
                known = self.quorum.partitions.get(partition)
                if known is None or known.topic_id != replica.topic_id:
                    orders.append(StopOrder(partition, replica.topic_id, delete=True))
        changed = []
        for partition in reversed(self.quorum.partitions):
            known = self.quorum.partitions[partition]
            if known.offset <= broker.metadata_offset:
                break
            if broker.id in known.assignment.replicas or partition in broker.replicas:
                changed.append(
                    LeadershipOrder(partition, known.topic_id, known.state, known.assignment)
                )
        return orders + changed[::-1]

    # -- processes

    def started(self, broker: Broker) -> None:
        incarnation = broker.incarnation
        self.cluster.loop.after(
            self.cluster.settings.start_ms, lambda: self._register(broker, incarnation)
        )
        broker.every(self._heartbeat_ms, partial(self._beat, broker))

    def _heartbeat_ms(self) -> int:
        return max(1, self.cluster.settings.session_ms * 2 // 9)

    def _register(self, broker: Broker, incarnation: int) -> None:
        """Again until accepted: while the old process counts as alive it is refused."""
        if not broker.up or broker.incarnation != incarnation or broker.broker_epoch >= 0:
            return

        def accepted(epoch: int | None) -> None:
            if epoch is None:
                self.cluster.note("DUPLICATE_BROKER_REGISTRATION", broker=broker.id)
            elif broker.broker_epoch < 0:
                broker.broker_epoch = epoch
                broker.clean_shutdown_epoch = -1
                self._beat(broker)

        previous = broker.clean_shutdown_epoch
        if not broker.paused:
            self.call_controller(
                broker, lambda quorum: quorum.register(broker.id, incarnation, previous), accepted
            )
        again = partial(self._register, broker, incarnation)
        self.cluster.loop.after(_REGISTRATION_RETRY_MS, again)

    def _beat(self, broker: Broker) -> None:
        if broker.broker_epoch < 0:
            return
        epoch, offset, stopping = broker.broker_epoch, broker.metadata_offset, broker.stopping

        def handle(quorum: KRaftController) -> str:
            answer = quorum.heartbeat(broker.id, epoch, offset, stopping=stopping)
            self._watch(broker.id)
            return answer

        def answered(answer: str) -> None:
            if answer == "shutdown" and broker.stopping:
                self._stopped(broker)
            elif offset < epoch or broker.stopping:
                again = partial(self._beat_again, broker, broker.incarnation)
                self.cluster.loop.after(self.cluster.settings.start_ms, again)

        self.call_controller(broker, handle, answered)
        if broker.metadata_offset < self.quorum.offset and self.quorum.active:
            self._push(broker)

    def _beat_again(self, broker: Broker, incarnation: int) -> None:
        if broker.answers and broker.incarnation == incarnation:
            self._beat(broker)

    def _watch(self, broker: BrokerId) -> None:
        """Fence it when nothing more is heard of it for broker.session.timeout.ms."""
        known = self.quorum.brokers.get(broker)
        if known is None or known.fenced:
            return
        heard, epoch = known.last_heard_ms, known.epoch

        def check() -> None:
            current = self.quorum.brokers.get(broker)
            if current is None or (current.epoch, current.last_heard_ms) != (epoch, heard):
                return
            if self.quorum.active:
                self.quorum.fence(broker)
                self._publish()

        self.cluster.loop.at(heard + self.cluster.settings.session_ms, check)

    def stop(self, broker: Broker) -> None:
        """Heartbeats ask for a controlled shutdown until it is granted, or patience ends."""
        broker.stopping = True
        self._beat(broker)
        incarnation = broker.incarnation

        def give_up() -> None:
            if broker.stopping and broker.incarnation == incarnation:
                self._stopped(broker)

        self.cluster.loop.after(4 * self.cluster.settings.request_timeout_ms, give_up)

    def _stopped(self, broker: Broker) -> None:
        for replica in broker.replicas.values():
            replica.flush()
            replica.checkpoint()
        broker.clean_shutdown_epoch = broker.broker_epoch
        broker.die()

    def bounce(self, broker: Broker) -> bool:
        """The process is back at once; the controller makes it wait until the old one is fenced."""
        broker.checkpoint()
        broker.die()
        broker.boot()
        self.started(broker)
        return True

    def expire(self, broker: Broker) -> bool:
        """The controller fences a broker whose process is alive."""
        known = self.quorum.brokers.get(broker.id)
        if known is None or known.fenced or not self.quorum.active:
            return False
        self.quorum.fence(broker.id)
        self._publish()
        return True

    def fail_over(self) -> bool:
        """Another controller takes over; it counts every session from then on."""
        if not self.quorum.active:
            return False
        self.quorum.active = False

        def take_over() -> None:
            self.quorum.active = True
            self.quorum.epoch += 1
            self.quorum.id = FIRST_CONTROLLER + (self.quorum.epoch - 1) % CONTROLLERS
            for broker in sorted(self.quorum.brokers):
                self.quorum.brokers[broker].last_heard_ms = self.cluster.now_ms
                self._watch(broker)
            self._publish()

        self.cluster.loop.after(self.cluster.settings.controller_pause_ms, take_over)
        return True

    def links_changed(self) -> None:
        self._publish()

    # -- replicas

    def is_active(self, follower: BrokerId, broker_epoch: int | None) -> bool:
        if not self.quorum.is_active(follower):
            return False
        if not self.cluster.preset.isr_broker_epochs_checked or broker_epoch is None:
            return True
        return broker_epoch == self.quorum.brokers[follower].epoch

    def accepts(self, replica: Replica, order: LeadershipOrder) -> bool:
        return not replica.known or order.state.partition_epoch > replica.partition_epoch

    def propose_isr(self, broker: Broker, replica: Replica, isr: tuple[BrokerId, ...]) -> None:
        alter_partition.propose_isr(self, broker, replica, isr)

    # -- admin

    def _ask(self, call: Callable[[KRaftController], bool]) -> bool:
        if not self.quorum.active:
            return False
        done = call(self.quorum)
        self._publish()
        return done

    def create_topic(
        self, topic: str, topic_id: str, partitions: tuple[tuple[BrokerId, ...], ...]
    ) -> bool:
        return self._ask(lambda quorum: quorum.create_topic(topic, topic_id, partitions))

    def delete_topic(self, topic: str) -> bool:
        return self._ask(lambda quorum: quorum.delete_topic(topic))

    def reassign(self, partition: TopicPartition, target: tuple[BrokerId, ...]) -> bool:
        return self._ask(lambda quorum: quorum.reassign(partition, target))

    def elect_preferred(self, partition: TopicPartition) -> bool:
        return self._ask(lambda quorum: quorum.elect_preferred(partition))

    def elect_unclean(self, partition: TopicPartition) -> bool:
        return self._ask(lambda quorum: quorum.elect_unclean(partition))

    def settings_changed(self, topic: str | None, names: tuple[str, ...]) -> None:
        if not self.quorum.active:
            return
        if "min_insync_replicas" in names and self.cluster.preset.version >= (4, 0):
            self.quorum.clear_elrs(topic)
        if "unclean_leader_election_enable" in names and self.cluster.preset.unclean_honoured:
            self.quorum.try_leaderless()
        self._publish()
