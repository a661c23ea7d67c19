"""The short cut for what plainly holds: nothing changed but offsets, and they grew as they should.

Sound by a property test: whatever passes here, every rule of the catalogue would have held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.lag import caught_up
from tidestaff.consistency.memory import PartitionMemory, ReplicaMemory
from tidestaff.consistency.model import Bracket

if TYPE_CHECKING:
    from tidestaff.consistency.model import EpochEntry, PartitionObservation, ReplicaReading
    from tidestaff.consistency.verdict import Verdicts


def quiet_step(
    memory: PartitionMemory, observation: PartitionObservation
) -> tuple[PartitionMemory, Verdicts] | None:
    """The step of a partition where nothing happened; None where it has to be judged in full."""
    calm = memory.calm
    if calm is None or not _same_surroundings(memory, observation):
        return None
    pair = _leader_then_and_now(memory, observation)
    if pair is None:
        return None
    leader, leader_known = pair
    if not _leader_went_on(leader, leader_known):
        return None
    watermark, end = leader.high_watermark, leader.log_end_offset
    assert watermark is not None
    assert end is not None
    again = observation.leader_again
    last_end = end if again is None or again.log_end_offset is None else again.log_end_offset
    replicas = []
    shown = watermark
    for reading, replica in zip(observation.replicas, memory.replicas, strict=True):
        own_end = reading.log_end_offset
        if own_end is None or not max(watermark, memory.committed_end) <= own_end <= last_end:
            return None
        if not _only_grew(reading, replica, memory):
            return None
        if reading is not leader:
            own_watermark = reading.high_watermark
            if own_watermark is None or own_watermark < min(leader_known.high_watermark, watermark):
                return None
            if own_end < end and own_end < replica.mark_offset:
                return None
            shown = max(shown, own_watermark)
        replicas.append(_remembered(reading, replica, memory, observation, end))
    if leader.lineage and not _ledger_follows(memory, leader.lineage[-1], shown):
        return None
    return (
        _with_growth(memory, observation, shown, tuple(replicas), has_lineage=bool(leader.lineage)),
        calm,
    )


def _leader_went_on(leader: ReplicaReading, known: ReplicaMemory) -> bool:
    """The leader's HW moves or stands at its end."""
    watermark, end = leader.high_watermark, leader.log_end_offset
    if watermark is None or end is None or leader.log_start_offset != known.log_start_offset:
        return False
    return watermark == end or watermark > known.high_watermark


def _with_growth(
    memory: PartitionMemory,
    observation: PartitionObservation,
    watermark: int,
    replicas: tuple[ReplicaMemory, ...],
    *,
    has_lineage: bool,
) -> PartitionMemory:
    committed_end = max(memory.committed_end, watermark)
    # Written out: NamedTuple._replace with names costs more than all the comparisons before it.
    return PartitionMemory(
        memory.topic_id,
        memory.state_czxid,
        observation.observed_at_ms,
        observation.observed_at_ms - memory.observed_at_ms,
        memory.rules,
        memory.state,
        memory.assignment,
        memory.live,
        memory.settings,
        memory.controller,
        memory.controller_epoch,
        memory.controller_epoch,
        memory.controller_since_ms,
        memory.committed_start,
        committed_end,
        memory.ledger,
        committed_end if has_lineage else memory.ledger_end,
        memory.eras,
        replicas,
        memory.joined_isr,
        memory.suspicions,
        memory.lost,
        memory.was_compacted,
        memory.settled_watermarks,
        memory.kept_tails,
        memory.calm,
        memory.last_isr,
        memory.origins,
        memory.lost_epochs,
        memory.verified,
        memory.beside,
    )


def _remembered(
    reading: ReplicaReading,
    replica: ReplicaMemory,
    memory: PartitionMemory,
    observation: PartitionObservation,
    leader_end: int,
) -> ReplicaMemory:
    own_start, own_watermark, own_end = reading[1], reading[2], reading[3]
    assert own_start is not None
    assert own_watermark is not None
    assert own_end is not None
    now_ms = observation.observed_at_ms
    gap = now_ms - memory.observed_at_ms > memory.settings.replica_lag_time_max_ms
    at_ms, mark_at_ms, mark_offset = caught_up(replica, own_end, leader_end, now_ms, after_gap=gap)
    return ReplicaMemory(
        replica.broker,
        replica.broker_epoch,
        own_start,
        own_watermark,
        own_end,
        replica.lineage,
        replica.leader_epoch,
        memory.state.partition_epoch,
        at_ms,
        mark_at_ms,
        mark_offset,
        reading.leads is False and reading.leader_epoch == memory.state.leader_epoch,
        replica.fetched_in_epoch,
        replica.cut,
        replica.isr_exits_ms,
    )


def _ledger_follows(memory: PartitionMemory, latest: EpochEntry, watermark: int) -> bool:
    """The ledger has the leader's latest epoch already, or nothing of it is committed yet."""
    if memory.ledger and memory.ledger[-1] == latest:
        return True
    return watermark <= latest.start_offset


def _leader_then_and_now(
    memory: PartitionMemory, observation: PartitionObservation
) -> tuple[ReplicaReading, ReplicaMemory] | None:
    """The leader's reading and memory, if the replicas are the same ones in the same order."""
    if len(observation.replicas) != len(memory.replicas):
        return None
    found = None
    for reading, replica in zip(observation.replicas, memory.replicas, strict=True):
        if reading.broker != replica.broker:
            return None
        if reading.broker == memory.state.leader:
            found = reading, replica
    return found


def _same_surroundings(memory: PartitionMemory, observation: PartitionObservation) -> bool:
    return (
        observation.bracket is Bracket.COHERENT
        and observation.observed_at_ms > memory.observed_at_ms
        and observation.state == memory.state
        and observation.live == memory.live
        and observation.assignment == memory.assignment
        and observation.topic_id == memory.topic_id
        and observation.state_czxid == memory.state_czxid
        and observation.controller == memory.controller
        and observation.cluster_controller_epoch == memory.controller_epoch
        and observation.rules is memory.rules
        and (observation.settings is memory.settings or observation.settings == memory.settings)
        and not observation.digests
        and not observation.deleting
    )


def _only_grew(reading: ReplicaReading, replica: ReplicaMemory, memory: PartitionMemory) -> bool:
    """The same replica, in order, in the same role and epoch, with nothing taken away."""
    log_start, own_watermark, own_end = reading[1], reading[2], reading[3]
    if log_start is None or own_watermark is None or own_end is None:
        return False
    state = memory.state
    return (
        replica.log_start_offset <= log_start <= own_watermark <= own_end
        and own_end >= replica.log_end_offset
        and own_watermark >= replica.high_watermark
        and (reading.lineage is replica.lineage or reading.lineage == replica.lineage)
        and (reading.broker_epoch is None or reading.broker_epoch == replica.broker_epoch)
        and (reading.leader_epoch is None or reading.leader_epoch == state.leader_epoch)
        and (reading.leads is None or reading.leads is (reading.broker == state.leader))
        and replica.leader_epoch == state.leader_epoch
        and reading.log_dir_online
        and (reading.topic_id is None or reading.topic_id == memory.topic_id)
    )
