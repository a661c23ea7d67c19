"""Guards of the checks, one by one: a lawful state that would accuse without the guard, or a fault
that would be missed with a guard too many. Each was found by a seeded fault (`make mutants`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.consistency.checks.isr import caught_up_replicas_join, slow_members_leave
from tidestaff.consistency.checks.sight import Sight
from tidestaff.consistency.model import (
    BatchDigest,
    LineageSource,
    OffsetRange,
    Registration,
    SettingSource,
)
from tidestaff.consistency.monitor import judge_partition, step
from tidestaff.consistency.verdict import Holds, Unknown
from tidestaff.consistency.versions import Mode

from tests.consistency.watch import Watch, lineage

if TYPE_CHECKING:
    from tidestaff.consistency.model import ReplicaReading
    from tidestaff.consistency.verdict import Verdicts


def look(watch: Watch, **changes: Any) -> Verdicts:
    """One round whose observation differs in these fields from what the watch would see."""
    watch.now_ms += 5_000
    watch.memory, verdicts = step(watch.memory, replace(watch.observation(), **changes))
    for violated in verdicts.violated:
        watch.raised.setdefault(violated.code, violated)
    return verdicts


def again(watch: Watch, **fields: Any) -> ReplicaReading:
    """The leader's second reading, after its followers were read."""
    return watch.reading(watch.leader)._replace(**fields)


def retold(watch: Watch, broker: int, **fields: Any) -> dict[str, Any]:
    """The readings with one replica's words changed, the leader's second reading likewise."""
    seen = watch.observation()
    replicas = tuple(r._replace(**fields) if r.broker == broker else r for r in seen.replicas)
    leader = next((r for r in replicas if r.broker == watch.leader), None)
    return {"replicas": replicas, "leader_again": leader}


# --- what the leader says -----------------------------------------------------------------------


def test_a_leader_that_does_not_know_yet_that_it_leads_proves_no_loss() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, leo=3, hw=3, leads=False, epochs=lineage((0, 0), (1, 3)))
    assert isinstance(watch.see().of("TRN001"), Unknown)
    assert "TRN001" not in watch.raised


def test_a_follower_may_hold_what_its_leader_took_between_two_readings() -> None:
    watch = Watch(leader=2).settle()
    watch.log(1, leo=15).log(3, leo=15)
    look(watch, leader_again=again(watch, log_end_offset=15))
    assert not watch.raised


def test_a_follower_longer_than_a_leader_that_was_read_once_may_have_been_read_later() -> None:
    watch = Watch().settle()
    watch.log(3, leo=15)
    look(watch, leader_again=None)
    assert not watch.raised


def test_the_watermark_of_the_second_reading_is_younger_than_the_followers() -> None:
    watch = Watch(leader=2).settle()
    look(watch, leader_again=again(watch, log_end_offset=15, high_watermark=15))
    assert not watch.raised


def test_what_the_leader_took_after_a_follower_was_read_is_no_lag() -> None:
    """The follower stood at the leader's end in every round, however far apart they are."""
    watch = Watch(leader=2).settle()
    for _ in range(3):
        watch.now_ms += 100_000
        look(watch, leader_again=again(watch, log_end_offset=15))
    assert not watch.raised


def test_batch_headers_do_not_show_an_epoch_without_records() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    for _ in range(4):
        look(watch, **retold(watch, 2, lineage_source=LineageSource.BATCH_HEADERS))
    assert not watch.raised


def test_a_leader_that_does_not_tell_its_epoch_need_not_have_begun_it() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    for _ in range(4):
        look(watch, **retold(watch, 2, leader_epoch=None))
    assert not watch.raised


# --- who is there -------------------------------------------------------------------------------


def test_a_broker_that_is_shutting_down_is_still_there() -> None:
    watch = Watch().settle()
    watch.register(3, shutting_down=True).register(1, shutting_down=True).see(15)
    assert not watch.raised


def test_a_new_controller_has_a_session_timeout_to_act_whatever_was_suspected_before() -> None:
    """Leader, ISR member and election alike: who is dead was suspected under the old one."""
    dead = Watch().settle().stop(3)
    leaderless = Watch().settle().stop(1).change(leader=-1, epoch=1, isr=(2, 3))
    for watch in (dead, leaderless, Watch().settle().stop(1)):
        watch.see(4)
        watch.set(controller=-1).see(5)
        watch.set(controller=2, controller_epoch=2).see(3)
        assert not set(watch.raised) - {"ELE012"}
        watch.see(8)
        assert set(watch.raised) & {"ISR002", "ELE004", "ELE005"}


