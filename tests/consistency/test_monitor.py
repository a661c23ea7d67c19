"""The monitor's own promises: time, coherence, memory, and the worked examples it must judge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.consistency.memory import (
    MAX_ERAS,
    MAX_LEDGER_ENTRIES,
    MAX_LINEAGE_ENTRIES,
    MAX_LOST_RANGES,
    MAX_SUSPICIONS,
)
from tidestaff.consistency.model import (
    Assignment,
    Bracket,
    EpochEntry,
    OffsetRange,
    PartitionObservation,
    PartitionState,
    RecoveryState,
    Registration,
    ReplicaReading,
)
from tidestaff.consistency.monitor import step
from tidestaff.consistency.rules import Grace, Timing
from tidestaff.consistency.verdict import Holds, Scope, Unknown, Violated
from tidestaff.consistency.versions import Mode, rules_for

from tests.consistency.watch import Watch, lineage

if TYPE_CHECKING:
    from tidestaff.consistency.memory import PartitionMemory


# --- verdicts -----------------------------------------------------------------------------------


def test_a_rule_that_is_not_listed_holds() -> None:
    verdicts = Watch().see()
    assert verdicts.of("ELE002") == Holds("ELE002")
    assert verdicts.scope is Scope.PARTITION


def test_a_violation_is_found_by_its_code_and_broker() -> None:
    watch = Watch().settle()
    watch.log(3, hw=11)
    verdicts = watch.see(2)
    assert isinstance(verdicts.of("HWM001"), Violated)
    assert isinstance(verdicts.of("HWM001", 3), Violated)
    assert verdicts.of("HWM001", 2) == Holds("HWM001")


def test_a_breach_within_its_grace_time_is_unknown_and_says_since_when() -> None:
    watch = Watch().settle()
    watch.stop(3)
    first = watch.see()
    since = watch.now_ms
    again = watch.see()
    assert isinstance(first.of("ISR002", 3), Unknown)
    assert again.of("ISR002", 3).suspected_since_ms == since  # type: ignore[union-attr]


def test_a_violation_after_grace_says_since_when_it_lasted() -> None:
    watch = Watch().settle()
    watch.stop(3)
    since = watch.now_ms + 5_000
    watch.see(8)
    assert watch.raised["ISR002"].since_ms == since


def test_a_suspicion_does_not_bridge_a_gap_in_the_observations() -> None:
    watch = Watch().settle()
    watch.stop(3).see(2)
    watch.see(every_ms=3_600_000)
    watch.see()
    assert "ISR002" not in watch.raised


def test_a_suspicion_is_cleared_when_the_condition_is_gone() -> None:
    watch = Watch().settle()
    watch.stop(3).see(5)
    watch.start(3).see()
    assert watch.memory is not None
    assert watch.memory.suspicions == ()


@pytest.mark.parametrize(
    ("grace", "expected_ms", "text"),
    [
        pytest.param(Grace(), 0, "none", id="no-grace-is-none"),
        pytest.param(Grace(samples=2), 0, "2 observations in a row", id="samples-alone"),
        pytest.param(
            Grace(samples=3, session_timeouts=1, fixed_ms=10_000),
            28_000,
            "3 observations in a row over session timeout + 10 s",
            id="a-session-timeout-and-ten-seconds",
        ),
        pytest.param(Grace(lag_times=2), 60_000, "2 x replica.lag.time.max.ms", id="two-lag-times"),
    ],
)
def test_grace_is_counted_in_the_clusters_own_settings(
    grace: Grace, expected_ms: int, text: str
) -> None:
    assert grace.ms(Timing()) == expected_ms
    assert str(grace) == text


# --- coherence ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bracket", [Bracket.STRADDLED, Bracket.NONE])
def test_bracketed_rules_are_unknown_without_a_coherent_bracket(bracket: Bracket) -> None:
    watch = Watch().settle()
    watch.set(bracket=bracket).log(3, leo=2, hw=2)
    verdicts = watch.see()
    assert isinstance(verdicts.of("HWM004"), Unknown)
    assert isinstance(verdicts.of("TRN001"), Unknown)
    assert not watch.raised


def test_what_needs_one_reading_only_alarms_at_once_whatever_the_bracket() -> None:
    watch = Watch(bracket=Bracket.STRADDLED)
    watch.log(3, hw=99).change(isr=(2, 3)).see(2)
    assert set(watch.raised) == {"HWM001", "ELE002"}


def test_offsets_are_remembered_from_a_coherent_bracket_only() -> None:
    """But for what a leader has committed: its own word is enough."""
    watch = Watch().settle()
    watch.append(50).set(bracket=Bracket.STRADDLED).see()
    assert watch.memory is not None
    assert watch.memory.committed_end == 60
    assert [r.log_end_offset for r in watch.memory.replicas] == [10, 10, 10]
    watch.set(bracket=Bracket.COHERENT).see()
    assert [r.log_end_offset for r in watch.memory.replicas] == [60, 60, 60]


def test_a_leader_that_is_still_in_another_epoch_proves_no_loss() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, leo=3, hw=3, believes=0)
    verdicts = watch.see()
    assert isinstance(verdicts.of("TRN001"), Unknown)


def test_an_observation_that_is_not_newer_changes_nothing() -> None:
    watch = Watch().settle()
    memory = watch.memory
    assert memory is not None
    watch.log(3, hw=99)
    same_time = replace(watch.observation(), observed_at_ms=memory.observed_at_ms)
    earlier = replace(watch.observation(), observed_at_ms=memory.observed_at_ms - 1)
    for observation in (same_time, earlier):
        after, verdicts = step(memory, observation)
        assert after is memory
        assert verdicts.violated == ()


def test_an_observation_seen_twice_changes_nothing() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see()
    before = watch.memory
    after, verdicts = step(before, watch.observation())
    assert after == before
    assert verdicts.violated == ()


# --- memory -------------------------------------------------------------------------------------


def test_memory_stays_bounded_over_a_restless_life() -> None:
    watch = Watch()
    for round_number in range(300):
        epoch = round_number + 1
        leader = 1 + round_number % 3
        entries = tuple(EpochEntry(e, 10 * e) for e in range(epoch + 1))
        watch.change(leader=leader, epoch=epoch).all_logs(
            leo=10 * epoch + 5, hw=10 * epoch + 5, epochs=entries
        )
        watch.see()
    memory = watch.memory
    assert memory is not None
    assert len(memory.eras) == MAX_ERAS
    assert len(memory.ledger) == MAX_LEDGER_ENTRIES
    assert len(memory.suspicions) <= MAX_SUSPICIONS
    assert len(memory.lost) <= MAX_LOST_RANGES
    assert all(len(r.lineage or ()) <= MAX_LINEAGE_ENTRIES for r in memory.replicas)


def test_a_loss_is_reported_once_and_kept() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, leo=8, hw=8, epochs=lineage((0, 0), (1, 8))).log(3, leo=8, hw=8)
    assert watch.see().codes == ("TRN001",)
    assert watch.see().codes == ()
    assert watch.memory is not None
    assert watch.memory.lost == (OffsetRange(8, 10),)


def test_retention_is_not_loss() -> None:
    watch = Watch().settle()
    watch.append(90).see(2)
    watch.all_logs(start=100).see(2)
    watch.append(5).see(2)
    assert not watch.raised


def test_the_ledger_outlives_a_leader_with_a_lower_watermark() -> None:
    watch = Watch().settle()
    watch.log(1, leo=20, hw=20).log(2, leo=20, hw=12).log(3, leo=20, hw=12).see()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 20)))
    watch.see()
    assert watch.memory is not None
    assert watch.memory.committed_end == 20
    watch.stop(2).change(leader=3, epoch=2, isr=(3,))
    watch.log(3, leo=15, hw=12, epochs=lineage((0, 0), (2, 15))).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(15, 20)


# --- predictions --------------------------------------------------------------------------------


def test_a_change_of_leader_predicts_where_each_follower_cuts() -> None:
    watch = Watch().settle()
    watch.log(1, leo=14).log(3, leo=12).see()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.see()
    assert watch.memory is not None
    cuts = {r.broker: r.cut.offset for r in watch.memory.replicas if r.cut is not None}
    assert cuts == {3: 10}


def test_under_the_watermark_rule_the_prediction_is_the_own_watermark() -> None:
    watch = Watch(version="0.10.2.2").all_logs(epochs=None)
    watch.log(3, hw=7).see(2)
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).log(3, leo=7).see()
    assert watch.memory is not None
    cut = watch.memory.replica(3).cut  # type: ignore[union-attr]
    assert cut is not None
    assert cut.offset == 7
    assert "TRN002" not in watch.raised


def test_a_restart_explains_a_shorter_log_where_nothing_else_does() -> None:
    watch = Watch(isr=(1, 2)).log(3, leo=9, hw=9)
    watch.see(2)
    watch.stop(1).change(leader=2, epoch=1, isr=(2,)).log(2, epochs=lineage((0, 0), (1, 10)))
    watch.start(3).log(3, leo=4, hw=4).see()
    assert "TRN002" not in watch.raised


# --- worked examples ----------------------------------------------------------------------------


def test_s09_s10_s11_a_clean_stop_and_return_raise_nothing_but_under_replication_later() -> None:
    watch = (
        Watch(replicas=(0, 2, 1), leader=0)
        .all_logs(leo=0, hw=0, epochs=())
        .log(0, epochs=lineage((0, 0)))
    )
    watch.settle()
    watch.register(0, shutting_down=True)
    watch.change(leader=2, epoch=1, isr=(2, 1)).log(2, epochs=lineage((1, 0)))
    watch.stop(0).see(6)
    watch.start(0).log(0, epochs=()).see(2)
    watch.change(isr=(2, 1, 0)).see(3)
    watch.change(leader=0, epoch=2).log(0, epochs=lineage((2, 0)))
    watch.see(5)
    assert not watch.raised  # S-13: three different epoch files, and no divergence
    watch.stop(0).change(leader=2, epoch=3, isr=(2, 1)).log(2, epochs=lineage((3, 0))).see(130)
    assert set(watch.raised) == {"ISR008"}


@pytest.mark.parametrize("version", ["0.10.2.2", "3.9.1"])
def test_s23_loss_is_raised_at_the_election_with_its_range(version: str) -> None:
    """A = 1 restarts and cuts to its HW 1; B = 2 dies; A leads with LEO 1 although 2 was
    committed."""
    watch = _kip_101(version)
    watch.start(1).log(1, leo=1, hw=1, epochs=_epochs(version, (0, 0))).see()
    watch.raised.clear()  # the ISR member below the HW: its own test is below
    watch.stop(2).change(leader=1, epoch=1, isr=(1,))
    watch.log(1, epochs=_epochs(version, (0, 0), (1, 1))).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(1, 2)
    assert "TRN003" not in watch.raised


def test_s23_the_window_before_the_loss_is_an_exposure() -> None:
    watch = _kip_101("3.9.1")
    watch.start(1).log(1, leo=1, hw=1).see()
    assert set(watch.raised) == {"HWM004"}
    assert watch.raised["HWM004"].broker == 1
    assert watch.raised["HWM004"].offsets == OffsetRange(1, 2)


def test_s24_divergence_of_logs_without_epochs_is_proven_by_the_rule() -> None:
    """A = 1 loses its tail and leads from 1; B = 2 comes back with HW 2 and keeps its record 1."""
    watch = _kip_101("0.10.2.2")
    watch.see(3)  # long enough for B's HW 2 to be in its checkpoint
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(1,)).see(2)
    watch.start(1).change(leader=1, epoch=2).log(1, leo=1, hw=1).see()
    watch.log(1, leo=2, hw=2).see()
    watch.start(2).see()
    watch.change(isr=(1, 2)).see()
    assert set(watch.raised) == {"TRN001", "TRN006"}
    assert watch.raised["TRN006"].broker == 2
    assert watch.raised["TRN006"].offsets == OffsetRange(1, 2)


def test_s26_divergence_after_one_restart_and_one_crash() -> None:
    watch = Watch(version="0.10.2.2", replicas=(2, 1), leader=2).all_logs(epochs=None, leo=1, hw=1)
    watch.log(1, hw=0).see(4)
    watch.start(1).log(1, leo=0, hw=0).see()
    watch.raised.clear()  # the exposure that precedes the loss
    watch.stop(2).change(leader=1, epoch=1, isr=(1,)).see()
    watch.log(1, leo=1, hw=1).see()
    watch.start(2).see()
    watch.change(isr=(1, 2)).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(0, 1)
    assert watch.raised["TRN006"].broker == 2
    assert watch.raised["TRN006"].offsets == OffsetRange(0, 1)


def test_s24_nothing_is_claimed_where_the_checkpoint_may_be_older() -> None:
    """B's HW 2 stood for a moment only: it may have cut to 1 and fetched the new record."""
    watch = _kip_101("0.10.2.2")
    watch.log(2, hw=1).see(3)
    watch.log(2, hw=2).see(every_ms=1_000)
    watch.raised.clear()
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(1,)).see(2)
    watch.start(1).change(leader=1, epoch=2).log(1, leo=1, hw=1).see()
    watch.log(1, leo=2, hw=2).see()
    watch.start(2).see()
    watch.change(isr=(1, 2)).see()
    assert "TRN006" not in watch.raised


