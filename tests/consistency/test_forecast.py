"""What a stop would do: next leader, ISR, what goes offline, what is lost, who cuts where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.consistency.forecast import forecast
from tidestaff.consistency.model import OffsetRange
from tidestaff.consistency.versions import Mode

from tests.consistency.watch import Watch, lineage


def _zookeeper(**fields: Any) -> Watch:
    """The controller is none of the replicas' brokers, unless a test says so."""
    return Watch(**{"controller": 9, **fields})


def _kraft(**fields: Any) -> Watch:
    return Watch(version="4.1.1", mode=Mode.KRAFT, **fields)


@pytest.mark.parametrize(
    ("watch", "stopping", "leader", "isr", "leader_epoch", "offline"),
    [
        pytest.param(
            _zookeeper(), {1}, 2, (2, 3), 1, False, id="leader-stops-first-live-isr-member-leads"
        ),
        pytest.param(
            _zookeeper(isr=(3, 2, 1)), {1}, 2, (3, 2), 1, False, id="assignment-order-counts"
        ),
        pytest.param(
            _zookeeper(), {3}, 1, (1, 2), 1, False, id="follower-stops-the-epoch-rises-in-zookeeper"
        ),
        pytest.param(
            _kraft(), {3}, 1, (1, 2), 0, False, id="follower-stops-the-epoch-stays-in-kraft"
        ),
        pytest.param(_kraft(), {1}, 2, (2, 3), 1, False, id="kraft-leader-stops"),
        pytest.param(_zookeeper(isr=(1,)), {1}, -1, (1,), 1, True, id="last-isr-member-stops"),
        pytest.param(_zookeeper(), {1, 2}, 3, (3,), 1, False, id="two-stop-at-once"),
        pytest.param(
            _zookeeper(controller=1),
            *({1}, 2, (2, 3), 2, False),
            id="the-controller-leads-and-stops-two-writes-of-its-successor",
        ),
        pytest.param(
            _zookeeper(controller=3),
            *({3}, 1, (1, 2), 1, False),
            id="the-controller-follows-and-stops-one-write",
        ),
        pytest.param(
            _zookeeper(controller=1),
            *({1, 2}, 3, (3,), 3, False),
            id="the-controller-and-another-stop-each-leaves-the-isr-first",
        ),
        pytest.param(
            _zookeeper(controller=1, isr=(1,)),
            *({1}, -1, (1,), 1, True),
            id="the-controller-was-the-last-isr-member",
        ),
        pytest.param(
            _zookeeper(controller=2),
            *({1}, 2, (2, 3), 1, False),
            id="the-controller-stays-one-write",
        ),
        pytest.param(_zookeeper(), {9}, 1, (1, 2, 3), 0, False, id="a-stranger-changes-nothing"),
        pytest.param(_zookeeper(), set(), 1, (1, 2, 3), 0, False, id="nobody-stops"),
    ],
)
def test_the_next_state(
    watch: Watch,
    stopping: set[int],
    leader: int,
    isr: tuple[int, ...],
    leader_epoch: int,
    offline: bool,
) -> None:
    outcome = forecast(watch.observation(), stopping=stopping)
    assert (outcome.leader, outcome.isr, outcome.offline) == (leader, isr, offline)
    assert outcome.leader_epoch == leader_epoch


@pytest.mark.parametrize(
    ("version", "stopping", "leader", "isr", "leader_epoch"),
    [
        pytest.param("2.3.1", {1}, 2, (2, 3), 1, id="before-2.4-it-led-and-its-epoch-rises-by-one"),
        pytest.param("2.4.1", {1}, 2, (2, 3), 2, id="from-2.4-on-by-two"),
        pytest.param("2.3.1", {2, 1}, 3, (3,), 1, id="before-2.4-both-leave-in-one-write"),
        pytest.param("2.4.1", {2, 1}, 3, (3,), 3, id="from-2.4-on-in-three"),
    ],
)
def test_the_controller_dies_with_what_it_leads(
    version: str, stopping: set[int], leader: int, isr: tuple[int, ...], leader_epoch: int
) -> None:
    outcome = forecast(_zookeeper(version=version, controller=1).observation(), stopping=stopping)
    assert (outcome.leader, outcome.isr, outcome.leader_epoch) == (leader, isr, leader_epoch)


