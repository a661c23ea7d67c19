"""ELE: elections: whether Kafka's rules would have chosen this leader, or any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.consistency.election import elect_offline
from tidestaff.consistency.kraft import KraftElection, KraftPartition, elect
from tidestaff.consistency.model import (
    NO_LEADER,
    UNKNOWN_BROKER_EPOCH,
    OffsetRange,
    RecoveryState,
)
from tidestaff.consistency.verdict import Unknown, Violated

# A KRaft controller looks for partitions to elect uncleanly every five minutes (3.9+).
KRAFT_UNCLEAN_TIMER_MS: Final = 300_000

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidestaff.consistency.checks.sight import Finding, Sight
    from tidestaff.consistency.model import BrokerId


def leader_as_predicted(sight: Sight) -> Iterator[Finding]:
    """ELE001: a clean election takes the first eligible replica of the assignment.

    Judged on a transition only, and only if a single write lies between the two states: an election
    happens on an event, and when a failed broker comes back the leader stays where it is. Which
    event it was need not be known: whatever it was, no replica may be passed over that stands
    earlier in the assignment, was in the ISR before and after, and was registered all the time.
    """
    before, now = sight.previous, sight.state
    if before is None or now.leader < 0 or now.leader == before.leader:
        return
    if now.leader_epoch < before.leader_epoch or now.leader not in now.isr:
        return
    if not sight.one_version_later:
        yield Unknown("ELE001", "the partition states between the two that were seen")
        return
    if sight.assignment_changed:
        yield Unknown("ELE001", "the assignment at the moment of the election: it changed as well")
        return
    if not sight.kraft and not sight.rules.reassignment_in_topic_znode and _reassigning(sight):
        yield Unknown("ELE001", "the order of the target: up to 2.3 the topic znode has none")
        return
    eligible = _eligible_before(sight)
    if now.leader not in eligible:
        if now.leader not in _electable(sight) and not _unclean(sight):
            yield _wrong_leader(sight, eligible, "it was in neither the old ISR nor the old ELR")
        return
    if sight.kraft and _stayed_eligible(sight, before.leader):
        if now.leader != sight.observation.assignment.replicas[0]:
            yield _wrong_leader(
                sight,
                eligible,
                f"leader {before.leader} was still eligible and is kept while it is",
            )
        return
    passed_over = _first_passed_over(sight, eligible)
    if passed_over is not None:
        yield _wrong_leader(
            sight,
            eligible,
            f"broker {passed_over} comes earlier in the assignment and was eligible",
        )


def _reassigning(sight: Sight) -> bool:
    """A reassignment runs, or the leader was moved away from a broker that was well: before 2.4
    only a reassignment or a preferred election does that."""
    before = sight.previous
    assert before is not None
    return sight.observation.assignment.being_reassigned or _stayed_eligible(sight, before.leader)


def _eligible_before(sight: Sight) -> Sequence[BrokerId]:
    """Who could be elected cleanly from the remembered state, in assignment order."""
    before = sight.previous
    assert before is not None
    pool = set(before.isr) | set(before.elr)
    return [r for r in sight.observation.assignment.replicas if r in pool]


def _stayed_eligible(sight: Sight, broker: BrokerId) -> bool:
    """The broker was registered and active the whole time and is still in the ISR."""
    return broker >= 0 and broker in sight.state.isr and _active_throughout(sight, broker)


def _active_throughout(sight: Sight, broker: BrokerId) -> bool:
    memory = sight.memory
    assert memory is not None
    now = sight.registrations.get(broker)
    before = next((r for r in memory.live if r.broker == broker), None)
    return (
        now is not None
        and before is not None
        and now.broker_epoch == before.broker_epoch != UNKNOWN_BROKER_EPOCH
        and not (now.fenced or now.shutting_down or before.fenced or before.shutting_down)
        and _log_dir_online(sight, broker)
    )


def _log_dir_online(sight: Sight, broker: BrokerId) -> bool:
    reading = sight.readings.get(broker)
    return reading is None or reading.log_dir_online


def _first_passed_over(sight: Sight, eligible: Sequence[BrokerId]) -> BrokerId | None:
    if sight.state.leader == sight.observation.assignment.replicas[0]:
        return None
    for candidate in eligible:
        if candidate == sight.state.leader:
            return None
        if _stayed_eligible(sight, candidate):
            return candidate
    return None


def _wrong_leader(sight: Sight, eligible: Sequence[BrokerId], because: str) -> Violated:
    predicted = next((r for r in eligible if _stayed_eligible(sight, r)), None)
    if (
        sight.kraft
        and sight.previous is not None
        and _stayed_eligible(sight, sight.previous.leader)
    ):
        predicted = sight.previous.leader
    return Violated(
        "ELE001",
        expected=f"leader {predicted}" if predicted is not None else f"a leader out of {eligible}",
        observed=f"leader {sight.state.leader}",
        because=f"leader {sight.state.leader} was elected in epoch {sight.state.leader_epoch}, but "
        + because,
        broker=sight.state.leader,
    )


def leaderless_though_eligible(sight: Sight) -> Iterator[Finding]:
    """ELE005: a partition without a leader gets one as soon as somebody is eligible.

    Who that is follows from Kafka's own election, run on the observed state. Elections are tried
    when a broker returns, so a partition that stays leaderless points at the controller.
    """
    state = sight.state
    if state.leader != NO_LEADER or sight.observation.deleting:
        return
    candidate = _eligible_now(sight)
    if candidate is None:
        return
    if not sight.controller_settled:
        yield Unknown("ELE005", "a controller that had a session timeout to act")
        return
    yield Violated(
        "ELE005",
        expected=f"leader {candidate}",
        observed="no leader",
        because=f"broker {candidate} is active and may be elected "
        + (
            "cleanly"
            if candidate in {*state.isr, *state.elr}
            else f"uncleanly: {_unclean_setting(sight)}"
        ),
        broker=candidate,
    )


def _eligible_now(sight: Sight) -> BrokerId | None:
    """Whom Kafka's own election would take from this state, were it run now."""
    state, replicas = sight.state, sight.observation.assignment.replicas
    usable = frozenset(r for r in replicas if r in sight.active and _log_dir_online(sight, r))
    unclean = (
        sight.observation.settings.unclean_leader_election_enable
        and sight.rules.unclean_election_honoured
    )
    if not sight.kraft:
        result = elect_offline(
            assignment=replicas, isr=state.isr, live=usable, unclean_allowed=unclean
        )
        return result.leader
    waited = _leaderless_for_ms(sight) > KRAFT_UNCLEAN_TIMER_MS
    elected = elect(
        KraftPartition(
            replicas=replicas,
            isr=state.isr,
            elr=state.elr,
            last_known_elr=state.last_known_elr,
            leader=state.leader,
        ),
        election=KraftElection.UNCLEAN if unclean and waited else KraftElection.ONLINE,
        acceptable=usable.__contains__,
        rules=sight.rules,
    )
    return elected.leader if elected.leader >= 0 else None


