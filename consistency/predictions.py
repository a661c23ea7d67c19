"""Predictions made when a leader epoch begins: where each follower will cut its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.memory import PredictedCut
from tidestaff.consistency.model import UNKNOWN_PARTITION_EPOCH
from tidestaff.consistency.truncation import ReplicaLog, must_truncate, predict_truncation
from tidestaff.consistency.versions import Truncation

if TYPE_CHECKING:
    from tidestaff.consistency.checks.sight import Sight
    from tidestaff.consistency.memory import PartitionMemory, ReplicaMemory
    from tidestaff.consistency.model import BrokerId


def predicted_cuts(sight: Sight) -> dict[BrokerId, PredictedCut]:
    """One prediction a follower for the current leader epoch: made once, carried on afterwards.

    Made from the last sight of the follower before the epoch and the leader's log within it; needs
    a coherent sample, for the two have to be of one epoch.
    """
    memory = sight.memory
    cuts: dict[BrokerId, PredictedCut] = {}
    if memory is None:
        return cuts
    leader = _leader_log(sight) if sight.coherent else None
    for replica in memory.replicas:
        if replica.broker == sight.state.leader:
            continue
        if replica.leader_epoch == sight.state.leader_epoch:
            if replica.cut is not None and replica.cut.leader_epoch == sight.state.leader_epoch:
                cuts[replica.broker] = _carried(sight, replica, replica.cut)
        elif leader is not None and replica.leader_epoch < sight.state.leader_epoch:
            cut = _predict(sight, replica, leader)
            if cut is not None:
                cuts[replica.broker] = cut
    return cuts


def _carried(sight: Sight, replica: ReplicaMemory, cut: PredictedCut) -> PredictedCut:
    """A restart in the same epoch may cost the unflushed tail, or the disk: the bound is void."""
    return cut if sight.same_incarnation(replica.broker) else cut._replace(at_least=0)


def _leader_log(sight: Sight) -> ReplicaLog | None:
    reading, end = sight.leader, sight.leader_end
    if reading is None or end is None or reading.high_watermark is None:
        return None
    if reading.lineage is None and sight.rules.truncation is not Truncation.HIGH_WATERMARK:
        return None
    return ReplicaLog(
        reading.log_start_offset or 0, reading.high_watermark, end, reading.lineage or ()
    )


def _predict(sight: Sight, replica: ReplicaMemory, leader: ReplicaLog) -> PredictedCut | None:
    memory, rules = sight.memory, sight.rules
    assert memory is not None
    if replica.lineage is None and rules.truncation is not Truncation.HIGH_WATERMARK:
        return None
    restarted = not sight.same_incarnation(replica.broker)
    if not restarted and not must_truncate(
        rules=rules,
        old_leader=memory.state.leader,
        new_leader=sight.state.leader,
        old_leader_epoch=replica.leader_epoch,
        new_leader_epoch=sight.state.leader_epoch,
    ):
        return None
    prediction = predict_truncation(
        follower=ReplicaLog(
            replica.log_start_offset,
            replica.high_watermark,
            replica.log_end_offset,
            replica.lineage or (),
        ),
        leader=leader,
        rules=rules,
        unclean_allowed=sight.observation.settings.unclean_leader_election_enable,
    )
    at_least = prediction.final_offset
    if rules.truncation is not Truncation.ON_FETCH or not replica.lineage:
        # The follower may have learnt a newer epoch since it was last seen; one its leader cannot
        # place sends it back to its own HW.
        at_least = min(at_least, _watermark_floor(memory, replica))
    if restarted or prediction.restart_at is not None or not _is_bounded(sight, replica, leader):
        at_least = 0
    return PredictedCut(
        sight.state.leader_epoch, prediction.final_offset, at_least, prediction.because
    )


def _watermark_floor(memory: PartitionMemory, replica: ReplicaMemory) -> int:
    """The lowest HW the replica can cut to: a fetch may have lowered it to its old leader's."""
    leader = memory.replica(memory.state.leader)
    return min(replica.high_watermark, leader.high_watermark if leader is not None else 0)


def _is_bounded(sight: Sight, replica: ReplicaMemory, leader: ReplicaLog) -> bool:
    """Whether the prediction is a bound: the replica goes from one known epoch straight to the
    next.

    Behind several writes an unseen leader may have been shorter, or the replica have been removed
    and added again. One that had not been told of the old epoch yet truncates for that one first.
    And a leader whose lineage retention has trimmed no longer shows where the replica's epoch
    ended.
    """
    known, now = replica.partition_epoch, sight.state.partition_epoch
    assert sight.memory is not None
    told = replica.following or replica.broker == sight.memory.state.leader
    if UNKNOWN_PARTITION_EPOCH in (known, now) or now != known + 1 or not told:
        return False
    if not replica.lineage or not leader.lineage:
        return sight.rules.truncation is Truncation.HIGH_WATERMARK
    return leader.lineage[0].epoch <= replica.lineage[-1].epoch
