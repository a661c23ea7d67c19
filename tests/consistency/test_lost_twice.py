"""Offsets can be lost more than once: other records are written there, committed, and gone again.

Each story was found by the random search (`python -m tests.proof.search`) and made short.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidestaff.consistency.memory import MAX_BESIDE, UNKNOWN_EPOCH, Beside, Lost
from tidestaff.consistency.model import Bracket, Lineage, OffsetRange
from tidestaff.consistency.monitor import step

from tests.consistency.watch import Watch, lineage


def epochs_of(version: str, *entries: tuple[int, int]) -> Lineage | None:
    return None if version == "0.10.2.2" else lineage(*entries)


def lost_once(version: str) -> Watch:
    """Broker 1 had committed 20; 2 is elected with 10, then 3, and 2 does not know of it."""
    watch = Watch(version=version).all_logs(epochs=epochs_of(version, (0, 0))).settle()
    watch.append(10).see()
    watch.stop(1).change(leader=2, epoch=1, isr=(2,))
    watch.all_logs(leo=10, hw=10).log(2, epochs=epochs_of(version, (0, 0), (1, 10))).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 20)
    watch.change(leader=3, epoch=2, isr=(3,)).log(2, believes=1, leads=True)
    watch.log(3, epochs=epochs_of(version, (0, 0), (2, 10))).see()
    watch.raised.clear()
    return watch


@pytest.mark.parametrize("version", ["3.9.1", "0.10.2.2"])
def test_what_a_deposed_leader_commits_at_offsets_that_were_lost_is_lost_anew(version: str) -> None:
    """While it does so, nobody in office answers; with their first word the loss is known."""
    watch = lost_once(version)
    watch.log(3, up=False).log(2, leo=15, hw=15).see(2)
    assert "TRN001" not in watch.raised
    watch.log(3, up=True).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 15)
    watch.see(3)
    assert "TRN001" not in watch.raised, "the deposed leader goes on showing the same records"


@pytest.mark.parametrize("version", ["3.9.1", "0.10.2.2"])
def test_what_it_commits_there_beside_the_leader_in_office_is_lost_at_once(version: str) -> None:
    """Without epochs, too: that it wrote on shows that these are others."""
    watch = lost_once(version)
    watch.log(2, leo=15, hw=15).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 15)


def test_records_of_another_epoch_are_other_records() -> None:
    """Nobody saw the deposed leader write them: it was silent until then."""
    watch = lost_once("3.9.1")
    watch.log(2, up=False).see(2)
    watch.log(2, up=True, leo=15, hw=15).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 15)


def test_records_of_another_epoch_are_other_records_also_after_a_restart() -> None:
    """The deposed leader committed them unseen, and comes back as a follower with its HW."""
    watch = lost_once("3.9.1")
    watch.stop(2).see(2)
    watch.start(2).log(2, leo=15, hw=15, leads=False).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 15)


def test_records_that_another_had_shown_are_not_lost_anew_with_their_writer() -> None:
    """Seed 2007 of the search: the deposed leader wrote them unseen, a follower of it showed them
    first, and with that they were reported. What it goes on to write is new."""
    watch = lost_once("3.9.1")
    watch.log(2, up=False).see(2)
    copied = lineage((0, 0), (1, 10))
    watch.start(1).log(1, leo=15, hw=15, leads=False, believes=1, epochs=copied).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 15)
    watch.log(2, up=True, leo=15, hw=15).see()
    assert "TRN001" not in watch.raised
    watch.log(2, leo=18, hw=18).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(15, 18)


def test_lost_records_that_somebody_still_shows_are_not_lost_anew() -> None:
    """Broker 1 returns with all that was lost, and with an HW over it."""
    watch = lost_once("3.9.1")
    watch.start(1).log(1, leo=20, hw=20, leads=False, believes=0).see(3)
    assert "TRN001" not in watch.raised


def test_what_the_leader_writes_where_others_were_lost_leaves_them_reported() -> None:
    """Its new records are first seen in a round in which the metadata changed."""
    watch = lost_once("3.9.1")
    watch.start(1).log(1, leo=20, hw=20, leads=False, believes=0, epochs=lineage((0, 0))).see()
    watch.log(3, leo=15, hw=15).set(bracket=Bracket.STRADDLED).see()
    watch.set(bracket=Bracket.COHERENT).see(3)
    assert "TRN001" not in watch.raised


def test_an_unseen_commit_beyond_the_ledger_is_taken_over_from_other_records() -> None:
    """The deposed leader is gone before anybody in office answers: the ledger knows its commit."""
    watch = lost_once("3.9.1")
    watch.log(3, up=False).log(2, leo=15, hw=15).see()
    watch.stop(2).log(3, up=True).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 15)


def test_a_leader_that_writes_on_within_the_round_has_lost_what_its_first_word_lacks() -> None:
    watch = Watch(version="0.10.2.2").all_logs(epochs=None).settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).all_logs(leo=8, hw=8)
    watch.now_ms += 5_000
    seen = watch.observation()
    again = watch.reading(2)._replace(log_end_offset=14)
    _, verdicts = step(watch.memory, replace(seen, leader_again=again))
    [lost] = [v for v in verdicts.violated if v.code == "TRN001"]
    assert (lost.offsets, lost.broker) == (OffsetRange(8, 10), 2)


def committing_beyond_a_loss(version: str) -> Watch:
    """Seed 8010 of the search: broker 1 slept while 2 was elected with 10 of its 20; what was lost
    is reported. It awakes, and nobody in office answers while it shows 25 of its own."""
    watch = Watch(version=version).all_logs(epochs=epochs_of(version, (0, 0))).settle()
    watch.append(10).see()
    watch.log(1, up=False).change(leader=2, epoch=1, isr=(2,)).log(1, believes=0, leads=True)
    watch.log(2, leo=10, hw=10, epochs=epochs_of(version, (0, 0), (1, 10)))
    watch.log(3, leo=10, hw=10).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 20)
    watch.log(2, up=False).log(1, up=True, leo=25, hw=25).see(2)
    assert "TRN001" not in watch.raised
    return watch


WITH_AND_WITHOUT_EPOCHS = pytest.mark.parametrize("version", ["3.9.1", "0.10.2.2"])


@WITH_AND_WITHOUT_EPOCHS
@pytest.mark.parametrize("still_shown", [False, True])
def test_what_a_deposed_leader_commits_beyond_a_reported_loss_is_lost(
    version: str, *, still_shown: bool
) -> None:
    watch = committing_beyond_a_loss(version)
    watch.log(1, up=still_shown).log(2, up=True).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(20, 25), "and no more than that"
    watch.log(1, up=True).see(3)
    watch.log(2, up=False).see(2)
    watch.log(2, up=True).see(2)
    assert "TRN001" not in watch.raised, "reported once"
    assert watch.memory is not None
    assert watch.memory.beside == ()


@WITH_AND_WITHOUT_EPOCHS
def test_what_it_goes_on_to_commit_is_lost_when_it_is_shown(version: str) -> None:
    watch = committing_beyond_a_loss(version)
    watch.log(2, up=True).see()
    watch.raised.clear()
    watch.log(2, up=False).log(1, leo=27, hw=27).see()
    watch.log(2, up=True).log(1, up=False).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(25, 27)


@WITH_AND_WITHOUT_EPOCHS
def test_what_the_deposed_leader_still_has_when_it_is_back_in_office_is_not_lost(
    version: str,
) -> None:
    """Its HW may lag at first."""
    watch = committing_beyond_a_loss(version)
    watch.change(leader=1, epoch=2, isr=(1,)).log(1, hw=10, believes=2)
    watch.log(1, epochs=epochs_of(version, (0, 0), (2, 25))).see(2)
    watch.log(1, hw=25).see(2)
    assert "TRN001" not in watch.raised
    assert watch.memory is not None
    assert watch.memory.beside == ()
    assert watch.memory.committed_end == 25


def test_what_may_be_there_again_without_epochs_is_not_lost() -> None:
    """The one in office has as many: whose they are, nobody can tell. Of what it has not, all."""
    watch = committing_beyond_a_loss("0.10.2.2")
    watch.log(1, up=False).log(2, up=True, leo=23, hw=23).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(23, 25)
    watch = committing_beyond_a_loss("0.10.2.2")
    watch.log(1, up=False).log(2, up=True, leo=25, hw=25).see(2)
    assert "TRN001" not in watch.raised


@WITH_AND_WITHOUT_EPOCHS
@pytest.mark.parametrize("in_office", [False, True])
def test_a_commit_that_a_torn_round_showed_is_reported_once(
    version: str, *, in_office: bool
) -> None:
    """The deposed leader shows it again later, with the one in office or without."""
    watch = lost_once(version)
    watch.log(3, up=False).log(2, leo=15, hw=15).set(bracket=Bracket.STRADDLED).see()
    watch.log(2, up=False).log(3, up=True).set(bracket=Bracket.COHERENT).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 15)
    watch.log(2, up=True).log(3, up=in_office).see()
    watch.log(3, up=True).see()
    assert "TRN001" not in watch.raised
    watch.log(2, leo=17, hw=17).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(15, 17)


def back_in_office(version: str) -> Watch:
    """Broker 1 is elected again with what was reported as lost. It is seen in office once, in a
    round that straddles a change."""
    watch = committing_beyond_a_loss(version)
    watch.change(leader=1, epoch=2, isr=(1,), bracket=Bracket.STRADDLED)
    return watch.log(1, believes=2, epochs=epochs_of(version, (0, 0), (2, 25)))


@WITH_AND_WITHOUT_EPOCHS
def test_what_was_lost_and_came_back_to_office_in_a_torn_round_can_be_lost_again(
    version: str,
) -> None:
    """Seed 9028 of the search."""
    watch = back_in_office(version)
    watch.see()
    watch.stop(1).change(leader=2, epoch=3, isr=(2,), bracket=Bracket.COHERENT).log(2, up=True)
    watch.log(2, epochs=epochs_of(version, (0, 0), (1, 10))).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 25)
    watch.see(3)
    assert "TRN001" not in watch.raised, "reported once"


@WITH_AND_WITHOUT_EPOCHS
def test_what_was_lost_does_not_come_back_to_office_by_old_metadata(version: str) -> None:
    """Broker 3 has heard of a later epoch than that in which broker 1 leads."""
    watch = back_in_office(version)
    watch.log(3, believes=3).see()
    watch.stop(1).change(leader=2, epoch=3, isr=(2,), bracket=Bracket.COHERENT).log(2, up=True)
    watch.log(2, epochs=epochs_of(version, (0, 0), (1, 10))).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(20, 25)


def deposed_but_committing(*epochs: tuple[int, int], topic_id: bool = True) -> Watch:
    """Broker 2 leads with all 20; broker 1 has heard of it only after one more fetch of 3."""
    watch = Watch().settle()
    watch.append(10).see()
    watch.change(leader=2, epoch=1, isr=(2, 3)).all_logs(hw=15).log(1, leo=20, hw=18)
    watch.log(1, leads=True, believes=0, topic_id=watch.topic_id if topic_id else None)
    watch.log(2, leo=20, epochs=lineage(*epochs), leads=True, believes=1)
    watch.memory = watch.memory and watch.memory._replace(committed_end=15, ledger_end=15)
    watch.see()
    return watch


def committed_to(watch: Watch) -> int:
    assert watch.memory is not None
    return watch.memory.committed_end


def test_what_a_deposed_leader_commits_of_what_the_new_one_has_is_committed() -> None:
    assert committed_to(deposed_but_committing((0, 0), (1, 20))) == 18


def test_what_a_deposed_leader_commits_beside_the_new_one_is_not_the_new_ones() -> None:
    watch = deposed_but_committing((0, 0), (1, 17))
    assert watch.raised["TRN001"].offsets == OffsetRange(17, 18)
    assert committed_to(watch) == 17


def test_a_deposed_leader_without_a_topic_id_commits_nothing_for_the_new_one() -> None:
    assert committed_to(deposed_but_committing((0, 0), (1, 20), topic_id=False)) == 15


def test_where_a_lineage_does_not_reach_nothing_is_in_common() -> None:
    assert committed_to(deposed_but_committing((1, 20))) == 15


def elected_twice() -> Watch:
    """Broker 1 had committed 20. In a round that is not judged broker 2 is seen to lead with 10 of
    these and to have committed 3 of its own."""
    watch = Watch().settle()
    watch.append(10).see()
    watch.stop(1).change(leader=2, epoch=1, isr=(2,), bracket=Bracket.STRADDLED)
    watch.log(2, leo=13, hw=13, epochs=lineage((0, 0), (1, 10)), leads=True, believes=1)
    watch.log(2, topic_id=watch.topic_id).see()
    assert "TRN001" not in watch.raised
    return watch


def test_commits_that_only_a_round_between_showed_are_lost_when_the_old_leader_is_back() -> None:
    watch = elected_twice()
    watch.stop(2).start(1).change(leader=1, epoch=2, isr=(1,), bracket=Bracket.COHERENT)
    watch.log(1, leo=20, hw=20, epochs=lineage((0, 0), (2, 20))).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 13)
    assert watch.memory is not None
    assert watch.memory.beside == ()
    assert watch.memory.committed_end == 20, "the ledger had the others, and they are there"
    watch.see(3)
    assert "TRN001" not in watch.raised, "reported once"


def test_a_lower_watermark_of_the_old_leader_leaves_the_ledger_as_it_was() -> None:
    """Its HW rises again with its followers; what it had committed before is not forgotten."""
    watch = elected_twice()
    watch.stop(2).start(1).change(leader=1, epoch=2, isr=(1, 3), bracket=Bracket.COHERENT)
    watch.log(3, leo=20, hw=8)
    watch.log(1, leo=20, hw=8, epochs=lineage((0, 0), (2, 20))).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 13)
    assert watch.memory is not None
    assert watch.memory.committed_end == 20
    assert watch.memory.beside == ()


def test_commits_that_only_a_round_between_showed_are_kept_by_who_showed_them() -> None:
    """The next round is judged: broker 1's are lost, its own are not; nor when 3 follows it."""
    watch = elected_twice()
    watch.set(bracket=Bracket.COHERENT).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 20)
    watch.log(3, leo=13, hw=13, epochs=lineage((0, 0), (1, 10))).change(isr=(2, 3)).see(3)
    assert "TRN001" not in watch.raised
    assert watch.memory is not None
    assert watch.memory.beside == ()


