"""Divergence without epochs: what proves it under the high-watermark rule, and what does not."""

from __future__ import annotations

from tidestaff.consistency.model import Bracket, OffsetRange, PartitionSettings

from tests.consistency.watch import ROUND_MS, Watch


def both_lost_and_the_shorter_leads(*, watermark: int = 10) -> Watch:
    """1 and 2 hold 10 records; after a power cut 2 comes back with 8, leads, and writes to 12."""
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.all_logs(leo=10, hw=10).see(6)
    if watermark > 10:
        watch.all_logs(leo=watermark, hw=watermark).see(2)
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(2,)).see(2)
    watch.start(2).change(leader=2, epoch=2).log(2, leo=8, hw=8).see()
    watch.log(2, leo=20, hw=20).see()
    watch.raised.clear()
    return watch


def settled(watch: Watch) -> dict[int, int]:
    assert watch.memory is not None
    return {each.broker: each.offset for each in watch.memory.settled_watermarks}


def kept(watch: Watch) -> dict[int, tuple[int, int]]:
    assert watch.memory is not None
    return {tail.broker: (tail.start, tail.end) for tail in watch.memory.kept_tails}


def test_a_replica_that_keeps_its_old_records_has_diverged_once_it_is_back_in_the_isr() -> None:
    watch = both_lost_and_the_shorter_leads()
    watch.start(1).see()
    watch.log(1, leo=20, hw=20).see()
    assert not watch.raised
    watch.change(isr=(2, 1)).see()
    assert watch.raised["TRN006"].broker == 1
    assert watch.raised["TRN006"].offsets == OffsetRange(8, 10)


def test_what_retention_took_from_the_replica_does_not_differ() -> None:
    watch = both_lost_and_the_shorter_leads()
    watch.start(1).log(1, start=9).see()
    watch.log(1, leo=20, hw=20).change(isr=(2, 1)).see()
    assert watch.raised["TRN006"].offsets == OffsetRange(9, 10)
    watch.raised.clear()
    watch.log(1, start=10).see(2)
    assert not watch.raised


def test_a_replica_that_is_seen_to_have_cut_has_not() -> None:
    watch = both_lost_and_the_shorter_leads()
    watch.start(1).log(1, leo=8, hw=8).see()
    watch.log(1, leo=20, hw=20).see()
    watch.change(isr=(2, 1)).see(2)
    assert not watch.raised


def test_a_watermark_that_was_not_checkpointed_yet_keeps_nothing() -> None:
    assert kept(both_lost_and_the_shorter_leads(watermark=14)) == {1: (8, 10)}


def test_a_watermark_that_fell_may_be_in_the_checkpoint() -> None:
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.see(4)
    watch.log(2, hw=7).see()
    assert settled(watch) == {1: 10, 2: 7}


def test_records_of_the_current_epoch_are_the_leaders_own() -> None:
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.see(4)
    watch.append(10).see(4)
    watch.stop(2).change(isr=(1,)).log(1, leo=30, hw=30).see(3)
    assert kept(watch) == {}


def test_a_replica_that_was_only_not_read_may_have_fetched_meanwhile() -> None:
    watch = Watch(version="0.10.2.2", replicas=(1, 2, 3)).all_logs(epochs=None)
    watch.see(4)
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, leo=8, hw=8).log(3, up=False).see()
    watch.log(2, leo=20, hw=20).see()
    assert kept(watch) == {1: (8, 10)}


def test_an_epoch_first_seen_in_a_torn_sample_begins_with_the_first_coherent_one() -> None:
    """An election is often seen while it happens: the metadata change within the bracket."""
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.all_logs(leo=10, hw=10).see(6)
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(2,)).see(2)
    watch.start(2).change(leader=2, epoch=2).log(2, leo=8, hw=8)
    watch.set(bracket=Bracket.STRADDLED).see()
    assert kept(watch) == {}
    watch.set(bracket=Bracket.COHERENT).see()
    watch.log(2, leo=20, hw=20).see()
    assert kept(watch) == {1: (8, 10)}


def the_longer_one_is_back(*, leader_answers: bool) -> Watch:
    """1 and 2 hold 10 records; 2 comes back with 8 and leads, then 1 is seen with its 10."""
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.see(6)
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(2,)).see(2)
    watch.start(2).change(leader=2, epoch=2).log(2, leo=8, hw=8, up=leader_answers)
    if leader_answers:
        watch.see()
    return watch.start(1)


def test_a_replica_longer_than_its_leader_is_cut_there_before_it_goes_again() -> None:
    """Its next fetch is out of range. It goes again, the leader writes on in a new epoch, and what
    it comes back with it has fetched."""
    watch = the_longer_one_is_back(leader_answers=True)
    watch.see()
    watch.raised.clear()
    watch.stop(1).change(epoch=3).see()
    watch.log(2, leo=20, hw=20).see()
    assert kept(watch) == {}
    watch.start(1).log(1, leo=20, hw=20).see()
    watch.change(isr=(2, 1)).see(2)
    assert not watch.raised


def test_of_a_leader_that_does_not_answer_the_end_it_was_first_seen_with_is_certain() -> None:
    watch = the_longer_one_is_back(leader_answers=True)
    watch.log(2, leo=9, hw=9, up=False).see()
    assert settled(watch) == {1: 8, 2: 8}


