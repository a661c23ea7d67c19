"""Formal traces (kafka-replication-trace/1) and truncation tables as conformance cases.

A trace of the zk family passes if the simulator's kernel goes the same way step by step, and if the
monitor, shown every state, raises what the model checker says is broken and nothing else. For the
kraft family there is no kernel: the monitor alone is judged, on the recorded states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.simulator.kernel.invariants import (
    EMPTY_LEDGER,
    INVARIANTS,
    extended,
)
from tidestaff.connectors.simulator.kernel.invariants import violated as violated_invariants
from tidestaff.connectors.simulator.kernel.state import initial_state
from tidestaff.connectors.simulator.kernel.traces import (
    FORMAT,
    TraceMismatchError,
    replay,
    trace_from,
)
from tidestaff.consistency.epochs import assign, lineage_from_epochs
from tidestaff.consistency.errors import ConsistencyError, FormatError
from tidestaff.consistency.truncation import ReplicaLog, predict_truncation
from tidestaff.consistency.versions import EpochCacheGeneration, Mode, rules_for
from tidestaff.streaming.conform import trace_format
from tidestaff.streaming.conform.trace_expectations import (
    BY_THE_FILE_ALONE,
    COMPARED,
    NOTHING,
    RAISED_BY,
    History,
    compared_codes,
    holds_again,
    offsets_wrong,
    owed,
    reported,
    why_not_visible,
)
from tidestaff.streaming.conform.trace_samples import (
    ROUNDS,
    Sample,
    kraft_rules,
    kraft_samples,
    monitor_rules,
    watch,
    zookeeper_samples,
)
from tidestaff.streaming.conform.vectors import Difference, Handler, MalformedError, Vector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidestaff.connectors.simulator.kernel.invariants import Ledger
    from tidestaff.connectors.simulator.kernel.state import State
    from tidestaff.consistency.model import OffsetRange
    from tidestaff.consistency.versions import RuleSet

TABLE_FORMAT: Final = "kafka-truncation-table/1"
TABLE_RULE: Final = "truncation.table"

_ON_FETCH: Final = rules_for("4.3", Mode.KRAFT)
# The table places an epoch older than the leader's first, as brokers do from 2.0.1; 1.1.1 itself
# falls back to the HW there.
_KIP_101: Final = replace(rules_for("1.1.1"), epoch_cache=EpochCacheGeneration.SECOND)


class Noted(list[Difference]):
    """Differences, and beside them what the case could not judge and why."""

    def __init__(self, found: Sequence[Difference] = (), notes: Sequence[str] = ()) -> None:
        super().__init__(found)
        self.notes = tuple(notes)


class Truth(NamedTuple):
    """What the oracle says of one state: what is broken, and all that was ever committed."""

    broken: tuple[str, ...]
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """The monitor against the oracle: false alarms and misses, what was raised when, and which
    broken invariants no guard let it judge. `imprecise` are true losses whose range is too long."""

    wrong: tuple[Difference, ...]
    imprecise: tuple[Difference, ...]
    raised: tuple[tuple[int, str], ...]
    not_visible: Mapping[str, str]


def listed(content: object, file: str) -> list[object] | None:
    """The cases of a trace file or a truncation table in the form of vectors; None for others."""
    if not isinstance(content, Mapping):
        return None
    if content.get("format") == FORMAT:
        traces = content.get("traces")
        if not isinstance(traces, list):
            found = type(traces).__name__ if "traces" in content else "nothing"
            raise FormatError(file, "'traces'", found, "a list of traces")
        for number, raw in enumerate(traces, start=1):
            trace_format.check_named(raw, file, number)
        return [_as_vector(raw) for raw in traces]
    if content.get("format") == TABLE_FORMAT:
        rows = content.get("rows")
        count = len(rows) if isinstance(rows, list) else None
        stated = {"id": file, "rule": TABLE_RULE, "input": content, "expected": {"rows": count}}
        return [{**stated, "source": content.get("source")}]
    return None


def _as_vector(raw: Mapping[str, Any]) -> object:
    source = raw.get("source")
    return {
        "id": raw.get("id"),
        "rule": f"trace.{raw.get('family')}",
        "input": raw,
        "expected": {"first_violation": raw.get("first_violation")},
        "source": source.get("by") if isinstance(source, Mapping) else source,
    }


def truths(states: Iterable[State]) -> Iterator[Truth]:
    """The oracle's word on every state of a run, from the first one on."""
    ledger = EMPTY_LEDGER
    for state in states:
        ledger = extended(ledger, state)
        yield Truth(violated_invariants(state, ledger), ledger)