def test_commits_of_a_later_leader_than_the_metadata_knows_wait_for_the_metadata() -> None:
    """Old metadata: broker 1 still leads by it and answers, broker 2 was elected in epoch 1."""
    watch = Watch().settle()
    watch.append(10).see()
    watch.log(1, up=False)
    watch.log(2, leo=13, hw=13, epochs=lineage((0, 0), (1, 10)), leads=True, believes=1)
    watch.log(2, topic_id=watch.topic_id).log(3, up=False).see(2)
    watch.log(2, up=False).log(1, up=True).see(2)
    assert "TRN001" not in watch.raised
    assert watch.memory is not None
    assert [tuple(each) for each in watch.memory.beside] == [((10, 13), 1, 1)]
    watch.change(leader=1, epoch=2, isr=(1,)).log(1, epochs=lineage((0, 0), (2, 20))).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 13)


def test_a_leader_without_a_topic_id_may_speak_of_a_deleted_topic() -> None:
    watch = Watch().settle()
    watch.append(10).see()
    watch.stop(1).change(leader=2, epoch=1, isr=(2,), bracket=Bracket.STRADDLED)
    watch.log(2, leo=13, hw=13, epochs=lineage((0, 0), (1, 10)), leads=True, believes=1).see()
    assert watch.memory is not None
    assert watch.memory.beside == ()


