"""AlterPartition: which error a leader gets, and that the first fault in Kafka's order decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency.kraft import KraftPartition
from tidestaff.consistency.kraft_alter_partition import (
    AlterPartitionRequest,
    IsrMember,
    check_alter_partition,
)
from tidestaff.consistency.model import RecoveryState, Registration
from tidestaff.consistency.registration import ControllerError
from tidestaff.consistency.versions import Mode, rules_for

RULES = rules_for("4.3", Mode.KRAFT)
RULES_3_4 = rules_for("3.4", Mode.KRAFT)
RULES_3_5 = rules_for("3.5", Mode.KRAFT)
STATE = KraftPartition((0, 1, 2), (0, 1), leader=0, leader_epoch=4, partition_epoch=7)
BROKERS = {
    0: Registration(0, 100),
    1: Registration(1, 101),
    2: Registration(2, 102),
    3: Registration(3, 103),
}
RECOVERING = RecoveryState.RECOVERING


def members(*brokers):
    return tuple(IsrMember(broker, 100 + broker) for broker in brokers)


LAWFUL = AlterPartitionRequest(0, 100, leader_epoch=4, partition_epoch=7, isr=members(0, 1, 2))


def check(request, *, state=STATE, brokers=BROKERS, rules=RULES, **rest):
    return check_alter_partition(state, request, registrations=brokers, rules=rules, **rest)


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        pytest.param({}, "NONE", id="lawful"),
        pytest.param({"broker_epoch": 99}, "STALE_BROKER_EPOCH", id="older-broker-epoch"),
        pytest.param({"broker_epoch": 101}, "STALE_BROKER_EPOCH", id="newer-broker-epoch"),
        pytest.param({"broker": 9}, "STALE_BROKER_EPOCH", id="sender-is-not-registered"),
        pytest.param({"leader_epoch": 5}, "NOT_CONTROLLER", id="leader-epoch-ahead"),
        pytest.param({"partition_epoch": 8}, "NOT_CONTROLLER", id="partition-epoch-ahead"),
        pytest.param({"leader_epoch": 3}, "FENCED_LEADER_EPOCH", id="leader-epoch-behind"),
        pytest.param({"broker": 1, "broker_epoch": 101}, "INVALID_REQUEST", id="not-the-leader"),
        pytest.param({"partition_epoch": 6}, "INVALID_UPDATE_VERSION", id="partition-epoch-behind"),
        pytest.param({"isr": ()}, "INVALID_REQUEST", id="empty-isr"),
        pytest.param({"isr": members(0, 1, 1)}, "INVALID_REQUEST", id="a-member-twice"),
        pytest.param({"isr": members(0, 3)}, "INVALID_REQUEST", id="a-member-that-is-no-replica"),
        pytest.param({"isr": members(1, 2)}, "INVALID_REQUEST", id="without-the-leader"),
        pytest.param(
            {"recovery": RECOVERING}, "INVALID_REQUEST", id="recovering-with-more-than-one"
        ),
        pytest.param(
            {"recovery": RECOVERING, "isr": members(0)}, "INVALID_REQUEST", id="recovered-for-good"
        ),
        pytest.param(
            {"leader_epoch": 3, "partition_epoch": 8},
            "NOT_CONTROLLER",
            id="ahead-comes-before-behind",
        ),
        pytest.param(
            {"leader_epoch": 3, "broker": 1, "broker_epoch": 101},
            "FENCED_LEADER_EPOCH",
            id="fenced-comes-before-not-the-leader",
        ),
        pytest.param(
            {"partition_epoch": 6, "broker": 1, "broker_epoch": 101},
            "INVALID_REQUEST",
            id="not-the-leader-comes-before-the-old-version",
        ),
        pytest.param(
            {"partition_epoch": 6, "isr": ()},
            "INVALID_UPDATE_VERSION",
            id="the-old-version-comes-before-the-isr",
        ),
    ],
)
def test_the_first_fault_decides(faults, error):
    assert check(LAWFUL._replace(**faults)) == error


@pytest.mark.parametrize(
    ("registration", "error"),
    [
        pytest.param(None, "INELIGIBLE_REPLICA", id="unregistered"),
        pytest.param(Registration(2, 102, fenced=True), "INELIGIBLE_REPLICA", id="fenced"),
        pytest.param(Registration(2, 102, shutting_down=True), "INELIGIBLE_REPLICA", id="leaving"),
        pytest.param(Registration(2, 202), "INELIGIBLE_REPLICA", id="another-epoch"),
        pytest.param(Registration(2, 102), "NONE", id="active-with-its-epoch"),
    ],
)
def test_members_must_be_eligible(registration, error):
    brokers = {b: r for b, r in BROKERS.items() if b != 2}
    if registration is not None:
        brokers[2] = registration
    assert check(LAWFUL, brokers=brokers) == error


@pytest.mark.parametrize(
    ("rules", "epoch", "error"),
    [
        pytest.param(RULES_3_5, 101, "INELIGIBLE_REPLICA", id="3.5-looks-at-member-epochs"),
        pytest.param(RULES_3_4, 101, "NONE", id="3.4-does-not"),
        pytest.param(RULES_3_5, -1, "NONE", id="an-epoch-not-said-is-not-compared"),
    ],
)
def test_member_epochs(rules, epoch, error):
    request = LAWFUL._replace(isr=(IsrMember(0, 100), IsrMember(2, epoch)))
    assert check(request, rules=rules) == error


def test_a_recovering_leader_may_stay_recovering_alone():
    state = STATE._replace(recovery=RECOVERING)
    request = LAWFUL._replace(recovery=RECOVERING, isr=members(0))
    assert check(request, state=state) is ControllerError.NONE


@pytest.mark.parametrize(
    ("topic_known", "error"),
    [
        pytest.param(True, "UNKNOWN_TOPIC_OR_PARTITION", id="the-topic-has-no-such-partition"),
        pytest.param(False, "UNKNOWN_TOPIC_ID", id="there-is-no-such-topic"),
    ],
)
def test_unknown_partition(topic_known, error):
    assert check(LAWFUL, state=None, topic_known=topic_known) == error


IDS = st.integers(-1, 4)


@given(
    broker=IDS,
    broker_epoch=st.integers(99, 104),
    leader_epoch=st.integers(3, 5),
    partition_epoch=st.integers(6, 8),
    isr=st.lists(st.builds(IsrMember, IDS, st.integers(-1, 104)), max_size=4).map(tuple),
    recovery=st.sampled_from(RecoveryState),
)
def test_what_is_accepted_is_a_lawful_isr_of_the_leader(**fields):
    request = AlterPartitionRequest(**fields)
    if check(request) is ControllerError.NONE:
        asked = [member.broker for member in request.isr]
        assert request.broker == STATE.leader
        assert STATE.leader in asked
        assert set(asked) <= set(STATE.replicas)
        assert (request.leader_epoch, request.partition_epoch) == (4, 7)
