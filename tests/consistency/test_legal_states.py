"""Legal states that look wrong raise nothing: one test for each row of the list of false alarms.

Each story ends in a state an eager monitor would call a fault. `guards` names the codes that would
be raised without the guard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tidestaff.consistency.model import (
    BatchDigest,
    Bracket,
    ClusterObservation,
    ControllerClaim,
    HealthObservation,
    OffsetRange,
    ProblemKind,
    Registration,
)
from tidestaff.consistency.monitor import step
from tidestaff.consistency.versions import Mode, rules_for

from tests.consistency.watch import Watch, lineage

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Legal:
    story: Callable[[], Watch | tuple[str, ...]]
    guards: tuple[str, ...]
    id: str


LEGAL: list[Legal] = []


def legal(
    *guards: str,
) -> Callable[[Callable[[], Watch | tuple[str, ...]]], Callable[[], Watch | tuple[str, ...]]]:
    def keep(story: Callable[[], Watch | tuple[str, ...]]) -> Callable[[], Watch | tuple[str, ...]]:
        LEGAL.append(Legal(story, guards, story.__name__.replace("_", "-")))
        return story

    return keep


# --- leaders ------------------------------------------------------------------------------------


@legal("ELE001")
def leader_is_not_the_first_live_isr_member_because_no_election_happened_since() -> Watch:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see(3)
    watch.start(1).see(2)
    watch.log(1, hw=10).change(isr=(2, 3, 1))
    watch.see(10)
    return watch


@legal("ELE001")
def kraft_keeps_a_valid_leader_although_another_comes_first() -> Watch:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT, leader=2).settle()
    watch.stop(3).change(isr=(1, 2))
    watch.see(10)
    return watch


@legal("ELE001", "ELE002")
def no_leader_while_a_single_replica_bounces() -> Watch:
    watch = Watch(replicas=(1,)).settle()
    watch.stop(1).change(leader=-1, epoch=1)
    watch.see(3)
    watch.start(1).change(leader=1, epoch=2).log(1, epochs=lineage((0, 0), (2, 10)))
    watch.see(5)
    return watch


@legal("ELE012", "ELE005")
def leaderless_partition_of_a_topic_that_is_being_deleted() -> Watch:
    watch = Watch().settle()
    watch.change(leader=-1, deleting=True)
    watch.see(20)
    return watch


@legal("ELE004", "ISR002")
def dead_broker_still_leads_until_its_session_has_run_out() -> Watch:
    watch = Watch().settle()
    watch.stop(1)
    watch.see(4)
    watch.change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see(3)
    return watch


@legal("ISR002", "ELE004", "ELE005")
def dead_broker_stays_in_isr_while_no_controller_acts() -> Watch:
    watch = Watch().settle()
    watch.stop(3).set(controller=-1)
    watch.see(15)
    watch.set(controller=2, controller_epoch=2)
    watch.see(3)
    watch.change(isr=(1, 2), epoch=1, written_by=2).log(1, epochs=lineage((0, 0), (1, 10)))
    watch.see(3)
    return watch


@legal("ISR002", "ELE002", "ELE004")
def offline_partition_lists_a_member_that_is_not_registered() -> Watch:
    """The alert for an offline partition comes after its grace time; nothing else is said."""
    watch = Watch().settle()
    watch.stop(1, 2, 3).change(leader=-1, epoch=1, isr=(1,))
    watch.see(5)
    return watch


@legal("ELE001", "ELE009")
def isr_is_whittled_down_to_an_unexpected_member_after_a_mass_failure() -> Watch:
    watch = Watch().settle()
    watch.stop(1, 2, 3).change(leader=-1, epoch=3, isr=(2,)).set(version_of_state=3)
    watch.see(3)
    watch.start(2).change(leader=2, epoch=4).log(2, epochs=lineage((0, 0), (4, 10)))
    watch.see(5)
    return watch


@legal("ELE006", "ELE007")
def leader_epoch_jumps_by_more_than_one_with_the_same_leader() -> Watch:
    watch = Watch().settle()
    watch.change(epoch=3).set(version_of_state=3).log(1, epochs=lineage((0, 0), (3, 10)))
    watch.see(5)
    return watch


@legal("ELE008")
def leader_epoch_is_unchanged_though_the_isr_shrank() -> Watch:
    watch = Watch().settle()
    watch.change(isr=(1, 2)).log(3, leo=8, hw=8)
    watch.append(4).see(5)
    return watch


@legal("ELE007", "TRN001", "HWM002")
def epoch_goes_back_to_0_when_the_topic_is_made_again_under_its_name() -> Watch:
    watch = Watch(epoch=7).set(version_of_state=9)
    watch.all_logs(epochs=lineage((0, 0), (7, 5)))
    watch.settle()
    watch.set(topic_id="topic-id-0000000000002", czxid=99, epoch=0, version_of_state=0)
    watch.all_logs(leo=0, hw=0, epochs=lineage((0, 0)))
    watch.see(5)
    return watch


@legal("ELE007", "TRN001")
def epoch_goes_back_to_0_on_a_version_without_topic_ids() -> Watch:
    watch = Watch(version="2.0.1", topic_id=None, epoch=7).set(version_of_state=9)
    watch.all_logs(epochs=lineage((7, 0)))
    watch.settle()
    watch.set(czxid=99, epoch=0, version_of_state=0)
    watch.all_logs(leo=0, hw=0, epochs=lineage((0, 0)))
    watch.see(5)
    return watch


# --- controller ---------------------------------------------------------------------------------


@legal("CTL005")
def state_is_written_by_a_controller_whose_epoch_was_read_after_it() -> Watch:
    watch = Watch().settle()
    watch.set(controller=2, controller_epoch=2)
    watch.change(epoch=1, written_by=2).log(1, epochs=lineage((0, 0), (1, 10)))
    watch.see(3)
    return watch


@legal("CTL002")
def controller_changes_before_its_epoch_in_the_two_step_form_up_to_2_0() -> tuple[str, ...]:
    rules = rules_for("2.0.1")
    memory, raised = None, []
    for at_ms, broker, epoch in ((0, 1, 5), (5_000, 2, 5), (10_000, 2, 6), (15_000, 2, 6)):
        memory, verdicts = step(memory, _cluster(rules, at_ms, broker, epoch))
        raised.extend(verdicts.codes)
    return tuple(raised)


@legal("CTL004")
def controller_epoch_in_a_state_is_old_because_nobody_wrote_it_since() -> Watch:
    watch = Watch().settle()
    watch.set(controller=2, controller_epoch=9)
    watch.see(10)
    return watch


@legal("CTL004")
def leader_before_2_7_writes_the_controller_epoch_it_knows() -> Watch:
    watch = Watch(version="2.6.0").settle()
    watch.set(controller=2, controller_epoch=2)
    watch.see(3)
    watch.change(isr=(1, 2)).log(3, leo=9, hw=9)
    watch.append().see(3)
    return watch


@legal("CTL004")
def state_is_written_by_the_old_controller_just_before_it_is_replaced() -> Watch:
    """/controller_epoch is read after the state: the write may lie between the two readings."""
    watch = Watch().settle()
    watch.set(controller_epoch=2, controller=2)
    watch.see()
    watch.change(isr=(1, 2)).log(3, leo=9, hw=9)
    watch.append().see(3)
    return watch


@legal("CTL001", "CTL003")
def no_controller_for_a_moment() -> tuple[str, ...]:
    rules = rules_for("3.9.1")
    memory, raised = None, []
    for at_ms, broker, epoch in ((0, 1, 5), (5_000, -1, 5), (10_000, -1, 5), (15_000, 2, 6)):
        memory, verdicts = step(memory, _cluster(rules, at_ms, broker, epoch))
        raised.extend(verdicts.codes)
    return tuple(raised)


@legal("CTL002")
def controller_is_replaced_while_it_is_read() -> tuple[str, ...]:
    """The name of the old controller beside the new epoch: the two readings enclose the change."""
    rules = rules_for("3.9.1")
    memory, raised = None, []
    for at_ms, broker, epoch, before in ((0, 1, 5, 5), (5_000, 1, 6, 5), (10_000, 2, 6, 6)):
        observation = _cluster(rules, at_ms, broker, epoch, epoch_before=before)
        memory, verdicts = step(memory, observation)
        raised.extend(verdicts.codes)
    return tuple(raised)


# --- reassignment -------------------------------------------------------------------------------


@legal("ISR008", "ISR001", "ISR006")
def assignment_is_longer_than_the_replication_factor_during_a_reassignment() -> Watch:
    watch = Watch().settle()
    watch.live[4] = Registration(4, 104)
    watch.change(replicas=(4, 2, 3, 1), adding=(4,), removing=(1,), epoch=1)
    watch.log(1, epochs=lineage((0, 0), (1, 10))).log(4, leo=3, hw=3, epochs=lineage((0, 0)))
    watch.see(200)
    return watch


@legal("ISR008")
def stuck_reassignment_is_legal_for_hours() -> Watch:
    watch = Watch().settle()
    watch.change(replicas=(4, 2, 3, 1), adding=(4,), removing=(1,), epoch=1)
    watch.log(1, epochs=lineage((0, 0), (1, 10)))
    watch.see(200)
    return watch


@legal("ISR001", "ELE003")
def isr_still_names_a_replica_the_assignment_just_lost() -> Watch:
    """State and assignment are two nodes: without a bracket they may be of different moments."""
    watch = Watch().settle()
    watch.set(replicas=(2, 3), bracket=Bracket.STRADDLED)
    watch.see(2)
    return watch


@legal("ELE001")
def reassignment_moves_the_leadership_to_the_first_of_the_target() -> Watch:
    watch = Watch().settle()
    watch.live[4] = Registration(4, 104)
    watch.log(4, leo=10, hw=10, epochs=lineage((0, 0)))
    watch.change(replicas=(4, 2, 3, 1), adding=(4,), removing=(1,), epoch=1)
    watch.log(1, epochs=lineage((0, 0), (1, 10)))
    watch.see(3)
    watch.change(isr=(1, 2, 3, 4)).see(2)
    watch.change(leader=4, epoch=2).log(4, epochs=lineage((0, 0), (2, 10)))
    watch.see(2)
    return watch


# --- ISR ----------------------------------------------------------------------------------------


@legal("ELE007", "ELE008")
def metadata_of_a_lagging_broker_is_older_than_what_was_seen() -> Watch:
    watch = Watch().settle()
    watch.change(isr=(1, 2), epoch=1).log(3, up=False)
    watch.log(1, epochs=lineage((0, 0), (1, 10)))
    watch.see(2)
    watch.set(isr=(1, 2, 3), epoch=0, version_of_state=0, authoritative=False)
    watch.see(5)
    return watch


@legal("ISR003")
def isr_member_lags_longer_than_the_limit_but_a_check_runs_every_half_period() -> Watch:
    watch = Watch().settle()
    for _ in range(9):  # 45 s: within one and a half times the setting
        watch.log(1, leo=watch.logs[1].leo + 10)
        watch.see()
    watch.change(isr=(1, 2))
    watch.log(2, leo=watch.logs[1].leo, hw=watch.logs[1].hw)
    watch.see(2)
    return watch


@legal("ISR003")
def follower_that_reaches_what_was_the_end_at_its_previous_fetch_is_caught_up() -> Watch:
    watch = Watch().settle()
    for _ in range(60):
        before = watch.logs[1].leo
        watch.log(1, leo=before + 10, hw=before)
        watch.log(2, leo=before, hw=watch.logs[2].leo)
        watch.log(3, leo=before, hw=watch.logs[3].leo)
        watch.see()
    return watch


@legal("ISR003")
def silent_follower_at_the_leaders_end_is_never_out_of_sync() -> Watch:
    watch = Watch().settle()
    watch.see(60)
    return watch


@legal("ISR004")
def replica_above_the_watermark_may_not_join_below_the_epoch_start() -> Watch:
    watch = Watch(isr=(1, 2), epoch=5)
    watch.all_logs(leo=30, hw=10, epochs=lineage((0, 0), (5, 25)))
    watch.log(3, leo=20, hw=10, epochs=lineage((0, 0)))
    watch.see(15)
    return watch


@legal("ISR004")
def replica_that_caught_up_joins_a_few_fetches_later() -> Watch:
    watch = Watch(isr=(1, 2))
    watch.see(4)
    watch.change(isr=(1, 2, 3)).see(4)
    return watch


@legal("ISR005", "ISR008")
def rolling_restart_shrinks_and_grows_the_isr_once_for_each_broker() -> Watch:
    watch = Watch().settle()
    for epoch, going in enumerate((3, 2, 1), start=1):
        rest = tuple(b for b in watch.isr if b != going)
        leader = watch.leader if watch.leader != going else 2
        watch.register(going, shutting_down=True)
        watch.change(isr=rest, epoch=epoch, leader=leader)
        watch.log(leader, epochs=lineage((0, 0), (epoch, 10)))
        watch.stop(going).see(6)
        watch.start(going).see(2)
        watch.change(isr=(*rest, going)).see(4)
    return watch


@legal("ISR005")
def slow_replica_joins_and_is_thrown_out_again() -> Watch:
    watch = Watch().settle()
    for _ in range(3):
        watch.change(isr=(1, 2)).see(2)
        watch.change(isr=(1, 2, 3)).see(2)
    return watch


# --- high watermark -----------------------------------------------------------------------------


@legal("HWM005")
def follower_watermark_is_one_fetch_behind() -> Watch:
    watch = Watch().settle()
    for _ in range(20):
        watch.log(1, leo=watch.logs[1].leo + 5, hw=watch.logs[1].leo + 5)
        watch.log(2, hw=watch.logs[2].leo, leo=watch.logs[1].leo)
        watch.log(3, hw=watch.logs[3].leo, leo=watch.logs[1].leo)
        watch.see()
    return watch


@legal("HWM001", "HWM002", "HWM005", "TRN001")
def new_leader_starts_with_a_lower_watermark_than_its_followers() -> Watch:
    watch = Watch().settle()
    watch.log(1, leo=20, hw=20).log(2, leo=20, hw=15).log(3, leo=20, hw=20)
    watch.see(2)
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, epochs=lineage((0, 0), (1, 20)))
    watch.see()
    watch.log(2, hw=20).see(3)
    return watch


@legal("HWM002")
def watermark_falls_after_a_restart_from_an_older_checkpoint() -> Watch:
    watch = Watch(replicas=(1,)).settle()
    watch.append(10).see(2)
    watch.stop(1).change(leader=-1, epoch=1).see()
    watch.start(1).log(1, hw=12, epochs=lineage((0, 0), (2, 20)))
    watch.change(leader=1, epoch=2).see()
    watch.log(1, hw=20).see(3)
    return watch


@legal("HWM003")
def watermark_stands_still_for_a_while_below_min_isr() -> Watch:
    watch = Watch(isr=(1,)).setting(min_insync_replicas=1)
    watch.log(2, leo=9, hw=9).log(3, leo=9, hw=9).log(1, leo=12, hw=10)
    watch.see(10)
    return watch


@legal("HWM004")
def follower_was_read_before_the_leader() -> Watch:
    """Without a bracket the leader's HW may be younger than the follower's LEO."""
    watch = Watch(bracket=Bracket.NONE)
    watch.see(3)
    watch.log(1, leo=20, hw=20)
    watch.see(5)
    return watch


@legal("TRN003", "TRN004")
def follower_is_longer_than_its_leader_until_it_has_fetched() -> Watch:
    watch = Watch().settle()
    watch.log(1, leo=14)
    watch.log(3, leo=13)
    watch.see(2)
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see(2)
    assert "TRN005" in watch.raised  # info: the old leader's tail was never committed
    watch.raised.clear()
    watch.log(3, leo=10).see(3)
    return watch


@legal("TRN003", "TRN004")
def follower_that_cannot_reach_its_leader_keeps_its_tail() -> Watch:
    watch = Watch().settle()
    watch.log(1, leo=13).log(3, leo=13).see(2)
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see(3)
    assert set(watch.raised) == {"TRN005"}
    watch.raised.clear()
    watch.change(isr=(2,)).see(20)
    return watch


@legal("TRN003", "TRN004", "ISR004")
def follower_appends_what_the_old_leader_sent_after_it_has_heard_of_the_new_one() -> Watch:
    """Brokers take over the epoch first, and end their fetches from the old leader after that. If
    it then cannot reach the new one, the tail stays."""
    watch = Watch().settle()
    watch.log(1, leo=13).see(2)
    watch.stop(1).change(leader=2, epoch=1, isr=(2,))
    watch.log(2, epochs=lineage((0, 0), (1, 10))).see(2)
    assert set(watch.raised) == {"TRN005"}
    watch.raised.clear()
    watch.log(3, leo=13).see(20)
    return watch


# --- log end ------------------------------------------------------------------------------------


@legal("TRN002", "TRN001", "HWM004")
def log_end_falls_to_the_predicted_truncation_point() -> Watch:
    watch = Watch().settle()
    watch.log(1, leo=14).log(3, leo=12).see(2)
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, epochs=lineage((0, 0), (1, 10))).log(3, leo=10)
    watch.see(2)
    watch.start(1).log(1, leo=10, hw=10).see(2)
    assert set(watch.raised) == {"TRN005"}
    watch.raised.clear()
    return watch


@legal("TRN002", "TRN001")
def replica_starts_again_at_the_leaders_log_start_after_out_of_range() -> Watch:
    watch = Watch(isr=(1, 2))
    watch.all_logs(leo=100, hw=100, start=50, epochs=lineage((0, 50)))
    watch.log(3, leo=20, hw=20, start=0, epochs=lineage((0, 0))).see(2)
    watch.log(3, leo=60, hw=60, start=50, epochs=lineage((0, 50)))
    watch.see(3)
    return watch


@legal("TRN001", "TRN002", "HWM004")
def replica_outside_the_isr_comes_back_on_a_new_disk() -> Watch:
    watch = Watch().settle()
    watch.stop(3).change(isr=(1, 2), epoch=1).log(1, epochs=lineage((0, 0), (1, 10)))
    watch.see(3)
    watch.start(3).log(3, leo=0, hw=0, epochs=()).see(3)
    watch.log(3, leo=10, hw=10, epochs=lineage((0, 0))).see()
    watch.change(isr=(1, 2, 3)).see(3)
    return watch


@legal("TRN001", "TRN002")
def new_follower_of_a_tiered_topic_starts_at_the_local_start() -> Watch:
    watch = Watch(version="3.9.1", isr=(1, 2)).setting(remote_storage=True)
    watch.all_logs(leo=1000, hw=1000, start=0, epochs=lineage((0, 0)))
    watch.log(3, leo=10, hw=10).see(2)
    watch.log(3, leo=900, hw=900, start=0, epochs=lineage((0, 0))).see(3)
    return watch


# --- checkpoint files ---------------------------------------------------------------------------


@legal("HWM001", "LOG006")
def checkpoint_files_are_written_at_different_times() -> tuple[str, ...]:
    """Files alone never alarm: their values are not readings of a replica's HW and LEO."""
    memory, raised = None, []
    for at_ms in (0, 5_000, 10_000):
        health = HealthObservation("c", at_ms, "agent", ProblemKind.OK, place="/logs")
        memory, verdicts = step(memory, health)
        raised.extend(verdicts.codes)
    return tuple(raised)


