"""The catalogue is whole: every code has all that a person who meets it needs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from tidestaff.consistency.catalogue import BY_CODE, CATALOGUE, RETIRED, AnyRule
from tidestaff.streaming.commands.rules_markdown import alerts_page

from tests.consistency.test_codes_fire import FIRING
from tests.consistency.test_legal_states import LEGAL

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = {"CTL", "REG", "ELE", "ISR", "HWM", "EPO", "TRN", "LOG", "SRC", "FCT"}
HEADINGS = (
    "What it means",
    "How sure we are",
    "What is at stake",
    "Confirm by hand",
    "What to do",
    "What not to do",
    "See also",
)
every_rule = pytest.mark.parametrize("rule", [pytest.param(r, id=r.code) for r in CATALOGUE])


@every_rule
def test_a_rule_has_a_code_a_name_and_a_claim(rule: AnyRule) -> None:
    assert re.fullmatch(r"[A-Z]{3}\d{3}", rule.code)
    assert rule.family in FAMILIES
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.name)
    assert rule.claim.endswith(".")
    assert rule.why.endswith(".")
    assert rule.inputs
    assert (rule.check.__doc__ or "").startswith(f"{rule.code}: ")


@every_rule
def test_a_rule_has_a_test_that_fires_it(rule: AnyRule) -> None:
    assert any(case.code == rule.code for case in FIRING)


@every_rule
def test_a_rule_has_a_legal_state_that_does_not_fire_it(rule: AnyRule) -> None:
    assert any(rule.code in case.guards for case in LEGAL)


@every_rule
def test_a_rule_has_a_runbook_page(rule: AnyRule) -> None:
    page = (ROOT / "docs" / "runbooks" / f"{rule.code}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {rule.code} {rule.name}\n")
    words = " ".join(page.split())
    assert f"**{rule.severity.value.capitalize()}, {rule.finding.value}.**" in words
    assert f"grace: {rule.grace}" in words
    found = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)
    assert [heading for heading in HEADINGS if heading not in found] == []


def test_no_code_and_no_name_is_used_twice() -> None:
    assert max(Counter(rule.code for rule in CATALOGUE).values()) == 1
    assert max(Counter(rule.name for rule in CATALOGUE).values()) == 1
    assert not set(BY_CODE) & set(RETIRED)


def test_no_runbook_page_is_left_over() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md")} - {"README"}
    assert pages == {*BY_CODE, *RETIRED}


def test_no_test_names_a_code_that_does_not_exist() -> None:
    named = {case.code for case in FIRING} | {code for case in LEGAL for code in case.guards}
    assert named <= set(BY_CODE)


def test_every_closing_invariant_has_a_test_that_breaks_it() -> None:
    assert {case.invariant for case in FIRING} - {None} == set(range(1, 11))


def test_the_list_of_alerts_is_up_to_date() -> None:
    written = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    assert written == alerts_page(), "run `make docs`"
