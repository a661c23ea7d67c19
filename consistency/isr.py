"""In-sync replicas as their leader keeps them: who is caught up, who leaves, who may join.

Mirrors cluster/Replica (what a leader remembers of each follower) and cluster/Partition (the ISR
and its change in flight). Times are arguments, in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.model import (
    UNDEFINED_OFFSET,
    UNKNOWN_BROKER_EPOCH,
    BrokerId,
    Registration,
)
from tidestaff.consistency.versions import Mode, RuleSet

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NONE: Final = "NONE"
REPLICA_LAG_MAX_MESSAGES_DEFAULT: Final = 4000

_BACK_TO_COMMITTED: Final = frozenset({"INELIGIBLE_REPLICA", "OPERATION_NOT_ATTEMPTED"})
_STAY_PENDING: Final = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "INVALID_UPDATE_VERSION",
        "INVALID_REQUEST",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "NEW_LEADER_ELECTED",
    }
)


class FollowerState(NamedTuple):
    """What a leader remembers of one follower.

    `log_end_offset` is the offset of the follower's last fetch *request*: one fetch behind its real
    log end. `broker_epoch` is the one that fetch carried; None before the first.
    """

    log_start_offset: int = UNDEFINED_OFFSET
    log_end_offset: int = UNDEFINED_OFFSET
    last_caught_up_ms: int = 0
    last_fetch_leader_log_end_offset: int = 0
    last_fetch_ms: int = 0
    broker_epoch: int | None = None


def record_fetch(
    state: FollowerState,
    *,
    fetch_offset: int,
    follower_log_start_offset: int,
    leader_log_end_offset: int,
    now_ms: int,
    rules: RuleSet,
    broker_epoch: int = UNKNOWN_BROKER_EPOCH,
) -> FollowerState:
    """A follower is caught up as of the last fetch whose leader log end it has reached.

    Without the second branch (before 0.10.2) a follower of a busy leader, always a little behind,
    would never count. A fetch answered with a diverging epoch must not come here.
    """
    caught_up = state.last_caught_up_ms
    if fetch_offset >= leader_log_end_offset:
        caught_up = max(caught_up, now_ms)
    elif (
        rules.caught_up_by_previous_fetch and fetch_offset >= state.last_fetch_leader_log_end_offset
    ):
        caught_up = max(caught_up, state.last_fetch_ms)
    leader_end = leader_log_end_offset
    if rules.last_fetch_leader_end_never_falls:
        leader_end = max(leader_end, state.last_fetch_leader_log_end_offset)
    return FollowerState(
        log_start_offset=follower_log_start_offset,
        log_end_offset=fetch_offset,
        last_caught_up_ms=caught_up,
        last_fetch_leader_log_end_offset=leader_end,
        last_fetch_ms=now_ms,
        broker_epoch=broker_epoch,
    )


def reset_follower(
    state: FollowerState,
    *,
    leader_log_end_offset: int,
    new_leader: bool,
    in_sync: bool,
    now_ms: int,
) -> FollowerState:
    """A new leader epoch gives ISR members a fresh start; a new leader forgets their log ends.

    Not called when only the partition epoch changed.
    """
    since = now_ms if in_sync else 0
    if new_leader:
        return FollowerState(
            last_caught_up_ms=since, last_fetch_leader_log_end_offset=UNDEFINED_OFFSET
        )
    return state._replace(
        last_caught_up_ms=since,
        last_fetch_leader_log_end_offset=leader_log_end_offset,
        last_fetch_ms=since,
    )


def is_fetch_stale(
    *, fetch_broker_epoch: int, known_broker_epoch: int | None, rules: RuleSet
) -> bool:
    """A fetch from before its broker registered anew is refused; -1 skips the check (KIP-903)."""
    if not rules.isr_member_epochs_checked or fetch_broker_epoch == UNKNOWN_BROKER_EPOCH:
        return False
    return known_broker_epoch is not None and known_broker_epoch > fetch_broker_epoch


def is_caught_up(
    state: FollowerState,
    *,
    leader_log_end_offset: int,
    now_ms: int,
    max_lag_ms: int,
    rules: RuleSet,
) -> bool:
    """Caught up within the lag time; from 2.1 standing at the leader's end counts for ever."""
    at_end = state.log_end_offset == leader_log_end_offset
    if rules.at_leader_end_never_out_of_sync and at_end:
        return True
    return now_ms - state.last_caught_up_ms <= max_lag_ms


def out_of_sync(
    *,
    isr: Collection[BrokerId],
    leader: BrokerId,
    followers: Mapping[BrokerId, FollowerState],
    leader_log_end_offset: int,
    now_ms: int,
    max_lag_ms: int,
    rules: RuleSet,
    max_lag_messages: int = REPLICA_LAG_MAX_MESSAGES_DEFAULT,
) -> tuple[BrokerId, ...]:
    """The ISR members a leader takes out at this check, which it runs every half lag time."""

    def is_out(replica: BrokerId) -> bool:
        state = followers.get(replica)
        if state is None:
            return True
        if rules.lag_by_messages:
            return _is_out_by_messages(
                state,
                leader_log_end_offset=leader_log_end_offset,
                now_ms=now_ms,
                max_lag_ms=max_lag_ms,
                max_lag_messages=max_lag_messages,
            )
        return not is_caught_up(
            state,
            leader_log_end_offset=leader_log_end_offset,
            now_ms=now_ms,
            max_lag_ms=max_lag_ms,
            rules=rules,
        )

    return tuple(replica for replica in isr if replica != leader and is_out(replica))


