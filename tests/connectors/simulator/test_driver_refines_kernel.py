"""The driver's every step is one of the kernel's: in random histories of faults each change of a
partition is a short sequence of enabled kernel actions; and a driver that is wrong is found out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.simulator import cluster as clusters
from tidestaff.connectors.simulator import following, leading, zk_elections
from tidestaff.connectors.simulator.epoch_file import EpochFile
from tidestaff.connectors.simulator.faults import WEIGHTS
from tidestaff.connectors.simulator.kernel.truncation import Cut, EpochEnd
from tidestaff.connectors.simulator.presets import PRESETS, preset_named
from tidestaff.connectors.simulator.replica import Replica

from tests.proof.refinement import KINDS, OUTSIDE, RULES, UnexplainedError, refined

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS, STEPS = range(20), 80
OLD, LOOKUP, ROUNDS, NEW = "0.10.2.2", "1.1.1", "2.4.1", "3.9.1"


def many(preset: str) -> None:
    for seed in range(40):
        refined(preset, seed, STEPS)


@pytest.mark.parametrize("preset", RULES)
def test_every_step_of_the_driver_is_one_of_the_kernels(preset: str) -> None:
    told: Counter[str] = Counter()
    steps = 0
    for seed in SEEDS:
        found = refined(preset, seed, STEPS)
        told.update(found.told)
        steps += found.steps
    assert steps > 100 * len(SEEDS)
    often = {
        *("controller_elect", "controller_shrink_isr", "controller_unclean_elect"),
        *("become_leader", "become_follower", "leader_write", "follower_fetch"),
        *("follower_hear_hw", "leader_advance_hw", "leader_shrink_isr", "leader_expand_isr"),
        "restart",
    }
    assert often <= set(told), "the histories are varied"


@pytest.mark.slow
@pytest.mark.parametrize("preset", RULES)
def test_so_is_every_step_of_long_histories(preset: str) -> None:
    for seed in range(1_000, 1_010):
        refined(preset, seed, 200)


def test_what_the_kernel_has_no_words_for_is_stated() -> None:
    assert set(WEIGHTS) == KINDS | OUTSIDE
    with_zookeeper = {name for name, preset in PRESETS.items() if not preset.kraft}
    assert with_zookeeper == {*RULES, "0.8.2.2"}


def to_the_watermark(answer: int | None, *, log_end: int, high_watermark: int) -> int:
    del answer, log_end
    return high_watermark


def not_at_all(answer: EpochEnd, own: EpochEnd | None, *, log_end: int) -> Cut:
    del answer, own
    return Cut(log_end, settled=True)


def after_one_round(answer: EpochEnd, own: EpochEnd | None, *, log_end: int) -> Cut:
    end = answer.end if own is None else own.end
    return Cut(min(end, log_end), settled=True)


def everything(answer: EpochEnd, own: EpochEnd | None, *, log_end: int) -> Cut:
    del answer, own, log_end
    return Cut(0, settled=True)


def no_truncation_by_watermark(replica: Any) -> None:
    replica.phase = following.Phase.FETCHING
    replica.fetch_offset = replica.log_end
    replica.not_before_ms = 0


def goes_on_as_before(replica: Any, before: tuple[bool, int, int]) -> bool:
    del replica
    return not before[0]


def truncated_below_the_watermark(replica: Replica, offset: int) -> None:
    replica.log.truncate_to(offset)
    replica.epochs.truncate_from_end(replica.log.end)
    replica.touched.add(replica.partition)


def written_in_the_epoch_before(replica: Replica, writer: int, records: int) -> None:
    replica.log.append(replica.leader_epoch - 1, writer, records)
    replica.touched.add(replica.partition)


def committed_at_once(broker: Any, replica: Any) -> None:
    del broker
    replica.set_high_watermark(replica.log_end)


def committed_by_the_furthest(broker: Any, replica: Any) -> None:
    del broker
    ends = [f.log_end_offset for b, f in replica.followers.items() if b in replica.isr]
    replica.set_high_watermark(max([replica.high_watermark, *ends]))


def joins_at_once(broker: Any, replica: Any, follower: int) -> None:
    if follower not in replica.isr and replica.pending_isr is None:
        broker.propose_isr(replica, (*replica.isr, follower))


def first_live_of_the_assignment(state: Any, assignment: Any, live: Any, **_: Any) -> Any:
    alive = [replica for replica in assignment if replica in live]
    return state._replace(leader=alive[0]) if alive else None


def always_the_log_end(_: EpochFile, epoch: int, log_end: int) -> tuple[int, int]:
    return epoch, log_end


def recovers_as_if_all_were_committed(replica: Replica, offset: int) -> int:
    del offset
    return replica.log.end


@pytest.mark.parametrize(
    ("preset", "where", "name", "fault"),
    [
        pytest.param(OLD, following, "start_over", no_truncation_by_watermark, id="no-cut-at-hw"),
        pytest.param(LOOKUP, following, "cut_by_lookup", to_the_watermark, id="hw-for-epoch-end"),
        pytest.param(ROUNDS, following, "cut_by_round", not_at_all, id="no-cut-by-epochs"),
        pytest.param(ROUNDS, following, "cut_by_round", after_one_round, id="only-the-own-end"),
        pytest.param(NEW, following, "cut_by_round", everything, id="all-cut-by-epochs"),
        pytest.param(NEW, EpochFile, "end_offset_for", always_the_log_end, id="no-divergence-told"),
        pytest.param(ROUNDS, following, "_starts_over", goes_on_as_before, id="no-cut-ever"),
        pytest.param(NEW, Replica, "truncate_to", truncated_below_the_watermark, id="hw-kept"),
        pytest.param(NEW, Replica, "append_own", written_in_the_epoch_before, id="epoch-before"),
        *(
            pytest.param(preset, where, name, fault, id=f"{told}-{preset}")
            for preset in (OLD, ROUNDS, NEW)
            for where, name, fault, told in (
                (leading, "maybe_raise_high_watermark", committed_at_once, "hw-at-once"),
                (leading, "maybe_raise_high_watermark", committed_by_the_furthest, "hw-furthest"),
                (leading, "maybe_expand_isr", joins_at_once, "isr-joined-at-once"),
                (zk_elections, "offline", first_live_of_the_assignment, "election-outside-isr"),
                (Replica, "_hw_within_log", recovers_as_if_all_were_committed, "hw-is-log-end"),
            )
        ),
    ],
)
def test_a_driver_with_a_fault_is_not_explained(
    monkeypatch: pytest.MonkeyPatch, preset: str, where: Any, name: str, fault: Callable[..., Any]
) -> None:
    monkeypatch.setattr(where, name, fault)
    with pytest.raises(UnexplainedError):
        many(preset)


@pytest.mark.parametrize(
    ("preset", "fault"),
    [
        pytest.param(ROUNDS, {"fetch_fenced": False}, id="answers-in-another-epoch"),
        pytest.param(NEW, {"join_needs_epoch_start": False}, id="joins-below-the-epochs-start"),
    ],
)
def test_a_protocol_without_a_rule_of_its_version_is_not_explained(
    monkeypatch: pytest.MonkeyPatch, preset: str, fault: dict[str, Any]
) -> None:
    weakened = replace(preset_named(preset), **fault)
    monkeypatch.setattr(clusters, "preset_named", lambda _: weakened)
    with pytest.raises(UnexplainedError):
        many(preset)
