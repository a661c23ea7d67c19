"""The runbooks as they were installed: the page must show them where there is no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.streaming.alerts.advice import next_step

if TYPE_CHECKING:
    from tidestaff.consistency.catalogue import AnyRule

_HERE: Final = Path(__file__).resolve().parent
# In a wheel they lie beside this file, in a checkout in docs/.
_FOLDERS: Final = (_HERE / "runbooks", _HERE.parents[1] / "docs" / "runbooks")


def runbook(code: str) -> str | None:
    """The page of a known code, as Markdown."""
    assert code in BY_CODE
    for folder in _FOLDERS:
        path = folder / f"{code}.md"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return None


def rule_row(rule: AnyRule) -> dict[str, Any]:
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "class": rule.finding.value,
        "claim": rule.claim,
        "next_step": next_step(rule.code),
    }


def rule_detail(code: str) -> dict[str, Any]:
    rule = BY_CODE[code]
    return {
        **rule_row(rule),
        "why": rule.why,
        "inputs": rule.inputs,
        "grace": str(rule.grace),
        "sampling": rule.sampling.value,
        "versions": rule.versions,
        "runbook": runbook(code),
    }