def test_commits_beside_the_ledger_are_few_however_long_nobody_answers() -> None:
    watch = elected_twice()
    for end in range(14, 200):
        watch.log(2, leo=end, hw=end).see()
    assert watch.memory is not None
    [beside] = watch.memory.beside
    assert beside.offsets == OffsetRange(10, 20), "beyond it, the ledger itself has taken them over"
    assert watch.memory.committed_end == 199
    for epoch in range(3, 60):
        epochs = lineage((0, 0), *((e, 8 + e) for e in range(3, epoch + 1)))
        watch.log(2, leo=190, hw=190, epochs=epochs, believes=epoch).see()
    assert len(watch.memory.beside) <= MAX_BESIDE


def test_commits_beside_the_ledger_wait_for_a_round_that_reads_the_lineage() -> None:
    watch = elected_twice()
    watch.start(1).change(leader=1, epoch=2, isr=(1, 2, 3), bracket=Bracket.COHERENT)
    watch.log(2, leads=False, believes=2).all_logs(leo=20, hw=20, epochs=None).see(4)
    assert "TRN001" not in watch.raised
    watch.all_logs(epochs=lineage((0, 0), (2, 20))).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 13)


def test_what_somebody_in_office_has_committed_is_settled() -> None:
    watch = Watch().settle()
    assert watch.memory is not None
    watch.memory = watch.memory._replace(beside=(Beside(OffsetRange(5, 8), 0, 0),), calm=None)
    watch.all_logs(hw=7).see(3)
    assert watch.memory.beside, "its HW is below the commit that was seen: it is not forgotten"
    watch.all_logs(hw=10).see()
    assert watch.memory.beside == ()
    assert watch.memory.calm is not None