def test_a_controller_that_was_not_read_may_have_just_come() -> None:
    watch = Watch(controller=None).settle()
    watch.stop(3).see(15)
    assert not watch.raised


def test_evidence_names_the_setting_and_where_it_is_set() -> None:
    watch = Watch(isr=(1,)).setting(
        unclean_leader_election_enable=True,
        unclean_leader_election_enable_source=SettingSource.TOPIC,
        min_insync_replicas=2,
        min_insync_replicas_source=SettingSource.STATIC,
    )
    watch.log(2, leo=8, hw=8).log(3, leo=8, hw=8).see(140)
    unclean = "unclean.leader.election.enable=true (topic override)"
    assert "min.insync.replicas=2 (brokers' properties)" in watch.raised["ISR007"].because
    assert unclean in watch.raised["FCT002"].because
    watch.stop(1).change(leader=2, epoch=1, isr=(2,), recovering=True).see()
    assert unclean in watch.raised["ELE009"].because


def test_evidence_names_the_lag_time_that_is_exceeded() -> None:
    watch = Watch().setting(replica_lag_time_max_ms_source=SettingSource.CLUSTER).settle()
    for _ in range(18):
        end = watch.logs[1].leo + 10
        watch.log(1, leo=end).log(2, leo=end).see()
    told = "replica.lag.time.max.ms=30000 (changed for all brokers)"
    assert told in watch.raised["ISR003"].because


def test_a_follower_a_fetch_behind_after_a_gap_is_not_suspected() -> None:
    """Within the gap it may have caught up any number of times: the short cut says so, too."""
    watch = Watch().settle()
    end = watch.logs[1].leo + 10
    watch.log(1, leo=end, hw=end - 1)
    watch.log(2, leo=end - 1, hw=end - 1).log(3, leo=end - 1, hw=end - 1)
    watch.now_ms += 100_000
    _, verdicts = judge_partition(watch.memory, watch.observation())
    assert "ISR003" not in {each.code for each in verdicts.unknown}


def test_without_a_controller_nobody_leaves_the_isr() -> None:
    watch = Watch(controller=-1).settle()
    for _ in range(25):
        end = watch.logs[1].leo + 10
        watch.log(1, leo=end).log(2, leo=end).see()
    assert "ISR003" not in watch.raised


def test_without_a_broker_epoch_nobody_knows_of_a_restart() -> None:
    watch = Watch().settle()
    unknown = {"live": (), **retold(watch, 3, broker_epoch=None)}
    look(watch, **unknown)
    sight = Sight(watch.memory, replace(watch.observation(), **unknown))
    assert sight.same_incarnation(2)
    assert not sight.same_incarnation(3)


# --- what a sight shows -------------------------------------------------------------------------


def test_another_topic_id_is_another_topic() -> None:
    watch = Watch().settle()
    assert Sight(watch.memory, watch.observation()).identified
    watch.set(topic_id="topic-id-0000000000009")
    assert not Sight(watch.memory, watch.observation()).identified


def test_a_version_that_is_not_told_is_not_the_one_before_the_first() -> None:
    watch = Watch().set(version_of_state=-1)
    watch.see(2)
    watch.change(epoch=1)
    assert watch.version_of_state == 0
    assert not Sight(watch.memory, watch.observation()).one_version_later


def test_the_last_entry_of_a_leader_may_be_of_an_older_epoch() -> None:
    watch = Watch(epoch=1)
    assert Sight(None, watch.observation()).epoch_start is None
    watch.log(1, epochs=lineage((0, 0), (1, 10)))
    assert Sight(None, watch.observation()).epoch_start == 10


def test_an_epoch_without_a_record_proves_no_fetch() -> None:
    watch = Watch(epoch=1).log(3, epochs=lineage((0, 0), (1, 10)))
    assert not Sight(None, watch.observation()).has_fetched(3)
    watch.log(3, leo=11)
    assert Sight(None, watch.observation()).has_fetched(3)


def test_a_follower_that_ends_before_the_epoch_begins_may_not_join_yet() -> None:
    """It had fetched in this epoch, and came back from a power cut with less."""
    watch = Watch(epoch=1, isr=(1, 2)).all_logs(leo=15, hw=15, epochs=lineage((0, 0), (1, 10)))
    watch.see()
    watch.log(1, hw=3).log(2, hw=3).log(3, leo=4, hw=3, epochs=lineage((0, 0)))
    assert watch.memory is not None
    sight = Sight(watch.memory, watch.observation())
    assert sight.has_fetched(3)
    assert not list(caught_up_replicas_join(sight))


