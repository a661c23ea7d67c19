"""Every worked example is found by a search for its number: as a scenario where it can be played,
as a test where it is a format or arithmetic."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
SCENARIOS: Final = TESTS.parent / "connectors" / "simulator" / "scenarios"
PLAYED: Final = (
    *("S-04", "S-05", "S-06", "S-07", "S-08", "S-09", "S-10", "S-11", "S-13", "S-14", "S-15"),
    *("S-16", "S-17", "S-18", "S-19", "S-20", "S-21", "S-22", "S-23", "S-24", "S-25", "S-26"),
    *("S-27", "S-28", "S-32", "S-33", "S-34", "S-35", "S-36", "S-37", "S-38", "S-39", "S-41"),
)
TESTED: Final = (
    *("S-01", "S-02", "S-03", "S-12", "S-29", "S-30", "S-31", "S-40"),
    *("S-06", "S-07", "S-13", "S-19", "S-23", "S-24", "S-33", "S-37", "S-38", "S-41"),
)


def naming(example: str, files: list[Path]) -> list[str]:
    name = re.compile(rf"{example}(?!\d)")
    return [f.name for f in files if name.search(f.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("example", PLAYED)
def test_an_example_that_can_be_played_is_a_scenario(example: str) -> None:
    assert naming(example, sorted(SCENARIOS.glob("*.txt")))


@pytest.mark.parametrize("example", TESTED)
def test_an_example_of_a_format_or_of_arithmetic_is_a_test(example: str) -> None:
    tests = [path for path in sorted(TESTS.rglob("test_*.py")) if path != Path(__file__)]
    assert naming(example, tests)


def test_no_example_is_left_out() -> None:
    assert {*PLAYED, *TESTED} == {f"S-{number:02}" for number in range(1, 42)}
