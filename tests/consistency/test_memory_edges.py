"""What is remembered, to the field; each was found by a seeded fault (`make mutants`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tidestaff.consistency.checks.sight import Sight
from tidestaff.consistency.memory import (
    MAX_ISR_EXITS,
    MAX_LEDGER_ENTRIES,
    MAX_LOST_RANGES,
    ClusterMemory,
    Lost,
    PartitionMemory,
    ReplicaMemory,
)
from tidestaff.consistency.model import (
    Bracket,
    ClusterObservation,
    EpochEntry,
    OffsetRange,
    Registration,
)
from tidestaff.consistency.monitor import judge_partition, step
from tidestaff.consistency.predictions import predicted_cuts
from tidestaff.consistency.ranges import merged
from tidestaff.consistency.versions import rules_for

from tests.consistency.watch import Watch, lineage


def memory_of(watch: Watch) -> PartitionMemory:
    assert watch.memory is not None
    return watch.memory


def replica_of(watch: Watch, broker: int) -> ReplicaMemory:
    replica = memory_of(watch).replica(broker)
    assert replica is not None
    return replica


# --- the ledger ---------------------------------------------------------------------------------


def test_what_is_lost_leaves_the_ledger_with_its_epochs() -> None:
    watch = Watch(epoch=1).all_logs(epochs=lineage((0, 0), (1, 8))).settle()
    watch.stop(1).change(leader=2, epoch=2, isr=(2, 3))
    watch.log(2, leo=5, hw=3, epochs=lineage((0, 0), (2, 5))).log(3, leo=5, hw=3).see()
    memory = memory_of(watch)
    assert memory.losses == (Lost(OffsetRange(5, 8), 0), Lost(OffsetRange(8, 10), 1))
    assert (memory.committed_end, memory.ledger, memory.ledger_end) == (5, lineage((0, 0)), 5)


def test_the_ledger_holds_epochs_of_committed_offsets_only() -> None:
    watch = Watch(epoch=1).all_logs(leo=20, hw=12, epochs=lineage((0, 0), (1, 15)))
    watch.see()
    assert memory_of(watch).ledger == lineage((0, 0))


def test_the_ledger_starts_at_the_log_start() -> None:
    watch = Watch().settle()
    watch.all_logs(start=6).see()
    assert memory_of(watch).committed_start == 6


def test_of_many_epochs_the_newest_are_kept() -> None:
    entries = tuple(EpochEntry(epoch, 10 * epoch) for epoch in range(40))
    watch = Watch(epoch=39).all_logs(leo=400, hw=400, epochs=entries)
    watch.see()
    assert memory_of(watch).ledger == entries[-MAX_LEDGER_ENTRIES:]


def test_losses_are_bounded_and_the_latest_are_kept() -> None:
    watch = Watch(replicas=(1, 2)).settle()
    end = 10
    for epoch in range(1, MAX_LOST_RANGES + 5):
        end += 5
        watch.append(5).see()
        end -= 2
        entries = (*(watch.logs[1].epochs or ()), EpochEntry(epoch, end))
        watch.change(epoch=epoch).all_logs(leo=end, hw=end, epochs=entries).see()
    lost = memory_of(watch).lost
    assert len(lost) == MAX_LOST_RANGES
    assert lost[-1] == OffsetRange(end, end + 2)


def test_a_loss_of_more_epochs_than_are_kept_is_reported_once() -> None:
    """A replica that was in office once, and is not any more, goes on showing all of it."""
    epochs = tuple(EpochEntry(epoch, 10 * epoch) for epoch in range(MAX_LOST_RANGES + 6))
    last = epochs[-1].epoch
    end = 10 * (last + 1)
    watch = Watch(replicas=(1, 2, 3), epoch=last).all_logs(leo=end, hw=end, epochs=epochs)
    watch.see()
    watch.change(leader=2, isr=(2,), epoch=last + 1)
    watch.log(2, leo=0, hw=0, epochs=())
    told = [found.code for found in watch.see().violated]
    assert told.count("TRN001") == 1
    assert merged(memory_of(watch).lost) == (OffsetRange(0, end),)
    assert len(memory_of(watch).lost) <= MAX_LOST_RANGES
    for _ in range(3):
        assert "TRN001" not in [found.code for found in watch.see().violated]


def test_of_an_incoherent_round_only_what_a_leader_committed_is_remembered() -> None:
    watch = Watch().settle()
    watch.set(bracket=Bracket.NONE).append(5).see()
    assert replica_of(watch, 3).log_end_offset == 10
    assert memory_of(watch).committed_end == 15


def test_what_the_leader_took_after_its_follower_was_read_is_no_lag() -> None:
    watch = Watch().settle()
    watch.log(1, leo=20).log(2, leo=20).log(3, leo=20).now_ms += 5_000
    seen = watch.observation()
    assert seen.leader_again is not None
    later = replace(seen, leader_again=seen.leader_again._replace(log_end_offset=30))
    memory, _ = judge_partition(watch.memory, later)
    assert [each.caught_up_at_ms for each in memory.replicas] == [watch.now_ms] * 3


def test_a_follower_of_an_incoherent_round_proves_no_commit() -> None:
    watch = Watch().settle()
    watch.set(bracket=Bracket.NONE).log(3, leo=15, hw=15).see()
    assert memory_of(watch).committed_end == 10


def test_metadata_that_went_back_leaves_no_epochs_in_the_ledger() -> None:
    watch = Watch(epoch=5).all_logs(epochs=lineage((0, 0), (5, 8))).settle()
    watch.change(epoch=1).all_logs(epochs=lineage((0, 0), (1, 9)), believes=1).see(4)
    assert "ELE007" in watch.raised
    assert memory_of(watch).ledger == lineage((0, 0), (1, 9))


def test_a_follower_outside_the_isr_shows_a_commit_once_it_has_fetched() -> None:
    """The leader's HW rose after it was read, and this follower has heard of it."""
    watch = Watch(epoch=1, isr=(1, 2)).all_logs(epochs=lineage((0, 0), (1, 5))).settle()
    watch.log(1, leo=15, hw=10).log(2, leo=15).log(3, leo=15, hw=15).see()
    assert memory_of(watch).committed_end == 15
    watch.log(1, leo=20, hw=15).log(2, leo=20, hw=15)
    watch.log(3, leo=20, hw=20, epochs=lineage((0, 0))).see()
    assert memory_of(watch).committed_end == 20, "it had fetched before"