def test_a_follower_at_the_end_its_leader_had_before_it_was_read_has_caught_up() -> None:
    watch = Watch().settle()
    for end in range(20, 36):
        watch.log(1, leo=end).log(2, leo=end).see()
    assert list(slow_members_leave(Sight(watch.memory, watch.observation())))
    watch.log(3, leo=35).now_ms += 5_000
    seen = watch.observation()
    assert seen.leader_again is not None
    later = replace(seen, leader_again=seen.leader_again._replace(log_end_offset=40))
    assert not list(slow_members_leave(Sight(watch.memory, later)))


def test_a_follower_in_an_older_epoch_has_not_fetched_in_this_one() -> None:
    watch = Watch(epoch=1).log(3, leo=11, epochs=lineage((0, 0), (1, 10)), believes=0)
    assert not Sight(None, watch.observation()).has_fetched(3)


@pytest.mark.parametrize(("version", "end"), [("2.0.0", 1), ("2.0.1", 3), ("3.9.1", 3)])
def test_committed_lineages_that_agree_again_disagree_only_before(version: str, end: int) -> None:
    """As before KIP-279: one step of truncation cuts too little, and the logs go on together. Up to
    2.0.0 a list leaves out the older epochs that its log went on with: one record is certain."""
    watch = Watch(version=version, epoch=3)
    watch.all_logs(leo=30, hw=30, epochs=lineage((0, 0), (2, 3)))
    watch.log(1, epochs=lineage((0, 0), (2, 3), (3, 30)))
    watch.log(3, leo=30, hw=30, epochs=lineage((1, 0), (2, 3))).see()
    assert watch.raised["EPO004"].offsets == OffsetRange(0, end)


@pytest.mark.parametrize(
    ("believes", "certain"),
    [
        pytest.param(4, OffsetRange(10, 11), id="it-may-have-gone-back-since"),
        pytest.param(3, OffsetRange(10, 11), id="it-followed-another-after-that-leader"),
        pytest.param(2, OffsetRange(10, 20), id="it-has-followed-nobody-since"),
    ],
)
def test_what_a_list_of_before_2_0_1_proves_of_a_follower(
    believes: int, certain: OffsetRange
) -> None:
    """Seed 34005 of the search, 1.1.1: cut to its HW, as its leader did not know its epoch, the
    follower went on with older records that its list does not show."""
    watch = Watch(version="1.1.1", epoch=4).all_logs(leo=20, hw=20, epochs=lineage((0, 0), (1, 10)))
    watch.log(3, epochs=lineage((0, 0), (2, 10)), believes=believes)
    [conflict] = [c for c in Sight(None, watch.observation()).conflicts if c.one == 1]
    assert OffsetRange(conflict.offset, conflict.end) == certain


@pytest.mark.parametrize(("end", "lost"), [(25, False), (20, True)])
def test_what_a_follower_of_before_2_0_1_keeps_is_no_proof_once_it_has_gone_on(
    end: int, *, lost: bool
) -> None:
    """Seed 42011 of the search, 1.1.1: a diverged member left the ISR with the HW it had got from
    its leader, over records of its own that never were committed."""
    watch = Watch(version="1.1.1", epoch=3, isr=(1, 2))
    watch.all_logs(leo=25, hw=25, epochs=lineage((0, 0), (3, 20)))
    own = lineage((0, 0), (2, 15), (3, 20)) if end > 20 else lineage((0, 0), (2, 15))
    watch.log(3, leo=end, hw=end, epochs=own).see()
    assert ("TRN001" in watch.raised) is lost


def test_what_a_leader_of_before_2_0_1_has_of_its_own_epoch_and_the_last_is_whole() -> None:
    watch = Watch(version="1.1.1", epoch=4).all_logs(leo=30, hw=30, epochs=lineage((0, 0), (1, 5)))
    watch.log(1, epochs=lineage((0, 0), (1, 5), (2, 10), (3, 15), (4, 20)))
    found = [c for c in Sight(None, watch.observation()).conflicts if c.other == 3]
    assert [(c.offset, c.end) for c in found if c.one == 1] == [(10, 11), (15, 30)]


# --- lineages -----------------------------------------------------------------------------------


def test_entries_below_the_log_start_are_not_compared() -> None:
    watch = Watch(epoch=1).all_logs(leo=90, hw=90, start=50, epochs=lineage((0, 0), (1, 40)))
    watch.log(3, epochs=lineage((0, 0), (1, 30))).see(3)
    assert not watch.raised


