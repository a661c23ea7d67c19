"""Formal traces (kafka-replication-trace/1), replayed step by step through the kernel.

Params are given to the kernel; state, derived values and violated invariants must come out of it.
Nothing is taken over from the file after a step, so one wrong step cannot hide behind the next.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.simulator.kernel.actions import NotEnabled
from tidestaff.connectors.simulator.kernel.enabled import TABLE, Action, Bounds, apply
from tidestaff.connectors.simulator.kernel.invariants import (
    EMPTY_LEDGER,
    INVARIANTS,
    extended,
    violated,
)
from tidestaff.connectors.simulator.kernel.rules import RuleSet, rules_from
from tidestaff.connectors.simulator.kernel.state import State, initial_state
from tidestaff.consistency.model import NO_LEADER, ConsistencyError, FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidestaff.connectors.simulator.kernel.state import LeaderAndIsr, Log, Replica
    from tidestaff.consistency.model import BrokerId

FORMAT: Final = "kafka-replication-trace/1"
FAMILY: Final = "zk"
_BROKER_PARAMS: Final = frozenset({"leader", "follower", "replica"})


class TraceMismatchError(ConsistencyError):
    """The kernel and a trace disagree: one of them reads Kafka wrongly."""

    def __init__(
        self, *, file: str, trace: str, step: int, field: str, got: str, want: str
    ) -> None:
        super().__init__(
            f"{file}, trace {trace}, step {step}: {field} is {got}, the trace says {want}; "
            "compare the action with its row in the table of actions"
        )
        self.file, self.trace, self.step, self.field = file, trace, step, field
        self.got, self.want = got, want


class Step(NamedTuple):
    """One step of a trace: the choice, and what must come of it, in the file's own form."""

    number: int
    action: Action
    derived: Mapping[str, Any]
    state: Mapping[str, Any]
    violates: tuple[str, ...]


class Trace(NamedTuple):
    """One run of the specification; `names[broker]` is how the file calls that broker."""

    file: str
    id: str
    rules: RuleSet
    bounds: Bounds
    names: Mapping[BrokerId, str]
    initial: Mapping[str, Any]
    steps: tuple[Step, ...]
    first_violation: Mapping[str, int]


class TraceReport(NamedTuple):
    """What was replayed without a difference, and which traces are of another family."""

    file: str
    replayed: tuple[str, ...]
    steps: int
    other_family: tuple[str, ...]


def replay_file(path: Path) -> TraceReport:
    """Replay every trace of our family in this file; the first difference is raised."""
    content = _loaded(path)
    ours = [raw for raw in content["traces"] if raw["family"] == FAMILY]
    traces = [trace_from(raw, path.name) for raw in ours]
    steps = sum(len(replay(trace)) for trace in traces)
    others = tuple(raw["id"] for raw in content["traces"] if raw["family"] != FAMILY)
    return TraceReport(path.name, tuple(trace.id for trace in traces), steps, others)


def load_traces(path: Path) -> tuple[Trace, ...]:
    """The traces of our family in this file."""
    raws = _loaded(path)["traces"]
    return tuple(trace_from(raw, path.name) for raw in raws if raw["family"] == FAMILY)


def replay(trace: Trace) -> tuple[State, ...]:
    """The states after each step, each equal to the trace's."""
    state, ledger = initial_state(trace.names), EMPTY_LEDGER
    _same(trace, 0, "state", state_as_json(state, trace.names), trace.initial)
    states: list[State] = []
    first: dict[str, int] = {}
    for step in trace.steps:
        after = apply(state, step.action, trace.rules)
        if isinstance(after, NotEnabled):
            got = f"not enabled ({after.because})"
            raise _mismatch(trace, step.number, (str(step.action), got, "it happens"))
        ledger = extended(ledger, after)
        broken = violated(after, ledger)
        _same(trace, step.number, "state", state_as_json(after, trace.names), step.state)
        derived = derived_values(state, step.action, after, trace.names)
        _same(trace, step.number, "derived", derived, step.derived)
        _same(trace, step.number, "violates", list(broken), list(step.violates))
        for name in broken:
            first.setdefault(name, step.number)
        state = after
        states.append(state)
    _same(trace, len(states), "first_violation", first, trace.first_violation)
    return tuple(states)


def trace_from(raw: Mapping[str, Any], file: str) -> Trace:
    """One trace of the zk family, decoded; brokers are numbered in the order of `model`."""
    place = f"{file}, trace {raw['id']}"
    model = raw["model"]
    names = dict(enumerate(model["replicas"], start=1))
    brokers = {name: broker for broker, name in names.items()}
    steps = tuple(_step_from(step, brokers, place) for step in raw["steps"])
    bounds = Bounds(model["log_size"], model["max_records"], model["max_leader_epoch"])
    rules = rules_from(raw["rules"], place)
    first = raw["first_violation"]
    return Trace(file, raw["id"], rules, bounds, names, raw["initial"], steps, first)


