"""Where a follower cuts its log: the leader's answers, the follower's use of them, the whole story.

Four protocols (`RuleSet.truncation`): own high watermark (up to 0.10.2), one epoch look-up
(KIP-101, 0.11 - 1.1), several look-ups (KIP-279, 2.0 - 2.7), and the leader's report in the fetch
response (follower from 2.8). Mirrors AbstractFetcherThread, ReplicaFetcherThread and
Partition.readRecords.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.epochs import (
    UNDEFINED_END,
    EndOffset,
    end_offset_for,
    latest_epoch,
    truncate_from_end,
)
from tidestaff.consistency.model import UNDEFINED_EPOCH, UNDEFINED_OFFSET, BrokerId, Lineage
from tidestaff.consistency.versions import RuleSet, Truncation, TruncationTrigger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

NONE: Final = "NONE"
FENCED_LEADER_EPOCH: Final = "FENCED_LEADER_EPOCH"
UNKNOWN_LEADER_EPOCH: Final = "UNKNOWN_LEADER_EPOCH"
NOT_LEADER_OR_FOLLOWER: Final = "NOT_LEADER_OR_FOLLOWER"
UNKNOWN_TOPIC_OR_PARTITION: Final = "UNKNOWN_TOPIC_OR_PARTITION"
OFFSET_OUT_OF_RANGE: Final = "OFFSET_OUT_OF_RANGE"

OWN_HIGH_WATERMARK: Final = "own high watermark"


class ReplicaLog(NamedTuple):
    """One replica's log as far as truncation looks at it."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    lineage: Lineage


class EpochAnswer(NamedTuple):
    """The leader's answer to OffsetsForLeaderEpoch, or the diverging epoch of a fetch response."""

    error: str
    epoch: int
    end_offset: int


class FetchAnswer(NamedTuple):
    """The leader's answer to a follower's fetch: an error, a diverging epoch, or (neither) data."""

    error: str
    diverging: EndOffset | None


class TruncationStep(NamedTuple):
    """One round: cut to `truncate_to` (None: cut nothing); `complete` = the last round."""

    truncate_to: int | None
    complete: bool
    because: str


class TruncationPrediction(NamedTuple):
    """Where a follower's log ends when truncation is over, and the cuts that lead there.

    `rounds` lists cuts that changed something: records, or a trailing epoch without any.
    `exact` is False where the two logs do not settle it: a cut by the own high watermark (after a
    restart it is the checkpointed one, up to 5 s older, so `final_offset` is an upper bound), a
    broker that exits, a follower the leader turns away for ever. `restart_at`: nothing of the old
    log stays, it begins anew at the leader's log start, above the old end.
    """

    final_offset: int
    rounds: tuple[int, ...]
    because: str
    exact: bool
    restart_at: int | None = None


class OutOfRangeAction(Enum):
    """What a follower does when the leader does not have the offset it asked for."""

    TRUNCATE = "truncate-to-leader-end"
    RESTART = "drop-all-and-start-at-leader-start"
    KEEP = "keep-and-retry"
    EXIT = "broker-exits"


class OutOfRangeStep(NamedTuple):
    """`fetch_offset` is where it goes on; `log_start_offset` is given only where it is set anew."""

    action: OutOfRangeAction
    fetch_offset: int
    log_start_offset: int | None = None


def check_leader_epoch(
    *,
    local_leader_epoch: int,
    current_leader_epoch: int | None,
    leads: bool,
    leader_required: bool = True,
    partition_known: bool = True,
) -> str:
    """A request of another leader epoch is refused before it is asked whether this broker leads.

    `current_leader_epoch` is the requester's (2.1+, KIP-320); None, or -1, skips the check.
    """
    if not partition_known:
        return UNKNOWN_TOPIC_OR_PARTITION
    if current_leader_epoch is not None and current_leader_epoch != UNDEFINED_EPOCH:
        if current_leader_epoch < local_leader_epoch:
            return FENCED_LEADER_EPOCH
        if current_leader_epoch > local_leader_epoch:
            return UNKNOWN_LEADER_EPOCH
    return NOT_LEADER_OR_FOLLOWER if leader_required and not leads else NONE


def check_follower_fetch(
    *,
    assignment: Collection[BrokerId],
    follower: BrokerId,
    local_leader_epoch: int,
    current_leader_epoch: int | None,
) -> str:
    """A leader serves assigned replicas only; one it does not know may come of a newer assignment.

    So a request that names the leader's epoch is told to wait for that, any other to look again.
    """
    error = check_leader_epoch(
        local_leader_epoch=local_leader_epoch, current_leader_epoch=current_leader_epoch, leads=True
    )
    if error != NONE or follower in assignment:
        return error
    return NOT_LEADER_OR_FOLLOWER if current_leader_epoch is None else UNKNOWN_LEADER_EPOCH


