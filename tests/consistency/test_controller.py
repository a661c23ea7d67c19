"""Who is controller in ZooKeeper mode, and which writes are let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency.alter_partition import (
    AlterPartition,
    AlterPartitionError,
    alter_partition,
)
from tidestaff.consistency.controller import (
    ClaimOutcome,
    Code,
    ControllerNode,
    ControllerZnodes,
    EpochNode,
    bump_controller_epoch,
    claim_controller,
    claim_for_kraft,
    create_controller_node,
    create_epoch_node,
    may_change,
    register_controller,
    resign,
    session_ended,
    set_epoch_node,
    write_state,
)
from tidestaff.consistency.model import PartitionState, RecoveryState, Registration
from tidestaff.consistency.versions import rules_for

RULES = rules_for("3.9")
TWO_STEP = rules_for("2.0")
RECOVERED, RECOVERING = RecoveryState.RECOVERED, RecoveryState.RECOVERING
CLAIMED, OTHER = ClaimOutcome.CLAIMED, ClaimOutcome.OTHER_CONTROLLER
MOVED = ClaimOutcome.CONTROLLER_MOVED


def znodes(broker: int | None, epoch: int, version: int) -> ControllerZnodes:
    controller = None if broker is None else ControllerNode(broker)
    return ControllerZnodes(controller, EpochNode(epoch, version))


def test_s03_one_broker_claims_and_later_creators_only_watch() -> None:
    claim = claim_controller(ControllerZnodes(), broker=2, rules=RULES)
    assert claim.outcome is CLAIMED
    assert claim.znodes == znodes(2, 1, 1)
    late = claim_controller(claim.znodes, broker=0, rules=RULES)
    assert (late.outcome, late.znodes, late.controller_epoch) == (OTHER, claim.znodes, None)


@pytest.mark.parametrize(
    "version", [pytest.param("0.10.2", id="two-steps"), pytest.param("3.9", id="one-transaction")]
)
def test_s04_fail_over_raises_the_epoch_by_one(version: str) -> None:
    rules = rules_for(version)
    first = claim_controller(ControllerZnodes(), broker=2, rules=rules)
    assert first.controller_epoch == 1
    nobody = session_ended(first.znodes, broker=2)
    assert nobody.controller is None
    assert nobody.epoch == first.znodes.epoch
    second = claim_controller(nobody, broker=0, rules=rules)
    assert (second.outcome, second.controller_epoch) == (CLAIMED, 2)
    assert second.znodes.controller == ControllerNode(0)


@pytest.mark.parametrize(
    ("now", "read", "outcome", "epoch", "version"),
    [
        pytest.param(znodes(None, 7, 3), None, CLAIMED, 8, 4, id="free-and-epoch-as-read"),
        pytest.param(
            znodes(None, 8, 4), EpochNode(7, 3), MOVED, None, None, id="someone-came-and-went"
        ),
        pytest.param(
            znodes(5, 8, 4), EpochNode(7, 3), MOVED, None, None, id="someone-else-was-faster"
        ),
        pytest.param(znodes(1, 8, 4), EpochNode(7, 3), CLAIMED, 8, 4, id="only-the-reply-was-lost"),
        pytest.param(
            znodes(1, 7, 3), None, MOVED, None, None, id="my-own-older-claim-is-not-this-one"
        ),
        pytest.param(ControllerZnodes(), None, CLAIMED, 1, 1, id="first-controller-has-epoch-1"),
    ],
)
def test_registering_in_one_transaction(
    now: ControllerZnodes,
    read: EpochNode | None,
    outcome: ClaimOutcome,
    epoch: int | None,
    version: int | None,
) -> None:
    claim = register_controller(now, broker=1, read=read)
    assert (claim.outcome, claim.controller_epoch, claim.epoch_version) == (outcome, epoch, version)


def test_between_the_two_steps_the_new_controller_stands_beside_the_old_epoch() -> None:
    step = create_controller_node(znodes(None, 4, 9), broker=1)
    assert (step.znodes, step.controller_epoch) == (znodes(1, 4, 9), None)
    assert bump_controller_epoch(step.znodes).znodes == znodes(1, 5, 10)
    assert create_controller_node(step.znodes, broker=2).outcome is OTHER


def test_the_first_two_step_controller_assumes_version_1_of_a_node_at_version_0() -> None:
    claim = claim_controller(ControllerZnodes(), broker=1, rules=TWO_STEP)
    assert (claim.znodes.epoch, claim.epoch_version) == (EpochNode(1, 0), 1)


def test_the_second_step_is_refused_when_the_epoch_moved_meanwhile() -> None:
    claim = bump_controller_epoch(znodes(1, 5, 10), read=EpochNode(4, 9))
    assert claim.outcome is MOVED


@pytest.mark.parametrize(
    ("now", "kraft_epoch", "read", "outcome"),
    [
        pytest.param(znodes(1, 1, 0), 42, None, CLAIMED, id="takes-it-from-a-broker"),
        pytest.param(znodes(None, 1, 0), 42, None, CLAIMED, id="takes-it-from-nobody"),
        pytest.param(
            ControllerZnodes(ControllerNode(3001, 41), EpochNode(1, 0)),
            42,
            None,
            CLAIMED,
            id="an-older-kraft-epoch-gives-way",
        ),
        pytest.param(
            ControllerZnodes(ControllerNode(3001, 42), EpochNode(1, 0)),
            42,
            None,
            MOVED,
            id="the-same-kraft-epoch-stays",
        ),
        pytest.param(
            znodes(1, 2, 1), 42, EpochNode(1, 0), ClaimOutcome.LOST_RACE, id="the-epoch-moved"
        ),
        pytest.param(
            ControllerZnodes(), 42, None, ClaimOutcome.NO_EPOCH, id="no-epoch-node-no-migration"
        ),
    ],
)
def test_a_kraft_controller_claims(
    now: ControllerZnodes, kraft_epoch: int, read: EpochNode | None, outcome: ClaimOutcome
) -> None:
    claim = claim_for_kraft(now, node=3000, kraft_epoch=kraft_epoch, read=read)
    assert claim.outcome is outcome
    if outcome is CLAIMED:
        assert claim.znodes == ControllerZnodes(ControllerNode(3000, kraft_epoch), EpochNode(2, 1))
    else:
        assert claim.znodes == now


def test_a_kraft_controllers_node_outlives_its_session() -> None:
    held = ControllerZnodes(ControllerNode(3000, 42), EpochNode(2, 1))
    assert session_ended(held, broker=3000) == held


@pytest.mark.parametrize(
    ("held", "code"),
    [
        pytest.param(3, Code.OK, id="the-holder-may-resign"),
        pytest.param(-1, Code.OK, id="any-version"),
        pytest.param(2, Code.CONTROLLER_MOVED, id="a-zombie-may-not-delete-the-new-controller"),
    ],
)
def test_resigning_is_fenced(held: int, code: Code) -> None:
    got, after = resign(znodes(1, 7, 3), held_epoch_version=held)
    assert got is code
    assert (after.controller is None) == (code is Code.OK)


def test_resigning_twice_finds_no_node() -> None:
    assert resign(znodes(None, 7, 3), held_epoch_version=3)[0] is Code.NONODE


def test_the_epoch_node_is_a_compare_and_set() -> None:
    assert set_epoch_node(None, controller_epoch=1, expected_version=0) == (Code.NONODE, None)
    code, node = create_epoch_node(None, controller_epoch=0)
    assert (code, node) == (Code.OK, EpochNode(0, 0))
    assert create_epoch_node(node, controller_epoch=0) == (Code.NODEEXISTS, node)
    code, node = set_epoch_node(node, controller_epoch=1, expected_version=0)
    assert (code, node) == (Code.OK, EpochNode(1, 1))
    again = set_epoch_node(node, controller_epoch=2, expected_version=0)
    assert again == (Code.BADVERSION, EpochNode(1, 1))


@pytest.mark.parametrize(
    ("version", "node_version", "expected", "held", "code", "new_version"),
    [
        pytest.param("3.9", 4, 4, 2, Code.OK, 5, id="as-read-by-the-controller"),
        pytest.param("3.9", 5, 4, 2, Code.BADVERSION, None, id="the-leader-wrote-meanwhile"),
        pytest.param("3.9", None, 4, 2, Code.NONODE, None, id="no-state-node"),
        pytest.param("3.9", 5, 4, 1, Code.CONTROLLER_MOVED, None, id="fencing-is-looked-at-first"),
        pytest.param("3.9", 4, 4, -1, Code.OK, 5, id="a-leader-is-not-fenced-by-the-controller"),
        pytest.param("2.0", 4, 4, 1, Code.OK, 5, id="a-zombie-could-write-up-to-2.0"),
        pytest.param("3.9", 4, -1, 2, Code.OK, 5, id="any-version-matches"),
    ],
)
def test_write_state(
    *,
    version: str,
    node_version: int | None,
    expected: int,
    held: int,
    code: Code,
    new_version: int | None,
) -> None:
    got = write_state(
        node_version=node_version,
        expected_version=expected,
        controller_epoch_version=2,
        held_epoch_version=held,
        rules=rules_for(version),
    )
    assert (got.code, got.new_version) == (code, new_version)


@pytest.mark.parametrize(
    ("written_by", "allowed"),
    [
        pytest.param(3, True, id="written-by-an-earlier-controller"),
        pytest.param(4, True, id="written-by-myself"),
        pytest.param(5, False, id="written-by-a-later-controller"),
        pytest.param(None, True, id="not-known-who-wrote-it"),
    ],
)
def test_a_controller_keeps_off_what_a_later_one_wrote(
    written_by: int | None, allowed: bool
) -> None:
    state = PartitionState(1, 0, (1,), controller_epoch=written_by)
    assert may_change(state, controller_epoch=4) is allowed


CURRENT = PartitionState(0, 10, (0, 1), partition_epoch=20)
AFTER_UNCLEAN = PartitionState(0, 10, (0,), partition_epoch=20, recovery=RECOVERING)
REQUEST = AlterPartition(0, 1000, leader_epoch=10, partition_epoch=20, isr=(0,))
BOTH = REQUEST._replace(isr=(0, 1))
LIVE = [Registration(0, 1000), Registration(1, 1001)]
ONE_GOING = [Registration(0, 1000), Registration(1, 1001, shutting_down=True)]
E = AlterPartitionError


@pytest.mark.parametrize(
    ("version", "current", "request_", "error"),
    [
        pytest.param(
            "3.9", CURRENT, REQUEST._replace(broker=99), E.STALE_BROKER_EPOCH, id="unknown-broker"
        ),
        pytest.param(
            "3.9",
            CURRENT,
            REQUEST._replace(broker_epoch=999),
            E.STALE_BROKER_EPOCH,
            id="an-earlier-life-of-the-leader",
        ),
        pytest.param(
            "3.9",
            CURRENT,
            REQUEST._replace(recovery=None),
            E.UNKNOWN_SERVER_ERROR,
            id="no-such-recovery-state",
        ),
        pytest.param("3.9", None, REQUEST, E.UNKNOWN_TOPIC_OR_PARTITION, id="unknown-partition"),
        pytest.param(
            "3.9",
            CURRENT,
            REQUEST._replace(partition_epoch=21),
            E.NOT_CONTROLLER,
            id="leader-knows-a-later-partition-epoch",
        ),
        pytest.param(
            "3.9",
            CURRENT,
            REQUEST._replace(leader_epoch=11, partition_epoch=19),
            E.NOT_CONTROLLER,
            id="a-later-epoch-is-looked-at-before-an-earlier-one",
        ),
        pytest.param(
            "3.9",
            CURRENT,
            REQUEST._replace(leader_epoch=9, recovery=RECOVERING),
            E.FENCED_LEADER_EPOCH,
            id="epochs-are-looked-at-before-recovery",
        ),
        pytest.param(
            "3.9",
            CURRENT,
            REQUEST._replace(partition_epoch=19),
            E.INVALID_UPDATE_VERSION,
            id="outdated-partition-epoch",
        ),
        pytest.param(
            "3.9",
            CURRENT,
            REQUEST._replace(recovery=RECOVERING),
            E.INVALID_REQUEST,
            id="recovered-never-goes-back-to-recovering",
        ),
        pytest.param(
            "3.9",
            AFTER_UNCLEAN,
            BOTH._replace(recovery=RECOVERING),
            E.INVALID_REQUEST,
            id="recovering-has-one-isr-member",
        ),
        pytest.param(
            "3.2",
            CURRENT,
            REQUEST._replace(leader_epoch=9, recovery=RECOVERING),
            E.INVALID_REQUEST,
            id="3.2-looks-at-recovery-first",
        ),
        pytest.param(
            "3.1",
            CURRENT,
            REQUEST._replace(partition_epoch=21),
            E.INVALID_UPDATE_VERSION,
            id="up-to-3.2-a-later-partition-epoch-is-a-bad-version",
        ),
    ],
)
def test_alter_partition_is_refused(
    version: str,
    current: PartitionState | None,
    request_: AlterPartition,
    error: AlterPartitionError,
) -> None:
    answer = alter_partition(
        current, request_, registrations=LIVE, rules=rules_for(version), request_version=3
    )
    assert answer.error is error
    assert answer.state is None
    assert answer.whole_request == (error in (E.STALE_BROKER_EPOCH, E.UNKNOWN_SERVER_ERROR))


@pytest.mark.parametrize(
    ("version", "request_version", "error"),
    [
        pytest.param("3.9", 3, E.INELIGIBLE_REPLICA, id="v3"),
        pytest.param("3.9", 2, E.INELIGIBLE_REPLICA, id="v2"),
        pytest.param("3.9", 1, E.OPERATION_NOT_ATTEMPTED, id="v1-does-not-know-the-error"),
        pytest.param("3.2", 1, None, id="not-looked-at-before-3.3"),
    ],
)
def test_a_broker_shutting_down_does_not_join_the_isr(
    version: str, request_version: int, error: AlterPartitionError | None
) -> None:
    answer = alter_partition(
        CURRENT._replace(isr=(0,)),
        BOTH,
        registrations=ONE_GOING,
        rules=rules_for(version),
        request_version=request_version,
    )
    assert answer.error is error


def test_an_accepted_change_keeps_the_leader_epoch_and_raises_the_partition_epoch() -> None:
    answer = alter_partition(
        CURRENT, REQUEST, registrations=LIVE, rules=RULES, request_version=3, controller_epoch=6
    )
    assert answer.written
    assert answer.state == PartitionState(0, 10, (0,), partition_epoch=21, controller_epoch=6)


def test_the_end_of_recovery_is_accepted() -> None:
    answer = alter_partition(
        AFTER_UNCLEAN, BOTH, registrations=LIVE, rules=RULES, request_version=3
    )
    assert answer.state == PartitionState(0, 10, (0, 1), partition_epoch=21)


@pytest.mark.parametrize(
    ("version", "partition_epoch"),
    [
        pytest.param("3.9", 20, id="with-the-current-partition-epoch"),
        pytest.param("3.9", 19, id="with-the-one-before"),
        pytest.param("2.8", 21, id="up-to-3.2-with-any"),
    ],
)
def test_a_re_sent_change_succeeds_and_writes_nothing(version: str, partition_epoch: int) -> None:
    answer = alter_partition(
        CURRENT,
        BOTH._replace(partition_epoch=partition_epoch),
        registrations=LIVE,
        rules=rules_for(version),
        request_version=2,
    )
    assert (answer.error, answer.written, answer.state) == (None, False, CURRENT)


def test_another_order_of_the_same_isr_is_a_change() -> None:
    answer = alter_partition(
        CURRENT,
        REQUEST._replace(isr=(1, 0)),
        registrations=LIVE,
        rules=RULES,
        request_version=3,
    )
    assert answer.written


def test_an_unknown_topic_id_is_told_apart_from_version_2() -> None:
    asked = {"registrations": LIVE, "rules": RULES, "topic_id_known": False}
    new = alter_partition(None, REQUEST, request_version=2, **asked)  # type: ignore[arg-type]
    old = alter_partition(None, REQUEST, request_version=1, **asked)  # type: ignore[arg-type]
    assert (new.error, old.error) == (E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_broker_that_is_not_controller_says_so_first() -> None:
    answer = alter_partition(
        CURRENT,
        REQUEST._replace(broker=99),
        registrations=LIVE,
        rules=RULES,
        request_version=3,
        controller_active=False,
    )
    assert (answer.error, answer.whole_request) == (E.NOT_CONTROLLER, True)


@given(
    current=st.builds(
        PartitionState,
        leader=st.integers(-1, 2),
        leader_epoch=st.integers(0, 3),
        isr=st.lists(st.integers(0, 2), unique=True).map(tuple),
        partition_epoch=st.integers(0, 3),
        recovery=st.sampled_from(RecoveryState),
    ),
    request_=st.builds(
        AlterPartition,
        broker=st.integers(0, 2),
        broker_epoch=st.integers(0, 1),
        leader_epoch=st.integers(0, 3),
        partition_epoch=st.integers(0, 3),
        isr=st.lists(st.integers(0, 2), unique=True).map(tuple),
        recovery=st.none() | st.sampled_from(RecoveryState),
    ),
    going=st.frozensets(st.integers(0, 2)),
    version=st.sampled_from(["2.7", "3.2", "3.3", "3.9"]),
)
def test_a_write_is_always_the_next_partition_epoch_of_the_state_it_was_asked_for(
    current: PartitionState, request_: AlterPartition, going: frozenset[int], version: str
) -> None:
    rules = rules_for(version)
    answer = alter_partition(
        current,
        request_,
        registrations=[Registration(b, 0, shutting_down=b in going) for b in range(3)],
        rules=rules,
        request_version=3,
    )
    assert (answer.error is None) == (answer.state is not None)
    if answer.written and answer.state is not None:
        assert answer.state.partition_epoch == current.partition_epoch + 1
        assert request_.partition_epoch == current.partition_epoch
        assert answer.state.isr == request_.isr
        if rules.isr_members_must_be_active:
            assert answer.state.leader_epoch == current.leader_epoch
            assert not going & set(answer.state.isr)
    elif answer.error is None:
        assert answer.state == current


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["claim", "kraft", "end", "stale"]), st.integers(0, 3)),
        max_size=12,
    ),
    atomic=st.booleans(),
)
def test_every_claim_that_succeeds_has_an_epoch_of_its_own(
    steps: list[tuple[str, int]], atomic: bool
) -> None:
    """ControllerIntegrationTest and testConcurrentKRaftControllerClaim: no epoch is ever shared."""
    now = ControllerZnodes(epoch=EpochNode(1, 0))
    rules = RULES if atomic else TWO_STEP
    epochs: list[int] = []
    for index, (what, who) in enumerate(steps):
        if what == "end":
            now = session_ended(now, broker=who)
            continue
        if what == "kraft":
            claim = claim_for_kraft(now, node=3000 + who, kraft_epoch=index)
        else:
            read = EpochNode(0, -2) if what == "stale" else None
            claim = claim_controller(now, broker=who, rules=rules, read=read)
        now = claim.znodes
        if claim.outcome is CLAIMED and claim.controller_epoch is not None:
            epochs.append(claim.controller_epoch)
    assert epochs == sorted(set(epochs))