def _two_followers(version: str = "3.9.1") -> Watch:
    """The leader's lineage is not read, and of the followers' tails nothing is committed."""
    return Watch(version=version, epoch=9).all_logs(leo=20, hw=4).log(1, epochs=None)


def test_up_to_2_0_0_entries_were_written_at_different_moments() -> None:
    watch = _two_followers("2.0.0").log(2, epochs=lineage((0, 0), (1, 5), (2, 10)))
    watch.log(3, epochs=lineage((0, 0), (2, 12))).see(2)
    assert not watch.raised


def test_a_first_entry_says_nothing_even_where_the_tails_differ() -> None:
    watch = _two_followers().log(2, start=2, epochs=lineage((1, 2), (2, 10)))
    watch.log(3, start=3, epochs=lineage((1, 3), (3, 10))).see(2)
    assert not watch.raised


def test_an_epoch_without_records_says_nothing_even_where_the_tails_differ() -> None:
    watch = _two_followers().log(2, epochs=lineage((0, 0), (2, 5), (4, 20)))
    watch.log(3, epochs=lineage((0, 0), (3, 5), (4, 8))).see(2)
    assert not watch.raised


def test_the_follower_has_the_tail_in_whatever_order_replicas_are_read() -> None:
    watch = Watch(epoch=2, isr=(1, 2), order_of_readings=(3, 2, 1))
    watch.all_logs(leo=20, hw=20, epochs=lineage((0, 0), (2, 10)))
    watch.log(3, leo=20, hw=10, epochs=lineage((0, 0), (1, 10), (2, 18))).see()
    assert watch.raised["TRN004"].broker == 3


def test_a_leader_up_to_2_0_0_writes_its_epoch_with_its_first_record() -> None:
    watch = Watch(version="2.0.0").settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).see(4)
    assert not watch.raised


# --- elections ----------------------------------------------------------------------------------


def test_a_leader_lost_within_an_epoch_is_no_second_leader() -> None:
    watch = Watch().settle()
    watch.change(leader=-1).see(2)
    assert not watch.raised


def test_without_an_id_a_topic_made_again_cannot_be_told_apart() -> None:
    watch = Watch(topic_id=None, czxid=None, epoch=7, version_of_state=9)
    watch.all_logs(epochs=lineage((7, 0))).settle()
    watch.set(epoch=0, version_of_state=0).all_logs(leo=0, hw=0, epochs=lineage((0, 0))).see(3)
    assert not watch.raised


def test_a_deposed_leader_whose_watermark_stands_still_harms_nobody() -> None:
    watch = Watch().settle()
    watch.live.pop(1)
    watch.change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.log(1, leads=True, believes=0).see(12)
    assert not watch.raised


def test_the_leader_of_the_current_epoch_commits() -> None:
    watch = Watch(leader=2).settle()
    for _ in range(12):
        watch.append().see()
    assert not watch.raised


def test_an_election_behind_a_version_that_was_not_seen_is_not_judged() -> None:
    watch = Watch(isr=(3, 2, 1)).settle()
    watch.stop(1).change(leader=3, epoch=1, isr=(3, 2)).log(3, epochs=lineage((0, 0), (1, 10)))
    watch.set(version_of_state=2)
    assert isinstance(watch.see().of("ELE001"), Unknown)
    assert not watch.raised


def test_an_election_together_with_a_new_assignment_is_not_judged() -> None:
    watch = Watch().settle()
    watch.change(replicas=(2, 3, 1), leader=3, epoch=1).log(3, epochs=lineage((0, 0), (1, 10)))
    assert isinstance(watch.see().of("ELE001"), Unknown)
    assert not watch.raised


def test_a_broker_that_restarted_or_leaves_is_passed_over_by_law() -> None:
    restarted = Watch().settle().start(2)
    leaving = Watch().settle().register(2, shutting_down=True)
    for watch in (restarted, leaving):
        watch.stop(1).change(leader=3, epoch=1, isr=(2, 3))
        watch.log(3, epochs=lineage((0, 0), (1, 10))).see()
        assert not watch.raised


def test_a_kraft_preferred_election_replaces_a_valid_leader() -> None:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT, leader=2).settle()
    watch.change(leader=1, epoch=1).log(1, epochs=lineage((0, 0), (1, 10))).see()
    assert not watch.raised