def answer_end_offset(
    *,
    lineage: Lineage,
    log_end_offset: int,
    requested_epoch: int,
    rules: RuleSet,
    error: str = NONE,
) -> EpochAnswer:
    """OffsetsForLeaderEpoch is answered from the epoch cache; an error comes with (-1, -1)."""
    if error != NONE:
        return EpochAnswer(error, UNDEFINED_EPOCH, UNDEFINED_OFFSET)
    end = end_offset_for(lineage, requested_epoch, log_end_offset=log_end_offset, rules=rules)
    return EpochAnswer(NONE, end.epoch, end.end_offset)


def answer_fetch(
    *, leader: ReplicaLog, fetch_offset: int, last_fetched_epoch: int | None, rules: RuleSet
) -> FetchAnswer:
    """A follower whose last epoch ended earlier here is told so, instead of being sent data (2.7+).

    An epoch this leader cannot place, and an offset below its log start, are out of range: they are
    looked at before divergence.
    """
    out_of_range = FetchAnswer(OFFSET_OUT_OF_RANGE, None)
    if last_fetched_epoch is not None and rules.leader_reports_divergence:
        end = end_offset_for(
            leader.lineage, last_fetched_epoch, log_end_offset=leader.log_end_offset, rules=rules
        )
        if end.is_undefined or end.epoch == UNDEFINED_EPOCH:
            return out_of_range
        if fetch_offset < leader.log_start_offset:
            return out_of_range
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return FetchAnswer(NONE, end)
    if not leader.log_start_offset <= fetch_offset <= leader.log_end_offset:
        return out_of_range
    return FetchAnswer(NONE, None)


def must_truncate(
    *,
    rules: RuleSet,
    old_leader: int | None,
    new_leader: int,
    old_leader_epoch: int | None,
    new_leader_epoch: int,
) -> bool:
    """A follower goes through truncation when its leader changes; from 2.1 at every epoch bump.

    2.0.1 does so also when it missed an epoch in between. The same leader epoch again never does,
    and a replica that has just started (no old leader or epoch) always does.
    """
    if old_leader is None or old_leader_epoch is None:
        return True
    if new_leader_epoch <= old_leader_epoch:
        return False
    if rules.truncation_trigger is TruncationTrigger.EVERY_EPOCH:
        return True
    if rules.truncation_trigger is TruncationTrigger.LEADER_DIFFERS_OR_EPOCH_SKIPS:
        return old_leader != new_leader or new_leader_epoch > old_leader_epoch + 1
    return old_leader != new_leader


def truncation_point(
    *,
    protocol: Truncation,
    answer: EpochAnswer | None,
    log_end_offset: int,
    initial_fetch_offset: int,
    own_end_offset_for: Callable[[int], EndOffset] | None = None,
) -> TruncationStep:
    """The follower's cut in one round, never above its own log end.

    `initial_fetch_offset` is what it falls back to: its high watermark. `answer` is None where it
    does not ask (no epoch of its own). `own_end_offset_for` looks an epoch up in its own cache.
    """

    def cut(to: int, because: str, *, complete: bool = True) -> TruncationStep:
        return TruncationStep(max(0, min(to, log_end_offset)), complete, because)

    if protocol is Truncation.HIGH_WATERMARK:
        return cut(initial_fetch_offset, OWN_HIGH_WATERMARK)
    if answer is None:
        return cut(initial_fetch_offset, f"no epoch of its own: {OWN_HIGH_WATERMARK}")
    if answer.error != NONE:
        waits = "waits for new metadata" if answer.error == FENCED_LEADER_EPOCH else "asks again"
        return TruncationStep(None, complete=False, because=f"{answer.error}: {waits}")
    if answer.end_offset == UNDEFINED_OFFSET:
        return cut(initial_fetch_offset, f"the leader cannot place it: {OWN_HIGH_WATERMARK}")
    if protocol is Truncation.KIP_101 or answer.epoch == UNDEFINED_EPOCH:
        return cut(answer.end_offset, "end of its latest epoch on the leader")
    own = own_end_offset_for(answer.epoch) if own_end_offset_for else UNDEFINED_END
    if own.is_undefined:
        return cut(answer.end_offset, f"epoch {answer.epoch} is older than all of its own")
    if own.epoch != answer.epoch:
        because = f"epoch {answer.epoch} is unknown to it, {own.epoch} is the next older one"
        return cut(own.end_offset, because, complete=False)
    return cut(min(own.end_offset, answer.end_offset), f"last common epoch {answer.epoch}")


def on_out_of_range(
    *,
    log_end_offset: int,
    leader_log_start_offset: int,
    leader_log_end_offset: int,
    rules: RuleSet,
    unclean_allowed: bool,
) -> OutOfRangeStep:
    """A follower ahead of its leader cuts to the leader's end; one behind its start begins anew.

    Up to 2.0.0 a broker ahead of its leader exits instead if the topic forbids unclean election.
    """
    if leader_log_end_offset < log_end_offset:
        if rules.broker_exits_when_ahead_of_leader and not unclean_allowed:
            return OutOfRangeStep(OutOfRangeAction.EXIT, log_end_offset)
        return OutOfRangeStep(OutOfRangeAction.TRUNCATE, leader_log_end_offset)
    if leader_log_start_offset > log_end_offset:
        return OutOfRangeStep(
            OutOfRangeAction.RESTART, leader_log_start_offset, leader_log_start_offset
        )
    return OutOfRangeStep(OutOfRangeAction.KEEP, log_end_offset)


