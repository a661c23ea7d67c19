"""Reads the input of `predict election`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.consistency.model import (
    NO_LEADER,
    Assignment,
    PartitionSettings,
    PartitionState,
    RecoveryState,
)
from tidestaff.consistency.versions import Mode
from tidestaff.streaming.commands.election_question import Event, EventKind, Question
from tidestaff.streaming.commands.reader import INT32_MAX

if TYPE_CHECKING:
    from tidestaff.consistency.model import BrokerId
    from tidestaff.consistency.versions import RuleSet
    from tidestaff.streaming.commands.reader import InputReader, ObjectReader

_KINDS: Final = tuple(kind.value for kind in EventKind)
_ONE_BROKER: Final = (EventKind.CONTROLLED_SHUTDOWN, EventKind.BROKER_RETURN)
_RECOVERY: Final = {state.name.lower(): state for state in RecoveryState}
_KRAFT_ONLY: Final = "nothing: only KRaft mode with ELR has it"


def read_question(reader: InputReader, value: object, rules: RuleSet) -> Question:
    """The question, or every reason why it is none."""
    top = reader.object(value)
    event = _read_event(reader, top, rules)
    partition = top.object("partition")
    replicas = partition.brokers("replicas", may_be_empty=False)
    among = ("replicas", replicas)
    assignment = Assignment(
        replicas,
        adding=partition.brokers("adding", within=among, required=False),
        removing=partition.brokers("removing", within=among, required=False),
    )
    live = frozenset(top.brokers("live"))
    state = None
    if event.kind is not EventKind.NEW_PARTITION:
        state = _read_state(partition, replicas, rules)
    settings = _read_settings(top.optional_object("settings"), rules)
    if not reader.problems:
        event = _checked(reader, event, state, live)
    reader.finish()
    return Question(rules, assignment, state, live, event, settings)


def _read_event(reader: InputReader, top: ObjectReader, rules: RuleSet) -> Event:
    raw = top.value("event", f'one of {", ".join(_KINDS)}, as text or as {{"type": ...}}')
    if raw is None:
        return Event(EventKind.BROKER_FAILURE)
    # A plain word is the same as an object with nothing but a type.
    fields = reader.object({"type": raw} if isinstance(raw, str) else raw, "event")
    kind = EventKind(fields.word("type", _KINDS))
    restarted = ""
    if kind is EventKind.BROKER_RETURN:
        restarted = fields.word("restarted", ("clean", "unclean"), default="")
        if restarted and rules.mode is Mode.ZOOKEEPER:
            fields.report("restarted", f'"{restarted}"', "nothing: only KRaft mode looks at it")
    if kind in _ONE_BROKER:
        return Event(kind, (fields.integer("broker", most=INT32_MAX),), restarted)
    if kind is EventKind.BROKER_FAILURE:
        return Event(kind, fields.brokers("dead", may_be_empty=False))
    if kind is EventKind.REASSIGN:
        return Event(kind, fields.brokers("target", may_be_empty=False))
    return Event(kind)


def _read_state(
    partition: ObjectReader, replicas: tuple[BrokerId, ...], rules: RuleSet
) -> PartitionState:
    among = ("replicas", replicas)
    isr = partition.brokers("isr", within=among)
    leader = partition.integer("leader", least=NO_LEADER, most=INT32_MAX)
    if leader != NO_LEADER and isr and leader not in isr:
        partition.report("leader", str(leader), "a member of the ISR, or -1 for none")
    elr = partition.brokers("elr", within=among, required=False)
    last_known = partition.brokers("last_known_elr", within=among, required=False)
    for name, found in (("elr", elr), ("last_known_elr", last_known)):
        if found and not rules.elr:
            partition.report(name, str(list(found)), _KRAFT_ONLY)
    if set(elr) & set(isr):
        partition.report("elr", str(list(elr)), "no member of the ISR")
    recovery = partition.word("recovery", tuple(_RECOVERY), default="recovered")
    return PartitionState(
        leader=leader,
        leader_epoch=partition.integer("leader_epoch", most=INT32_MAX),
        isr=isr,
        partition_epoch=partition.integer("partition_epoch", most=INT32_MAX, default=0),
        recovery=_RECOVERY[recovery],
        elr=elr,
        last_known_elr=last_known,
    )


def _read_settings(fields: ObjectReader, rules: RuleSet) -> PartitionSettings:
    return PartitionSettings(
        unclean_leader_election_enable=fields.boolean(
            "unclean_leader_election_enable", default=rules.unclean_election_default
        ),
        min_insync_replicas=fields.integer(
            "min_insync_replicas", least=1, most=INT32_MAX, default=1
        ),
    )


def _checked(
    reader: InputReader, event: Event, state: PartitionState | None, live: frozenset[BrokerId]
) -> Event:
    """The event names what it needs of the partition."""
    if event.kind is EventKind.LEADER_FAILURE and state is not None:
        if state.leader == NO_LEADER:
            reader.report("event", '"leader-failure"', "a partition with a leader, not leader -1")
        return event._replace(brokers=(state.leader,))
    if event.kind is EventKind.CONTROLLED_SHUTDOWN and not live >= set(event.brokers):
        reader.report("event.broker", f"{event.brokers[0]}", "one of the live brokers")
    return event
