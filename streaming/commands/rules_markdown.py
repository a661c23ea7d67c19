"""docs/alerts.md, made from the catalogue: same catalogue, same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.consistency.catalogue import CATALOGUE, RETIRED

if TYPE_CHECKING:
    from tidestaff.consistency.catalogue import AnyRule

_GENERATED: Final = (
    "This file is generated from the rule catalogue by `make docs`: do not edit it, edit "
    "`consistency/catalogue.py`."
)


def runbook_path(code: str) -> str:
    """Where the runbook page is, seen from the root of the repository."""
    return f"docs/runbooks/{code}.md"


def alerts_page() -> str:
    """The whole page: a table of all codes, then a section for each."""
    lines = [
        "# Alerts",
        "",
        _GENERATED,
        "",
        "A code is a public contract: dashboards and silences name it, and it is never reused.",
        "",
        "| code | name | severity | class | claim |",
        "|---|---|---|---|---|",
        *(_row(rule) for rule in CATALOGUE),
        "",
        f"Retired codes: {', '.join(RETIRED) or 'none'}.",
    ]
    for rule in CATALOGUE:
        lines += ["", *_section(rule)]
    return "\n".join(lines) + "\n"


def _link(rule: AnyRule) -> str:
    return f"runbooks/{rule.code}.md"


def _row(rule: AnyRule) -> str:
    cells = (
        f"[{rule.code}]({_link(rule)})",
        rule.name,
        rule.severity.value,
        rule.finding.value,
        rule.claim,
    )
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _section(rule: AnyRule) -> list[str]:
    facts = [
        ("severity", rule.severity.value),
        ("class", rule.finding.value),
        ("inputs", rule.inputs),
        ("judged", rule.sampling.value),
        ("grace", str(rule.grace)),
        ("versions", rule.versions),
        ("runbook", f"[{rule.code}]({_link(rule)})"),
    ]
    why = ["", _prose(rule.why)] if rule.why else []
    return [
        f"## {rule.code} {rule.name}",
        "",
        _prose(rule.claim),
        *why,
        "",
        *(f"- {name}: {_prose(value)}" for name, value in facts),
    ]


def _prose(text: str) -> str:
    return text.replace("<", "&lt;")


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|")
