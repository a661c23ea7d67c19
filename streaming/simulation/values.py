"""The state of a simulated cluster as plain values for JSON, and as logs to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidestaff.connectors.simulator.scenario_state import log_text, role, watermark
from tidestaff.consistency.model import EpochEntry
from tidestaff.consistency.truncation import ReplicaLog
from tidestaff.streaming.commands.drawing import DrawnLog

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import TopicPartition


def partition_value(cluster: SimulatedCluster, partition: TopicPartition) -> dict[str, Any]:
    known = cluster.mode.partition(partition)
    assert known is not None
    state = known.state
    return {
        "partition": str(partition),
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "isr": list(state.isr),
        "elr": list(state.elr),
        "replicas": [
            {
                "broker": broker,
                "role": role(cluster, partition, broker),
                **({} if replica is None else _replica_value(cluster, replica)),
            }
            for broker in known.assignment.replicas
            for replica in [cluster.replica(broker, partition)]
        ],
    }


def _replica_value(cluster: SimulatedCluster, replica: Replica) -> dict[str, Any]:
    return {
        "high_watermark": watermark(cluster, replica),
        "log_end_offset": replica.log_end,
        "log_start_offset": replica.log.start,
        "epochs": [[entry.epoch, entry.start_offset] for entry in replica.epochs.entries],
        "log": log_text(cluster, replica),
    }


def drawn_logs(cluster: SimulatedCluster, partition: TopicPartition) -> list[DrawnLog]:
    """Epochs are taken from the records themselves: 0.10 had no file of them."""
    known = cluster.mode.partition(partition)
    assert known is not None
    found = []
    for broker in known.assignment.replicas:
        replica = cluster.replica(broker, partition)
        if replica is None:
            continue
        lineage: list[EpochEntry] = []
        for run in replica.log.runs:
            if not lineage or lineage[-1].epoch != run.epoch:
                lineage.append(EpochEntry(run.epoch, run.start))
        hw = watermark(cluster, replica)
        log = ReplicaLog(replica.log.start, hw, replica.log_end, tuple(lineage))
        name = f"{broker} {role(cluster, partition, broker)}"
        found.append(DrawnLog(name, log, f"   {log_text(cluster, replica)}"))
    return found
