"""The high watermark: the leader's rule by version, the follower's, the log's own, the seeds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency import watermark
from tidestaff.consistency.isr import FollowerState, record_fetch
from tidestaff.consistency.versions import rules_for
from tidestaff.consistency.watermark import LocalLog, RemoteReplica

RULES = rules_for("3.9")


def advance(
    hw: int,
    end: int,
    followers: dict[int, RemoteReplica],
    *,
    isr: tuple[int, ...],
    maximal: tuple[int, ...] | None = None,
    min_isr: int = 1,
    version: str = "3.9",
) -> int:
    return watermark.advance(
        high_watermark=hw,
        log_end_offset=end,
        followers=followers,
        committed_isr=isr,
        maximal_isr=isr if maximal is None else maximal,
        min_insync_replicas=min_isr,
        rules=rules_for(version),
    )


def test_s20_a_consumer_reads_below_the_slowest_member_only() -> None:
    assert advance(0, 8, {1: RemoteReplica(4), 2: RemoteReplica(6)}, isr=(0, 1, 2)) == 4
    visible = watermark.readable(LocalLog(0, 4, 8))
    assert list(range(visible.start, visible.end)) == [0, 1, 2, 3]
    assert advance(4, 8, {1: RemoteReplica(8), 2: RemoteReplica(8)}, isr=(0, 1, 2)) == 8


def test_s21_a_consumer_never_gets_past_what_the_next_leader_has() -> None:
    assert advance(0, 11, {1: RemoteReplica(9)}, isr=(0, 1)) == 9


def test_s41_a_position_is_the_next_offset_to_read() -> None:
    """S-41: exclusive, like HW and LEO."""
    visible = watermark.readable(LocalLog(0, 3, 3))
    assert visible == (0, 3)
    assert visible.end - visible.start == 3


def test_s22_one_record_two_fetch_rounds_every_cell() -> None:
    leader, follower, remote = LocalLog(), LocalLog(), FollowerState(log_end_offset=0)

    def cells() -> tuple[int, ...]:
        return (
            leader.log_end_offset,
            leader.high_watermark,
            remote.log_end_offset,
            follower.log_end_offset,
            follower.high_watermark,
        )

    def request(offset: int) -> tuple[FollowerState, LocalLog]:
        seen = record_fetch(
            remote,
            fetch_offset=offset,
            follower_log_start_offset=0,
            leader_log_end_offset=leader.log_end_offset,
            now_ms=0,
            rules=RULES,
        )
        to = advance(
            leader.high_watermark,
            leader.log_end_offset,
            {1: RemoteReplica(seen.log_end_offset)},
            isr=(0, 1),
        )
        return seen, watermark.increment(leader, to=to)

    table = [cells()]
    leader = watermark.append(leader, records=1)
    table.append(cells())
    remote, leader = request(0)
    table.append(cells())
    follower = watermark.follow(
        watermark.append(follower, records=1), leader_high_watermark=leader.high_watermark
    )
    table.append(cells())
    remote, leader = request(1)
    table.append(cells())
    follower = watermark.follow(follower, leader_high_watermark=leader.high_watermark)
    table.append(cells())
    assert table == [
        (0, 0, 0, 0, 0),
        (1, 0, 0, 0, 0),
        (1, 0, 0, 0, 0),
        (1, 0, 0, 1, 0),
        (1, 1, 1, 1, 0),
        (1, 1, 1, 1, 1),
    ]


@pytest.mark.parametrize(
    ("version", "follower", "expected"),
    [
        pytest.param("0.10.1.1", RemoteReplica(10), 20, id="0.10.1-the-isr-alone-counts"),
        pytest.param("0.10.2.0", RemoteReplica(10), 10, id="0.10.2-waits-for-the-caught-up"),
        pytest.param(
            "0.10.2.0", RemoteReplica(10, caught_up=False), 20, id="not-for-the-lagging-one"
        ),
        pytest.param("3.5", RemoteReplica(10, eligible=False), 10, id="3.5-waits-for-a-fenced-one"),
        pytest.param("3.6", RemoteReplica(10, eligible=False), 20, id="3.6-not-for-a-fenced-one"),
    ],
)
def test_replicas_outside_the_isr(version: str, follower: RemoteReplica, expected: int) -> None:
    assert advance(10, 20, {2: follower}, isr=(1,), version=version) == expected


@pytest.mark.parametrize(
    ("version", "isr", "min_isr", "expected"),
    [
        pytest.param("3.6", (0,), 2, 9, id="3.6-moves-under-min-isr"),
        pytest.param("3.7", (0,), 2, 4, id="3.7-frozen-under-min-isr"),
        pytest.param("3.7", (0, 1), 2, 9, id="3.7-moves-at-min-isr"),
        pytest.param("3.7", (0, 1), 3, 9, id="3.7-min-isr-3-of-two-replicas-is-2"),
    ],
)
def test_min_isr(version: str, isr: tuple[int, ...], min_isr: int, expected: int) -> None:
    got = advance(4, 9, {1: RemoteReplica(9)}, isr=isr, min_isr=min_isr, version=version)
    assert got == expected


def test_the_committed_isr_counts_against_min_isr_not_the_maximal_one() -> None:
    followers = {1: RemoteReplica(10), 2: RemoteReplica(10)}
    assert advance(0, 10, followers, isr=(0, 1), maximal=(0, 1, 2), min_isr=3) == 0


def test_after_an_election_the_hw_stands_until_every_member_has_fetched() -> None:
    followers = {1: RemoteReplica(9), 2: RemoteReplica(-1)}
    assert advance(4, 9, followers, isr=(0, 1, 2)) == 4


def test_s27_the_new_leaders_hw_rises_when_the_other_is_out_of_the_isr() -> None:
    gone = {1: RemoteReplica(-1, caught_up=False)}
    assert advance(1, 2, gone, isr=(0,)) == 2


@pytest.mark.parametrize(
    ("followers", "expected"),
    [
        pytest.param({1: RemoteReplica(4), 2: RemoteReplica(6)}, (1,), id="the-slowest-member"),
        pytest.param({2: RemoteReplica(4), 1: RemoteReplica(4)}, (1, 2), id="both-if-equal"),
        pytest.param({1: RemoteReplica(9), 2: RemoteReplica(9)}, (), id="nobody-at-the-end"),
        pytest.param({1: RemoteReplica(9), 3: RemoteReplica(2)}, (3,), id="one-about-to-join"),
        pytest.param(
            {1: RemoteReplica(9), 3: RemoteReplica(2, eligible=False)}, (), id="not-a-fenced-one"
        ),
    ],
)
def test_held_by(followers: dict[int, RemoteReplica], expected: tuple[int, ...]) -> None:
    got = watermark.held_by(
        log_end_offset=9, followers=followers, maximal_isr=(0, 1, 2), rules=RULES
    )
    assert got == expected


@pytest.mark.parametrize(
    ("log", "leader_hw", "expected"),
    [
        pytest.param(LocalLog(0, 2, 5), 4, 4, id="takes-the-leaders"),
        pytest.param(LocalLog(0, 2, 5), 9, 5, id="not-above-its-own-end"),
        pytest.param(LocalLog(0, 4, 5), 1, 1, id="may-go-down-under-a-new-leader"),
        pytest.param(LocalLog(3, 4, 5), 1, 3, id="not-below-its-log-start"),
    ],
)
def test_follow(log: LocalLog, leader_hw: int, expected: int) -> None:
    assert watermark.follow(log, leader_high_watermark=leader_hw).high_watermark == expected


def test_s23_a_returning_replica_lowers_its_hw_with_its_cut() -> None:
    assert watermark.truncate(LocalLog(0, 2, 2), to=1) == LocalLog(0, 1, 1)


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        pytest.param(4, 4, id="as-checkpointed"),
        pytest.param(None, 2, id="none-is-the-log-start"),
        pytest.param(1, 2, id="not-below-the-log-start"),
        pytest.param(9, 6, id="not-above-the-recovered-end"),
    ],
)
def test_initial(checkpoint: int | None, expected: int) -> None:
    log = watermark.initial(
        checkpointed_high_watermark=checkpoint, log_start_offset=2, log_end_offset=6
    )
    assert log == LocalLog(2, expected, 6)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        pytest.param(9, LocalLog(2, 4, 6), id="beyond-the-end-cuts-nothing"),
        pytest.param(5, LocalLog(2, 4, 5), id="above-the-hw-keeps-it"),
        pytest.param(3, LocalLog(2, 3, 3), id="below-the-hw-lowers-it"),
        pytest.param(1, LocalLog(1, 1, 1), id="below-the-log-start-empties-the-log"),
    ],
)
def test_truncate(to: int, expected: LocalLog) -> None:
    assert watermark.truncate(LocalLog(2, 4, 6), to=to) == expected


def test_truncate_fully_sets_all_three_but_for_a_tiered_log_start() -> None:
    assert watermark.truncate_fully(to=4) == LocalLog(4, 4, 4)
    assert watermark.truncate_fully(to=4, log_start_offset=1) == LocalLog(1, 4, 4)


def test_the_log_start_rises_to_the_hw_at_most() -> None:
    log = LocalLog(2, 4, 6)
    assert watermark.raise_log_start(log, to=4) == LocalLog(4, 4, 6)
    assert watermark.raise_log_start(log, to=1) == log
    with pytest.raises(watermark.BeyondHighWatermarkError, match="above the high watermark 4"):
        watermark.raise_log_start(log, to=5)
    assert watermark.follow_log_start(log, leader_log_start_offset=9) == LocalLog(4, 4, 6)


def test_latest_is_not_told_before_the_hw_reaches_the_epoch_start() -> None:
    assert not watermark.is_latest_offset_available(high_watermark=2, leader_epoch_start_offset=5)
    assert watermark.is_latest_offset_available(high_watermark=5, leader_epoch_start_offset=5)


remotes = st.dictionaries(
    st.integers(1, 4),
    st.builds(RemoteReplica, st.integers(-1, 12), st.booleans(), st.booleans()),
    max_size=4,
)


@given(
    hw=st.integers(0, 10),
    more=st.integers(0, 5),
    followers=remotes,
    members=st.sets(st.integers(1, 4)),
    min_isr=st.integers(1, 4),
    version=st.sampled_from(["0.9", "0.10.2.0", "3.5", "3.6", "3.9"]),
)
def test_a_leaders_hw_never_falls_never_passes_its_log_end_and_waits_for_its_isr(
    *,
    hw: int,
    more: int,
    followers: dict[int, RemoteReplica],
    members: set[int],
    min_isr: int,
    version: str,
) -> None:
    end = hw + more
    isr = (0, *(member for member in members if member in followers))
    after = advance(hw, end, followers, isr=isr, min_isr=min_isr, version=version)
    assert hw <= after <= end
    if after > hw:
        assert all(followers[member].log_end_offset >= after for member in isr[1:])


logs = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)).map(
    lambda three: LocalLog(*sorted(three))
)


@given(logs, st.integers(0, 12), st.sampled_from(["follow", "increment", "truncate", "start"]))
def test_log_start_hw_and_end_stay_in_order_whatever_happens(
    log: LocalLog, to: int, operation: str
) -> None:
    match operation:
        case "follow":
            after = watermark.follow(log, leader_high_watermark=to)
        case "increment":
            after = watermark.increment(log, to=to)
        case "truncate":
            after = watermark.truncate(log, to=to)
        case _:
            after = watermark.follow_log_start(log, leader_log_start_offset=to)
    assert 0 <= after.log_start_offset <= after.high_watermark <= after.log_end_offset