def test_s24_a_replica_that_is_seen_shorter_has_cut() -> None:
    watch = _kip_101("0.10.2.2")
    watch.see(3)
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(1,)).see(2)
    watch.start(1).change(leader=1, epoch=2).log(1, leo=1, hw=1).see()
    watch.log(1, leo=2, hw=2).see()
    watch.start(2).log(2, leo=1, hw=1).see()
    watch.log(2, leo=2, hw=2).change(isr=(1, 2)).see(2)
    assert "TRN006" not in watch.raised


def test_s28_divergence_prevented_is_reported_as_loss_and_not_as_divergence() -> None:
    watch = _kip_101("3.9.1")
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(1,)).see(2)
    watch.start(1).change(leader=1, epoch=2)
    watch.log(1, leo=1, hw=1, epochs=lineage((0, 0), (2, 1))).see()
    watch.log(1, leo=2, hw=2).see()
    watch.start(2).see()  # back, not yet truncated: legal
    watch.log(2, leo=1, hw=1, epochs=lineage((0, 0))).see()
    watch.log(2, leo=2, hw=2, epochs=lineage((0, 0), (2, 1))).see()
    watch.change(isr=(1, 2)).see(3)
    assert set(watch.raised) == {"TRN001"}
    assert watch.raised["TRN001"].offsets == OffsetRange(1, 2)


