"""Reassignment in ZooKeeper mode: assignment algebra and the sequence of writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency.model import Assignment, PartitionState
from tidestaff.consistency.reassignment import (
    Phase,
    cancel_reassignment,
    is_complete,
    origin,
    reassign_to,
    reassignment_writes,
    target,
)
from tidestaff.consistency.versions import RuleSet, rules_for

RULES = rules_for("3.9")
U1, U3, A1, B3, B4, B6 = Phase


def state(leader: int, epoch: int, *isr: int, version: int = 0) -> PartitionState:
    return PartitionState(leader, epoch, isr, partition_epoch=version)


@pytest.mark.parametrize(
    ("before", "replicas", "after"),
    [
        pytest.param(
            Assignment((1, 2, 3, 4)),
            (4, 2, 5, 3),
            Assignment((4, 2, 5, 3, 1), (5,), (1,)),
            id="target-first-then-what-goes",
        ),
        pytest.param(
            Assignment((1, 2, 3)),
            (3, 1, 2),
            Assignment((3, 1, 2)),
            id="a-reorder-adds-and-removes-nobody",
        ),
        pytest.param(
            Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)),
            (7, 8, 9),
            Assignment((7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3)),
            id="a-second-target-replaces-the-first",
        ),
        pytest.param(
            Assignment((4, 2, 3, 1), (4,), (1,)),
            (4, 2, 3),
            Assignment((4, 2, 3, 1), (4,), (1,)),
            id="the-same-target-again-changes-nothing",
        ),
    ],
)
def test_reassign_to(before: Assignment, replicas: tuple[int, ...], after: Assignment) -> None:
    assert reassign_to(before, replicas) == after


def test_cancelling_loses_the_original_order() -> None:
    running = reassign_to(Assignment((1, 2, 3)), (3, 4, 2))
    assert running.replicas == (3, 4, 2, 1)
    assert cancel_reassignment(running) == Assignment((3, 2, 1))


@pytest.mark.parametrize(
    ("assignment", "isr", "complete"),
    [
        pytest.param(Assignment((1, 2)), (), True, id="no-reassignment-is-complete"),
        pytest.param(Assignment((3, 1), (3,), (1,)), (1, 3), True, id="target-in-isr"),
        pytest.param(Assignment((3, 1), (3,), (1,)), (1,), False, id="added-not-yet-in-isr"),
        pytest.param(
            Assignment((2, 1, 3), (), (3,)),
            (1, 3),
            False,
            id="a-kept-replica-outside-the-isr-holds-it-up",
        ),
    ],
)
def test_is_complete(assignment: Assignment, isr: tuple[int, ...], complete: bool) -> None:
    assert is_complete(assignment, isr) is complete


def test_from_1_2_3_to_4_5_6_as_the_controller_documents_it() -> None:
    """The table in KafkaController.onPartitionReassignment, with the epochs it takes."""
    running = reassign_to(Assignment((1, 2, 3)), (4, 5, 6))
    live = set(range(1, 7))
    start = reassignment_writes(
        state(1, 0, 1, 2, 3),
        current=Assignment((1, 2, 3)),
        requested=running,
        live=live,
        rules=RULES,
    )
    assert [(w.phase, w.assignment, w.state) for w in start] == [
        (U1, Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)), None),
        (A1, None, state(1, 1, 1, 2, 3, version=1)),
    ]
    caught_up = state(1, 1, 1, 2, 3, 4, 5, 6, version=4)
    end = reassignment_writes(caught_up, current=running, requested=running, live=live, rules=RULES)
    assert [(w.phase, w.assignment, w.state) for w in end] == [
        (B3, None, state(4, 2, 1, 2, 3, 4, 5, 6, version=5)),
        (B4, None, state(4, 3, 2, 3, 4, 5, 6, version=6)),
        (B4, None, state(4, 4, 3, 4, 5, 6, version=7)),
        (B4, None, state(4, 5, 4, 5, 6, version=8)),
        (B6, Assignment((4, 5, 6)), None),
    ]


def test_a_stuck_reassignment_only_raises_the_epoch() -> None:
    """zk-int-7: topic on [C], O is down, reassign to [O]."""
    writes = reassignment_writes(
        state(1, 0, 1),
        current=Assignment((1,)),
        requested=reassign_to(Assignment((1,)), (0,)),
        live={1},
        rules=RULES,
    )
    assert [w.phase for w in writes] == [U1, A1]
    assert writes[-1].state == state(1, 1, 1, version=1)


def test_a_reorder_is_done_at_once_and_raises_the_epoch() -> None:
    before = Assignment((1, 2))
    writes = reassignment_writes(
        state(1, 0, 1, 2),
        current=before,
        requested=reassign_to(before, (2, 1)),
        live={1, 2},
        rules=RULES,
    )
    assert [(w.phase, w.assignment, w.state) for w in writes] == [
        (U1, Assignment((2, 1)), None),
        (B3, None, state(1, 1, 1, 2, version=1)),
        (B6, Assignment((2, 1)), None),
    ]


def test_cancelling_takes_an_added_replica_out_of_the_isr() -> None:
    running = Assignment((3, 4, 1, 2), (3, 4), (1, 2))
    writes = reassignment_writes(
        state(1, 5, 1, 2, 3),
        current=running,
        requested=cancel_reassignment(running),
        live={1, 2, 3, 4},
        rules=RULES,
    )
    assert [(w.phase, w.state) for w in writes] == [
        (U1, None),
        (U3, state(1, 6, 1, 2, version=1)),
        (B3, state(1, 7, 1, 2, version=2)),
        (B6, None),
    ]


@pytest.mark.parametrize(
    ("leader", "live", "after_b3"),
    [
        pytest.param(2, {1, 2, 3}, state(2, 1, 1, 2, 3, version=1), id="a-live-leader-stays"),
        pytest.param(2, {1, 3}, state(3, 1, 1, 2, 3, version=1), id="a-dead-leader-is-replaced"),
        pytest.param(1, {1, 2, 3}, state(3, 1, 1, 2, 3, version=1), id="a-leader-outside-moves"),
        pytest.param(
            -1, {1, 2}, state(2, 1, 1, 2, 3, version=1), id="without-a-leader-one-is-chosen"
        ),
    ],
)
def test_who_leads_at_the_end(leader: int, live: set[int], after_b3: PartitionState) -> None:
    running = Assignment((3, 2, 1), (3,), (1,))
    writes = reassignment_writes(
        state(leader, 0, 1, 2, 3), current=running, requested=running, live=live, rules=RULES
    )
    assert (writes[0].phase, writes[0].state) == (B3, after_b3)
    assert writes[-1].assignment == Assignment((3, 2))


def test_no_live_target_leaves_the_partition_without_a_leader() -> None:
    running = Assignment((3, 1), (3,), (1,))
    writes = reassignment_writes(
        state(1, 0, 1, 3), current=running, requested=running, live={1}, rules=RULES
    )
    assert [(w.phase, w.state) for w in writes] == [
        (B4, state(-1, 1, 3, version=1)),
        (B6, None),
    ]


def test_before_2_4_the_topic_node_holds_a_plain_union() -> None:
    rules = rules_for("2.3")
    asked = reassign_to(Assignment((1, 2)), (3, 2))
    start = reassignment_writes(
        state(1, 0, 1, 2),
        current=Assignment((1, 2)),
        requested=asked,
        live={1, 2, 3},
        rules=rules,
    )
    written = start[0].assignment
    assert written is not None
    assert (set(written.replicas), written.being_reassigned) == ({1, 2, 3}, False)
    end = reassignment_writes(
        state(1, 1, 1, 2, 3), current=asked, requested=asked, live={1, 2, 3}, rules=rules
    )
    assert [w.phase for w in end] == [B3, B4, B6]


ASSIGNMENTS = st.lists(st.integers(0, 6), unique=True, min_size=1, max_size=4).map(tuple)


@given(ASSIGNMENTS, ASSIGNMENTS, ASSIGNMENTS)
def test_the_algebra_keeps_origin_and_target(
    first: tuple[int, ...], second: tuple[int, ...], third: tuple[int, ...]
) -> None:
    running = reassign_to(Assignment(first), second)
    assert target(running) == second
    assert set(origin(running)) == set(first)
    assert running.being_reassigned == (set(first) != set(second))
    again = reassign_to(running, third)
    assert again == reassign_to(Assignment(origin(running)), third)
    assert set(cancel_reassignment(again).replicas) == set(first)
    assert reassign_to(running, target(running)) == running


@given(
    before=ASSIGNMENTS,
    replicas=ASSIGNMENTS,
    isr=st.lists(st.integers(0, 6), unique=True).map(tuple),
    leader=st.integers(-1, 6),
    live=st.frozensets(st.integers(0, 6)),
    rules=st.sampled_from([rules_for(v) for v in ("1.0", "2.3", "2.4", "3.9")]),
)
def test_every_state_write_raises_the_epoch_by_one(
    *,
    before: tuple[int, ...],
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    leader: int,
    live: frozenset[int],
    rules: RuleSet,
) -> None:
    asked = reassign_to(Assignment(before), replicas)
    writes = reassignment_writes(
        PartitionState(leader, 0, isr),
        current=Assignment(before),
        requested=asked,
        live=live,
        rules=rules,
    )
    states = [w.state for w in writes if w.state is not None]
    assert [s.leader_epoch for s in states] == list(range(1, len(states) + 1))
    assert all((w.state is None) != (w.assignment is None) for w in writes)
    done = is_complete(asked, isr)
    assert (writes[-1].phase is B6) == done
    if done:
        assert writes[-1].assignment == Assignment(replicas)
