"""What a follower does: truncate by its version's protocol, append what it fetched
(kafka.server.AbstractFetcherThread, ReplicaFetcherThread)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.connectors.simulator.kernel.truncation import EpochEnd, cut_by_lookup, cut_by_round
from tidestaff.connectors.simulator.leading import Ask
from tidestaff.connectors.simulator.presets import TruncateWhen, TruncationProtocol
from tidestaff.connectors.simulator.replica import Phase
from tidestaff.consistency.model import UNDEFINED_EPOCH, UNDEFINED_OFFSET

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.leading import Answer
    from tidestaff.connectors.simulator.replica import LeadershipOrder, Replica

# Looking a member up in its class costs as much as a whole question of a quiet partition.
_TRUNCATING: Final = Phase.TRUNCATING
_FETCHING: Final = Phase.FETCHING
_FAILED: Final = Phase.FAILED


def become_follower(broker: Broker, replica: Replica, order: LeadershipOrder) -> bool:
    """Take the new belief; True if the fetcher has to start over with this partition."""
    before = (replica.known, replica.leader, replica.leader_epoch)
    state = order.state
    replica.known, replica.leader, replica.leader_epoch = True, state.leader, state.leader_epoch
    replica.partition_epoch = state.partition_epoch
    replica.isr, replica.assignment = state.isr, order.assignment
    replica.followers, replica.pending_isr = {}, None
    replica.touched.add(replica.partition)
    return _starts_over(replica, before)


def _starts_over(replica: Replica, before: tuple[bool, int, int]) -> bool:
    known, leader, epoch = before
    if not known or leader != replica.leader:
        return True
    when = replica.preset.truncate_when
    if when is TruncateWhen.LEADER_DIFFERS:
        return False
    if when is TruncateWhen.EPOCHS_MISSED:
        return replica.leader_epoch > epoch + 1
    return replica.leader_epoch > epoch


def start_over(replica: Replica) -> None:
    """Set the fetcher's first step for a new leader epoch."""
    protocol = replica.preset.truncation
    replica.not_before_ms = 0
    if protocol is TruncationProtocol.HIGH_WATERMARK:
        replica.truncate_to(replica.high_watermark)
        _fetch_from_end(replica)
    elif protocol is TruncationProtocol.KIP101:
        replica.phase = _TRUNCATING
    elif replica.epochs.latest == UNDEFINED_EPOCH:
        # Without an epoch there is nothing to ask for: the high watermark is all it can trust.
        replica.truncate_to(replica.high_watermark)
        _fetch_from_end(replica)
    elif protocol is TruncationProtocol.KIP279:
        replica.phase = _TRUNCATING
    else:
        _fetch_from_end(replica)


def _fetch_from_end(replica: Replica) -> None:
    replica.phase = _FETCHING
    replica.fetch_offset = replica.log_end
    replica.last_fetched_epoch = replica.epochs.latest


def ask(replica: Replica, now_ms: int, limit: int) -> Ask | None:
    """The next question to the leader, or None while this partition has to wait."""
    phase = replica.phase
    if phase is _FAILED or replica.not_before_ms > now_ms or replica.hand_over is not None:
        return None
    truncating = phase is _TRUNCATING
    last_epoch = replica.epochs.latest if truncating else replica.last_fetched_epoch
    question = (
        replica.partition,
        truncating,
        replica.fetch_offset,
        replica.leader_epoch,
        last_epoch,
        limit,
    )
    # Most questions of a large cluster are the ones asked before: they are known again as such.
    if replica.asked != question:
        replica.asked = Ask(*question)
    return replica.asked