def test_what_was_reported_as_lost_does_not_wait_for_anybody() -> None:
    """Broker 1, deposed, is back on the network and shows what was lost."""
    watch = lost_once("3.9.1")
    watch.start(1).log(3, up=False).log(1, leo=20, hw=20, epochs=lineage((0, 0)), leads=True)
    watch.log(1, believes=0, topic_id=watch.topic_id).see()
    assert watch.memory is not None
    assert watch.memory.beside == ()


def test_retention_settles_what_was_committed_beside_the_ledger() -> None:
    watch = elected_twice()
    watch.stop(2).start(1).change(leader=1, epoch=2, isr=(1,), bracket=Bracket.COHERENT)
    watch.log(1, start=15, leo=20, hw=20, epochs=lineage((0, 15), (2, 20))).see()
    assert "TRN001" not in watch.raised
    assert watch.memory is not None
    assert watch.memory.beside == ()


def test_state_that_was_kept_without_epochs_knows_none() -> None:
    watch = lost_once("3.9.1")
    assert watch.memory is not None
    assert watch.memory.losses == (Lost(OffsetRange(10, 20), 0),)
    old = watch.memory._replace(lost_epochs=())
    assert old.losses == (Lost(OffsetRange(10, 20), UNKNOWN_EPOCH),)