def test_a_leader_nobody_has_seen_may_have_cut_its_follower_to_nothing() -> None:
    watch = the_longer_one_is_back(leader_answers=False)
    watch.see()
    assert settled(watch) == {1: 0, 2: 10}


def test_where_nobody_leads_nobody_is_cut() -> None:
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.see(6)
    watch.stop(2).change(leader=-1, epoch=1, isr=(2,)).see(2)
    assert settled(watch) == {1: 10, 2: 10}


def the_shorter_one_leads(*, every_ms: int = ROUND_MS) -> Watch:
    """1 and 2 hold 10 records and go; 2 comes back with 8 and leads in epoch 2, 1 is away."""
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.see(6)
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(2,)).see(2)
    watch.start(2).change(leader=2, epoch=2).log(2, leo=8, hw=8).see(every_ms=every_ms)
    return watch


def writes_on_and_the_other_one_is_back(watch: Watch) -> Watch:
    """2 writes to 20, 1 is back with all of it, and in the ISR."""
    watch.log(2, leo=20, hw=20).see()
    watch.raised.clear()  # the loss that precedes it
    watch.start(1).log(1, leo=20, hw=20).see()
    watch.change(isr=(2, 1)).see(2)
    return watch


def test_a_replica_away_in_every_sample_has_kept_its_tail() -> None:
    watch = writes_on_and_the_other_one_is_back(the_shorter_one_leads())
    assert watch.raised["TRN006"].offsets == OffsetRange(8, 10)


def test_a_replica_may_have_been_cut_between_samples_further_apart_than_a_session() -> None:
    """Back, cut to 8 by its first fetch, and crashed: a session later no sample can tell."""
    session_ms = PartitionSettings().session_timeout_ms
    assert settled(the_shorter_one_leads(every_ms=session_ms))[1] == 10
    watch = the_shorter_one_leads(every_ms=session_ms + 1)
    assert settled(watch)[1] == 0
    assert not writes_on_and_the_other_one_is_back(watch).raised


def test_a_replica_may_have_been_cut_while_the_same_leader_wrote_nothing() -> None:
    """Of a leader that was seen in its epoch the end it had then is certain."""
    watch = the_shorter_one_leads()
    watch.see(every_ms=PartitionSettings().session_timeout_ms + 1)
    assert settled(watch)[1] == 8
    assert not writes_on_and_the_other_one_is_back(watch).raised


def test_a_replica_that_was_seen_registered_but_not_read_may_have_been_cut() -> None:
    watch = the_shorter_one_leads()
    watch.start(1).log(1, up=False).see()
    watch.stop(1)
    assert not writes_on_and_the_other_one_is_back(watch).raised


def test_a_replica_that_is_registered_but_not_read_may_follow_a_leader_nobody_has_seen() -> None:
    watch = Watch(version="0.10.2.2").all_logs(epochs=None)
    watch.see(6)
    watch.log(3, up=False).see()
    assert settled(watch) == {1: 10, 2: 10, 3: 10}, "its leader had all of it"
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).see()
    assert settled(watch) == {1: 10, 2: 10, 3: 0}


def test_a_replica_that_is_elected_itself_is_not_cut() -> None:
    """Both lost power; the one whose session ends later is elected though it is dead."""
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.see(6)
    watch.stop(1).change(leader=2, epoch=1, isr=(2,)).log(2, up=False).see()
    assert settled(watch) == {1: 10, 2: 10}


def test_a_replica_that_led_after_an_epoch_nobody_saw_may_have_been_cut_in_that() -> None:
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.see(6)
    watch.stop(1).change().change(leader=2, epoch=2, isr=(2,)).log(2, up=False).see()
    assert settled(watch) == {1: 10, 2: 0}


def test_a_replica_that_joined_the_isr_and_left_between_two_samples_was_back() -> None:
    """Two writes, one new epoch: 1 was back, was cut, joined the ISR, and stopped."""
    watch = the_shorter_one_leads()
    watch.change().change(epoch=3).see()
    assert settled(watch)[1] == 0
    assert not writes_on_and_the_other_one_is_back(watch).raised


def test_writes_that_all_began_epochs_let_nobody_join() -> None:
    watch = the_shorter_one_leads()
    watch.change(epoch=3).see()
    assert settled(watch)[1] == 10
    writes_on_and_the_other_one_is_back(watch)
    assert watch.raised["TRN006"].offsets == OffsetRange(8, 10)


def test_a_source_that_does_not_tell_versions_is_believed_within_a_session() -> None:
    watch = the_shorter_one_leads().set(version_of_state=-1)
    watch.see()
    watch.set(epoch=3).see()
    assert settled(watch)[1] == 10


def test_a_torn_sample_also_tells_who_may_have_been_back() -> None:
    watch = the_shorter_one_leads()
    watch.start(1).log(1, up=False).set(bracket=Bracket.STRADDLED).see()
    assert settled(watch)[1] == 8


def test_where_nobody_leads_any_more_somebody_may_have_led_since_the_last_sample() -> None:
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.see(6)
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(2,))
    watch.see(every_ms=PartitionSettings().session_timeout_ms + 1)
    assert settled(watch) == {1: 0, 2: 0}
