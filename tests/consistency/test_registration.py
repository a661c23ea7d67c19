"""Registration: ephemeral znodes and bounces with ZooKeeper, incarnations and states in KRaft."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency.model import Registration
from tidestaff.consistency.registration import (
    BrokerControlState,
    BrokerIncarnation,
    ControllerError,
    EphemeralNode,
    Heartbeat,
    NodeExists,
    Registered,
    RegistrationChanges,
    check_broker_epoch,
    create_ephemeral,
    expire_session,
    is_active,
    next_broker_state,
    register_broker,
    registration_changes,
)

FENCED, UNFENCED, LEAVING, GO = BrokerControlState


def test_s05_a_stale_registration_blocks_a_restart_until_its_session_expires():
    path, crashed, restarted = "/brokers/ids/1", 72059086999257090, 72057611838881792
    stale = create_ephemeral(None, path=path, session=crashed, czxid=10)
    assert stale == EphemeralNode(path, crashed, 10)
    refused = create_ephemeral(stale, path=path, session=restarted, czxid=20)
    assert refused == NodeExists(path, owner=crashed, session=restarted)
    assert str(crashed) in str(refused)
    assert str(restarted) in str(refused)

    # The broker counts as registered although no process serves it: nothing has changed.
    seen = [Registration(1, stale.czxid)]
    assert registration_changes(seen, [Registration(1, stale.czxid)]) == ((), (), ())

    assert expire_session([stale], crashed) == ()
    back = create_ephemeral(None, path=path, session=restarted, czxid=30)
    # The czxid, not the id, shows the real return.
    assert registration_changes(seen, [Registration(1, back.czxid)]).bounced == (1,)


def test_the_same_session_keeps_the_node_it_has():
    mine = EphemeralNode("/brokers/ids/1", 5, 10)
    assert create_ephemeral(mine, path=mine.path, session=5, czxid=11) == mine


def test_a_session_takes_only_its_own_nodes_along():
    kept, gone = EphemeralNode("/brokers/ids/1", 5, 10), EphemeralNode("/controller", 6, 11)
    assert expire_session([kept, gone], 6) == (kept,)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({}, {1: 5}, RegistrationChanges((1,), (), ()), id="new"),
        pytest.param({1: 5}, {}, RegistrationChanges((), (1,), ()), id="dead"),
        pytest.param({1: 5}, {1: 9}, RegistrationChanges((), (), (1,)), id="bounced"),
        pytest.param({1: 5}, {1: 5}, RegistrationChanges((), (), ()), id="unchanged"),
        pytest.param({1: 9}, {1: 5}, RegistrationChanges((), (), ()), id="older-is-no-bounce"),
        pytest.param({1: -1}, {1: 5}, RegistrationChanges((), (), ()), id="epoch-was-not-known"),
        pytest.param(
            {2: 1, 1: 1, 3: 1},
            {5: 3, 4: 2, 3: 4},
            RegistrationChanges((4, 5), (1, 2), (3,)),
            id="each-kind-ascending",
        ),
    ],
)
def test_registration_changes(before, after, expected):
    was = [Registration(broker, epoch) for broker, epoch in before.items()]
    now = [Registration(broker, epoch) for broker, epoch in after.items()]
    assert registration_changes(was, now) == expected


EPOCHS = st.dictionaries(st.integers(0, 5), st.integers(-1, 9))


@given(before=EPOCHS, after=EPOCHS)
def test_a_broker_is_new_or_dead_or_bounced_or_unchanged(before, after):
    got = registration_changes(
        [Registration(*item) for item in before.items()],
        [Registration(*item) for item in after.items()],
    )
    named = [*got.new, *got.dead, *got.bounced]
    assert len(named) == len(set(named))
    assert (before.keys() - set(got.dead)) | set(got.new) == after.keys()


@pytest.mark.parametrize(
    ("registration", "active"),
    [
        pytest.param(Registration(1, 5), True, id="registered-is-active"),
        pytest.param(Registration(1, 5, fenced=True), False, id="fenced-is-not"),
        pytest.param(Registration(1, 5, shutting_down=True), False, id="shutting-down-is-not"),
        pytest.param(None, False, id="unregistered-is-not"),
    ],
)
def test_is_active(registration, active):
    assert is_active(registration) is active


@pytest.mark.parametrize(
    ("registration", "epoch", "error"),
    [
        pytest.param(Registration(1, 5), 5, ControllerError.NONE, id="same-epoch"),
        pytest.param(Registration(1, 5), 4, ControllerError.STALE_BROKER_EPOCH, id="other-epoch"),
        pytest.param(None, 5, ControllerError.STALE_BROKER_EPOCH, id="not-registered"),
    ],
)
def test_check_broker_epoch(registration, epoch, error):
    assert check_broker_epoch(registration, epoch) is error


OLD = BrokerIncarnation(Registration(1, 50), "first-process")
NEW = BrokerIncarnation(Registration(1, 90, fenced=True), "second-process")


@pytest.mark.parametrize(
    ("existing", "previous_epoch", "session_valid", "answer"),
    [
        pytest.param(
            None, -1, False, Registered(NEW, clean_shutdown=False), id="the-first-time-is-not-clean"
        ),
        pytest.param(
            OLD, 50, False, Registered(NEW, clean_shutdown=True), id="names-the-stored-epoch-clean"
        ),
        pytest.param(
            OLD, 49, False, Registered(NEW, clean_shutdown=False), id="names-another-epoch-unclean"
        ),
        pytest.param(
            OLD, -1, False, Registered(NEW, clean_shutdown=False), id="names-no-epoch-unclean"
        ),
        pytest.param(
            OLD,
            50,
            True,
            ControllerError.DUPLICATE_BROKER_REGISTRATION,
            id="refused-while-the-old-session-lives",
        ),
    ],
)
def test_register_broker(existing, previous_epoch, session_valid, answer):
    got = register_broker(
        existing,
        broker=1,
        incarnation="second-process",
        new_broker_epoch=90,
        previous_broker_epoch=previous_epoch,
        session_valid=session_valid,
    )
    assert got == answer


def test_the_same_process_keeps_its_epoch_and_state():
    got = register_broker(
        OLD, broker=1, incarnation="first-process", new_broker_epoch=90, session_valid=True
    )
    assert got == Registered(OLD, None)


@pytest.mark.parametrize(
    ("current", "heartbeat", "leads", "seen", "expected"),
    [
        pytest.param(FENCED, Heartbeat(7), False, True, UNFENCED, id="has-read-its-registration"),
        pytest.param(FENCED, Heartbeat(6), False, True, FENCED, id="has-not-read-it-yet"),
        pytest.param(
            FENCED, Heartbeat(7, wants_fence=True), False, True, FENCED, id="wants-to-stay-fenced"
        ),
        pytest.param(
            FENCED, Heartbeat(7, wants_shutdown=True), False, True, GO, id="fenced-goes-at-once"
        ),
        pytest.param(UNFENCED, Heartbeat(0), True, True, UNFENCED, id="unfenced-stays"),
        pytest.param(
            UNFENCED, Heartbeat(7, wants_fence=True), True, True, FENCED, id="asks-to-be-fenced"
        ),
        pytest.param(
            UNFENCED, Heartbeat(7, wants_shutdown=True), True, True, LEAVING, id="leads-so-moves"
        ),
        pytest.param(
            UNFENCED, Heartbeat(7, wants_shutdown=True), False, True, GO, id="leads-nothing-goes"
        ),
        pytest.param(
            UNFENCED,
            Heartbeat(7, wants_fence=True, wants_shutdown=True),
            True,
            True,
            GO,
            id="fence-and-shutdown-goes",
        ),
        pytest.param(LEAVING, Heartbeat(9), True, True, LEAVING, id="still-leads"),
        pytest.param(LEAVING, Heartbeat(9), False, False, LEAVING, id="others-have-not-read-it"),
        pytest.param(LEAVING, Heartbeat(9), False, True, GO, id="all-have-read-it"),
        pytest.param(GO, Heartbeat(9), True, False, GO, id="no-way-back"),
    ],
)
def test_next_broker_state(current, heartbeat, leads, seen, expected):
    got = next_broker_state(
        current,
        heartbeat,
        registration_offset=7,
        leads_partitions=leads,
        shutdown_seen_by_all=seen,
    )
    assert got is expected