def test_a_follower_that_has_not_fetched_in_this_epoch_shows_no_commit() -> None:
    watch = Watch().settle()
    watch.change(leader=2, epoch=1, isr=(2,)).log(2, leo=20, epochs=lineage((0, 0), (1, 10)))
    watch.log(1, leo=15, hw=15).see()
    assert memory_of(watch).committed_end == 10


def test_what_a_deposed_leader_commits_is_missed_by_the_next_one() -> None:
    """The new leader has not been told yet; when it is, the old one is gone."""
    watch = Watch().settle()
    watch.change(leader=2, epoch=1, isr=(2, 3)).set(bracket=Bracket.STRADDLED)
    watch.log(1, leo=14, hw=14, believes=0, leads=True).log(2, believes=0, leads=False).see()
    assert memory_of(watch).committed_end == 14
    watch.stop(1).set(bracket=Bracket.COHERENT)
    watch.log(2, epochs=lineage((0, 0), (1, 10)), believes=1, leads=True).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 14)


def test_epochs_of_a_deposed_leaders_commits_are_kept() -> None:
    """The next leader has as many records there, of another epoch."""
    watch = Watch().settle()
    watch.change(leader=2, epoch=1, isr=(2, 3)).set(bracket=Bracket.STRADDLED)
    watch.log(1, leo=14, hw=14, believes=0, leads=True).log(2, believes=0, leads=False).see()
    watch.stop(1).set(bracket=Bracket.COHERENT)
    watch.log(2, leo=20, epochs=lineage((0, 0), (1, 10)), believes=1, leads=True).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 14)


def test_a_leader_of_an_unknown_newer_topic_proves_nothing() -> None:
    """Without topic ids a broker may still answer for a deleted topic of the same name."""
    watch = Watch(version="2.6.0", topic_id=None).settle()
    watch.set(bracket=Bracket.STRADDLED).log(1, leo=90, hw=90, believes=7, leads=True).see()
    assert memory_of(watch).committed_end == 10


def test_a_loss_that_was_reported_does_not_come_back_with_a_deposed_leader() -> None:
    watch = Watch(isr=(1,)).settle()
    watch.change(leader=2, epoch=1, isr=(2,)).log(1, believes=0, leads=True)
    watch.log(2, leo=6, hw=6, epochs=lineage((0, 0), (1, 6)))
    assert watch.see().codes.count("TRN001") == 1
    watch.set(bracket=Bracket.STRADDLED).see(2)
    assert memory_of(watch).committed_end == 6
    watch.set(bracket=Bracket.COHERENT)
    assert "TRN001" not in watch.see().codes


def test_the_watermark_of_an_in_sync_replica_shows_a_commit_the_new_leader_does_not_know_yet() -> (
    None
):
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(3, leo=15, hw=15)
    watch.log(2, leo=15, epochs=lineage((0, 0), (1, 15))).see()
    assert memory_of(watch).committed_end == 15


