"""Runs recorded facts of Kafka against our rules, and says what came of it.

A run never stops half way: broken files, malformed vectors and exceptions in a handler are failures
of their own. The last line of `render` is always `N passed, N failed, N skipped`.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.errors import FormatError
from tidestaff.streaming.conform import (
    epoch_answers,
    epoch_cache,
    files,
    isr,
    isr_leader,
    kraft,
    kraft_scenarios,
    replica_scenarios,
    traces,
    truncation,
    watermark,
    zookeeper,
)
from tidestaff.streaming.conform.trace_format import REMEDY
from tidestaff.streaming.conform.vectors import CannotRunError, Handler, MalformedError, Vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODULES: Final = (
    zookeeper,
    kraft,
    kraft_scenarios,
    epoch_cache,
    epoch_answers,
    truncation,
    replica_scenarios,
    isr,
    isr_leader,
    watermark,
    files,
    traces,
)

# Told as a story with symbols for brokers: material for scenario tests, not for a pure function.
NARRATIVE: Final = frozenset({"zk.scenario.partition_state"})

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 3

_UNREAD: Final = "(unread)"


class Outcome(Enum):
    """What became of one vector."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """One vector's outcome; a failure says where expectation and answer part, a note what could
    not be judged. `malformed`: its file is to be mended before anything can be said."""

    id: str
    rule: str
    file: str
    outcome: Outcome
    source: str = ""
    reasons: tuple[str, ...] = ()
    expected: object = None
    notes: tuple[str, ...] = ()
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found. `error` says why nothing could be run, `ignored` names other JSON files."""

    place: str
    results: tuple[Result, ...] = ()
    ignored: tuple[str, ...] = ()
    error: str = ""

    def count(self, outcome: Outcome) -> int:
        return sum(result.outcome is outcome for result in self.results)

    @property
    def failures(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.outcome is Outcome.FAILED)

    @property
    def exit_code(self) -> int:
        if self.error or any(result.malformed for result in self.failures):
            return EXIT_BAD_INPUT
        return EXIT_FAILED if self.failures else EXIT_OK


def handlers() -> dict[str, Handler]:
    """Every rule we can be held to, by the name vectors use."""
    return {rule: handler for module in MODULES for rule, handler in module.HANDLERS.items()}


def run_directory(path: str | Path, table: Mapping[str, Handler] | None = None) -> Report:
    """Run every vector of a folder's *.json files, or of one file."""
    place = Path(path)
    if not place.exists():
        return Report(str(place), error=f"{place} does not exist: name a folder of vector files")
    known = handlers() if table is None else table
    results: list[Result] = []
    ignored: list[str] = []
    for file in sorted(place.glob("*.json")) if place.is_dir() else [place]:
        found, broken = _read(file)
        if found is None and broken is None:
            ignored.append(file.name)
        results += [broken] if broken else []
        results += [_run(vector, known) for vector in found or ()]
    return Report(str(place), tuple(results), tuple(ignored), _nothing_run(place, results))


def _nothing_run(place: Path, results: Sequence[Result]) -> str:
    if not results:
        expected = "*.json files with a 'vectors' list, formal traces or a truncation table"
        return f"{place} holds no vectors: expected {expected}"
    if all(result.outcome is Outcome.SKIPPED for result in results):
        return f"{place} holds no vector of a rule that is known here"
    return ""


def load(file: Path) -> list[Vector | Result]:
    """The vectors of one file in order; a malformed one comes back as its failure."""
    found, broken = _read(file)
    return [broken] if broken else list(found or ())