@pytest.mark.parametrize(
    ("version", "isr", "leader_epoch"),
    [
        pytest.param("2.3.1", (1, 2, 3), 0, id="before-2.4-it-stays-in-the-isr-until-it-lags"),
        pytest.param("2.4.1", (1, 2), 1, id="from-2.4-on-its-successor-takes-it-out"),
    ],
)
def test_the_controller_dies_and_was_a_follower(
    version: str, isr: tuple[int, ...], leader_epoch: int
) -> None:
    outcome = forecast(_zookeeper(version=version, controller=3).observation(), stopping={3})
    assert (outcome.leader, outcome.isr, outcome.leader_epoch) == (1, isr, leader_epoch)


def test_who_died_with_the_controller_holds_no_minimum_though_the_isr_lists_it() -> None:
    """Before 2.4; until its leader finds it behind, nothing is committed either."""
    watch = _zookeeper(version="2.3.1", controller=3, isr=(1, 3)).setting(min_insync_replicas=2)
    outcome = forecast(watch.observation(), stopping={3})
    assert (outcome.isr, outcome.in_sync, outcome.under_min_isr) == ((1, 3), 1, True)


def test_all_stop_and_the_partition_is_offline() -> None:
    outcome = forecast(Watch().observation(), stopping={1, 2, 3})
    assert outcome.offline
    assert outcome.under_min_isr
    assert len(outcome.isr) == 1


def test_s39_an_unclean_election_names_what_is_lost() -> None:
    watch = Watch(replicas=(0, 1, 2), leader=0, isr=(0,))
    watch.setting(unclean_leader_election_enable=True)
    watch.log(0, leo=12, hw=12).log(1, leo=9, hw=9).log(2, leo=12, hw=12)
    outcome = forecast(watch.observation(), stopping={0})
    assert outcome.leader == 1
    assert outcome.unclean
    assert outcome.lost == OffsetRange(9, 12)
    cuts = {cut.broker: (cut.offsets, cut.on_return) for cut in outcome.cuts}
    assert cuts == {0: (OffsetRange(9, 12), True), 2: (OffsetRange(9, 12), False)}


def test_s36_a_clean_stop_of_the_leader_cuts_only_what_was_not_committed() -> None:
    watch = Watch(replicas=(0, 1, 2), leader=0)
    watch.log(0, leo=8, hw=4).log(1, leo=4, hw=4).log(2, leo=6, hw=4)
    outcome = forecast(watch.observation(), stopping={0})
    assert outcome.leader == 1
    assert outcome.lost is None
    assert {cut.broker: cut.offsets for cut in outcome.cuts} == {
        0: OffsetRange(4, 8),
        2: OffsetRange(4, 6),
    }


def test_a_next_leader_with_other_records_below_the_watermark_is_a_loss() -> None:
    watch = Watch(epoch=2).all_logs(epochs=lineage((0, 0), (2, 6)))
    watch.log(2, epochs=lineage((0, 0), (1, 6)))
    outcome = forecast(watch.observation(), stopping={1})
    assert outcome.lost == OffsetRange(6, 10)


def test_under_the_watermark_rule_a_follower_cuts_to_its_own_watermark() -> None:
    watch = Watch(version="0.10.2.2").all_logs(epochs=None)
    watch.log(3, hw=7)
    outcome = forecast(watch.observation(), stopping={1})
    assert {cut.broker: cut.offsets for cut in outcome.cuts} == {3: OffsetRange(7, 10)}