# --- calm ---------------------------------------------------------------------------------------


def test_what_is_suspected_is_not_calm() -> None:
    watch = Watch().settle()
    assert memory_of(watch).calm is not None
    watch.log(3, hw=5).see(2)
    assert memory_of(watch).suspicions
    assert memory_of(watch).calm is None


def test_right_after_a_change_nothing_is_calm() -> None:
    watch = Watch().settle()
    watch.change(epoch=1).log(1, epochs=lineage((0, 0), (1, 10))).see()
    assert memory_of(watch).calm is None
    watch.see()
    assert memory_of(watch).calm is not None


# --- replicas -----------------------------------------------------------------------------------


def test_a_gap_in_the_observations_leaves_no_lag_to_reckon_from() -> None:
    watch = Watch().settle()
    watch.log(1, leo=20).log(2, leo=20).see(3)
    assert replica_of(watch, 3).caught_up_at_ms < watch.now_ms
    watch.see(every_ms=40_000)
    assert replica_of(watch, 3).caught_up_at_ms == watch.now_ms


def test_a_new_leader_epoch_gives_followers_a_fresh_start() -> None:
    watch = Watch().settle()
    watch.log(1, leo=20).log(2, leo=20).see(3)
    watch.change(epoch=1).log(1, epochs=lineage((0, 0), (1, 20))).see()
    assert replica_of(watch, 3).caught_up_at_ms == watch.now_ms


def test_a_follower_that_reaches_an_old_end_was_caught_up_then() -> None:
    watch = Watch().settle()
    watch.log(1, leo=20).log(2, leo=20).see()
    first = watch.now_ms
    watch.log(1, leo=30).log(2, leo=30).see()
    watch.log(1, leo=40).log(2, leo=40).log(3, leo=20).see()
    assert replica_of(watch, 3).caught_up_at_ms == first
    watch.log(1, leo=50).log(2, leo=50).log(3, leo=40).see()
    assert replica_of(watch, 3).caught_up_at_ms == watch.now_ms - 5_000


def test_a_broker_that_died_did_not_leave_the_isr_by_being_slow() -> None:
    watch = Watch().settle()
    watch.stop(3).change(isr=(1, 2)).see()
    assert replica_of(watch, 3).isr_exits_ms == ()


def test_exits_are_bounded_and_forgotten_at_a_restart() -> None:
    watch = Watch().settle()
    for _ in range(MAX_ISR_EXITS + 2):
        watch.change(isr=(1, 2)).see()
        last = watch.now_ms
        watch.change(isr=(1, 2, 3)).see()
    exits = replica_of(watch, 3).isr_exits_ms
    assert (len(exits), exits[-1]) == (MAX_ISR_EXITS, last)
    watch.start(3).see()
    assert replica_of(watch, 3).isr_exits_ms == ()


def test_who_joined_is_counted_within_one_leader_epoch() -> None:
    watch = Watch(isr=(1, 2))
    watch.see(2)
    watch.change(isr=(1, 2, 3)).see(2)
    assert memory_of(watch).joined_isr == (3,)
    watch.change(epoch=1).log(1, epochs=lineage((0, 0), (1, 10))).see()
    assert memory_of(watch).joined_isr == ()


def test_a_new_controller_is_remembered_with_its_time() -> None:
    watch = Watch().settle()
    watch.set(controller=2, controller_epoch=2).see()
    assert memory_of(watch).controller_since_ms == watch.now_ms
    since = watch.now_ms
    watch.see(2)
    assert memory_of(watch).controller_since_ms == since


# --- predictions --------------------------------------------------------------------------------


def test_no_cut_is_predicted_from_an_incoherent_round() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    assert set(predicted_cuts(Sight(watch.memory, watch.observation()))) == {1, 3}
    watch.set(bracket=Bracket.STRADDLED)
    assert predicted_cuts(Sight(watch.memory, watch.observation())) == {}


@pytest.mark.parametrize(
    ("version", "predicted"),
    [
        pytest.param("2.0.0", False, id="up-to-2-0-0-only-a-new-leader-counts"),
        pytest.param("2.1.0", True, id="from-2-1-every-epoch-counts"),
    ],
)
def test_an_epoch_without_a_new_leader_is_a_reason_to_truncate(
    version: str, predicted: bool
) -> None:
    watch = Watch(version=version).settle()
    watch.change(epoch=1).log(1, epochs=lineage((0, 0), (1, 10))).see()
    assert (replica_of(watch, 3).cut is not None) is predicted