def test_a_leader_that_is_still_recovering_was_elected_once() -> None:
    watch = Watch(isr=(1,)).settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2,), recovering=True)
    watch.log(2, epochs=lineage((0, 0), (1, 10)))
    assert watch.see().codes == ("ELE009",)
    assert watch.see().codes == ()


def test_recovering_tells_of_an_unclean_election_that_was_not_seen() -> None:
    watch = Watch(isr=(1, 2)).settle()
    watch.stop(1).change(leader=2, epoch=3, isr=(2,), recovering=True).set(version_of_state=4)
    watch.log(2, epochs=lineage((0, 0), (3, 10))).see()
    assert set(watch.raised) == {"ELE009"}


def _leaderless_kraft(version: str) -> Watch:
    watch = Watch(version=version, mode=Mode.KRAFT, elr_on=False, isr=(1,)).settle()
    watch.setting(unclean_leader_election_enable=True)
    return watch.stop(1).change(leader=-1, epoch=1)


def test_kraft_elects_uncleanly_by_a_timer_of_five_minutes() -> None:
    watch = _leaderless_kraft("4.1.1")
    watch.see(50)
    assert "ELE005" not in watch.raised
    watch.see(30)
    assert watch.raised["ELE005"].broker == 2


def test_up_to_3_8_kraft_never_elects_uncleanly_by_itself() -> None:
    watch = _leaderless_kraft("3.8.0")
    watch.see(90)
    assert "ELE005" not in watch.raised


def test_the_lead_does_not_go_back_during_a_reassignment_or_to_who_is_not_in_sync() -> None:
    moving = Watch(replicas=(1, 2, 3, 4), isr=(1, 2, 3), adding=(4,), leader=2, imbalance=0.5)
    behind = Watch(isr=(2, 3), leader=2, imbalance=0.5)
    for watch in (moving, behind):
        watch.see(150)
        assert "ELE010" not in watch.raised


# --- the ISR ------------------------------------------------------------------------------------


def test_a_slow_follower_has_its_time_and_the_controller_too() -> None:
    watch = Watch().settle()
    for _ in range(13):
        end = watch.logs[1].leo + 10
        watch.log(1, leo=end).log(2, leo=end).see()
    assert not watch.raised


def test_below_the_start_of_the_epoch_nobody_is_late_to_join() -> None:
    watch = Watch(isr=(1, 2), epoch=5)
    watch.all_logs(leo=30, hw=10, epochs=lineage((0, 0), (5, 25)))
    watch.log(3, leo=20, hw=10, epochs=lineage((0, 0))).see(2)
    watch.log(3, leo=22).see(20)
    assert "ISR004" not in watch.raised


def test_who_is_leaving_and_who_is_not_assigned_does_not_join() -> None:
    leaving = Watch(isr=(1, 2)).register(3, shutting_down=True)
    left_behind = Watch().log(4)
    left_behind.live[4] = Registration(4, 104)
    for watch in (leaving, left_behind):
        watch.see(20)
        assert not watch.raised


def test_exits_from_the_isr_long_ago_are_no_flapping() -> None:
    watch = Watch().settle()
    for _ in range(4):
        watch.change(isr=(1, 2)).see(2)
        watch.change(isr=(1, 2, 3)).see(2)
    assert set(watch.raised) == {"ISR005"}
    watch.raised.clear()
    watch.see(every_ms=700_000)
    assert not watch.raised


def test_a_member_that_restarted_may_have_lost_what_it_joined_with() -> None:
    watch = Watch(isr=(1, 2), epoch=5)
    watch.all_logs(leo=30, hw=10, epochs=lineage((0, 0), (5, 25))).see(2)
    watch.change(isr=(1, 2, 3)).see(2)
    watch.start(3).log(3, leo=20, epochs=lineage((0, 0))).see()
    assert not watch.raised


def test_an_offline_partition_is_not_called_under_min_isr_as_well() -> None:
    watch = Watch(isr=(1,)).setting(min_insync_replicas=2)
    watch.stop(1, 2, 3).change(leader=-1).see(30)
    assert set(watch.raised) == {"ELE012"}


# --- the high watermark -------------------------------------------------------------------------


def test_a_leader_may_start_a_new_epoch_or_a_new_life_with_a_lower_watermark() -> None:
    watch = Watch().settle()
    watch.change(epoch=1).log(1, hw=8, epochs=lineage((0, 0), (1, 10))).see()
    assert not watch.raised
    watch.start(1).log(1, hw=7).see()
    assert "HWM002" not in watch.raised


