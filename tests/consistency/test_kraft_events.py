"""What the KRaft controller does on each event, over an image of a small cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency import kraft_events as events
from tidestaff.consistency.kraft import KraftElection, KraftPartition, PartitionChange
from tidestaff.consistency.kraft_alter_partition import AlterPartitionRequest, IsrMember
from tidestaff.consistency.kraft_image import ClusterImage, TopicSettings
from tidestaff.consistency.model import NO_LEADER, RecoveryState, Registration, TopicPartition
from tidestaff.consistency.registration import ControllerError
from tidestaff.consistency.versions import Mode, rules_for

NEWEST = rules_for("4.3", Mode.KRAFT, elr=False)
NEWEST_ELR = rules_for("4.3", Mode.KRAFT, elr=True)
RULES_3_8 = rules_for("3.8", Mode.KRAFT)
RULES_3_9 = rules_for("3.9", Mode.KRAFT)
PREFERRED, UNCLEAN = KraftElection.PREFERRED, KraftElection.UNCLEAN
T0, T1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)


def cluster(assignments, *, rules=NEWEST, brokers=range(6), min_isr=1, unclean=False, fenced=()):
    image = ClusterImage(
        rules,
        {b: Registration(b, 100 + b, fenced=b in fenced) for b in brokers},
        defaults=TopicSettings(min_isr, unclean),
    )
    for tp, replicas in assignments.items():
        image = events.create_partition(image, tp, replicas).image
    return image


def after(image, *steps):
    for event, *arguments in steps:
        image = event(image, *arguments).image
    return image


def shape(image, tp=T0):
    state = image.partitions[tp]
    return state.leader, state.isr, state.elr, state.leader_epoch, state.partition_epoch


def request(image, tp, isr, **rest):
    state = image.partitions[tp]
    return AlterPartitionRequest(
        **{
            "broker": state.leader,
            "broker_epoch": 100 + state.leader,
            "leader_epoch": state.leader_epoch,
            "partition_epoch": state.partition_epoch,
            "isr": tuple(IsrMember(b, 100 + b) for b in isr),
            **rest,
        }
    )


def alter(image, isr, tp=T0):
    return events.alter_partition(image, tp, request(image, tp, isr))


@pytest.mark.parametrize(
    ("rules", "min_isr", "steps", "expected"),
    [
        pytest.param(
            NEWEST, 1, [(events.fence, 2)], (1, (1, 3), (), 0, 1), id="a-follower-costs-no-epoch"
        ),
        pytest.param(
            rules_for("3.9", Mode.KRAFT, protocol="3.5-IV2"),
            1,
            [(events.fence, 2)],
            (1, (1, 3), (), 1, 1),
            id="a-follower-costs-an-epoch-before-3.6-iv0",
        ),
        pytest.param(
            NEWEST, 1, [(events.fence, 1)], (2, (2, 3), (), 1, 1), id="the-leader-is-replaced"
        ),
        pytest.param(
            NEWEST,
            1,
            [(events.fence, 1), (events.fence, 2), (events.fence, 3)],
            (-1, (3,), (), 3, 3),
            id="the-last-one-stays-in-the-isr",
        ),
        pytest.param(
            NEWEST_ELR,
            2,
            [(events.fence, 1), (events.fence, 2), (events.fence, 3)],
            (-1, (), (2, 3), 3, 3),
            id="with-elr-the-last-ones-are-eligible",
        ),
        pytest.param(
            NEWEST,
            1,
            [(events.fence, 1), (events.fence, 2), (events.fence, 3), (events.unfence, 1)],
            (-1, (3,), (), 3, 3),
            id="unfencing-another-does-not-help",
        ),
        pytest.param(
            NEWEST,
            1,
            [(events.fence, 1), (events.fence, 2), (events.fence, 3), (events.unfence, 3)],
            (3, (3,), (), 4, 4),
            id="unfencing-the-last-one-does",
        ),
        pytest.param(
            NEWEST, 1, [(events.unfence, 2)], (1, (1, 2, 3), (), 0, 0), id="unfenced-joins-nothing"
        ),
        pytest.param(
            NEWEST,
            1,
            [(events.controlled_shutdown, 1)],
            (2, (2, 3), (), 1, 1),
            id="shutting-down-hands-over",
        ),
        pytest.param(
            NEWEST,
            1,
            [(events.fence, 2), (events.fence, 3), (events.controlled_shutdown, 1)],
            (-1, (1,), (), 1, 3),
            id="the-last-one-stops-leading-at-once",
        ),
        pytest.param(
            NEWEST, 1, [(events.unregister, 1)], (2, (2, 3), (), 1, 1), id="unregistered-is-gone"
        ),
    ],
)
def test_a_broker_goes_or_comes(rules, min_isr, steps, expected):
    image = cluster({T0: (1, 2, 3)}, rules=rules, min_isr=min_isr)
    assert shape(after(image, *steps)) == expected


def test_the_events_change_the_registration_too():
    image = cluster({T0: (1, 2, 3)})
    assert events.fence(image, 1).image.brokers[1].fenced
    assert events.controlled_shutdown(image, 1).image.brokers[1].shutting_down
    assert 1 not in events.unregister(image, 1).image.brokers
    fresh = events.restarted(image, 1, clean=True, new_broker_epoch=900).image.brokers[1]
    assert fresh == Registration(1, 900, fenced=True)
    assert not events.unfence(events.fence(image, 1).image, 1).image.brokers[1].fenced


@pytest.mark.parametrize(
    ("rules", "clean", "elr", "last_known"),
    [
        pytest.param(NEWEST_ELR, True, {1, 2, 3}, (1,), id="clean-stays-eligible"),
        pytest.param(NEWEST_ELR, False, {2, 3}, (1,), id="unclean-is-not-eligible"),
        pytest.param(NEWEST, False, set(), (), id="without-elr-it-makes-no-difference"),
    ],
)
def test_the_last_isr_member_restarts(rules, clean, elr, last_known):
    image = cluster({T0: (1, 2, 3)}, rules=rules, min_isr=3)
    image = after(image, (events.fence, 2), (events.fence, 3))
    state = events.restarted(image, 1, clean=clean).image.partitions[T0]
    assert (state.leader, set(state.elr), state.last_known_elr) == (NO_LEADER, elr, last_known)


def test_an_unclean_restart_takes_a_broker_out_of_the_elr():
    image = cluster({T0: (1, 2, 3)}, rules=NEWEST_ELR, min_isr=3)
    image = after(image, (events.fence, 2), (events.fence, 3))
    assert set(image.partitions[T0].elr) == {2, 3}
    assert events.restarted(image, 3, clean=False).image.partitions[T0].elr == (2,)
    assert set(events.restarted(image, 3, clean=True).image.partitions[T0].elr) == {2, 3}


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        pytest.param("3.7-IV2", (2, (2, 3)), id="3.7-iv2-leaves-the-partitions-in-it"),
        pytest.param("3.7-IV1", (1, (1, 2, 3)), id="before-the-controller-is-not-told"),
    ],
)
def test_a_log_dir_goes_offline(protocol, expected):
    rules = rules_for("3.9", Mode.KRAFT, protocol=protocol)
    image = cluster({T0: (1, 2, 3), T1: (1, 2, 3)}, rules=rules)
    got = events.log_dir_offline(image, 1, [T0]).image
    assert (got.partitions[T0].leader, got.partitions[T0].isr) == expected
    assert got.partitions[T1] == image.partitions[T1]


def test_a_replica_in_an_offline_log_dir_is_not_elected():
    image = cluster({T0: (1, 2)}, unclean=True)
    image = after(image, (events.log_dir_offline, 1, [T0]), (events.fence, 2))
    assert image.partitions[T0].leader == NO_LEADER
    assert events.elect_leader(image, T0, UNCLEAN).error == "ELIGIBLE_LEADERS_NOT_AVAILABLE"


@pytest.mark.parametrize(
    "event", [events.fence, events.unfence, events.controlled_shutdown, events.unregister]
)
def test_an_unknown_broker_is_refused(event):
    image = cluster({T0: (1, 2, 3)})
    assert event(image, 77) == (image, (), ControllerError.BROKER_ID_NOT_REGISTERED)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param(RULES_3_9, (2, (2,)), id="3.9-honours-the-setting"),
        pytest.param(RULES_3_8, (-1, (3,)), id="3.8-does-not"),
    ],
)
def test_unclean_leader_election_enable(rules, expected):
    image = cluster({T0: (1, 2, 3)}, rules=rules, unclean=True)
    offline = after(image, (events.fence, 1), (events.fence, 2), (events.fence, 3))
    by_unfencing = events.unfence(offline, 2).image.partitions[T0]
    assert (by_unfencing.leader, by_unfencing.isr) == expected
    waiting = replace(offline, brokers={**offline.brokers, 2: Registration(2, 102)})
    by_timer = events.elect_unclean(waiting).image.partitions[T0]
    assert (by_timer.leader, by_timer.isr) == expected
    by_hand = events.elect_leader(waiting, T0, UNCLEAN).image.partitions[T0]
    assert (by_hand.leader, by_hand.isr, by_hand.recovery) == (2, (2,), RecoveryState.RECOVERING)


def test_the_unclean_timer_asks_each_topic():
    image = cluster({T0: (1, 2), OTHER: (1, 2)})
    image = after(image, (events.fence, 2), (events.fence, 1))
    image = replace(
        image,
        brokers={**image.brokers, 2: Registration(2, 102)},
        topics={"other": TopicSettings(1, unclean_leader_election_enable=True)},
    )
    assert [tp for tp, _ in events.elect_unclean(image).changes] == [OTHER]


def test_a_lawful_isr_change_is_taken():
    image = after(cluster({T0: (1, 2, 3)}), (events.fence, 2), (events.unfence, 2))
    step = alter(image, (1, 2, 3))
    assert step.changes == ((T0, PartitionChange(isr=(1, 2, 3))),)
    assert step.error is ControllerError.NONE


def test_a_refused_isr_change_changes_nothing():
    image = after(cluster({T0: (1, 2, 3)}), (events.fence, 2))
    assert alter(image, (1, 2, 3)) == (image, (), ControllerError.INELIGIBLE_REPLICA)
    unknown = events.alter_partition(image, OTHER, request(image, T0, (1,)))
    assert unknown.error is ControllerError.UNKNOWN_TOPIC_ID
    unknown = events.alter_partition(image, T1, request(image, T0, (1,)))
    assert unknown.error is ControllerError.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_reports_that_it_has_recovered():
    state = KraftPartition((1, 2), (1,), leader=1, recovery=RecoveryState.RECOVERING)
    image = cluster({}).with_partition(T0, state)
    step = alter(image, (1,))
    assert step.changes == ((T0, PartitionChange(recovery=RecoveryState.RECOVERED)),)


def test_an_isr_change_that_ends_a_reassignment_may_cost_the_leadership():
    image = events.reassign(cluster({T0: (0, 1)}), T0, (2, 3)).image
    assert image.partitions[T0].replicas == (2, 3, 0, 1)
    assert shape(image) == (0, (0, 1), (), 0, 1)
    step = alter(image, (0, 1, 2, 3))
    assert step.error is ControllerError.NEW_LEADER_ELECTED
    state = step.image.partitions[T0]
    assert (state.replicas, state.leader, state.isr) == ((2, 3), 2, (2, 3))
    assert (state.removing, state.adding, state.leader_epoch) == ((), (), 1)


@pytest.mark.parametrize(
    ("steps", "election", "error", "leader"),
    [
        pytest.param([], PREFERRED, "ELECTION_NOT_NEEDED", 1, id="the-preferred-leads"),
        pytest.param([], UNCLEAN, "ELECTION_NOT_NEEDED", 1, id="somebody-leads"),
        pytest.param(
            [(events.fence, 1)], PREFERRED, "PREFERRED_LEADER_NOT_AVAILABLE", 2, id="still-fenced"
        ),
        pytest.param(
            [(events.fence, 2), (events.fence, 1)],
            UNCLEAN,
            "ELIGIBLE_LEADERS_NOT_AVAILABLE",
            -1,
            id="nobody-is-alive",
        ),
        pytest.param(
            [(events.fence, 2), (events.fence, 1), (events.unfence, 2)],
            PREFERRED,
            "PREFERRED_LEADER_NOT_AVAILABLE",
            -1,
            id="preferred-is-never-unclean",
        ),
        pytest.param(
            [(events.fence, 2), (events.fence, 1), (events.unfence, 2)],
            UNCLEAN,
            "NONE",
            2,
            id="unclean-takes-who-is-there",
        ),
        pytest.param(
            [(events.fence, 1), (events.unfence, 1), (alter, (2, 1))],
            PREFERRED,
            "NONE",
            1,
            id="the-preferred-is-back-in-the-isr",
        ),
    ],
)
def test_elect_leaders(steps, election, error, leader):
    image = after(cluster({T0: (1, 2)}), *steps)
    step = events.elect_leader(image, T0, election)
    assert (step.error, step.image.partitions[T0].leader) == (error, leader)


def test_elect_leaders_on_an_unknown_partition():
    step = events.elect_leader(cluster({}), T0, PREFERRED)
    assert step.error is ControllerError.UNKNOWN_TOPIC_OR_PARTITION


def test_balance_gives_every_preferred_replica_its_leadership_back_up_to_a_maximum():
    image = cluster({T0: (1, 2), T1: (1, 2), OTHER: (2, 1)})
    image = after(image, (events.fence, 1), (events.unfence, 1))
    image = after(image, *((alter, (2, 1), tp) for tp in (T0, T1, OTHER)))
    assert image.imbalanced == (T0, T1)
    assert [tp for tp, _ in events.balance(image).changes] == [T0, T1]
    assert events.balance(image).image.imbalanced == ()
    assert [tp for tp, _ in events.balance(image, at_most=1).changes] == [T0]


@pytest.mark.parametrize(
    ("fenced", "replicas", "isr", "error"),
    [
        pytest.param((2,), (1, 0, 2), (1, 0), "NONE", id="fenced-replicas-are-not-in-sync"),
        pytest.param((0, 1), (0, 1), None, "INVALID_REPLICA_ASSIGNMENT", id="nobody-is-active"),
        pytest.param((), (0, 77), None, "INVALID_REPLICA_ASSIGNMENT", id="unknown-broker"),
        pytest.param((), (0, 0), None, "INVALID_REPLICA_ASSIGNMENT", id="a-broker-twice"),
        pytest.param((), (), None, "INVALID_REPLICA_ASSIGNMENT", id="no-replicas"),
    ],
)
def test_create_partition(fenced, replicas, isr, error):
    step = events.create_partition(cluster({}, fenced=fenced), T0, replicas)
    assert step.error == error
    made = step.image.partitions.get(T0)
    assert made == (None if isr is None else KraftPartition(replicas, isr, leader=isr[0]))


@pytest.mark.parametrize(
    ("target", "may_change", "error"),
    [
        pytest.param((2, 1), False, "NONE", id="same-number"),
        pytest.param((1,), True, "NONE", id="fewer-where-allowed"),
        pytest.param((1,), False, "INVALID_REPLICATION_FACTOR", id="fewer-where-not"),
        pytest.param((), True, "INVALID_REPLICA_ASSIGNMENT", id="none"),
        pytest.param((1, 77), True, "INVALID_REPLICA_ASSIGNMENT", id="unknown-broker"),
    ],
)
def test_reassign(target, may_change, error):
    image = cluster({T0: (1, 2)})
    step = events.reassign(image, T0, target, replication_factor_may_change=may_change)
    assert step.error == error


def test_a_cancelled_reassignment_does_not_restore_the_order():
    image = after(cluster({T0: (4, 3, 2)}), (events.fence, 3))
    image = events.reassign(image, T0, (1, 2, 3, 4, 0)).image
    assert shape(image) == (4, (4, 2), (), 0, 2)
    image = events.cancel_reassignment(image, T0).image
    assert image.partitions[T0].replicas == (2, 3, 4)
    assert shape(image) == (4, (4, 2), (), 1, 3)
    again = events.cancel_reassignment(image, T0)
    assert again.error is ControllerError.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize(
    "event", [events.cancel_reassignment, lambda i, t: events.reassign(i, t, (1,))]
)
def test_reassignment_of_an_unknown_partition(event):
    assert event(cluster({}), T0).error is ControllerError.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("topic", "cleared"),
    [
        pytest.param("t", [T0], id="of-a-topic"),
        pytest.param(None, [T0, OTHER], id="of-the-cluster"),
    ],
)
def test_a_new_min_isr_empties_the_elr(topic, cleared):
    image = cluster({T0: (1, 2), T1: (3, 4), OTHER: (1, 2)}, rules=NEWEST_ELR, min_isr=2)
    image = events.fence(image, 2).image
    step = events.min_isr_changed(image, 1, topic=topic)
    assert [tp for tp, _ in step.changes] == cleared
    assert step.image.partitions[T1].partition_epoch == 0
    assert step.image.settings("t").min_insync_replicas == 1


def test_before_4_0_a_new_min_isr_touches_no_elr():
    rules = replace(RULES_3_9, elr=True)
    image = events.fence(cluster({T0: (1, 2)}, rules=rules, min_isr=2), 2).image
    assert events.min_isr_changed(image, 1).changes == ()


def test_min_isr_is_bounded_by_the_replicas_of_partition_0():
    image = cluster({T0: (1, 2), T1: (1, 2, 3)}, min_isr=5)
    assert image.min_isr(T1) == 2


BROKERS = st.integers(0, 4)
TPS = st.sampled_from([T0, T1, OTHER])
STEPS = st.one_of(
    st.tuples(
        st.sampled_from(
            [events.fence, events.unfence, events.controlled_shutdown, events.unregister]
        ),
        BROKERS,
    ),
    st.tuples(st.just(lambda i, b, c: events.restarted(i, b, clean=c)), BROKERS, st.booleans()),
    st.tuples(st.just(events.log_dir_offline), BROKERS, st.lists(TPS, max_size=2)),
    st.tuples(st.sampled_from([events.balance, events.elect_unclean])),
    st.tuples(st.just(events.elect_leader), TPS, st.sampled_from([PREFERRED, UNCLEAN])),
    st.tuples(st.just(events.reassign), TPS, st.lists(BROKERS, max_size=4)),
    st.tuples(st.just(events.cancel_reassignment), TPS),
    st.tuples(st.just(alter), st.lists(BROKERS, max_size=4), TPS),
    st.tuples(st.just(events.min_isr_changed), st.integers(1, 4)),
)


@given(
    rules=st.sampled_from([NEWEST, NEWEST_ELR, RULES_3_8, rules_for("3.3", Mode.KRAFT)]),
    unclean=st.booleans(),
    min_isr=st.integers(1, 3),
    steps=st.lists(STEPS, max_size=25),
)
def test_any_history_keeps_the_invariants(rules, unclean, min_isr, steps):
    image = cluster(
        {T0: (0, 1, 2), T1: (1, 2, 3), OTHER: (4, 0)},
        rules=rules,
        unclean=unclean,
        min_isr=min_isr,
        brokers=range(5),
    )
    for event, *arguments in steps:
        before, step = image, event(image, *arguments)
        image = step.image
        if step.error not in (ControllerError.NONE, ControllerError.NEW_LEADER_ELECTED):
            assert image == before
        changed = dict(step.changes)
        assert len(changed) == len(step.changes)
        for tp, state in image.partitions.items():
            was = before.partitions[tp]
            assert state.partition_epoch == was.partition_epoch + (tp in changed)
            assert (state == was) is (tp not in changed)
            assert state.leader == was.leader or state.leader_epoch == was.leader_epoch + 1
            assert not set(state.isr) & set(state.elr)
            assert set(state.isr) <= set(state.replicas)
            assert state.leader == NO_LEADER or state.leader in state.isr
            assert state.isr or rules.elr
