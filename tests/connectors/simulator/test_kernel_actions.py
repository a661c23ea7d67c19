"""Every action: when it happens and what it does, when it does not and why."""

from __future__ import annotations

import pytest
from tidestaff.connectors.simulator.kernel.actions import NotEnabled
from tidestaff.connectors.simulator.kernel.enabled import (
    EVERY_ACTION,
    TABLE,
    Action,
    Bounds,
    apply,
    enabled,
)
from tidestaff.connectors.simulator.kernel.rules import (
    HW,
    KIP101,
    KIP279,
    KIP320,
    KIP320_FIRST_TRY,
    RuleSet,
)
from tidestaff.connectors.simulator.kernel.state import Record, State, initial_state

from tests.connectors.simulator.states import NONE, heard, replica, state

E0 = heard(1, 0, 1, 2)
E1 = heard(2, 1, 1, 2)
BOTH = (E0, E1)

# 1 leads in epoch 0 with two records; 2 follows and has fetched one.
STEADY = state(E0, replica(1, "00", 0, E0), replica(2, "0", 0, E0))
# 2 is elected in epoch 1; nobody has heard of it.
ELECTED = state(E1, replica(1, "00", 1, E0), replica(2, "0", 0, E0), requests=BOTH)
# 2 leads in epoch 1 and has written; 1 still leads in epoch 0.
ZOMBIE = state(E1, replica(1, "00", 1, E0), replica(2, "01", 0, E1), requests=BOTH)
# 1 leads alone, 2 follows from outside the ISR.
ALONE = heard(1, 0, 1)
OUTSIDE = state(ALONE, replica(1, "00", 1, ALONE), replica(2, "0", 0, ALONE))
LEADERLESS = state(heard(NONE, 1, 1), replica(1), replica(2))


def outcome(before: State, rules: RuleSet, name: str, *values: int) -> State | NotEnabled:
    return apply(before, Action(name, values), rules)


def after(before: State, rules: RuleSet, name: str, *values: int) -> State:
    reached = outcome(before, rules, name, *values)
    assert isinstance(reached, State), reached
    return reached


@pytest.mark.parametrize(
    ("before", "name", "values", "quorum"),
    [
        pytest.param(
            STEADY, "controller_elect", (2,), heard(2, 1, 1, 2), id="an-isr-member-is-elected"
        ),
        pytest.param(
            LEADERLESS, "controller_elect", (1,), heard(1, 2, 1), id="the-last-member-leads-again"
        ),
        pytest.param(
            STEADY, "controller_shrink_isr", (1,), heard(NONE, 1, 2), id="a-lost-leader-leaves-none"
        ),
        pytest.param(
            STEADY, "controller_shrink_isr", (2,), heard(1, 1, 1), id="a-lost-follower-leaves-isr"
        ),
        pytest.param(
            OUTSIDE, "controller_shrink_isr", (1,), heard(NONE, 1, 1), id="the-last-leader-stays-in"
        ),
        pytest.param(
            LEADERLESS, "controller_shrink_isr", (1,), heard(NONE, 2), id="the-isr-may-become-empty"
        ),
        pytest.param(
            OUTSIDE,
            "controller_unclean_elect",
            (2,),
            heard(2, 1, 2),
            id="an-unclean-leader-is-the-whole-isr",
        ),
    ],
)
def test_the_controller_decides_and_issues_a_request(
    before: State, name: str, values: tuple[int, ...], quorum: object
) -> None:
    reached = after(before, HW, name, *values)
    assert reached.quorum == quorum
    assert reached.requests == (*before.requests, quorum)
    assert reached.replicas == before.replicas


@pytest.mark.parametrize(
    ("before", "rules", "values", "epochs", "hw"),
    [
        pytest.param(ELECTED, HW, (1, 1), "0", 1, id="local-hw-cuts-to-the-hw"),
        pytest.param(ZOMBIE, KIP101, (1, 1), "0", 1, id="kip101-cuts-to-the-start-of-next-epoch"),
        pytest.param(ZOMBIE, KIP279, (1, 1), "0", 1, id="kip279-cuts-after-the-last-match"),
        pytest.param(ZOMBIE, KIP320, (1, 1), "0", 1, id="kip320-waits-for-the-leader-then-cuts"),
        pytest.param(ZOMBIE, KIP320_FIRST_TRY, (1, 1), "00", 1, id="the-first-try-cuts-nothing"),
    ],
)
def test_a_new_follower_truncates_by_the_rule(
    before: State, rules: RuleSet, values: tuple[int, int], epochs: str, hw: int
) -> None:
    reached = after(before, rules, "become_follower", *values)
    assert reached.replica(values[0]) == replica(values[0], epochs, hw, E1)


