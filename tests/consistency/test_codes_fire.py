"""Every code of the catalogue fires on its fault, alone, naming the broker and the offsets.

The closing invariants of the list of false alarms are among them: a test each that breaking the
invariant raises exactly its code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from tidestaff.consistency.versions import Mode, RuleSet, rules_for

from tests.consistency.watch import Watch, lineage

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Firing:
    code: str
    story: Callable[[], dict[str, Any]]
    id: str
    broker: int | None = None
    offsets: tuple[int, int] | None = None
    with_codes: tuple[str, ...] = ()
    invariant: int | None = None


FIRING: list[Firing] = []


def fires(
    code: str,
    *,
    broker: int | None = None,
    offsets: tuple[int, int] | None = None,
    with_codes: tuple[str, ...] = (),
    invariant: int | None = None,
) -> Callable[[Callable[[], dict[str, Any]]], Callable[[], dict[str, Any]]]:
    """`with_codes`: other findings that belong to the same fault and are raised beside it."""

    def keep(story: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
        name = f"{code}-{story.__name__.replace('_', '-')}"
        FIRING.append(Firing(code, story, name, broker, offsets, with_codes, invariant))
        return story

    return keep


# --- CTL ----------------------------------------------------------------------------------------


@fires("CTL001")
def no_controller_for_a_minute() -> dict[str, Any]:
    return _cluster_rounds(*[{"controller": -1}] * 14)


@fires("CTL002", broker=2)
def two_brokers_are_controller_under_one_epoch() -> dict[str, Any]:
    return _cluster_rounds({"controller": 1}, *[{"controller": 2}] * 4)


@fires("CTL002", broker=2)
def two_brokers_claim_one_controller_epoch() -> dict[str, Any]:
    claims = (ControllerClaim(1, 5), ControllerClaim(2, 5))
    return _cluster_rounds(*[{"claims": claims}] * 3)


@fires("CTL003")
def controller_epoch_goes_back() -> dict[str, Any]:
    return _cluster_rounds({"controller_epoch": 5}, {"controller_epoch": 4})


@fires("CTL004")
def old_controller_writes_after_a_new_one_took_over() -> dict[str, Any]:
    watch = Watch().settle()
    watch.set(controller=2, controller_epoch=2).see(3)
    watch.change(isr=(1, 2), written_by=1).see()
    return watch.raised


@fires("CTL004")
def old_controller_elects_in_a_version_where_leaders_write_the_isr() -> dict[str, Any]:
    watch = Watch(version="2.0.1").settle()
    watch.set(controller=2, controller_epoch=2).see(3)
    watch.change(epoch=1, written_by=1).log(1, epochs=lineage((0, 0), (1, 10))).see()
    return watch.raised


@fires("CTL004")
def old_controller_writes_while_the_metadata_are_read() -> dict[str, Any]:
    watch = Watch().settle()
    watch.set(controller=2, controller_epoch=2).see(3)
    watch.change(isr=(1, 2), written_by=1).set(bracket=Bracket.STRADDLED).see()
    watch.set(bracket=Bracket.COHERENT).see(3)
    return watch.raised


@fires("CTL005", invariant=4)
def state_carries_a_controller_epoch_that_does_not_exist_yet() -> dict[str, Any]:
    watch = Watch().settle()
    watch.change(epoch=1, written_by=5).log(1, epochs=lineage((0, 0), (1, 10))).see()
    return watch.raised


# --- REG ----------------------------------------------------------------------------------------


@fires("REG001", broker=3)
def registration_of_a_dead_process_stays() -> dict[str, Any]:
    return _cluster_rounds(*[{"answering": (1, 2)}] * 10)


@fires("REG002", broker=3)
def broker_without_a_registration_goes_on_leading() -> dict[str, Any]:
    gone = (Registration(1, 101), Registration(2, 102))
    return _cluster_rounds(*[{"registrations": gone, "leading": (3,)}] * 10)


@fires("REG002", broker=3)
def fenced_broker_goes_on_leading() -> dict[str, Any]:
    fenced = (Registration(1, 101), Registration(2, 102), Registration(3, 103, fenced=True))
    return _cluster_rounds(*[{"registrations": fenced, "leading": (3,)}] * 10)


@fires("REG002", broker=3)
def broker_that_goes_on_leading_answers_only_now_and_then() -> dict[str, Any]:
    gone = (Registration(1, 101), Registration(2, 102))
    leads = {"registrations": gone, "leading": (3,), "answering": (1, 2, 3)}
    silent = {"registrations": gone, "answering": (1, 2)}
    nobody_knows = {"registrations": gone, "answering": None}
    return _cluster_rounds(*[leads, silent, nobody_knows] * 4)


@fires("REG003", broker=2)
def broker_epoch_goes_back() -> dict[str, Any]:
    older = (Registration(1, 101), Registration(2, 50), Registration(3, 103))
    return _cluster_rounds({}, {"registrations": older})


# --- ELE ----------------------------------------------------------------------------------------


@fires("ELE001", broker=3)
def first_of_the_isr_is_elected_instead_of_the_first_of_the_assignment() -> dict[str, Any]:
    watch = Watch(isr=(3, 2, 1)).settle()
    watch.stop(1).change(leader=3, epoch=1, isr=(3, 2)).log(3, epochs=lineage((0, 0), (1, 10)))
    watch.see()
    return watch.raised


@fires("ELE001", broker=2)
def kraft_replaces_a_leader_that_is_still_valid() -> dict[str, Any]:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT, replicas=(3, 1, 2), leader=1).settle()
    watch.stop(3).change(leader=2, epoch=1, isr=(1, 2)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see()
    return watch.raised


@fires("ELE001", broker=3, invariant=9)
def clean_election_picks_a_replica_outside_the_old_isr() -> dict[str, Any]:
    watch = Watch(isr=(1, 2)).settle()
    watch.stop(1).change(leader=3, epoch=1, isr=(2, 3)).log(3, epochs=lineage((0, 0), (1, 10)))
    watch.see()
    return watch.raised


@fires("ELE002", broker=1, invariant=1)
def leader_is_not_in_its_isr() -> dict[str, Any]:
    watch = Watch().settle()
    watch.change(isr=(2, 3)).see()
    return watch.raised


@fires("ELE003", broker=1, with_codes=("ISR001",))
def leader_is_not_assigned() -> dict[str, Any]:
    watch = Watch().settle()
    watch.change(replicas=(2, 3)).see(2)
    return watch.raised


@fires("ELE004", broker=1)
def dead_leader_is_not_replaced() -> dict[str, Any]:
    watch = Watch().settle()
    watch.stop(1).see(8)
    return watch.raised


@fires("ELE004", broker=1)
def fenced_leader_is_not_replaced() -> dict[str, Any]:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT).settle()
    watch.register(1, fenced=True).see(8)
    return watch.raised


@fires("ELE005", broker=2, with_codes=("ELE012",))
def nobody_is_elected_although_a_member_of_the_isr_lives() -> dict[str, Any]:
    watch = Watch().settle()
    watch.stop(1).change(leader=-1, epoch=1, isr=(2, 3)).see(10)
    return watch.raised


@fires("ELE005", broker=2, with_codes=("ELE012",))
def nobody_is_elected_although_unclean_election_is_allowed() -> dict[str, Any]:
    watch = Watch(isr=(1,)).setting(unclean_leader_election_enable=True)
    watch.settle()
    watch.stop(1).change(leader=-1, epoch=1).see(10)
    return watch.raised


@fires("ELE006", broker=2, invariant=3)
def leader_changes_and_the_epoch_does_not() -> dict[str, Any]:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, isr=(2, 3)).see()
    return watch.raised


@fires("ELE006", broker=2)
def two_brokers_lead_in_one_epoch() -> dict[str, Any]:
    watch = Watch().settle()
    watch.log(2, leads=True, believes=0).see()
    return watch.raised


@fires("ELE007", invariant=3)
def leader_epoch_goes_back() -> dict[str, Any]:
    watch = Watch(epoch=5).all_logs(epochs=lineage((0, 0)))
    watch.log(1, epochs=lineage((0, 0), (5, 10))).settle()
    watch.log(1, epochs=lineage((0, 0), (4, 10))).change(epoch=4).see(2)
    return watch.raised


@fires("ELE008", invariant=5)
def isr_changes_without_a_new_version() -> dict[str, Any]:
    watch = Watch().settle()
    watch.set(isr=(1, 2)).see(2)
    return watch.raised


@fires("ELE008")
def partition_epoch_goes_back() -> dict[str, Any]:
    watch = Watch(version_of_state=5).settle()
    watch.set(version_of_state=4).see(2)
    return watch.raised


@fires("ELE009", broker=2, offsets=(8, 10), with_codes=("TRN001",))
def unclean_election_names_what_is_lost() -> dict[str, Any]:
    watch = Watch(isr=(1,)).log(2, leo=8, hw=8).log(3, leo=8, hw=8).settle()
    watch.stop(1).change(leader=-1, epoch=1).see(2)
    watch.change(leader=2, epoch=2, isr=(2,), recovering=True)
    watch.log(2, epochs=lineage((0, 0), (2, 8))).see()
    return watch.raised


@fires("ELE009", broker=2)
def unclean_election_before_recovery_states_were_written() -> dict[str, Any]:
    watch = Watch(version="2.8.2", isr=(1,)).settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2,)).log(2, epochs=lineage((0, 0), (1, 10))).see()
    return watch.raised


@fires("ELE010", broker=1)
def preferred_replica_does_not_get_the_lead_back() -> dict[str, Any]:
    watch = Watch(leader=2, imbalance=0.5).settle()
    watch.see(140)
    return watch.raised


@fires("ELE010", broker=1)
def kraft_preferred_replica_does_not_get_the_lead_back() -> dict[str, Any]:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT, leader=2).settle()
    watch.see(140)
    return watch.raised


@fires("ELE011", with_codes=("TRN001",), broker=1)
def zombie_leader_goes_on_committing() -> dict[str, Any]:
    watch = Watch().settle()
    del watch.live[1]
    watch.change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.log(1, leads=True, believes=0)
    for _ in range(12):
        watch.log(1, leo=watch.logs[1].leo + 1, hw=watch.logs[1].hw + 1)
        watch.see()
    return watch.raised


@fires("ELE012")
def partition_stays_without_a_leader() -> dict[str, Any]:
    watch = Watch().settle()
    watch.stop(1, 2, 3).change(leader=-1, epoch=1, isr=(1,)).see(8)
    return watch.raised


# --- ISR ----------------------------------------------------------------------------------------


@fires("ISR001", broker=9, invariant=2)
def isr_names_a_broker_that_is_not_assigned() -> dict[str, Any]:
    watch = Watch().settle()
    watch.change(isr=(1, 2, 3, 9)).see(2)
    return watch.raised


@fires("ISR002", broker=3)
def dead_follower_stays_in_the_isr() -> dict[str, Any]:
    watch = Watch().settle()
    watch.stop(3).see(8)
    return watch.raised


@fires("ISR003", broker=3)
def slow_follower_is_not_thrown_out() -> dict[str, Any]:
    watch = Watch().settle()
    for _ in range(18):
        end = watch.logs[1].leo + 10
        watch.log(1, leo=end).log(2, leo=end).see()
    return watch.raised


@fires("ISR004", broker=3)
def caught_up_follower_is_not_let_in() -> dict[str, Any]:
    watch = Watch(isr=(1, 2)).log(3, leo=8, hw=8)
    watch.see(2)
    watch.log(3, leo=10, hw=10).see(20)
    return watch.raised


@fires("ISR005", broker=3)
def replica_leaves_the_isr_four_times_in_ten_minutes() -> dict[str, Any]:
    watch = Watch().settle()
    for _ in range(4):
        watch.change(isr=(1, 2)).see(2)
        watch.change(isr=(1, 2, 3)).see(2)
    return watch.raised


@fires("ISR006")
def isr_stays_at_the_minimum() -> dict[str, Any]:
    watch = Watch(isr=(1, 2)).setting(min_insync_replicas=2)
    watch.stop(3).see(70)
    return watch.raised


@fires("ISR007")
def isr_stays_below_the_minimum() -> dict[str, Any]:
    watch = Watch(isr=(1,)).setting(min_insync_replicas=2)
    watch.stop(2, 3).see(16)
    return watch.raised


@fires("ISR008", broker=3)
def replica_stays_out_of_sync() -> dict[str, Any]:
    watch = Watch(isr=(1, 2))
    watch.stop(3).see(130)
    return watch.raised


@fires("ISR009", broker=2, invariant=10)
def replica_is_in_isr_and_elr() -> dict[str, Any]:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT).settle()
    watch.change(elr=(2,)).see()
    return watch.raised


@fires("ISR010", broker=3)
def follower_joins_below_the_start_of_the_epoch() -> dict[str, Any]:
    watch = Watch(isr=(1, 2), epoch=5)
    watch.all_logs(leo=30, hw=10, epochs=lineage((0, 0), (5, 25)))
    watch.log(3, leo=20, hw=10, epochs=lineage((0, 0))).see(2)
    watch.change(isr=(1, 2, 3)).see()
    return watch.raised


# --- HWM ----------------------------------------------------------------------------------------


@fires("HWM001", broker=3, invariant=6)
def watermark_is_above_the_log_end() -> dict[str, Any]:
    watch = Watch().settle()
    watch.log(3, hw=11).see(2)
    return watch.raised


@fires("HWM001", broker=3)
def log_start_is_above_the_watermark() -> dict[str, Any]:
    watch = Watch().settle()
    watch.log(3, start=10, hw=9, leo=10).see(2)
    return watch.raised


@fires("HWM001", broker=3)
def log_start_is_above_the_log_end_of_an_old_broker() -> dict[str, Any]:
    watch = Watch(version="0.10.2.2").settle()
    watch.log(3, start=11, hw=10, leo=10).see(2)
    return watch.raised


@fires("HWM002", broker=1, offsets=(9, 10))
def watermark_of_a_leader_goes_back() -> dict[str, Any]:
    watch = Watch().settle()
    watch.log(1, hw=9).see()
    return watch.raised


@fires("HWM003", broker=1)
def watermark_is_held_back() -> dict[str, Any]:
    watch = Watch(isr=(1,)).setting(min_insync_replicas=2, replica_lag_time_max_ms=5_000)
    watch.stop(2, 3).log(1, leo=20, hw=10).see(11)
    return watch.raised


@fires("HWM004", broker=3, offsets=(7, 10))
def isr_member_lacks_committed_records() -> dict[str, Any]:
    watch = Watch().settle()
    watch.start(3).log(3, leo=7, hw=7).see()
    return watch.raised


@fires("HWM005", broker=3)
def follower_never_learns_the_watermark() -> dict[str, Any]:
    watch = Watch().settle()
    watch.log(3, hw=5).see(10)
    return watch.raised


# --- EPO ----------------------------------------------------------------------------------------


@fires("EPO001", broker=2)
def epoch_file_cannot_be_read() -> dict[str, Any]:
    torn = {
        "problem": ProblemKind.MALFORMED,
        "broker": 2,
        "place": "/l/t-0/leader-epoch-checkpoint",
    }
    return _health_rounds(*[torn] * 2)


@fires("EPO002", broker=3, invariant=7)
def epoch_file_is_out_of_order() -> dict[str, Any]:
    watch = Watch(epoch=2).all_logs(epochs=lineage((0, 0), (2, 5)))
    watch.settle()
    watch.log(3, epochs=lineage((0, 0), (2, 5), (1, 7)), leo=10).see()
    return watch.raised


@fires("EPO003", broker=3, invariant=7)
def replica_knows_an_epoch_the_controller_never_gave() -> dict[str, Any]:
    watch = Watch().settle()
    watch.log(3, epochs=lineage((0, 0), (4, 10))).see(2)
    assert "EPO003" not in watch.raised, "the metadata may be old"
    watch.see(2)
    return watch.raised


@fires("EPO004", broker=3, offsets=(6, 10), invariant=8)
def in_sync_replicas_disagree_below_the_watermark() -> dict[str, Any]:
    watch = Watch(epoch=2).all_logs(epochs=lineage((0, 0), (2, 6)))
    watch.settle()
    watch.log(3, epochs=lineage((0, 0), (1, 6))).see()
    return watch.raised


@fires("EPO005", broker=3, offsets=(12, 14))
def one_epoch_starts_at_two_offsets() -> dict[str, Any]:
    """Needs neither HW nor ISR nor a bracket."""
    watch = Watch(epoch=2, bracket=Bracket.NONE)
    watch.all_logs(leo=20, hw=20, epochs=lineage((0, 0), (2, 12)))
    watch.log(3, leo=20, hw=8, epochs=lineage((0, 0), (2, 14)))
    watch.see()
    return watch.raised


@fires("EPO006", broker=2)
def new_leader_did_not_write_its_epoch() -> dict[str, Any]:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).see(3)
    return watch.raised


# --- TRN ----------------------------------------------------------------------------------------


@fires("TRN001", broker=2, offsets=(8, 10))
def new_leader_lacks_committed_offsets() -> dict[str, Any]:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, leo=8, hw=8, epochs=lineage((0, 0), (1, 8))).log(3, leo=8, hw=8).see()
    return watch.raised


@fires("TRN001", broker=2, offsets=(8, 10))
def new_leader_holds_other_records_at_committed_offsets() -> dict[str, Any]:
    """The loss was not seen when it happened: by now the new leader has written past it."""
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, leo=15, hw=15, epochs=lineage((0, 0), (1, 8)))
    watch.log(3, leo=15, hw=15, epochs=lineage((0, 0), (1, 8))).see()
    return watch.raised


@fires("TRN001", broker=1, offsets=(6, 10))
def last_replica_standing_comes_back_short() -> dict[str, Any]:
    watch = Watch(isr=(1,)).log(2, leo=3, hw=3).log(3, leo=3, hw=3).settle()
    watch.stop(1).change(leader=-1, epoch=1).see(2)
    watch.start(1).change(leader=1, epoch=2)
    watch.log(1, leo=6, hw=6, epochs=lineage((0, 0), (2, 6))).see()
    return watch.raised


@fires("TRN001", broker=2, offsets=(20, 25))
def deposed_leader_committed_beyond_what_it_had_removed() -> dict[str, Any]:
    """Search, seed 32018: [10, 20) was removed and its epoch is not known; [20, 25) is of epoch 1,
    and by the time the next leader answers, that has written others there."""
    watch = Watch().settle()
    watch.stop(2, 3).log(1, leads=True, believes=1).change(leader=-1, epoch=3, isr=(2,))
    watch.log(1, start=20, hw=25, leo=25, epochs=lineage((1, 20))).see()
    watch.stop(1).start(2).change(leader=2, epoch=4)
    watch.log(2, leo=30, hw=30, epochs=lineage((0, 0), (1, 10), (4, 20))).see()
    return watch.raised


@fires("TRN002", broker=3, offsets=(7, 9))
def follower_cuts_what_its_leader_has() -> dict[str, Any]:
    watch = Watch(isr=(1, 2)).log(3, leo=9, hw=9)
    watch.see(2)
    watch.stop(1).change(leader=2, epoch=1, isr=(2,))
    watch.log(2, epochs=lineage((0, 0), (1, 10))).log(3, leo=7, hw=7).see()
    return watch.raised


@fires("TRN003", broker=3, offsets=(10, 13), with_codes=("TRN005",))
def follower_keeps_what_its_leader_never_had() -> dict[str, Any]:
    watch = Watch().log(1, leo=13).log(3, leo=13)
    watch.see(3)
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, epochs=lineage((0, 0), (1, 10))).see(2)
    watch.log(2, leo=16, hw=10).log(3, leo=16, epochs=lineage((0, 0), (1, 13))).see()
    return watch.raised


@fires("TRN004", broker=3, offsets=(10, 18))
def follower_diverges_from_its_leader() -> dict[str, Any]:
    watch = Watch(epoch=2, isr=(1, 2))
    watch.all_logs(leo=20, hw=20, epochs=lineage((0, 0), (2, 10)))
    watch.log(3, leo=20, hw=10, epochs=lineage((0, 0), (1, 10), (2, 18)))
    watch.see()
    return watch.raised


@fires("TRN005", broker=1, offsets=(10, 14))
def old_leaders_uncommitted_tail_is_dropped() -> dict[str, Any]:
    watch = Watch().log(1, leo=14)
    watch.see(3)
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see()
    return watch.raised


@fires("TRN006", broker=2, offsets=(8, 10), with_codes=("TRN001",))
def replica_comes_back_and_keeps_what_its_leader_overwrote() -> dict[str, Any]:
    watch = Watch(version="0.10.2.2", replicas=(1, 2)).all_logs(epochs=None)
    watch.see(4)
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(1,)).see(2)
    watch.start(1).change(leader=1, epoch=2).log(1, leo=8, hw=8).see()
    watch.log(1, leo=12, hw=12).see()
    watch.start(2).log(2, leo=12, hw=12).see()
    watch.change(isr=(1, 2)).see()
    return watch.raised


# --- LOG ----------------------------------------------------------------------------------------


@fires("LOG001", broker=3, offsets=(0, 10))
def one_replica_holds_other_bytes_than_the_two_others() -> dict[str, Any]:
    watch = Watch().settle()
    watch.digests = tuple(
        BatchDigest(b, OffsetRange(0, 10), crc) for b, crc in ((1, 7), (2, 7), (3, 8))
    )
    watch.see()
    return watch.raised


@fires("LOG001", broker=2, offsets=(0, 10))
def of_two_replicas_the_leader_is_believed() -> dict[str, Any]:
    watch = Watch(replicas=(1, 2)).settle()
    watch.digests = (
        BatchDigest(2, OffsetRange(0, 10), crc=8),
        BatchDigest(1, OffsetRange(0, 10), crc=7),
    )
    watch.see()
    return watch.raised


@fires("LOG002", broker=3, offsets=(4, 5))
def batch_does_not_match_its_checksum() -> dict[str, Any]:
    watch = Watch().settle()
    watch.digests = (BatchDigest(3, OffsetRange(0, 10), crc=None, invalid_at=4),)
    watch.see()
    return watch.raised


@fires("LOG003", broker=3, offsets=(4, 10))
def offsets_are_missing() -> dict[str, Any]:
    watch = Watch().settle()
    watch.digests = (BatchDigest(3, OffsetRange(0, 10), crc=None, gap_at=4),)
    watch.see()
    return watch.raised


@fires("LOG004", broker=3)
def directory_belongs_to_another_topic() -> dict[str, Any]:
    watch = Watch().settle()
    watch.log(3, topic_id="topic-id-0000000000009").see(14)
    return watch.raised


@fires("LOG004")
def topic_id_vanishes_from_the_metadata() -> dict[str, Any]:
    watch = Watch().settle()
    watch.set(topic_id=None).see(14)
    return watch.raised


@fires("LOG005", broker=3)
def log_directory_is_offline() -> dict[str, Any]:
    watch = Watch().settle()
    watch.log(3, log_dir_online=False).see(2)
    return watch.raised


@fires("LOG006", broker=3)
def partition_is_missing_in_the_watermark_checkpoint() -> dict[str, Any]:
    missing = {"problem": ProblemKind.CHECKPOINT_ENTRY_MISSING, "broker": 3, "place": "/logs"}
    return _health_rounds(*[missing] * 14)


@fires("LOG007", broker=3)
def directory_nobody_assigned_stays() -> dict[str, Any]:
    stray = {"problem": ProblemKind.STRAY_DIRECTORY, "broker": 3, "place": "/logs/t-0"}
    return _health_rounds(*[stray] * 125)


# --- SRC, FCT -----------------------------------------------------------------------------------


@fires("SRC001")
def source_is_silent() -> dict[str, Any]:
    return _health_rounds({"problem": ProblemKind.SILENT})


@fires("SRC006")
def partition_is_left_out() -> dict[str, Any]:
    return _health_rounds({"problem": ProblemKind.NOT_REPORTED, "topic": "t", "partition": 0})


@fires("SRC002")
def source_may_not_read() -> dict[str, Any]:
    reason = {"problem": ProblemKind.UNREADABLE, "reason": "TOPIC_AUTHORIZATION_FAILED"}
    return _health_rounds(*[reason] * 2)


@fires("SRC002")
def znode_is_not_what_it_should_be() -> dict[str, Any]:
    torn = {"problem": ProblemKind.MALFORMED, "place": "/brokers/topics/t/partitions/0/state"}
    return _health_rounds(*[torn] * 2)


@fires("SRC002", broker=3)
def log_directory_cannot_be_read() -> dict[str, Any]:
    away = {"problem": ProblemKind.LOG_DIR_OFFLINE, "broker": 3, "place": "broker 3: /data"}
    return _health_rounds(*[away] * 2)


@fires("SRC003")
def clock_is_off() -> dict[str, Any]:
    return _health_rounds(*[{"problem": ProblemKind.CLOCK_SKEW, "skew_ms": 90_000}] * 2)


@fires("SRC004")
def record_of_an_unknown_schema_version_is_refused() -> dict[str, Any]:
    reason = {"problem": ProblemKind.RECORDS_REFUSED, "reason": "schema version 9 is not known"}
    return _health_rounds(reason)


@fires("SRC005")
def sink_does_not_answer() -> dict[str, Any]:
    reason = {"problem": ProblemKind.SINK_FAILING, "reason": "connection refused"}
    return _health_rounds(reason)


@fires("FCT001", broker=1, with_codes=("ISR006", "ISR008"))
def last_in_sync_replica_is_one_failure_from_offline() -> dict[str, Any]:
    watch = Watch(isr=(1,))
    watch.stop(2, 3).see(130)
    return watch.raised


@fires("FCT002", broker=2, offsets=(8, 10), with_codes=("ISR006", "ISR008"))
def next_failure_elects_a_replica_without_committed_records() -> dict[str, Any]:
    watch = Watch(isr=(1,)).setting(unclean_leader_election_enable=True)
    watch.log(2, leo=8, hw=8).log(3, leo=8, hw=8).see(130)
    return watch.raised


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in FIRING])
def test_a_fault_raises_its_code(case: Firing) -> None:
    raised = case.story()
    assert set(raised) == {case.code, *case.with_codes}
    found = raised[case.code]
    if case.broker is not None:
        assert found.broker == case.broker
    assert found.offsets == (OffsetRange(*case.offsets) if case.offsets else None)
    assert found.expected
    assert found.observed
    assert found.because


def _cluster_rounds(*rounds: dict[str, Any]) -> dict[str, Any]:
    rules: RuleSet = rules_for("3.9.1")
    memory, raised = None, {}
    for number, changes in enumerate(rounds):
        fields: dict[str, Any] = {
            "cluster": "test",
            "observed_at_ms": 1_000_000 + number * 5_000,
            "rules": rules,
            "controller": 1,
            "controller_epoch": 5,
            "registrations": tuple(Registration(b, 100 + b) for b in (1, 2, 3)),
            "answering": (1, 2, 3),
        } | changes
        fields.setdefault("controller_epoch_before", fields["controller_epoch"])
        memory, verdicts = step(memory, ClusterObservation(**fields))
        for violated in verdicts.violated:
            raised.setdefault(violated.code, violated)
    return raised


def _health_rounds(*rounds: dict[str, Any]) -> dict[str, Any]:
    memory, raised = None, {}
    for number, changes in enumerate(rounds):
        health = HealthObservation(
            cluster="test", observed_at_ms=1_000_000 + number * 5_000, source="agent", **changes
        )
        memory, verdicts = step(memory, health)
        for violated in verdicts.violated:
            raised.setdefault(violated.code, violated)
    return raised