def test_a_watermark_that_moves_is_not_held_however_far_behind_it_is() -> None:
    watch = Watch(leader=2).log(2, leo=1_000).settle()
    for _ in range(40):
        watch.append(2).see()
    assert "HWM003" not in watch.raised


def test_records_that_were_not_there_before_cannot_have_been_held() -> None:
    watch = Watch(leader=2).settle()
    assert watch.log(2, leo=11).see().of("HWM003") == Holds("HWM003")
    assert isinstance(watch.see().of("HWM003"), Unknown)


def test_a_follower_learns_the_watermark_one_fetch_later() -> None:
    watch = Watch(leader=2).settle()
    for _ in range(20):
        known = watch.logs[2].hw
        watch.append(5).log(1, hw=known).log(3, hw=known).see()
    assert not watch.raised


def test_what_a_new_leader_knew_as_a_follower_is_not_held_against_its_followers() -> None:
    watch = Watch().log(3, hw=5)
    watch.see()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    assert watch.see().of("HWM005", 3) == Holds("HWM005")
    assert isinstance(watch.see().of("HWM005", 3), Unknown)


def test_what_earlier_leaders_committed_every_member_must_have() -> None:
    """The new leader's own HW lags, so it does not show what its follower lacks."""
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, hw=3, epochs=lineage((0, 0), (1, 10))).start(3).log(3, leo=7, hw=3).see()
    assert watch.raised["HWM004"].offsets == OffsetRange(7, 10)


def test_what_the_leader_committed_is_compared_though_the_member_does_not_know_it_yet() -> None:
    watch = Watch(epoch=2).all_logs(epochs=lineage((0, 0), (2, 6))).settle()
    watch.log(3, hw=5, epochs=lineage((0, 0), (1, 6))).see()
    assert watch.raised["EPO004"].offsets == OffsetRange(6, 10)


@pytest.mark.parametrize(
    ("odd", "leader"),
    [
        pytest.param(3, 1, id="a-follower-though-two-followers-disagree-as-well"),
        pytest.param(2, 3, id="a-follower-between-the-others"),
        pytest.param(1, 1, id="the-leader-itself"),
    ],
)
def test_the_replica_that_disagrees_with_both_others_is_named(odd: int, leader: int) -> None:
    watch = Watch(leader=leader, epoch=2).all_logs(epochs=lineage((0, 0), (2, 6))).settle()
    seen = watch.log(odd, epochs=lineage((0, 0), (1, 6))).see()
    assert {each.broker for each in seen.violated if each.code == "EPO004"} == {odd}


# --- logs ---------------------------------------------------------------------------------------


def test_epochs_below_the_leaders_log_start_prove_no_loss() -> None:
    watch = Watch(epoch=1).all_logs(leo=100, hw=100, epochs=lineage((0, 0), (1, 5))).settle()
    watch.stop(1).change(leader=2, epoch=2, isr=(2, 3))
    watch.log(2, start=50, epochs=lineage((0, 0), (1, 6), (2, 100))).see(2)
    assert not watch.raised


def test_epochs_of_a_compacted_topic_prove_no_loss() -> None:
    watch = Watch(epoch=1).setting(compacted=True)
    watch.all_logs(leo=100, hw=100, epochs=lineage((0, 0), (1, 5))).settle()
    watch.stop(1).change(leader=2, epoch=2, isr=(2, 3))
    watch.log(2, epochs=lineage((0, 0), (1, 9), (2, 100))).see(2)
    assert not watch.raised


def test_a_leader_that_comes_back_shorter_is_no_shorter_replica_that_was_elected() -> None:
    watch = Watch().log(1, leo=14)
    watch.see(2)
    watch.start(1).log(1, leo=10).see()
    assert not watch.raised


def test_bytes_below_a_log_start_are_being_deleted_and_not_compared() -> None:
    watch = Watch().log(3, start=5).settle()
    watch.digests = tuple(
        BatchDigest(b, OffsetRange(0, 10), crc) for b, crc in ((1, 7), (2, 7), (3, 8))
    )
    assert isinstance(watch.see().of("LOG001"), Unknown)
    assert not watch.raised


def test_a_single_replica_survives_no_failure_by_choice() -> None:
    watch = Watch(replicas=(1,))
    watch.see(150)
    assert not watch.raised


def test_equal_starts_in_a_file_of_2_0_0_are_lawful_after_the_upgrade() -> None:
    watch = Watch(epoch=2).all_logs(epochs=lineage((0, 0), (1, 5), (2, 5)))
    watch.see(3)
    assert not watch.raised