def test_truncation_takes_the_hw_down_with_it() -> None:
    before = state(E1, replica(1, "00", 2, E0), replica(2, "", 0, E1), requests=BOTH)
    assert after(before, KIP279, "become_follower", 1, 1).replica(1) == replica(1, "", 0, E1)


def test_a_new_leader_keeps_log_and_hw() -> None:
    reached = after(ELECTED, HW, "become_leader", 2, 1)
    assert reached.replica(2) == replica(2, "0", 0, E1)


def test_a_leader_writes_in_its_own_epoch() -> None:
    reached = after(ZOMBIE, HW, "leader_write", 1, 2)
    zombie = reached.replica(1)
    assert zombie is not None
    assert zombie.log[-1] == Record(0, 2)
    assert reached.next_record_id == 3


def test_a_fetch_brings_one_record_and_the_leaders_hw_even_a_lower_one() -> None:
    before = state(E0, replica(1, "00", 0, E0), replica(2, "0", 1, E0))
    assert after(before, HW, "follower_fetch", 2, 1).replica(2) == replica(2, "00", 0, E0)


def test_the_hw_moves_by_one() -> None:
    before = state(E0, replica(1, "00", 0, E0), replica(2, "00", 0, E0))
    assert after(before, KIP320, "leader_advance_hw", 1).replica(1) == replica(1, "00", 1, E0)


def test_the_hw_counts_the_isr_the_leader_believes_in() -> None:
    assert after(OUTSIDE, KIP320, "leader_advance_hw", 1).replica(1) == replica(1, "00", 2, ALONE)


def test_a_leader_shrinks_znode_and_belief_in_the_same_epoch() -> None:
    reached = after(STEADY, KIP320, "leader_shrink_isr", 1, 2)
    assert reached.quorum == heard(1, 0, 1)
    assert reached.replica(1) == replica(1, "00", 0, heard(1, 0, 1))
    assert reached.requests == STEADY.requests


def test_a_leader_expands_znode_and_belief_in_the_same_epoch() -> None:
    reached = after(OUTSIDE, KIP320, "leader_expand_isr", 1, 2)
    assert reached.quorum == heard(1, 0, 1, 2)
    assert reached.replica(1) == replica(1, "00", 1, heard(1, 0, 1, 2))


def test_the_first_try_truncates_a_follower_whose_tail_differs() -> None:
    longer = state(E1, replica(1, "00", 1, E1), replica(2, "0", 0, E1), requests=BOTH)
    reached = after(longer, KIP320_FIRST_TRY, "follower_truncate", 1, 2)
    assert reached.replica(1) == replica(1, "0", 1, E1)


def test_a_crash_forgets_leader_and_isr_but_not_the_epoch() -> None:
    reached = after(ZOMBIE, HW, "crash", 1, 1, 0)
    assert reached.replica(1) == replica(1, "0", 0, heard(NONE, 0))


STALE_FOLLOWER = state(
    heard(1, 2, 1, 2), replica(1, "02", 0, heard(1, 2, 1, 2)), replica(2, "0", 0, E0)
)
STALE_OUTSIDE = state(heard(1, 2, 1), replica(1, "0", 1, heard(1, 2, 1)), replica(2, "0", 1, E0))
OLD_HW = state(heard(1, 2, 1), replica(1, "02", 0, heard(1, 2, 1)), replica(2, "0", 0, E0))
TAIL_DIFFERS = state(E1, replica(1, "0", 0, E1), replica(2, "111", 0, E1))
SAME_LENGTH_DIFFERS = state(E1, replica(1, "0", 0, E1), replica(2, "1", 0, E1))


