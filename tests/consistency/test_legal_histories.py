"""Legal histories that once made the monitor cry wolf: each is a fault of ours that must not
return."""

from __future__ import annotations

import pytest
from tidestaff.consistency.model import Bracket, OffsetRange, Registration
from tidestaff.consistency.verdict import Unknown
from tidestaff.consistency.versions import Mode

from tests.consistency.watch import Watch, lineage


def test_epochs_that_were_not_read_for_some_rounds_prove_no_loss() -> None:
    """The HW passes an epoch boundary while the leader's lineage is away."""
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=None).see()
    watch.log(2, leo=20, hw=20).log(3, leo=20, hw=20, epochs=lineage((0, 0), (1, 10))).see(3)
    watch.log(2, epochs=lineage((0, 0), (1, 10))).see(3)
    assert not watch.raised


@pytest.mark.parametrize(("version", "mode"), [("4.1.1", Mode.KRAFT), ("3.9.1", Mode.ZOOKEEPER)])
def test_a_predicted_cut_does_not_outlive_a_restart(version: str, mode: Mode) -> None:
    """The follower comes back on a new disk in the same leader epoch."""
    watch = Watch(version=version, mode=mode, replicas=(2, 1, 3), leader=1).settle()
    watch.append(990).see(2)
    watch.change(leader=2, epoch=1).log(2, epochs=lineage((0, 0), (1, 1000))).see(3)
    watch.append(1000).all_logs(epochs=lineage((0, 0), (1, 1000))).see(3)
    watch.change(isr=(2, 1)).see()
    watch.stop(3).see(3)
    watch.start(3).log(3, leo=0, hw=0, epochs=()).see()
    watch.log(3, leo=300, hw=300, epochs=lineage((0, 0))).see(3)
    assert not watch.raised


def test_a_kraft_move_of_a_single_replica_is_not_an_unclean_election() -> None:
    """One record adds the replica, completes the reassignment and moves the leader."""
    watch = Watch(version="4.1.1", mode=Mode.KRAFT, replicas=(1,)).settle()
    watch.live[2] = Registration(2, 102)
    watch.log(2, leo=0, hw=0, epochs=())
    watch.change(replicas=(2, 1), adding=(2,), removing=(1,)).see(2)
    watch.log(2, leo=10, hw=10, epochs=lineage((0, 0))).see()
    watch.change(replicas=(2,), adding=(), removing=(), leader=2, isr=(2,), epoch=1)
    watch.log(2, epochs=lineage((0, 0), (1, 10))).log(1, up=False).see(2)
    assert not watch.raised


def test_a_first_epoch_entry_follows_the_log_start() -> None:
    watch = Watch(epoch=1).all_logs(leo=100, hw=100, start=40, epochs=lineage((1, 40))).settle()
    watch.log(1, epochs=lineage((1, 55))).log(2, epochs=lineage((1, 60))).see()
    watch.log(3, epochs=lineage((1, 70))).see(2)
    assert not watch.raised


def test_an_isr_shrink_that_a_brokers_cache_has_not_learnt_is_no_exposure() -> None:
    watch = Watch(version="2.6.0", authoritative=False).settle()
    watch.log(1, leo=50, hw=50).log(2, leo=50, hw=50).log(3, leo=12, hw=12).see(10)
    assert not watch.raised
    watch.see(10)
    assert set(watch.raised) == {"HWM004"}


def test_a_topic_that_waits_for_its_deletion_is_left_alone() -> None:
    watch = Watch().settle()
    watch.set(deleting=True).stop(1, 3)
    verdicts = watch.see(12)
    assert not watch.raised
    assert isinstance(verdicts.of("ELE004"), Unknown)


def test_a_deposed_leader_that_grows_by_its_own_writes_has_not_fetched() -> None:
    watch = Watch().settle()
    watch.live.pop(1)
    watch.change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.log(1, leads=True, believes=0, leo=15).see()
    watch.log(1, leo=18).see()
    watch.start(1).log(1, leo=22, leads=None, believes=1)
    watch.log(2, leo=30, hw=30).log(3, leo=30, hw=30, epochs=lineage((0, 0), (1, 10))).see()
    assert set(watch.raised) <= {"TRN005"}


def test_a_follower_two_rounds_behind_is_not_out_of_sync() -> None:
    watch = Watch().settle()
    ends = [watch.logs[1].leo]
    for _ in range(60):
        ends.append(ends[-1] + 10)
        behind, older = ends[max(0, len(ends) - 3)], ends[max(0, len(ends) - 4)]
        watch.log(1, leo=ends[-1], hw=behind).log(2, leo=ends[-1], hw=behind)
        watch.log(3, leo=behind, hw=older).see()
    assert not watch.raised


def test_a_follower_that_falls_ever_further_behind_is() -> None:
    watch = Watch().settle()
    for _ in range(60):
        watch.log(1, leo=watch.logs[1].leo + 100).log(2, leo=watch.logs[1].leo + 100)
        watch.log(3, leo=watch.logs[3].leo + 10).see()
    assert "ISR003" in watch.raised


