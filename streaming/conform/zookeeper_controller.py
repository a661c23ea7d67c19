"""Runs the recorded facts about who is controller in ZooKeeper mode, and what may be written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tidestaff.consistency import alter_partition as alter
from tidestaff.consistency import controller
from tidestaff.consistency.model import UNKNOWN_BROKER_EPOCH, PartitionState, Registration
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Handler,
    Vector,
    differences,
)
from tidestaff.streaming.conform.zookeeper_fields import (
    compare_final,
    field,
    need,
    optional_ids,
    requested_recovery,
    rules_of,
    shown_state,
    state_of,
    steps_of,
)

_KRAFT_EPOCH_OF_THE_TEST: Final = 42
_EPOCH_NODE_OF_THE_TEST: Final = controller.EpochNode(1, 0)


def _alter_partition(vector: Vector) -> list[Difference]:
    current = None if vector.input.get("current") is None else state_of(vector, "current")
    answer = _ask_to_alter(vector, current, need(vector, "request"))
    return differences(vector.expected, _shown_answer(answer))


def _scenario_alter_partition(vector: Vector) -> list[Difference]:
    current: PartitionState | None = state_of(vector, "current")
    found: list[Difference] = []
    for index, step in enumerate(steps_of(vector)):
        if "request" not in step:
            raise CannotRunError(f"{vector.id}: step {index} has no request")
        answer = _ask_to_alter(vector, current, step["request"])
        found.extend(differences(step.get("expect", {}), _shown_answer(answer), f"steps[{index}]"))
        current = answer.state or current
    return found + compare_final(vector, {} if current is None else shown_state(current))


def _ask_to_alter(
    vector: Vector, current: PartitionState | None, request: Mapping[str, Any]
) -> alter.AlterPartitionAnswer:
    epochs = {int(b): int(e) for b, e in (_get(vector, "registered_broker_epochs") or {}).items()}
    live = _get(vector, "live_brokers")
    shutting_down = set(optional_ids(vector, "shutting_down"))
    if live is None:
        live = sorted(set(epochs) - shutting_down)
    registrations = [
        Registration(
            broker,
            epochs.get(broker, UNKNOWN_BROKER_EPOCH),
            shutting_down=broker not in live or broker in shutting_down,
        )
        for broker in sorted(set(live) | set(epochs))
    ]
    sender = field(vector, request, "broker_id")
    # Where a fact leaves the broker epoch out it is the right one.
    broker_epoch = request.get("broker_epoch", epochs.get(sender, UNKNOWN_BROKER_EPOCH))
    version = _get(vector, "request_version")
    return alter.alter_partition(
        current,
        alter.AlterPartition(
            broker=sender,
            broker_epoch=int(broker_epoch),
            leader_epoch=field(vector, request, "leader_epoch"),
            partition_epoch=field(vector, request, "partition_epoch"),
            isr=tuple(field(vector, request, "isr")),
            recovery=requested_recovery(request.get("recovery")),
        ),
        registrations=registrations,
        rules=rules_of(vector),
        request_version=3 if version is None else int(version),
        controller_active=vector.input.get("controller_active", True),
        topic_id_known=vector.input.get("topic_id_known", True),
    )


def _shown_answer(answer: alter.AlterPartitionAnswer) -> dict[str, object]:
    name: object = _NoError() if answer.error is None else answer.error.value
    shown: dict[str, object] = {
        "top_level_error": name if answer.whole_request else _NoError(),
        "partition_error": _NoError() if answer.whole_request else name,
        "error": name,
        "written": answer.written,
    }
    if answer.state is not None:
        shown["state"] = shown_state(answer.state)
        shown.update(shown_state(answer.state))
    return shown


class _NoError:
    """Equal to both ways a fact says that there is no error: null and NONE."""

    def __eq__(self, other: object) -> bool:
        return other in (None, "NONE")

    def __hash__(self) -> int:
        return hash(None)

    def __repr__(self) -> str:
        return "NONE"


def _state_write(vector: Vector) -> list[Difference]:
    node_version = need(vector, "node_version")
    held = _get(vector, "held_epoch_version")
    actual = _get(vector, "controller_epoch_version")
    if held is None or actual is None:
        matches = _get(vector, "controller_epoch_version_matches")
        held, actual = (0, 0) if matches in (None, True) else (1, 0)
    result = controller.write_state(
        node_version=node_version,
        expected_version=need(vector, "write_expected_version"),
        controller_epoch_version=actual,
        held_epoch_version=held,
        rules=rules_of(vector),
    )
    expected = dict(vector.expected)
    if isinstance(expected.get("result"), str):
        expected["result"] = _CODES.get(expected["result"], expected["result"])
    got = {
        "result": result.code.value,
        "new_version": result.new_version,
        "retry": result.code is controller.Code.BADVERSION,
    }
    return differences(expected, got)


_CODES: Final[Mapping[str, str]] = {
    "ControllerMoved": controller.Code.CONTROLLER_MOVED.value,
    "NoNodeException": controller.Code.NONODE.value,
    "NoNode": controller.Code.NONODE.value,
    "BadVersionException": controller.Code.BADVERSION.value,
    "BadVersion": controller.Code.BADVERSION.value,
    "retry": controller.Code.BADVERSION.value,
    "RETRY": controller.Code.BADVERSION.value,
    "NodeExistsException": controller.Code.NODEEXISTS.value,
}


def _controller_epoch_node(vector: Vector) -> list[Difference]:
    node: controller.EpochNode | None = None
    found: list[Difference] = []
    for index, step in enumerate(steps_of(vector)):
        match step.get("op"):
            case "set":
                code, node = controller.set_epoch_node(
                    node,
                    controller_epoch=field(vector, step, "epoch"),
                    expected_version=field(vector, step, "version"),
                )
            case "create":
                code, node = controller.create_epoch_node(
                    node, controller_epoch=field(vector, step, "epoch")
                )
            case "get":
                code = controller.Code.NONODE if node is None else controller.Code.OK
            case other:
                raise CannotRunError(f"{vector.id}: step {other!r} is not known")
        got = {
            "expect": code.value,
            "new_version": None if node is None else node.version,
            "new_epoch": None if node is None else node.controller_epoch,
        }
        asserted = {key: step[key] for key in got if key in step}
        found.extend(differences(asserted, got, f"steps[{index}]"))
    final = {} if node is None else {"epoch": node.controller_epoch, "version": node.version}
    return found + compare_final(vector, final)


_CLAIM_STEPS: Final = (
    ("start", re.compile(r"^/controller_epoch is (?P<epoch>\d+) at version (?P<version>\d+)$")),
    (
        "kraft",
        re.compile(
            r"^KRaft (?:node|controller) (?P<id>\d+) (?:tries to )?(?:claims?|registers?)"
            r"(?: again)?(?: with (?:KRaft )?epoch (?P<epoch>\d+))?$",
            re.IGNORECASE,
        ),
    ),
    (
        "broker",
        re.compile(
            r"^(?:ZK )?broker (?P<id>\d+) (?:tries to )?(?:claims?|registers?)(?: again)?$",
            re.IGNORECASE,
        ),
    ),
    ("delete", re.compile(r"^/controller (?:is )?deleted$")),
)


def _scenario_controller_claim(vector: Vector) -> list[Difference]:
    znodes = controller.ControllerZnodes(epoch=_EPOCH_NODE_OF_THE_TEST)
    found: list[Difference] = []
    for index, step in enumerate(steps_of(vector)):
        # What a step supposes stands before what it does, though the sentence has it last.
        clauses = [c for part in str(step.get("op")).split(";") for c in _clauses(part)]
        got: object = None
        for clause in clauses:
            znodes, claim = _run_claim_clause(vector, clause, znodes)
            got = got if claim is None else _shown_claim(claim)
        expect = step.get("expect", {})
        if isinstance(expect, Mapping) and isinstance(got, str):
            got = {"error": got}
        found.extend(differences(expect, got, f"steps[{index}]"))
    return found + compare_final(vector, {})


def _clauses(sentence: str) -> list[str]:
    parts = [part.strip() for part in sentence.split(",")]
    return sorted(parts, key=lambda part: not part.startswith("/controller_epoch is"))


def _run_claim_clause(
    vector: Vector, clause: str, znodes: controller.ControllerZnodes
) -> tuple[controller.ControllerZnodes, controller.Claim | None]:
    for kind, pattern in _CLAIM_STEPS:
        match = pattern.match(clause)
        if match is None:
            continue
        said = match.groupdict()
        if kind == "start":
            node = controller.EpochNode(int(said["epoch"]), int(said["version"]))
            return znodes._replace(epoch=node), None
        if kind == "delete":
            held = -1 if znodes.epoch is None else znodes.epoch.version
            return controller.resign(znodes, held_epoch_version=held)[1], None
        if kind == "broker":
            claim = controller.register_controller(znodes, broker=int(said["id"]))
        else:
            kraft_epoch = int(said["epoch"] or _KRAFT_EPOCH_OF_THE_TEST)
            claim = controller.claim_for_kraft(
                znodes, node=int(said["id"]), kraft_epoch=kraft_epoch
            )
        return claim.znodes, claim
    raise CannotRunError(f"{vector.id}: step {clause!r} is not understood")


_REFUSALS: Final[Mapping[controller.ClaimOutcome, str]] = {
    controller.ClaimOutcome.CONTROLLER_MOVED: controller.Code.CONTROLLER_MOVED.value,
    controller.ClaimOutcome.LOST_RACE: "FailedRegistrationResult",
    controller.ClaimOutcome.NO_EPOCH: "IllegalStateException",
}


def _shown_claim(claim: controller.Claim) -> object:
    if claim.outcome in _REFUSALS:
        return _REFUSALS[claim.outcome]
    holder = claim.znodes.controller
    return {
        "controller_epoch": claim.controller_epoch,
        "version": claim.epoch_version,
        "controller": None if holder is None else holder.broker,
    }


def _get(vector: Vector, key: str) -> Any:
    return vector.input.get(key)


HANDLERS: Final[dict[str, Handler]] = {
    "zk.alter_partition": _alter_partition,
    "zk.scenario.alter_partition": _scenario_alter_partition,
    "zk.state_write": _state_write,
    "zk.controller_epoch_node": _controller_epoch_node,
    "zk.scenario.controller_claim": _scenario_controller_claim,
}