@legal("EPO004", "EPO005")
def log_starts_differ_because_retention_runs_on_each_broker() -> Watch:
    watch = Watch().all_logs(leo=100, hw=100, epochs=lineage((0, 0), (1, 40), (2, 80)), start=0)
    watch.set(epoch=2)
    watch.settle()
    watch.log(2, start=50, epochs=lineage((1, 50), (2, 80)))
    watch.see(5)
    return watch


@legal("EPO004", "EPO005")
def leaders_file_has_an_epoch_without_a_record_yet() -> Watch:
    watch = Watch().settle()
    watch.change(epoch=1).log(1, epochs=lineage((0, 0), (1, 10)))
    watch.see(5)
    return watch


@legal("EPO003", "EPO004", "EPO005")
def ex_leader_keeps_a_trailing_empty_epoch_nobody_else_knows() -> Watch:
    watch = Watch(leader=2).settle()
    watch.change(leader=1, epoch=1).log(1, epochs=lineage((0, 0), (1, 10)))
    watch.see(2)
    watch.stop(1).change(leader=2, epoch=2, isr=(2, 3)).log(2, epochs=lineage((0, 0), (2, 10)))
    watch.see(2)
    watch.start(1).see(2)
    watch.change(isr=(2, 3, 1)).see(3)
    return watch