def on_moved_to_tiered_storage(
    *, leader_log_start_offset: int, leader_local_log_start_offset: int
) -> OutOfRangeStep:
    """The local log begins anew at the leader's local start; the log start stays the remote one."""
    return OutOfRangeStep(
        OutOfRangeAction.RESTART, leader_local_log_start_offset, leader_log_start_offset
    )


def predict_truncation(
    *, follower: ReplicaLog, leader: ReplicaLog, rules: RuleSet, unclean_allowed: bool = True
) -> TruncationPrediction:
    """A follower told to follow this leader ends here, by the protocol of its version.

    On two replicas of one history the protocols from 2.0 end at the longest common prefix. `leader`
    is its log as it leads: with its own (leader epoch, LEO) entry from 2.0.1. `unclean_allowed`
    counts up to 2.0.0 only.
    """
    log, rounds, because = follower, list[int](), "nothing diverges"
    asks_first = rules.truncation is not Truncation.ON_FETCH or not log.lineage
    settled = not asks_first
    while not settled:
        step = _lookup_round(log, leader=leader, rules=rules)
        before, log = log, _cut(log, step.truncate_to)
        because = step.because
        settled = step.complete or log == before
        if log != before:
            rounds.append(log.log_end_offset)
    # A cut by the own high watermark is as old as that watermark, whatever a fetch cuts later.
    exact = OWN_HIGH_WATERMARK not in because
    while True:
        outcome = _fetch_round(log, leader=leader, rules=rules, unclean_allowed=unclean_allowed)
        if outcome is None:
            return TruncationPrediction(log.log_end_offset, tuple(rounds), because, exact)
        because = outcome.because
        if outcome.truncate_to is None:
            return TruncationPrediction(
                log.log_end_offset, tuple(rounds), because, exact=False, restart_at=outcome.restart
            )
        before, log = log, _cut(log, outcome.truncate_to)
        if log == before:
            because = f"{because}, again and again"
            return TruncationPrediction(log.log_end_offset, tuple(rounds), because, exact=False)
        rounds.append(log.log_end_offset)


class _FetchRound(NamedTuple):
    truncate_to: int | None
    because: str
    restart: int | None = None


def _cut(log: ReplicaLog, to: int | None) -> ReplicaLog:
    if to is None:
        return log
    return log._replace(
        log_end_offset=min(to, log.log_end_offset),
        high_watermark=min(to, log.high_watermark),
        lineage=truncate_from_end(log.lineage, to),
    )


def _lookup_round(log: ReplicaLog, *, leader: ReplicaLog, rules: RuleSet) -> TruncationStep:
    """One OffsetsForLeaderEpoch request, its answer and the cut it leads to."""
    asked = latest_epoch(log.lineage)
    if asked is None and rules.truncation is Truncation.KIP_101:
        # Before 2.0 a follower without epochs asks all the same, with the undefined epoch.
        asked = UNDEFINED_EPOCH
    answer = None
    if asked is not None and rules.truncation is not Truncation.HIGH_WATERMARK:
        answer = answer_end_offset(
            lineage=leader.lineage,
            log_end_offset=leader.log_end_offset,
            requested_epoch=asked,
            rules=rules,
        )
    return _step(log, answer, rules)


def _fetch_round(
    log: ReplicaLog, *, leader: ReplicaLog, rules: RuleSet, unclean_allowed: bool
) -> _FetchRound | None:
    """One fetch at the own log end: None where the leader sends data."""
    on_fetch = rules.truncation is Truncation.ON_FETCH
    answer = answer_fetch(
        leader=leader,
        fetch_offset=log.log_end_offset,
        last_fetched_epoch=latest_epoch(log.lineage) if on_fetch else None,
        rules=rules,
    )
    if answer.diverging is not None:
        step = _step(log, EpochAnswer(NONE, *answer.diverging), rules)
        return _FetchRound(step.truncate_to, step.because)
    if answer.error == NONE:
        return None
    out = on_out_of_range(
        log_end_offset=log.log_end_offset,
        leader_log_start_offset=leader.log_start_offset,
        leader_log_end_offset=leader.log_end_offset,
        rules=rules,
        unclean_allowed=unclean_allowed,
    )
    because = f"out of range: {out.action.value}"
    if out.action is OutOfRangeAction.TRUNCATE:
        return _FetchRound(out.fetch_offset, because)
    return _FetchRound(None, because, out.log_start_offset)


def _step(log: ReplicaLog, answer: EpochAnswer | None, rules: RuleSet) -> TruncationStep:
    return truncation_point(
        protocol=rules.truncation,
        answer=answer,
        log_end_offset=log.log_end_offset,
        initial_fetch_offset=log.high_watermark,
        own_end_offset_for=lambda epoch: end_offset_for(
            log.lineage, epoch, log_end_offset=log.log_end_offset, rules=rules
        ),
    )