def _leaderless_for_ms(sight: Sight) -> int:
    suspicions = sight.memory.suspicions if sight.memory is not None else ()
    return max((sight.now_ms - s.since_ms for s in suspicions if s.code == "ELE012"), default=0)


def election_was_clean(sight: Sight) -> Iterator[Finding]:
    """ELE009: a leader comes from the ISR (or the ELR): any other may lack committed records.

    It is an alert even where unclean election is allowed: the price is named as the range of
    committed offsets that the new leader does not have.
    """
    before, now = sight.previous, sight.state
    if before is None or now.leader < 0:
        return
    if not _unclean(sight):
        if (
            not sight.one_version_later
            and now.leader != before.leader
            and now.leader not in {*before.isr, *before.elr}
            and now.isr == (now.leader,)
        ):
            yield Unknown("ELE009", "the partition states between the two that were seen")
        return
    lost = _predicted_loss(sight)
    pool = f"ISR {list(before.isr)}" + (f" or ELR {list(before.elr)}" if before.elr else "")
    # The last known leader of KIP-966 may have been listed: its log is not trusted any more.
    listed = now.leader in {*before.isr, *before.elr}
    yield Violated(
        "ELE009",
        expected=f"a leader out of {pool}" + (", in state RECOVERED" if listed else ""),
        observed=f"leader {now.leader} with ISR {list(now.isr)}"
        + (", in state RECOVERING" if listed else ""),
        because=f"the election was unclean, with {_unclean_setting(sight)}"
        + (f"; committed offsets {lost} are not on the new leader" if lost else ""),
        broker=now.leader,
        offsets=lost,
    )