@legal("EPO002")
def equal_start_offsets_in_the_file_up_to_2_0_0() -> Watch:
    watch = Watch(version="2.0.0", epoch=2)
    watch.all_logs(epochs=lineage((0, 0), (1, 5), (2, 5)))
    watch.see(5)
    return watch


@legal("EPO004", "EPO005", "EPO003")
def file_holds_entries_that_memory_has_dropped_from_3_8_on() -> Watch:
    watch = Watch(epoch=4)
    watch.all_logs(leo=50, hw=50, epochs=lineage((0, 0), (4, 30)))
    watch.log(3, epochs=lineage((0, 0), (4, 30))).settle()
    watch.log(2, epochs=lineage((0, 0), (3, 60)), leo=30, hw=30).change(isr=(1, 3))
    watch.see(4)
    return watch


@legal("EPO004", "EPO005", "TRN004")
def replica_of_a_compacted_topic_lacks_epochs_whose_records_are_gone() -> Watch:
    watch = Watch(epoch=3).setting(compacted=True)
    watch.all_logs(leo=100, hw=100, epochs=lineage((0, 0), (1, 20), (3, 60)))
    watch.log(3, epochs=lineage((0, 0), (3, 70)))
    watch.see(5)
    return watch


@legal("LOG001", "LOG003")
def compacted_replicas_have_gaps_and_are_cleaned_unequally() -> Watch:
    watch = Watch().setting(compacted=True)
    watch.digests = (
        BatchDigest(1, OffsetRange(0, 10), crc=1, gap_at=3),
        BatchDigest(2, OffsetRange(0, 10), crc=2),
    )
    watch.see(3)
    return watch


