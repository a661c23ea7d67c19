"""The controller of a ZooKeeper-mode cluster: one broker that reacts to others coming and going
(kafka.controller.KafkaController)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.connectors.simulator import zk_elections
from tidestaff.connectors.simulator.replica import LeadershipOrder, StopOrder
from tidestaff.connectors.simulator.zk_channel import Channel
from tidestaff.consistency.model import PartitionState, RecoveryState, TopicPartition

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.clock import Event
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.connectors.simulator.zookeeper import ZooKeeper
    from tidestaff.consistency.model import BrokerId

_RETRY_MS = 100


class ControllerMovedError(Exception):
    """A zombie learns from ZooKeeper that somebody else is controller."""


class ZkController:
    """What one broker knows and does while it believes to be the controller."""

    def __init__(self, broker: Broker, zookeeper: ZooKeeper, epoch: int) -> None:
        self.broker, self.zk, self.epoch = broker, zookeeper, epoch
        self.cluster, self.preset = broker.cluster, broker.preset
        self.incarnation = broker.incarnation
        self.active = True
        self.live: dict[BrokerId, int] = {}
        self.going: set[BrokerId] = set()
        self.channels: dict[BrokerId, Channel] = {}
        self._outbox: dict[BrokerId, list[LeadershipOrder | StopOrder]] = {}

    @property
    def usable(self) -> set[BrokerId]:
        """Registered and not in controlled shutdown."""
        return set(self.live) - self.going

    def handle(self, event: Event) -> None:
        """Run one controller event when the process can and ZooKeeper is in reach; a fenced write
        ends the term."""
        alive = self.broker.up and self.broker.incarnation == self.incarnation
        if not self.active or not alive:
            return
        if self.broker.paused or not self.cluster.network.talks(self.broker.place, "zookeeper"):
            self.broker.loop.after(_RETRY_MS, lambda: self.handle(event))
            return
        try:
            event()
        except ControllerMovedError:
            self.resign()
            return
        self._send()

    def resign(self) -> None:
        self.active = False
        self._outbox = {}
        for channel in self.channels.values():
            channel.closed = True

    # -- writing and telling

    def state(self, partition: TopicPartition) -> PartitionState | None:
        node = self.zk.states.get(partition)
        return node.state if node is not None else None

    def check_fence(self) -> None:
        """From 2.1 every write is fenced by /controller_epoch."""
        if self.preset.controller_writes_fenced and self.zk.controller_epoch != self.epoch:
            raise ControllerMovedError

    def write(
        self, partition: TopicPartition, state: PartitionState, *, bump: bool = True
    ) -> PartitionState:
        """Write a state node with this controller's epoch; elections and removals raise the leader
        epoch."""
        self.check_fence()
        current = self.zk.states[partition].state
        if (current.controller_epoch or 0) > self.epoch:
            raise ControllerMovedError
        epoch = current.leader_epoch + 1 if bump else current.leader_epoch
        new = state._replace(leader_epoch=epoch, controller_epoch=self.epoch)
        self.cluster.touched.add(partition)
        written = self.zk.set_state(partition, new)
        self.cluster.truth.written_by_controller(partition, self.epoch)
        self.cluster.wrote(partition, written)
        return written

    def tell(self, partition: TopicPartition, targets: tuple[BrokerId, ...]) -> None:
        """Queue LeaderAndIsr for those of the targets that are registered."""
        node, state = self.zk.topics[partition.topic], self.zk.states[partition].state
        if node.deleting:
            return
        order = LeadershipOrder(
            partition, node.topic_id, state, node.partitions[partition.partition]
        )
        for target in targets:
            if target in self.live:
                self._outbox.setdefault(target, []).append(order)

    def tell_stop(self, partition: TopicPartition, target: BrokerId, *, delete: bool) -> None:
        topic_id = self.zk.topics[partition.topic].topic_id
        if target in self.live:
            order = StopOrder(partition, topic_id, delete)
            self._outbox.setdefault(target, []).append(order)

    def _send(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for target in sorted(outbox):
            channel = self.channels.get(target)
            if channel is not None:
                channel.put(outbox[target])

    def _connect(self, broker: BrokerId, broker_epoch: int) -> None:
        self._disconnect(broker)
        self.live[broker] = broker_epoch
        channel = Channel(self.broker, self.cluster.brokers[broker], self.epoch)
        channel.broker_epoch = broker_epoch
        self.channels[broker] = channel

    def _disconnect(self, broker: BrokerId) -> None:
        channel = self.channels.pop(broker, None)
        if channel is not None:
            channel.closed = True
        self.live.pop(broker, None)

    # -- events

    def take_office(self) -> None:
        """Read everything, tell everybody, repair what happened while nobody was controller."""
        for broker, node in sorted(self.zk.brokers.items()):
            self._connect(broker, node.czxid)
        self.check_fence()
        for partition in sorted(self.zk.states):
            self.tell(partition, self._assigned(partition))
        if self.preset.failover_removes_dead:
            self._remove_from_isrs(sorted(set(self.cluster.brokers) - set(self.live)))
        self.try_offline_partitions()
        self.cluster.mode_zk.topics_of(self).resume()

    def brokers_changed(self) -> None:
        """The children of /brokers/ids changed: new ids, dead ids, and (2.2+) bounced ones."""
        current = {broker: node.czxid for broker, node in self.zk.brokers.items()}
        new = sorted(set(current) - set(self.live))
        dead = sorted(set(self.live) - set(current))
        bounced = []
        if self.preset.bounce_noticed:
            bounced = sorted(b for b, z in current.items() if z > self.live.get(b, z))
        if new:
            self._came(new, current)
        if bounced:
            for broker in bounced:
                self._disconnect(broker)
            self._went(bounced)
            self._came(bounced, current)
        if dead:
            for broker in dead:
                self._disconnect(broker)
            self._went(dead)

    def _came(self, brokers: list[BrokerId], current: dict[BrokerId, int]) -> None:
        for broker in brokers:
            self._connect(broker, current[broker])
        for partition in sorted(self.zk.states):
            assigned = set(self._assigned(partition)) & set(brokers)
            self.tell(partition, tuple(sorted(assigned)))
        self.try_offline_partitions()
        self.cluster.mode_zk.topics_of(self).resume()

    def _went(self, brokers: list[BrokerId]) -> None:
        self.going -= set(brokers)
        self.try_offline_partitions()
        self._remove_from_isrs(brokers)

    def _remove_from_isrs(self, brokers: list[BrokerId]) -> None:
        for broker in brokers:
            for partition in sorted(self.zk.states):
                if broker in self._assigned(partition) and not self._deleting(partition):
                    self.remove_from_isr(partition, broker)

    def remove_from_isr(self, partition: TopicPartition, broker: BrokerId) -> None:
        """Take a replica out of the ISR, with a new leader epoch although nobody new may lead."""
        keep_last = not (
            self.preset.last_isr_member_may_go and self.cluster.unclean_allowed(partition.topic)
        )
        state = self.zk.states[partition].state
        new = zk_elections.without(state, broker, keep_last=keep_last)
        if new is not None:
            self.write(partition, new)
        others = tuple(b for b in self._assigned(partition) if b != broker)
        if new is not None:
            self.tell(partition, others)

    def _assigned(self, partition: TopicPartition) -> tuple[BrokerId, ...]:
        return self.zk.assignment(partition).replicas

    def _deleting(self, partition: TopicPartition) -> bool:
        return self.zk.topics[partition.topic].deleting

    def try_offline_partitions(self) -> None:
        """Elect for every partition without a live leader."""
        for partition in sorted(self.zk.states):
            state = self.zk.states[partition].state
            if state.leader not in self.live and not self._deleting(partition):
                allowed = self.cluster.unclean_allowed(partition.topic)
                self.elect_offline(partition, unclean=allowed)

    def elect_offline(self, partition: TopicPartition, *, unclean: bool) -> bool:
        state, assigned = self.zk.states[partition].state, self._assigned(partition)
        new = zk_elections.offline(
            state, assigned, self.usable, unclean=unclean, preset=self.preset
        )
        if new is None:
            return False
        self.write(partition, new)
        self.tell(partition, assigned)
        return True

    def elect_preferred(self, partition: TopicPartition) -> bool:
        state = self.state(partition)
        if state is None or state.leader == self._assigned(partition)[0]:
            return False
        new = zk_elections.preferred(state, self._assigned(partition), self.usable)
        if new is None:
            return False
        self.write(partition, new)
        self.tell(partition, self._assigned(partition))
        return True

    def elect_unclean(self, partition: TopicPartition) -> bool:
        """An admin's ElectLeaders UNCLEAN: only where nobody leads."""
        state = self.state(partition)
        if state is None or state.leader in self.live:
            return False
        return self.elect_offline(partition, unclean=True)

    def shut_down(self, broker: BrokerId) -> tuple[TopicPartition, ...]:
        """Controlled shutdown: move what it leads, take it out of the other ISRs; what it still
        leads."""
        if broker not in self.live:
            return ()
        self.going.add(broker)
        mine = [
            p
            for p in sorted(self.zk.states)
            if broker in self._assigned(p) and len(self._assigned(p)) > 1 and not self._deleting(p)
        ]
        led = [p for p in mine if self.zk.states[p].state.leader == broker]
        for partition in led:
            state, assigned = self.zk.states[partition].state, self._assigned(partition)
            new = zk_elections.shutting_down(state, assigned, self.live, self.going)
            if new is not None:
                self.write(partition, new)
                self.tell(partition, assigned)
        for partition in mine:
            if partition not in led:
                self.tell_stop(partition, broker, delete=False)
                self.remove_from_isr(partition, broker)
        return tuple(p for p in led if self.zk.states[p].state.leader == broker)

    def alter_partition(
        self, sender: Broker, sender_epoch: int, replica: Replica, asked: PartitionState
    ) -> str:
        """Check and write a leader's ISR change; returns the error, or nothing."""
        partition = replica.partition
        current = self.state(partition)
        if self.live.get(sender.id) != sender_epoch:
            return "STALE_BROKER_EPOCH"
        if current is None or self.zk.topics[partition.topic].topic_id != replica.topic_id:
            return "UNKNOWN_TOPIC_OR_PARTITION"
        if (
            asked.partition_epoch > current.partition_epoch
            or asked.leader_epoch > current.leader_epoch
        ):
            return "NOT_CONTROLLER"
        if asked.leader_epoch < current.leader_epoch:
            return "FENCED_LEADER_EPOCH"
        recovered = asked._replace(recovery=RecoveryState.RECOVERED)
        if (current.leader, current.isr, current.recovery) == (
            recovered.leader,
            recovered.isr,
            recovered.recovery,
        ):
            return ""
        if asked.partition_epoch < current.partition_epoch:
            return "INVALID_UPDATE_VERSION"
        if self.preset.isr_members_active and not set(asked.isr) <= self.usable:
            return "INELIGIBLE_REPLICA"
        new = current._replace(isr=asked.isr, recovery=RecoveryState.RECOVERED)
        self.write(partition, new, bump=False)
        self.cluster.mode_zk.topics_of(self).isr_changed(partition)
        return ""

    def version(self, partition: TopicPartition) -> int:
        state = self.state(partition)
        return state.partition_epoch if state is not None else -1