def test_what_a_deposed_leader_wrote_unseen_and_others_showed_is_lost_once() -> None:
    """Seed 33027 of the search: broker 1 is seen with 10, writes 7 more and sleeps before the next
    sample; 3 shows them committed. They are reported, and 1 awakes with them while 2 is away."""
    watch = Watch(isr=(1, 3)).settle()
    watch.log(1, up=False).log(3, leo=17, hw=17).see()
    watch.change(leader=2, epoch=1, isr=(2,)).log(1, believes=0, leads=True)
    watch.log(2, epochs=lineage((0, 0), (1, 10))).log(3, believes=0).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 17)
    watch.log(3, up=False).log(2, up=False).log(1, up=True, leo=17, hw=17).see(2)
    watch.log(2, up=True).see(2)
    assert "TRN001" not in watch.raised


@pytest.mark.parametrize(("version", "elected"), [("3.9.1", 3), ("2.4.1", 3), ("0.10.2.2", 1)])
def test_what_a_member_of_the_isr_keeps_of_a_reported_loss_is_not_lost_again(
    version: str, elected: int
) -> None:
    """Seed 34019 of the search, 2.4.1: broker 3 cannot reach its leader 2 and keeps the records
    that were lost, with its old HW over them, where 2 has written others that are not committed.
    The next leader does not hold those, and nothing committed is missing from it."""
    watch = Watch(version=version).all_logs(epochs=epochs_of(version, (0, 0))).settle()
    watch.append(10).see()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(3, believes=1, leads=False)
    watch.log(2, leo=10, hw=10, epochs=epochs_of(version, (0, 0), (1, 10))).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 20)
    watch.log(2, leo=30).see(3)
    assert committed_to(watch) == 10
    watch.stop(2).log(1, leo=10, hw=10).start(1).change(leader=elected, epoch=2, isr=(elected,))
    watch.log(elected, believes=2, leads=True, epochs=epochs_of(version, (0, 0), (2, 20))).see(3)
    assert "TRN001" not in watch.raised


@pytest.mark.parametrize("version", ["0.11.0.0", "1.1.1", "2.0.1", "3.9.1"])
@pytest.mark.parametrize("in_sync", [True, False])
def test_the_first_records_of_an_epoch_are_not_of_the_one_before(
    version: str, *, in_sync: bool
) -> None:
    """Seeds 34009 and 36003 of the search, 1.1.1: before 2.0.1 a leader lists its epoch with its
    first record. Here it writes that after it was read; its follower shows it as committed."""
    watch = Watch(version=version).settle()
    at_once = version in {"2.0.1", "3.9.1"}
    watch.change(leader=2, epoch=1, isr=(2, 3) if in_sync else (2,)).stop(1)
    watch.log(2, epochs=lineage((0, 0), (1, 10)) if at_once else lineage((0, 0))).see()
    watch.now_ms += 1
    grown = watch.log(3, leo=15, hw=15, epochs=lineage((0, 0), (1, 10))).observation()
    again = watch.reading(2)._replace(log_end_offset=15)
    watch.memory, verdicts = step(watch.memory, replace(grown, leader_again=again))
    assert verdicts.violated == ()
    watch.now_ms += 1
    watch.log(2, leo=15, hw=15, epochs=lineage((0, 0), (1, 10))).see(3)
    assert watch.raised == {}