def _is_out_by_messages(
    state: FollowerState,
    *,
    leader_log_end_offset: int,
    now_ms: int,
    max_lag_ms: int,
    max_lag_messages: int,
) -> bool:
    """0.8: silent for the lag time, or too many messages behind."""
    # Every fetch counts as a sign of life there, also one that does not move the log end.
    heard_ms = max(state.last_fetch_ms, state.last_caught_up_ms)
    behind = leader_log_end_offset - state.log_end_offset
    slow = state.log_end_offset >= 0 and behind > max_lag_messages
    return now_ms - heard_ms > max_lag_ms or slow


def is_eligible(
    *, registration: Registration | None, fetch_broker_epoch: int | None, rules: RuleSet
) -> bool:
    """ISR members must be alive, unfenced, staying (3.3+), and registered as before (3.5+ KRaft).

    `fetch_broker_epoch` is the one the leader remembers of the replica's last fetch.
    """
    if not rules.isr_members_must_be_active:
        return True
    if registration is None:
        return False
    if rules.mode is Mode.ZOOKEEPER:
        return True
    if registration.fenced or registration.shutting_down:
        return False
    if not rules.isr_member_epochs_checked:
        return True
    return fetch_broker_epoch in (UNKNOWN_BROKER_EPOCH, registration.broker_epoch)


class IsrState(NamedTuple):
    """The ISR the controller confirmed, and the change the leader has asked for."""

    committed: tuple[BrokerId, ...]
    pending: tuple[BrokerId, ...] | None = None

    @property
    def in_flight(self) -> bool:
        return self.pending is not None

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        """What the HW waits for: a member being added counts already, one being removed still."""
        joining = (r for r in self.pending or () if r not in self.committed)
        return (*self.committed, *joining)


class IsrAnswer(NamedTuple):
    """The ISR after the controller's answer, and whether the leader sends its request again."""

    state: IsrState
    retry: bool


def why_not_joining(
    *,
    replica: BrokerId,
    isr: IsrState,
    log_end_offset: int,
    high_watermark: int,
    leader_epoch_start_offset: int | None,
    eligible: bool,
    rules: RuleSet,
) -> str | None:
    """What keeps a replica that has just fetched out of the ISR; None if it may join now.

    How long it has lagged is not looked at: a slow replica can join and be thrown out again.
    """
    if replica in isr.committed:
        return "already a member"
    if isr.in_flight:
        return "another ISR change is in flight"
    if log_end_offset < high_watermark:
        return f"its log end {log_end_offset} is below the high watermark {high_watermark}"
    if rules.isr_join_needs_epoch_start:
        if leader_epoch_start_offset is None:
            return "the leader epoch has no start yet"
        if log_end_offset < leader_epoch_start_offset:
            start = leader_epoch_start_offset
            return f"its log end {log_end_offset} is below the leader epoch's start {start}"
    if rules.isr_members_must_be_active and not eligible:
        return "it is fenced, shutting down or registered anew"
    return None


def propose_join(isr: IsrState, replica: BrokerId, *, rules: RuleSet) -> IsrState:
    """A joining member goes to the end of the ISR."""
    return _propose(isr, (*isr.committed, replica), rules=rules)


def propose_shrink(isr: IsrState, leaving: Collection[BrokerId], *, rules: RuleSet) -> IsrState:
    """Members leave without changing the order of the rest; nothing happens while a change runs."""
    if isr.in_flight or not leaving:
        return isr
    return _propose(isr, tuple(r for r in isr.committed if r not in leaving), rules=rules)


def _propose(isr: IsrState, proposed: tuple[BrokerId, ...], *, rules: RuleSet) -> IsrState:
    if not rules.isr_change_through_controller:
        # The leader writes the state znode itself: there is no time in between.
        return IsrState(proposed)
    return isr._replace(pending=proposed)


def on_isr_answer(isr: IsrState, error: str = NONE) -> IsrAnswer:
    """The controller's answer commits, takes back or leaves open the change in flight.

    What the leader cannot interpret stays open until new metadata comes; anything else is retried.
    """
    if error == NONE:
        return IsrAnswer(
            IsrState(isr.committed if isr.pending is None else isr.pending), retry=False
        )
    if error in _BACK_TO_COMMITTED:
        return IsrAnswer(IsrState(isr.committed), retry=False)
    return IsrAnswer(isr, retry=error not in _STAY_PENDING)


def effective_min_isr(*, min_insync_replicas: int, replica_count: int, rules: RuleSet) -> int:
    """min.insync.replicas, from 3.7 never more than there are replicas."""
    if rules.min_isr_capped_by_replicas:
        return min(min_insync_replicas, replica_count)
    return min_insync_replicas


def is_under_replicated(*, replica_count: int, isr_size: int) -> bool:
    """Adding replicas count too, so a running reassignment is under-replicated by law."""
    return isr_size < replica_count


def is_under_min_isr(
    *, isr_size: int, min_insync_replicas: int, replica_count: int, rules: RuleSet
) -> bool:
    return isr_size < effective_min_isr(
        min_insync_replicas=min_insync_replicas, replica_count=replica_count, rules=rules
    )


def is_at_min_isr(
    *, isr_size: int, min_insync_replicas: int, replica_count: int, rules: RuleSet
) -> bool:
    return isr_size == effective_min_isr(
        min_insync_replicas=min_insync_replicas, replica_count=replica_count, rules=rules
    )


def partition_change_is_stale(*, known_partition_epoch: int, new_partition_epoch: int) -> bool:
    """A broker ignores partition state older than what it has; an equal epoch is applied again."""
    return new_partition_epoch < known_partition_epoch
