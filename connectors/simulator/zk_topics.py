"""Topics under a ZooKeeper-mode controller: creation, deletion, reassignment, rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.connectors.simulator import zk_elections
from tidestaff.connectors.simulator.zookeeper import TopicNode
from tidestaff.consistency.model import NO_LEADER, Assignment, PartitionState, TopicPartition

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.zk_controller import ZkController
    from tidestaff.consistency.model import BrokerId

_DELETION_RETRY_MS = 100


class ZkTopics:
    """One term's work on topics."""

    def __init__(self, controller: ZkController) -> None:
        self.controller, self.zk = controller, controller.zk
        self.cluster = controller.cluster

    def create(
        self, topic: str, topic_id: str, partitions: tuple[tuple[BrokerId, ...], ...]
    ) -> None:
        """Write the topic node, then the state of every partition that has a live replica."""
        if topic in self.zk.topics:
            return
        self.controller.check_fence()
        self.zk.next_zxid()
        assigned = {number: Assignment(replicas) for number, replicas in enumerate(partitions)}
        self.zk.topics[topic] = TopicNode(topic_id, assigned)
        self._start_new()

    def _start_new(self) -> None:
        usable = self.controller.usable
        for topic in sorted(self.zk.topics):
            node = self.zk.topics[topic]
            for number in sorted(node.partitions):
                partition, replicas = (
                    TopicPartition(topic, number),
                    node.partitions[number].replicas,
                )
                isr = tuple(b for b in replicas if b in usable)
                if partition in self.zk.states or node.deleting or not isr:
                    continue
                state = PartitionState(isr[0], 0, isr, 0, self.controller.epoch)
                self.zk.create_state(partition, state)
                self.cluster.touched.add(partition)
                self.controller.tell(partition, replicas)

    def resume(self) -> None:
        """A broker came, or a controller: go on with whatever waited for it."""
        self._start_new()
        for topic in sorted(t for t, node in self.zk.topics.items() if node.deleting):
            self.continue_deletion(topic)
        for partition in sorted(self.zk.states):
            if self.zk.assignment(partition).being_reassigned:
                self._reassignment_step(partition)

    # -- deletion

    def delete(self, topic: str) -> None:
        """/admin/delete_topics: replicas are told to go; the nodes follow when all have gone."""
        node = self.zk.topics.get(topic)
        if node is None or node.deleting:
            return
        self.controller.check_fence()
        node.deleting = True
        for number in sorted(node.partitions):
            self.cluster.touched.add(TopicPartition(topic, number))
        self.continue_deletion(topic)

    def continue_deletion(self, topic: str) -> None:
        """Ends only when every assigned broker is there and has dropped its replica."""
        node = self.zk.topics.get(topic)
        if node is None or not node.deleting:
            return
        self.controller.check_fence()
        waiting = False
        for number, assignment in sorted(node.partitions.items()):
            partition = TopicPartition(topic, number)
            for broker in assignment.replicas:
                held = self.cluster.brokers[broker].replicas.get(partition)
                if held is not None and held.topic_id == node.topic_id:
                    waiting = True
                    self.controller.tell_stop(partition, broker, delete=True)
        if waiting:
            self.controller.broker.loop.after(
                _DELETION_RETRY_MS,
                lambda: self.controller.handle(lambda: self.continue_deletion(topic)),
            )
            return
        for number in sorted(node.partitions):
            self.cluster.touched.add(TopicPartition(topic, number))
        self.zk.delete_topic(topic)

    # -- reassignment

    def reassign(self, partition: TopicPartition, target: tuple[BrokerId, ...]) -> bool:
        state = self.controller.state(partition)
        if state is None or self.zk.topics[partition.topic].deleting or not target:
            return False
        self.controller.check_fence()
        current = self.zk.assignment(partition)
        origin = current.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        adding = tuple(b for b in replicas if b not in origin)
        removing = tuple(b for b in replicas if b not in target)
        self._assign(partition, Assignment(replicas, adding, removing))
        for dropped in [b for b in current.replicas if b not in replicas]:
            # What an earlier reassignment was adding goes at once, also from the ISR.
            self.controller.remove_from_isr(partition, dropped)
            self.cluster.truth.dropped(partition, dropped, self.zk.states[partition].state)
            self.controller.tell_stop(partition, dropped, delete=True)
        self._reassignment_step(partition)
        return True

    def _assign(self, partition: TopicPartition, assignment: Assignment) -> None:
        self.zk.next_zxid()
        self.zk.topics[partition.topic].partitions[partition.partition] = assignment
        self.cluster.touched.add(partition)

    def isr_changed(self, partition: TopicPartition) -> None:
        """A reassignment may be complete now."""
        if partition in self.zk.states and self.zk.assignment(partition).being_reassigned:
            self._reassignment_step(partition, only_if_complete=True)

    def _reassignment_step(
        self, partition: TopicPartition, *, only_if_complete: bool = False
    ) -> None:
        """Wait until the whole target is in the ISR, then drop the rest.

        Where nobody comes or goes, as after going back to the origin, there is nothing to wait for;
        the epoch rises also then, and with it the leader learns who is a replica no more.
        """
        controller, assignment = self.controller, self.zk.assignment(partition)
        state = self.zk.states[partition].state
        target = assignment.target
        if assignment.being_reassigned and not set(target) <= set(state.isr):
            if not only_if_complete:
                controller.write(partition, state)
                controller.tell(partition, assignment.replicas)
            return
        usable = controller.usable
        stays = state.leader in target and state.leader in usable
        new = state if stays else zk_elections.reassigned(state, target, usable)
        # The orders of the last step name the target only, to everybody of the old list.
        self._assign(partition, Assignment(target))
        if new is not None:
            controller.write(partition, new)
            controller.tell(partition, assignment.replicas)
        for removed in assignment.removing:
            controller.remove_from_isr(partition, removed)
            controller.tell_stop(partition, removed, delete=True)

    # -- rebalance

    def rebalance(self) -> None:
        """Preferred elections for each broker that leads too few of those it should lead."""
        preset, settings = self.controller.preset, self.cluster.settings
        assignments = {p: self.zk.assignment(p) for p in self.zk.states}
        busy = any(a.being_reassigned for a in assignments.values())
        if preset.rebalance_waits_for_reassignment and busy:
            return
        for broker in sorted(self.controller.live):
            mine = [
                p
                for p in sorted(assignments)
                if assignments[p].replicas[0] == broker and not self.zk.topics[p.topic].deleting
            ]
            wrong = [p for p in mine if self.zk.states[p].state.leader != broker]
            limit = settings.leader_imbalance_per_broker_percentage
            if mine and 100 * len(wrong) > limit * len(mine):
                for partition in wrong:
                    if self.zk.states[partition].state.leader != NO_LEADER:
                        self.controller.elect_preferred(partition)
