"""One broker's own words on its replicas, in the order log start, HW, LEO, lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.consistency.model import (
    LineageSource,
    PartitionSettings,
    ReplicaReading,
    SettingSource,
)

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import TopicPartition

# Looked up once: a member of an enumeration is not found as fast as a name.
_CHECKPOINT_FILE: Final = LineageSource.CHECKPOINT_FILE


class Reader:
    """Time may pass between `begin` and `finish`; both must reach the same process."""

    def __init__(self, cluster: SimulatedCluster, broker: Broker) -> None:
        self._cluster, self._broker = cluster, broker
        self._incarnation = broker.incarnation
        self._begun: list[tuple[TopicPartition, ReplicaReading]] = []

    def begin(self, partitions: list[TopicPartition]) -> None:
        broker = self._broker
        if not broker.answers:
            return
        for partition in partitions:
            replica = broker.replicas.get(partition)
            if replica is None:
                continue
            reading = reading_of(broker, replica, self._cluster.now_ms)
            self._begun.append((partition, reading))

    def finish(self) -> list[tuple[TopicPartition, ReplicaReading]]:
        broker, preset = self._broker, self._cluster.preset
        if not broker.answers or broker.incarnation != self._incarnation:
            return []
        found = []
        for partition, reading in self._begun:
            replica = broker.replicas.get(partition)
            if replica is None or (preset.topic_ids and replica.topic_id != reading.topic_id):
                continue
            finished = reading._replace(
                log_end_offset=replica.log_end,
                lineage=replica.epochs.entries if preset.epoch_file else None,
            )
            found.append((partition, finished))
        return found


def reading_of(broker: Broker, replica: Replica, now_ms: int) -> ReplicaReading:
    """All of one replica at one moment. Built by position, and without the way
    through the class's own constructor: a load source makes many of them."""
    preset, log, known = replica.preset, replica.log, replica.known
    return tuple.__new__(
        ReplicaReading,
        (
            broker.id,
            log.start,
            replica.high_watermark,
            log.end,
            broker.broker_epoch,
            replica.leader_epoch if known else None,
            replica.leader == replica.broker if known else None,
            replica.epochs.entries if preset.epoch_file else None,
            _CHECKPOINT_FILE,
            None,
            replica.topic_id if preset.topic_ids else None,
            True,  # the log directory is online
            now_ms,
        ),
    )


def partition_settings(cluster: SimulatedCluster, topic: str) -> PartitionSettings:
    """The effective settings of a topic, with the defaults of the version filled in."""
    settings = cluster.settings

    def source(name: str) -> SettingSource:
        changed = cluster.topic_settings.get(topic, {})
        return SettingSource.TOPIC if name in changed else SettingSource.STATIC

    return PartitionSettings(
        unclean_leader_election_enable=bool(
            cluster.setting_of(topic, "unclean_leader_election_enable")
        ),
        min_insync_replicas=cluster.min_isr(topic),
        replica_lag_time_max_ms=settings.lag_ms,
        session_timeout_ms=settings.session_ms,
        replica_fetch_wait_max_ms=settings.replica_fetch_wait_max_ms,
        replica_high_watermark_checkpoint_interval_ms=(
            settings.high_watermark_checkpoint_interval_ms
        ),
        auto_leader_rebalance_enable=settings.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_ms=settings.leader_imbalance_check_interval_ms,
        leader_imbalance_per_broker_percentage=settings.leader_imbalance_per_broker_percentage,
        unclean_leader_election_enable_source=source("unclean_leader_election_enable"),
        min_insync_replicas_source=source("min_insync_replicas"),
        replica_lag_time_max_ms_source=SettingSource.STATIC,
    )
