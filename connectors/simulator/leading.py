"""What a leader does: answer fetches, keep its followers' progress, move the high watermark, and
propose ISR changes (kafka.cluster.Partition)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.connectors.simulator.presets import TruncationProtocol
from tidestaff.connectors.simulator.replica import NEVER_MS, FollowerProgress
from tidestaff.consistency.model import UNDEFINED_EPOCH, UNDEFINED_OFFSET, TopicPartition

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.fetcher import FetchRequest
    from tidestaff.connectors.simulator.log import Run
    from tidestaff.connectors.simulator.replica import LeadershipOrder, Replica
    from tidestaff.consistency.model import BrokerId


class Ask(NamedTuple):
    """One partition in a follower's request: records from `offset`, or the end of an epoch."""

    partition: TopicPartition
    epoch_question: bool
    offset: int
    leader_epoch: int
    last_epoch: int
    limit: int


class Answer(NamedTuple):
    """The leader's word on one Ask."""

    ask: Ask
    error: str = ""
    runs: tuple[Run, ...] = ()
    high_watermark: int = 0
    log_start: int = 0
    log_end: int = 0
    diverging: tuple[int, int] | None = None
    epoch_end: tuple[int, int] | None = None

    @property
    def is_news(self) -> bool:
        """Worth answering at once; otherwise the request waits for records to come."""
        return bool(self.error or self.runs or self.diverging or self.epoch_end)


def become_leader(broker: Broker, replica: Replica, order: LeadershipOrder) -> None:
    """A new leader epoch enters its start in the epoch file and forgets what it knew of followers
    it did not lead before; the same epoch changes assignment and ISR only."""
    now, new_leader = broker.now_ms, not replica.leads
    new_epoch = order.state.leader_epoch > replica.leader_epoch
    replica.known, replica.leader = True, broker.id
    replica.leader_epoch = order.state.leader_epoch
    replica.partition_epoch = order.state.partition_epoch
    replica.isr, replica.assignment = order.state.isr, order.assignment
    if order.state.controller_epoch is not None:
        replica.controller_epoch = order.state.controller_epoch
    replica.pending_isr = None
    others = [b for b in order.assignment.replicas if b != broker.id]
    replica.followers = {b: replica.followers.get(b, FollowerProgress()) for b in others}
    if new_epoch:
        replica.epoch_start = replica.log_end
        if replica.preset.epoch_file and replica.preset.epoch_written_at_once:
            replica.epochs.assign(replica.leader_epoch, replica.log_end)
        for follower, progress in replica.followers.items():
            _reset(progress, replica, now, new_leader=new_leader, in_sync=follower in replica.isr)
    replica.touched.add(replica.partition)
    maybe_raise_high_watermark(broker, replica)


def _reset(
    progress: FollowerProgress, replica: Replica, now: int, *, new_leader: bool, in_sync: bool
) -> None:
    progress.last_caught_up_ms = now if in_sync else NEVER_MS
    progress.answered = None
    if new_leader:
        progress.log_end_offset = progress.last_fetch_leader_end = -1
        progress.last_fetch_ms = NEVER_MS
        progress.broker_epoch = None
    else:
        progress.last_fetch_leader_end = replica.epoch_start
        progress.last_fetch_ms = now if in_sync else NEVER_MS


def hear(
    broker: Broker, request: FetchRequest
) -> tuple[tuple[Answer, ...], list[FollowerProgress], bool]:
    """Answer a follower's request and note its progress: the answers, whose progress stood still at
    the log's end, and whether there is any news."""
    answers: list[Answer] = []
    at_rest: list[FollowerProgress] = []
    news, now = False, broker.now_ms
    replicas, follower, epoch = broker.replicas, request.follower, request.broker_epoch
    for ask in request.asks:
        replica = replicas.get(ask.partition)
        progress = replica.followers.get(follower) if replica is not None else None
        if replica is not None and progress is not None:
            known = progress.answered
            if (
                known is not None
                and known.ask is ask
                and ask.offset == progress.log_end_offset == replica.log.end
                and _says_so_still(replica, known)
                and follower in replica.isr
            ):
                # Nearly all of a large cluster: a member of the ISR that goes on at the log's end.
                progress.last_caught_up_ms = progress.last_fetch_ms = now
                progress.last_fetch_leader_end = ask.offset
                progress.broker_epoch = epoch
                answers.append(known)
                at_rest.append(progress)
                continue
        found = answer(broker, follower, ask)
        if found.error or found.diverging or ask.epoch_question:
            news = True
        else:
            note_progress(broker, follower, epoch, ask, found.log_end)
            if found.runs:
                news = True
            else:
                high_watermark = replicas[ask.partition].high_watermark
                if found.high_watermark != high_watermark:
                    found = found._replace(high_watermark=high_watermark)
        answers.append(found)
    return tuple(answers), at_rest, news


def _says_so_still(replica: Replica, known: Answer) -> bool:
    log = replica.log
    return (
        known.log_end == log.end
        and known.high_watermark == replica.high_watermark
        and known.log_start == log.start
    )