def test_an_unseen_leader_may_have_been_shorter() -> None:
    watch = Watch(version="3.9.1", mode=Mode.KRAFT, leader=3).log(1, leo=12)
    watch.log(2, leo=20).log(3, leo=20).see(3)
    watch.stop(1).change(leader=2, epoch=2, isr=(2, 3)).set(version_of_state=2)
    watch.log(2, epochs=lineage((0, 0), (2, 20))).log(3, leo=12).see(2)
    assert not watch.raised


def test_a_replica_that_was_moved_away_and_back_unseen_starts_anew() -> None:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT).all_logs(leo=1000, hw=1000).settle()
    watch.change(epoch=2, isr=(1, 2)).set(version_of_state=9)
    watch.log(1, epochs=lineage((0, 0), (2, 1000))).log(3, leo=30, hw=30)
    watch.see(every_ms=900_000)
    assert not watch.raised


def test_an_older_answer_of_a_lagging_zookeeper_server_is_not_taken_over() -> None:
    watch = Watch(version_of_state=5).settle()
    watch.change(isr=(1, 2)).see(2)
    watch.set(isr=(1, 2, 3), version_of_state=5).see()
    watch.set(isr=(1, 2), version_of_state=6).see(2)
    assert not watch.raised
    assert watch.memory is not None
    assert watch.memory.state.isr == (1, 2)


def test_up_to_2_3_the_order_of_a_reassigned_topic_says_nothing() -> None:
    watch = Watch(version="2.3.1", replicas=(5, 1, 6, 2, 3, 4), leader=1).settle()
    watch.change(leader=4, epoch=1).log(4, epochs=lineage((0, 0), (1, 10))).see()
    assert not watch.raised


def test_up_to_1_0_an_emptied_isr_gives_the_lead_back_to_its_last_member() -> None:
    watch = Watch(version="0.10.2.2", replicas=(1,)).all_logs(epochs=None)
    watch.setting(unclean_leader_election_enable=True)
    watch.settle()
    watch.stop(1).change(leader=-1, epoch=1).set(isr=())
    watch.see(2)
    watch.start(1).change(leader=1, epoch=2, isr=(1,)).see(2)
    assert not watch.raised


def test_a_zombie_that_nobody_can_replace_commits_nothing_that_will_be_cut() -> None:
    watch = Watch(replicas=(1,)).settle()
    watch.live.pop(1)
    watch.change(leader=-1, epoch=1).log(1, leads=True, believes=0)
    for _ in range(12):
        watch.log(1, leo=watch.logs[1].leo + 1, hw=watch.logs[1].hw + 1).see()
    assert "ELE011" not in watch.raised


def test_a_topic_made_again_is_learnt_even_from_caches_without_topic_ids() -> None:
    watch = Watch(version="2.6.0", topic_id=None, czxid=None, authoritative=False, epoch=7)
    watch.set(version_of_state=9).all_logs(epochs=lineage((7, 0))).settle()
    watch.set(epoch=0, version_of_state=0).all_logs(leo=0, hw=0, epochs=lineage((0, 0)))
    watch.see(40)
    assert not watch.raised
    assert watch.memory is not None
    assert watch.memory.state.leader_epoch == 0


def test_a_reading_of_the_old_topic_of_the_same_name_proves_nothing_of_the_new_one() -> None:
    """A KRaft follower that has not replayed the deletion yet answers for the old topic."""
    watch = Watch(version="4.1.1", mode=Mode.KRAFT).settle()
    watch.set(topic_id="topic-id-0000000000002").all_logs(leo=0, hw=0, epochs=lineage((0, 0)))
    watch.log(3, leo=10, hw=10, epochs=lineage((0, 0), (4, 5)), topic_id="topic-id-0000000000001")
    watch.see(3)
    assert not watch.raised


def test_the_last_known_leader_is_called_unclean_without_contradicting_itself() -> None:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT, isr=(2,), leader=2).settle()
    watch.stop(2).change(leader=-1, epoch=1).see(2)
    watch.start(2).change(leader=2, epoch=2, recovering=True)
    watch.log(2, epochs=lineage((0, 0), (2, 10))).see()
    assert "RECOVERED" in watch.raised["ELE009"].expected
    assert "RECOVERING" in watch.raised["ELE009"].observed


# --- what had been missed -----------------------------------------------------------------------


def test_another_replicas_watermark_proves_a_commit_between_two_rounds() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, leo=12, hw=12, epochs=lineage((0, 0), (1, 12))).log(3, leo=20, hw=18).see(3)
    assert watch.raised["TRN001"].offsets == OffsetRange(12, 18)


def test_a_proven_loss_is_not_reported_again_while_the_proof_stays() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, leo=12, hw=12, epochs=lineage((0, 0), (1, 12))).log(3, leo=20, hw=18)
    assert watch.see().codes == ("TRN001",)
    assert watch.see().codes == ()


def test_a_replica_outside_the_isr_proves_a_loss_nobody_watched() -> None:
    watch = Watch(epoch=1, leader=2, isr=(2, 1))
    for broker in (1, 2):
        watch.log(broker, leo=40, hw=40, epochs=lineage((0, 0), (1, 12)))
    watch.log(3, leo=20, hw=18, epochs=lineage((0, 0))).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(12, 18)


