"""Edges of the KRaft controller's rules that only a seeded fault showed to be untested."""

from __future__ import annotations

from tidestaff.consistency.kraft import KraftElection, KraftPartition, build_change
from tidestaff.consistency.kraft_alter_partition import (
    AlterPartitionRequest,
    IsrMember,
    check_alter_partition,
)
from tidestaff.consistency.kraft_events import alter_partition, reassign
from tidestaff.consistency.kraft_image import ClusterImage, TopicSettings
from tidestaff.consistency.model import RecoveryState, Registration, TopicPartition
from tidestaff.consistency.registration import ControllerError
from tidestaff.consistency.versions import Mode, rules_for

TP = TopicPartition("t", 0)
NEWEST = rules_for("4.3", Mode.KRAFT, elr=False)


def test_an_old_metadata_version_has_no_recovery_state_to_write() -> None:
    for protocol, recovery in (("3.1-IV0", None), ("3.2-IV0", RecoveryState.RECOVERING)):
        change = build_change(
            KraftPartition((1, 2), (1,), leader=1),
            acceptable=lambda broker: broker == 2,
            rules=rules_for("3.3", Mode.KRAFT, protocol=protocol),
            min_isr=1,
            election=KraftElection.UNCLEAN,
        )
        assert change is not None
        assert (change.leader, change.isr, change.recovery) == (2, (2,), recovery)


def test_a_shrink_that_only_bumps_the_epoch_is_no_new_leader() -> None:
    image = ClusterImage(
        rules_for("3.9", Mode.KRAFT, protocol="3.5-IV2"),
        {broker: Registration(broker, 100 + broker) for broker in (1, 2)},
        {TP: KraftPartition((1, 2), (1, 2), leader=1)},
    )
    step = alter_partition(image, TP, AlterPartitionRequest(1, 101, 0, 0, (IsrMember(1, 101),)))
    assert step.error is ControllerError.NONE
    assert step.image.partitions[TP].leader_epoch == 1


def test_a_reassignment_elects_nobody_uncleanly_though_the_topic_allows_it() -> None:
    image = ClusterImage(
        NEWEST,
        {1: Registration(1, 101, fenced=True), 2: Registration(2, 102), 3: Registration(3, 103)},
        {TP: KraftPartition((1, 2), (1,))},
        defaults=TopicSettings(unclean_leader_election_enable=True),
    )
    after = reassign(image, TP, (3, 1)).image.partitions[TP]
    assert (after.leader, after.isr) == (-1, (1,))
    assert (after.adding, after.removing) == ((3,), (2,))


def test_a_replaced_reassignment_that_removes_nobody_keeps_those_that_were_leaving() -> None:
    running = KraftPartition((1, 2, 3), (1, 3), leader=1, adding=(2,), removing=(3,))
    brokers = {broker: Registration(broker, 100 + broker) for broker in (1, 2, 3)}
    step = reassign(ClusterImage(NEWEST, brokers, {TP: running}), TP, (1, 2, 3))
    assert step.image.partitions[TP] == running


def test_a_request_that_is_wrong_and_names_an_ineligible_member_is_called_wrong() -> None:
    error = check_alter_partition(
        KraftPartition((1, 2), (1, 2), leader=1),
        AlterPartitionRequest(1, 101, 0, 0, (IsrMember(1),), RecoveryState.RECOVERING),
        registrations={1: Registration(1, 101, shutting_down=True)},
        rules=NEWEST,
    )
    assert error is ControllerError.INVALID_REQUEST
