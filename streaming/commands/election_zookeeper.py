"""Elections of the ZooKeeper-mode controller: each event asks the rules of consistency.election."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.consistency import election, reassignment
from tidestaff.consistency.broker_events import broker_failure, broker_return
from tidestaff.consistency.controlled_shutdown import controlled_shutdown, shutdown_of_replica
from tidestaff.consistency.model import Assignment, PartitionState, Registration
from tidestaff.streaming.commands.election_question import EventKind, Outcome, Write
from tidestaff.streaming.commands.predict import claim_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidestaff.streaming.commands.election_question import Question

_NAME: Final = "t-0"
_HASH_ORDER: Final = (
    "the whole ISR died: which member stays listed depends on the order in which the controller "
    "takes the dead, supposed to be the order given"
)
_JOINS_LATER: Final = "the returning broker joins the ISR later, by its leader, when caught up"


def predict(question: Question) -> Outcome:
    """What the controller writes, and the state that leaves."""
    return _EVENTS[question.event.kind](question)


def _failure(question: Question) -> Outcome:
    state = _state(question)
    dead, live = question.event.brokers, question.live_after
    unclean = question.settings.unclean_leader_election_enable
    states = broker_failure(
        state,
        assignment=question.assignment.replicas,
        dead=dead,
        live=question.live,
        unclean_allowed=unclean,
        rules=question.rules,
    )
    if state.leader in live:
        because = f"leader {state.leader} is live: no election, only the ISR loses the dead"
        rule = claim_of(election.remove_from_isr)
        occasions = ["removal from the ISR"] * len(states)
    else:
        asked = election.elect_offline(
            assignment=question.assignment.replicas,
            isr=state.isr,
            live=live,
            unclean_allowed=unclean and not live & set(state.isr),
        )
        because, rule = asked.because, claim_of(election.elect_offline)
        first = "removal from the ISR" if asked.leader is None else "offline election"
        occasions = [first, *["removal from the ISR"] * (len(states) - 1)][: len(states)]
    all_died = len(state.isr) > 1 and not live & set(state.isr)
    notes = (_HASH_ORDER,) if all_died and "offline election" not in occasions else ()
    return _outcome(question, list(zip(occasions, states, strict=True)), rule, because, notes=notes)


def _controlled_shutdown(question: Question) -> Outcome:
    (broker,) = question.event.brokers
    state, replicas = _state(question), question.assignment.replicas
    unclean = question.settings.unclean_leader_election_enable
    answer = controlled_shutdown(
        {_NAME: (question.assignment, state)},
        broker=broker,
        broker_epoch=-1,
        registrations=[Registration(each) for each in sorted(question.live)],
        rules=question.rules,
        unclean_allowed=unclean,
    )
    handed = answer.written.get(_NAME)
    ended = broker_failure(
        handed or state,
        assignment=replicas,
        dead=[broker],
        live=question.live,
        unclean_allowed=unclean,
        rules=question.rules,
    )
    writes = [("controlled shutdown", handed)] if handed else []
    writes += [("the process ends", each) for each in ended]
    if state.leader == broker:
        elected = election.elect_for_controlled_shutdown(
            assignment=replicas, isr=state.isr, registered=question.live, shutting_down=[broker]
        )
        because, rule = elected.because, claim_of(election.elect_for_controlled_shutdown)
    else:
        because = f"leader {state.leader} is not the broker that stops: no election"
        rule = claim_of(shutdown_of_replica)
    left = "the broker cannot hand this partition over; it asks again, then stops all the same"
    return _outcome(question, writes, rule, because, notes=(left,) if answer.remaining else ())


def _requested(question: Question) -> Outcome:
    unclean = question.event.kind is EventKind.UNCLEAN
    state, replicas = _state(question), question.assignment.replicas
    answer, written = election.requested_election(
        state, unclean=unclean, assignment=replicas, live=question.live, rules=question.rules
    )
    if answer is election.ElectionAnswer.NOT_NEEDED:
        because = "the leader is live" if unclean else "the preferred replica leads already"
    elif unclean:
        because = election.elect_offline(
            assignment=replicas, isr=state.isr, live=question.live, unclean_allowed=True
        ).because
    else:
        because = election.elect_preferred(
            assignment=replicas, isr=state.isr, live=question.live
        ).because
    rule = claim_of(election.elect_offline if unclean else election.elect_preferred)
    writes = [(f"{question.event.kind.value} election", written)] if written else []
    return _outcome(question, writes, rule, because, answer=answer.value)


def _reassign(question: Question) -> Outcome:
    state = _state(question)
    requested = reassignment.reassign_to(question.assignment, question.event.brokers)
    steps = reassignment.reassignment_writes(
        state,
        current=question.assignment,
        requested=requested,
        live=question.live,
        rules=question.rules,
        unclean_allowed=question.settings.unclean_leader_election_enable,
    )
    writes, assignment = list[Write](), question.assignment
    for step in steps:
        state, assignment = step.state or state, step.assignment or assignment
        occasion = step.phase.name.lower().replace("_", " ")
        writes.append(Write(f"{occasion} ({step.phase.value})", state, assignment))
    if reassignment.is_complete(requested, _state(question).isr):
        rule = claim_of(election.elect_for_reassignment)
        because = election.elect_for_reassignment(
            target=requested.target, isr=_state(question).isr, live=question.live
        ).because
        if state.leader == _state(question).leader:
            because = "the leader is in the target and live: it stays, in a new epoch"
    else:
        rule = claim_of(reassignment.is_complete)
        because = "the target is not in the ISR yet: only the epoch rises, so the leader learns it"
    return Outcome(state, assignment, tuple(writes), rule, because)


def _return(question: Question) -> Outcome:
    state, live = _state(question), question.live_after
    written = broker_return(
        state,
        assignment=question.assignment.replicas,
        live=live,
        unclean_allowed=question.settings.unclean_leader_election_enable,
        rules=question.rules,
    )
    because = f"leader {state.leader} stays: a return starts no election"
    if state.leader < 0:
        because = election.elect_offline(
            assignment=question.assignment.replicas,
            isr=state.isr,
            live=live,
            unclean_allowed=question.settings.unclean_leader_election_enable,
        ).because
    writes = [("offline election", written)] if written else []
    (broker,) = question.event.brokers
    notes = () if broker in (written or state).isr else (_JOINS_LATER,)
    return _outcome(question, writes, claim_of(broker_return), because, notes=notes)


def _new_partition(question: Question) -> Outcome:
    created = election.new_partition(assignment=question.assignment.replicas, live=question.live)
    because = "no replica is live: no state node is created"
    if created is not None:
        because = f"{created.leader} is the first replica that is live"
    rule = claim_of(election.new_partition)
    writes = (Write("creation", created, question.assignment),) if created else ()
    return Outcome(created, question.assignment, writes, rule, because)


def _state(question: Question) -> PartitionState:
    assert question.state is not None, "only a new partition has no state yet"
    return question.state


def _outcome(
    question: Question,
    writes: Sequence[tuple[str, PartitionState]],
    rule: str,
    because: str,
    *,
    answer: str = "NONE",
    notes: tuple[str, ...] = (),
) -> Outcome:
    assignment: Assignment = question.assignment
    made = tuple(Write(occasion, state, assignment) for occasion, state in writes)
    after = made[-1].state if made else _state(question)
    return Outcome(after, assignment, made, rule, because, answer, notes)


_EVENTS: Final[dict[EventKind, Callable[[Question], Outcome]]] = {
    EventKind.LEADER_FAILURE: _failure,
    EventKind.BROKER_FAILURE: _failure,
    EventKind.CONTROLLED_SHUTDOWN: _controlled_shutdown,
    EventKind.PREFERRED: _requested,
    EventKind.UNCLEAN: _requested,
    EventKind.REASSIGN: _reassign,
    EventKind.BROKER_RETURN: _return,
    EventKind.NEW_PARTITION: _new_partition,
}