@pytest.mark.parametrize(
    ("isr", "believes", "cut"),
    [
        pytest.param((1, 2, 3), 4, None, id="a-member-of-the-isr-holds-what-its-leader-holds"),
        pytest.param((1, 2), 4, OffsetRange(7, 10), id="of-one-out-of-sync-nothing-is-assumed"),
        pytest.param(
            (1, 2, 3), 3, OffsetRange(7, 10), id="nor-of-one-that-follows-an-older-leader"
        ),
    ],
)
def test_a_lineage_nobody_told_is_the_leaders_where_it_must_be(
    isr: tuple[int, ...], believes: int, cut: OffsetRange | None
) -> None:
    """Followers' lineages take some reading; without one Kafka's rule is to cut to the HW."""
    watch = Watch(epoch=4, isr=isr).all_logs(epochs=lineage((2, 0), (4, 6)), believes=4)
    watch.log(2, epochs=None).log(3, epochs=None, hw=7, believes=believes)
    outcome = forecast(watch.observation(), stopping={1})
    assert outcome.leader == 2
    assert {c.broker: c.offsets for c in outcome.cuts} == ({} if cut is None else {3: cut})


def test_below_min_isr_is_foretold() -> None:
    watch = Watch().setting(min_insync_replicas=3)
    outcome = forecast(watch.observation(), stopping={3})
    assert outcome.under_min_isr
    assert not outcome.offline


@pytest.mark.parametrize(
    ("mode", "controlled", "leader", "isr"),
    [
        pytest.param(
            "zookeeper", True, -1, (1,), id="zookeeper-keeps-the-last-leader-till-it-goes"
        ),
        pytest.param("kraft", True, -1, (1,), id="kraft-takes-the-lead-away-at-once"),
        pytest.param("kraft", False, -1, (1,), id="kraft-fenced"),
    ],
)
def test_the_last_isr_member_goes_in_a_controlled_way(
    mode: str,
    controlled: bool,
    leader: int,
    isr: tuple[int, ...],
) -> None:
    watch = (
        Watch(isr=(1,))
        if mode == "zookeeper"
        else Watch(version="3.9.1", mode=Mode.KRAFT, isr=(1,))
    )
    outcome = forecast(watch.observation(), stopping={1}, controlled=controlled)
    assert (outcome.leader, outcome.isr) == (leader, isr)


def test_elr_keeps_the_partition_recoverable() -> None:
    watch = _kraft(isr=(1,), elr=(2,)).setting(min_insync_replicas=2)
    outcome = forecast(watch.observation(), stopping={1})
    assert outcome.leader == 2
    assert not outcome.unclean
    assert not outcome.offline


def test_what_was_not_read_is_named_and_not_guessed() -> None:
    watch = Watch().stop(3)
    watch.live[3] = watch.live[1]._replace(broker=3)
    outcome = forecast(watch.observation(), stopping={1})
    assert "the log of broker 3" in outcome.missing
    assert outcome.lost is None


@settings(max_examples=200, deadline=None)
@given(
    stopping=st.sets(st.integers(1, 4)),
    isr=st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True).map(tuple),
    ends=st.lists(st.integers(0, 12), min_size=3, max_size=3),
    kraft=st.booleans(),
    unclean=st.booleans(),
    controlled=st.booleans(),
)
def test_a_forecast_leader_may_always_lead(
    stopping: set[int],
    isr: tuple[int, ...],
    ends: list[int],
    *,
    kraft: bool,
    unclean: bool,
    controlled: bool,
) -> None:
    watch = _kraft(isr=isr, leader=isr[0]) if kraft else _zookeeper(isr=isr, leader=isr[0])
    watch.setting(unclean_leader_election_enable=unclean)
    for broker, end in zip((1, 2, 3), ends, strict=True):
        watch.log(broker, leo=end, hw=min(end, 10))
    outcome = forecast(watch.observation(), stopping=stopping, controlled=controlled)
    if outcome.leader >= 0:
        assert outcome.leader not in stopping
        assert outcome.leader in outcome.isr
        assert outcome.leader in isr or (unclean and outcome.unclean)
    else:
        assert outcome.offline
    for cut in outcome.cuts:
        assert cut.offsets.start < cut.offsets.end == watch.logs[cut.broker].leo
