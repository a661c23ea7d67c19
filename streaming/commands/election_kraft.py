"""Elections of the KRaft controller: each event is one or two steps of consistency.kraft_events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency import kraft, kraft_events
from tidestaff.consistency.kraft_image import ClusterImage, TopicSettings
from tidestaff.consistency.model import (
    NO_LEADER,
    PartitionState,
    Registration,
    TopicPartition,
)
from tidestaff.consistency.registration import ControllerError
from tidestaff.streaming.commands.election_question import FAILURES, EventKind, Outcome, Write
from tidestaff.streaming.commands.predict import claim_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidestaff.consistency.kraft_events import Step
    from tidestaff.consistency.model import BrokerId
    from tidestaff.streaming.commands.election_question import Question

_TP: Final = TopicPartition("t", 0)
_UNCLEAN_IGNORED: Final = (
    "unclean.leader.election.enable is true, but the KRaft controller honours it from 3.9 only"
)
_JOINS_LATER: Final = "the returning broker joins the ISR later, by its leader, when caught up"


class _Move(NamedTuple):
    """One event of the controller, with the words for it."""

    occasion: str
    apply: Callable[[ClusterImage], Step]


def predict(question: Question) -> Outcome:
    """The records the controller writes, and the registration that leaves."""
    image, writes, answer = _image(question), list[Write](), ControllerError.NONE
    for move in _moves(question):
        step = move.apply(image)
        answer = step.error if answer is ControllerError.NONE else answer
        was, image = image.partitions.get(_TP), step.image
        now = image.partitions.get(_TP)
        if now is not None and now != was:
            writes.append(Write(move.occasion, _state(now), now.assignment))
    after = image.partitions.get(_TP)
    return Outcome(
        state=None if after is None else _state(after),
        assignment=question.assignment if after is None else after.assignment,
        writes=tuple(writes),
        rule=claim_of(_rule(question)),
        because=_because(question, after, answer),
        answer=answer.value,
        notes=tuple(_notes(question, after)),
    )


def _moves(question: Question) -> Iterator[_Move]:
    kind, brokers = question.event.kind, question.event.brokers
    if kind in FAILURES:
        yield from (_Move(f"broker {dead} is fenced", _fencing(dead)) for dead in brokers)
    elif kind is EventKind.CONTROLLED_SHUTDOWN:
        yield _Move("controlled shutdown", lambda i: kraft_events.controlled_shutdown(i, *brokers))
        yield _Move("the process ends", lambda i: kraft_events.fence(i, *brokers))
    elif kind is EventKind.BROKER_RETURN:
        if question.event.restarted:
            clean = question.event.restarted == "clean"
            yield _Move(
                "a new process registers",
                lambda i: kraft_events.restarted(i, *brokers, clean=clean),
            )
        yield _Move("the broker is unfenced", lambda i: kraft_events.unfence(i, *brokers))
    elif kind is EventKind.REASSIGN:
        yield _Move("reassignment", lambda i: kraft_events.reassign(i, _TP, brokers))
    elif kind is EventKind.NEW_PARTITION:
        replicas = question.assignment.replicas
        yield _Move("creation", lambda i: kraft_events.create_partition(i, _TP, replicas))
    else:
        election = kraft.KraftElection[kind.name]
        yield _Move(f"{kind.value} election", lambda i: kraft_events.elect_leader(i, _TP, election))


def _fencing(broker: BrokerId) -> Callable[[ClusterImage], Step]:
    return lambda image: kraft_events.fence(image, broker)


def _image(question: Question) -> ClusterImage:
    """Those that fail are active until they are fenced, one after the other, as in Kafka."""
    back = question.event.brokers if question.event.kind is EventKind.BROKER_RETURN else ()
    active = (question.live | question.stopped) - frozenset(back)
    known = {*active, *question.assignment.replicas, *question.event.brokers}
    partitions = {} if question.state is None else {_TP: _partition(question)}
    return ClusterImage(
        rules=question.rules,
        brokers={each: Registration(each, fenced=each not in active) for each in sorted(known)},
        partitions=partitions,
        defaults=TopicSettings(
            min_insync_replicas=question.settings.min_insync_replicas,
            unclean_leader_election_enable=question.settings.unclean_leader_election_enable,
        ),
    )


def _partition(question: Question) -> kraft.KraftPartition:
    state, assignment = question.state, question.assignment
    assert state is not None, "only a new partition has no state yet"
    return kraft.KraftPartition(
        replicas=assignment.replicas,
        isr=state.isr,
        elr=state.elr,
        last_known_elr=state.last_known_elr,
        leader=state.leader,
        removing=assignment.removing,
        adding=assignment.adding,
        recovery=state.recovery,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
    )


def _state(partition: kraft.KraftPartition) -> PartitionState:
    return PartitionState(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.partition_epoch,
        recovery=partition.recovery,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
    )


def _rule(question: Question) -> object:
    if question.event.kind is EventKind.NEW_PARTITION:
        return kraft_events.create_partition
    return kraft.elect


def _because(
    question: Question, after: kraft.KraftPartition | None, answer: ControllerError
) -> str:
    before = question.state
    if answer is not ControllerError.NONE:
        return f"the controller refuses: {answer.value}"
    if before is None or after is None:
        return "the first replica that is active"
    if after.leader == NO_LEADER:
        where = "the ISR or the ELR" if question.rules.elr else "the ISR"
        return f"no member of {where} is active, and nobody else may lead"
    if after.leader == before.leader and after.leader not in question.live_after:
        return f"leader {after.leader} is not live, but this event holds no election"
    if after.leader == before.leader:
        return f"leader {after.leader} is active and in the ISR: a valid leader stays"
    return _because_of(after.leader, before, question.event.kind)


def _because_of(leader: BrokerId, before: PartitionState, kind: EventKind) -> str:
    if leader in before.isr:
        if kind is EventKind.PREFERRED:
            return "the preferred replica is active and in the ISR"
        return "first of the replicas that is active and in the ISR"
    if leader in before.elr:
        return "the ISR is empty: first of the replicas that is active and in the ELR"
    if leader in before.last_known_elr:
        return "ISR and ELR are empty: the last known leader comes back"
    return "nobody in sync is active: first of the replicas that is active"


def _notes(question: Question, after: kraft.KraftPartition | None) -> Iterator[str]:
    rules, settings = question.rules, question.settings
    if settings.unclean_leader_election_enable and not rules.unclean_election_honoured:
        yield _UNCLEAN_IGNORED
    returned = question.event.brokers if question.event.kind is EventKind.BROKER_RETURN else ()
    if after is not None and any(broker not in after.isr for broker in returned):
        yield _JOINS_LATER