def judge_monitor(
    samples: Sequence[Sample],
    rules: RuleSet,
    oracle: Sequence[Truth],
    *,
    rounds: int = ROUNDS,
    compared: frozenset[str] = COMPARED,
) -> MonitorReport:
    """Hold what the monitor raises on each sample against what the oracle says is broken there."""
    wrong: list[Difference] = []
    imprecise: list[Difference] = []
    raised: list[tuple[int, str]] = []
    losses: list[tuple[int, OffsetRange]] = []
    owed_once: set[str] = set()
    broken: set[str] = set()
    history = History()
    for number, found in enumerate(watch(samples, rules, rounds)):
        sample, truth, place = samples[number], oracle[number], f"step {number}"
        alarms = [alarm for alarm in found if alarm.code in compared]
        codes = {alarm.code for alarm in alarms}
        raised += [(number, code) for code in sorted(codes)]
        history.see(sample)
        # What broke and was mended since the last coherent sample shows in this one.
        broken.update(truth.broken)
        justified = frozenset().union(*(RAISED_BY.get(name, ()) for name in broken))
        wrong += [
            Difference(place, "no alarm", f"{alarm.code}: {alarm.because}")
            for alarm in alarms
            if alarm.code not in justified
        ]
        due = owed(sample, truth.broken, history)
        owed_once |= due
        wrong += [
            Difference(f"{place}, {name}", f"one of {sorted(RAISED_BY[name])}", sorted(codes))
            for name in sorted(due)
            if not codes & RAISED_BY[name]
        ]
        if sample.coherent:
            gone = history.gone(sample)
            for alarm in alarms:
                said = offsets_wrong(alarm, sample, gone, truth.ledger)
                if said is not None:
                    known = holds_again(alarm, sample, truth.ledger)
                    difference = Difference(f"{place}, {alarm.code}", said, str(alarm.offsets))
                    (imprecise if known else wrong).append(difference)
            history.remember(sample, alarms)
            broken.clear()
        losses += [(number, a.offsets) for a in alarms if a.code == "TRN001" and a.offsets]
    unseen = _not_visible(samples, oracle, raised, owed_once, losses)
    return MonitorReport(tuple(wrong), tuple(imprecise), tuple(raised), unseen)


def _not_visible(
    samples: Sequence[Sample],
    oracle: Sequence[Truth],
    raised: Sequence[tuple[int, str]],
    owed_once: set[str],
    losses: Sequence[tuple[int, OffsetRange]],
) -> dict[str, str]:
    """The broken invariants that were neither owed nor raised, each with the guard that says so."""
    broken = [truth.broken for truth in oracle]
    found: dict[str, str] = {}
    for name in sorted({name for names in broken for name in names} - owed_once):
        where = [number for number, names in enumerate(broken) if name in names]
        codes = RAISED_BY.get(name, frozenset())
        if not codes or any(code in codes and number >= where[0] for number, code in raised):
            continue
        earlier = [lost for number, lost in losses if number < where[0]]
        if codes == {"TRN001"} and reported(samples[where[0]], oracle[where[0]].ledger, earlier):
            continue
        found[name] = why_not_visible(name, (samples[number] for number in where))
    return found


def _zookeeper(vector: Vector) -> list[Difference]:
    try:
        trace_format.check_zookeeper(vector.input, vector.file)
        trace = trace_from(vector.input, vector.file)
        after = replay(trace)
    except TraceMismatchError as error:
        return [Difference(f"step {error.step}, {error.field}", error.want, error.got)]
    except ConsistencyError as error:
        raise MalformedError(f"{error}; {trace_format.REMEDY}") from error
    states = (initial_state(trace.names), *after)
    samples = list(zookeeper_samples(states, [step.action for step in trace.steps]))
    oracle = list(truths(states))
    compared = compared_codes(trace.rules)
    report = judge_monitor(samples, monitor_rules(trace.rules), oracle, compared=compared)
    return _noted(report, [truth.broken for truth in oracle])