def take(broker: Broker, replica: Replica, reply: Answer) -> bool:
    """Act on the leader's answer; True if the log changed."""
    if reply.error:
        return _take_error(broker, replica, reply)
    if reply.ask.epoch_question:
        if replica.phase is not _TRUNCATING or reply.ask.leader_epoch != _fetch_epoch(replica):
            return False
        assert reply.epoch_end is not None
        _take_epoch_end(replica, *reply.epoch_end)
        return True
    if replica.phase is not _FETCHING or reply.ask.offset != replica.fetch_offset:
        # The partition was truncated or started over while the request was under way.
        return False
    if reply.diverging is not None:
        _truncate_by_divergence(replica, *reply.diverging)
        return True
    if reply.runs:
        replica.append_fetched(reply.runs)
        replica.last_fetched_epoch = reply.runs[-1].epoch
        replica.fetch_offset = replica.log_end
    if reply.high_watermark != replica.high_watermark:
        replica.set_high_watermark(reply.high_watermark)
    if reply.log_start > replica.log.start and replica.preset.delete_records:
        replica.raise_log_start(reply.log_start)
    if reply.runs:
        return True
    replica.nothing_new = reply
    return False


def _fetch_epoch(replica: Replica) -> int:
    """The leader epoch that the fetcher works in: not the replica's own before it has been told."""
    return replica.leader_epoch if replica.hand_over is None else replica.hand_over.epoch


def is_old_news(replica: Replica, reply: Answer) -> bool:
    """Whether taking this answer would change nothing: it is the one that brought nothing last
    time, and the replica stands where it stood."""
    return (
        reply is replica.nothing_new
        and reply.ask.offset == replica.fetch_offset
        and reply.high_watermark == replica.high_watermark
        and reply.log_start <= replica.log.start
        and replica.phase is _FETCHING
    )


def _take_error(broker: Broker, replica: Replica, reply: Answer) -> bool:
    if reply.error == "OFFSET_OUT_OF_RANGE":
        if replica.phase is _FETCHING and reply.ask.offset == replica.fetch_offset:
            return _out_of_range(broker, replica, reply)
        return False
    if reply.error == "FENCED_LEADER_EPOCH" and reply.ask.leader_epoch == _fetch_epoch(replica):
        # It waits for the metadata that it has missed.
        replica.phase = _FAILED
        return False
    replica.not_before_ms = broker.now_ms + broker.settings.replica_fetch_backoff_ms
    return False


def _out_of_range(broker: Broker, replica: Replica, reply: Answer) -> bool:
    if reply.log_end < replica.log_end:
        if replica.preset.exits_when_ahead_of_leader and not broker.unclean_allowed(
            replica.partition.topic
        ):
            broker.exit("log truncation is not allowed for partition " + str(replica.partition))
            return False
        replica.truncate_to(reply.log_end)
    elif reply.log_start > replica.log_end:
        replica.restart_at(reply.log_start)
    elif replica.fetch_offset == replica.log_end and reply.log_start <= replica.log_end:
        # Nothing to change: asking again at once would only repeat the answer.
        replica.not_before_ms = broker.now_ms + broker.settings.replica_fetch_backoff_ms
    replica.fetch_offset = replica.log_end
    replica.last_fetched_epoch = replica.epochs.latest
    return True


def _take_epoch_end(replica: Replica, epoch: int, end: int) -> None:
    """KIP-101 looks once; KIP-279 repeats until leader and follower mean the same epoch."""
    unknown = end == UNDEFINED_OFFSET
    if unknown or not replica.preset.epoch_answer_names_epoch:
        answer = None if unknown else end
        watermark = replica.high_watermark
        replica.truncate_to(
            cut_by_lookup(answer, log_end=replica.log_end, high_watermark=watermark)
        )
        _fetch_from_end(replica)
    elif _cut(replica, EpochEnd(epoch, end)):
        _fetch_from_end(replica)


def _truncate_by_divergence(replica: Replica, epoch: int, end: int) -> None:
    _cut(replica, EpochEnd(epoch, end))
    _fetch_from_end(replica)


def _cut(replica: Replica, answer: EpochEnd) -> bool:
    """Truncate by the leader's answer; True if that settles it."""
    found = EpochEnd(*replica.epochs.end_offset_for(answer.epoch, replica.log_end))
    own = None if found.end == UNDEFINED_OFFSET else found
    cut = cut_by_round(answer, own, log_end=replica.log_end)
    replica.truncate_to(cut.offset)
    return cut.settled
