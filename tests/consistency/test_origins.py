"""Logs whose epochs do not tell their records, under an observer who sees every step: who wrote
what, what is lost, and which replicas differ; and that nothing is inferred where a step may have
been missed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidestaff.consistency.memory import PartitionMemory
from tidestaff.consistency.model import Bracket, OffsetRange
from tidestaff.consistency.monitor import step
from tidestaff.consistency.origins import MAX_SEGMENTS, Segment
from tidestaff.consistency.ranges import merged, without
from tidestaff.consistency.versions import Mode

from tests.consistency.watch import Watch, lineage


class EveryStep(Watch):
    """A 0.10 partition of two replicas; `see` is one step."""

    continuous: bool = True

    def step(self, **fields: object) -> tuple[str, ...]:
        self.set(**fields)
        self.now_ms += 1
        seen = replace(self.observation(), continuous=self.continuous)
        self.memory, verdicts = step(self.memory, seen)
        self.last = verdicts.violated
        for violated in verdicts.violated:
            self.raised.setdefault(violated.code, violated)
        return verdicts.codes

    def segments(self, broker: int) -> list[tuple[int, int, int]]:
        assert isinstance(self.memory, PartitionMemory)
        assert self.memory.origins is not None
        log = self.memory.origins.log(broker)
        assert log is not None
        return [segment[:3] for segment in log.segments]


def watched(version: str = "0.10.2.2") -> EveryStep:
    """Ten records of epoch 0 on both, committed."""
    watch = EveryStep(version=version, replicas=(1, 2))
    epochs = None if version == "0.10.2.2" else lineage((0, 0))
    watch.all_logs(leo=0, hw=0, epochs=epochs).step()
    watch.log(1, leo=10).step()
    watch.log(2, leo=10).step()
    watch.log(1, hw=10).step()
    watch.log(2, hw=10).step()
    assert not watch.raised
    return watch


def diverged() -> EveryStep:
    """KIP-101, second story: 2 loses two unflushed records, leads and writes two others; 1 comes
    back, cuts nothing since its HW covers its own, and joins."""
    watch = watched()
    watch.stop(1, 2)
    watch.step()
    watch.start(2).log(2, leo=8, hw=8, leads=None)
    watch.change(leader=2, epoch=1, isr=(2,)).step()
    watch.log(2, leo=10, hw=10).step()
    watch.start(1).log(1, leads=False).step()
    return watch


def test_growth_is_a_leaders_own_and_a_followers_copy() -> None:
    watch = watched()
    assert watch.segments(1) == watch.segments(2) == [(0, 10, 0)]


def test_a_committed_record_replaced_by_another_at_the_same_offset_is_lost() -> None:
    """LEO and HW of the leader are what they were."""
    watch = diverged()
    assert watch.raised["TRN001"].offsets == OffsetRange(8, 10)
    assert watch.segments(1) == [(0, 10, 0)]
    assert watch.segments(2) == [(0, 8, 0), (8, 10, 1)]


def test_in_sync_replicas_with_other_records_below_both_watermarks_have_diverged() -> None:
    watch = diverged()
    assert "TRN006" not in watch.raised
    assert watch.change(isr=(2, 1)).step() == ("TRN006",)
    assert watch.raised["TRN006"].offsets == OffsetRange(8, 10)
    assert watch.raised["TRN006"].broker == 1
    assert "every write and every cut" in watch.raised["TRN006"].because


def test_above_the_lower_watermark_nothing_has_diverged_yet() -> None:
    watch = diverged().log(1, hw=8)
    assert watch.change(isr=(2, 1)).step() == ()
    assert watch.log(1, hw=9).step() == ("TRN006",)
    assert watch.raised["TRN006"].offsets == OffsetRange(8, 9)


def test_the_records_come_back_with_their_holder_and_the_others_are_lost_then() -> None:
    watch = diverged()
    watch.change(isr=(2, 1)).step()
    watch.stop(2).change(leader=1, epoch=2, isr=(1,)).log(1, leads=True)
    assert "TRN001" in watch.step()
    [lost] = [v for v in watch.last if v.code == "TRN001"]
    assert lost.offsets == OffsetRange(8, 10)
    assert "TRN001" not in watch.step()


def test_a_loss_is_told_once() -> None:
    watch = diverged()
    watch.raised.clear()
    watch.step()
    watch.log(2, leo=12).step()
    assert "TRN001" not in watch.raised


def test_two_losses_of_one_step_are_two() -> None:
    watch = diverged()
    watch.change(isr=(2, 1)).log(2, leo=14).step()
    watch.log(1, leo=14).step()
    watch.log(2, hw=14).step()
    watch.stop(2).change(leader=1, epoch=2, isr=(1,)).log(1, leo=12, leads=True).step()
    assert [v.offsets for v in watch.last if v.code == "TRN001"] == [
        OffsetRange(8, 10),
        OffsetRange(12, 14),
    ]


def test_where_a_step_may_have_been_missed_nothing_is_inferred() -> None:
    watch = watched()
    watch.continuous = False
    watch.step()
    assert isinstance(watch.memory, PartitionMemory)
    assert watch.memory.origins is None
    watch.continuous = True
    watch.step()
    assert watch.segments(1) == [(0, 10, -1)]


@pytest.mark.parametrize("version", ["3.3.2", "3.9.1", "4.1.1"])
def test_where_epochs_name_a_record_nothing_need_be_inferred(version: str) -> None:
    watch = EveryStep(version=version, mode=Mode.KRAFT)
    watch.step()
    assert isinstance(watch.memory, PartitionMemory)
    assert watch.memory.origins is None


@pytest.mark.parametrize("version", ["0.10.2.2", "1.1.1", "2.0.1", "2.1.1", "2.8.2", "3.9.1"])
def test_what_a_leader_writes_anew_in_its_own_epoch_is_other_records(version: str) -> None:
    """Seed 34013 of the search, 2.0.1: the power went, the leader was back within its session with
    a shorter log and led on in its epoch. Its follower went on where its own log ended. From 2.2
    the same happens while the controller changes: the next one finds it registered (42012)."""
    watch = watched(version)
    watch.log(1, leads=False, believes=-1, leo=8, hw=8).start(1).step()
    watch.log(1, leads=True, believes=0).step()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(8, 10)
    watch.log(1, leo=12).step()
    watch.log(2, leo=12).step()
    watch.log(1, hw=12).step()
    assert watch.log(2, hw=12).step() == ("TRN006",)
    assert watch.raised["TRN006"].offsets == OffsetRange(8, 10)
    assert watch.raised["TRN006"].broker == 2
    watch.stop(1).change(leader=2, epoch=1, isr=(2,)).step()
    assert watch.raised["TRN001"].offsets == OffsetRange(8, 10), "the second ones are gone, too"


def test_an_unknown_origin_accuses_nobody() -> None:
    watch = EveryStep(version="0.10.2.2", replicas=(1, 2))
    watch.all_logs(epochs=None).step()
    watch.stop(1).change(leader=2, epoch=1, isr=(2,)).log(2, leo=8, hw=8).step()
    assert [v.offsets for v in watch.last if v.code == "TRN001"] == [OffsetRange(8, 10)]
    watch.log(2, leo=10, hw=10).step()
    watch.start(1).log(1, leads=False).change(isr=(2, 1)).step()
    assert "TRN006" not in watch.raised


def test_what_a_process_did_last_shows_when_it_is_back() -> None:
    """It copied two records and ended in the same step."""
    watch = watched()
    watch.log(1, leo=12).step()
    watch.stop(2).step()
    watch.start(2).log(2, leo=12, leads=None, believes=None)
    seen = watch.observation()
    unsettled = tuple(
        r._replace(leads=None, leader_epoch=None) if r.broker == 2 else r for r in seen.replicas
    )
    watch.now_ms += 1
    again = replace(seen, replicas=unsettled, observed_at_ms=watch.now_ms, continuous=True)
    watch.memory, _ = step(watch.memory, again)
    assert watch.segments(2) == [(0, 12, 0)]


def test_what_a_deposed_leader_commits_beside_the_one_in_office_is_lost_at_once() -> None:
    watch = watched()
    watch.change(leader=2, epoch=1, isr=(2,)).log(1, leads=True, believes=0).step()
    assert not watch.raised
    watch.log(1, leo=13, hw=13).step()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 13)
    assert "TRN001" not in watch.step()
    assert "TRN001" in watch.log(1, leo=15, hw=15).step()
    assert [v.offsets for v in watch.last if v.code == "TRN001"] == [OffsetRange(13, 15)]


def test_a_loss_while_nobody_is_in_office_is_told_when_somebody_is() -> None:
    watch = watched()
    watch.change(leader=2, epoch=1, isr=(2,)).log(2, leo=13, hw=13).step()
    watch.change(leader=2, epoch=2, isr=(2,)).log(2, believes=1)
    watch.set(bracket=Bracket.STRADDLED).log(1, leo=12, hw=12, leads=True, believes=0).step()
    assert "TRN001" not in watch.raised
    watch.set(bracket=Bracket.COHERENT).log(2, believes=2).stop(1).step()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 12)


def test_retention_loses_nothing() -> None:
    watch = watched()
    watch.log(1, start=6).step()
    watch.stop(1).change(leader=2, epoch=1, isr=(2,)).log(2, start=6).step()
    watch.log(2, start=9).step()
    assert not watch.raised


def test_an_election_is_unclean_if_every_write_since_began_an_epoch() -> None:
    """Leaderless and elected within one round: nobody can have joined the ISR in between."""
    watch = Watch(version="2.8.2", isr=(1,)).settle()
    watch.stop(1).change(leader=-1, epoch=1).change(leader=3, epoch=2, isr=(3,)).see()
    assert watch.raised["ELE009"].broker == 3


def test_an_election_after_an_unseen_change_of_the_isr_is_not_called_unclean() -> None:
    watch = Watch(version="2.8.2", isr=(1,)).settle()
    watch.change(isr=(1, 3)).stop(1).change(leader=3, epoch=1, isr=(3,)).see()
    assert "ELE009" not in watch.raised


@pytest.mark.parametrize(("leader", "unclean"), [(1, False), (2, False), (3, True)])
def test_of_an_emptied_isr_its_last_members_have_everything(leader: int, *, unclean: bool) -> None:
    """Before 1.1 the last member goes as well, where unclean election is allowed."""
    watch = Watch(version="0.10.2.2", isr=(1, 2)).all_logs(epochs=None).settle()
    watch.setting(unclean_leader_election_enable=True)
    watch.stop(1, 2, 3).change(epoch=1, leader=-1, isr=(2,)).change(epoch=2, isr=()).see()
    watch.start(leader).change(leader=leader, epoch=3, isr=(leader,)).see()
    assert ("ELE009" in watch.raised) is unclean


def test_of_an_emptied_isr_nobody_is_accused_if_its_last_members_are_not_known() -> None:
    watch = Watch(version="0.10.2.2", isr=(1,)).all_logs(epochs=None).settle()
    watch.stop(1, 2, 3).change(isr=(1, 3)).change(epoch=1, leader=-1, isr=()).see()
    watch.start(3).change(leader=3, epoch=2, isr=(3,)).see()
    assert "ELE009" not in watch.raised


def test_what_is_reckoned_is_bounded() -> None:
    watch = watched()
    for epoch in range(1, MAX_SEGMENTS + 5):
        end = 10 + epoch
        watch.change(epoch=epoch).step()
        watch.log(1, leo=end).step()
        watch.log(2, leo=end).step()
        watch.all_logs(hw=end).step()
    assert len(watch.segments(1)) == MAX_SEGMENTS + 1
    assert watch.segments(1)[0][2] == -1
    assert not watch.raised


def test_segments_compare_by_epoch_and_writer() -> None:
    assert Segment(0, 1, 0, 7)[2:] != Segment(0, 1, 0, 8)[2:]


@pytest.mark.parametrize(
    ("ranges", "few"),
    [
        pytest.param([], (), id="nothing"),
        pytest.param([(5, 9), (0, 5)], ((0, 9),), id="adjacent"),
        pytest.param([(0, 9), (2, 4)], ((0, 9),), id="one-within-the-other"),
        pytest.param([(0, 2), (4, 6)], ((0, 2), (4, 6)), id="apart"),
        pytest.param([(3, 3), (4, 2)], (), id="empty-ones"),
    ],
)
def test_merged(ranges: list[tuple[int, int]], few: tuple[tuple[int, int], ...]) -> None:
    assert merged(OffsetRange(*r) for r in ranges) == few


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        pytest.param([], ((10, 20),), id="nothing-taken"),
        pytest.param([(0, 30)], (), id="all-taken"),
        pytest.param([(12, 14), (16, 18)], ((10, 12), (14, 16), (18, 20)), id="holes"),
        pytest.param([(0, 12), (18, 40)], ((12, 18),), id="both-ends"),
        pytest.param([(0, 5), (30, 40)], ((10, 20),), id="elsewhere"),
    ],
)
def test_without(taken: list[tuple[int, int]], left: tuple[tuple[int, int], ...]) -> None:
    assert without(OffsetRange(10, 20), [OffsetRange(*r) for r in taken]) == left


def test_of_an_isr_that_was_emptied_twice_nobody_is_accused_either() -> None:
    """Between two leaderless rounds broker 1 led again, and 3 joined the ISR."""
    watch = Watch(version="0.10.2.2", isr=(1,)).all_logs(epochs=None).settle()
    watch.stop(1, 2, 3).change(epoch=1, leader=-1, isr=()).see()
    watch.change(epoch=2, leader=1, isr=(1,)).change(isr=(1, 3))
    watch.change(epoch=3, leader=-1, isr=(3,)).change(epoch=4, isr=()).see()
    watch.start(3).change(leader=3, epoch=5, isr=(3,)).see()
    assert "ELE009" not in watch.raised