def answer(broker: Broker, follower: BrokerId, ask: Ask) -> Answer:
    """Read only: what the leader would say now, without noting the follower's progress."""
    replica = broker.replicas.get(ask.partition)
    progress = replica.followers.get(follower) if replica is not None else None
    if replica is not None and progress is not None:
        # The same question about the same log has the same answer; within an epoch a leader's log
        # only grows, and who leaves an epoch or the office forgets what it answered.
        known = progress.answered
        if known is not None and known.ask is ask and _says_so_still(replica, known):
            return known
    if replica is None or replica.leader != broker.id or not replica.known:
        return Answer(ask, "NOT_LEADER")
    if broker.preset.fetch_fenced and ask.leader_epoch != replica.leader_epoch:
        behind = ask.leader_epoch < replica.leader_epoch
        return Answer(ask, "FENCED_LEADER_EPOCH" if behind else "UNKNOWN_LEADER_EPOCH")
    if progress is None:
        return Answer(ask, "UNKNOWN_TOPIC_OR_PARTITION")
    if ask.epoch_question:
        return Answer(ask, epoch_end=replica.epochs.end_offset_for(ask.last_epoch, replica.log_end))
    found = _records(replica, ask)
    progress.answered = None if found.is_news else found
    return found


def _records(replica: Replica, ask: Ask) -> Answer:
    log = replica.log
    found = Answer(ask, "", (), replica.high_watermark, log.start, log.end)
    if (
        replica.preset.truncation is TruncationProtocol.ON_FETCH
        and ask.last_epoch != UNDEFINED_EPOCH
    ):
        epoch, end = replica.epochs.end_offset_for(ask.last_epoch, log.end)
        if end == UNDEFINED_OFFSET or ask.offset < log.start:
            return found._replace(error="OFFSET_OUT_OF_RANGE")
        if epoch < ask.last_epoch or end < ask.offset:
            return found._replace(diverging=(epoch, end))
    if not log.start <= ask.offset <= log.end:
        return found._replace(error="OFFSET_OUT_OF_RANGE")
    if ask.offset == log.end:
        return found
    upto = min(log.end, ask.offset + ask.limit)
    return found._replace(runs=tuple(log.slice(ask.offset, upto)))


def note_progress(
    broker: Broker, follower: BrokerId, broker_epoch: int | None, ask: Ask, leader_end: int
) -> None:
    """A fetch at `ask.offset` says that the follower holds everything below it."""
    replica = broker.replicas[ask.partition]
    progress = replica.followers[follower]
    now, before = broker.now_ms, progress.log_end_offset
    if ask.offset >= leader_end:
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, now)
    elif (
        replica.preset.caught_up_by_previous_fetch and ask.offset >= progress.last_fetch_leader_end
    ):
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
    progress.log_end_offset = ask.offset
    progress.last_fetch_leader_end = leader_end
    progress.last_fetch_ms = now
    progress.broker_epoch = broker_epoch
    maybe_expand_isr(broker, replica, follower)
    if before != progress.log_end_offset:
        maybe_raise_high_watermark(broker, replica)


def maybe_raise_high_watermark(broker: Broker, replica: Replica) -> None:
    """HW = the least log end of the maximal ISR and of caught-up replicas outside it; it never
    falls while leading."""
    preset, now = replica.preset, broker.now_ms
    if preset.hw_frozen_under_min_isr and len(replica.isr) < effective_min_isr(broker, replica):
        return
    new = replica.log_end
    maximal = set(replica.isr) | set(replica.pending_isr or ())
    for follower in sorted(replica.followers):
        progress = replica.followers[follower]
        if progress.log_end_offset >= new:
            continue
        waits = follower in maximal
        if not waits and preset.hw_waits_outside_isr:
            waits = _caught_up(broker, replica, progress, now) and (
                not preset.hw_ignores_inactive or broker.sees_active(replica, follower)
            )
        if waits:
            new = progress.log_end_offset
    if new > replica.high_watermark:
        replica.set_high_watermark(new)


def effective_min_isr(broker: Broker, replica: Replica) -> int:
    return min(broker.min_isr(replica.partition.topic), len(replica.assignment.replicas))


def _caught_up(broker: Broker, replica: Replica, progress: FollowerProgress, now: int) -> bool:
    at_end = progress.log_end_offset == replica.log_end
    return at_end or now - progress.last_caught_up_ms <= broker.settings.lag_ms


def maybe_expand_isr(broker: Broker, replica: Replica, follower: BrokerId) -> None:
    """A follower joins once it has everything committed, and the start of this epoch (2.0.1+)."""
    preset, progress = replica.preset, replica.followers[follower]
    if follower in replica.isr or replica.pending_isr is not None:
        return
    if progress.log_end_offset < replica.high_watermark:
        return
    if preset.join_needs_epoch_start and progress.log_end_offset < replica.epoch_start:
        return
    if preset.isr_members_active and not broker.sees_active(replica, follower):
        return
    broker.propose_isr(replica, (*replica.isr, follower))


def shrink_isr(broker: Broker, replica: Replica) -> None:
    """Members that have not caught up for replica.lag.time.max.ms leave (0.8: or are too many
    messages behind)."""
    if not replica.leads or replica.pending_isr is not None:
        return
    now = broker.now_ms
    out = set()
    for member in replica.isr:
        progress = replica.followers.get(member)
        if progress is None:
            continue
        at_end = progress.log_end_offset == replica.log_end
        if at_end and replica.preset.at_leader_end_never_lags:
            continue
        heard_ms = progress.last_caught_up_ms
        if replica.preset.lag_by_messages:
            # 0.8: any fetch renews the clock, but nobody may be too many messages behind.
            heard_ms = max(heard_ms, progress.last_fetch_ms)
            if replica.log_end - progress.log_end_offset > broker.settings.replica_lag_max_messages:
                out.add(member)
        if now - heard_ms > broker.settings.lag_ms:
            out.add(member)
    if out:
        broker.propose_isr(replica, tuple(b for b in replica.isr if b not in out))