def _read(file: Path) -> tuple[list[Vector | Result] | None, Result | None]:
    """Vectors, or nothing where the file is about something else, or the failure to read it."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        listed = content.get("vectors") if isinstance(content, dict) else None
        if listed is None:
            listed = traces.listed(content, file.name)
    except (OSError, ValueError, RecursionError, FormatError) as error:
        reason = f"cannot read: {_told(error, file.name)}; {REMEDY}"
        return None, _malformed(file.name, _UNREAD, file.name, reason)
    if not isinstance(listed, list):
        return None, None
    return [_vector(item, file.name, number) for number, item in enumerate(listed, 1)], None


def _vector(item: object, file: str, number: int) -> Vector | Result:
    fields: Mapping[str, Any] = item if isinstance(item, dict) else {}
    name = str(fields.get("id") or f"vector {number}")
    wanted = {"id": str, "rule": str, "input": dict, "expected": dict}
    wrong = [key for key, kind in wanted.items() if not isinstance(fields.get(key), kind)]
    if wrong:
        reason = f"malformed vector: {', '.join(wrong)} missing or of the wrong type"
        rule = fields.get("rule") if isinstance(fields.get("rule"), str) else _UNREAD
        return _malformed(name, str(rule), file, reason, _text(fields, "source"))
    return Vector(
        id=name,
        rule=fields["rule"],
        input=fields["input"],
        expected=fields["expected"],
        source=_text(fields, "source"),
        versions=_text(fields, "versions"),
        note=_text(fields, "note"),
        file=file,
    )


def _malformed(name: str, rule: str, file: str, reason: str, source: str = "") -> Result:
    return Result(name, rule, file, Outcome.FAILED, source, (reason,), malformed=True)


def _told(error: Exception, file: str) -> str:
    """With the name of the file, which errors of formats have already."""
    return f"{error}" if isinstance(error, FormatError) else f"{file}: {error}"


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return "" if value is None else str(value)


def run_vector(vector: Vector, table: Mapping[str, Handler]) -> Result:
    """One vector against the handler of its rule; whatever the handler raises is a failure."""
    handler = table.get(vector.rule)
    if handler is None or vector.rule in NARRATIVE:
        return _result(vector, Outcome.SKIPPED)
    notes: tuple[str, ...] = ()
    malformed = False
    try:
        found = handler(vector)
        reasons = [str(difference) for difference in found]
        notes = found.notes if isinstance(found, traces.Noted) else ()
    except MalformedError as error:
        reasons, malformed = [f"cannot read: {error}"], True
    except CannotRunError as error:
        reasons = [f"cannot run: {error}"]
    except Exception as error:  # noqa: BLE001 - one bad vector must not end the run
        reasons = [f"{type(error).__name__}: {error}"]
    outcome = Outcome.FAILED if reasons else Outcome.PASSED
    return replace(_result(vector, outcome, tuple(reasons), notes), malformed=malformed)


def _run(vector: Vector | Result, table: Mapping[str, Handler]) -> Result:
    return vector if isinstance(vector, Result) else run_vector(vector, table)


def _result(
    vector: Vector,
    outcome: Outcome,
    reasons: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Result:
    return Result(
        id=vector.id,
        rule=vector.rule,
        file=vector.file,
        outcome=outcome,
        source=vector.source,
        reasons=reasons,
        expected=vector.expected,
        notes=notes,
    )


def _by_rule(report: Report) -> dict[str, Counter[Outcome]]:
    counts: dict[str, Counter[Outcome]] = {}
    for result in report.results:
        counts.setdefault(result.rule, Counter())[result.outcome] += 1
    return dict(sorted(counts.items()))


def render(report: Report) -> str:
    """The report as text: table by rule, failures in full, what was skipped, and the sum."""
    lines = _table(report)
    for result in report.failures:
        lines += ["", f"FAILED {result.id} ({result.rule}) in {result.file}"]
        lines += [f"  source:   {result.source}"] if result.source else []
        if result.expected is not None:
            lines.append(f"  expected: {json.dumps(result.expected, ensure_ascii=False)}")
        lines += [f"  {reason}" for reason in result.reasons]
    skipped = {rule: n[Outcome.SKIPPED] for rule, n in _by_rule(report).items()}
    if any(skipped.values()):
        lines += ["", "skipped (narrative, or no such rule here):"]
        lines += [f"  {rule}  {count}" for rule, count in skipped.items() if count]
    noted = [(result.id, note) for result in report.results for note in result.notes]
    if noted:
        lines += ["", f"not visible in a bracketed sample: {len(noted)}"]
        lines += [f"  {name}: {note}" for name, note in noted]
    lines += [f"{name}: not a vector file, ignored" for name in report.ignored]
    lines += [f"error: {report.error}"] if report.error else []
    return "\n".join([*lines, summary(report)])


def summary(report: Report) -> str:
    """The last line of every run."""
    return ", ".join(f"{report.count(outcome)} {outcome.value}" for outcome in Outcome)


def _table(report: Report) -> list[str]:
    counts = _by_rule(report)
    if not counts:
        return []
    width = max(len("rule"), *map(len, counts))
    head = "".join(f"{outcome.value:>9}" for outcome in Outcome)
    rows = [
        f"{rule:<{width}}" + "".join(f"{count[outcome]:>9}" for outcome in Outcome)
        for rule, count in counts.items()
    ]
    return [f"{'rule':<{width}}{head}", *rows]


def to_json(report: Report) -> str:
    """The report for machines: sums, sums by rule, failures, what was skipped and ignored."""
    rules = {
        rule: {outcome.value: count[outcome] for outcome in Outcome}
        for rule, count in _by_rule(report).items()
    }
    failures = [
        {
            "id": result.id,
            "rule": result.rule,
            "file": result.file,
            "source": result.source,
            "expected": result.expected,
            "reasons": list(result.reasons),
            "malformed": result.malformed,
        }
        for result in report.failures
    ]
    content = {
        "place": report.place,
        **{outcome.value: report.count(outcome) for outcome in Outcome},
        "exit_code": report.exit_code,
        "error": report.error or None,
        "rules": rules,
        "failures": failures,
        "not_visible": {result.id: list(result.notes) for result in report.results if result.notes},
        "ignored": list(report.ignored),
    }
    return json.dumps(content, indent=2, ensure_ascii=False)
