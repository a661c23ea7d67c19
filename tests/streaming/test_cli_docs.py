"""docs/predict.md: its examples run as they stand, and it names every key."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from tidestaff.streaming.cli import main
from tidestaff.streaming.commands.election_question import EventKind

PAGE = (Path(__file__).parents[2] / "docs" / "predict.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^\$ tidestaff (.*?) <<'EOF'\n(.*?)^EOF\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = EXAMPLE.findall(PAGE)


def test_every_prediction_has_an_example() -> None:
    assert {command.split()[1] for command, _, _ in EXAMPLES} == {
        *("election", "truncation", "watermark")
    }


@pytest.mark.parametrize(("command", "given", "shown"), EXAMPLES)
def test_an_example_shows_what_the_program_writes(
    command: str,
    given: str,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(given.encode())))
    code = main(shlex.split(command))
    assert capsys.readouterr().out == shown
    assert f"(exit {code})" in shown


def test_every_event_is_described() -> None:
    assert [kind.value for kind in EventKind if f'"{kind.value}"' not in PAGE] == []
