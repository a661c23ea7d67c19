"""The automatic rebalance (S-19): imbalance per broker, what is moved, and the metric."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency.model import Assignment, PartitionState
from tidestaff.consistency.rebalance import (
    BrokerImbalance,
    Leadership,
    elections_tried,
    exceeds_threshold,
    has_preferred_leader,
    imbalance_by_broker,
    partitions_to_move,
    preferred_replica_imbalance_count,
)
from tidestaff.consistency.versions import Mode, RuleSet, rules_for

RULES = rules_for("3.9")
KRAFT = rules_for("3.9", Mode.KRAFT)


def led(leader: int, assignment: tuple[int, ...], isr: tuple[int, ...]) -> Leadership:
    return Leadership(Assignment(assignment), PartitionState(leader, 0, isr))


def second_topic(*leaders_and_isrs: tuple[int, tuple[int, ...]]) -> dict[str, Leadership]:
    assignments = ((1, 0, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0))
    return {
        f"P{index}": led(leader, ar, isr)
        for index, (ar, (leader, isr)) in enumerate(zip(assignments, leaders_and_isrs, strict=True))
    }


S09 = second_topic((1, (1, 2)), (2, (2, 1)), (2, (2, 1)), (1, (1, 2)))
S10 = second_topic((1, (1, 2, 0)), (2, (2, 1, 0)), (2, (2, 1, 0)), (1, (1, 2, 0)))
S15 = second_topic((1, (1, 0)), (0, (0, 1)), (1, (1, 0)), (1, (1, 0)))
S17 = second_topic((1, (1, 0, 2)), (0, (0, 1, 2)), (1, (1, 0, 2)), (1, (1, 0, 2)))
S06 = {
    "P0": led(1, (1, 0), (0, 1)),
    "P1": led(2, (0, 2), (2, 0)),
    "P2": led(2, (2, 1), (2, 1)),
}
S07 = {
    "P0": led(2, (2, 1), (2, 1)),
    "P1": led(1, (1, 0), (1, 0)),
    "P2": led(2, (0, 2), (2, 0)),
    "P3": led(2, (2, 0), (2, 0)),
}


@pytest.mark.parametrize(
    ("partitions", "live", "counts", "moved"),
    [
        pytest.param(
            S09,
            {1, 2},
            {0: (1, 1), 1: (0, 2), 2: (0, 1)},
            (),
            id="S-09-the-preferred-replica-is-down",
        ),
        pytest.param(
            S10, {0, 1, 2}, {0: (1, 1), 1: (0, 2), 2: (0, 1)}, ("P1",), id="S-10-p1-goes-to-0"
        ),
        pytest.param(S15, {0, 1}, {0: (0, 1), 1: (0, 2), 2: (1, 1)}, (), id="S-15-2-is-down"),
        pytest.param(
            S17, {0, 1, 2}, {0: (0, 1), 1: (0, 2), 2: (1, 1)}, ("P2",), id="S-17-p2-goes-to-2"
        ),
        pytest.param(
            S06, {0, 1, 2}, {0: (1, 1), 1: (0, 1), 2: (0, 1)}, ("P1",), id="S-06-p1-goes-to-0"
        ),
        pytest.param(
            S07, {0, 1, 2}, {0: (1, 1), 1: (0, 1), 2: (0, 2)}, ("P2",), id="S-07-p2-goes-to-0"
        ),
    ],
)
def test_s19_automatic_rebalance_arithmetic(
    partitions: dict[str, Leadership],
    live: set[int],
    counts: dict[int, tuple[int, int]],
    moved: tuple[str, ...],
) -> None:
    imbalance = imbalance_by_broker(partitions)
    assert {b: (len(i.not_preferred), i.total) for b, i in imbalance.items()} == counts
    assert partitions_to_move(partitions, live=live, rules=RULES) == moved


@pytest.mark.parametrize(
    ("bad", "total", "percent", "exceeded"),
    [
        pytest.param(1, 10, 10, False, id="S-19-equal-is-not-greater"),
        pytest.param(1, 9, 10, True, id="one-of-nine-is-more-than-ten-percent"),
        pytest.param(3, 10, 30, False, id="equal-in-doubles-too"),
        pytest.param(0, 5, 0, False, id="no-imbalance-at-threshold-0"),
        pytest.param(1, 5, 0, True, id="any-imbalance-at-threshold-0"),
        pytest.param(5, 5, 100, False, id="threshold-100-never-moves"),
    ],
)
def test_the_ratio_must_be_strictly_greater(
    bad: int, total: int, percent: int, exceeded: bool
) -> None:
    imbalance = BrokerImbalance(tuple(f"t-{i}" for i in range(bad)), total)
    assert exceeds_threshold(imbalance, threshold_percent=percent) is exceeded


def test_one_bad_of_ten_stays_in_zookeeper_mode_and_moves_in_kraft() -> None:
    partitions = {f"t-{i}": led(1, (1, 2), (1, 2)) for i in range(9)}
    partitions["t-9"] = led(2, (1, 2), (1, 2))
    assert partitions_to_move(partitions, live={1, 2}, rules=RULES) == ()
    assert partitions_to_move(partitions, live={1, 2}, rules=KRAFT) == ("t-9",)


def test_kraft_moves_at_most_a_thousand_at_once() -> None:
    partitions = {f"t-{i}": led(2, (1, 2), (1, 2)) for i in range(1_500)}
    assert len(partitions_to_move(partitions, live={1, 2}, rules=KRAFT)) == 1_000
    assert len(partitions_to_move(partitions, live={1, 2}, rules=RULES)) == 1_500


@pytest.mark.parametrize(
    ("rules", "moved"),
    [
        pytest.param(rules_for("3.3"), (), id="3.3-waits-for-any-reassignment"),
        pytest.param(rules_for("3.4"), ("bad",), id="3.4-does-not-wait"),
        pytest.param(KRAFT, ("bad",), id="kraft-does-not-wait"),
    ],
)
def test_a_reassignment_of_another_partition(rules: RuleSet, moved: tuple[str, ...]) -> None:
    bad = led(2, (1, 2), (1, 2))
    running = Leadership(Assignment((3, 4), (3,), (4,)), PartitionState(4, 0, (4,)))
    known = {"bad": bad, "running": running}
    assert partitions_to_move(known, live={1, 2, 4}, rules=rules) == moved
    elsewhere = partitions_to_move(
        {"bad": bad}, live={1, 2}, rules=rules, reassigning_elsewhere=True
    )
    assert elsewhere == moved


@pytest.mark.parametrize(
    ("version", "tried"),
    [
        pytest.param("2.5", ("t-0",), id="2.5-tries-in-vain"),
        pytest.param("2.6", (), id="2.6-looks-at-the-isr-first"),
    ],
)
def test_a_live_preferred_replica_outside_the_isr(version: str, tried: tuple[str, ...]) -> None:
    partitions = {"t-0": led(2, (1, 2), (2,))}
    rules = rules_for(version)
    assert elections_tried(partitions, live={1, 2}, rules=rules) == tried
    assert partitions_to_move(partitions, live={1, 2}, rules=rules) == ()


def test_an_offline_log_directory_keeps_the_leader_where_it_is() -> None:
    partition = led(2, (1, 2), (1, 2))._replace(offline_replicas=(1,))
    assert partitions_to_move({"t-0": partition}, live={1, 2}, rules=RULES) == ()
    assert elections_tried({"t-0": partition}, live={1, 2}, rules=rules_for("2.5")) == ()


@pytest.mark.parametrize(
    ("partition", "count"),
    [
        pytest.param(led(1, (1, 2), (1, 2)), 0, id="preferred-leads"),
        pytest.param(led(2, (1, 2), (1, 2)), 1, id="another-leads"),
        pytest.param(led(-1, (1, 2), (1,)), 1, id="nobody-leads-counts"),
        pytest.param(Leadership(Assignment((1, 2)), None), 0, id="no-leadership-info-does-not"),
        pytest.param(
            led(2, (1, 2), (1, 2))._replace(deleting=True), 0, id="queued-for-deletion-does-not"
        ),
        pytest.param(Leadership(Assignment(()), None), 0, id="no-assignment-does-not"),
    ],
)
def test_preferred_replica_imbalance_count(partition: Leadership, count: int) -> None:
    assert preferred_replica_imbalance_count([partition], rules=RULES) == count


@pytest.mark.parametrize(
    ("version", "isr", "balanced"),
    [
        pytest.param("2.6", (2,), False, id="2.6-makes-no-exception"),
        pytest.param("2.7", (2,), True, id="2.7-does-not-miss-a-replica-still-being-added"),
        pytest.param("2.7", (2, 3), False, id="2.7-misses-it-once-it-is-in-the-isr"),
    ],
)
def test_the_metric_during_a_reassignment(
    version: str, isr: tuple[int, ...], balanced: bool
) -> None:
    partition = Leadership(Assignment((3, 2), (3,), ()), PartitionState(2, 0, isr))
    assert has_preferred_leader(partition, rules=rules_for(version)) is balanced


def test_partitions_without_leadership_info_count_in_the_total_only() -> None:
    known = {"t-0": Leadership(Assignment((1, 2)), None), "t-1": led(2, (1, 2), (1, 2))}
    assert imbalance_by_broker(known) == {1: BrokerImbalance(("t-1",), 2)}


BROKERS = st.lists(st.integers(0, 3), unique=True, max_size=3).map(tuple)
LEADERSHIPS = st.builds(
    Leadership,
    assignment=st.builds(Assignment, replicas=BROKERS, adding=BROKERS),
    state=st.none()
    | st.builds(PartitionState, leader=st.integers(-1, 3), leader_epoch=st.just(0), isr=BROKERS),
    deleting=st.booleans(),
)


@given(
    partitions=st.dictionaries(st.text("ab", min_size=1, max_size=3), LEADERSHIPS),
    live=st.frozensets(st.integers(0, 3)),
    rules=st.sampled_from([rules_for(v) for v in ("1.0", "2.6", "3.4")] + [KRAFT]),
    percent=st.integers(0, 100),
)
def test_whatever_is_moved_can_be_led_by_its_preferred_replica(
    partitions: dict[str, Leadership], live: frozenset[int], rules: RuleSet, percent: int
) -> None:
    moved = partitions_to_move(partitions, live=live, rules=rules, threshold_percent=percent)
    for name in moved:
        partition = partitions[name]
        assert partition.state is not None
        preferred = partition.assignment.replicas[0]
        assert preferred in live
        assert preferred in partition.state.isr
        assert partition.state.leader != preferred
        assert not partition.deleting
    tried = elections_tried(partitions, live=live, rules=rules, threshold_percent=percent)
    assert set(moved) <= set(tried)
    assert preferred_replica_imbalance_count(partitions.values(), rules=rules) <= len(partitions)