def test_s28_a_replica_that_did_not_cut_is_named_with_the_predicted_point() -> None:
    watch = _kip_101("3.9.1")
    watch.stop(1, 2).change(leader=-1, epoch=1, isr=(1,)).see(2)
    watch.start(1).change(leader=1, epoch=2)
    watch.log(1, leo=1, hw=1, epochs=lineage((0, 0), (2, 1))).see()
    watch.log(1, leo=3, hw=3).see()
    watch.start(2).see()
    watch.log(2, leo=3, hw=2, epochs=lineage((0, 0), (2, 2))).see()
    found = watch.raised["TRN003"]
    assert found.broker == 2
    assert found.offsets is not None
    assert found.offsets.start == 1
    assert "truncation to 1" in found.expected


def test_s32_unclean_election_and_loss_are_alerts_and_divergence_is_not() -> None:
    watch = Watch(replicas=(1, 0), leader=1).all_logs(leo=1, hw=1)
    watch.setting(unclean_leader_election_enable=True)
    watch.see(3)
    watch.stop(0).change(epoch=1, isr=(1,)).log(1, leo=2, hw=2, epochs=lineage((0, 0), (1, 1)))
    watch.see(2)
    watch.stop(1).change(leader=-1, epoch=2).see(2)
    watch.start(0).change(leader=0, epoch=3, isr=(0,), recovering=True)
    watch.log(0, epochs=lineage((0, 0), (3, 1))).see()
    watch.log(0, leo=2, hw=2).see()
    watch.start(1).log(1, leo=1, hw=1, epochs=lineage((0, 0))).see()
    watch.log(1, leo=2, hw=2, epochs=lineage((0, 0), (3, 1)))
    watch.change(isr=(0, 1), recovering=False).see(3)
    assert set(watch.raised) == {"ELE009", "TRN001"}
    assert watch.raised["TRN001"].offsets == OffsetRange(1, 2)
    assert watch.raised["ELE009"].offsets == OffsetRange(1, 2)


