"""`tidestaff rules`: the catalogue as a table, in full, as JSON and as docs/alerts.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tidestaff.consistency.catalogue import CATALOGUE
from tidestaff.streaming.cli import main
from tidestaff.streaming.commands import rules, rules_markdown

KEYS = [
    *("code", "name", "severity", "class", "scope", "claim", "why", "inputs", "judged", "grace"),
    *("versions", "runbook"),
]


@pytest.fixture(autouse=True)
def hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_the_table_has_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    codes = [line.split()[0] for line in lines[1:] if not line.startswith(" ")]
    assert codes == [rule.code for rule in CATALOGUE]


@pytest.mark.parametrize("columns", [100, 120, 200])
def test_the_table_fits_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    main(["rules"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= columns


def test_a_narrow_terminal_keeps_the_columns_aligned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    main(["rules"])
    head, *lines = capsys.readouterr().out.splitlines()
    column = head.index("SEVERITY")
    assert {line[column - 2 : column] for line in lines} == {"  "}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        pytest.param(["--family", "ele"], lambda r: r.family == "ELE", id="family-in-any-case"),
        pytest.param(
            ["--severity", "critical"], lambda r: r.severity.value == "critical", id="severity"
        ),
        pytest.param(
            ["--family", "TRN", "--severity", "info"],
            lambda r: r.family == "TRN" and r.severity.value == "info",
            id="both",
        ),
        pytest.param(["trn001", "TRN001"], lambda r: r.code == "TRN001", id="a-code-counts-once"),
    ],
)
def test_json_has_the_chosen_rules_with_stable_keys(
    arguments: list[str], wanted: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(wanted)
    assert main(["rules", *arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert list(content) == ["rules", "retired"]
    assert [rule["code"] for rule in content["rules"]] == [r.code for r in CATALOGUE if wanted(r)]
    assert all(list(rule) == KEYS for rule in content["rules"])


def test_a_code_is_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "ele001"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ELE001 leader-not-predicted\n")
    for label in ("severity", "claim", "why", "inputs", "judged", "grace", "versions", "runbook"):
        assert f"\n  {label}" in out
    assert "docs/runbooks/ELE001.md" in out


def test_without_a_checkout_the_entry_has_no_runbook_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "__file__", "/nowhere/a/b/rules.py")
    assert rules.entry(CATALOGUE[0])[-1].split() == ["runbook", "docs/runbooks/CTL001.md"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        pytest.param("TRN01", "TRN001", id="nearest-by-spelling"),
        pytest.param("committed-offsets-lost", "TRN001", id="a-name-is-told-its-code"),
        pytest.param("??", "expected a code such as", id="nothing-alike"),
    ],
)
def test_an_unknown_code_is_exit_3_with_the_nearest(
    code: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", code]) == 3
    assert told in capsys.readouterr().err


def test_all_unknown_codes_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "TRN01", "TRN001", "ELE1"]) == 3
    err = capsys.readouterr().err
    assert "'TRN01'" in err
    assert "'ELE1'" in err


def test_a_retired_code_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rules, "RETIRED", ("OLD001",))
    assert main(["rules", "old001"]) == 3
    assert "OLD001 is retired" in capsys.readouterr().err


def test_markdown_is_the_whole_page_and_always_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["rules", "--markdown"]) == 0
    first = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "61")
    main(["rules", "--markdown"])
    assert first == capsys.readouterr().out == rules_markdown.alerts_page()
    assert "`make docs`" in first
    for rule in CATALOGUE:
        assert f"[{rule.code}](runbooks/{rule.code}.md)" in first
        assert f"\n## {rule.code} {rule.name}\n" in first
    table = [line for line in first.splitlines() if line.startswith("| [")]
    assert len(table) == len(CATALOGUE)


def test_markdown_goes_with_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--markdown", "--family", "ELE"]) == 3
    assert "--markdown writes the whole page" in capsys.readouterr().err


def test_every_code_has_its_runbook_page() -> None:
    folder = Path(__file__).parents[2] / "docs" / "runbooks"
    missing = [rule.code for rule in CATALOGUE if not (folder / f"{rule.code}.md").exists()]
    assert missing == []
