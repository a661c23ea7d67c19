"""The program: commands, help, usage errors, and what never reaches the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tidestaff.streaming import cli
from tidestaff.streaming.cli import COMMANDS, main
from tidestaff.streaming.commands import rules as rules_command

PROGRAM = [sys.executable, "-m", "tidestaff.streaming.cli"]


def test_a_fault_of_its_own_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own exit code for it, 1, is a warning's: a gate would take it for an answer."""

    def fails(_: object) -> int:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(rules_command, "run", fails)
    assert main(["rules"]) == 3
    said = capsys.readouterr().err
    assert "ZeroDivisionError: ours" in said
    assert "a fault of tidestaff itself" in said
    assert main(["rules", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["exit_code"] == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param([], "a command is missing, expected one of", id="a-command-is-needed"),
        pytest.param(["rule"], "did you mean rules?", id="a-command-is-told-its-nearest"),
        pytest.param(["zzz"], "expected one of run, record", id="a-strange-one-is-told-all"),
        pytest.param(["--verson"], "did you mean --version?", id="an-option-of-the-program"),
        pytest.param(["rules", "--jsn"], "did you mean --json?", id="an-option-of-a-command"),
        pytest.param(["rules", "--js"], "unknown option --js", id="options-are-spelt-out"),
        pytest.param(["tour", "now"], "unexpected argument 'now'", id="an-argument-too-many"),
        pytest.param(["conform"], "required: DIR", id="an-argument-too-few"),
        pytest.param(["rules", "--family"], "expected one argument", id="an-option-without-value"),
        pytest.param(["rules", "--severity", "crit"], "did you mean critical?", id="a-wrong-value"),
        pytest.param(
            ["predict", "elektion", "--version", "3.9", "--input", "-"],
            "did you mean election?",
            id="what-to-predict",
        ),
        pytest.param(
            ["predict", "election", "--verzion", "3.9", "--input", "-"],
            "unknown option --verzion; did you mean --version?",
            id="a-misspelt-option-is-not-told-as-a-missing-one",
        ),
        pytest.param(
            ["predict", "election", "--version", "3.9"], "required: --input", id="input-is-needed"
        ),
    ],
)
def test_a_usage_error_is_exit_3_and_says_what_was_expected(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 3
    out, err = capsys.readouterr()
    assert told in err
    assert "--help" in err
    assert out == ""


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: tidestaff {command}" in out
    assert "example" in out
    assert "--json" in out


@pytest.mark.parametrize("kind", ["election", "truncation", "watermark"])
def test_predict_shows_the_input_it_takes(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", kind, "--help"]) == 0
    assert f"the input, of predict {kind}" in capsys.readouterr().out


def test_the_program_has_help_that_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name}" in out for name in COMMANDS)
    assert "exit codes" in out


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tidestaff ")


def test_with_json_a_usage_error_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "NOPE01", "--json"]) == 3
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert content["exit_code"] == 3
    assert "NOPE01" in content["errors"][0]
    assert "NOPE01" in err


def test_ctrl_c_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(rules_command, "run", interrupted)
    assert main(["rules"]) == 130
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_while_waiting_for_stdin_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=SimpleNamespace(read=interrupted)))
    assert main(["predict", "election", "--version", "3.9", "--input", "-"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*PROGRAM, "rules", "--markdown"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (cli.EXIT_NOBODY_READS, b"")


HEAVY = ("pyspark", "pandas", "kafka", "kazoo", "fastavro")


@pytest.mark.parametrize("command", [["rules"], ["tour"], ["--help"], ["conform", "nowhere"]])
def test_no_command_waits_for_spark_or_a_client(command: list[str]) -> None:
    script = (
        "import contextlib, io, sys\n"
        "import tidestaff.streaming.cli as cli\n"
        f"heavy = {HEAVY!r}\n"
        "assert not [m for m in heavy if m in sys.modules], 'import'\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    cli.main({command!r})\n"
        "print([m for m in heavy if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_help_imports_no_command_module() -> None:
    script = (
        "import sys, tidestaff.streaming.cli as cli\n"
        "cli.main(['--version'])\n"
        "print([m for m in sys.modules if m.startswith('tidestaff.consistency.cat')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("vectors", "code", "last"),
    [
        pytest.param(
            [{"id": "v", "rule": "no input, no expectation"}],
            3,
            "0 passed, 1 failed, 0 skipped",
            id="what-cannot-be-read-is-exit-3",
        ),
        pytest.param([], 3, "0 passed, 0 failed, 0 skipped", id="nothing-to-run-is-exit-3"),
    ],
)
def test_conform_ends_with_the_sum(
    vectors: list[object], code: int, last: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "v.json").write_text(json.dumps({"vectors": vectors}), encoding="utf-8")
    found = main(["conform", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert (found, lines[-1]) == (code, last)


def test_conform_passes_on_our_own_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).parents[1] / "conformance"
    assert main(["conform", str(folder), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["passed"] > 400
    assert content["failed"] == 0
