"""Each invariant, by the smallest state that breaks it and it alone where that can be."""

from __future__ import annotations

import pytest
from tidestaff.connectors.simulator.kernel.invariants import (
    EMPTY_LEDGER,
    INVARIANTS,
    WITH_HISTORY,
    Ledger,
    extended,
    violated,
)
from tidestaff.connectors.simulator.kernel.state import Record, State, initial_state

from tests.connectors.simulator.states import heard, replica, state

E0 = heard(1, 0, 1, 2)
E1 = heard(2, 1, 1, 2)
LOST: Ledger = frozenset({(0, Record(0, 0))})
CONFLICT: Ledger = frozenset({(0, Record(0, 0)), (0, Record(1, 1))})


@pytest.mark.parametrize(
    ("name", "broken", "ledger"),
    [
        pytest.param(
            "leader_in_isr_or_none",
            state(heard(1, 0, 2), replica(1), replica(2)),
            EMPTY_LEDGER,
            id="the-znodes-leader-is-outside-its-isr",
        ),
        pytest.param(
            "hw_le_leo", state(E0, replica(1, "0", 2), replica(2)), EMPTY_LEDGER, id="hw-above-leo"
        ),
        pytest.param(
            "one_leader_per_epoch",
            state(E0, replica(1, "", 0, E0), replica(2, "", 0, heard(2, 0, 1, 2))),
            EMPTY_LEDGER,
            id="two-lead-in-epoch-0",
        ),
        pytest.param(
            "replica_epoch_le_quorum",
            state(E0, replica(1), replica(2, "", 0, heard(1, 1, 1, 2))),
            EMPTY_LEDGER,
            id="a-replica-knows-epoch-1-before-the-znode",
        ),
        pytest.param(
            "log_epochs_monotone",
            state(E1, replica(1, "10"), replica(2)),
            EMPTY_LEDGER,
            id="epoch-0-after-epoch-1",
        ),
        pytest.param(
            "same_epoch_same_record",
            State(E0, (replica(1, "0"), replica(2, "0")._replace(log=(Record(0, 7),)))),
            EMPTY_LEDGER,
            id="one-epoch-and-offset-with-two-records",
        ),
        pytest.param(
            "below_hw_agree",
            state(E1, replica(1, "0", 1), replica(2, "1", 1)),
            EMPTY_LEDGER,
            id="two-records-below-both-hws",
        ),
        pytest.param(
            "follower_matches_leader",
            state(E1, replica(1, "0", 0, E1), replica(2, "1", 0, E1)),
            EMPTY_LEDGER,
            id="a-follower-with-another-record-than-its-leader",
        ),
        pytest.param(
            "follower_leo_le_leader",
            state(E1, replica(1, "0", 0, E1), replica(2, "", 0, E1)),
            EMPTY_LEDGER,
            id="a-follower-longer-than-its-leader",
        ),
        pytest.param(
            "follower_hw_le_leader",
            state(E1, replica(1, "0", 1, E1), replica(2, "0", 0, E1)),
            EMPTY_LEDGER,
            id="a-follower-whose-hw-is-above-its-leaders",
        ),
        pytest.param(
            "strong_isr",
            state(heard(2, 1, 2), replica(1, "0", 1, heard(1, 0, 1)), replica(2)),
            EMPTY_LEDGER,
            id="an-electable-replica-lacks-what-an-old-leader-committed",
        ),
        pytest.param(
            "weak_isr",
            state(heard(1, 1, 1), replica(1, "0", 1, E0), replica(2)),
            EMPTY_LEDGER,
            id="a-member-of-the-believed-isr-lacks-what-is-committed",
        ),
        pytest.param(
            "isr_has_committed",
            state(heard(-1, 1, 2), replica(1, "0"), replica(2)),
            LOST,
            id="an-isr-member-lacks-what-was-committed",
        ),
        pytest.param(
            "true_leader_has_committed",
            state(heard(2, 1, 2), replica(1, "0"), replica(2, "", 0, heard(2, 1, 2))),
            LOST,
            id="the-leader-lacks-what-was-committed",
        ),
        pytest.param(
            "some_replica_has_committed",
            state(E0, replica(1), replica(2)),
            LOST,
            id="what-was-committed-is-nowhere",
        ),
        pytest.param(
            "no_conflicting_commit",
            state(E0, replica(1, "0"), replica(2, "0")),
            CONFLICT,
            id="two-records-were-committed-at-one-offset",
        ),
    ],
)
def test_it_is_broken_when(name: str, broken: State, ledger: Ledger) -> None:
    assert name in violated(broken, ledger)
    if name not in WITH_HISTORY:
        alone = {"weak_isr": {"weak_isr"}, "strong_isr": {"strong_isr"}}.get(name, {name})
        assert set(violated(broken, ledger)) == alone


def test_nothing_is_broken_in_the_first_state() -> None:
    assert violated(initial_state((1, 2, 3)), EMPTY_LEDGER) == ()


def test_an_elected_leader_that_has_not_heard_of_it_does_not_count_as_leader() -> None:
    unaware = state(heard(2, 1, 2), replica(1, "0"), replica(2))
    assert "true_leader_has_committed" not in violated(unaware, LOST)


def test_the_ledger_takes_what_presumed_leaders_have_below_their_hw() -> None:
    before = state(E1, replica(1, "00", 1, E0), replica(2, "00", 2, E0))
    assert extended(EMPTY_LEDGER, before) == LOST


def test_the_ledger_forgets_nothing() -> None:
    assert extended(LOST, initial_state((1, 2))) is LOST


def test_every_invariant_is_tested() -> None:
    marks = test_it_is_broken_when.pytestmark  # type: ignore[attr-defined]
    assert {case.values[0] for case in marks[0].args[1]} == set(INVARIANTS)
