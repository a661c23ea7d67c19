"""Edges of the ZooKeeper-mode controller's rules that only a seeded fault showed to be untested."""

from __future__ import annotations

import pytest
from tidestaff.consistency.alter_partition import AlterPartition, alter_partition
from tidestaff.consistency.controlled_shutdown import controlled_shutdown, shutdown_of_replica
from tidestaff.consistency.election import ElectionAnswer, requested_election
from tidestaff.consistency.model import NO_LEADER, Assignment, PartitionState, Registration
from tidestaff.consistency.partition_lifecycle import PartitionLifecycle, next_lifecycle
from tidestaff.consistency.rebalance import Leadership, imbalance_by_broker
from tidestaff.consistency.versions import rules_for

RULES = rules_for("3.9")


def test_a_dead_leader_that_is_still_named_does_not_make_an_unclean_election_needless() -> None:
    answer, state = requested_election(
        PartitionState(1, 4, (1,), 7), unclean=True, assignment=(1, 2), live={2}, rules=RULES
    )
    assert answer is ElectionAnswer.ELECTED
    assert state is not None
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2,), 5)


@pytest.mark.parametrize("leader", [1, NO_LEADER])
def test_the_shutdown_of_an_only_replica_writes_nothing(leader: int) -> None:
    after = shutdown_of_replica(
        PartitionState(leader, 4, (1,), 7),
        assignment=(1,),
        broker=1,
        registered={1, 2},
        shutting_down={1},
        rules=RULES,
    )
    assert after is None


def test_a_leader_is_not_handed_over_to_a_broker_that_is_leaving_as_well() -> None:
    answer = controlled_shutdown(
        {"t-0": (Assignment((1, 2, 3)), PartitionState(1, 4, (1, 2, 3), 7))},
        broker=1,
        broker_epoch=101,
        registrations=(
            Registration(1, 101),
            Registration(2, 102, shutting_down=True),
            Registration(3, 103),
        ),
        rules=RULES,
    )
    assert (answer.written["t-0"].leader, answer.written["t-0"].isr) == (3, (3,))
    assert answer.remaining == ()


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        pytest.param(PartitionLifecycle.OFFLINE, PartitionLifecycle.OFFLINE, id="offline-as-told"),
        pytest.param(PartitionLifecycle.ONLINE, PartitionLifecycle.NEW, id="online-by-a-write"),
    ],
)
def test_only_becoming_online_depends_on_a_write(
    asked: PartitionLifecycle, after: PartitionLifecycle
) -> None:
    assert next_lifecycle(PartitionLifecycle.NEW, asked, state_written=False) is after


@pytest.mark.parametrize("version", ["2.7.0", "3.1.0", "3.2.0"])
def test_up_to_3_2_a_newer_leader_epoch_is_taken_as_it_comes(version: str) -> None:
    answer = alter_partition(
        PartitionState(1, 4, (1, 2), 7),
        AlterPartition(1, 101, leader_epoch=5, partition_epoch=7, isr=(1,)),
        registrations=(Registration(1, 101),),
        rules=rules_for(version),
        request_version=0,
    )
    assert answer.error is None
    assert answer.written
    assert answer.state is not None
    assert (answer.state.leader_epoch, answer.state.partition_epoch) == (5, 8)


def test_a_partition_without_a_leader_is_imbalanced() -> None:
    leaderless = Leadership(Assignment((1, 2)), PartitionState(NO_LEADER, 4, (1,)))
    found = imbalance_by_broker({"t-0": leaderless})
    assert found[1].not_preferred == ("t-0",)
