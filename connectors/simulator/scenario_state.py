"""The state of a cluster as the lines of a scenario file: one partition, then its replicas in the
order of the assignment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.model import RecoveryState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import BrokerId, TopicPartition

_LONGEST_RUN: Final = 8
_NO_TOPIC: Final = "(no topic)"
# The controller, a partition, a replica, an alert, a remark.
_STATE_LINE: Final = re.compile(
    r"controller=|\S+-[0-9]+ leader=|  [0-9]+ (leader|zombie|follower|down|paused|waiting) |! |\. "
)


def is_state_line(line: str) -> bool:
    """Whether a line has the form of those that `state_lines` makes."""
    return line == _NO_TOPIC or _STATE_LINE.match(line) is not None


def state_lines(
    cluster: SimulatedCluster,
    shown: Sequence[str] = (),
    alerts: Mapping[TopicPartition | None, Sequence[str]] | None = None,
    remarks: Sequence[str] = (),
) -> list[str]:
    """Alerts stand under their partition, those of the cluster at the end."""
    alerts = alerts or {}
    lines = [controller_line(cluster)] if "controller" in shown else []
    partitions = cluster.mode.partitions()
    for partition in partitions:
        lines += partition_lines(cluster, partition, shown)
        lines += alerts.get(partition, ())
    for place, told in alerts.items():
        if place not in partitions:
            lines += told
    return [*lines, *remarks] or [_NO_TOPIC]


def controller_line(cluster: SimulatedCluster) -> str:
    mode = cluster.mode
    controller = mode.controller()
    who = "none" if controller is None else controller
    registered = _listed(r.broker for r in mode.registrations() if not r.fenced)
    epoch = mode.controller_epoch()
    return f"controller={who} controller-epoch={epoch} registered={registered}"


def partition_lines(
    cluster: SimulatedCluster, partition: TopicPartition, shown: Sequence[str] = ()
) -> list[str]:
    known = cluster.mode.partition(partition)
    assert known is not None
    state, assignment = known.state, known.assignment
    leader = "none" if state.leader < 0 else str(state.leader)
    text = f"{partition} leader={leader} epoch={state.leader_epoch} isr={_listed(state.isr)}"
    if state.elr:
        text += f" elr={_listed(state.elr)}"
    if "versions" in shown:
        text += f" version={state.partition_epoch}"
        if state.controller_epoch is not None:
            text += f" controller-epoch={state.controller_epoch}"
    if assignment.being_reassigned:
        text += f" adding={_listed(assignment.adding)} removing={_listed(assignment.removing)}"
    if state.recovery is RecoveryState.RECOVERING:
        text += " recovering"
    if known.deleting:
        text += " deleting"
    rows = [replica_line(cluster, partition, b, shown) for b in assignment.replicas]
    return [text, *rows]


def role(cluster: SimulatedCluster, partition: TopicPartition, broker: BrokerId) -> str:
    """What the replica takes itself for; a zombie is a leader that was deposed unawares."""
    process, replica = cluster.brokers[broker], cluster.replica(broker, partition)
    if not process.up:
        return "down"
    if process.paused:
        return "paused"
    if replica is None or not replica.known:
        return "waiting"
    if not replica.leads:
        return "follower"
    known = cluster.mode.partition(partition)
    return "leader" if known is not None and known.state.leader == broker else "zombie"


def replica_line(
    cluster: SimulatedCluster,
    partition: TopicPartition,
    broker: BrokerId,
    shown: Sequence[str] = (),
) -> str:
    word, replica = role(cluster, partition, broker), cluster.replica(broker, partition)
    head = f"  {broker} {word:<8}"
    if replica is None:
        return f"{head} no log"
    # Of a process that is gone only the checkpoint is left.
    hw = watermark(cluster, replica)
    epochs = " ".join(f"{e.epoch}@{e.start_offset}" for e in replica.epochs.entries)
    start = f" start={replica.log.start}" if replica.log.start else ""
    remote = ""
    if "remote" in shown and replica.leads:
        ends = (f"{b}:{max(p.log_end_offset, 0)}" for b, p in sorted(replica.followers.items()))
        remote = f" remote=({' '.join(ends)})"
    return (
        f"{head} hw={hw} leo={replica.log_end}{start} epochs=({epochs}) "
        f"log=({log_text(cluster, replica)}){remote}"
    )


def watermark(cluster: SimulatedCluster, replica: Replica) -> int:
    """The HW; of a process that is gone only what its checkpoint file says is left."""
    up = cluster.brokers[replica.broker].up
    return replica.high_watermark if up else min(replica.checkpointed_hw, replica.log_end)


def log_text(cluster: SimulatedCluster, replica: Replica) -> str:
    """Records as name/epoch; long runs by their ends, runs without names by their offsets."""
    names = cluster.names.get(replica.partition, {})
    found: list[str] = []
    for run in replica.log.runs:

        def named(offset: int, epoch: int = run.epoch, writer: int = run.writer) -> str:
            return f"{names.get((epoch, writer, offset), str(offset))}/{epoch}"

        nameless = all((run.epoch, run.writer, at) not in names for at in (run.start, run.end - 1))
        if nameless and run.end - run.start > 1:
            found.append(f"{run.start}..{named(run.end - 1)}")
        elif run.end - run.start > _LONGEST_RUN:
            found += [named(run.start), "...", named(run.end - 1)]
        else:
            found += [named(offset) for offset in range(run.start, run.end)]
    return " ".join(found)


def _listed(brokers: Iterable[BrokerId]) -> str:
    return f"({' '.join(map(str, brokers))})"