@legal("LOG001", "LOG003")
def topic_that_was_compacted_keeps_its_gaps_after_the_setting_changed() -> Watch:
    watch = Watch().setting(compacted=True)
    watch.see(2)
    watch.setting(compacted=False)
    watch.digests = (
        BatchDigest(1, OffsetRange(0, 10), crc=1, gap_at=3),
        BatchDigest(2, OffsetRange(0, 10), crc=2),
    )
    watch.see(3)
    return watch


@legal("ELE008", "ELE001", "ELE009")
def source_that_does_not_tell_the_partition_epoch() -> Watch:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT).set(version_of_state=-1)
    watch.settle()
    watch.set(isr=(1, 2)).see(2)
    watch.stop(1).set(leader=2, isr=(2,), epoch=1).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see(2)
    return watch


@legal("HWM001")
def follower_cuts_below_its_watermark_between_two_readings() -> Watch:
    watch = Watch(isr=(1, 2)).log(3, leo=10, hw=10)
    watch.see(2)
    watch.log(3, leo=8, hw=10).see()
    watch.log(3, leo=10, hw=10).see(2)
    return watch


@legal("HWM001")
def old_brokers_delete_segments_above_their_watermark() -> Watch:
    """Seen on 0.10.2.2 with a short retention: the follower learns the HW one fetch later."""
    watch = Watch(version="0.10.2.2").settle()
    watch.log(3, leo=40, hw=20, start=40).see(3)
    return watch


