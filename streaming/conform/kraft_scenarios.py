"""Conformance of the KRaft controller over several events, each seeing what the last one left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from tidestaff.consistency import kraft_events as events
from tidestaff.consistency.kraft import KraftPartition
from tidestaff.consistency.kraft_alter_partition import AlterPartitionRequest
from tidestaff.consistency.kraft_image import ClusterImage
from tidestaff.consistency.model import BrokerId, RecoveryState, Registration, TopicPartition
from tidestaff.consistency.registration import ControllerError
from tidestaff.streaming.conform.kraft_fields import (
    TOPIC,
    election_of,
    error_name,
    image_of,
    isr_member,
    loose,
    need,
    plain,
    recovery_of,
    registration_of,
)
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Handler,
    Vector,
    differences,
)

_CHECKS: Final = frozenset({"expect", "expect_error", "expect_errors", "expect_imbalanced", "note"})
_OPTIONS: Final = frozenset({"partition", "partitions", "recovery", "allow_rf_change"})
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
    return name, names.get(name, TopicPartition(TOPIC, -1))


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
        isr=tuple(isr_member(member) for member in step["alter_isr"]),
        recovery=recovery_of(step.get("recovery")) or RecoveryState.RECOVERED,
    )
    done = events.alter_partition(image, tp, request)
    return done.image, {name: done.error}


def _elect_leaders(
    image: ClusterImage, names: Names, step: Mapping[str, Any]
) -> tuple[ClusterImage, Errors]:
    asked = step.get("partitions") or (*names, *(step.get("expect_errors") or ()))
    errors: Errors = {}
    for name in dict.fromkeys(map(str, asked)):
        tp = names.get(name, TopicPartition(TOPIC, -1))
        done = events.elect_leader(image, tp, election_of(step["elect_leaders"]))
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
                named |= {isr_member(item).broker for item in value}
    return named


def _created(vector: Vector) -> tuple[ClusterImage, dict[str, TopicPartition]]:
    given = vector.input
    assignments = {"0": given["replicas"]} if "replicas" in given else need(given, "partitions")
    # A sorted order gives partition 0 its number, whose replica count bounds the min ISR.
    names = {name: TopicPartition(TOPIC, i) for i, name in enumerate(sorted(assignments))}
    image = image_of(vector, _brokers_named(given, assignments.values()))
    fenced = given.get("fenced_at_creation") or ()
    going = given.get("in_controlled_shutdown_at_creation") or ()
    for broker in (*fenced, *going):
        known = image.brokers.get(broker, registration_of(broker, {}))
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
        wanted = {name: error_name(text) for name, text in step["expect_errors"].items()}
        return differences(wanted, got, f"{where}.errors")
    if "expect_error" in step:
        wanted_error = error_name(step["expect_error"])
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
        got = loose(plain(image.partitions[names[name]]), "isr")
        found += differences(loose(state, "isr"), got, f"{where}.{name}")
    if "expect_imbalanced" in step:
        imbalanced = bool(image.imbalanced)
        found += differences(step["expect_imbalanced"], imbalanced, f"{where}.imbalanced")
    return found


def _run_scenario(vector: Vector) -> list[Difference]:
    need(vector.input, "steps")
    image, names = _created(vector)
    found: list[Difference] = []
    for number, step in enumerate(vector.input["steps"]):
        act, where = _act(step), f"steps[{number}]"
        image, errors = act(image, names, step) if act else (image, {})
        found += _check_errors(step, errors, where)
        found += _check_states(vector, step, image, names, where)
    return found


HANDLERS: Final[dict[str, Handler]] = {
    "kraft.scenario": _run_scenario,
}
