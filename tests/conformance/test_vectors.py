"""Every recorded fact of Kafka, one test each; and the runner itself."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from tidestaff.consistency.versions import rules_for
from tidestaff.streaming.conform import runner
from tidestaff.streaming.conform.runner import Outcome
from tidestaff.streaming.conform.two_replicas import TwoReplicas
from tidestaff.streaming.conform.vectors import CannotRunError, Difference, Vector

HERE = Path(__file__).parent
BESIDE = HERE.parents[2] / "shared" / "vectors"
FILES = sorted(HERE.glob("*.json"))
LOADED = [item for file in FILES for item in runner.load(file)]
VECTORS = [item for item in LOADED if isinstance(item, Vector)]
RUNNABLE = [vector for vector in VECTORS if vector.rule not in runner.NARRATIVE]
PASSING = {"id": "v-1", "rule": "known", "input": {"x": 1}, "expected": {"x": 1}, "source": "here"}


@pytest.mark.parametrize("vector", [pytest.param(v, id=v.id) for v in RUNNABLE])
def test_our_rules_give_what_kafka_gave(vector: Vector) -> None:
    result = runner.run_vector(vector, runner.handlers())
    assert result.outcome is Outcome.PASSED, "\n".join(result.reasons) or "no handler"


def test_all_vectors_are_well_formed_and_named_once() -> None:
    assert len(VECTORS) == len(LOADED) >= 468
    assert [i for i, n in Counter(v.id for v in VECTORS).items() if n > 1] == []


def test_only_narrative_vectors_are_skipped() -> None:
    report = runner.run_directory(HERE)
    skipped = {result.rule for result in report.results if result.outcome is Outcome.SKIPPED}
    assert skipped == runner.NARRATIVE
    assert report.exit_code == runner.EXIT_OK


def test_no_rule_has_two_handlers() -> None:
    rules = [rule for module in runner.MODULES for rule in module.HANDLERS]
    assert len(rules) == len(set(rules))


if BESIDE.is_dir():

    def test_vectors_beside_the_repository_hold_too() -> None:
        report = runner.run_directory(BESIDE)
        assert report.exit_code == runner.EXIT_OK, runner.render(report)


def _flipped(vector: Vector) -> Vector:
    """The same facts with an expectation that cannot be met."""
    wrong: dict[str, str | None] = {
        key: "not this" for key in vector.expected if key not in {"see", "error"}
    }
    if vector.expected.get("error"):
        wrong["error"] = None
    return Vector(vector.id, vector.rule, vector.input, wrong, vector.source, vector.versions)


FILE_RULES = [v for v in RUNNABLE if v.rule.startswith(("checkpoint.", "znode."))]


@pytest.mark.parametrize(
    "vector",
    [pytest.param(v, id=v.id) for v in FILE_RULES if v.expected != {"error": None}],
)
def test_a_wrong_expectation_of_a_decoder_fails(vector: Vector) -> None:
    result = runner.run_vector(_flipped(vector), runner.handlers())
    assert result.outcome is Outcome.FAILED


def test_one_wrong_expectation_among_all_is_found(tmp_path: Path) -> None:
    for file in FILES:
        (tmp_path / file.name).write_text(file.read_text())
    target = tmp_path / "high_watermark.json"
    content = json.loads(target.read_text())
    broken = next(v for v in content["vectors"] if v["rule"] == "hw.leader_advance")
    broken["expected"] = dict.fromkeys(broken["expected"], 987654321)
    target.write_text(json.dumps(content))
    report = runner.run_directory(tmp_path)
    assert [failure.id for failure in report.failures] == [broken["id"]]
    assert report.exit_code == runner.EXIT_FAILED


def known(vector: Vector) -> list[Difference]:
    if "boom" in vector.input:
        raise ZeroDivisionError("boom")
    if "odd" in vector.input:
        raise CannotRunError("odd input")
    same = vector.input == vector.expected
    return [] if same else [Difference("x", vector.expected["x"], vector.input["x"])]


def run(folder: Path, *vectors: object) -> runner.Report:
    (folder / "a.json").write_text(json.dumps({"about": "", "vectors": list(vectors)}))
    return runner.run_directory(folder, {"known": known})


def test_a_report_counts_by_rule_and_ends_with_the_sum(tmp_path: Path) -> None:
    report = run(tmp_path, PASSING, {**PASSING, "id": "v-2", "rule": "new.rule"})
    lines = runner.render(report).splitlines()
    assert lines[:3] == [
        "rule       passed   failed  skipped",
        "known           1        0        0",
        "new.rule        0        0        1",
    ]
    assert "  new.rule  1" in lines
    assert lines[-1] == "1 passed, 0 failed, 1 skipped"
    assert report.exit_code == 0


def test_a_failure_names_vector_file_source_expected_and_got(tmp_path: Path) -> None:
    report = run(tmp_path, {**PASSING, "expected": {"x": 2}})
    text = runner.render(report)
    for part in ("FAILED v-1 (known) in a.json", "here", '{"x": 2}', "x: expected 2, got 1"):
        assert part in text
    assert text.endswith("\n0 passed, 1 failed, 0 skipped")
    assert json.loads(runner.to_json(report))["failures"][0]["id"] == "v-1"


@pytest.mark.parametrize(
    ("vector", "reason", "code"),
    [
        pytest.param({**PASSING, "input": {"boom": 1}}, "ZeroDivisionError: boom", 1, id="bug"),
        pytest.param({**PASSING, "input": {"odd": 1}}, "cannot run: odd input", 1, id="cannot-run"),
        pytest.param({**PASSING, "input": 3}, "malformed vector: input", 3, id="no-mapping"),
        pytest.param({"rule": "known"}, "malformed vector: id, input, expected", 3, id="no-keys"),
        pytest.param("text", "malformed vector: id, rule, input, expected", 3, id="a-text"),
    ],
)
def test_a_bad_vector_fails_and_the_run_goes_on(
    tmp_path: Path, vector: object, reason: str, code: int
) -> None:
    report = run(tmp_path, vector, {**PASSING, "id": "v-2"})
    assert [reason in text for result in report.failures for text in result.reasons] == [True]
    assert runner.summary(report) == "1 passed, 1 failed, 0 skipped"
    assert report.exit_code == code


@pytest.mark.parametrize(
    "sentence", ["٣ records", f"{'9' * 5000} records", "9999999 times, stop 1"]
)
def test_a_count_in_a_sentence_has_few_digits_and_they_are_ascii(sentence: str) -> None:
    replicas = TwoReplicas([1, 2], rules=rules_for("3.9"), unclean_allowed=False)
    with pytest.raises(CannotRunError, match="no event this replay knows"):
        replicas.run(sentence)


def test_broken_json_is_a_failure_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"vectors": [')
    report = run(tmp_path, PASSING)
    assert [failure.file for failure in report.failures] == ["b.json"]
    assert report.failures[0].reasons[0].startswith("cannot read: b.json: Expecting value: line 1")
    assert report.exit_code == runner.EXIT_BAD_INPUT


def test_other_json_files_are_named_and_ignored(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("[1, 2]")
    report = run(tmp_path, PASSING)
    assert "b.json: not a vector file, ignored" in runner.render(report)
    assert report.exit_code == 0


def test_one_file_may_be_named_instead_of_a_folder(tmp_path: Path) -> None:
    run(tmp_path, PASSING)
    report = runner.run_directory(str(tmp_path / "a.json"), {"known": known})
    assert runner.summary(report) == "1 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({}, "holds no vectors", id="an-empty-folder"),
        pytest.param({"a.json": "{}"}, "holds no vectors", id="no-vector-file"),
        pytest.param({"a.json": '{"vectors": []}'}, "holds no vectors", id="an-empty-list"),
        pytest.param(
            {"a.json": json.dumps({"vectors": [{**PASSING, "rule": "new"}]})},
            "no vector of a rule that is known",
            id="only-unknown-rules",
        ),
    ],
)
def test_nothing_to_run_is_an_error_and_not_a_success(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    report = runner.run_directory(tmp_path, {"known": known})
    assert message in runner.render(report)
    assert runner.render(report).splitlines()[-1].startswith("0 passed, 0 failed, ")
    assert report.exit_code == runner.EXIT_BAD_INPUT
    assert json.loads(runner.to_json(report))["exit_code"] == 3


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    report = runner.run_directory(tmp_path / "none")
    assert "does not exist" in runner.render(report)
    assert report.exit_code == runner.EXIT_BAD_INPUT