@legal("REG003", "CTL003", "CTL002")
def cluster_that_moved_to_kraft_counts_its_epochs_anew() -> tuple[str, ...]:
    before = _cluster(rules_for("3.9.1"), 0, 1, 50, broker_epoch=90_000)
    memory, verdicts = step(None, before)
    after = _cluster(rules_for("3.9.1", Mode.KRAFT), 5_000, 3000, 3, broker_epoch=12)
    return (*verdicts.codes, *step(memory, after)[1].codes)


@legal("LOG004")
def source_that_reports_no_topic_ids_takes_over() -> Watch:
    watch = Watch().settle()
    watch.set(topic_id=None, authoritative=False).see(20)
    return watch


@legal("LOG001")
def checksums_above_a_followers_watermark_are_not_compared() -> Watch:
    watch = Watch()
    watch.log(2, hw=5)
    watch.digests = (
        BatchDigest(1, OffsetRange(0, 10), crc=1),
        BatchDigest(2, OffsetRange(0, 10), crc=2),
    )
    watch.see(2)
    return watch


@legal("EPO004", "EPO006", "TRN002", "TRN003")
def epoch_file_is_empty_on_a_log_of_the_old_message_format() -> Watch:
    watch = Watch(epoch=3).all_logs(epochs=())
    watch.see(2)
    watch.stop(1).change(leader=2, epoch=4, isr=(2, 3)).see(5)
    return watch


@legal("LOG007")
def directory_without_assignment_right_after_a_move() -> tuple[str, ...]:
    memory, raised = None, []
    for at_ms in (0, 60_000, 120_000):
        health = HealthObservation("c", at_ms, "agent", ProblemKind.STRAY_DIRECTORY, place="/l/t-0")
        memory, verdicts = step(memory, health)
        raised.extend(verdicts.codes)
    return tuple(raised)


@legal("SRC002", "EPO001")
def partition_is_assigned_but_its_directory_is_not_there_yet() -> tuple[str, ...]:
    memory, raised = None, []
    for at_ms, problem in ((0, ProblemKind.UNREADABLE), (5_000, ProblemKind.OK)):
        health = HealthObservation("c", at_ms, "agent", problem, place="/l/t-0")
        memory, verdicts = step(memory, health)
        raised.extend(verdicts.codes)
    return tuple(raised)


# --- unclean, preferred, two leaders ------------------------------------------------------------


@legal("ELE001")
def unclean_election_by_an_admin_is_called_unclean_and_not_wrong() -> Watch:
    watch = Watch(isr=(1,)).settle()
    watch.stop(1).change(leader=-1, epoch=1).see(2)
    watch.change(leader=2, isr=(2,), epoch=2, recovering=True)
    watch.log(2, epochs=lineage((0, 0), (2, 10)))
    watch.see(2)
    assert set(watch.raised) == {"ELE009"}
    watch.raised.clear()
    return watch


@legal("ELE009", "ELE001")
def election_from_the_elr_is_clean() -> Watch:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT).setting(min_insync_replicas=2)
    watch.settle()
    watch.stop(2, 3).change(isr=(1,), elr=(2, 3)).set(version_of_state=2).see(2)
    watch.stop(1).change(leader=-1, isr=(), elr=(1, 2, 3), epoch=1).see(2)
    watch.start(2).change(leader=2, isr=(2,), elr=(1, 3), epoch=2)
    watch.log(2, epochs=lineage((0, 0), (2, 10)))
    watch.see(2)
    return watch


@legal("ELE010")
def preferred_replica_does_not_lead_below_the_threshold() -> Watch:
    watch = Watch(leader=2, imbalance=0.10)
    watch.see(200)
    return watch


@legal("ELE010")
def preferred_replica_does_not_lead_until_two_checks_have_passed() -> Watch:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT, leader=2)
    watch.see(120)
    return watch


@legal("ELE010")
def preferred_replica_does_not_lead_with_rebalance_off() -> Watch:
    watch = Watch(leader=2, imbalance=1.0).setting(auto_leader_rebalance_enable=False)
    watch.see(200)
    return watch


@legal("ELE006", "ELE011")
def two_brokers_believe_to_lead_until_the_old_one_is_told() -> Watch:
    watch = Watch().settle()
    del watch.live[1]
    watch.change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.log(1, leads=True, believes=0)
    watch.see(3)
    watch.start(1).log(1, leads=None, believes=None).see(3)
    return watch