def _unclean_setting(sight: Sight) -> str:
    return sight.observation.settings.told("unclean_leader_election_enable")


def _unclean(sight: Sight) -> bool:
    """The leader came from outside the old ISR and ELR, as far as that can be known.

    Versions that keep a recovery state say so themselves. A partition that was leaderless gets its
    ISR changed by nobody, so one epoch later the old ISR is still known, whatever was skipped.
    """
    before, now = sight.previous, sight.state
    assert before is not None
    outsider = now.leader != before.leader and now.leader not in _electable(sight)
    if now.recovery is RecoveryState.RECOVERING:
        return before.recovery is RecoveryState.RECOVERED or outsider
    if not outsider or now.leader < 0:
        return False
    leaderless = before.leader == NO_LEADER and now.leader_epoch == before.leader_epoch + 1
    if leaderless and not sight.assignment_changed:
        return True
    return (
        (sight.one_version_later or (sight.only_new_epochs and not sight.assignment_changed))
        and not sight.rules.leader_recovery_state
        and now.isr == (now.leader,)
    )


def _electable(sight: Sight) -> set[BrokerId]:
    """Who could be elected cleanly.

    Up to 1.0 the ISR may be empty: whoever was in it with the last leader has all. If that is not
    known, nobody is accused.
    """
    before, memory = sight.previous, sight.memory
    assert before is not None
    assert memory is not None
    if not before.isr and not before.elr and sight.rules.isr_may_become_empty_in_zookeeper:
        everybody = sight.observation.assignment.replicas
        return set(memory.last_isr if memory.last_isr is not None else everybody)
    return {*before.isr, *before.elr}


def _predicted_loss(sight: Sight) -> OffsetRange | None:
    memory = sight.memory
    remembered = sight.remembered(sight.state.leader)
    reading = sight.readings.get(sight.state.leader)
    end = reading.log_end_offset if reading is not None else None
    if end is None and remembered is not None:
        end = remembered.log_end_offset
    if memory is None or end is None or end >= memory.committed_end:
        return None
    return OffsetRange(max(end, memory.committed_start), memory.committed_end)


def preferred_replica_leads(sight: Sight) -> Iterator[Finding]:
    """ELE010: with automatic rebalance a preferred replica that may lead gets the lead back.

    ZooKeeper controllers act only above a share of misplaced leaders per broker, KRaft controllers
    always; both look every five minutes.
    """
    observation, state = sight.observation, sight.state
    preferred = observation.assignment.replicas[0] if observation.assignment.replicas else NO_LEADER
    if state.leader < 0 or state.leader == preferred or observation.deleting:
        return
    if not observation.settings.auto_leader_rebalance_enable:
        return
    if preferred not in state.isr or preferred not in sight.active:
        return
    if observation.assignment.being_reassigned:
        return
    if sight.rules.rebalance_has_threshold:
        share = observation.preferred_imbalance
        percentage = observation.settings.leader_imbalance_per_broker_percentage
        if share is None:
            yield Unknown("ELE010", "the imbalance of the preferred broker over all partitions")
            return
        if share <= percentage / 100:
            return
    yield Violated(
        "ELE010",
        expected=f"leader {preferred}, the preferred replica",
        observed=f"leader {state.leader}",
        because=f"broker {preferred} is active and in the ISR, and automatic rebalance is on",
        broker=preferred,
    )


def partition_has_a_leader(sight: Sight) -> Iterator[Finding]:
    """ELE012: a partition without a leader can be neither written nor read.

    It is never called a wrong leader: with no in-sync replica alive this is what Kafka promises to
    do.
    """
    if sight.state.leader != NO_LEADER or sight.observation.deleting:
        return
    yield Violated(
        "ELE012",
        expected="a leader",
        observed=f"no leader; ISR {list(sight.state.isr)}, registered {sorted(sight.present)}",
        because=f"the last members {list(sight.state.isr) or list(sight.state.elr)} are not active"
        if _eligible_now(sight) is None
        else "nobody was elected although somebody is eligible",
    )
