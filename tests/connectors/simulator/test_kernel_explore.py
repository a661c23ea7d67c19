"""The search reaches exactly what the model checker reached, and each violation can be replayed."""

from __future__ import annotations

import pytest
from tidestaff.connectors.simulator.kernel.enabled import EVERY_ACTION, Bounds, apply
from tidestaff.connectors.simulator.kernel.explore import explore
from tidestaff.connectors.simulator.kernel.invariants import EMPTY_LEDGER, extended, violated
from tidestaff.connectors.simulator.kernel.rules import (
    HW,
    KIP320,
    PRESETS,
    IsrExpand,
    Truncation,
)
from tidestaff.connectors.simulator.kernel.state import State, initial_state

from tests import explore as table
from tests.explore import LARGE, SMALL, TWO, Expected


@pytest.mark.parametrize("expected", SMALL, ids=lambda expected: expected.preset)
def test_states_depth_and_shortest_violations_are_the_model_checkers(expected: Expected) -> None:
    found = table.found_by(expected)
    assert table.mismatches(expected, found) == []
    for name, run in found.violations.items():
        state, ledger = initial_state((1, 2)), EMPTY_LEDGER
        for action in run:
            reached = apply(state, action, PRESETS[expected.preset])
            assert isinstance(reached, State)
            state, ledger = reached, extended(ledger, reached)
        assert name in violated(state, ledger)


def test_the_join_rule_of_brokers_is_weaker_than_the_models_and_keeps_everything_too() -> None:
    """2.0.1+ lets a follower join at the start of the leader's epoch; the models wait until the HW
    is there. No model checker gave this count: it is the search's own."""
    rules = KIP320._replace(isr_expand=IsrExpand.LEO_REACHED_HW_AND_EPOCH_START)
    for truncation in (Truncation.LAST_MATCHING_RECORD, Truncation.LEADER_EPOCH_ROUNDS):
        found = explore(rules._replace(truncate_on_become_follower=truncation), TWO)
        assert (found.states, found.depth) == (6_295, 18)
        assert table.shortest(found) == {}


@pytest.mark.slow
@pytest.mark.parametrize("expected", LARGE, ids=lambda expected: expected.preset)
def test_the_larger_model_too(expected: Expected) -> None:
    assert table.mismatches(expected, table.found_by(expected)) == []


def test_the_same_search_gives_the_same_runs() -> None:
    bounds = Bounds(log_size=1, max_records=1, max_leader_epoch=1)
    assert explore(HW, bounds) == explore(HW, bounds)


def test_faults_of_ours_break_the_correct_protocol() -> None:
    bounds = Bounds(log_size=1, max_records=1, max_leader_epoch=1)
    assert table.shortest(explore(KIP320, bounds)) == {}
    assert "some_replica_has_committed" in table.shortest(
        explore(KIP320, bounds, names=EVERY_ACTION)
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param({"states": 1}, "states, expected 1", id="the-count"),
        pytest.param({"depth": 1}, "expected 1", id="the-depth"),
        pytest.param({"breaks": {"weak_isr": 3}}, "weak_isr after no steps", id="a-violation"),
    ],
)
def test_the_table_sees_a_difference_in(change: dict[str, object], text: str) -> None:
    small = Bounds(log_size=1, max_records=1, max_leader_epoch=1)
    found = explore(KIP320, small)
    right = Expected("kip320", small, found.states, found.depth, {}, nothing_breaks=True)
    assert table.mismatches(right, found) == []
    [wrong] = table.mismatches(right._replace(**change), found)  # type: ignore[arg-type]
    assert text in wrong