@pytest.mark.parametrize(("version", "at_least"), [("2.0.1", 7), ("3.9.1", 10)])
def test_before_2_8_a_follower_may_fall_back_to_its_watermark(version: str, at_least: int) -> None:
    watch = Watch(version=version).log(3, hw=7)
    watch.see(2)
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see()
    cut = replica_of(watch, 3).cut
    assert cut is not None
    assert (cut.offset, cut.at_least) == (10, at_least)


def test_a_fetch_may_have_lowered_a_watermark_to_the_old_leaders() -> None:
    watch = Watch(version="2.0.1").log(1, hw=5).log(3, hw=7)
    watch.see(2)
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see()
    cut = replica_of(watch, 3).cut
    assert cut is not None
    assert cut.at_least == 5


# --- topics -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            {"topic_id": "topic-id-0000000000001"},
            {"topic_id": "topic-id-0000000000002"},
            id="by-topic-id",
        ),
        pytest.param({"topic_id": None, "czxid": 77}, {"czxid": 99}, id="by-czxid"),
    ],
)
def test_a_topic_made_again_is_remembered_from_scratch(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    watch = Watch(version_of_state=9).set(**before).settle()
    watch.set(version_of_state=0, **after).all_logs(leo=0, hw=0).see()
    assert memory_of(watch).committed_end == 0
    assert not watch.raised


def test_an_older_isr_out_of_a_cache_says_nothing_at_all() -> None:
    watch = Watch().settle()
    watch.change(isr=(1, 2)).see()
    before = watch.memory
    watch.set(isr=(1, 2, 3), version_of_state=0, authoritative=False).see()
    assert watch.memory is before


# --- the cluster --------------------------------------------------------------------------------


def _cluster(*rounds: dict[str, Any]) -> tuple[ClusterMemory, list[tuple[str, ...]]]:
    memory: ClusterMemory | None = None
    raised = []
    for number, changes in enumerate(rounds):
        fields: dict[str, Any] = {
            "cluster": "test",
            "observed_at_ms": 1_000_000 + number * 5_000,
            "rules": rules_for("3.9.1"),
            "controller": 1,
            "controller_epoch": 5,
            "registrations": tuple(Registration(b, 100 + b) for b in (1, 2, 3)),
            "answering": (1, 2, 3),
        } | changes
        fields.setdefault("controller_epoch_before", fields["controller_epoch"])
        memory, verdicts = step(memory, ClusterObservation(**fields))
        raised.append(verdicts.codes)
    assert memory is not None
    return memory, raised


def test_the_old_controllers_name_beside_the_new_epoch_makes_it_no_owner() -> None:
    changing = {"controller": 1, "controller_epoch": 6, "controller_epoch_before": 5}
    memory, raised = _cluster({}, changing, *[{"controller": 2, "controller_epoch": 6}] * 4)
    assert not any(raised)
    assert memory.epoch_owner == (2, 6)


def test_a_name_read_while_the_epoch_changed_is_no_second_controller() -> None:
    lagging = {"controller": 3, "controller_epoch": 5, "controller_epoch_before": 4}
    assert not any(_cluster({}, *[lagging] * 4)[1])


def test_a_controller_epoch_that_fell_stays_fallen() -> None:
    _, raised = _cluster({}, {"controller_epoch": 4}, {"controller_epoch": 4})
    assert raised == [(), ("CTL003",), ("CTL003",)]


def test_a_broker_that_was_away_must_not_come_back_with_an_older_epoch() -> None:
    away = (Registration(1, 101), Registration(3, 103))
    back = (Registration(1, 101), Registration(2, 50), Registration(3, 103))
    _, raised = _cluster({}, {"registrations": away}, {"registrations": back})
    assert raised[-1] == ("REG003",)


def test_a_broker_epoch_that_is_not_known_has_not_fallen() -> None:
    unknown = tuple(Registration(b) for b in (1, 2, 3))
    assert not any(_cluster({}, {"registrations": unknown})[1])


def test_a_fenced_broker_need_not_answer() -> None:
    fenced = (Registration(1, 101), Registration(2, 102), Registration(3, 103, fenced=True))
    assert not any(_cluster(*[{"registrations": fenced, "answering": (1, 2)}] * 15)[1])


def test_an_incoherent_round_takes_nothing_from_the_ledger() -> None:
    """A shorter leader proves a loss only where metadata and logs belong together."""
    watch = Watch().settle()
    watch.set(bracket=Bracket.STRADDLED).all_logs(leo=5, hw=5).see()
    assert memory_of(watch).committed_end == 10
    watch.set(bracket=Bracket.COHERENT).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(5, 10)
