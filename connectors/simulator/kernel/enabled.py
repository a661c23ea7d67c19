"""Which actions can happen now: all of them, in one canonical order.

A seed or a search is reproducible only if the list of choices always has the same order: actions by
their place in the table, params by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidestaff.connectors.simulator.kernel import actions
from tidestaff.connectors.simulator.kernel.actions import NotEnabled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tidestaff.connectors.simulator.kernel.actions import ActionFunction, Outcome
    from tidestaff.connectors.simulator.kernel.rules import RuleSet
    from tidestaff.connectors.simulator.kernel.state import State


class Action(NamedTuple):
    """One choice: an action by its name in the traces, with the values of its params in order."""

    name: str
    values: tuple[int, ...]

    @property
    def params(self) -> dict[str, int]:
        return dict(zip(TABLE[self.name].params, self.values, strict=True))

    def __str__(self) -> str:
        given = " ".join(f"{name}={value}" for name, value in self.params.items())
        return f"{self.name} {given}"


class Bounds(NamedTuple):
    """What keeps a search finite; None leaves that side open."""

    log_size: int | None = None
    max_records: int | None = None
    max_leader_epoch: int | None = None


UNBOUNDED: Final = Bounds()

if TYPE_CHECKING:
    Candidates: TypeAlias = Callable[[State, Bounds], Iterator[tuple[int, ...]]]


class Entry(NamedTuple):
    """One row of the action table."""

    function: ActionFunction
    params: tuple[str, ...]
    candidates: Candidates


def apply(state: State, action: Action, rules: RuleSet) -> Outcome:
    """What the action makes of the state; bounds are the chooser's matter, not the protocol's."""
    return TABLE[action.name].function(state, action.params, rules)


def successors(
    state: State, rules: RuleSet, bounds: Bounds, names: Sequence[str]
) -> Iterator[tuple[Action, State]]:
    """Every enabled action among `names` within the bounds, with the state it leads to."""
    for name in names:
        function, fields, candidates = TABLE[name]
        for values in candidates(state, bounds):
            outcome = function(state, dict(zip(fields, values, strict=True)), rules)
            if not isinstance(outcome, NotEnabled):
                yield Action(name, values), outcome


def enabled(
    state: State,
    rules: RuleSet,
    bounds: Bounds = UNBOUNDED,
    names: Sequence[str] | None = None,
) -> list[Action]:
    """Every enabled action; without `names` those of the specifications, faults of ours not."""
    chosen = PROTOCOL if names is None else names
    return [action for action, _ in successors(state, rules, bounds, chosen)]


def _below(value: int, bound: int | None) -> bool:
    return bound is None or value < bound


def _one(state: State, _: Bounds) -> Iterator[tuple[int, ...]]:
    for replica in state.replicas:
        yield (replica.broker,)


def _two(state: State, _: Bounds) -> Iterator[tuple[int, ...]]:
    for first in state.replicas:
        for second in state.replicas:
            if first is not second:
                yield first.broker, second.broker


def _next_epoch(state: State, bounds: Bounds) -> Iterator[tuple[int, ...]]:
    if _below(state.quorum.leader_epoch, bounds.max_leader_epoch):
        yield from _one(state, bounds)


def _request(state: State, _: Bounds) -> Iterator[tuple[int, ...]]:
    for replica in state.replicas:
        for request in state.requests:
            if request.leader_epoch > replica.belief.leader_epoch:
                yield replica.broker, request.leader_epoch


def _write(state: State, bounds: Bounds) -> Iterator[tuple[int, ...]]:
    if _below(state.next_record_id, bounds.max_records):
        for replica in state.replicas:
            if _below(replica.log_end_offset, bounds.log_size):
                yield replica.broker, state.next_record_id


def _crash(state: State, _: Bounds) -> Iterator[tuple[int, ...]]:
    for replica in state.replicas:
        for keep in range(replica.log_end_offset + 1):
            for high_watermark in range(min(replica.high_watermark, keep) + 1):
                yield replica.broker, keep, high_watermark


TABLE: Final[Mapping[str, Entry]] = {
    "controller_elect": Entry(actions.controller_elect, ("leader",), _next_epoch),
    "controller_shrink_isr": Entry(actions.controller_shrink_isr, ("replica",), _next_epoch),
    "become_leader": Entry(actions.become_leader, ("replica", "leader_epoch"), _request),
    "become_follower": Entry(actions.become_follower, ("replica", "leader_epoch"), _request),
    "leader_write": Entry(actions.leader_write, ("leader", "record_id"), _write),
    "follower_fetch": Entry(actions.follower_fetch, ("follower", "leader"), _two),
    "leader_advance_hw": Entry(actions.leader_advance_hw, ("leader",), _one),
    "leader_shrink_isr": Entry(actions.leader_shrink_isr, ("leader", "replica"), _two),
    "leader_expand_isr": Entry(actions.leader_expand_isr, ("leader", "replica"), _two),
    "follower_truncate": Entry(actions.follower_truncate, ("follower", "leader"), _two),
    "crash": Entry(actions.crash, ("replica", "keep", "hw"), _crash),
    "controller_unclean_elect": Entry(actions.controller_unclean_elect, ("leader",), _next_epoch),
}
FAULTS: Final = ("crash", "controller_unclean_elect")
PROTOCOL: Final = tuple(name for name in TABLE if name not in FAULTS)
EVERY_ACTION: Final = (*PROTOCOL, *FAULTS)