@pytest.mark.parametrize("version", ["0.11.0.0", "2.0.1", "2.4.1", "3.9.1"])
def test_what_a_leader_committed_in_a_torn_round_over_lost_records_can_be_lost(
    version: str,
) -> None:
    """Seed 34002 of the search, 2.0.1: elected uncleanly with 10 of 20, broker 2 has committed 30
    when it is seen first, in a round that straddles a change. The next leader has the old 20."""
    topic_id = "topic-id-0000000000001" if version == "3.9.1" else None
    watch = Watch(version=version, topic_id=topic_id)
    watch.all_logs(epochs=lineage((0, 0)), topic_id=topic_id).settle()
    watch.append(10).see()
    watch.stop(1, 3).change(leader=2, epoch=1, isr=(2,), bracket=Bracket.STRADDLED)
    watch.log(2, leo=30, hw=30, epochs=lineage((0, 0), (1, 10))).see()
    watch.stop(2).start(3).change(leader=3, epoch=2, isr=(3,), bracket=Bracket.COHERENT)
    watch.log(3, epochs=lineage((0, 0), (2, 20))).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 30)
    watch.see(3)
    assert "TRN001" not in watch.raised, "reported once"


@pytest.mark.parametrize("version", ["1.1.1", "2.4.1", "3.9.1"])
@pytest.mark.parametrize(
    ("compacted", "epochs"),
    [
        pytest.param(False, ((0, 0), (3, 5)), id="the-same"),
        pytest.param(True, ((1, 0), (3, 8)), id="built-anew-of-a-compacted-topic"),
        pytest.param(False, ((3, 20),), id="unknown-up-to-there"),
    ],
)
def test_a_member_of_the_isr_shows_what_an_old_leader_committed_unseen(
    version: str, compacted: bool, epochs: tuple[tuple[int, int], ...]
) -> None:
    """Where its epochs do not tell that its records are others, its HW counts."""
    watch = Watch(version=version, epoch=3).setting(compacted=compacted)
    watch.all_logs(epochs=lineage((0, 0), (3, 5))).log(3, epochs=lineage(*epochs)).settle()
    watch.stop(1).change(leader=2, epoch=4, isr=(2, 3))
    watch.log(2, leo=20, hw=10, epochs=lineage((0, 0), (3, 5), (4, 20)))
    watch.log(3, leo=20, hw=20).see()
    assert watch.raised == {}
    watch.stop(2, 3).start(1).change(leader=1, epoch=5, isr=(1,))
    watch.log(1, leo=15, hw=15, epochs=lineage((0, 0), (3, 5), (5, 15))).see(3)
    assert watch.raised["TRN001"].offsets == OffsetRange(15, 20)


@pytest.mark.parametrize("epochs_named", [True, False])
def test_a_loss_is_told_whole_also_where_brokers_do_not_name_their_epoch(
    epochs_named: bool,
) -> None:
    """Before 2.1 they do not: of the leader in office the bracket tells it."""
    watch = Watch(version="1.1.1", topic_id=None, epochs_named=epochs_named)
    watch.all_logs(leo=20, hw=20).log(3, leo=10, hw=10).set(isr=(1, 2)).see(4)
    watch.stop(1, 2).change(leader=3, epoch=1, isr=(3,))
    watch.log(3, leo=30, hw=30, epochs=lineage((0, 0), (1, 10))).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 20)


@pytest.mark.parametrize("version", ["2.0.1", "2.4.1", "3.9.1"])
def test_who_was_seen_in_office_goes_on_committing_when_nobody_is(version: str) -> None:
    """Seed 111000 of the search, 2.0.1: elected uncleanly with 10 of 20, broker 2 has committed 12
    when it is seen, in a round that straddles a change, and 16 when the controller names nobody.
    The next leader has the old 20."""
    topic_id = "topic-id-0000000000001" if version == "3.9.1" else None
    watch = Watch(version=version, topic_id=topic_id)
    watch.all_logs(epochs=lineage((0, 0)), topic_id=topic_id).settle()
    watch.append(10).see()
    watch.stop(1, 3).change(leader=2, epoch=1, isr=(2,), bracket=Bracket.STRADDLED)
    watch.log(2, leo=12, hw=12, epochs=lineage((0, 0), (1, 10))).see()
    watch.change(leader=-1, epoch=2, bracket=Bracket.COHERENT)
    watch.log(2, leads=True, believes=1, leo=16, hw=16).see()
    watch.stop(2).start(3).change(leader=3, epoch=3, isr=(3,))
    watch.log(3, leads=True, epochs=lineage((0, 0), (3, 20))).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 16)
