"""Every formal trace, step by step; and that the replay sees a difference in any field."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tidestaff.connectors.simulator.kernel.enabled import enabled
from tidestaff.connectors.simulator.kernel.rules import PRESETS
from tidestaff.connectors.simulator.kernel.state import initial_state
from tidestaff.connectors.simulator.kernel.traces import (
    Trace,
    TraceMismatchError,
    load_traces,
    replay,
    replay_file,
    trace_from,
)
from tidestaff.consistency.errors import FormatError

FOLDER = Path(__file__).parents[2] / "conformance" / "traces"
FILES = sorted(path for path in FOLDER.glob("*.json") if path.name != "truncation_table.json")
TRACES = [trace for path in FILES for trace in load_traces(path)]
BESIDE = FOLDER.parents[3] / "shared" / "traces"


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.id)
def test_the_kernel_does_what_the_specification_did(trace: Trace) -> None:
    assert len(replay(trace)) == len(trace.steps)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.id)
def test_every_step_is_among_the_enabled_ones(trace: Trace) -> None:
    states = (initial_state(trace.names), *replay(trace))
    for before, step in zip(states, trace.steps, strict=False):
        assert step.action in enabled(before, trace.rules, trace.bounds)


def test_no_trace_of_our_family_is_left_out() -> None:
    reports = [replay_file(path) for path in FILES]
    assert sum(len(report.replayed) for report in reports) == len(TRACES) == 28
    assert sum(report.steps for report in reports) == 440
    others = [name for report in reports for name in report.other_family]
    assert all(name.startswith("kraft_") for name in others)


def test_presets_are_the_rules_of_the_traces() -> None:
    raws = [raw for path in FILES for raw in json.loads(path.read_text())["traces"]]
    protocols = {raw["id"]: raw["protocol"] for raw in raws}
    assert all(trace.rules == PRESETS[protocols[trace.id]] for trace in TRACES)
    assert {protocols[trace.id] for trace in TRACES} == {"hw", "kip101", "kip279", "kip320"}


def first_raw() -> dict[str, Any]:
    content = json.loads((FOLDER / "zk_benign.json").read_text(encoding="utf-8"))
    raw: dict[str, Any] = copy.deepcopy(content["traces"][0])
    return raw


def changed(path: str, value: object) -> dict[str, Any]:
    raw = first_raw()
    *way, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    place: Any = raw
    for key in way:
        place = place[key]
    place[last] = value
    return raw


@pytest.mark.parametrize(
    ("path", "value", "step", "field"),
    [
        pytest.param("initial/quorum/isr", ["r1"], 0, "state.quorum.isr", id="the-initial-state"),
        pytest.param("steps/0/state/quorum/leader", "r2", 1, "state.quorum.leader", id="leader"),
        pytest.param("steps/6/state/replicas/r1/hw", 0, 7, "state.replicas.r1.hw", id="the-hw"),
        pytest.param(
            "steps/5/state/replicas/r2/log", [[0, 1]], 6, "state.replicas.r2.log", id="a-record"
        ),
        pytest.param(
            "steps/3/state/replicas/r1/epoch_starts",
            [],
            4,
            "state.replicas.r1.epoch_starts",
            id="the-lineage",
        ),
        pytest.param("steps/4/derived/truncate_to", 1, 5, "derived.truncate_to", id="a-truncation"),
        pytest.param("steps/5/derived/offset", 1, 6, "derived.offset", id="an-offset"),
        pytest.param("steps/8/violates", [], 9, "violates", id="a-violation-left-out"),
        pytest.param("steps/0/violates", ["weak_isr"], 1, "violates", id="a-violation-too-many"),
        pytest.param(
            "first_violation", {}, 9, "first_violation.follower_hw_le_leader", id="the-summary"
        ),
        pytest.param(
            "steps/1/params/leader",
            "r1",
            2,
            "controller_elect leader=1",
            id="a-step-that-is-not-enabled",
        ),
    ],
)
def test_the_replay_sees_a_difference_in(path: str, value: object, step: int, field: str) -> None:
    with pytest.raises(TraceMismatchError) as raised:
        replay(trace_from(changed(path, value), "made.json"))
    error = raised.value
    assert (error.file, error.step, error.field) == ("made.json", step, field)
    assert f"made.json, trace {first_raw()['id']}, step {step}: {field} is" in str(error)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        pytest.param("rules/fetch_fence", "maybe", "rules.fetch_fence", id="an-unknown-fence"),
        pytest.param("rules/truncation_fenced", 1, "rules.truncation_fenced", id="a-number"),
        pytest.param("rules/lag", 1, "rules", id="a-rule-too-many"),
        pytest.param("steps/0/action", "reboot", "action", id="an-unknown-action"),
        pytest.param("steps/0/params", {}, "params", id="missing-params"),
        pytest.param("steps/0/params/leader", "r9", "params.leader", id="an-unknown-replica"),
        pytest.param("steps/0/violates", ["luck"], "violates", id="an-unknown-invariant"),
    ],
)
def test_a_malformed_trace_is_refused_for(path: str, value: object, field: str) -> None:
    with pytest.raises(FormatError) as raised:
        trace_from(changed(path, value), "made.json")
    assert raised.value.field == field
    assert raised.value.place.startswith("made.json, trace kip320_follower_hw_above_leader_hw")


def test_a_file_of_another_format_is_refused() -> None:
    with pytest.raises(FormatError, match="kafka-truncation-table/1"):
        replay_file(FOLDER / "truncation_table.json")


if BESIDE.is_dir():

    @pytest.mark.parametrize("path", sorted(BESIDE.glob("*.json")), ids=lambda path: path.name)
    def test_our_copy_of_the_traces_is_unchanged(path: Path) -> None:
        assert (FOLDER / path.name).read_bytes() == path.read_bytes()
