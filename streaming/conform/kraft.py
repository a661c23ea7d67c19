"""Conformance of the KRaft controller rules: each vector is run through tidestaff.consistency.

Vectors say which fields they mean; what they leave out is a default of Kafka's own tests: broker
epochs are 100 + id, every broker named is registered and active, the software is 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from tidestaff.consistency import kraft_events as events
from tidestaff.consistency.kraft import (
    Acceptable,
    Brokers,
    KraftElection,
    KraftPartition,
    PartitionChange,
    Targets,
    apply_change,
    build_change,
    bumps_leader_epoch,
    effective_min_isr,
    elect,
)
from tidestaff.consistency.kraft_alter_partition import AlterPartitionRequest, IsrMember
from tidestaff.consistency.kraft_image import ClusterImage, TopicSettings
from tidestaff.consistency.kraft_reassignment import (
    complete_reassignment,
    revert_reassignment,
    start_reassignment,
)
from tidestaff.consistency.model import (
    NO_LEADER,
    UNKNOWN_BROKER_EPOCH,
    Assignment,
    BrokerId,
    RecoveryState,
    Registration,
    TopicPartition,
)
from tidestaff.consistency.registration import ControllerError
from tidestaff.consistency.versions import Mode, ProtocolVersion, RuleSet, rules_for
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Handler,
    Vector,
    as_set,
    differences,
)

_NEWEST: Final = "4.3"
_UNORDERED: Final = ("elr", "last_known_elr")
_UNTIL: Final = re.compile(r"(?:-|<=|up to|until)\s*(\d+\.\d+(?:\.\d+)?)")
_TOPIC: Final = "topic"
_CHECKS: Final = frozenset({"expect", "expect_error", "expect_errors", "expect_imbalanced", "note"})
_OPTIONS: Final = frozenset({"partition", "partitions", "recovery", "allow_rf_change"})


def _software(vector: Vector) -> str:
    """The newest version the expectation holds for: 4.3 unless the range ends before it."""
    ends = _UNTIL.findall(vector.versions)
    return ends[-1] if ends else _NEWEST


def _rules(vector: Vector) -> RuleSet:
    """A vector sets metadata.version and ELR freely: they go into the rule set one by one."""
    given = vector.input
    rules = rules_for(_software(vector), Mode.KRAFT, elr=False)
    rules = replace(rules, elr=bool(given.get("elr_enabled", False)))
    if given.get("metadata_version") is None:
        return rules
    speaks = ProtocolVersion.parse(given["metadata_version"])
    shrink_bumps = speaks < ProtocolVersion.parse("3.6-IV0")
    return replace(rules, protocol=speaks, isr_shrink_bumps_epoch=shrink_bumps)


def _need(given: Mapping[str, Any], key: str) -> Any:
    if key not in given:
        raise CannotRunError(f"the vector has no {key}; it has {sorted(given)}")
    return given[key]


def _brokers(value: Iterable[int] | None) -> Brokers | None:
    return None if value is None else tuple(value)


def _recovery(value: str | int | None) -> RecoveryState | None:
    if value is None:
        return None
    return RecoveryState(value) if isinstance(value, int) else RecoveryState[value]


def _partition(given: Mapping[str, Any]) -> KraftPartition:
    unknown = set(given) - set(KraftPartition._fields) - {"directories"}
    if unknown:
        raise CannotRunError(f"a partition with {sorted(unknown)} is not understood")
    return KraftPartition(
        replicas=tuple(_need(given, "replicas")),
        isr=tuple(_need(given, "isr")),
        elr=tuple(given.get("elr") or ()),
        last_known_elr=tuple(given.get("last_known_elr") or ()),
        leader=given.get("leader", NO_LEADER),
        removing=tuple(given.get("removing") or ()),
        adding=tuple(given.get("adding") or ()),
        recovery=_recovery(given.get("recovery")) or RecoveryState.RECOVERED,
        leader_epoch=given.get("leader_epoch", 0),
        partition_epoch=given.get("partition_epoch", 0),
    )


def _change(given: Mapping[str, Any]) -> PartitionChange:
    fields = {key: value for key, value in given.items() if key != "directories"}
    unknown = set(fields) - set(PartitionChange._fields)
    if unknown:
        raise CannotRunError(f"a record with {sorted(unknown)} is not understood")
    leader, recovery = fields.pop("leader", None), _recovery(fields.pop("recovery", None))
    lists = {key: _brokers(value) for key, value in fields.items()}
    return PartitionChange(leader=leader, recovery=recovery, **lists)


def _acceptable(given: Mapping[str, Any]) -> Acceptable:
    wanted = given.get("acceptable_leader") or {"type": "all"}
    ids = frozenset(wanted.get("ids") or ())
    kinds: dict[str, Acceptable] = {
        "all": lambda _: True,
        "none": lambda _: False,
        "only": lambda broker: broker in ids,
        "all_except": lambda broker: broker not in ids,
    }
    if wanted.get("type") not in kinds:
        raise CannotRunError(f"acceptable_leader {wanted} is not understood")
    return kinds[wanted["type"]]


def _election(name: str | None) -> KraftElection:
    try:
        return KraftElection[name or "ONLINE"]
    except KeyError as unknown:
        raise CannotRunError(f"election {name} is not understood") from unknown


def _plain(value: KraftPartition | PartitionChange) -> dict[str, Any]:
    """Fields that are set, as a vector writes them."""
    shown = {key: item for key, item in value._asdict().items() if item is not None}
    for key, item in shown.items():
        if isinstance(item, RecoveryState):
            shown[key] = item.name
        elif isinstance(item, tuple):
            shown[key] = list(item)
    return shown


def _loose(state: Mapping[str, Any] | None, *names: str) -> dict[str, Any] | None:
    """The same state with the lists whose order does not count put in order."""
    if state is None:
        return None
    return {k: as_set(v) if k in (*_UNORDERED, *names) else v for k, v in state.items()}


def _compare_record(
    expected: Mapping[str, Any] | None, got: PartitionChange | None
) -> list[Difference]:
    """A record that sets one field more than it should is as wrong as one that sets one less."""
    wanted = _loose(expected)
    if wanted is not None:
        wanted.pop("directories", None)
    made = None if got is None else _loose(_plain(got))
    return [] if wanted == made else [Difference("record", wanted, made)]


def _compare(vector: Vector, got: Mapping[str, Any]) -> list[Difference]:
    missing = [key for key in vector.expected if key not in got]
    if missing:
        raise CannotRunError(f"{vector.rule} does not know what {missing} would be")
    return differences(vector.expected, got)


def _compare_change(
    vector: Vector, before: KraftPartition, change: PartitionChange | None
) -> list[Difference]:
    expected = vector.expected
    if not {"record", "partition_after"} & set(expected):
        raise CannotRunError(f"expected {sorted(expected)} is not understood")
    found: list[Difference] = []
    if "record" in expected:
        found += _compare_record(expected["record"], change)
    if "partition_after" in expected:
        after = before if change is None else apply_change(before, change)
        found += differences(_loose(expected["partition_after"]), _loose(_plain(after)), "after")
    return found


def _run_elect(vector: Vector) -> list[Difference]:
    given = vector.input
    elected = elect(
        _partition(_need(given, "partition")),
        election=_election(given.get("election")),
        acceptable=_acceptable(given),
        rules=_rules(vector),
        isr=_brokers(given.get("target_isr")),
        replicas=_brokers(given.get("target_replicas")),
        use_last_known_leader=given.get("use_last_known_leader", True),
    )
    return _compare(vector, {"node": elected.leader, "unclean": elected.unclean})


def _run_build(vector: Vector) -> list[Difference]:
    given = vector.input
    partition = _partition(_need(given, "partition"))
    targets = Targets(
        isr=_brokers(given.get("target_isr")),
        replicas=_brokers(given.get("target_replicas")),
        removing=_brokers(given.get("target_removing")),
        adding=_brokers(given.get("target_adding")),
        recovery=_recovery(given.get("target_recovery")),
    )
    change = build_change(
        partition,
        acceptable=_acceptable(given),
        rules=_rules(vector),
        min_isr=given.get("min_isr", 1),
        election=_election(given.get("election")),
        targets=targets,
        unclean_shutdown=tuple(given.get("unclean_shutdown") or ()),
        use_last_known_leader=given.get("use_last_known_leader", True),
    )
    return _compare_change(vector, partition, change)


def _run_epoch_bump(vector: Vector) -> list[Difference]:
    given = vector.input
    partition = _partition(_need(given, "partition"))
    # Kafka writes neither an empty ISR (without ELR) nor an empty replica list: unchanged.
    bumps = bumps_leader_epoch(
        partition,
        isr=_brokers(given.get("target_isr") or None),
        replicas=_brokers(given.get("target_replicas") or None) or partition.replicas,
        rules=_rules(vector),
    )
    return _compare(vector, {"record_leader": partition.leader if bumps else None})


def _run_merge(vector: Vector) -> list[Difference]:
    before = _partition(_need(vector.input, "partition"))
    return _compare_change(vector, before, _change(_need(vector.input, "record")))


def _assignment(given: Mapping[str, Any]) -> Assignment:
    if "current" in given:
        return start_reassignment(
            current=tuple(given["current"]), target=tuple(_need(given, "target"))
        )
    return Assignment(
        tuple(_need(given, "replicas")),
        adding=tuple(given.get("adding") or ()),
        removing=tuple(given.get("removing") or ()),
    )


def _run_reassignment(vector: Vector) -> list[Difference]:
    started = _assignment(vector.input)
    return _compare(
        vector,
        {
            "replicas": started.replicas,
            "removing": started.removing,
            "adding": started.adding,
            "in_progress": started.being_reassigned,
            "original": started.origin,
            "original_replicas": started.origin,
        },
    )


def _run_complete(vector: Vector) -> list[Difference]:
    done = complete_reassignment(
        _assignment(vector.input),
        isr=tuple(_need(vector.input, "isr")),
        completion=_rules(vector).reassignment_completion,
    )
    return _compare(vector, {"completed": None if done is None else done._asdict()})


def _run_revert(vector: Vector) -> list[Difference]:
    given = vector.input.get("partition", vector.input)
    reverted = revert_reassignment(_assignment(given), isr=tuple(_need(given, "isr")))
    if reverted is None:
        return _compare(vector, {"error": ControllerError.INVALID_REPLICA_ASSIGNMENT.value})
    return _compare(vector, reverted._asdict())


def _registration(broker: BrokerId, given: Mapping[str, Any]) -> Registration:
    return Registration(
        broker,
        given.get("epoch", 100 + broker),
        fenced=bool(given.get("fenced", False)),
        shutting_down=bool(given.get("in_controlled_shutdown", False)),
    )


def _image(vector: Vector, brokers: Iterable[BrokerId]) -> ClusterImage:
    """A cluster of the brokers the vector describes, or else of those it names, all active."""
    given = vector.input
    described = given.get("brokers")
    if isinstance(described, Mapping):
        known = {int(b): _registration(int(b), about) for b, about in described.items()}
    else:
        known = {b: _registration(b, {}) for b in (*brokers, *(described or ()))}
    out, going = given.get("fenced") or (), given.get("in_controlled_shutdown") or ()
    for broker in (*out, *going):
        known[broker] = known.get(broker, _registration(broker, {}))._replace(
            fenced=broker in out, shutting_down=broker in going
        )
    settings = TopicSettings(given.get("min_isr", 1), bool(given.get("unclean_enabled", False)))
    return ClusterImage(_rules(vector), known, defaults=settings)


def _error_name(text: str) -> str:
    """`STALE_BROKER_EPOCH (exception)` says how the error is raised; the name is what counts."""
    return text.split(maxsplit=1)[0]


def _run_alter_partition(vector: Vector) -> list[Difference]:
    given, request = vector.input, _need(vector.input, "request")
    tp = TopicPartition(_TOPIC, 0)
    image = _image(vector, ())
    before = None
    if given.get("partition") is not None:
        before = _partition(given["partition"])
        image = image.with_partition(tp, before)
    elif given.get("topic_known", False):
        image = image.with_partition(TopicPartition(_TOPIC, 1), KraftPartition((), ()))
    asked = AlterPartitionRequest(
        broker=_need(request, "broker_id"),
        broker_epoch=_need(request, "broker_epoch"),
        leader_epoch=request.get("leader_epoch", 0),
        partition_epoch=request.get("partition_epoch", 0),
        isr=tuple(_isr_member(member) for member in request.get("isr") or ()),
        recovery=_recovery(request.get("recovery")) or RecoveryState.RECOVERED,
    )
    step = events.alter_partition(image, tp, asked)
    expected = dict(vector.expected)
    found = differences(_error_name(expected.pop("error", "NONE")), step.error.value, "error")
    if expected and before is not None:
        rest = replace(vector, expected=expected)
        found += _compare_change(rest, before, _only_change(step))
    return found


def _isr_member(member: int | Mapping[str, Any]) -> IsrMember:
    if isinstance(member, Mapping):
        return IsrMember(_need(member, "id"), member.get("epoch", UNKNOWN_BROKER_EPOCH))
    return IsrMember(member)


def _only_change(step: events.Step) -> PartitionChange | None:
    return step.changes[0][1] if step.changes else None


def _run_cancel(vector: Vector) -> list[Difference]:
    before = _partition(_need(vector.input, "partition"))
    tp = TopicPartition(_TOPIC, 0)
    image = _image(vector, before.replicas).with_partition(tp, before)
    step = events.cancel_reassignment(image, tp)
    if "error" in vector.expected:
        return differences(_error_name(vector.expected["error"]), step.error.value, "error")
    return _compare_change(vector, before, _only_change(step))


def _run_create(vector: Vector) -> list[Difference]:
    replicas = _need(vector.input, "replicas")
    tp = TopicPartition(_TOPIC, 0)
    step = events.create_partition(_image(vector, replicas), tp, replicas)
    if tp in step.image.partitions:
        made = {**_plain(step.image.partitions[tp]), "error": "NONE"}
        return _compare(vector, made)
    refused = {"error": step.error.value, "refused": True, "created": False}
    if not set(vector.expected) & set(refused):
        return [Difference("", dict(vector.expected), refused)]
    return differences(vector.expected, refused)


def _run_effective_min_isr(vector: Vector) -> list[Difference]:
    effective = effective_min_isr(
        min_insync_replicas=_need(vector.input, "min_isr"),
        replication_factor=_need(vector.input, "replication_factor"),
    )
    return _compare(vector, {"effective": effective})


def _run_min_isr_change(vector: Vector) -> list[Difference]:
    before, scope = _need(vector.input, "elr_before"), str(_need(vector.input, "scope"))
    kind, _, name = scope.partition(" ")
    if kind not in ("topic", "cluster", "broker"):
        raise CannotRunError(f"scope {scope!r} is not understood")
    image = _image(vector, ())
    for topic, elr in before.items():
        state = KraftPartition(tuple(elr), (), elr=tuple(elr))
        image = image.with_partition(TopicPartition(topic, 0), state)
    changed = name if kind == "topic" else None
    step = events.min_isr_changed(image, vector.input.get("new_min_isr", 1), topic=changed)
    now = {tp.topic: partition for tp, partition in step.image.partitions.items()}
    return _compare(
        vector,
        {
            "elr_after": {topic: sorted(partition.elr) for topic, partition in now.items()},
            "partition_epoch_bumped": {t: p.partition_epoch > 0 for t, p in now.items()},
        },
    )


Errors = dict[str, ControllerError]
Names = Mapping[str, TopicPartition]
Act = Callable[[ClusterImage, Names, Mapping[str, Any]], tuple[ClusterImage, Errors]]


def _each_broker(kind: str, event: Callable[[ClusterImage, BrokerId], events.Step]) -> Act:
    """Brokers are handled one at a time, ascending: each sees what the one before it caused."""

    def act(
        image: ClusterImage, names: Names, step: Mapping[str, Any]
    ) -> tuple[ClusterImage, Errors]:
        for broker in sorted(step[kind]):
            image = event(image, broker).image
        return image, {}

    return act


def _unfence(image: ClusterImage, broker: BrokerId) -> events.Step:
    """A broker leaves controlled shutdown only by registering again."""
    if broker in image.brokers and image.brokers[broker].shutting_down:
        image = events.restarted(image, broker, clean=True).image
    return events.unfence(image, broker)


def _named(names: Names, step: Mapping[str, Any]) -> tuple[str, TopicPartition]:
    """The partition a step is about; it may be left out where there is only one."""
    name = str(step["partition"]) if "partition" in step else next(iter(names))
    if "partition" not in step and len(names) != 1:
        raise CannotRunError("the step does not say which partition it is about")
    return name, names.get(name, TopicPartition(_TOPIC, -1))


def _alter_isr(
    image: ClusterImage, names: Names, step: Mapping[str, Any]
) -> tuple[ClusterImage, Errors]:
    """The leader itself asks, with the epochs the controller has."""
    name, tp = _named(names, step)
    partition = image.partitions.get(tp)
    if partition is None:
        raise CannotRunError(f"there is no partition {name}")
    sender = image.brokers.get(partition.leader, Registration(partition.leader))
    request = AlterPartitionRequest(
        broker=sender.broker,
        broker_epoch=sender.broker_epoch,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple(_isr_member(member) for member in step["alter_isr"]),
        recovery=_recovery(step.get("recovery")) or RecoveryState.RECOVERED,
    )
    done = events.alter_partition(image, tp, request)
    return done.image, {name: done.error}


def _elect_leaders(
    image: ClusterImage, names: Names, step: Mapping[str, Any]
) -> tuple[ClusterImage, Errors]:
    asked = step.get("partitions") or (*names, *(step.get("expect_errors") or ()))
    errors: Errors = {}
    for name in dict.fromkeys(map(str, asked)):
        tp = names.get(name, TopicPartition(_TOPIC, -1))
        done = events.elect_leader(image, tp, _election(step["elect_leaders"]))
        image, errors[name] = done.image, done.error
    return image, errors


def _reassign(
    image: ClusterImage, names: Names, step: Mapping[str, Any]
) -> tuple[ClusterImage, Errors]:
    name, tp = _named(names, step)
    may_change = bool(step.get("allow_rf_change", True))
    done = events.reassign(
        image, tp, tuple(step["reassign"]), replication_factor_may_change=may_change
    )
    return done.image, {name: done.error}


def _cancel_reassign(
    image: ClusterImage, names: Names, step: Mapping[str, Any]
) -> tuple[ClusterImage, Errors]:
    name, tp = _named(names, step)
    done = events.cancel_reassignment(image, tp)
    return done.image, {name: done.error}


def _set_unclean(
    image: ClusterImage, names: Names, step: Mapping[str, Any]
) -> tuple[ClusterImage, Errors]:
    wanted = bool(step["set_unclean_enabled"])
    defaults = image.defaults._replace(unclean_leader_election_enable=wanted)
    return replace(image, defaults=defaults), {}


_STEPS: Final[dict[str, Act]] = {
    "fence": _each_broker("fence", events.fence),
    "unfence": _each_broker("unfence", _unfence),
    "controlled_shutdown": _each_broker("controlled_shutdown", events.controlled_shutdown),
    "clean_shutdown": _each_broker(
        "clean_shutdown", lambda image, broker: events.restarted(image, broker, clean=True)
    ),
    "unclean_shutdown": _each_broker(
        "unclean_shutdown", lambda image, broker: events.restarted(image, broker, clean=False)
    ),
    "unregister": _each_broker("unregister", events.unregister),
    "alter_isr": _alter_isr,
    "elect_leaders": _elect_leaders,
    "set_unclean_enabled": _set_unclean,
    "set_min_isr": lambda image, _, step: (
        events.min_isr_changed(image, step["set_min_isr"]).image,
        {},
    ),
    "maybe_elect_unclean": lambda image, _names, _step: (events.elect_unclean(image).image, {}),
    "balance": lambda image, _names, _step: (events.balance(image).image, {}),
    "reassign": _reassign,
    "cancel_reassign": _cancel_reassign,
}


def _brokers_named(given: Mapping[str, Any], assignments: Iterable[Iterable[int]]) -> set[int]:
    """Every broker named is registered, save those of an assignment that is to be refused."""
    named = {broker for replicas in assignments for broker in replicas}
    for step in given["steps"]:
        if step.get("expect_error") == ControllerError.INVALID_REPLICA_ASSIGNMENT:
            continue
        for kind, value in step.items():
            if kind in _STEPS and isinstance(value, list):
                named |= {_isr_member(item).broker for item in value}
    return named


def _created(vector: Vector) -> tuple[ClusterImage, dict[str, TopicPartition]]:
    given = vector.input
    assignments = {"0": given["replicas"]} if "replicas" in given else _need(given, "partitions")
    # A sorted order gives partition 0 its number, whose replica count bounds the min ISR.
    names = {name: TopicPartition(_TOPIC, i) for i, name in enumerate(sorted(assignments))}
    image = _image(vector, _brokers_named(given, assignments.values()))
    fenced = given.get("fenced_at_creation") or ()
    going = given.get("in_controlled_shutdown_at_creation") or ()
    for broker in (*fenced, *going):
        known = image.brokers.get(broker, _registration(broker, {}))
        state = known._replace(fenced=broker in fenced, shutting_down=broker in going)
        image = image.with_broker(state)
    for name, tp in names.items():
        step = events.create_partition(image, tp, tuple(assignments[name]))
        if step.error is not ControllerError.NONE:
            raise CannotRunError(f"partition {name} cannot be created: {step.error}")
        image = step.image
    return image, names


def _act(step: Mapping[str, Any]) -> Act | None:
    kinds = set(step) - _CHECKS - _OPTIONS
    if len(kinds) > 1 or not kinds <= set(_STEPS):
        raise CannotRunError(f"a step with {sorted(kinds)} is not understood")
    return _STEPS[kinds.pop()] if kinds else None


def _check_errors(step: Mapping[str, Any], errors: Errors, where: str) -> list[Difference]:
    """An error nobody expects is a difference, except that an election may well be needless."""
    got = {name: error.value for name, error in errors.items()}
    if "expect_errors" in step:
        wanted = {name: _error_name(text) for name, text in step["expect_errors"].items()}
        return differences(wanted, got, f"{where}.errors")
    if "expect_error" in step:
        wanted_error = _error_name(step["expect_error"])
        return differences([wanted_error] * len(got), list(got.values()), f"{where}.error")
    if "elect_leaders" in step:
        return []
    return [
        Difference(f"{where}.error", "NONE", error)
        for error in got.values()
        if error not in ("NONE", "NEW_LEADER_ELECTED")
    ]


def _check_states(
    vector: Vector, step: Mapping[str, Any], image: ClusterImage, names: Names, where: str
) -> list[Difference]:
    expected = step.get("expect") or {}
    if "replicas" in vector.input:
        expected = {"0": expected}
    found: list[Difference] = []
    for name, state in expected.items():
        if name not in names or not set(state) <= set(KraftPartition._fields):
            raise CannotRunError(f"expected {name}: {state} is not understood")
        got = _loose(_plain(image.partitions[names[name]]), "isr")
        found += differences(_loose(state, "isr"), got, f"{where}.{name}")
    if "expect_imbalanced" in step:
        imbalanced = bool(image.imbalanced)
        found += differences(step["expect_imbalanced"], imbalanced, f"{where}.imbalanced")
    return found


def _run_scenario(vector: Vector) -> list[Difference]:
    _need(vector.input, "steps")
    image, names = _created(vector)
    found: list[Difference] = []
    for number, step in enumerate(vector.input["steps"]):
        act, where = _act(step), f"steps[{number}]"
        image, errors = act(image, names, step) if act else (image, {})
        found += _check_errors(step, errors, where)
        found += _check_states(vector, step, image, names, where)
    return found


HANDLERS: Final[dict[str, Handler]] = {
    "kraft.elect": _run_elect,
    "kraft.build": _run_build,
    "kraft.leader_epoch_bump": _run_epoch_bump,
    "kraft.merge": _run_merge,
    "kraft.reassignment": _run_reassignment,
    "kraft.reassignment_complete": _run_complete,
    "kraft.reassignment_revert": _run_revert,
    "kraft.cancel_reassignment": _run_cancel,
    "kraft.create_partition": _run_create,
    "kraft.effective_min_isr": _run_effective_min_isr,
    "kraft.min_isr_config_change": _run_min_isr_change,
    "kraft.alter_partition": _run_alter_partition,
    "kraft.scenario": _run_scenario,
}