def test_s36_loss_of_uncommitted_records_is_information_only() -> None:
    watch = Watch(replicas=(0, 1, 2), leader=0).log(0, leo=8, hw=4).log(1, leo=4, hw=4)
    watch.log(2, leo=6, hw=4).see(3)
    watch.stop(0).change(leader=1, epoch=1, isr=(1, 2)).log(1, epochs=lineage((0, 0), (1, 4)))
    watch.see()
    watch.log(2, leo=4).see()
    watch.start(0).log(0, leo=4, hw=4).see(2)
    assert set(watch.raised) == {"TRN005"}
    assert watch.raised["TRN005"].offsets == OffsetRange(4, 8)


def _epochs(version: str, *entries: tuple[int, int]) -> tuple[EpochEntry, ...] | None:
    return None if version.startswith("0.10") else lineage(*entries)


def _kip_101(version: str) -> Watch:
    """The state both stories start from: A = 1 leo 2 hw 1, B = 2 leads with leo 2 hw 2."""
    watch = Watch(version=version, replicas=(1, 2), leader=2)
    watch.all_logs(leo=2, hw=2, epochs=_epochs(version, (0, 0))).log(1, hw=1)
    watch.see(3)
    assert not watch.raised
    return watch


# --- no input breaks it -------------------------------------------------------------------------