def _step_from(raw: Mapping[str, Any], brokers: Mapping[str, BrokerId], place: str) -> Step:
    where = f"{place}, step {raw['n']}"
    name, params = raw["action"], raw["params"]
    if name not in TABLE:
        raise FormatError(where, "action", repr(name), f"one of {list(TABLE)}")
    if set(params) != set(TABLE[name].params):
        raise FormatError(where, "params", str(sorted(params)), f"{list(TABLE[name].params)}")
    unknown = sorted(set(raw["violates"]) - set(INVARIANTS))
    if unknown:
        raise FormatError(where, "violates", str(unknown), f"some of {list(INVARIANTS)}")
    for field in sorted(_BROKER_PARAMS & set(params)):
        if params[field] not in brokers:
            raise FormatError(where, f"params.{field}", repr(params[field]), str(list(brokers)))
    values = tuple(
        brokers[params[field]] if field in _BROKER_PARAMS else params[field]
        for field in TABLE[name].params
    )
    violates = tuple(raw["violates"])
    return Step(raw["n"], Action(name, values), raw.get("derived", {}), raw["state"], violates)


def _loaded(path: Path) -> Any:
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise FormatError(path.name, "format", repr(content.get("format")), FORMAT)
    return content


def state_as_json(state: State, names: Mapping[BrokerId, str]) -> dict[str, Any]:
    """The state in the form of the traces; requests and the next id are not part of it."""
    replicas = {names[r.broker]: _replica_as_json(r, names) for r in state.replicas}
    return {"quorum": _belief_as_json(state.quorum, names), "replicas": replicas}


def derived_values(
    before: State, action: Action, after: State, names: Mapping[BrokerId, str]
) -> dict[str, Any]:
    """What the step brought forth beside the state: request, record or truncation."""
    params = action.params
    if action.name.startswith("controller_"):
        return {"request": _belief_as_json(after.requests[-1], names)}
    changed = params.get("follower", params.get("replica", params.get("leader")))
    assert changed is not None
    old, new = before.replica(changed), after.replica(changed)
    assert old is not None
    assert new is not None
    if action.name in {"leader_write", "follower_fetch"}:
        return {"offset": new.log_end_offset - 1, "record": list(new.log[-1])}
    if action.name in {"become_follower", "follower_truncate", "crash"}:
        cut = new.log_end_offset
        dropped = [[offset, *old.log[offset]] for offset in range(cut, old.log_end_offset)]
        leader = names.get(new.belief.leader)
        return {"truncate_to": cut, "dropped": dropped, "leader": leader}
    return {}


def epoch_starts(log: Log) -> list[list[int]]:
    """Where each run of one epoch starts; an epoch that comes back is listed again."""
    return [
        [record.epoch, offset]
        for offset, record in enumerate(log)
        if offset == 0 or log[offset - 1].epoch != record.epoch
    ]


def _belief_as_json(belief: LeaderAndIsr, names: Mapping[BrokerId, str]) -> dict[str, Any]:
    return {
        "leader": None if belief.leader == NO_LEADER else names[belief.leader],
        "leader_epoch": belief.leader_epoch,
        "isr": [names[member] for member in belief.isr],
    }


def _replica_as_json(replica: Replica, names: Mapping[BrokerId, str]) -> dict[str, Any]:
    return {
        "log": [list(record) for record in replica.log],
        "leo": replica.log_end_offset,
        "hw": replica.high_watermark,
        **_belief_as_json(replica.belief, names),
        "epoch_starts": epoch_starts(replica.log),
    }


def _same(trace: Trace, step: int, field: str, got: Any, want: Any) -> None:
    difference = _difference(got, want, field)
    if difference is not None:
        raise _mismatch(trace, step, difference)


def _mismatch(trace: Trace, step: int, difference: tuple[str, str, str]) -> TraceMismatchError:
    field, got, want = difference
    return TraceMismatchError(
        file=trace.file, trace=trace.id, step=step, field=field, got=got, want=want
    )


def _difference(got: Any, want: Any, field: str) -> tuple[str, str, str] | None:
    """The first field, by name, in which two JSON values differ; lists are one value."""
    if isinstance(got, dict) and isinstance(want, dict):
        for key in sorted(got.keys() | want.keys()):
            if key not in got or key not in want:
                return f"{field}.{key}", repr(got.get(key)), repr(want.get(key))
            deeper = _difference(got[key], want[key], f"{field}.{key}")
            if deeper is not None:
                return deeper
        return None
    return None if got == want else (field, repr(got), repr(want))
