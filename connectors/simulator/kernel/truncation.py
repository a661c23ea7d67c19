"""Where a follower's log is cut, by each rule Kafka has had; offsets are exclusive ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.connectors.simulator.kernel.rules import Truncation

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.kernel.state import Log, Replica


def leader_epoch_lookup(*, leader_log: Log, follower_log: Log) -> int | None:
    """KIP-101: the leader's end offset of the follower's last epoch, never above the own LEO.

    That end is the leader's LEO if its last record is of this epoch, else the start of the first
    larger epoch. The last epoch is asked first: where epochs go back in a log, both may apply. None
    where the leader cannot say: the follower then falls back to its local HW.
    """
    if not follower_log:
        return 0
    asked = follower_log[-1].epoch
    if leader_log and leader_log[-1].epoch == asked:
        return min(len(leader_log), len(follower_log))
    for offset, record in enumerate(leader_log):
        if record.epoch > asked:
            return min(offset, len(follower_log))
    return None


def last_matching_record(*, leader_log: Log, follower_log: Log) -> int:
    """KIP-279: one past the last offset where both hold the same record; 0 where there is none.

    Kafka finds it in rounds by comparing epochs; on logs of one history both end at the longest
    common prefix.
    """
    for offset in range(min(len(leader_log), len(follower_log)) - 1, -1, -1):
        if leader_log[offset] == follower_log[offset]:
            return offset + 1
    return 0


def truncation_point(rule: Truncation, *, leader: Replica, follower: Replica) -> int:
    """The LEO the follower keeps when it becomes a follower of this leader."""
    if rule is Truncation.LOCAL_HW:
        return follower.high_watermark
    if rule is Truncation.LEADER_EPOCH_LOOKUP:
        answer = leader_epoch_lookup(leader_log=leader.log, follower_log=follower.log)
        return follower.high_watermark if answer is None else answer
    if rule is Truncation.LAST_MATCHING_RECORD:
        return last_matching_record(leader_log=leader.log, follower_log=follower.log)
    assert rule is Truncation.NONE_TRUNCATE_ON_TAIL_MISMATCH
    return follower.log_end_offset