def test_an_unclean_election_out_of_a_leaderless_state_is_seen_over_skipped_versions() -> None:
    watch = Watch(version="3.9.1", mode=Mode.KRAFT, isr=(1,)).settle()
    watch.stop(1).change(leader=-1, epoch=1).see(3)
    watch.change(leader=3, epoch=2, isr=(3, 2)).set(version_of_state=5)
    watch.log(3, epochs=lineage((0, 0), (2, 10))).see()
    assert watch.raised["ELE009"].broker == 3


def test_slow_polling_is_no_gap() -> None:
    watch = Watch()
    watch.see(3, every_ms=150_000)
    watch.stop(1).see(4, every_ms=150_000)
    assert "ELE004" in watch.raised


def test_an_observation_that_is_not_newer_proves_nothing_not_even_health() -> None:
    watch = Watch().settle()
    watch.now_ms -= 60_000
    assert isinstance(watch.see().of("TRN001"), Unknown)


def test_a_follower_longer_than_its_leader_holds_nothing_below_its_own_log_start() -> None:
    """The leader comes back empty; retention had passed the first offsets of the follower."""
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None).settle()
    watch.change(epoch=1, isr=(1,)).log(2, start=4).log(1, leo=0, hw=0).see()
    watch.change(isr=(1, 2)).log(2, leo=11).see(2)
    assert watch.raised["TRN004"].offsets == OffsetRange(4, 11)


def test_a_deposed_leaders_watermark_commits_nothing_of_the_new_leaders_records() -> None:
    """Its own are lost and reported; the new leader has others at those offsets, not committed."""
    watch = Watch(isr=(1,)).settle()
    watch.change(leader=2, epoch=1, isr=(2, 3)).log(1, believes=0, leads=True)
    for broker in (2, 3):
        watch.log(broker, leo=4, hw=4, epochs=lineage((0, 0), (1, 4)))
    assert watch.see().codes.count("TRN001") == 1
    watch.log(2, leo=9).see()
    watch.stop(2).change(leader=3, epoch=2, isr=(3,)).log(3, epochs=lineage((0, 0), (2, 4)))
    assert "TRN001" not in watch.see().codes


def late_metadata_of_a_deposed_leader() -> Watch:
    """Broker 2 leads since, and 3 follows it; the metadata that is read and the deposed leader 1
    have not heard of it, and agree with each other."""
    watch = Watch().settle()
    watch.log(1, leads=True, believes=0, leo=12)
    for broker in (2, 3):
        watch.log(broker, leo=14, hw=14, believes=1, leads=broker == 2)
        watch.log(broker, epochs=lineage((0, 0), (1, 10)))
    return watch


def test_metadata_that_is_old_twice_proves_nothing() -> None:
    watch = late_metadata_of_a_deposed_leader()
    watch.see(2)
    assert not watch.raised
    watch.change(leader=2, epoch=1, isr=(2, 3)).see(3)
    assert not watch.raised, "nothing of the old round was taken over"


def test_a_commit_in_a_later_epoch_does_not_accuse_a_deposed_leader_with_old_metadata() -> None:
    """The brokers that gave the metadata away do not answer in the next round."""
    watch = late_metadata_of_a_deposed_leader()
    watch.all_logs(topic_id=watch.topic_id).see()
    watch.log(2, up=False).log(3, up=False).see(2)
    assert "TRN001" not in watch.raised


def test_metadata_that_moves_is_late_and_not_wrong() -> None:
    """Epochs follow each other faster than the metadata arrives."""
    watch = Watch().settle()
    for epoch in range(1, 8):
        watch.all_logs(epochs=lineage((0, 0), (epoch + 1, 10)))
        watch.change(epoch=epoch).all_logs(believes=epoch + 1).see()
    assert "EPO003" not in watch.raised


def test_metadata_that_moves_is_late_also_where_only_straddling_samples_show_it() -> None:
    watch = Watch().settle()
    watch.all_logs(epochs=lineage((0, 0), (1, 10)), believes=1).see()
    for epoch in range(1, 4):
        watch.all_logs(epochs=lineage((0, 0), (epoch + 1, 10)), believes=epoch + 1)
        watch.change(epoch=epoch).set(bracket=Bracket.STRADDLED).see(2)
    watch.set(bracket=Bracket.COHERENT).see(2)
    assert "EPO003" not in watch.raised
    watch.see(3)
    assert "EPO003" in watch.raised, "now it has stood still for longer than metadata lag"


def test_a_replica_with_an_epoch_from_the_future_does_not_hide_a_loss_for_ever() -> None:
    watch = Watch().settle()
    watch.log(3, epochs=lineage((0, 0), (4, 10))).see(5)
    assert "EPO003" in watch.raised
    watch.stop(1).change(leader=2, epoch=1, isr=(2,))
    watch.log(2, leo=8, hw=8, epochs=lineage((0, 0), (1, 8))).see(5)
    assert watch.raised["TRN001"].offsets == OffsetRange(8, 10)
