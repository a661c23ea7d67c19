"""`tidestaff rules`: the alert catalogue as a table, in full, as JSON or as docs/alerts.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.catalogue import BY_CODE, CATALOGUE, RETIRED, AnyRule
from tidestaff.consistency.verdict import Severity
from tidestaff.streaming.commands.arguments import nearest, one_of
from tidestaff.streaming.commands.exits import CommandError, Exit, UsageError
from tidestaff.streaming.commands.layout import labelled, table
from tidestaff.streaming.commands.rules_markdown import alerts_page, runbook_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options

EXAMPLES: Final = """\
examples:
  tidestaff rules                             every code with its claim
  tidestaff rules TRN001                      one code in full, with its runbook
  tidestaff rules --family ELE                one family: CTL REG ELE ISR HWM EPO TRN LOG FCT SRC
  tidestaff rules --severity critical --json
  tidestaff rules --markdown                  the text of docs/alerts.md
"""

FAMILIES: Final = tuple(dict.fromkeys(rule.family for rule in CATALOGUE))


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument("codes", metavar="CODE", nargs="*", help="codes to show in full")
    parser.add_argument("--family", type=one_of(*FAMILIES), help="only codes of this family")
    parser.add_argument(
        "--severity",
        type=one_of(*(severity.value for severity in Severity)),
        help="only codes of this severity: critical, warning or info",
    )
    parser.add_argument("--markdown", action="store_true", help="the whole of docs/alerts.md")


def run(options: Options) -> int:
    if options.markdown:
        _only_markdown(options)
        print(alerts_page(), end="")
        return Exit.OK
    rules = [rule for rule in _named(options.codes) if _wanted(rule, options)]
    if options.json:
        content = {"rules": [as_json(rule) for rule in rules], "retired": list(RETIRED)}
        print(json.dumps(content, indent=2))
    elif options.codes:
        print("\n\n".join("\n".join(entry(rule)) for rule in rules))
    else:
        print("\n".join(_table(rules)))
    return Exit.OK


def _only_markdown(options: Options) -> None:
    if options.codes or options.family or options.severity or options.json:
        raise UsageError(
            "tidestaff rules: --markdown writes the whole page, expected no CODE, --family, "
            "--severity or --json beside it"
        )


def _wanted(rule: AnyRule, options: Options) -> bool:
    if options.family and rule.family != options.family:
        return False
    return not options.severity or rule.severity.value == options.severity


def _named(codes: Sequence[str]) -> Sequence[AnyRule]:
    """The rules of these codes, each once; every unknown code is told at once."""
    wanted = tuple(dict.fromkeys(code.upper() for code in codes))
    problems = [_unknown(code) for code in wanted if code not in BY_CODE]
    if problems:
        raise CommandError(*problems, "'tidestaff rules' lists every code")
    return [BY_CODE[code] for code in wanted] or CATALOGUE


def _unknown(code: str) -> str:
    if code in RETIRED:
        return f"code {code} is retired: it is never raised any more, and never used again"
    close = sorted(nearest(code, BY_CODE, 3)) or [c for c in BY_CODE if c[:3] == code[:3]][:3]
    by_name = [rule.code for rule in CATALOGUE if rule.name.upper() == code]
    hint = ", ".join(by_name or close)
    return f"unknown code {code!r}, expected a code such as {hint or CATALOGUE[0].code}"


def _table(rules: Sequence[AnyRule]) -> list[str]:
    if not rules:
        return ["no rule has both this family and this severity"]
    head = ("CODE", "NAME", "SEVERITY", "CLASS", "CLAIM")
    rows = [
        (rule.code, rule.name, rule.severity.value, rule.finding.value, rule.claim)
        for rule in rules
    ]
    return table(head, rows)


def entry(rule: AnyRule) -> list[str]:
    """One rule in full, and its runbook page where the checkout is at hand."""
    rows = [
        ("severity", rule.severity.value),
        ("class", rule.finding.value),
        ("claim", rule.claim),
        ("why", rule.why),
        ("inputs", rule.inputs),
        ("judged", rule.sampling.value),
        ("grace", str(rule.grace)),
        ("versions", rule.versions),
        ("runbook", runbook_path(rule.code)),
    ]
    lines = [f"{rule.code} {rule.name}", *labelled([r for r in rows if r[1]], indent=2)]
    page = _runbook(rule.code)
    return lines if page is None else [*lines, "", *(f"  {line}".rstrip() for line in page)]


def _runbook(code: str) -> list[str] | None:
    """The page beside the checkout; an installed wheel has none."""
    file = Path(__file__).resolve().parents[2] / runbook_path(code)
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None


def as_json(rule: AnyRule) -> dict[str, object]:
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "class": rule.finding.value,
        "scope": rule.scope.value,
        "claim": rule.claim,
        "why": rule.why,
        "inputs": rule.inputs,
        "judged": rule.sampling.value,
        "grace": str(rule.grace),
        "versions": rule.versions,
        "runbook": runbook_path(rule.code),
    }
