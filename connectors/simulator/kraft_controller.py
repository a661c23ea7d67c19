"""The KRaft controller: the quorum as one logical controller with fail-over
(org.apache.kafka.controller.ReplicationControlManager, ClusterControlManager)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.simulator.kraft_builder import (
    Election,
    Partition,
    Wanted,
    build,
    reassignment,
)
from tidestaff.consistency.model import NO_LEADER, Assignment, PartitionState, TopicPartition

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import BrokerId

FIRST_CONTROLLER: Final = 3_000
CONTROLLERS: Final = 3


@dataclass(slots=True)
class BrokerRegistration:
    """A broker as the controller knows it; the epoch is the offset of its registration record."""

    incarnation: int
    epoch: int
    fenced: bool = True
    shutting_down: bool = False
    last_heard_ms: int = 0


class KRaftController:
    """Its state is the metadata log's; `offset` is the end of the log."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster, self.preset = cluster, cluster.preset
        self.offset = 0
        self.epoch = 1
        self.id = FIRST_CONTROLLER
        self.active = True
        self.brokers: dict[BrokerId, BrokerRegistration] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        self.last_deletion = 0

    def next_offset(self) -> int:
        self.offset += 1
        return self.offset

    def is_active(self, broker: BrokerId) -> bool:
        known = self.brokers.get(broker)
        return known is not None and not known.fenced and not known.shutting_down

    # -- changing partitions

    def change(
        self,
        partition: TopicPartition,
        wanted: Wanted,
        *,
        without: BrokerId = NO_LEADER,
        added: BrokerId = NO_LEADER,
    ) -> bool:
        known = self.partitions[partition]

        def acceptable(broker: BrokerId) -> bool:
            return broker != without and (broker == added or self.is_active(broker))

        topic_min = self.cluster.min_isr(partition.topic)
        new = build(
            known,
            wanted,
            acceptable=acceptable,
            min_isr=min(topic_min, len(known.assignment.target)),
            preset=self.preset,
        )
        if new is None:
            return False
        self._store(partition, new)
        return True

    def _store(self, partition: TopicPartition, new: Partition) -> None:
        # Last changed is last in the dictionary, so that brokers can be told only what is new.
        self.partitions.pop(partition, None)
        self.partitions[partition] = new._replace(offset=self.next_offset())
        self.cluster.touched.add(partition)
        self.cluster.truth.written(partition, new.state)

    def _election(self, partition: TopicPartition) -> Election:
        allowed = self.cluster.unclean_allowed(partition.topic)
        return Election.UNCLEAN if allowed else Election.ONLINE

    def _remove(self, broker: BrokerId, *, unclean_shutdown: bool = False) -> None:
        """Take a broker out of every ISR it is in (and, after an unclean shutdown, the ELRs)."""
        for partition in sorted(self.partitions):
            state = self.partitions[partition].state
            listed = broker in state.isr or (unclean_shutdown and broker in state.elr)
            if listed:
                wanted = Wanted(self._election(partition))
                wanted.isr = tuple(b for b in state.isr if b != broker)
                if unclean_shutdown:
                    wanted.unclean_shutdown = (broker,)
                self.change(partition, wanted, without=broker)

    # -- brokers

    def register(self, broker: BrokerId, incarnation: int, previous_epoch: int) -> int | None:
        """The new broker epoch, or None while the old process may still be alive."""
        now, known = self.cluster.now_ms, self.brokers.get(broker)
        if known is not None and known.incarnation != incarnation:
            lives = now - known.last_heard_ms < self.cluster.settings.session_ms
            if not known.fenced and lives:
                return None
        if known is not None and known.incarnation == incarnation:
            return known.epoch
        if known is not None:
            clean = previous_epoch == known.epoch
            self._remove(broker, unclean_shutdown=self.preset.elr and not clean)
        epoch = self.next_offset()
        self.brokers[broker] = BrokerRegistration(incarnation, epoch, last_heard_ms=now)
        return epoch

    def heartbeat(
        self, broker: BrokerId, epoch: int, metadata_offset: int, *, stopping: bool
    ) -> str:
        """`shutdown` once nothing is led any more; `stale` for an old epoch."""
        known = self.brokers.get(broker)
        if known is None or known.epoch != epoch:
            return "stale"
        known.last_heard_ms = self.cluster.now_ms
        if stopping:
            return self._stop(broker, known)
        if known.fenced and metadata_offset >= known.epoch:
            known.fenced = False
            self.next_offset()
            for partition in sorted(self.partitions):
                if self.partitions[partition].state.leader == NO_LEADER:
                    self.change(partition, Wanted(self._election(partition)), added=broker)
        return ""

    def _stop(self, broker: BrokerId, known: BrokerRegistration) -> str:
        leads = any(p.state.leader == broker for p in self.partitions.values())
        if leads and not known.shutting_down and not known.fenced:
            known.shutting_down = True
            self.next_offset()
            self._remove(broker)
            return ""
        if leads and not known.fenced:
            return ""
        self.fence(broker)
        return "shutdown"

    def fence(self, broker: BrokerId) -> None:
        known = self.brokers[broker]
        if not known.fenced:
            self._remove(broker)
            known.fenced, known.shutting_down = True, False
            self.next_offset()

    # -- leaders and admins

    def alter_partition(
        self, sender: Broker, sender_epoch: int, replica: Replica, asked: PartitionState
    ) -> str:
        """Check and apply a leader's ISR change; returns the error, or nothing."""
        known, registered = self.partitions.get(replica.partition), self.brokers.get(sender.id)
        if registered is None or registered.epoch != sender_epoch:
            return "STALE_BROKER_EPOCH"
        if known is None or known.topic_id != replica.topic_id:
            return "UNKNOWN_TOPIC_ID"
        error = self._wrong_versions(known.state, asked)
        if error:
            return error
        if any(not self._eligible(b, replica) for b in asked.isr):
            return "INELIGIBLE_REPLICA"
        if known.state.isr == asked.isr and not known.state.recovery.value:
            return ""
        wanted = Wanted(self._election(replica.partition), isr=asked.isr, recovered=True)
        self.change(replica.partition, wanted)
        now = self.partitions[replica.partition].state
        moved = now.leader != sender.id or now.leader_epoch != asked.leader_epoch
        return "NEW_LEADER_ELECTED" if moved else ""

    @staticmethod
    def _wrong_versions(known: PartitionState, asked: PartitionState) -> str:
        if asked.leader_epoch > known.leader_epoch or asked.partition_epoch > known.partition_epoch:
            return "NOT_CONTROLLER"
        if asked.leader_epoch < known.leader_epoch:
            return "FENCED_LEADER_EPOCH"
        if asked.leader != known.leader:
            return "INVALID_REQUEST"
        if asked.partition_epoch < known.partition_epoch:
            return "INVALID_UPDATE_VERSION"
        return ""

    def _eligible(self, broker: BrokerId, replica: Replica) -> bool:
        if not self.is_active(broker):
            return not self.preset.isr_members_active and broker in self.brokers
        progress = replica.followers.get(broker)
        epoch = progress.broker_epoch if progress is not None else None
        if not self.preset.isr_broker_epochs_checked or epoch is None:
            return True
        return epoch == self.brokers[broker].epoch

    def version(self, partition: TopicPartition) -> int:
        known = self.partitions.get(partition)
        return known.state.partition_epoch if known is not None else -1

    def create_topic(
        self, topic: str, topic_id: str, partitions: tuple[tuple[BrokerId, ...], ...]
    ) -> bool:
        """Refused where a partition would have no active replica."""
        isrs = [tuple(b for b in replicas if self.is_active(b)) for replicas in partitions]
        if any(p.topic == topic for p in self.partitions) or not all(isrs):
            return False
        for number, (replicas, isr) in enumerate(zip(partitions, isrs, strict=True)):
            state = PartitionState(isr[0], 0, isr, 0)
            new = Partition(topic_id, state, Assignment(replicas))
            self._store(TopicPartition(topic, number), new)
        return True

    def delete_topic(self, topic: str) -> bool:
        gone = [p for p in self.partitions if p.topic == topic]
        for partition in gone:
            del self.partitions[partition]
            self.cluster.touched.add(partition)
        if gone:
            self.last_deletion = self.next_offset()
        return bool(gone)

    def reassign(self, partition: TopicPartition, target: tuple[BrokerId, ...]) -> bool:
        known = self.partitions.get(partition)
        if known is None:
            return False
        return self.change(partition, reassignment(known, target))

    def elect_preferred(self, partition: TopicPartition) -> bool:
        known = self.partitions.get(partition)
        if known is None or known.state.leader == known.assignment.replicas[0]:
            return False
        return self.change(partition, Wanted(Election.PREFERRED))

    def elect_unclean(self, partition: TopicPartition) -> bool:
        known = self.partitions.get(partition)
        if known is None or known.state.leader != NO_LEADER:
            return False
        return self.change(partition, Wanted(Election.UNCLEAN))

    def try_leaderless(self) -> None:
        """Topics that allow it may elect uncleanly now."""
        for partition in sorted(self.partitions):
            if self.partitions[partition].state.leader == NO_LEADER:
                self.change(partition, Wanted(self._election(partition)))

    def clear_elrs(self, topic: str | None) -> None:
        """min.insync.replicas changed: what was eligible under the old value is forgotten."""
        for partition in sorted(self.partitions):
            known = self.partitions[partition]
            concerned = topic is None or partition.topic == topic
            if concerned and (known.state.elr or known.state.last_known_elr):
                state = known.state._replace(
                    elr=(), last_known_elr=(), partition_epoch=known.state.partition_epoch + 1
                )
                self._store(partition, known._replace(state=state))

    def balance(self) -> None:
        for partition in sorted(self.partitions):
            self.elect_preferred(partition)
