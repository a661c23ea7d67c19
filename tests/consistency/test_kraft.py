"""The KRaft controller's builder: elections, the record it writes, and what applying it does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency.kraft import (
    Elected,
    KraftElection,
    KraftPartition,
    PartitionChange,
    Targets,
    apply_change,
    build_change,
    bumps_leader_epoch,
    effective_min_isr,
    elect,
)
from tidestaff.consistency.kraft_reassignment import (
    CompletedReassignment,
    RevertedReassignment,
    cancel_reassignment,
    complete_reassignment,
    revert_reassignment,
    start_reassignment,
)
from tidestaff.consistency.model import NO_LEADER, Assignment, RecoveryState
from tidestaff.consistency.registration import ControllerError
from tidestaff.consistency.versions import Mode, ReassignmentCompletion, rules_for

PREFERRED, ONLINE, UNCLEAN = KraftElection.PREFERRED, KraftElection.ONLINE, KraftElection.UNCLEAN
RECOVERING = RecoveryState.RECOVERING

NEWEST = rules_for("4.3", Mode.KRAFT, elr=False)
NEWEST_ELR = rules_for("4.3", Mode.KRAFT, elr=True)
ELR_4_0 = rules_for("4.0.1", Mode.KRAFT, elr=True)
ELR_4_1_0 = rules_for("4.1.0", Mode.KRAFT, elr=True)
ELR_4_1_1 = rules_for("4.1.1", Mode.KRAFT, elr=True)
OLD_METADATA = rules_for("3.9", Mode.KRAFT, protocol="3.5-IV2")
NEW_METADATA = rules_for("3.9", Mode.KRAFT, protocol="3.6-IV0")


def only(*brokers):
    return lambda broker: broker in brokers


def partition(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, **rest):
    return KraftPartition(replicas, isr, leader=leader, **rest)


@pytest.mark.parametrize(
    ("replicas", "isr", "elr", "leader", "active", "election", "expected"),
    [
        pytest.param(
            (1, 2, 3), (1, 2, 3), (), 3, {1, 2, 3}, ONLINE, Elected(3), id="valid-leader-is-kept"
        ),
        pytest.param(
            (1, 2, 3), (3, 2), (), 1, {2, 3}, ONLINE, Elected(2), id="assignment-order-not-isr"
        ),
        pytest.param(
            (1, 2, 3), (1, 3), (), 3, {1, 3}, PREFERRED, Elected(1), id="preferred-takes-over"
        ),
        pytest.param(
            (1, 2, 3), (2, 3), (), 3, {1, 2, 3}, PREFERRED, Elected(3), id="preferred-falls-back"
        ),
        pytest.param(
            (1, 2, 3), (1,), (), 1, {2, 3}, ONLINE, Elected(-1), id="isr-dead-means-no-leader"
        ),
        pytest.param(
            (1, 2, 3), (1,), (), 1, {2, 3}, PREFERRED, Elected(-1), id="preferred-is-never-unclean"
        ),
        pytest.param(
            (1, 2, 3),
            (1,),
            (),
            1,
            {3},
            UNCLEAN,
            Elected(3, unclean=True),
            id="unclean-takes-the-first-acceptable-replica",
        ),
        pytest.param(
            (1, 2, 3), (), (3, 2), -1, {2, 3}, ONLINE, Elected(2), id="elr-leads-when-isr-is-empty"
        ),
        pytest.param(
            (1, 2, 3), (1,), (3,), -1, {3}, ONLINE, Elected(-1), id="elr-waits-while-isr-is-not"
        ),
        pytest.param((), (), (), -1, {1}, PREFERRED, Elected(-1), id="no-replicas-no-leader"),
    ],
)
def test_elect(*, replicas, isr, elr, leader, active, election, expected):
    state = KraftPartition(replicas, isr, elr=elr, leader=leader)
    got = elect(state, election=election, acceptable=only(*active), rules=NEWEST_ELR)
    assert got == expected


@pytest.mark.parametrize("election", list(KraftElection))
@pytest.mark.parametrize(
    ("rules", "active", "elr", "last_known", "use", "expected"),
    [
        pytest.param(
            NEWEST_ELR, {2}, (), (2,), True, Elected(2, unclean=True), id="comes-back-when-alive"
        ),
        pytest.param(NEWEST_ELR, set(), (), (2,), True, Elected(-1), id="4.1-on-must-be-alive"),
        pytest.param(
            ELR_4_0, set(), (), (2,), True, Elected(2, unclean=True), id="4.0-elects-it-dead"
        ),
        pytest.param(NEWEST, set(), (), (2,), True, Elected(-1), id="not-without-elr"),
        pytest.param(ELR_4_0, set(), (), (2,), False, Elected(-1), id="not-when-switched-off"),
        pytest.param(ELR_4_0, set(), (3,), (2,), True, Elected(-1), id="not-while-elr-has-members"),
        pytest.param(ELR_4_0, set(), (), (2, 3), True, Elected(-1), id="not-when-there-are-two"),
    ],
)
def test_last_known_leader(*, rules, active, elr, last_known, use, expected, election):
    state = partition(isr=(), leader=-1, elr=elr, last_known_elr=last_known)
    got = elect(
        state,
        election=election,
        acceptable=only(*active),
        rules=rules,
        use_last_known_leader=use,
    )
    assert got == expected


def build(state, *, active=(1, 2, 3, 4, 5), rules=NEWEST, min_isr=1, election=ONLINE, **rest):
    targets = Targets(**rest.pop("targets", {}))
    return build_change(
        state,
        acceptable=only(*active),
        rules=rules,
        min_isr=min_isr,
        election=election,
        targets=targets,
        **rest,
    )


@pytest.mark.parametrize(
    ("rules", "min_isr", "state", "active", "target_isr", "expected"),
    [
        pytest.param(NEWEST, 1, partition(), (1, 2, 3), None, None, id="nothing-to-change"),
        pytest.param(
            NEWEST,
            1,
            partition(),
            (2, 3),
            (2, 3),
            PartitionChange(leader=2, isr=(2, 3)),
            id="leader-dies-next-replica-leads",
        ),
        pytest.param(
            NEWEST,
            1,
            partition(isr=(1,)),
            (2, 3),
            (),
            PartitionChange(leader=-1),
            id="without-elr-the-last-isr-is-kept",
        ),
        pytest.param(
            NEWEST_ELR,
            2,
            partition(isr=(1,), elr=(2,)),
            (3,),
            (),
            PartitionChange(leader=-1, isr=(), elr=(1, 2), last_known_elr=(1,)),
            id="with-elr-the-isr-may-be-empty",
        ),
        pytest.param(
            NEWEST_ELR,
            2,
            partition(),
            (1, 2, 3),
            (1,),
            PartitionChange(isr=(1,), elr=(2, 3)),
            id="below-min-isr-the-leavers-are-eligible",
        ),
        pytest.param(
            NEWEST_ELR,
            2,
            partition(),
            (1, 2, 3),
            (1, 2),
            PartitionChange(isr=(1, 2)),
            id="at-min-isr-nobody-is-eligible",
        ),
        pytest.param(
            NEWEST_ELR,
            2,
            partition(isr=(1,), elr=(2, 3)),
            (1, 2, 3),
            (1, 3),
            PartitionChange(isr=(1, 3), elr=()),
            id="back-at-min-isr-the-elr-is-emptied",
        ),
        pytest.param(
            NEWEST_ELR,
            2,
            partition(isr=(), leader=-1, elr=(2, 3), last_known_elr=(1,)),
            (3,),
            None,
            PartitionChange(leader=3, isr=(3,), elr=(2,), last_known_elr=()),
            id="election-from-the-elr-is-clean",
        ),
        pytest.param(
            NEWEST_ELR,
            2,
            partition(isr=(), leader=-1, last_known_elr=(1,)),
            (1,),
            None,
            PartitionChange(leader=1, isr=(1,), last_known_elr=(), recovery=RECOVERING),
            id="last-known-leader-returns-recovering",
        ),
        pytest.param(
            NEWEST,
            1,
            partition(elr=(2,), isr=(1, 3)),
            (1, 2, 3),
            None,
            PartitionChange(elr=()),
            id="elr-switched-off-empties-the-elr",
        ),
    ],
)
def test_build_change(*, rules, min_isr, state, active, target_isr, expected):
    got = build(state, active=active, rules=rules, min_isr=min_isr, targets={"isr": target_isr})
    assert got == expected


def test_unclean_election_leaves_the_new_leader_alone_in_the_isr():
    state = partition(isr=(), leader=-1, elr=(1,), last_known_elr=(1,))
    got = build(state, active=(3,), rules=NEWEST_ELR, min_isr=2, election=UNCLEAN)
    assert got == PartitionChange(
        leader=3, isr=(3,), elr=(), last_known_elr=(), recovery=RECOVERING
    )


def test_unclean_election_does_not_write_recovering_twice():
    state = partition(isr=(1,), leader=-1, recovery=RECOVERING)
    assert build(state, active=(2,), election=UNCLEAN) == PartitionChange(leader=2, isr=(2,))


def test_unclean_shutdown_keeps_a_replica_out_of_the_elr():
    got = build(
        partition(),
        active=(1,),
        rules=NEWEST_ELR,
        min_isr=3,
        targets={"isr": (1,)},
        unclean_shutdown=(2,),
        use_last_known_leader=False,
    )
    assert got == PartitionChange(isr=(1,), elr=(3,), last_known_elr=(2,))


def test_elr_is_written_in_the_order_of_a_java_hash_set():
    state = KraftPartition((17, 2, 33), (17, 2, 33), leader=33)
    got = build(state, active=(33,), rules=NEWEST_ELR, min_isr=3, targets={"isr": (33,)})
    assert got == PartitionChange(isr=(33,), elr=(17, 2))
    again = build(apply_change(state, got), active=(33,), rules=NEWEST_ELR, min_isr=3)
    assert again is None


@pytest.mark.parametrize(
    ("rules", "remembered", "isr", "elr", "target_isr", "active", "expected"),
    [
        pytest.param(ELR_4_1_1, (), (1,), (), None, (), (1,), id="4.1.1-on-any-loss-of-a-leader"),
        pytest.param(ELR_4_1_0, (), (1,), (), None, (), None, id="4.1.0-not-while-isr-has-members"),
        pytest.param(ELR_4_1_0, (), (1,), (), (), (), (1,), id="4.1.0-when-the-isr-becomes-empty"),
        pytest.param(ELR_4_1_1, (), (1,), (), (), (), (1,), id="4.1.1-when-the-isr-becomes-empty"),
        pytest.param(
            ELR_4_1_1, (2,), (1,), (), (1, 2), (1,), None, id="4.1.1-a-kept-leader-forgets-nobody"
        ),
        pytest.param(
            ELR_4_1_0, (2,), (1,), (), (1, 2), (1,), (), id="4.1.0-a-kept-leader-forgets-the-last"
        ),
    ],
)
def test_the_leader_is_remembered(*, rules, remembered, isr, elr, target_isr, active, expected):
    state = partition(isr=isr, elr=elr, last_known_elr=remembered)
    got = build(state, active=active, rules=rules, min_isr=2, targets={"isr": target_isr})
    assert got is not None
    assert got.last_known_elr == expected


@pytest.mark.parametrize(
    ("rules", "isr", "replicas", "bumps"),
    [
        pytest.param(NEW_METADATA, (1, 2), (1, 2, 3), False, id="3.6-iv0-a-shrink-does-not"),
        pytest.param(OLD_METADATA, (1, 2), (1, 2, 3), True, id="before-3.6-iv0-a-shrink-does"),
        pytest.param(OLD_METADATA, (1, 2, 3, 4), (1, 2, 3, 4), False, id="expansion-never-does"),
        pytest.param(NEW_METADATA, None, (1, 2, 4), True, id="a-replica-that-leaves-always-does"),
        pytest.param(NEW_METADATA, None, (3, 2, 1), False, id="a-new-order-never-does"),
        pytest.param(OLD_METADATA, None, (1, 2, 3), False, id="an-unwritten-isr-never-does"),
    ],
)
def test_leader_epoch_of_a_leader_that_stays(rules, isr, replicas, bumps):
    assert bumps_leader_epoch(partition(), isr=isr, replicas=replicas, rules=rules) is bumps
    got = build(partition(), rules=rules, targets={"isr": isr, "replicas": replicas})
    assert (got is not None and got.leader == 1) is bumps


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("3.7", PartitionChange(leader=-1), id="3.7-bumps-the-epoch-of-no-leader"),
        pytest.param("3.8", None, id="3.8-writes-nothing"),
    ],
)
def test_old_metadata_and_the_last_isr_member_leaves_again(version, expected):
    rules = rules_for(version, Mode.KRAFT, protocol="3.5-IV2")
    state = partition(isr=(1,), leader=NO_LEADER)
    assert build(state, active=(), rules=rules, targets={"isr": ()}) == expected


@pytest.mark.parametrize(
    ("completion", "current", "target", "isr", "done"),
    [
        pytest.param(
            ReassignmentCompletion.ADDING_IN_ISR,
            (0, 1, 2),
            (0, 1, 3),
            (0, 2, 3),
            CompletedReassignment((0, 1, 3), (0, 3)),
            id="3.7-the-added-replica-is-enough",
        ),
        pytest.param(
            ReassignmentCompletion.TARGET_IN_ISR,
            (0, 1, 2),
            (0, 1, 3),
            (0, 2, 3),
            None,
            id="3.8-the-whole-target-is-needed",
        ),
        pytest.param(
            ReassignmentCompletion.ADDING_IN_ISR_TARGET_IF_SHRINKING,
            (0, 1, 2),
            (0, 1, 3),
            (0, 2, 3),
            CompletedReassignment((0, 1, 3), (0, 3)),
            id="4.3-the-added-replica-is-enough",
        ),
        pytest.param(
            ReassignmentCompletion.ADDING_IN_ISR_TARGET_IF_SHRINKING,
            (0, 1, 2, 3, 4),
            (2, 3, 4, 5),
            (0, 1, 2, 3, 5),
            None,
            id="4.3-the-whole-target-when-replicas-become-fewer",
        ),
        pytest.param(
            ReassignmentCompletion.ADDING_IN_ISR,
            (0, 1, 2, 3, 4),
            (2, 3, 4, 5),
            (0, 1, 2, 3, 5),
            CompletedReassignment((2, 3, 4, 5), (2, 3, 5)),
            id="3.7-does-not-look-at-the-number-of-replicas",
        ),
        pytest.param(
            ReassignmentCompletion.ADDING_IN_ISR, (0, 1), (0,), (1,), None, id="never-an-empty-isr"
        ),
        pytest.param(
            ReassignmentCompletion.TARGET_IN_ISR,
            (0, 1),
            (1, 0),
            (0, 1),
            None,
            id="a-new-order-is-no-reassignment",
        ),
    ],
)
def test_complete_reassignment(completion, current, target, isr, done):
    started = start_reassignment(current=current, target=target)
    assert complete_reassignment(started, isr=isr, completion=completion) == done


@pytest.mark.parametrize(
    ("version", "completes"),
    [("3.7", True), ("3.8", False), ("4.2", False), ("4.3", True)],
)
def test_a_version_completes_a_reassignment_by_its_own_rule(version, completes):
    rules = rules_for(version, Mode.KRAFT, elr=False)
    state = partition((0, 1, 3, 2), (0, 2), leader=0, removing=(2,), adding=(3,))
    got = build(state, active=(0, 1, 2, 3), rules=rules, targets={"isr": (0, 2, 3)})
    assert got is not None
    assert (got.replicas == (0, 1, 3)) is completes


def test_completion_takes_the_leadership_even_if_nobody_else_can_lead():
    state = partition((2, 3, 1), (1, 2), leader=1, removing=(1,), adding=(2,))
    got = build(state, active=(1,), rules=NEWEST)
    assert got == PartitionChange(leader=-1, isr=(2,), replicas=(2, 3), removing=(), adding=())


def test_start_lists_the_target_first_and_the_leaving_replicas_in_order():
    assert start_reassignment(current=(3, 2, 1, 0), target=(7, 3, 1, 9)) == Assignment(
        (7, 3, 1, 9, 0, 2), adding=(7, 9), removing=(0, 2)
    )


@pytest.mark.parametrize(
    ("assignment", "isr", "reverted"),
    [
        pytest.param(
            Assignment((4, 3, 2, 1), adding=(4,), removing=(1,)),
            (4, 2),
            RevertedReassignment((3, 2, 1), (2,), unclean=False),
            id="added-replicas-go",
        ),
        pytest.param(
            Assignment((4, 3, 2), adding=(4,)),
            (4,),
            RevertedReassignment((3, 2), (3,), unclean=True),
            id="an-isr-of-added-replicas-only-is-unclean",
        ),
        pytest.param(Assignment((4,), adding=(4,)), (4,), None, id="nothing-to-go-back-to"),
    ],
)
def test_revert_reassignment(assignment, isr, reverted):
    assert revert_reassignment(assignment, isr=isr) == reverted


@pytest.mark.parametrize(
    ("assignment", "isr", "unclean_allowed", "answer"),
    [
        pytest.param(
            Assignment((1, 2)),
            (1,),
            True,
            ControllerError.NO_REASSIGNMENT_IN_PROGRESS,
            id="nothing-runs",
        ),
        pytest.param(
            Assignment((4, 3), adding=(4,)),
            (4,),
            False,
            ControllerError.INVALID_REPLICA_ASSIGNMENT,
            id="unclean-is-refused-where-not-allowed",
        ),
        pytest.param(
            Assignment((4, 3), adding=(4,)),
            (4,),
            True,
            RevertedReassignment((3,), (3,), unclean=True),
            id="unclean-is-done-where-allowed",
        ),
    ],
)
def test_cancel_reassignment(assignment, isr, unclean_allowed, answer):
    assert cancel_reassignment(assignment, isr=isr, unclean_allowed=unclean_allowed) == answer


@pytest.mark.parametrize(
    ("setting", "replicas", "expected"),
    [
        pytest.param(5, 3, 3, id="no-more-than-replicas"),
        pytest.param(2, 3, 2, id="else-the-setting"),
    ],
)
def test_effective_min_isr(setting, replicas, expected):
    got = effective_min_isr(min_insync_replicas=setting, replication_factor=replicas)
    assert got == expected


BROKERS = st.integers(0, 6)
SETS = st.lists(BROKERS, unique=True, max_size=5).map(tuple)
RULES = st.sampled_from(
    [
        NEWEST,
        NEWEST_ELR,
        ELR_4_0,
        ELR_4_1_0,
        ELR_4_1_1,
        OLD_METADATA,
        rules_for("3.3", Mode.KRAFT),
        rules_for("3.7", Mode.KRAFT),
        replace(NEWEST_ELR, isr_shrink_bumps_epoch=True),
    ]
)


@st.composite
def lawful_partitions(draw):
    """ISR and ELR are disjoint parts of the replicas, the leader is an ISR member or nobody."""
    replicas = draw(st.lists(BROKERS, unique=True, min_size=1, max_size=5).map(tuple))
    places = draw(st.lists(st.integers(0, 2), min_size=len(replicas), max_size=len(replicas)))
    isr = tuple(b for b, place in zip(replicas, places, strict=True) if place == 0)
    elr = tuple(b for b, place in zip(replicas, places, strict=True) if place == 1)
    parts = draw(st.lists(st.integers(0, 2), min_size=len(replicas), max_size=len(replicas)))
    return KraftPartition(
        replicas,
        isr,
        elr=elr,
        last_known_elr=draw(st.one_of(st.just(()), st.sampled_from(replicas).map(lambda b: (b,)))),
        leader=draw(st.sampled_from((NO_LEADER, *isr))),
        removing=tuple(b for b, part in zip(replicas, parts, strict=True) if part == 1),
        adding=tuple(b for b, part in zip(replicas, parts, strict=True) if part == 2),
        recovery=draw(st.sampled_from(RecoveryState)),
        leader_epoch=draw(st.integers(0, 9)),
        partition_epoch=draw(st.integers(0, 9)),
    )


def some(values):
    return st.one_of(st.none(), values)


TARGETS = st.builds(
    Targets,
    isr=some(SETS),
    replicas=some(SETS),
    removing=some(SETS),
    adding=some(SETS),
    recovery=some(st.sampled_from(RecoveryState)),
)
INPUTS = {
    "active": st.frozensets(BROKERS),
    "rules": RULES,
    "min_isr": st.integers(0, 4),
    "election": st.sampled_from(KraftElection),
    "targets": TARGETS,
    "crashed": SETS,
    "use_last": st.booleans(),
}


@given(state=lawful_partitions(), **INPUTS)
def test_any_change_is_lawful(
    *, state, active, rules, min_isr, election, targets, crashed, use_last
):
    change = build_change(
        state,
        acceptable=active.__contains__,
        rules=rules,
        min_isr=min_isr,
        election=election,
        targets=targets,
        unclean_shutdown=crashed,
        use_last_known_leader=use_last,
    )
    if change is None:
        return
    assert any(field is not None for field in change)
    after = apply_change(state, change)
    assert after.partition_epoch == state.partition_epoch + 1
    bumped = 0 if change.leader is None else 1
    assert after.leader_epoch == state.leader_epoch + bumped
    assert not set(after.isr) & set(after.elr)
    if not rules.elr:
        assert after.elr == ()
        assert after.isr or not state.isr


@given(
    state=lawful_partitions(),
    active=INPUTS["active"],
    rules=RULES,
    election=INPUTS["election"],
    isr=some(SETS),
    elr=some(SETS),
    replicas=some(SETS),
)
def test_an_elected_leader_is_acceptable_and_in_sync_unless_unclean(
    *, state, active, rules, election, isr, elr, replicas
):
    got = elect(
        state,
        election=election,
        acceptable=active.__contains__,
        rules=rules,
        isr=isr,
        elr=elr,
        replicas=replicas,
    )
    isr, elr = (state.isr if isr is None else isr), (state.elr if elr is None else elr)
    if got.unclean:
        remembered = (got.leader,) == state.last_known_elr
        assert remembered or election is UNCLEAN
        assert got.leader in active or (remembered and not rules.last_known_leader_must_be_active)
    elif got.leader != NO_LEADER:
        assert got.leader in active
        assert got.leader in (isr or elr)


@given(
    replicas=st.lists(BROKERS, unique=True, min_size=1, max_size=5).map(tuple),
    rules=RULES,
    election=st.sampled_from((ONLINE, UNCLEAN)),
    data=st.data(),
)
def test_a_healthy_partition_is_left_alone(replicas, rules, election, data):
    isr = data.draw(st.lists(st.sampled_from(replicas), unique=True, min_size=1).map(tuple))
    leader = data.draw(st.sampled_from(isr))
    min_isr = data.draw(st.integers(1, len(isr)))
    state = KraftPartition(replicas, isr, leader=leader)
    assert build(state, active=isr, rules=rules, min_isr=min_isr, election=election) is None