@legal("ELE011")
def old_leader_commits_once_more_before_its_followers_leave_it() -> Watch:
    watch = Watch().settle()
    watch.log(1, leo=12, hw=10).log(2, leo=12).log(3, leo=12).see()
    del watch.live[1]
    watch.change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 12)))
    watch.log(1, leads=True, believes=0, hw=12)
    watch.see()
    watch.start(1).log(1, leads=None, believes=None)
    watch.log(2, hw=12).log(3, hw=12).see(3)
    return watch


# --- registration -------------------------------------------------------------------------------


@legal("REG001")
def broker_that_restarts_does_not_answer_for_a_while() -> tuple[str, ...]:
    rules = rules_for("3.9.1")
    memory, raised = None, []
    for at_ms in range(0, 30_000, 5_000):
        observation = _cluster(rules, at_ms, 1, 5, answering=(1, 2))
        memory, verdicts = step(memory, observation)
        raised.extend(verdicts.codes)
    return tuple(raised)


@legal("REG002", "REG003")
def broker_that_lost_its_session_leads_until_it_notices() -> tuple[str, ...]:
    rules = rules_for("3.9.1")
    memory, raised = None, []
    for at_ms in range(0, 30_000, 5_000):
        observation = _cluster(rules, at_ms, 1, 5, registered=(1, 2), leading=(3,))
        memory, verdicts = step(memory, observation)
        raised.extend(verdicts.codes)
    back = _cluster(rules, 31_000, 1, 5, broker_epoch=9_000)
    raised.extend(step(memory, back)[1].codes)
    return tuple(raised)


@legal("REG002")
def broker_that_is_cut_off_again_and_again_notices_each_time() -> tuple[str, ...]:
    rules = rules_for("3.9.1")
    memory, raised = None, []
    for at_ms in range(0, 120_000, 5_000):
        leads = (3,) if at_ms % 10_000 else ()
        observation = _cluster(
            rules, at_ms, 1, 5, registered=(1, 2), leading=leads, answering=(1, 2, 3)
        )
        memory, verdicts = step(memory, observation)
        raised.extend(verdicts.codes)
    return tuple(raised)


@legal("REG002")
def broker_that_falls_silent_after_it_was_given_up_and_registers_again() -> tuple[str, ...]:
    rules = rules_for("3.9.1")
    memory, raised = None, []
    for life in range(6):
        for at_ms in range(0, 40_000, 5_000):
            again = at_ms == 35_000
            observation = _cluster(
                rules,
                at_ms + 40_000 * life,
                1,
                5,
                registered=(1, 2, 3) if again else (1, 2),
                leading=() if at_ms else (3,),
                answering=None if again else (1, 2) if at_ms else (1, 2, 3),
                broker_epoch=9_000 + life,
            )
            memory, verdicts = step(memory, observation)
            raised.extend(verdicts.codes)
    return tuple(raised)


@legal("SRC001", "SRC003")
def source_that_is_well_says_so() -> tuple[str, ...]:
    memory, raised = None, []
    for at_ms in (0, 5_000):
        memory, verdicts = step(memory, HealthObservation("c", at_ms, "zk", ProblemKind.OK))
        raised.extend(verdicts.codes)
    return tuple(raised)


@legal("SRC006")
def source_that_is_silent_altogether_leaves_no_partition_out() -> tuple[str, ...]:
    silent = HealthObservation("c", 0, "zk", ProblemKind.SILENT)
    assert step(None, silent)[1].codes == ("SRC001",)
    return tuple(code for code in step(None, silent)[1].codes if code != "SRC001")


@legal("SRC004")
def file_a_source_cannot_parse_is_not_a_record_the_stream_refused() -> tuple[str, ...]:
    health = HealthObservation("c", 0, "agent", ProblemKind.MALFORMED, place="/l/t-0")
    return step(None, health)[1].codes


@legal("SRC005")
def sink_that_takes_alerts_again_is_well() -> tuple[str, ...]:
    memory, raised = None, []
    for at_ms, problem in ((0, ProblemKind.SINK_FAILING), (5_000, ProblemKind.OK)):
        health = HealthObservation("tidestaff", at_ms, "sink", problem, place="webhook")
        memory, verdicts = step(memory, health)
        raised.append(verdicts.codes)
    assert raised[0] == ("SRC005",)
    return raised[-1]


# --- rules without a row of their own -----------------------------------------------------------


@legal("ISR006", "ISR007", "FCT001", "FCT002")
def one_follower_is_down_for_minutes() -> Watch:
    watch = Watch().setting(min_insync_replicas=2)
    watch.settle()
    watch.stop(3).change(isr=(1, 2), epoch=1).log(1, epochs=lineage((0, 0), (1, 10)))
    watch.see(50)
    return watch


@legal("ISR006")
def isr_equals_min_isr_because_that_is_how_many_replicas_there_are() -> Watch:
    watch = Watch().setting(min_insync_replicas=3)
    watch.see(200)
    return watch


@legal("ISR007")
def min_isr_above_the_replication_factor_counts_as_all_replicas_from_3_7() -> Watch:
    watch = Watch(version="3.7.0").setting(min_insync_replicas=5)
    watch.see(50)
    return watch


@legal("ISR009")
def elr_holds_only_replicas_that_are_not_in_sync() -> Watch:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT, isr=(1,), elr=(2,))
    watch.setting(min_insync_replicas=2)
    watch.see(5)
    return watch


@legal("ISR010")
def isr_member_from_before_the_election_is_shorter_than_the_epoch_start() -> Watch:
    watch = Watch().settle()
    watch.log(1, leo=15).log(2, leo=15).see()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, epochs=lineage((0, 0), (1, 15))).see(3)
    return watch


