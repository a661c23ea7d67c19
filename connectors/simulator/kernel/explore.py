"""Breadth-first search over all actions: how many states there are, and what breaks first.

Equal counts with the model checker are hard to reach by accident, so the counts test the actions as
a whole. Steps are searched level by level: the first violation found is a shortest one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidestaff.connectors.simulator.kernel.enabled import PROTOCOL, Action, Bounds, successors
from tidestaff.connectors.simulator.kernel.invariants import (
    EMPTY_LEDGER,
    INVARIANTS,
    Ledger,
    extended,
)
from tidestaff.connectors.simulator.kernel.state import State, initial_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidestaff.connectors.simulator.kernel.rules import RuleSet

Node: TypeAlias = tuple[State, Ledger]
Parents: TypeAlias = dict[Node, tuple[Node, Action] | None]


class Exploration(NamedTuple):
    """What a complete search found.

    `states` counts states without the ledger, as the model checker does; `depth` counts the levels
    with a new state, the initial one included. `violations` holds a shortest run per invariant.
    """

    states: int
    depth: int
    violations: Mapping[str, tuple[Action, ...]]


def explore(
    rules: RuleSet,
    bounds: Bounds,
    *,
    replicas: int = 2,
    names: Sequence[str] = PROTOCOL,
    invariants: Iterable[str] = tuple(INVARIANTS),
) -> Exploration:
    """Search everything reachable within the bounds from the initial state.

    The ledger is part of what is searched, because two runs to one state may have committed
    different records; it adds nodes, never states.
    """
    assert None not in bounds, "a search without bounds does not end"
    start: Node = (initial_state(range(1, replicas + 1)), EMPTY_LEDGER)
    parents: Parents = {start: None}
    states = {start[0]}
    violations: dict[str, tuple[Action, ...]] = {}
    unbroken = list(invariants)
    level, depth, levels = [start], 0, 0
    while level:
        levels += 1
        known = len(states)
        for node in level:
            states.add(node[0])
            broken = [name for name in unbroken if not INVARIANTS[name](*node)]
            for name in broken:
                violations[name] = _run_to(node, parents)
                unbroken.remove(name)
        # A level that only adds ledgers is no deeper in the graph of states.
        if len(states) > known or levels == 1:
            depth = levels
        level = _next_level(level, parents, rules, bounds, names)
    return Exploration(len(states), depth, violations)


def _next_level(
    level: list[Node], parents: Parents, rules: RuleSet, bounds: Bounds, names: Sequence[str]
) -> list[Node]:
    found = []
    for node in level:
        state, ledger = node
        for action, successor in successors(state, rules, bounds, names):
            reached = (successor, extended(ledger, successor))
            if reached not in parents:
                parents[reached] = (node, action)
                found.append(reached)
    return found


def _run_to(node: Node, parents: Parents) -> tuple[Action, ...]:
    """The actions from the initial state to this node."""
    run = []
    step = parents[node]
    while step is not None:
        node, action = step
        run.append(action)
        step = parents[node]
    return tuple(reversed(run))
