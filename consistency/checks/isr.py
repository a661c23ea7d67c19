"""ISR: who belongs to the in-sync replicas, who should leave, who should be back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.consistency.memory import MAX_ISR_EXITS
from tidestaff.consistency.model import NO_LEADER
from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Finding, Sight
    from tidestaff.consistency.model import ReplicaReading

FLAPPING_WINDOW_MS: Final = 600_000
# A shrink comes between once and one and a half times the setting; the rest is the controller's
# time.
SHRINK_OVERDUE_FACTOR: Final = 2
SHRINK_OVERDUE_EXTRA_MS: Final = 15_000


def isr_within_assignment(sight: Sight) -> Iterator[Finding]:
    """ISR001: every ISR member is an assigned replica.

    A member outside the assignment may be elected, and the HW waits for it.
    """
    strangers = sorted(set(sight.state.isr) - set(sight.observation.assignment.replicas))
    if strangers:
        yield Violated(
            "ISR001",
            expected=f"ISR within assignment {list(sight.observation.assignment.replicas)}",
            observed=f"ISR {list(sight.state.isr)}",
            because=f"{strangers} hold no assigned replica but may be elected",
            broker=strangers[0],
        )


def isr_members_are_live(sight: Sight) -> Iterator[Finding]:
    """ISR002: a dead or fenced broker leaves the ISR once its session has run out.

    Not judged while there is no leader: the last member is kept on purpose.
    """
    if sight.state.leader < 0:
        return
    for member in sight.state.isr:
        if member == sight.state.leader or member in sight.present:
            continue
        if not sight.controller_settled:
            yield Unknown("ISR002", "a controller that had a session timeout to act", member)
            continue
        fenced = member in sight.registrations
        yield Violated(
            "ISR002",
            expected=f"ISR without {member}",
            observed=f"ISR {list(sight.state.isr)}; {member} is "
            + ("fenced" if fenced else "not registered"),
            because="the controller takes a broker out of the ISR when its registration goes; "
            "the HW waits for it and it may be elected",
            broker=member,
        )


def slow_members_leave(sight: Sight) -> Iterator[Finding]:
    """ISR003: a follower that has not caught up for replica.lag.time.max.ms leaves the ISR.

    What counts is when it last stood at the leader's end, by our own bookkeeping over coherent
    samples, never the difference of two LEOs.
    """
    limit_ms = (
        SHRINK_OVERDUE_FACTOR * sight.observation.settings.replica_lag_time_max_ms
        + SHRINK_OVERDUE_EXTRA_MS
    )
    for reading in sight.followers():
        if reading.broker not in sight.state.isr or reading.log_end_offset is None:
            continue
        remembered = sight.remembered(reading.broker)
        behind_ms = _behind_for_ms(sight, reading)
        if remembered is None or behind_ms <= limit_ms or not sight.controller_settled:
            continue
        yield Violated(
            "ISR003",
            expected=f"broker {reading.broker} leaves the ISR",
            observed=f"LEO {reading.log_end_offset}, leader LEO {sight.leader_end}, still in ISR "
            f"{list(sight.state.isr)}",
            because=f"it has not caught up for {behind_ms} ms; the limit is {limit_ms} ms, from "
            + sight.observation.settings.told("replica_lag_time_max_ms"),
            broker=reading.broker,
        )


def _behind_for_ms(sight: Sight, reading: ReplicaReading) -> int:
    memory, remembered = sight.memory, sight.remembered(reading.broker)
    own_end = reading.log_end_offset
    leader_end = sight.leader.log_end_offset if sight.leader is not None else None
    if memory is None or remembered is None or leader_end is None or own_end is None:
        return 0
    # Within a gap it may have caught up any number of times: the reckoning begins anew.
    lag_time_ms = sight.observation.settings.replica_lag_time_max_ms
    if sight.now_ms - memory.observed_at_ms > lag_time_ms:
        return 0
    if own_end >= leader_end:
        return 0
    return sight.now_ms - remembered.caught_up_at_ms


def caught_up_replicas_join(sight: Sight) -> Iterator[Finding]:
    """ISR004: an active follower that has reached the HW and the epoch's start joins the ISR.

    It joins on a fetch: one that cannot reach its leader stays outside, whatever it holds.
    """
    watermark = sight.leader_watermark
    if watermark is None or not sight.coherent:
        return
    for reading in sight.followers():
        broker, end = reading.broker, reading.log_end_offset
        if broker in sight.state.isr or end is None or end < watermark:
            continue
        if broker not in sight.active or not reading.log_dir_online:
            continue
        if broker not in sight.observation.assignment.replicas:
            continue
        if sight.rules.isr_join_needs_epoch_start:
            if sight.epoch_start is None:
                yield Unknown("ISR004", "where the leader epoch starts", broker)
                continue
            if end < sight.epoch_start:
                continue
        if not sight.has_fetched(broker):
            yield Unknown("ISR004", "a fetch in this leader epoch", broker)
            continue
        if not sight.controller_settled:
            yield Unknown("ISR004", "a controller that had a session timeout to act", broker)
            continue
        yield Violated(
            "ISR004",
            expected=f"ISR with {broker}",
            observed=f"ISR {list(sight.state.isr)}; LEO {end}, leader HW {watermark}",
            because=f"broker {broker} is active and has caught up",
            broker=broker,
        )


def isr_is_steady(sight: Sight) -> Iterator[Finding]:
    """ISR005: a replica does not leave the ISR again and again without a restart.

    Joining does not look at how long a replica kept up, so a slow one joins and is thrown out
    again. Exits that a restart explains do not count.
    """
    memory = sight.memory
    if memory is None:
        return
    for replica in memory.replicas:
        exits = replica.isr_exits_ms
        if len(exits) < MAX_ISR_EXITS or sight.now_ms - exits[0] > FLAPPING_WINDOW_MS:
            continue
        yield Violated(
            "ISR005",
            expected=f"fewer than {MAX_ISR_EXITS} exits in {FLAPPING_WINDOW_MS // 60_000} minutes",
            observed=f"broker {replica.broker} left the ISR {len(exits)} times",
            because="it keeps up only at times: its disk, its network or the lag time is too tight",
            broker=replica.broker,
        )


def above_min_isr(sight: Sight) -> Iterator[Finding]:
    """ISR006: the ISR is larger than min.insync.replicas, so that one failure stops no write.

    Topics whose replication factor equals min.insync.replicas are always there and are left out.
    """
    if sight.state.leader < 0 or sight.observation.deleting:
        return
    size, minimum = len(sight.state.isr), sight.effective_min_isr
    if size == minimum and size < len(sight.observation.assignment.target):
        yield Violated(
            "ISR006",
            expected=f"more than {minimum} in-sync replicas",
            observed=f"ISR {list(sight.state.isr)}",
            because="one more failure and acks=all writes are refused, by "
            + sight.observation.settings.told("min_insync_replicas"),
        )


def not_under_min_isr(sight: Sight) -> Iterator[Finding]:
    """ISR007: the ISR has at least min.insync.replicas members.

    From 3.7 the minimum counts at most the number of replicas.
    """
    if sight.state.leader == NO_LEADER or sight.observation.deleting:
        return
    if len(sight.state.isr) < sight.effective_min_isr:
        yield Violated(
            "ISR007",
            expected=f"{sight.effective_min_isr} in-sync replicas",
            observed=f"ISR {list(sight.state.isr)}",
            because="acks=all writes are refused, by "
            + sight.observation.settings.told("min_insync_replicas")
            + (" and the HW stands still" if sight.rules.watermark_frozen_under_min_isr else ""),
        )


def fully_replicated(sight: Sight) -> Iterator[Finding]:
    """ISR008: every replica that is to stay is in sync.

    Replicas that a reassignment is adding do not count: they may lawfully take hours.
    """
    if sight.state.leader < 0 or sight.observation.deleting:
        return
    assignment = sight.observation.assignment
    missing = [
        r for r in assignment.target if r not in sight.state.isr and r not in assignment.adding
    ]
    if missing:
        yield Violated(
            "ISR008",
            expected=f"ISR with {missing}",
            observed=f"ISR {list(sight.state.isr)}",
            because=f"{missing} are assigned but not in sync: fewer failures can be borne",
            broker=missing[0],
        )


def elr_apart_from_isr(sight: Sight) -> Iterator[Finding]:
    """ISR009: ISR and ELR have no member in common.

    The ELR holds those who left the ISR while it was too small; joining again takes them out.
    """
    common = sorted(set(sight.state.isr) & set(sight.state.elr))
    if common:
        yield Violated(
            "ISR009",
            expected="ISR and ELR without a common member",
            observed=f"ISR {list(sight.state.isr)}, ELR {list(sight.state.elr)}",
            because=f"{common} cannot be in sync and merely eligible at once",
            broker=common[0],
        )


def members_joined_within_epoch(sight: Sight) -> Iterator[Finding]:
    """ISR010: who joins the ISR during a leader epoch has reached the epoch's start.

    Members from before the election may lawfully be shorter; one that joined later may not
    (2.0.1+): it could be elected without records the leader has already committed.
    """
    memory = sight.memory
    if memory is None or not sight.rules.isr_join_needs_epoch_start:
        return
    if memory.state.leader_epoch != sight.state.leader_epoch or sight.epoch_start is None:
        return
    joined = {*memory.joined_isr, *(set(sight.state.isr) - set(memory.state.isr))}
    for reading in sight.followers():
        if reading.broker not in joined or reading.broker not in sight.state.isr:
            continue
        if not sight.same_incarnation(reading.broker):
            continue
        if reading.log_end_offset is not None and reading.log_end_offset < sight.epoch_start:
            yield Violated(
                "ISR010",
                expected=f"LEO {sight.epoch_start} or more before joining",
                observed=f"LEO {reading.log_end_offset} in the ISR",
                because=f"leader epoch {sight.state.leader_epoch} starts at {sight.epoch_start}",
                broker=reading.broker,
            )