@pytest.mark.parametrize(
    ("before", "rules", "name", "values", "because"),
    [
        pytest.param(OUTSIDE, HW, "controller_elect", (2,), "not in the ISR", id="elect-outside"),
        pytest.param(STEADY, HW, "controller_elect", (1,), "leads already", id="elect-the-leader"),
        pytest.param(OUTSIDE, HW, "controller_shrink_isr", (2,), "neither", id="shrink-outsider"),
        pytest.param(
            STEADY, HW, "controller_unclean_elect", (2,), "clean", id="unclean-from-the-isr"
        ),
        pytest.param(STEADY, HW, "controller_unclean_elect", (9,), "no such", id="unclean-nobody"),
        pytest.param(ELECTED, HW, "become_leader", (1, 1), "another", id="lead-by-others-request"),
        pytest.param(STEADY, HW, "become_leader", (1, 0), "knows", id="lead-in-a-known-epoch"),
        pytest.param(STEADY, HW, "become_leader", (2, 7), "request", id="lead-without-request"),
        pytest.param(ELECTED, HW, "become_follower", (2, 1), "no other", id="follow-oneself"),
        pytest.param(STEADY, HW, "become_follower", (2, 0), "knows", id="follow-in-a-known-epoch"),
        pytest.param(LEADERLESS, HW, "become_follower", (1, 1), "no other", id="follow-nobody"),
        pytest.param(
            ELECTED, KIP320, "become_follower", (1, 1), "lead in this epoch yet", id="follow-early"
        ),
        pytest.param(STEADY, HW, "leader_write", (2, 2), "believe", id="write-as-follower"),
        pytest.param(STEADY, HW, "leader_write", (1, 0), "in order", id="write-an-id-twice"),
        pytest.param(ZOMBIE, HW, "follower_fetch", (1, 2), "believe", id="fetch-from-a-stranger"),
        pytest.param(STEADY, HW, "follower_fetch", (1, 1), "believe", id="fetch-from-oneself"),
        pytest.param(
            state(E0, replica(1, "0", 0, E0), replica(2, "0", 0, E0)),
            HW,
            "follower_fetch",
            (2, 1),
            "no record",
            id="fetch-past-the-end",
        ),
        pytest.param(
            STALE_FOLLOWER, KIP320, "follower_fetch", (2, 1), "fence", id="fetch-in-an-old-epoch"
        ),
        pytest.param(
            TAIL_DIFFERS,
            KIP320_FIRST_TRY,
            "follower_fetch",
            (1, 2),
            "fence",
            id="fetch-on-a-tail-that-differs",
        ),
        pytest.param(STEADY, HW, "leader_advance_hw", (2,), "believe", id="advance-as-follower"),
        pytest.param(
            state(E0, replica(1, "", 0, E0), replica(2, "", 0, E0)),
            HW,
            "leader_advance_hw",
            (1,),
            "nothing",
            id="advance-past-the-leo",
        ),
        pytest.param(
            state(E0, replica(1, "0", 0, E0), replica(2, "0", 0)),
            HW,
            "leader_advance_hw",
            (1,),
            "does not follow",
            id="advance-over-a-member-that-does-not-follow",
        ),
        pytest.param(
            state(E0, replica(1, "0", 0, E0), replica(2, "", 0, E0)),
            HW,
            "leader_advance_hw",
            (1,),
            "not fetched",
            id="advance-over-a-member-that-is-behind",
        ),
        pytest.param(
            STALE_FOLLOWER, KIP320, "leader_advance_hw", (1,), "fence", id="advance-by-old-epoch"
        ),
        pytest.param(
            SAME_LENGTH_DIFFERS,
            KIP320_FIRST_TRY,
            "leader_advance_hw",
            (2,),
            "fence",
            id="advance-over-a-record-of-another-epoch",
        ),
        pytest.param(ZOMBIE, HW, "leader_shrink_isr", (1, 2), "znode", id="shrink-by-a-zombie"),
        pytest.param(OUTSIDE, HW, "leader_shrink_isr", (1, 2), "not in", id="shrink-an-outsider"),
        pytest.param(
            state(E0, replica(1, "0", 0, E0), replica(2, "0", 0, E0)),
            HW,
            "leader_shrink_isr",
            (1, 2),
            "has all",
            id="shrink-one-that-has-all",
        ),
        pytest.param(ZOMBIE, HW, "leader_expand_isr", (1, 2), "znode", id="expand-by-a-zombie"),
        pytest.param(STEADY, HW, "leader_expand_isr", (1, 2), "already", id="expand-by-a-member"),
        pytest.param(
            state(ALONE, replica(1, "0", 1, ALONE), replica(2, "", 0, ALONE)),
            HW,
            "leader_expand_isr",
            (1, 2),
            "not reached",
            id="expand-by-one-below-the-hw",
        ),
        pytest.param(
            STALE_OUTSIDE, KIP320, "leader_expand_isr", (1, 2), "not follow", id="expand-old-epoch"
        ),
        pytest.param(
            OLD_HW._replace(
                replicas=(OLD_HW.replicas[0], replica(2, "0", 0, heard(1, 2, 1))),
            ),
            KIP320,
            "leader_expand_isr",
            (1, 2),
            "own epoch",
            id="expand-before-the-hw-reached-the-epoch",
        ),
        pytest.param(
            TAIL_DIFFERS, KIP320, "follower_truncate", (1, 2), "rule set", id="truncate-by-kip320"
        ),
        pytest.param(
            STEADY, KIP320_FIRST_TRY, "follower_truncate", (2, 1), "matches", id="truncate-a-match"
        ),
        pytest.param(
            ZOMBIE, KIP320_FIRST_TRY, "follower_truncate", (1, 2), "believe", id="truncate-stranger"
        ),
        pytest.param(STEADY, HW, "crash", (1, 3, 0), "more than", id="crash-keeps-too-much"),
        pytest.param(STEADY, HW, "crash", (1, 2, 1), "above", id="crash-with-a-higher-hw"),
        pytest.param(STEADY, HW, "crash", (9, 0, 0), "no such", id="crash-of-nobody"),
    ],
)
def test_it_does_not_happen(
    before: State, rules: RuleSet, name: str, values: tuple[int, ...], because: str
) -> None:
    refused = outcome(before, rules, name, *values)
    assert isinstance(refused, NotEnabled)
    assert because in refused.because


