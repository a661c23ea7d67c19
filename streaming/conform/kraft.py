"""Conformance of the KRaft controller rules: each vector is run through tidestaff.consistency."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency import kraft_events as events
from tidestaff.consistency.kraft import (
    Acceptable,
    KraftPartition,
    PartitionChange,
    Targets,
    build_change,
    bumps_leader_epoch,
    effective_min_isr,
    elect,
)
from tidestaff.consistency.kraft_alter_partition import AlterPartitionRequest
from tidestaff.consistency.kraft_reassignment import (
    complete_reassignment,
    revert_reassignment,
    start_reassignment,
)
from tidestaff.consistency.model import Assignment, RecoveryState, TopicPartition
from tidestaff.consistency.registration import ControllerError
from tidestaff.streaming.conform.kraft_fields import (
    TOPIC,
    brokers_of,
    compare,
    compare_change,
    election_of,
    error_name,
    image_of,
    isr_member,
    need,
    partition_of,
    plain,
    recovery_of,
    rules_of,
)
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Handler,
    Vector,
    differences,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def _change(given: Mapping[str, Any]) -> PartitionChange:
    fields = {key: value for key, value in given.items() if key != "directories"}
    unknown = set(fields) - set(PartitionChange._fields)
    if unknown:
        raise CannotRunError(f"a record with {sorted(unknown)} is not understood")
    leader, recovery = fields.pop("leader", None), recovery_of(fields.pop("recovery", None))
    lists = {key: brokers_of(value) for key, value in fields.items()}
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


def _run_elect(vector: Vector) -> list[Difference]:
    given = vector.input
    elected = elect(
        partition_of(need(given, "partition")),
        election=election_of(given.get("election")),
        acceptable=_acceptable(given),
        rules=rules_of(vector),
        isr=brokers_of(given.get("target_isr")),
        replicas=brokers_of(given.get("target_replicas")),
        use_last_known_leader=given.get("use_last_known_leader", True),
    )
    return compare(vector, {"node": elected.leader, "unclean": elected.unclean})


def _run_build(vector: Vector) -> list[Difference]:
    given = vector.input
    partition = partition_of(need(given, "partition"))
    targets = Targets(
        isr=brokers_of(given.get("target_isr")),
        replicas=brokers_of(given.get("target_replicas")),
        removing=brokers_of(given.get("target_removing")),
        adding=brokers_of(given.get("target_adding")),
        recovery=recovery_of(given.get("target_recovery")),
    )
    change = build_change(
        partition,
        acceptable=_acceptable(given),
        rules=rules_of(vector),
        min_isr=given.get("min_isr", 1),
        election=election_of(given.get("election")),
        targets=targets,
        unclean_shutdown=tuple(given.get("unclean_shutdown") or ()),
        use_last_known_leader=given.get("use_last_known_leader", True),
    )
    return compare_change(vector, partition, change)


def _run_epoch_bump(vector: Vector) -> list[Difference]:
    given = vector.input
    partition = partition_of(need(given, "partition"))
    # Kafka writes neither an empty ISR (without ELR) nor an empty replica list: unchanged.
    bumps = bumps_leader_epoch(
        partition,
        isr=brokers_of(given.get("target_isr") or None),
        replicas=brokers_of(given.get("target_replicas") or None) or partition.replicas,
        rules=rules_of(vector),
    )
    return compare(vector, {"record_leader": partition.leader if bumps else None})


def _run_merge(vector: Vector) -> list[Difference]:
    before = partition_of(need(vector.input, "partition"))
    return compare_change(vector, before, _change(need(vector.input, "record")))


def _assignment(given: Mapping[str, Any]) -> Assignment:
    if "current" in given:
        return start_reassignment(
            current=tuple(given["current"]), target=tuple(need(given, "target"))
        )
    return Assignment(
        tuple(need(given, "replicas")),
        adding=tuple(given.get("adding") or ()),
        removing=tuple(given.get("removing") or ()),
    )


def _run_reassignment(vector: Vector) -> list[Difference]:
    started = _assignment(vector.input)
    return compare(
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
        isr=tuple(need(vector.input, "isr")),
        completion=rules_of(vector).reassignment_completion,
    )
    return compare(vector, {"completed": None if done is None else done._asdict()})


def _run_revert(vector: Vector) -> list[Difference]:
    given = vector.input.get("partition", vector.input)
    reverted = revert_reassignment(_assignment(given), isr=tuple(need(given, "isr")))
    if reverted is None:
        return compare(vector, {"error": ControllerError.INVALID_REPLICA_ASSIGNMENT.value})
    return compare(vector, reverted._asdict())


def _run_alter_partition(vector: Vector) -> list[Difference]:
    given, request = vector.input, need(vector.input, "request")
    tp = TopicPartition(TOPIC, 0)
    image = image_of(vector, ())
    before = None
    if given.get("partition") is not None:
        before = partition_of(given["partition"])
        image = image.with_partition(tp, before)
    elif given.get("topic_known", False):
        image = image.with_partition(TopicPartition(TOPIC, 1), KraftPartition((), ()))
    asked = AlterPartitionRequest(
        broker=need(request, "broker_id"),
        broker_epoch=need(request, "broker_epoch"),
        leader_epoch=request.get("leader_epoch", 0),
        partition_epoch=request.get("partition_epoch", 0),
        isr=tuple(isr_member(member) for member in request.get("isr") or ()),
        recovery=recovery_of(request.get("recovery")) or RecoveryState.RECOVERED,
    )
    step = events.alter_partition(image, tp, asked)
    expected = dict(vector.expected)
    found = differences(error_name(expected.pop("error", "NONE")), step.error.value, "error")
    if expected and before is not None:
        rest = replace(vector, expected=expected)
        found += compare_change(rest, before, _only_change(step))
    return found


def _only_change(step: events.Step) -> PartitionChange | None:
    return step.changes[0][1] if step.changes else None


def _run_cancel(vector: Vector) -> list[Difference]:
    before = partition_of(need(vector.input, "partition"))
    tp = TopicPartition(TOPIC, 0)
    image = image_of(vector, before.replicas).with_partition(tp, before)
    step = events.cancel_reassignment(image, tp)
    if "error" in vector.expected:
        return differences(error_name(vector.expected["error"]), step.error.value, "error")
    return compare_change(vector, before, _only_change(step))


def _run_create(vector: Vector) -> list[Difference]:
    replicas = need(vector.input, "replicas")
    tp = TopicPartition(TOPIC, 0)
    step = events.create_partition(image_of(vector, replicas), tp, replicas)
    if tp in step.image.partitions:
        made = {**plain(step.image.partitions[tp]), "error": "NONE"}
        return compare(vector, made)
    refused = {"error": step.error.value, "refused": True, "created": False}
    if not set(vector.expected) & set(refused):
        return [Difference("", dict(vector.expected), refused)]
    return differences(vector.expected, refused)


def _run_effective_min_isr(vector: Vector) -> list[Difference]:
    effective = effective_min_isr(
        min_insync_replicas=need(vector.input, "min_isr"),
        replication_factor=need(vector.input, "replication_factor"),
    )
    return compare(vector, {"effective": effective})


def _run_min_isr_change(vector: Vector) -> list[Difference]:
    before, scope = need(vector.input, "elr_before"), str(need(vector.input, "scope"))
    kind, _, name = scope.partition(" ")
    if kind not in ("topic", "cluster", "broker"):
        raise CannotRunError(f"scope {scope!r} is not understood")
    image = image_of(vector, ())
    for topic, elr in before.items():
        state = KraftPartition(tuple(elr), (), elr=tuple(elr))
        image = image.with_partition(TopicPartition(topic, 0), state)
    changed = name if kind == "topic" else None
    step = events.min_isr_changed(image, vector.input.get("new_min_isr", 1), topic=changed)
    now = {tp.topic: partition for tp, partition in step.image.partitions.items()}
    return compare(
        vector,
        {
            "elr_after": {topic: sorted(partition.elr) for topic, partition in now.items()},
            "partition_epoch_bumped": {t: p.partition_epoch > 0 for t, p in now.items()},
        },
    )


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
}
