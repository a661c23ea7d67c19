"""Where a follower's log is cut, by each rule Kafka has had; offsets are exclusive ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.connectors.simulator.kernel.rules import Truncation
from tidestaff.consistency.model import UNDEFINED_EPOCH

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.kernel.state import Log, Replica


class EpochEnd(NamedTuple):
    """An epoch, and the offset at which the next larger one begins, or the log ends."""

    epoch: int
    end: int


class Cut(NamedTuple):
    """Where a follower cuts its log, and whether it need not ask again."""

    offset: int
    settled: bool


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


def known_epoch_lookup(*, leader_log: Log, follower_log: Log) -> int | None:
    """KIP-101 as brokers before 2.0.1 do it, by lists of epochs that take in larger ones only.

    Of an epoch older than the first of its list a leader does not know the end. A follower without
    records asks for none, and has nothing to cut.
    """
    if not follower_log:
        return 0
    asked = max(record.epoch for record in follower_log)
    if not leader_log or asked < leader_log[0].epoch:
        return None
    if asked == max(record.epoch for record in leader_log):
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


def epoch_end(log: Log, asked: int, leads_in: int = UNDEFINED_EPOCH) -> EpochEnd | None:
    """The largest epoch not above the one asked, and where it ends, as brokers answer since 2.0.1;
    None where they know of no larger epoch. A leader knows its own before it has written in it."""
    if asked in (leads_in, log[-1].epoch if log else UNDEFINED_EPOCH):
        return EpochEnd(asked, len(log))
    for offset, record in enumerate(log):
        if record.epoch > asked:
            return EpochEnd(log[offset - 1].epoch if offset else asked, offset)
    if asked < leads_in:
        return EpochEnd(log[-1].epoch if log else asked, len(log))
    return None


def cut_by_lookup(answer: int | None, *, log_end: int, high_watermark: int) -> int:
    """KIP-101, the follower: up to the end that the leader answers, else up to its own HW."""
    return high_watermark if answer is None else min(answer, log_end)


def cut_by_round(answer: EpochEnd, own: EpochEnd | None, *, log_end: int) -> Cut:
    """KIP-279, one round of the follower: `own` is what it would have answered itself.

    Both mean the same epoch, or the leader's lies below all of its own: that settles it. Else it
    keeps what it has up to the epoch below, and asks again.
    """
    if own is None:
        return Cut(min(answer.end, log_end), settled=True)
    if own.epoch != answer.epoch:
        return Cut(min(own.end, log_end), settled=False)
    return Cut(min(own.end, answer.end, log_end), settled=True)


def leader_epoch_rounds(*, leader: Replica, follower_log: Log, high_watermark: int) -> int:
    """KIP-279 as brokers do it: rounds of epochs, and the HW where the leader does not know."""
    leads_in = leader.belief.leader_epoch if leader.believes_it_leads else UNDEFINED_EPOCH
    log = follower_log
    while log:
        answer = epoch_end(leader.log, log[-1].epoch, leads_in)
        if answer is None:
            return min(high_watermark, len(log))
        cut = cut_by_round(answer, epoch_end(log, answer.epoch), log_end=len(log))
        log = log[: cut.offset]
        if cut.settled:
            break
    return len(log)


def truncation_point(rule: Truncation, *, leader: Replica, follower: Replica) -> int:
    """The LEO the follower keeps when it becomes a follower of this leader."""
    if rule is Truncation.LOCAL_HW:
        return follower.high_watermark
    if rule is Truncation.LEADER_EPOCH_LOOKUP:
        answer = leader_epoch_lookup(leader_log=leader.log, follower_log=follower.log)
        return cut_by_lookup(
            answer, log_end=follower.log_end_offset, high_watermark=follower.high_watermark
        )
    if rule is Truncation.KNOWN_EPOCH_LOOKUP:
        answer = known_epoch_lookup(leader_log=leader.log, follower_log=follower.log)
        return cut_by_lookup(
            answer, log_end=follower.log_end_offset, high_watermark=follower.high_watermark
        )
    if rule is Truncation.LEADER_EPOCH_ROUNDS:
        return leader_epoch_rounds(
            leader=leader,
            follower_log=follower.log,
            high_watermark=follower.high_watermark,
        )
    if rule is Truncation.LAST_MATCHING_RECORD:
        return last_matching_record(leader_log=leader.log, follower_log=follower.log)
    assert rule is Truncation.NONE_TRUNCATE_ON_TAIL_MISMATCH
    return follower.log_end_offset