@pytest.mark.parametrize(
    ("before", "name", "values"),
    [
        pytest.param(STALE_FOLLOWER, "follower_fetch", (2, 1), id="fetch-in-an-old-epoch"),
        pytest.param(STALE_FOLLOWER, "leader_advance_hw", (1,), id="advance-by-an-old-epoch"),
        pytest.param(STALE_OUTSIDE, "leader_expand_isr", (1, 2), id="expand-by-an-old-epoch"),
        pytest.param(OLD_HW, "leader_expand_isr", (1, 2), id="expand-by-an-old-hw"),
    ],
)
def test_without_fences_an_old_epoch_is_served(
    before: State, name: str, values: tuple[int, ...]
) -> None:
    assert isinstance(outcome(before, KIP279, name, *values), State)


@pytest.mark.parametrize("name", EVERY_ACTION)
def test_every_action_is_tested_as_refused(name: str) -> None:
    marks = test_it_does_not_happen.pytestmark  # type: ignore[attr-defined]
    assert name in {case.values[2] for case in marks[0].args[1]}


def test_enabled_actions_come_in_canonical_order_each_once() -> None:
    found = enabled(ZOMBIE, KIP320, names=EVERY_ACTION)
    order = {name: place for place, name in enumerate(TABLE)}
    assert found == sorted(set(found), key=lambda action: (order[action.name], action.values))


def test_all_enabled_actions_of_the_first_state() -> None:
    found = [str(action) for action in enabled(initial_state((2, 1)), KIP320)]
    assert found == [
        "controller_elect leader=1",
        "controller_elect leader=2",
        "controller_shrink_isr replica=1",
        "controller_shrink_isr replica=2",
    ]


@pytest.mark.parametrize(
    ("bounds", "absent"),
    [
        pytest.param(Bounds(max_leader_epoch=1), "controller_elect", id="no-epoch-above-the-bound"),
        pytest.param(Bounds(max_records=2), "leader_write", id="no-record-above-the-bound"),
        pytest.param(Bounds(log_size=2), "leader_write", id="no-log-above-the-bound"),
    ],
)
def test_bounds_keep_actions_away(bounds: Bounds, absent: str) -> None:
    assert absent in {action.name for action in enabled(ZOMBIE, HW)}
    assert absent not in {action.name for action in enabled(ZOMBIE, HW, bounds)}
