"""Scenes of the tour about elections: the order that counts, the unclean choice, the last
replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.election import elect_offline
from tidestaff.consistency.model import Assignment, PartitionSettings, PartitionState
from tidestaff.consistency.versions import Mode, rules_for
from tidestaff.streaming.commands.election_question import (
    Event,
    EventKind,
    Outcome,
    Question,
    is_unclean,
)
from tidestaff.streaming.commands.predict import rule_set_name
from tidestaff.streaming.commands.predict_election import predict_outcome
from tidestaff.streaming.commands.predict_truncation import consequences
from tidestaff.streaming.commands.scene import (
    Alert,
    Scene,
    as_leader,
    brokers,
    drawing,
    log,
    name_of,
)

if TYPE_CHECKING:
    from tidestaff.consistency.model import BrokerId
    from tidestaff.consistency.truncation import ReplicaLog
    from tidestaff.consistency.versions import RuleSet


def assignment_order() -> Scene:
    """The next leader is the first live ISR member in the order of the assignment."""
    sets = [rules_for("0.10.2"), rules_for("3.9"), rules_for("4.1", Mode.KRAFT)]
    replicas, isr = (1, 5, 9), (1, 9, 5)
    logs = {1: log(4, 3, (4, 0)), 5: log(3, 3, (4, 0)), 9: log(4, 3, (4, 0))}
    state = PartitionState(leader=1, leader_epoch=4, isr=isr)
    outcomes = [
        _play(rules, replicas, state, Event(EventKind.LEADER_FAILURE, (1,)), live={5, 9})
        for rules in sets
    ]
    states = [_state(outcome) for outcome in outcomes]
    cuts = [_cut(logs[9], logs, after, rules) for after, rules in zip(states, sets, strict=True)]
    by_isr_order = elect_offline(assignment=isr, isr=isr, live={5, 9}, unclean_allowed=False)
    return Scene(
        title="The order of the assignment counts, not the order of the ISR",
        story=(
            f"Assignment {brokers(replicas)}, ISR {brokers(isr)} (9 once came back before 5 did). "
            "The leader, broker 1, fails. Who leads next?"
        ),
        drawings=(
            drawing(
                logs,
                {
                    1: "leader, fails",
                    5: "second in the assignment",
                    9: "second in the ISR, and the longer log",
                },
            ),
        ),
        head=("", *map(rule_set_name, sets)),
        rows=(
            ("next leader", *(name_of(after.leader) for after in states)),
            ("ISR", *(brokers(after.isr) for after in states)),
            ("leader epoch", *(f"{state.leader_epoch} -> {s.leader_epoch}" for s in states)),
            ("then 9 cuts", *cuts),
        ),
        lesson=(
            "Kafka takes the first of the assignment that is live and in the ISR. Whoever goes by "
            f"the order of the ISR, or by the longest log, expects broker {by_isr_order.leader}. "
            "What 9 cuts was never committed."
        ),
        alerts=(Alert("ELE001", "if any other broker leads after this event"),),
    )


def _cut(
    follower: ReplicaLog, logs: dict[BrokerId, ReplicaLog], after: PartitionState, rules: RuleSet
) -> str:
    leader = as_leader(logs[after.leader], after.leader_epoch, rules)
    return str(consequences(follower=follower, leader=leader, rules=rules).cut or "nothing")


def unclean_choice() -> Scene:
    """Unclean election trades committed offsets for an online partition."""
    rules = rules_for("3.9")
    logs = {1: log(2, 2, (0, 0), (1, 1)), 0: log(1, 1, (0, 0))}
    state = PartitionState(leader=1, leader_epoch=1, isr=(1,))
    columns = [_unclean(rules, logs, state, allowed=allowed) for allowed in (False, True)]
    labels = (
        "1 fails, leads next",
        "ISR",
        "0 returns, leads next",
        "ISR",
        "leader epoch",
        "leader_recovery_state",
        "committed offsets lost",
    )
    return Scene(
        title="Nobody in sync is left: wait, or lose",
        story=(
            "Assignment [1,0]. Broker 0 is down, so broker 1 alone is the ISR and has committed "
            "record 1 by itself. Now 1 fails, and 0 returns first, with an older log. "
            "May it lead? unclean.leader.election.enable decides."
        ),
        drawings=(drawing(logs, {1: "leader, fails", 0: "down, then returns"}),),
        head=(
            rule_set_name(rules),
            "unclean election off (default)",
            "unclean election on",
        ),
        rows=tuple(zip(labels, *columns, strict=True)),
        lesson=(
            "The choice is the operator's; the price is known beforehand, as a range of offsets. "
            "When 1 comes back it must cut what it alone had."
        ),
        alerts=(
            Alert("ELE012", "off: as long as nobody leads"),
            Alert("ELE009", "on: when 0 leads, with the loss it means"),
            Alert("TRN001", "on: with the lost range"),
        ),
    )


def _unclean(
    rules: RuleSet,
    logs: dict[BrokerId, ReplicaLog],
    state: PartitionState,
    *,
    allowed: bool,
) -> tuple[str, ...]:
    settings = PartitionSettings(unclean_leader_election_enable=allowed)
    failed = _state(
        _play(rules, (1, 0), state, Event(EventKind.LEADER_FAILURE, (1,)), settings=settings)
    )
    event = Event(EventKind.BROKER_RETURN, (0,))
    returned = _state(_play(rules, (1, 0), failed, event, settings=settings))
    lost = None
    if returned.leader >= 0:
        leader = logs[returned.leader]
        lost = consequences(follower=logs[1], leader=leader, rules=rules).lost
    return (
        name_of(failed.leader),
        brokers(failed.isr),
        name_of(returned.leader),
        brokers(returned.isr),
        f"{state.leader_epoch} -> {failed.leader_epoch} -> {returned.leader_epoch}",
        f"{returned.recovery.value} ({returned.recovery.name})",
        str(lost) if lost else "none, when 1 returns it leads with all of them",
    )


def last_replica() -> Scene:
    """With ELR a replica that left below min ISR may still lead cleanly."""
    sets = [rules_for("3.9", Mode.KRAFT), rules_for("4.1", Mode.KRAFT)]
    columns = [_one_after_the_other(rules) for rules in sets]
    labels = ("1, 2, 3 fail in turn: ISR", "ELR", "leader", "2 returns, leads next", "ISR", "so")
    return Scene(
        title="The last replica: eligible leader replicas (ELR) in 4.1",
        story=(
            "Assignment [1,2,3], min.insync.replicas 2. The brokers fail one after the other, 1, "
            "then 2, then 3. Broker 2 is the first to return, and 3 will never come back."
        ),
        drawings=(
            drawing(
                {
                    1: log(2, 2, (0, 0)),
                    2: log(4, 4, (0, 0), (1, 2)),
                    3: log(5, 4, (0, 0), (1, 2), (2, 4)),
                },
                {1: "fails first", 2: "fails second, returns", 3: "fails last"},
            ),
        ),
        head=("", *map(rule_set_name, sets)),
        rows=tuple(zip(labels, *columns, strict=True)),
        lesson=(
            "When 2 left, the ISR fell below min ISR, and from then on nothing could be committed "
            "without it: it has every committed record. 4.1 remembers that, 3.9 does not."
        ),
        alerts=(
            Alert("ELE005", "in 4.1, if the partition stays offline though 2 may lead"),
            Alert("ELE009", "in 3.9, if 2 leads all the same"),
        ),
    )


def _one_after_the_other(rules: RuleSet) -> tuple[str, ...]:
    settings = PartitionSettings(min_insync_replicas=2)
    state = PartitionState(leader=1, leader_epoch=0, isr=(1, 2, 3))
    live = {1, 2, 3}
    for broker in (1, 2, 3):
        live.discard(broker)
        event = Event(EventKind.BROKER_FAILURE, (broker,))
        state = _state(_play(rules, (1, 2, 3), state, event, live=live, settings=settings))
    question = Question(
        rules,
        Assignment((1, 2, 3)),
        state,
        frozenset(),
        Event(EventKind.BROKER_RETURN, (2,)),
        settings,
    )
    outcome = predict_outcome(question)
    after = _state(outcome)
    clean = "unclean" if is_unclean(question, outcome) else "clean: 2 has all that was committed"
    return (
        brokers(state.isr),
        brokers(state.elr),
        name_of(state.leader),
        name_of(after.leader),
        brokers(after.isr),
        "offline until 3 returns" if after.leader < 0 else clean,
    )


def _play(
    rules: RuleSet,
    replicas: tuple[BrokerId, ...],
    state: PartitionState,
    event: Event,
    *,
    live: set[BrokerId] | None = None,
    settings: PartitionSettings | None = None,
) -> Outcome:
    return predict_outcome(
        Question(
            rules,
            Assignment(replicas),
            state,
            frozenset(live or ()),
            event,
            settings or PartitionSettings(),
        )
    )


def _state(outcome: Outcome) -> PartitionState:
    assert outcome.state is not None, "no scene creates a partition"
    return outcome.state