@legal("ISR010")
def member_that_had_joined_whole_lost_the_end_of_its_log_with_the_power() -> Watch:
    """Search, seed 31019: the controller is gone too, and nobody takes it out of the ISR."""
    watch = Watch(isr=(1, 2), epoch=5)
    watch.all_logs(leo=30, hw=10, epochs=lineage((0, 0), (5, 25))).see(2)
    watch.change(isr=(1, 2, 3)).see(2)
    watch.stop(3).see()
    watch.start(3).log(3, leo=20, epochs=lineage((0, 0))).see(3)
    return watch


@legal("TRN001")
def deposed_leader_had_removed_what_it_committed_and_the_next_one_has_it() -> Watch:
    """Search, seed 31026: DeleteRecords left broker 1 a lineage that begins at 15. That is no word
    about the epoch of [10, 15), which was written in epoch 1."""
    watch = Watch().settle()
    watch.stop(2, 3).log(1, leads=True, believes=1).change(leader=-1, epoch=3, isr=(2,))
    watch.log(1, start=15, hw=15, leo=15, epochs=lineage((1, 15))).see()
    watch.start(2).change(leader=2, epoch=4).log(1, leads=False, believes=4)
    watch.log(2, leo=15, hw=15, epochs=lineage((0, 0), (1, 10), (4, 15))).see(3)
    return watch


@legal("LOG002")
def digest_without_a_finding() -> Watch:
    watch = Watch()
    watch.digests = tuple(BatchDigest(b, OffsetRange(0, 10), crc=7) for b in (1, 2, 3))
    watch.see(2)
    return watch


@legal("LOG004")
def directory_of_the_old_topic_is_still_there_after_a_recreation() -> Watch:
    watch = Watch().all_logs(topic_id="topic-id-0000000000001")
    watch.settle()
    watch.log(3, topic_id="topic-id-0000000000000").see(3)
    return watch


@legal("LOG005")
def log_directory_seen_offline_once() -> Watch:
    watch = Watch().settle()
    watch.log(3, log_dir_online=False).see()
    watch.log(3, log_dir_online=True).see(2)
    return watch


@legal("TRN006", "TRN004")
def replica_without_epochs_comes_back_with_what_its_leader_also_has() -> Watch:
    watch = Watch(version="0.10.2.2").all_logs(epochs=None)
    watch.see(4)
    watch.stop(3).change(isr=(1, 2), epoch=1).see(2)
    watch.append(5).see(2)
    watch.start(3).see()
    watch.log(3, leo=15, hw=15).change(isr=(1, 2, 3)).see(3)
    return watch


@legal("TRN006")
def replica_without_epochs_is_cut_by_a_shorter_leader_and_goes_again_unseen() -> Watch:
    """0.10.2.2, seed 1108 of the search: back with more than its leader has, cut to the leader's
    end, gone again within a round; what it has there later it fetched."""
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.see(4)
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(1,)).see(2)
    watch.start(1).change(leader=1, epoch=2).log(1, leo=8, hw=8).see()
    watch.raised.clear()  # the loss that precedes it
    watch.start(2).see()
    watch.stop(2).change(epoch=3).see()
    watch.log(1, leo=12, hw=12).see()
    watch.start(2).log(2, leo=12, hw=12).see()
    watch.change(isr=(1, 2)).see(2)
    return watch


@legal("TRN005", "TRN001")
def new_leader_has_all_that_the_old_one_had() -> Watch:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.append(5).log(3, epochs=lineage((0, 0), (1, 10))).see(3)
    return watch


def _cluster(
    rules: object,
    at_ms: int,
    controller: int,
    epoch: int,
    *,
    epoch_before: int | None = None,
    registered: tuple[int, ...] = (1, 2, 3),
    answering: tuple[int, ...] | None = (1, 2, 3),
    leading: tuple[int, ...] = (),
    broker_epoch: int = 100,
    claims: tuple[ControllerClaim, ...] = (),
) -> ClusterObservation:
    return ClusterObservation(
        cluster="test",
        observed_at_ms=1_000_000 + at_ms,
        rules=rules,  # type: ignore[arg-type]
        controller=controller,
        controller_epoch=epoch,
        controller_epoch_before=epoch if epoch_before is None else epoch_before,
        registrations=tuple(Registration(b, broker_epoch + b) for b in registered),
        answering=answering,
        leading=leading,
        claims=claims,
    )


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in LEGAL])
def test_a_legal_state_raises_nothing(case: Legal) -> None:
    outcome = case.story()
    raised = outcome.raised if isinstance(outcome, Watch) else outcome
    assert not raised


