"""The ISR as its leader keeps it: each version switch on both sides, the seeds' timings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency import isr
from tidestaff.consistency.isr import FollowerState, IsrState
from tidestaff.consistency.model import Registration
from tidestaff.consistency.versions import Mode, RuleSet, rules_for

NEWEST = rules_for("4.3", Mode.KRAFT)
LAG = 30_000


def fetch(
    state: FollowerState, at: int, *, offset: int, end: int, version: str = "3.9"
) -> FollowerState:
    return isr.record_fetch(
        state,
        fetch_offset=offset,
        follower_log_start_offset=0,
        leader_log_end_offset=end,
        now_ms=at,
        rules=rules_for(version),
    )


def out(state: FollowerState, at: int, *, end: int, version: str = "3.9", lag: int = LAG) -> bool:
    left = isr.out_of_sync(
        isr=[0, 1],
        leader=0,
        followers={1: state},
        leader_log_end_offset=end,
        now_ms=at,
        max_lag_ms=lag,
        rules=rules_for(version),
    )
    return left == (1,)


@pytest.mark.parametrize(
    ("version", "offset", "caught_up"),
    [
        pytest.param("0.10.1.1", 10, 0, id="0.10.1-the-previous-end-does-not-count"),
        pytest.param("0.10.2.0", 10, 100, id="S-37-c-0.10.2-caught-up-at-the-previous-fetch"),
        pytest.param("0.10.2.0", 9, 0, id="below-the-previous-end-is-not-caught-up"),
        pytest.param("0.10.1.1", 20, 200, id="at-the-end-is-caught-up-now"),
    ],
)
def test_caught_up_time(version: str, offset: int, caught_up: int) -> None:
    first = fetch(FollowerState(), 100, offset=5, end=10, version=version)
    second = fetch(first, 200, offset=offset, end=20, version=version)
    assert second.last_caught_up_ms == caught_up
    assert second.log_end_offset == offset


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        pytest.param("3.2.0", 5, id="3.2-the-remembered-leader-end-falls"),
        pytest.param("3.3.0", 10, id="3.3-the-remembered-leader-end-never-falls"),
    ],
)
def test_remembered_leader_end(version: str, kept: int) -> None:
    first = fetch(FollowerState(), 100, offset=5, end=10, version=version)
    second = fetch(first, 200, offset=5, end=5, version=version)
    assert second.last_fetch_leader_log_end_offset == kept


@pytest.mark.parametrize(
    ("new_leader", "in_sync", "expected"),
    [
        pytest.param(True, True, FollowerState(-1, -1, 900, -1, 0), id="new-leader-member"),
        pytest.param(True, False, FollowerState(-1, -1, 0, -1, 0), id="new-leader-outsider"),
        pytest.param(False, True, FollowerState(1, 10, 900, 11, 900, 7), id="same-leader-member"),
        pytest.param(False, False, FollowerState(1, 10, 0, 11, 0, 7), id="same-leader-outsider"),
    ],
)
def test_a_new_leader_epoch_resets(
    new_leader: bool, in_sync: bool, expected: FollowerState
) -> None:
    before = FollowerState(1, 10, 500, 10, 500, 7)
    got = isr.reset_follower(
        before, leader_log_end_offset=11, new_leader=new_leader, in_sync=in_sync, now_ms=900
    )
    assert got == expected


CAUGHT_UP_AT_0 = FollowerState(0, 5, 0, 5, 0)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(30_000, False, id="S-37-a-in-at-30000"),
        pytest.param(30_001, True, id="S-37-a-out-at-the-first-check-after"),
        pytest.param(45_000, True, id="S-37-a-out-at-the-latest-check"),
    ],
)
def test_a_silent_follower_leaves_after_the_lag_time(at: int, expected: bool) -> None:
    assert out(CAUGHT_UP_AT_0, at, end=9) is expected


def test_s37_a_with_the_10_seconds_of_old_versions() -> None:
    assert rules_for("2.4.0").replica_lag_time_max_ms_default == 10_000
    assert not out(CAUGHT_UP_AT_0, 10_000, end=9, version="2.4.0", lag=10_000)
    assert out(CAUGHT_UP_AT_0, 10_001, end=9, version="2.4.0", lag=10_000)


def test_s37_b_fetching_without_ever_reaching_the_end_is_no_help() -> None:
    state = CAUGHT_UP_AT_0
    for at in range(500, 30_001, 500):
        state = fetch(state, at, offset=at // 500, end=5 + at)
        assert not out(state, at, end=5 + at)
    assert out(fetch(state, 30_500, offset=61, end=40_000), 30_500, end=40_000)


def test_s37_c_reaching_the_end_of_the_previous_fetch_counts_as_of_then() -> None:
    state = fetch(CAUGHT_UP_AT_0, 19_500, offset=6, end=50)
    state = fetch(state, 20_000, offset=50, end=90)
    assert state.last_caught_up_ms == 19_500
    assert not out(state, 49_500, end=200)
    assert out(state, 49_501, end=200)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("2.0.1", True, id="2.0-drops-a-silent-follower-at-the-end"),
        pytest.param("2.1.0", False, id="S-37-d-2.1-keeps-it"),
    ],
)
def test_standing_at_the_leaders_end(version: str, expected: bool) -> None:
    assert out(CAUGHT_UP_AT_0, 90_000, end=5, version=version) is expected


@pytest.mark.parametrize(
    ("version", "end", "expected"),
    [
        pytest.param("0.8.2.2", 5005, True, id="S-38-a-burst-of-5000-drops-a-healthy-follower"),
        pytest.param("0.8.2.2", 4005, False, id="S-38-4000-behind-is-not-more-than-4000"),
        pytest.param("0.9.0.1", 5005, False, id="S-38-0.9-looks-at-the-time-alone"),
    ],
)
def test_lag_by_messages(version: str, end: int, expected: bool) -> None:
    assert out(CAUGHT_UP_AT_0, 500, end=end, version=version) is expected


def test_s38_the_next_fetch_brings_it_back_and_silence_still_counts() -> None:
    state = fetch(CAUGHT_UP_AT_0, 600, offset=5005, end=5005, version="0.8.2.2")
    assert not out(state, 600, end=5005, version="0.8.2.2")
    assert out(state, 30_601, end=5005, version="0.8.2.2")


def test_a_member_the_leader_knows_nothing_of_is_out() -> None:
    left = isr.out_of_sync(
        isr=[0, 1],
        leader=0,
        followers={},
        leader_log_end_offset=0,
        now_ms=0,
        max_lag_ms=LAG,
        rules=NEWEST,
    )
    assert left == (1,)


@pytest.mark.parametrize(
    ("version", "end", "start", "eligible", "joins"),
    [
        pytest.param("3.9", 9, 0, True, False, id="S-35-below-the-HW-stays-out"),
        pytest.param("3.9", 10, 0, True, True, id="S-35-at-the-HW-joins"),
        pytest.param("2.0.0", 10, 12, True, True, id="2.0.0-epoch-start-not-looked-at"),
        pytest.param("2.0.1", 10, 12, True, False, id="2.0.1-below-the-epoch-start-stays-out"),
        pytest.param("2.0.1", 12, 12, True, True, id="2.0.1-at-the-epoch-start-joins"),
        pytest.param("3.2.0", 10, 0, False, True, id="3.2-fenced-joins"),
        pytest.param("3.3.0", 10, 0, False, False, id="3.3-fenced-stays-out"),
    ],
)
def test_joining(version: str, end: int, start: int, eligible: bool, joins: bool) -> None:
    refused = isr.why_not_joining(
        replica=2,
        isr=IsrState((0, 1)),
        log_end_offset=end,
        high_watermark=10,
        leader_epoch_start_offset=start,
        eligible=eligible,
        rules=rules_for(version),
    )
    assert (refused is None) is joins


def test_nothing_joins_or_leaves_while_a_change_is_in_flight() -> None:
    pending = isr.propose_join(IsrState((0, 1)), 2, rules=NEWEST)
    assert pending == IsrState((0, 1), (0, 1, 2))
    assert isr.propose_shrink(pending, [1], rules=NEWEST) == pending
    for replica in (3, 1):
        assert isr.why_not_joining(
            replica=replica,
            isr=pending,
            log_end_offset=10,
            high_watermark=0,
            leader_epoch_start_offset=None,
            eligible=True,
            rules=NEWEST,
        )


def test_the_maximal_isr_holds_who_joins_and_who_has_not_left() -> None:
    joining = isr.propose_join(IsrState((1, 0)), 2, rules=NEWEST)
    assert joining.maximal == (1, 0, 2)
    leaving = isr.propose_shrink(IsrState((1, 0, 2)), [0], rules=NEWEST)
    assert (leaving.pending, leaving.maximal) == ((1, 2), (1, 0, 2))


@pytest.mark.parametrize(
    ("rules", "in_flight"),
    [
        pytest.param(rules_for("2.6.3"), False, id="2.6-the-leader-writes-the-znode-itself"),
        pytest.param(rules_for("2.7.0"), True, id="2.7-the-controller-is-asked"),
        pytest.param(rules_for("2.7.0", protocol="2.6"), False, id="2.7-with-an-old-protocol"),
    ],
)
def test_who_writes_the_isr(rules: RuleSet, in_flight: bool) -> None:
    changed = isr.propose_shrink(IsrState((0, 1)), [1], rules=rules)
    assert changed.in_flight is in_flight
    assert (changed.pending or changed.committed) == (0,)


PENDING = IsrState((0,), (0, 1))


@pytest.mark.parametrize(
    ("error", "state", "retry"),
    [
        pytest.param("NONE", IsrState((0, 1)), False, id="accepted-commits"),
        pytest.param("INELIGIBLE_REPLICA", IsrState((0,)), False, id="ineligible-goes-back"),
        pytest.param("OPERATION_NOT_ATTEMPTED", IsrState((0,)), False, id="not-tried-goes-back"),
        pytest.param("FENCED_LEADER_EPOCH", PENDING, False, id="fenced-stays-pending"),
        pytest.param("INVALID_UPDATE_VERSION", PENDING, False, id="lost-race-stays-pending"),
        pytest.param("INVALID_REQUEST", PENDING, False, id="invalid-stays-pending"),
        pytest.param("UNKNOWN_TOPIC_OR_PARTITION", PENDING, False, id="no-topic-stays-pending"),
        pytest.param("UNKNOWN_TOPIC_ID", PENDING, False, id="no-topic-id-stays-pending"),
        pytest.param("NEW_LEADER_ELECTED", PENDING, False, id="new-leader-stays-pending"),
        pytest.param("NETWORK_EXCEPTION", PENDING, True, id="anything-else-is-sent-again"),
    ],
)
def test_answers_of_the_controller(error: str, state: IsrState, retry: bool) -> None:
    assert isr.on_isr_answer(PENDING, error) == (state, retry)


ALIVE = Registration(2, broker_epoch=7)


@pytest.mark.parametrize(
    ("rules", "registration", "epoch", "expected"),
    [
        pytest.param(rules_for("3.2.0"), None, None, True, id="3.2-nobody-looks"),
        pytest.param(rules_for("3.3.0"), None, None, False, id="3.3-zookeeper-dead"),
        pytest.param(rules_for("3.3.0"), ALIVE, None, True, id="3.3-zookeeper-alive"),
        pytest.param(NEWEST, ALIVE._replace(fenced=True), 7, False, id="fenced"),
        pytest.param(NEWEST, ALIVE._replace(shutting_down=True), 7, False, id="shutting-down"),
        pytest.param(rules_for("3.4", Mode.KRAFT), ALIVE, 6, True, id="3.4-epoch-not-compared"),
        pytest.param(rules_for("3.5", Mode.KRAFT), ALIVE, 6, False, id="3.5-other-registration"),
        pytest.param(rules_for("3.5", Mode.KRAFT), ALIVE, 7, True, id="3.5-same-registration"),
        pytest.param(rules_for("3.5", Mode.KRAFT), ALIVE, -1, True, id="3.5-fetch-without-epoch"),
        pytest.param(rules_for("3.5", Mode.KRAFT), ALIVE, None, False, id="3.5-never-fetched"),
    ],
)
def test_eligibility(
    rules: RuleSet, registration: Registration | None, epoch: int | None, expected: bool
) -> None:
    got = isr.is_eligible(registration=registration, fetch_broker_epoch=epoch, rules=rules)
    assert got is expected


@pytest.mark.parametrize(
    ("rules", "epoch", "known", "stale"),
    [
        pytest.param(NEWEST, 1, 2, True, id="a-fetch-of-an-older-registration-is-refused"),
        pytest.param(NEWEST, 2, 2, False, id="the-same-registration-is-served"),
        pytest.param(NEWEST, 3, 2, False, id="a-newer-one-than-known-is-served"),
        pytest.param(NEWEST, -1, 2, False, id="no-epoch-skips-the-check"),
        pytest.param(NEWEST, 1, None, False, id="an-unknown-broker-skips-the-check"),
        pytest.param(rules_for("3.4", Mode.KRAFT), 1, 2, False, id="3.4-does-not-check"),
    ],
)
def test_stale_fetches(rules: RuleSet, epoch: int, known: int | None, stale: bool) -> None:
    got = isr.is_fetch_stale(fetch_broker_epoch=epoch, known_broker_epoch=known, rules=rules)
    assert got is stale


@pytest.mark.parametrize(
    ("version", "size", "under", "at"),
    [
        pytest.param("3.6", 2, True, False, id="3.6-plain-setting-3-of-2-replicas"),
        pytest.param("3.7", 2, False, True, id="3.7-never-more-than-there-are-replicas"),
        pytest.param("3.7", 1, True, False, id="3.7-one-of-two"),
    ],
)
def test_min_isr_of_3_on_two_replicas(version: str, size: int, under: bool, at: bool) -> None:
    rules = rules_for(version)
    assert under is isr.is_under_min_isr(
        isr_size=size, min_insync_replicas=3, replica_count=2, rules=rules
    )
    assert at is isr.is_at_min_isr(
        isr_size=size, min_insync_replicas=3, replica_count=2, rules=rules
    )


def test_under_replicated_is_fewer_members_than_replicas() -> None:
    assert isr.is_under_replicated(replica_count=3, isr_size=2)
    assert not isr.is_under_replicated(replica_count=3, isr_size=3)


def test_an_older_partition_epoch_is_ignored_an_equal_one_is_not() -> None:
    assert isr.partition_change_is_stale(known_partition_epoch=1, new_partition_epoch=0)
    assert not isr.partition_change_is_stale(known_partition_epoch=1, new_partition_epoch=1)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=10))
def test_caught_up_time_never_falls_and_is_never_in_the_future(
    fetches: list[tuple[int, int]],
) -> None:
    state = FollowerState()
    for at, (offset, end) in enumerate(fetches, start=1):
        after = fetch(state, at, offset=offset, end=end)
        assert state.last_caught_up_ms <= after.last_caught_up_ms <= at
        state = after


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True),
    st.lists(
        st.sampled_from(["NONE", "INELIGIBLE_REPLICA", "INVALID_REQUEST", "NETWORK_EXCEPTION"])
    ),
    st.sets(st.integers(0, 5)),
)
def test_the_committed_isr_is_always_within_the_maximal_one(
    members: list[int], answers: list[str], leaving: set[int]
) -> None:
    state = isr.propose_shrink(IsrState(tuple(members)), leaving, rules=NEWEST)
    for answer in answers:
        assert set(state.committed) <= set(state.maximal)
        state = isr.on_isr_answer(state, answer).state
