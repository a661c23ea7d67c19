"""Leader election in ZooKeeper mode: who is chosen, and what is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency.broker_events import broker_failure, broker_return
from tidestaff.consistency.controlled_shutdown import (
    ShutdownError,
    controlled_shutdown,
    shutdown_of_replica,
)
from tidestaff.consistency.election import (
    ElectionAnswer,
    ElectionKind,
    ElectionStrategy,
    controlled_shutdown_election,
    elect_for_controlled_shutdown,
    elect_for_reassignment,
    elect_offline,
    elect_preferred,
    new_partition,
    offline_election,
    preferred_election,
    reassignment_election,
    remove_from_isr,
    requested_election,
    told_of_election,
)
from tidestaff.consistency.model import Assignment, PartitionState, RecoveryState, Registration
from tidestaff.consistency.partition_lifecycle import PartitionLifecycle, next_lifecycle
from tidestaff.consistency.versions import RuleSet, rules_for

CLEAN, UNCLEAN, NONE = ElectionKind.CLEAN, ElectionKind.UNCLEAN, ElectionKind.NONE
RULES = rules_for("3.9")
OLD_RULES = rules_for("1.0")

SECOND_TOPIC = {"P0": (1, 0, 2), "P1": (0, 2, 1), "P2": (2, 1, 0), "P3": (1, 2, 0)}


def state(leader: int, epoch: int, *isr: int, version: int = 0) -> PartitionState:
    return PartitionState(leader, epoch, isr, partition_epoch=version)


def created() -> dict[str, PartitionState]:
    """S-08."""
    states = {p: new_partition(assignment=ar, live={0, 1, 2}) for p, ar in SECOND_TOPIC.items()}
    return {p: s for p, s in states.items() if s is not None}


def after_stop(states: dict[str, PartitionState], broker: int) -> dict[str, PartitionState]:
    """kafka-server-stop.sh: a controlled shutdown, then the registration goes."""
    registrations = [Registration(b, 100 + b) for b in (0, 1, 2)]
    answer = controlled_shutdown(
        {p: (Assignment(SECOND_TOPIC[p]), s) for p, s in states.items()},
        broker=broker,
        broker_epoch=100 + broker,
        registrations=registrations,
        rules=RULES,
    )
    assert answer.error is None
    assert answer.remaining == ()
    stopped = {**states, **answer.written}
    for p, s in stopped.items():
        gone = broker_failure(
            s,
            assignment=SECOND_TOPIC[p],
            dead=[broker],
            live={0, 1, 2} - {broker},
            unclean_allowed=False,
            rules=RULES,
        )
        assert gone == (), "a broker that stopped in an orderly way leaves nothing to write"
    return stopped


def after_return(states: dict[str, PartitionState], broker: int) -> dict[str, PartitionState]:
    """The controller writes nothing; the leaders append the broker to their ISR (zkVersion + 1)."""
    for p, s in states.items():
        elected = broker_return(
            s, assignment=SECOND_TOPIC[p], live={0, 1, 2}, unclean_allowed=False, rules=RULES
        )
        assert elected is None
    return {
        p: s._replace(isr=(*s.isr, broker), partition_epoch=s.partition_epoch + 1)
        for p, s in states.items()
    }


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "unclean_allowed", "leader", "kind"),
    [
        pytest.param(
            [1, 2, 3], [3, 2], {2, 3}, False, 2, CLEAN, id="assignment-order-not-isr-order"
        ),
        pytest.param([1, 2, 3], [1], {2, 3}, False, None, NONE, id="isr-dead-stay-offline"),
        pytest.param([1, 2, 3], [1], {3, 2}, True, 2, UNCLEAN, id="isr-dead-first-live-of-ar"),
        pytest.param(
            [1, 2, 3], [3], {2, 3}, True, 3, CLEAN, id="unclean-allowed-but-not-needed-is-clean"
        ),
        pytest.param([1, 2], [1, 2], set(), True, None, NONE, id="nobody-live-nobody-leads"),
        pytest.param([1, 2], [], {1}, False, None, NONE, id="empty-isr-needs-unclean"),
        pytest.param([1, 2], [], {2}, True, 2, UNCLEAN, id="empty-isr-unclean-first-live"),
        pytest.param([], [1], {1}, True, None, NONE, id="no-assignment-no-leader"),
    ],
)
def test_offline_election_chooses(
    *,
    assignment: list[int],
    isr: list[int],
    live: set[int],
    unclean_allowed: bool,
    leader: int | None,
    kind: ElectionKind,
) -> None:
    result = elect_offline(
        assignment=assignment, isr=isr, live=live, unclean_allowed=unclean_allowed
    )
    assert (result.leader, result.kind) == (leader, kind)
    assert result.because


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "leader"),
    [
        pytest.param([2, 4], [2, 4], {2, 4}, 2, id="preferred-live-and-in-isr"),
        pytest.param([2, 4], [2, 4], {4}, None, id="no-second-choice-when-preferred-is-dead"),
        pytest.param([2, 4], [4], {2, 4}, None, id="no-second-choice-when-preferred-not-in-isr"),
        pytest.param([], [4], {4}, None, id="no-assignment-no-preferred"),
    ],
)
def test_preferred_election_chooses(
    assignment: list[int], isr: list[int], live: set[int], leader: int | None
) -> None:
    assert elect_preferred(assignment=assignment, isr=isr, live=live).leader == leader


@pytest.mark.parametrize(
    ("target", "isr", "live", "leader"),
    [
        pytest.param([2, 4], [4, 2], {2, 4}, 2, id="target-order-not-isr-order"),
        pytest.param([2, 4], [2, 4], {4}, 4, id="dead-target-replica-is-passed-over"),
        pytest.param([2, 4], [], {2}, None, id="never-unclean"),
    ],
)
def test_reassignment_election_chooses(
    target: list[int], isr: list[int], live: set[int], leader: int | None
) -> None:
    assert elect_for_reassignment(target=target, isr=isr, live=live).leader == leader


@pytest.mark.parametrize(
    ("isr", "registered", "going", "leader"),
    [
        pytest.param([2, 4], {2, 4}, {2}, 4, id="next-of-ar-that-stays"),
        pytest.param([2], {2, 4}, {2}, None, id="last-isr-member-keeps-leading"),
        pytest.param([2, 4], {2, 4}, {2, 4}, None, id="all-going-nobody-takes-over"),
        pytest.param([2, 4], {2}, {2}, None, id="unregistered-cannot-take-over"),
    ],
)
def test_controlled_shutdown_election_chooses(
    isr: list[int], registered: set[int], going: set[int], leader: int | None
) -> None:
    result = elect_for_controlled_shutdown(
        assignment=[2, 4], isr=isr, registered=registered, shutting_down=going
    )
    assert result.leader == leader


@pytest.mark.parametrize(
    ("before", "live", "unclean", "protocol", "after"),
    [
        pytest.param(
            state(1, 4, 3, 1, 2),
            {2, 3},
            False,
            None,
            state(2, 5, 3, 2, version=1),
            id="clean-keeps-the-old-isr-order-without-the-dead",
        ),
        pytest.param(
            state(1, 4, 1),
            {2, 3},
            True,
            None,
            state(2, 5, 2, version=1)._replace(recovery=RecoveryState.RECOVERING),
            id="unclean-isr-is-the-leader-and-recovering",
        ),
        pytest.param(
            state(1, 4, 1),
            {2, 3},
            True,
            "3.1",
            state(2, 5, 2, version=1),
            id="no-recovering-below-3.2-IV0",
        ),
        pytest.param(state(1, 4, 1), {2, 3}, False, None, None, id="no-candidate-no-write"),
        pytest.param(
            state(-1, 4, 9),
            {2, 9},
            True,
            None,
            None,
            id="unclean-not-considered-while-an-isr-member-is-live",
        ),
        pytest.param(
            state(1, 4, 1, 2)._replace(recovery=RecoveryState.RECOVERING),
            {2},
            False,
            None,
            state(2, 5, 2, version=1)._replace(recovery=RecoveryState.RECOVERING),
            id="clean-keeps-the-recovery-state",
        ),
    ],
)
def test_offline_election_writes(
    before: PartitionState,
    live: set[int],
    unclean: bool,
    protocol: str | None,
    after: PartitionState | None,
) -> None:
    written = offline_election(
        before,
        assignment=[1, 2, 3],
        live=live,
        unclean_allowed=unclean,
        rules=rules_for("3.9", protocol=protocol),
    )
    assert written == after


def test_preferred_and_reassignment_elections_keep_dead_members_in_the_isr() -> None:
    before = state(2, 7, 2, 3, 1)
    assert preferred_election(before, assignment=[1, 2, 3], live={1, 2}) == state(
        1, 8, 2, 3, 1, version=1
    )
    assert reassignment_election(before, target=[1, 2], live={1, 2}) == state(
        1, 8, 2, 3, 1, version=1
    )


def test_controlled_shutdown_election_drops_every_broker_shutting_down() -> None:
    written = controlled_shutdown_election(
        state(1, 0, 3, 1, 2), assignment=[1, 2, 3], registered={1, 2, 3}, shutting_down={1, 3}
    )
    assert written == state(2, 1, 2, version=1)


def test_the_writers_controller_epoch_is_written() -> None:
    before = state(1, 0, 1, 2)._replace(controller_epoch=3)
    written = remove_from_isr(before, replica=2, rules=RULES, controller_epoch=4)
    assert written is not None
    assert written.controller_epoch == 4


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        pytest.param(ElectionStrategy.OFFLINE, (6,), id="offline-tells-the-live-replicas"),
        pytest.param(
            ElectionStrategy.CONTROLLED_SHUTDOWN, (6,), id="shutdown-tells-those-registered"
        ),
        pytest.param(ElectionStrategy.PREFERRED, (5, 6), id="preferred-tells-all"),
        pytest.param(ElectionStrategy.REASSIGN, (5, 6), id="reassign-tells-all"),
    ],
)
def test_who_is_told(strategy: ElectionStrategy, told: tuple[int, ...]) -> None:
    assert told_of_election(strategy, replicas=[5, 6], online={6}) == told


@pytest.mark.parametrize(
    ("live", "after"),
    [
        pytest.param({0, 1, 2}, state(1, 0, 1, 0, 2), id="isr-is-ar-when-all-live"),
        pytest.param({0, 2}, state(0, 0, 0, 2), id="first-live-leads-with-epoch-0"),
        pytest.param(set(), None, id="nobody-live-no-state-node"),
    ],
)
def test_new_partition(live: set[int], after: PartitionState | None) -> None:
    assert new_partition(assignment=[1, 0, 2], live=live) == after


@pytest.mark.parametrize(
    ("version", "unclean", "before", "replica", "after"),
    [
        pytest.param("3.9", False, state(5, 0, 5, 6), 6, state(5, 1, 5, version=1), id="follower"),
        pytest.param(
            "3.9", False, state(5, 0, 5, 6), 5, state(-1, 1, 6, version=1), id="leader-becomes-none"
        ),
        pytest.param(
            "3.9", True, state(5, 0, 5), 5, state(-1, 1, 5, version=1), id="last-member-stays-1.1"
        ),
        pytest.param(
            "1.0", True, state(5, 0, 5), 5, state(-1, 1, version=1), id="isr-empties-up-to-1.0"
        ),
        pytest.param(
            "1.0",
            False,
            state(5, 0, 5),
            5,
            state(-1, 1, 5, version=1),
            id="isr-never-empties-without-unclean",
        ),
        pytest.param("3.9", False, state(5, 0, 5), 6, None, id="not-in-isr-no-write"),
    ],
)
def test_remove_from_isr(
    version: str,
    unclean: bool,
    before: PartitionState,
    replica: int,
    after: PartitionState | None,
) -> None:
    written = remove_from_isr(
        before, replica=replica, rules=rules_for(version), unclean_allowed=unclean
    )
    assert written == after


@pytest.mark.parametrize(
    ("before", "dead", "live", "unclean", "writes"),
    [
        pytest.param(
            state(1, 0, 1, 2, 3),
            [3],
            {1, 2},
            False,
            [state(1, 1, 1, 2, version=1)],
            id="a-followers-death-bumps-the-epoch",
        ),
        pytest.param(
            state(1, 0, 1, 2, 3),
            [1],
            {2, 3},
            False,
            [state(2, 1, 2, 3, version=1)],
            id="the-election-removes-the-dead-leader-in-one-write",
        ),
        pytest.param(
            state(1, 0, 1, 2),
            [2, 1],
            {3},
            False,
            [state(1, 1, 1, version=1), state(-1, 2, 1, version=2)],
            id="whole-isr-dies-the-last-taken-stays",
        ),
        pytest.param(
            state(1, 0, 1, 2),
            [1, 2],
            {3},
            False,
            [state(-1, 1, 2, version=1), state(-1, 2, 2, version=2)],
            id="whole-isr-dies-in-the-other-order",
        ),
        pytest.param(state(1, 0, 1), [3], {1, 2}, False, [], id="dead-outside-the-isr-no-write"),
        pytest.param(state(1, 0, 1), [9], {1, 2}, False, [], id="dead-not-assigned-no-write"),
        pytest.param(
            state(1, 0, 1, 2),
            [2],
            {3},
            False,
            [state(1, 1, 1, version=1)],
            id="leader-shutting-down-without-successor-keeps-leading",
        ),
    ],
)
def test_broker_failure_writes(
    before: PartitionState,
    dead: list[int],
    live: set[int],
    unclean: bool,
    writes: list[PartitionState],
) -> None:
    got = broker_failure(
        before,
        assignment=[1, 2, 3],
        dead=dead,
        live=live,
        unclean_allowed=unclean,
        rules=RULES,
    )
    assert list(got) == writes


def test_a_bounce_of_a_single_replica_raises_the_epoch_by_two() -> None:
    (gone,) = broker_failure(
        state(1, 0, 1), assignment=[1], dead=[1], live=set(), unclean_allowed=False, rules=RULES
    )
    back = broker_return(gone, assignment=[1], live={1}, unclean_allowed=False, rules=RULES)
    assert back == state(1, 2, 1, version=2)


@pytest.mark.parametrize(
    ("broker_epoch", "version", "error"),
    [
        pytest.param(7, "3.9", None, id="right-epoch-is-heard"),
        pytest.param(
            6,
            "3.9",
            ShutdownError.STALE_BROKER_EPOCH,
            id="an-earlier-life-of-the-broker-is-refused",
        ),
        pytest.param(-1, "3.9", None, id="unknown-epoch-is-let-through"),
        pytest.param(6, "2.1", None, id="no-broker-epochs-before-2.2"),
    ],
)
def test_controlled_shutdown_is_fenced_by_the_broker_epoch(
    broker_epoch: int, version: str, error: ShutdownError | None
) -> None:
    answer = controlled_shutdown(
        {},
        broker=1,
        broker_epoch=broker_epoch,
        registrations=[Registration(1, 7)],
        rules=rules_for(version),
    )
    assert answer.error == error


def test_controlled_shutdown_of_an_unknown_broker_is_refused() -> None:
    answer = controlled_shutdown({}, broker=1, broker_epoch=7, registrations=[], rules=RULES)
    assert answer.error is ShutdownError.BROKER_NOT_AVAILABLE


def test_single_replica_partitions_are_left_alone_and_do_not_remain() -> None:
    answer = controlled_shutdown(
        {
            "single": (Assignment((1,)), state(1, 0, 1)),
            "stuck": (Assignment((1, 2)), state(1, 0, 1)),
            "led": (Assignment((1, 2)), state(1, 0, 1, 2)),
            "followed": (Assignment((2, 1)), state(2, 0, 2, 1)),
            "elsewhere": (Assignment((2, 3)), state(2, 0, 2, 3)),
        },
        broker=1,
        broker_epoch=7,
        registrations=[Registration(1, 7), Registration(2, 8), Registration(3, 9)],
        rules=RULES,
    )
    assert answer.remaining == ("stuck",)
    assert answer.written == {
        "led": state(2, 1, 2, version=1),
        "followed": state(2, 1, 2, version=1),
    }


def test_controlled_shutdowns_one_after_the_other() -> None:
    """ControllerIntegrationTest.testControlledShutdown: the last one keeps leading."""
    now = state(0, 0, 0, 1, 2)
    going: set[int] = set()
    for broker in (2, 1, 0):
        going.add(broker)
        written = shutdown_of_replica(
            now,
            assignment=[0, 1, 2],
            broker=broker,
            registered={0, 1, 2},
            shutting_down=going,
            rules=RULES,
        )
        now = written or now
    assert (now.leader, now.isr, now.leader_epoch) == (0, (0,), 2)


@pytest.mark.parametrize(
    ("unclean", "before", "live", "answer", "leader"),
    [
        pytest.param(
            False, state(2, 3, 2, 1), {1, 2}, ElectionAnswer.ELECTED, 1, id="preferred-takes-over"
        ),
        pytest.param(
            False, state(1, 3, 2, 1), {1, 2}, ElectionAnswer.NOT_NEEDED, None, id="leads-already"
        ),
        pytest.param(
            False,
            state(2, 3, 2),
            {1, 2},
            ElectionAnswer.PREFERRED_NOT_AVAILABLE,
            None,
            id="preferred-not-in-isr",
        ),
        pytest.param(
            True, state(2, 3, 2), {2}, ElectionAnswer.NOT_NEEDED, None, id="leader-is-live"
        ),
        pytest.param(
            True,
            state(-1, 3, 2),
            {1},
            ElectionAnswer.ELECTED,
            1,
            id="an-administrator-needs-no-permission-for-unclean",
        ),
        pytest.param(
            True,
            state(-1, 3, 2),
            set(),
            ElectionAnswer.ELIGIBLE_NOT_AVAILABLE,
            None,
            id="nobody-live",
        ),
    ],
)
def test_requested_election(
    unclean: bool,
    before: PartitionState,
    live: set[int],
    answer: ElectionAnswer,
    leader: int | None,
) -> None:
    got, written = requested_election(
        before, unclean=unclean, assignment=[1, 2], live=live, rules=RULES
    )
    assert got == answer
    assert (None if written is None else written.leader) == leader


_N, _W, _ON, _OFF = (
    PartitionLifecycle.NON_EXISTENT,
    PartitionLifecycle.NEW,
    PartitionLifecycle.ONLINE,
    PartitionLifecycle.OFFLINE,
)


@pytest.mark.parametrize(
    ("allowed", "asked"),
    [
        pytest.param({_OFF}, _N, id="only-an-offline-partition-ceases-to-exist"),
        pytest.param({_N}, _W, id="only-a-non-existent-partition-becomes-new"),
        pytest.param({_W, _ON, _OFF}, _ON, id="any-existing-partition-goes-online"),
        pytest.param({_W, _ON, _OFF}, _OFF, id="any-existing-partition-goes-offline"),
    ],
)
def test_lifecycle(allowed: set[PartitionLifecycle], asked: PartitionLifecycle) -> None:
    for current in PartitionLifecycle:
        expected = asked if current in allowed else current
        assert next_lifecycle(current, asked) is expected


def test_a_failed_election_leaves_the_lifecycle_as_it_was() -> None:
    assert next_lifecycle(_OFF, _ON, state_written=False) is _OFF
    assert next_lifecycle(_W, _ON, state_written=False) is _W


def test_s08_second_topic_created() -> None:
    for p, s in created().items():
        assert s == PartitionState(SECOND_TOPIC[p][0], 0, SECOND_TOPIC[p], partition_epoch=0)


def test_s09_broker_0_stops() -> None:
    assert after_stop(created(), 0) == {
        "P0": state(1, 1, 1, 2, version=1),
        "P1": state(2, 1, 2, 1, version=1),
        "P2": state(2, 1, 2, 1, version=1),
        "P3": state(1, 1, 1, 2, version=1),
    }


def test_s09_broker_0_is_killed_instead() -> None:
    """A crash writes the same: one election or one removal for each partition."""
    for p, s in created().items():
        crashed = broker_failure(
            s,
            assignment=SECOND_TOPIC[p],
            dead=[0],
            live={1, 2},
            unclean_allowed=False,
            rules=RULES,
        )
        assert crashed == (after_stop(created(), 0)[p],)


def test_s10_broker_0_returns() -> None:
    assert after_return(after_stop(created(), 0), 0) == {
        "P0": state(1, 1, 1, 2, 0, version=2),
        "P1": state(2, 1, 2, 1, 0, version=2),
        "P2": state(2, 1, 2, 1, 0, version=2),
        "P3": state(1, 1, 1, 2, 0, version=2),
    }


def test_s11_preferred_election_on_p1() -> None:
    before = after_return(after_stop(created(), 0), 0)["P1"]
    answer, written = requested_election(
        before, unclean=False, assignment=SECOND_TOPIC["P1"], live={0, 1, 2}, rules=RULES
    )
    assert (answer, written) == (ElectionAnswer.ELECTED, state(0, 2, 2, 1, 0, version=3))
    assert written is not None
    again = requested_election(
        written, unclean=False, assignment=SECOND_TOPIC["P1"], live={0, 1, 2}, rules=RULES
    )
    assert again == (ElectionAnswer.NOT_NEEDED, None)


def test_s12_elections_never_change_the_assignment() -> None:
    """An election gives a state; the assignment is an input only, and S-12 still reads as S-08."""
    assert SECOND_TOPIC == {"P0": (1, 0, 2), "P1": (0, 2, 1), "P2": (2, 1, 0), "P3": (1, 2, 0)}
    for p, s in after_return(after_stop(created(), 0), 0).items():
        assert set(s.isr) == set(SECOND_TOPIC[p])


def before_s15() -> dict[str, PartitionState]:
    """S-14: created, broker 2 stopped and returned once, P2 was given back to it."""
    states = after_return(after_stop(created(), 2), 2)
    given_back = preferred_election(states["P2"], assignment=SECOND_TOPIC["P2"], live={0, 1, 2})
    assert given_back is not None
    return {**states, "P2": given_back}


def test_s14_broker_2_was_away_once() -> None:
    seen = {p: (s.leader, s.leader_epoch, s.isr) for p, s in before_s15().items()}
    assert seen == {
        "P0": (1, 1, (1, 0, 2)),
        "P1": (0, 1, (0, 1, 2)),
        "P2": (2, 2, (1, 0, 2)),
        "P3": (1, 1, (1, 0, 2)),
    }


def test_s15_broker_2_stops() -> None:
    seen = {p: (s.leader, s.leader_epoch, s.isr) for p, s in after_stop(before_s15(), 2).items()}
    assert seen == {
        "P0": (1, 2, (1, 0)),
        "P1": (0, 2, (0, 1)),
        "P2": (1, 3, (1, 0)),
        "P3": (1, 2, (1, 0)),
    }


def test_s16_p0_has_epoch_2_and_version_3_under_the_same_leader() -> None:
    assert after_stop(before_s15(), 2)["P0"] == state(1, 2, 1, 0, version=3)


def test_s17_broker_2_returns_and_takes_p2_back() -> None:
    returned = after_return(after_stop(before_s15(), 2), 2)
    assert {p: (s.leader, s.isr) for p, s in returned.items()} == {
        "P0": (1, (1, 0, 2)),
        "P1": (0, (0, 1, 2)),
        "P2": (1, (1, 0, 2)),
        "P3": (1, (1, 0, 2)),
    }
    taken = preferred_election(returned["P2"], assignment=SECOND_TOPIC["P2"], live={0, 1, 2})
    assert taken is not None
    assert (taken.leader, taken.isr, taken.leader_epoch) == (2, (1, 0, 2), 4)
    assert {s.leader_epoch for p, s in returned.items() if p != "P2"} == {2}


def test_s18_preferred_replica_of_1_5_9() -> None:
    ar = [1, 5, 9]
    assert elect_preferred(assignment=ar, isr=[5, 9, 1], live={1, 5, 9}).leader == 1
    assert elect_preferred(assignment=ar, isr=[5, 9], live={1, 5, 9}).leader is None
    offline = elect_offline(assignment=ar, isr=[9, 5], live={5, 9}, unclean_allowed=False)
    assert offline.leader == 5


@pytest.mark.parametrize(
    ("assignment", "leader"),
    [
        pytest.param([0, 1, 2], 1, id="as-told"),
        pytest.param([0, 2, 1], 2, id="variant-with-2-before-1"),
    ],
)
def test_s36_leader_failure(assignment: list[int], leader: int) -> None:
    (written,) = broker_failure(
        state(0, 0, 0, 1, 2),
        assignment=assignment,
        dead=[0],
        live={1, 2},
        unclean_allowed=False,
        rules=RULES,
    )
    assert written == state(leader, 1, 1, 2, version=1)


def test_s39_no_isr_member_alive_unclean_disabled() -> None:
    (offline,) = broker_failure(
        state(0, 0, 0),
        assignment=[0, 1, 2],
        dead=[0],
        live={1, 2},
        unclean_allowed=False,
        rules=RULES,
    )
    assert (offline.leader, offline.isr) == (-1, (0,))
    back = broker_return(
        offline, assignment=[0, 1, 2], live={0, 1, 2}, unclean_allowed=False, rules=RULES
    )
    assert back is not None
    assert (back.leader, back.isr) == (0, (0,))


def test_s39_no_isr_member_alive_unclean_enabled() -> None:
    (elected,) = broker_failure(
        state(0, 0, 0),
        assignment=[0, 1, 2],
        dead=[0],
        live={1, 2},
        unclean_allowed=True,
        rules=RULES,
    )
    assert (elected.leader, elected.isr, elected.leader_epoch) == (1, (1,), 1)


BROKERS = st.integers(0, 5)
LISTS = st.lists(BROKERS, unique=True, max_size=5)
SETS = st.frozensets(BROKERS)
STATES = st.builds(
    PartitionState,
    leader=st.integers(-1, 5),
    leader_epoch=st.integers(0, 9),
    isr=LISTS.map(tuple),
    partition_epoch=st.integers(0, 9),
)
RULE_SETS = st.sampled_from(
    [rules_for(v) for v in ("0.8.2", "1.0", "1.1", "2.4", "3.1", "3.2", "3.9")]
)


def in_order(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return part == tuple(member for member in whole if member in part)


@given(LISTS, LISTS, SETS, st.booleans())
def test_an_elected_leader_is_assigned_live_and_in_the_isr_unless_unclean(
    assignment: list[int], isr: list[int], live: frozenset[int], unclean: bool
) -> None:
    result = elect_offline(assignment=assignment, isr=isr, live=live, unclean_allowed=unclean)
    assert (result.leader is None) == (result.kind is NONE)
    if result.leader is not None:
        assert result.leader in assignment
        assert result.leader in live
        assert (result.leader in isr) == (result.kind is CLEAN)
        assert unclean or result.kind is CLEAN
    for clean in (
        elect_preferred(assignment=assignment, isr=isr, live=live).leader,
        elect_for_reassignment(target=assignment, isr=isr, live=live).leader,
    ):
        assert clean is None or (clean in assignment and clean in live and clean in isr)


@given(
    before=STATES,
    assignment=LISTS,
    live=SETS,
    going=SETS,
    unclean=st.booleans(),
    rules=RULE_SETS,
)
def test_every_election_raises_the_epoch_by_one_and_keeps_the_isr_order(
    *,
    before: PartitionState,
    assignment: list[int],
    live: frozenset[int],
    going: frozenset[int],
    unclean: bool,
    rules: RuleSet,
) -> None:
    written = [
        offline_election(
            before,
            assignment=assignment,
            live=live,
            unclean_allowed=unclean,
            rules=rules,
        ),
        reassignment_election(before, target=assignment, live=live),
        preferred_election(before, assignment=assignment, live=live),
        controlled_shutdown_election(
            before, assignment=assignment, registered=live, shutting_down=going
        ),
    ]
    for after in written:
        if after is not None:
            assert after.leader_epoch == before.leader_epoch + 1
            assert after.partition_epoch == before.partition_epoch + 1
            assert after.leader in after.isr
            assert in_order(after.isr, before.isr) or after.isr == (after.leader,)


@given(
    before=STATES,
    assignment=LISTS,
    dead=LISTS,
    live=SETS,
    unclean=st.booleans(),
    rules=RULE_SETS,
)
def test_every_write_of_a_broker_failure_raises_the_epoch_by_one(
    *,
    before: PartitionState,
    assignment: list[int],
    dead: list[int],
    live: frozenset[int],
    unclean: bool,
    rules: RuleSet,
) -> None:
    writes = broker_failure(
        before,
        assignment=assignment,
        dead=dead,
        live=live,
        unclean_allowed=unclean,
        rules=rules,
    )
    epochs = [s.leader_epoch for s in (before, *writes)]
    assert epochs == list(range(before.leader_epoch, before.leader_epoch + len(writes) + 1))
    for after in writes:
        assert after.isr or not before.isr or unclean
    last = (before, *writes)[-1]
    if before.leader in before.isr and before.leader in assignment:
        assert last.leader not in dead


@given(LISTS, LISTS, SETS)
def test_which_member_stays_depends_only_on_the_order_of_death(
    assignment: list[int], isr: list[int], live: frozenset[int]
) -> None:
    """A whole ISR that dies is whittled to the member that was taken last."""
    dead = [member for member in assignment if member in isr]
    if not dead or set(isr) - set(assignment):
        return
    before = PartitionState(dead[0], 0, tuple(isr))
    writes = broker_failure(
        before,
        assignment=assignment,
        dead=dead,
        live=live,
        unclean_allowed=False,
        rules=RULES,
    )
    assert writes[-1].isr == (dead[-1],)
    assert writes[-1].leader == -1
    assert len(writes) == len(dead)
