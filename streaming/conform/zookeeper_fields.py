"""How facts about the ZooKeeper mode (`zk.*`) write versions, states and steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tidestaff.consistency.errors import UnknownVersionError
from tidestaff.consistency.model import PartitionState, RecoveryState
from tidestaff.consistency.versions import RuleSet, rules_for
from tidestaff.streaming.conform.vectors import CannotRunError, Difference, Vector, differences

NEWEST: Final = "3.9"
_WITHOUT_RECOVERY_STATE: Final = "3.1-IV0"
_RANGE: Final = re.compile(r"^(\d+(?:\.\d+)+) - (\d+(?:\.\d+)+)")


def rules_of(vector: Vector) -> RuleSet:
    """The rule set of the last version the fact holds for."""
    held = _RANGE.match(vector.versions)
    version = str(vector.input.get("version") or (held.group(2) if held else NEWEST))
    try:
        rules = rules_for(version)
    except UnknownVersionError as error:
        raise CannotRunError(f"{vector.id}: {error}") from error
    if rules.leader_recovery_state and vector.input.get("leader_recovery_supported") is False:
        return rules_for(version, protocol=_WITHOUT_RECOVERY_STATE)
    return rules


def need(vector: Vector, key: str) -> Any:
    return field(vector, vector.input, key)


def field(vector: Vector, mapping: Mapping[str, Any], key: str) -> Any:
    if key not in mapping:
        raise CannotRunError(f"{vector.id}: {vector.rule} needs {key}, found {sorted(mapping)}")
    return mapping[key]


def ids(vector: Vector, key: str) -> tuple[int, ...]:
    value = need(vector, key)
    if not isinstance(value, (list, tuple)):
        raise CannotRunError(f"{vector.id}: {key} is {value!r}, not a list of broker ids")
    return tuple(int(broker) for broker in value)


def optional_ids(vector: Vector, key: str) -> tuple[int, ...]:
    return () if vector.input.get(key) is None else ids(vector, key)


def state_of(vector: Vector, key: str = "state") -> PartitionState:
    given = need(vector, key)
    if not isinstance(given, Mapping):
        raise CannotRunError(f"{vector.id}: {key} is {given!r}, not a partition state")
    recovery = requested_recovery(given.get("recovery"))
    if recovery is None:
        raise CannotRunError(f"{vector.id}: recovery state {given.get('recovery')!r} is not known")
    return PartitionState(
        leader=field(vector, given, "leader"),
        leader_epoch=int(given.get("leader_epoch") or 0),
        isr=tuple(field(vector, given, "isr")),
        partition_epoch=int(given.get("partition_epoch") or 0),
        controller_epoch=given.get("controller_epoch"),
        recovery=recovery,
    )


def requested_recovery(given: object) -> RecoveryState | None:
    """The recovery state by name or number, RECOVERED where none is given, None if unknown."""
    if given is None:
        return RecoveryState.RECOVERED
    return next((state for state in RecoveryState if given in (state.name, state.value)), None)


def shown_state(state: PartitionState) -> dict[str, object]:
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "recovery": state.recovery.name,
        "partition_epoch": state.partition_epoch,
        "controller_epoch": state.controller_epoch,
    }


def steps_of(vector: Vector) -> list[Mapping[str, Any]]:
    steps = need(vector, "steps")
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise CannotRunError(f"{vector.id}: steps is not a list of steps")
    return steps


def compare_final(vector: Vector, got: Mapping[str, object]) -> list[Difference]:
    """`{"see": "steps[].expect"}` says that the steps were all there is to check."""
    asserted = {key: value for key, value in vector.expected.items() if key != "see"}
    return differences(asserted, got, "final")