def _kraft(vector: Vector) -> list[Difference]:
    """The file names only invariants of the KRaft model: where something breaks, exposure is ours
    to compute, so that an alarm which comes before its loss is not called false."""
    try:
        trace_format.check_kraft(vector.input, vector.file)
    except FormatError as error:
        raise MalformedError(f"{error}; {trace_format.REMEDY}") from error
    samples = list(kraft_samples(vector.input))
    rules = kraft_rules(vector.input)
    stated = [(), *(tuple(step["violates"]) for step in vector.input["steps"])]
    breaks = any(stated)
    computed = list(truths(s.state for s in samples))
    oracle = [
        Truth(tuple(sorted({*names, *(truth.broken if breaks else ())})), truth.ledger)
        for names, truth in zip(stated, computed, strict=True)
    ]
    unfounded = _unfounded(vector.input["steps"], computed[1:])
    return _noted(judge_monitor(samples, rules, oracle), stated, unfounded, computed)


def _unfounded(steps: Sequence[Mapping[str, Any]], computed: Sequence[Truth]) -> list[Difference]:
    """What a file states that the states themselves refute. Where the model says that it departs
    from the code, its state is not ours."""
    return [
        Difference(f"step {number}, violates", name, sorted(truth.broken))
        for number, (step, truth) in enumerate(zip(steps, computed, strict=True), start=1)
        for name in step["violates"]
        if name in INVARIANTS and name not in truth.broken and not step.get("deviates_from_code")
    ]


def _noted(
    report: MonitorReport,
    stated: Sequence[Sequence[str]],
    unfounded: Sequence[Difference] = (),
    computed: Sequence[Truth] = (),
) -> Noted:
    names = {name for step in stated for name in step}
    taken = {
        name
        for name in names - set(INVARIANTS)
        if not any(
            RAISED_BY.get(name, NOTHING) & RAISED_BY.get(each, NOTHING)
            for step, truth in zip(stated, computed, strict=False)
            if name in step
            for each in truth.broken
        )
    }
    return Noted(
        (*unfounded, *report.wrong, *report.imprecise),
        [
            f"{name}: {BY_THE_FILE_ALONE if name in taken else why}"
            for name, why in report.not_visible.items()
            if name in names
        ],
    )


def _truncation_table(vector: Vector) -> list[Difference]:
    """Every row by both rules: truncation on fetch in rounds, and the single look-up of KIP-101."""
    found: list[Difference] = []
    place = vector.file
    try:
        trace_format.check_table(vector.input, vector.file)
        for number, row in enumerate(vector.input["rows"], start=1):
            place = f"{vector.file}, row {number}"
            found += _row(f"row {number}", row)
    except FormatError as error:
        raise MalformedError(f"{error}; {trace_format.REMEDY}") from error
    except ConsistencyError as error:
        raise MalformedError(f"{place}: {error}; {trace_format.REMEDY}") from error
    return found


def _row(place: str, row: Mapping[str, Any]) -> list[Difference]:
    records = row["follower_epochs"]
    leads = _log(row["leader_epochs"], leads_in=row["leader_epoch"])
    got = predict_truncation(follower=_log(records), leader=leads, rules=_ON_FETCH)
    checks: list[tuple[str, object, object]] = [
        ("rounds", [cut["truncate_to"] for cut in row["rounds"]], list(got.rounds)),
        ("final_leo", row["final_leo"], got.final_offset),
    ]
    if row["histories_consistent"]:
        checks.append(("longest_common_prefix", row["longest_common_prefix"], got.final_offset))
    leader = _log(row["leader_epochs"])
    for high_watermark in sorted({0, len(records)}):
        answer = row["kip101_single_lookup"]
        wanted = high_watermark if answer == "local_hw" else answer
        looked_up = predict_truncation(
            follower=_log(records, high_watermark=high_watermark), leader=leader, rules=_KIP_101
        )
        # A fall-back to the own HW may end above the leader: the next fetch cuts that.
        wanted = min(wanted, leader.log_end_offset)
        checks.append((f"kip101, HW {high_watermark}", wanted, looked_up.final_offset))
    return [Difference(f"{place}, {name}", want, got) for name, want, got in checks if want != got]


def _log(
    epochs: Sequence[int], *, high_watermark: int = 0, leads_in: int | None = None
) -> ReplicaLog:
    lineage = lineage_from_epochs(epochs)
    if leads_in is not None:
        lineage = assign(lineage, leads_in, len(epochs), generation=EpochCacheGeneration.SECOND)
    return ReplicaLog(0, high_watermark, len(epochs), lineage)


HANDLERS: Final[dict[str, Handler]] = {
    "trace.zk": _zookeeper,
    "trace.kraft": _kraft,
    TABLE_RULE: _truncation_table,
}
