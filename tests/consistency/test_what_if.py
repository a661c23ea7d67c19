"""What would happen if: cluster-wide answers from partitions' forecasts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.consistency import what_if
from tidestaff.consistency.catching_up import (
    Pace,
    Return,
    catching_up,
    returns,
    written_a_second,
)
from tidestaff.consistency.model import Assignment, OffsetRange, ReplicaReading, TopicPartition
from tidestaff.consistency.versions import Mode

from tests.consistency.watch import Watch

if TYPE_CHECKING:
    from tidestaff.consistency.model import PartitionObservation


def seen(partition: int = 0, **fields: Any) -> PartitionObservation:
    settings = fields.pop("settings", {})
    watch = Watch(**{"controller": 9, **fields}).setting(**settings)
    return replace(watch.observation(), partition=partition)


def test_a_stop_names_what_goes_offline_and_what_refuses_writers() -> None:
    partitions = [
        seen(0),
        seen(1, isr=(1,)),
        seen(2, settings={"min_insync_replicas": 3}),
    ]
    found = what_if.stop(partitions, {1}, controlled=True)
    assert [c.name.partition for c in found.offline] == [1]
    assert [c.name.partition for c in found.under_min_isr] == [2]
    assert not found.safe
    assert found.leaders_before == {1: 3, 2: 0, 3: 0}
    assert found.leaders_after == {1: 0, 2: 2, 3: 0}


def test_a_stop_that_harms_nobody_is_safe_and_counts_leaders() -> None:
    found = what_if.stop([seen(0), seen(1, leader=2)], {1}, controlled=True)
    assert found.safe
    assert found.leaders_after == {1: 0, 2: 2, 3: 0}


def test_what_was_offline_before_is_not_the_stops_doing() -> None:
    found = what_if.stop([seen(0, leader=-1, isr=(1,))], {2}, controlled=True)
    assert found.safe


def test_what_stays_offline_is_not_the_stops_doing() -> None:
    watch = Watch(controller=9, leader=-1, isr=(1,)).stop(1)
    (change,) = what_if.stop([watch.observation()], {2}, controlled=True).changes
    assert change.after.offline
    assert not change.newly_offline


def test_a_crash_with_unclean_election_names_the_lost_range() -> None:
    watch = Watch(isr=(1,), controller=9).setting(unclean_leader_election_enable=True)
    watch.log(2, leo=3, hw=3).log(3, leo=3, hw=3)
    found = what_if.stop([watch.observation()], {1}, controlled=False)
    assert [c.after.lost for c in found.losing] == [OffsetRange(3, 10)]
    assert not found.safe


def test_two_stops_leave_one_copy() -> None:
    found = what_if.stop([seen(0)], {2, 3}, controlled=False)
    assert found.safe
    assert [c.name.partition for c in found.one_copy_left] == [0]


def test_a_rolling_restart_takes_the_controller_last_and_who_must_wait_later() -> None:
    partitions = [
        seen(0, controller=1),
        seen(1, controller=1, leader=2, isr=(2, 3), settings={"min_insync_replicas": 2}),
    ]
    plan = what_if.restart(partitions, [1, 2, 3])
    # 2 and 3 are needed until 1 is in sync again; 1 is the controller, and can go now.
    assert [step.broker for step in plan.steps] == [1, 3, 2]
    assert plan.blocked == ()
    assert plan.steps[1].wait_for == (TopicPartition("t", 1),)


def test_a_restart_is_blocked_where_a_partition_has_one_replica() -> None:
    plan = what_if.restart([seen(0, replicas=(2,), leader=2, isr=(2,))], [1, 2])
    assert [step.broker for step in plan.blocked] == [2]


def test_a_reassignment_says_who_copies_and_who_leads_then() -> None:
    for mode in (Mode.ZOOKEEPER, Mode.KRAFT):
        version = "3.9.1" if mode is Mode.ZOOKEEPER else "4.1.1"
        partition = seen(0, mode=mode, version=version)
        name = TopicPartition("t", 0)
        (move,) = what_if.reassign([partition], {name: [4, 2, 3]}, live={1, 2, 3, 4})
        assert (move.adding, move.removing) == ((4,), (1,))
        assert (move.leader_before, move.leader_after) == (1, 4)
        assert move.records_to_copy == 10
        under_way = replace(
            partition,
            assignment=Assignment((4, 1, 2, 3), adding=(4,)),
            replicas=(*partition.replicas, ReplicaReading(4, log_start_offset=0, log_end_offset=7)),
        )
        (on,) = what_if.reassign([under_way], {name: [4, 2, 3]}, live={1, 2, 3, 4})
        assert on.records_to_copy == 3
        (stuck,) = what_if.reassign([partition], {name: [4, 2, 3]}, live={1, 2, 3})
        assert stuck.away == (4,)


@pytest.mark.parametrize(
    ("version", "target", "away", "leader"),
    [
        pytest.param("3.9.1", [2, 3, 1], (), 1, id="a-new-order-waits-for-nobody"),
        pytest.param("3.9.1", [3, 2], (3,), 1, id="from-3.8-who-stays-must-be-in-sync"),
        pytest.param("3.7.0", [3, 2], (), 2, id="before-3.8-only-who-is-added-must"),
        pytest.param("3.9.1", [2, 4], (4,), 1, id="what-never-ends-moves-no-leader"),
    ],
)
def test_a_reassignment_in_kraft_waits_for_whom_its_version_wants(
    version: str, target: list[int], away: tuple[int, ...], leader: int
) -> None:
    """Of 1, 2, 3 the last is down; as 3.9.1 did it on real brokers."""
    partition = seen(0, mode=Mode.KRAFT, version=version, isr=(1, 2))
    (move,) = what_if.reassign([partition], {TopicPartition("t", 0): target}, live={1, 2})
    assert (move.away, move.leader_after) == (away, leader)


@pytest.mark.parametrize(("version", "away"), [("3.9.1", ()), ("2.3.0", (3,))])
def test_a_new_order_with_zookeeper_waits_before_2_4_only(
    version: str, away: tuple[int, ...]
) -> None:
    partition = seen(0, version=version, isr=(1, 2))
    (move,) = what_if.reassign([partition], {TopicPartition("t", 0): [2, 3, 1]}, live={1, 2})
    assert (move.away, move.leader_after) == (away, 1)


def test_a_reassignment_of_what_is_not_there_is_told() -> None:
    (move,) = what_if.reassign([], {TopicPartition("x", 0): [1]}, live={1})
    assert move.unknown


def test_unclean_on_brings_back_what_is_offline_and_says_the_price() -> None:
    watch = Watch(isr=(1,), leader=-1, controller=9).stop(1)
    watch.log(2, leo=3, hw=3).log(3, leo=8, hw=6)
    (found,) = what_if.unclean_on([watch.observation()])
    assert (found.leader, found.lost, found.lost_at_least) == (2, OffsetRange(3, 6), True)
    assert what_if.unclean_on([seen(0)]) == ()


def test_who_catches_up_is_told_with_the_time_it_takes() -> None:
    def at(ms: int, leader: int, follower: int) -> PartitionObservation:
        watch = Watch(isr=(1, 2), controller=9).log(1, leo=leader).log(3, leo=follower, hw=0)
        return replace(watch.observation(), observed_at_ms=ms)

    (fast,) = catching_up([at(0, 100, 20)], [at(2_000, 110, 70)])
    assert (fast.broker, fast.behind) == (3, 40)
    assert fast.seconds == 2.0
    (slow,) = catching_up([at(0, 100, 20)], [at(2_000, 200, 30)])
    assert (slow.seconds, slow.pace) == (None, Pace.NOT_NEARING)
    (once,) = catching_up([], [at(2_000, 200, 30)])
    assert (once.behind, once.seconds, once.pace) == (170, None, Pace.UNKNOWN)
    assert returns([fast]) == (Return(3, 1, 40, 2.0, Pace.NEARING),)
    later = fast._replace(behind=90, seconds=9.0)
    assert returns([later, fast]) == (Return(3, 2, 130, 9.0, Pace.NEARING),)
    assert returns([fast, once]) == (Return(3, 2, 210, None, Pace.UNKNOWN),)
    assert returns([fast, once, slow]) == (Return(3, 3, 380, None, Pace.NOT_NEARING),)


def test_what_a_broker_misses_while_away_is_what_is_written_to_its_partitions() -> None:
    earlier, later = [written(0, 100)], [written(2_000, 160)]
    assert written_a_second(earlier, later) == {1: 30.0, 2: 30.0, 3: 30.0}
    assert written_a_second([], later) is None


def written(ms: int, leader: int) -> PartitionObservation:
    return replace(Watch(controller=9).log(1, leo=leader).observation(), observed_at_ms=ms)