_broker = st.integers(min_value=0, max_value=4)
_offset = st.integers(min_value=-1, max_value=12) | st.none()
_brokers = st.lists(_broker, max_size=4, unique=True).map(tuple)
_lineages = st.none() | st.lists(
    st.builds(EpochEntry, st.integers(-1, 5), st.integers(-1, 12)), max_size=4
).map(tuple)
_readings = st.lists(
    st.builds(
        ReplicaReading,
        broker=_broker,
        log_start_offset=_offset,
        high_watermark=_offset,
        log_end_offset=_offset,
        broker_epoch=st.none() | st.integers(0, 3),
        leader_epoch=st.none() | st.integers(-1, 5),
        leads=st.none() | st.booleans(),
        lineage=_lineages,
    ),
    max_size=4,
    unique_by=lambda reading: reading.broker,
).map(tuple)
_states = st.builds(
    PartitionState,
    leader=st.integers(min_value=-2, max_value=4),
    leader_epoch=st.integers(-1, 5),
    isr=_brokers,
    partition_epoch=st.integers(0, 5),
    controller_epoch=st.none() | st.integers(0, 3),
    recovery=st.sampled_from(RecoveryState),
    elr=_brokers,
)
_rule_sets = st.sampled_from(
    [rules_for(v) for v in ("0.8.2", "0.10.2.2", "1.1.1", "2.0.0", "2.8.2", "3.9.1")]
    + [rules_for(v, Mode.KRAFT) for v in ("3.3", "3.9.1", "4.0.0", "4.1.1", "4.3.0")]
)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), rules=_rule_sets)
def test_no_sequence_of_observations_raises_an_exception(
    data: st.DataObject, rules: object
) -> None:
    memory: PartitionMemory | None = None
    for round_number in range(4):
        observation = data.draw(
            st.builds(
                PartitionObservation,
                cluster=st.just("c"),
                topic=st.just("t"),
                partition=st.just(0),
                observed_at_ms=st.just(1_000 * round_number + 1),
                rules=st.just(rules),
                state=_states,
                assignment=st.builds(Assignment, _brokers, _brokers, _brokers),
                live=st.lists(
                    st.builds(Registration, _broker, st.integers(0, 3), st.booleans()),
                    max_size=4,
                    unique_by=lambda r: r.broker,
                ).map(tuple),
                replicas=_readings,
                bracket=st.sampled_from(Bracket),
                topic_id=st.none() | st.sampled_from(["a", "b"]),
                controller=st.none() | st.integers(-1, 3),
                cluster_controller_epoch=st.none() | st.integers(0, 3),
                deleting=st.booleans(),
                authoritative=st.booleans(),
            )
        )
        memory, verdicts = step(memory, observation)
        assert verdicts.scope is Scope.PARTITION
