"""An election to predict: the partition, who is live, what happens; and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.model import NO_LEADER

if TYPE_CHECKING:
    from tidestaff.consistency.model import (
        Assignment,
        BrokerId,
        PartitionSettings,
        PartitionState,
    )
    from tidestaff.consistency.versions import RuleSet


class EventKind(Enum):
    """What can happen to a partition."""

    LEADER_FAILURE = "leader-failure"
    BROKER_FAILURE = "broker-failure"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"
    REASSIGN = "reassign"
    BROKER_RETURN = "broker-return"
    NEW_PARTITION = "new-partition"


class Event(NamedTuple):
    """`brokers` are the dead, the one that stops or returns, or the target of a reassignment.

    `restarted` ("clean", "unclean", or "" for the same process) tells a return in KRaft mode.
    """

    kind: EventKind
    brokers: tuple[BrokerId, ...] = ()
    restarted: str = ""

    def __str__(self) -> str:
        names = ",".join(map(str, self.brokers))
        told = {
            EventKind.LEADER_FAILURE: f"the leader's broker {names} fails",
            EventKind.BROKER_FAILURE: f"broker {names} fails"
            if len(self.brokers) == 1
            else f"brokers {names} fail",
            EventKind.CONTROLLED_SHUTDOWN: f"broker {names} is shut down in a controlled way",
            EventKind.PREFERRED: "a preferred election is asked for",
            EventKind.UNCLEAN: "an unclean election is asked for",
            EventKind.REASSIGN: f"the partition is reassigned to [{names}]",
            EventKind.BROKER_RETURN: f"broker {names} returns",
            EventKind.NEW_PARTITION: "the partition is created",
        }
        return told[self.kind] + (f" after a stop that was {self.restarted}" * bool(self.restarted))


FAILURES = (EventKind.LEADER_FAILURE, EventKind.BROKER_FAILURE)


@dataclass(frozen=True, slots=True)
class Question:
    """`state` is None for a partition that is to be created. `live` may still name those that
    fail."""

    rules: RuleSet
    assignment: Assignment
    state: PartitionState | None
    live: frozenset[BrokerId]
    event: Event
    settings: PartitionSettings

    @property
    def stopped(self) -> frozenset[BrokerId]:
        """Those the event itself takes away."""
        kinds = (*FAILURES, EventKind.CONTROLLED_SHUTDOWN)
        return frozenset(self.event.brokers if self.event.kind in kinds else ())

    @property
    def live_after(self) -> frozenset[BrokerId]:
        back = self.event.brokers if self.event.kind is EventKind.BROKER_RETURN else ()
        return (self.live | frozenset(back)) - self.stopped


class Write(NamedTuple):
    """One write of the controller: its occasion, and what the partition is after it."""

    occasion: str
    state: PartitionState
    assignment: Assignment


class Outcome(NamedTuple):
    """`state` is None where no partition came to be; `answer` is what whoever asked is told."""

    state: PartitionState | None
    assignment: Assignment
    writes: tuple[Write, ...]
    rule: str
    because: str
    answer: str = "NONE"
    notes: tuple[str, ...] = ()


def is_unclean(question: Question, outcome: Outcome) -> bool:
    """A new leader that was in neither the ISR nor the ELR may lack committed records."""
    before, after = question.state, outcome.state
    if before is None or after is None or after.leader in (NO_LEADER, before.leader):
        return False
    return after.leader not in {*before.isr, *before.elr}


def passed_over(question: Question, outcome: Outcome) -> tuple[tuple[BrokerId, str], ...]:
    """Why each other replica does not lead, in assignment order."""
    return tuple(
        (broker, _why_not(broker, question, outcome))
        for broker in outcome.assignment.replicas
        if outcome.state is None or broker != outcome.state.leader
    )


def _why_not(broker: BrokerId, question: Question, outcome: Outcome) -> str:
    before, after = question.state, outcome.state
    if broker in question.stopped:
        failed = question.event.kind in FAILURES
        return "it is the broker that fails" if failed else "it is the broker that shuts down"
    if broker not in question.live_after:
        return "its broker is not live"
    if broker in outcome.assignment.removing:
        return "it leaves with the reassignment"
    leader = NO_LEADER if after is None else after.leader
    if before is not None and broker not in before.isr and not is_unclean(question, outcome):
        if broker not in before.elr:
            return "it is not in the ISR"
        if before.isr and leader not in before.elr:
            return "it is in the ELR, which counts only while the ISR is empty"
        if after is not None and leader == NO_LEADER and broker not in after.elr:
            return "it has lost its place in the ELR: after an unclean stop it may lack records"
    if leader == NO_LEADER:
        return "it may lead, but this event elects nobody"
    if before is not None and leader == before.leader:
        return f"it may lead, but {leader} leads already and stays"
    replicas = outcome.assignment.replicas
    if replicas.index(broker) > replicas.index(leader):
        return f"it may lead, but stands after {leader} in the assignment"
    return f"it stands before {leader} in the assignment, but this election does not ask it"
