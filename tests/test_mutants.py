"""The list of seeded faults does not rot: `make mutants` runs them, this only reads them."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.fault import Fault, FaultDoesNotApplyError
from tests.mutants.faults import FAULTS

ROOT = Path(__file__).resolve().parents[1]

# Words, and the values that verdicts are made of: nothing in them decides.
WITHOUT_RULES = {"__init__.py", "errors.py", "partitions.py", "verdict.py"}


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.id) for fault in FAULTS])
def test_a_fault_applies_exactly_once_and_is_python(fault: Fault) -> None:
    before, parsed = module(fault.file)
    assert ast.dump(ast.parse(fault.applied(before))) != parsed
    assert fault.why


@cache
def module(file: str) -> tuple[str, str]:
    """Its text, and what Python reads there."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return text, ast.dump(ast.parse(text))


def test_ids_are_unique() -> None:
    assert [name for name, count in Counter(f.id for f in FAULTS).items() if count > 1] == []


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 25


def test_every_module_with_rules_has_a_fault() -> None:
    modules = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "consistency").rglob("*.py")
        if path.name not in WITHOUT_RULES
    }
    assert modules - {fault.file for fault in FAULTS} == set()


def test_the_tests_a_fault_names_exist() -> None:
    named = {test for fault in FAULTS for test in fault.tests}
    assert [test for test in sorted(named) if not (ROOT / test).exists()] == []


@pytest.mark.parametrize("text", ["", "rule rule"])
def test_a_fault_whose_text_is_not_there_once_is_an_error(text: str) -> None:
    with pytest.raises(FaultDoesNotApplyError, match="adapt the fault"):
        Fault("id", "file", "rule", "fault", "why").applied(text)
