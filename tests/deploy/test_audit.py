"""`make audit` says what was looked up, and never takes an unanswered question for good news."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy import audit

FINE = {"name": "one", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "two", "skip_reason": "Dependency not found on PyPI and could not be audited"}
WEAK = {
    "name": "three",
    "version": "3.0",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["3.1"]}],
}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        pytest.param([FINE], audit.CLEAN, "no known vulnerability in 1 packages", id="all-fine"),
        pytest.param(
            [FINE, UNKNOWN], audit.CLEAN, "nothing is known of them: two", id="one-unknown"
        ),
        pytest.param([UNKNOWN], audit.UNKNOWN, "knows none of the 1 packages", id="none-known"),
        pytest.param([], audit.UNKNOWN, "knows none of the 0 packages", id="nothing-asked"),
        pytest.param(
            [FINE, UNKNOWN, WEAK],
            audit.FOUND,
            "three 3.0: PYSEC-1, CVE-1; mended by 3.1",
            id="one-vulnerable",
        ),
    ],
)
def test_a_report_is_told_as_what_it_is(packages: list[Any], code: int, said: str) -> None:
    found, lines = audit.told(audit.looked({"dependencies": packages, "fixes": []}))
    assert found == code
    assert any(said in line for line in lines), lines


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param([], 0, id="hashes-do-where-nobody-answers"),
        pytest.param(["--must-look-up"], 1, id="and-do-not-for-a-release"),
    ],
)
def test_where_nobody_answers_it_says_so(
    arguments: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(audit, "ask", lambda: "the network is down")
    assert audit.main(arguments) == code
    out = capsys.readouterr().out
    assert "vulnerabilities were not looked up: the network is down" in out
    assert "is pinned by its hashes" in out


def test_a_vulnerability_fails_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "ask", lambda: audit.looked({"dependencies": [WEAK]}))
    assert audit.main([]) == 1
