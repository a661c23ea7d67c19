"""For telling a story step by step: one partition, fetches by hand, states as short lines.

`P0 L1 AR[1,0,2] ISR[1,0,2] e0` is how the worked examples write a partition's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.coordination import PartitionMetadata
    from tidestaff.connectors.simulator.log import ReplicaLog
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import BrokerId


class Story:
    """A cluster seen through one of its partitions."""

    def __init__(self, cluster: SimulatedCluster, topic: str, partition: int = 0) -> None:
        self.cluster = cluster
        self.partition = TopicPartition(topic, partition)

    @property
    def metadata(self) -> PartitionMetadata:
        known = self.cluster.mode.partition(self.partition)
        assert known is not None
        return known

    def replica(self, broker: BrokerId) -> Replica:
        replica = self.cluster.replica(broker, self.partition)
        assert replica is not None
        return replica

    @property
    def line(self) -> str:
        """Leader, assignment, ISR as a list, leader epoch."""
        state, replicas = self.metadata.state, self.metadata.assignment.replicas
        listed = [",".join(map(str, brokers)) for brokers in (replicas, state.isr)]
        return (
            f"P{self.partition.partition} L{state.leader} AR[{listed[0]}] ISR[{listed[1]}] "
            f"e{state.leader_epoch}"
        )

    def ends(self, broker: BrokerId) -> tuple[int, int]:
        """(LEO, HW) of one replica."""
        replica = self.replica(broker)
        return replica.log_end, replica.high_watermark

    def epochs(self, broker: BrokerId) -> tuple[tuple[int, int], ...]:
        """The replica's leader-epoch-checkpoint."""
        return tuple((e.epoch, e.start_offset) for e in self.replica(broker).epochs.entries)

    def log(self, broker: BrokerId) -> str:
        """Records as name@epoch, in offset order; an offset stands in for a name not given."""
        names = self.cluster.names.get(self.partition, {})
        found = []
        for run in self.replica(broker).log.runs:
            for offset in range(run.start, run.end):
                name = names.get((run.epoch, run.writer, offset), str(offset))
                found.append(f"{name}@{run.epoch}")
        return " ".join(found)

    def write(self, *names: str, broker: BrokerId | None = None) -> bool:
        return self.cluster.produce(*self.partition, len(names), names, broker)

    def hold(self, *brokers: BrokerId) -> None:
        """From now on these followers fetch only by hand."""
        for broker in brokers:
            self.cluster.at("hold_fetches", self.partition, broker=broker)

    def release(self, *brokers: BrokerId) -> None:
        for broker in brokers:
            self.cluster.at("release_fetches", self.partition, broker=broker)

    def request(self, broker: BrokerId) -> bool:
        """The follower's next request reaches the leader; the answer stays on its way."""
        return self.cluster.at("fetch_request", self.partition, broker=broker)

    def response(self, broker: BrokerId) -> bool:
        return self.cluster.at("fetch_response", self.partition, broker=broker)

    def fetch(self, *brokers: BrokerId) -> None:
        """One whole round of each follower."""
        for broker in brokers:
            self.request(broker)
            self.response(broker)

    def kill(self, broker: BrokerId) -> None:
        """kill -9, and its session ends: the controller has reacted when this returns."""
        self.cluster.on("crash", broker)
        self.forget(broker)

    def forget(self, broker: BrokerId) -> None:
        """The session of a dead broker expires now."""
        self.cluster.on("session_expiry", broker)
        self.cluster.advance(self.reaction_ms)

    def start(self, broker: BrokerId) -> None:
        self.cluster.on("start", broker)
        self.cluster.advance(self.cluster.settings.start_ms + self.reaction_ms)

    @property
    def reaction_ms(self) -> int:
        """Long enough for the controller to write and everybody to be told."""
        settings = self.cluster.settings
        return 10 * settings.delay_ms[1] + 2 * settings.controller_pause_ms


def unsettled(cluster: SimulatedCluster) -> list[str]:
    """Why the cluster is not yet in its resting state: every partition led, every assigned replica
    in sync, and all of them with the leader's log, all of it committed."""
    found = []
    for partition in cluster.mode.partitions():
        known = cluster.mode.partition(partition)
        assert known is not None
        leader = cluster.brokers.get(known.state.leader)
        log = leader.replicas[partition].log if leader is not None else None
        if known.deleting or log is None:
            found.append(f"{partition} is {'being deleted' if known.deleting else 'leaderless'}")
            continue
        if set(known.state.isr) != set(known.assignment.replicas):
            found.append(f"{partition} has ISR {known.state.isr} of {known.assignment.replicas}")
        for broker in known.assignment.replicas:
            replica = cluster.replica(broker, partition)
            if replica is None or not _same(replica.log, log):
                found.append(f"{partition} on {broker} does not have the leader's log")
            elif replica.high_watermark != log.end:
                found.append(
                    f"{partition} on {broker} has HW {replica.high_watermark} of {log.end}"
                )
    return found


def _same(one: ReplicaLog, other: ReplicaLog) -> bool:
    start, end = max(one.start, other.start), max(one.end, other.end)
    return one.slice(start, end) == other.slice(start, end)
