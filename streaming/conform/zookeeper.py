"""Runs the recorded facts about the ZooKeeper-mode controller (`zk.*`) through our rules.

Here are elections, assignments and imbalance; the rest is in `zookeeper_controller`.

A handler reads the input, calls the rule, and compares. It decides nothing itself: what is not in
`tidestaff.consistency` is not tested here. `zk.scenario.partition_state` is a narrative for
scenario tests and has no handler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidestaff.consistency import election, reassignment, rebalance
from tidestaff.consistency.election import ElectionKind, ElectionStrategy
from tidestaff.consistency.model import Assignment, PartitionState
from tidestaff.consistency.partition_lifecycle import PartitionLifecycle, next_lifecycle
from tidestaff.consistency.versions import rules_for
from tidestaff.streaming.conform import zookeeper_controller
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Handler,
    Vector,
    differences,
)
from tidestaff.streaming.conform.zookeeper_fields import (
    NEWEST,
    compare_final,
    field,
    ids,
    need,
    optional_ids,
    rules_of,
    shown_state,
    state_of,
    steps_of,
)


def _elect_offline(vector: Vector) -> list[Difference]:
    given = vector.input
    result = election.elect_offline(
        assignment=_replicas(vector),
        isr=ids(vector, "isr"),
        live=_live(vector),
        unclean_allowed=bool(given.get("unclean_enabled")),
    )
    return _compare_election(vector, result)


def _elect_reassign(vector: Vector) -> list[Difference]:
    result = election.elect_for_reassignment(
        target=_target(vector), isr=ids(vector, "isr"), live=_live(vector)
    )
    return _compare_election(vector, result)


def _elect_preferred(vector: Vector) -> list[Difference]:
    result = election.elect_preferred(
        assignment=_replicas(vector), isr=ids(vector, "isr"), live=_live(vector)
    )
    return _compare_election(vector, result)


def _elect_controlled_shutdown(vector: Vector) -> list[Difference]:
    result = election.elect_for_controlled_shutdown(
        assignment=_replicas(vector),
        isr=ids(vector, "isr"),
        registered=_registered(vector),
        shutting_down=optional_ids(vector, "shutting_down"),
    )
    return _compare_election(vector, result)


def _compare_election(vector: Vector, result: election.ElectionResult) -> list[Difference]:
    unclean = result.kind is ElectionKind.UNCLEAN
    got = {"leader": result.leader, "unclean_elections": int(unclean), "unclean": unclean}
    return differences(vector.expected, got)


def _write_offline(vector: Vector) -> list[Difference]:
    state = state_of(vector)
    written = election.offline_election(
        state,
        assignment=_replicas(vector),
        live=_live(vector),
        unclean_allowed=bool(vector.input.get("unclean_enabled")),
        rules=rules_of(vector),
        controller_epoch=vector.input.get("controller_epoch"),
    )
    told = election.told_of_election(
        ElectionStrategy.OFFLINE, replicas=_replicas(vector), online=_live(vector)
    )
    unclean = written is not None and written.leader not in state.isr
    return _compare_write(vector, state, written, told, unclean=unclean)


def _write_reassign(vector: Vector) -> list[Difference]:
    state = state_of(vector)
    written = election.reassignment_election(
        state,
        target=_target(vector),
        live=_live(vector),
        controller_epoch=vector.input.get("controller_epoch"),
    )
    told = election.told_of_election(
        ElectionStrategy.REASSIGN, replicas=_target(vector), online=_live(vector)
    )
    return _compare_write(vector, state, written, told)


def _write_preferred(vector: Vector) -> list[Difference]:
    state = state_of(vector)
    written = election.preferred_election(
        state,
        assignment=_replicas(vector),
        live=_live(vector),
        controller_epoch=vector.input.get("controller_epoch"),
    )
    told = election.told_of_election(
        ElectionStrategy.PREFERRED, replicas=_replicas(vector), online=_live(vector)
    )
    return _compare_write(vector, state, written, told)


def _write_controlled_shutdown(vector: Vector) -> list[Difference]:
    state = state_of(vector)
    written = election.controlled_shutdown_election(
        state,
        assignment=_replicas(vector),
        registered=_registered(vector),
        shutting_down=optional_ids(vector, "shutting_down"),
        controller_epoch=vector.input.get("controller_epoch"),
    )
    told = election.told_of_election(
        ElectionStrategy.CONTROLLED_SHUTDOWN,
        replicas=_replicas(vector),
        online=_registered(vector),
    )
    return _compare_write(vector, state, written, told)


def _remove_from_isr(vector: Vector) -> list[Difference]:
    state = state_of(vector)
    replica = need(vector, "replica")
    written = election.remove_from_isr(
        state,
        replica=replica,
        rules=rules_of(vector),
        unclean_allowed=bool(vector.input.get("unclean_enabled")),
        controller_epoch=vector.input.get("controller_epoch"),
    )
    unasked = "state" in vector.expected and vector.expected["state"] is None
    after = written or state
    assigned = _replicas(vector) if "assignment" in vector.input else ()
    got = {
        "state": None if written is None and unasked else shown_state(after),
        "leader_and_isr_recipients": [member for member in assigned if member != replica],
        "written": written is not None,
        **shown_state(after),
    }
    return differences(vector.expected, got)


def _compare_write(
    vector: Vector,
    before: PartitionState,
    written: PartitionState | None,
    told: Iterable[int],
    *,
    unclean: bool = False,
) -> list[Difference]:
    # Where nothing is written a fact may say so (null), or name the state that is still there.
    kept = before if isinstance(vector.expected.get("state"), Mapping) else None
    after = written or kept
    lifecycle = PartitionLifecycle(
        vector.input.get("partition_state")
        or ("OnlinePartition" if before.leader in _registered(vector) else "OfflinePartition")
    )
    lifecycle = next_lifecycle(
        lifecycle, PartitionLifecycle.ONLINE, state_written=written is not None
    )
    got = {
        "state": None if after is None else shown_state(after),
        "leader": None if written is None else written.leader,
        "leader_and_isr_recipients": [] if written is None else list(told),
        "unclean_elections": int(unclean),
        "partition_state": lifecycle.value,
        "controller_epoch": None if after is None else after.controller_epoch,
        "is_new": False,
    }
    return differences(vector.expected, got)


def _init_partition(vector: Vector) -> list[Difference]:
    state = election.new_partition(
        assignment=_replicas(vector),
        live=_live(vector),
        controller_epoch=vector.input.get("controller_epoch"),
    )
    # A creation that ZooKeeper refuses leaves the partition as it was.
    if vector.input.get("create_result") not in (None, "OK"):
        state = None
    lifecycle = next_lifecycle(
        PartitionLifecycle.NEW, PartitionLifecycle.ONLINE, state_written=state is not None
    )
    got = {
        "state": None if state is None else shown_state(state),
        "leader": None if state is None else state.leader,
        "controller_epoch": None if state is None else state.controller_epoch,
        "is_new": state is not None,
        "partition_state": lifecycle.value,
        "leader_and_isr_recipients": [] if state is None else list(state.isr),
    }
    return differences(vector.expected, got)


def _partition_state_transition(vector: Vector) -> list[Difference]:
    try:
        current = PartitionLifecycle(need(vector, "from"))
        asked = PartitionLifecycle(need(vector, "to"))
    except ValueError as error:
        raise CannotRunError(f"{vector.id}: {error}") from error
    after = next_lifecycle(current, asked)
    return differences(vector.expected, {"state": after.value, "valid": after is asked})


def _assignment_target(vector: Vector) -> list[Difference]:
    return differences(vector.expected, _shown_assignment(_assignment(vector)))


def _assignment_reassign_to(vector: Vector) -> list[Difference]:
    after = reassignment.reassign_to(_assignment(vector), ids(vector, "target"))
    return differences(vector.expected, _shown_assignment(after))


def _shown_assignment(assignment: Assignment) -> dict[str, object]:
    return {
        "replicas": list(assignment.replicas),
        "adding": list(assignment.adding),
        "removing": list(assignment.removing),
        "target": list(reassignment.target(assignment)),
        "origin": list(reassignment.origin(assignment)),
        "being_reassigned": assignment.being_reassigned,
    }


def _preferred_imbalance_count(vector: Vector) -> list[Difference]:
    known: dict[str, rebalance.Leadership] = {}
    doomed: set[str] = set()
    found: list[Difference] = []
    rules = rules_for(NEWEST)
    for index, step in enumerate(steps_of(vector)):
        if step.get("op") == "check":
            count = rebalance.preferred_replica_imbalance_count(known.values(), rules=rules)
            found.extend(differences(step.get("count"), count, f"steps[{index}].count"))
        else:
            _change_partitions(vector, step, known, doomed)
    final = rebalance.preferred_replica_imbalance_count(known.values(), rules=rules)
    return found + compare_final(vector, {"final": final, "count": final})


def _change_partitions(
    vector: Vector,
    step: Mapping[str, Any],
    known: dict[str, rebalance.Leadership],
    doomed: set[str],
) -> None:
    names = _names(step)
    if step.get("op") == "assign":
        for name in names:
            before = known.get(name)
            state = before.state if before else None
            known[name] = rebalance.Leadership(
                _assignment_of(vector, step), state, deleting=name in doomed
            )
    elif step.get("op") == "leader":
        for name in names:
            field(vector, known, name)
            isr = step.get("isr") or known[name].assignment.replicas
            state = PartitionState(int(step["leader"]), 0, tuple(isr))
            known[name] = known[name]._replace(state=state)
    elif step.get("op") == "queue_topic_deletion":
        doomed.update(names)
        known.update({n: known[n]._replace(deleting=True) for n in names if n in known})
    elif step.get("op") == "remove":
        doomed.difference_update(names)
        for name in names:
            known.pop(name, None)
    else:
        raise CannotRunError(f"{vector.id}: step {step.get('op')!r} is not known")


def _names(step: Mapping[str, Any]) -> list[str]:
    several = step.get("tps") or step.get("topics")
    return [str(name) for name in (several if several else [step.get("tp") or step.get("topic")])]


def _live(vector: Vector) -> tuple[int, ...]:
    """Live brokers; those shutting down are not live even where the fact lists them."""
    going = optional_ids(vector, "shutting_down")
    return tuple(broker for broker in ids(vector, "live") if broker not in going)


def _registered(vector: Vector) -> tuple[int, ...]:
    if vector.input.get("registered") is not None:
        return ids(vector, "registered")
    return (*ids(vector, "live"), *optional_ids(vector, "shutting_down"))


def _assignment(vector: Vector) -> Assignment:
    return _assignment_of(vector, vector.input)


def _assignment_of(vector: Vector, mapping: Mapping[str, Any]) -> Assignment:
    return Assignment(
        replicas=tuple(field(vector, mapping, "replicas")),
        adding=tuple(mapping.get("adding") or ()),
        removing=tuple(mapping.get("removing") or ()),
    )


def _replicas(vector: Vector) -> tuple[int, ...]:
    given = vector.input.get("assignment")
    if isinstance(given, Mapping):
        return _assignment_of(vector, given).replicas
    return ids(vector, "assignment")


def _target(vector: Vector) -> tuple[int, ...]:
    for key in ("reassignment", "target"):
        if vector.input.get(key) is not None:
            return ids(vector, key)
    given = vector.input.get("assignment")
    if isinstance(given, Mapping):
        return _assignment_of(vector, given).target
    if given is not None:
        removing = optional_ids(vector, "removing")
        return Assignment(ids(vector, "assignment"), removing=removing).target
    raise CannotRunError(f"{vector.id}: no reassignment, target or assignment given")


HANDLERS: Final[dict[str, Handler]] = {
    "zk.elect.offline": _elect_offline,
    "zk.elect.reassign": _elect_reassign,
    "zk.elect.preferred": _elect_preferred,
    "zk.elect.controlled_shutdown": _elect_controlled_shutdown,
    "zk.leader_and_isr.offline": _write_offline,
    "zk.leader_and_isr.reassign": _write_reassign,
    "zk.leader_and_isr.preferred": _write_preferred,
    "zk.leader_and_isr.controlled_shutdown": _write_controlled_shutdown,
    "zk.init_partition": _init_partition,
    "zk.remove_from_isr": _remove_from_isr,
    "zk.partition_state_transition": _partition_state_transition,
    "zk.assignment.target": _assignment_target,
    "zk.assignment.reassign_to": _assignment_reassign_to,
    "zk.preferred_imbalance_count": _preferred_imbalance_count,
    **zookeeper_controller.HANDLERS,
}