# The list of legal states that look wrong, and the stories that play each of its rows.
ROWS = {
    "leader is not the first live ISR member of AR": (
        leader_is_not_the_first_live_isr_member_because_no_election_happened_since,
        kraft_keeps_a_valid_leader_although_another_comes_first,
    ),
    "leader = -1": (
        no_leader_while_a_single_replica_bounces,
        leaderless_partition_of_a_topic_that_is_being_deleted,
    ),
    "dead broker still in ISR / still leader": (
        dead_broker_still_leads_until_its_session_has_run_out,
        dead_broker_stays_in_isr_while_no_controller_acts,
    ),
    "ISR lists a broker not registered, leader -1": (
        offline_partition_lists_a_member_that_is_not_registered,
    ),
    "ISR whittled to an unexpected member after a mass failure": (
        isr_is_whittled_down_to_an_unexpected_member_after_a_mass_failure,
    ),
    "leader_epoch jumps by more than 1, or rises with the same leader": (
        leader_epoch_jumps_by_more_than_one_with_the_same_leader,
    ),
    "leader_epoch unchanged though the ISR shrank": (
        leader_epoch_is_unchanged_though_the_isr_shrank,
    ),
    "epoch back to 0": (
        epoch_goes_back_to_0_when_the_topic_is_made_again_under_its_name,
        epoch_goes_back_to_0_on_a_version_without_topic_ids,
    ),
    "controller_epoch in a state node > /controller_epoch read earlier": (
        state_is_written_by_a_controller_whose_epoch_was_read_after_it,
    ),
    "/controller changed, /controller_epoch not": (
        controller_changes_before_its_epoch_in_the_two_step_form_up_to_2_0,
        controller_is_replaced_while_it_is_read,
    ),
    "controller_epoch of a state node is old": (
        controller_epoch_in_a_state_is_old_because_nobody_wrote_it_since,
        leader_before_2_7_writes_the_controller_epoch_it_knows,
    ),
    "AR longer than the replication factor, AR order odd, ISR smaller than AR": (
        assignment_is_longer_than_the_replication_factor_during_a_reassignment,
        stuck_reassignment_is_legal_for_hours,
    ),
    "ISR in metadata or on the leader differs from the znode": (
        metadata_of_a_lagging_broker_is_older_than_what_was_seen,
    ),
    "replica within ISR lags for longer than replica.lag.time.max.ms": (
        isr_member_lags_longer_than_the_limit_but_a_check_runs_every_half_period,
        follower_that_reaches_what_was_the_end_at_its_previous_fetch_is_caught_up,
        silent_follower_at_the_leaders_end_is_never_out_of_sync,
    ),
    "out-of-sync replica has LEO >= HW but is not in ISR": (
        replica_above_the_watermark_may_not_join_below_the_epoch_start,
        replica_that_caught_up_joins_a_few_fetches_later,
    ),
    "ISR flaps": (
        slow_replica_joins_and_is_thrown_out_again,
        rolling_restart_shrinks_and_grows_the_isr_once_for_each_broker,
    ),
    "follower HW < leader HW": (follower_watermark_is_one_fetch_behind,),
    "follower HW > leader HW": (new_leader_starts_with_a_lower_watermark_than_its_followers,),
    "HW went down": (
        watermark_falls_after_a_restart_from_an_older_checkpoint,
        new_leader_starts_with_a_lower_watermark_than_its_followers,
    ),
    "HW stands still while the leader's LEO grows": (
        watermark_stands_still_for_a_while_below_min_isr,
    ),
    "leader HW > an ISR member's LEO": (follower_was_read_before_the_leader,),
    "follower LEO > leader LEO": (
        follower_is_longer_than_its_leader_until_it_has_fetched,
        follower_that_cannot_reach_its_leader_keeps_its_tail,
        follower_appends_what_the_old_leader_sent_after_it_has_heard_of_the_new_one,
    ),
    "LEO went down": (
        log_end_falls_to_the_predicted_truncation_point,
        replica_starts_again_at_the_leaders_log_start_after_out_of_range,
        replica_outside_the_isr_comes_back_on_a_new_disk,
    ),
    "checkpoint HW > LEO, or recovery point > LEO": (
        checkpoint_files_are_written_at_different_times,
    ),
    "LSO differs between replicas": (log_starts_differ_because_retention_runs_on_each_broker,),
    "first epoch entry differs": (log_starts_differ_because_retention_runs_on_each_broker,),
    "leader's epoch file has one more entry than the follower's": (
        leaders_file_has_an_epoch_without_a_record_yet,
    ),
    "a follower (or ex-leader) has a trailing empty epoch unknown to the leader": (
        ex_leader_keeps_a_trailing_empty_epoch_nobody_else_knows,
    ),
    "equal start offsets in the file": (equal_start_offsets_in_the_file_up_to_2_0_0,),
    "stale extra entries in the file": (file_holds_entries_that_memory_has_dropped_from_3_8_on,),
    "epochs missing or starting later on a newly built replica of a compacted topic": (
        replica_of_a_compacted_topic_lacks_epochs_whose_records_are_gone,
    ),
    "offsets with gaps, different segment files or sizes": (
        compacted_replicas_have_gaps_and_are_cleaned_unequally,
        topic_that_was_compacted_keeps_its_gaps_after_the_setting_changed,
    ),
    "local log start >> LSO, new follower's LEO starts high": (
        new_follower_of_a_tiered_topic_starts_at_the_local_start,
    ),
    "empty leader-epoch-checkpoint on a non-empty log": (
        epoch_file_is_empty_on_a_log_of_the_old_message_format,
    ),
    "replica dir exists that is not assigned": (directory_without_assignment_right_after_a_move,),
    "partition in AR with no dir on the broker": (
        partition_is_assigned_but_its_directory_is_not_there_yet,
    ),
    "unclean leader though disabled": (
        unclean_election_by_an_admin_is_called_unclean_and_not_wrong,
        election_from_the_elr_is_clean,
    ),
    "preferred imbalance above 10 %": (
        preferred_replica_does_not_lead_below_the_threshold,
        preferred_replica_does_not_lead_until_two_checks_have_passed,
        preferred_replica_does_not_lead_with_rebalance_off,
    ),
    "brokers' metadata disagree on the leader": (
        metadata_of_a_lagging_broker_is_older_than_what_was_seen,
    ),
    "two brokers both believe to lead": (
        two_brokers_believe_to_lead_until_the_old_one_is_told,
        old_leader_commits_once_more_before_its_followers_leave_it,
    ),
}


def test_every_row_of_the_list_is_played() -> None:
    assert len(ROWS) == 40
    played = {case.story for case in LEGAL}
    assert all(story in played for stories in ROWS.values() for story in stories)
