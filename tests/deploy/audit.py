"""`make audit`: vulnerabilities of what is locked, by pip-audit, and whether all of it has hashes.
Where nobody can be asked for vulnerabilities it says so, and hashes have to do; `--must-look-up` is
for a release, where they do not."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
LOCKS: Final = ("requirements.lock", "requirements.runtime.lock", "requirements.install.lock")
_LONGEST_S: Final = 60
_HASH: Final = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_PINNED: Final = re.compile(r"[A-Za-z0-9._-]+==\S+")
CLEAN, FOUND, UNKNOWN = 0, 1, 2


def unhashed(text: str) -> list[str]:
    """Requirements without a version or without a hash."""
    blocks = [b for b in re.split(r"\n(?=\S)", text) if b.strip() and not b.startswith("#")]
    return [
        block.splitlines()[0].rstrip(" \\")
        for block in blocks
        if not _PINNED.match(block) or not _HASH.search(block)
    ]


class Looked(NamedTuple):
    """What is known of the packages that were asked about."""

    asked: int
    vulnerable: list[str]
    """Package, version, the vulnerability's names, and the version that mends it."""
    unanswered: list[str]
    """Packages that nothing is known of, not even that there is nothing to know."""


def looked(report: dict[str, Any]) -> Looked:
    """pip-audit's report. It calls a package that its source does not know skipped, and is
    content: a source that knows no package at all must not look like good news."""
    vulnerable, unanswered = [], []
    for package in report["dependencies"]:
        if "skip_reason" in package:
            unanswered.append(package["name"])
        for each in package.get("vulns", ()):
            names = ", ".join([each["id"], *each.get("aliases", ())])
            mended = " or ".join(each.get("fix_versions", ())) or "no version yet"
            vulnerable.append(
                f"{package['name']} {package['version']}: {names}; mended by {mended}"
            )
    return Looked(len(report["dependencies"]), vulnerable, unanswered)


def ask() -> Looked | str:
    """pip-audit's answer, or why there is none."""
    if importlib.util.find_spec("pip_audit") is None:
        return "pip-audit is not installed: run 'make setup'"
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes"]
    # Some of the network's ways of being out of reach are silent.
    quickly = ["--timeout", "5", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(
            [*command, *quickly, "-r", str(ROOT / LOCKS[0])],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_S,
        )
    except subprocess.TimeoutExpired:
        return f"pip-audit had no answer within {_LONGEST_S} s"
    try:
        return looked(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        return (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1][:200]


def told(answer: Looked | str) -> tuple[int, list[str]]:
    """What to say of it: `FOUND`, `CLEAN`, or `UNKNOWN` where nobody could be asked."""
    if isinstance(answer, str):
        return UNKNOWN, [f"vulnerabilities were not looked up: {answer}"]
    if answer.vulnerable:
        return FOUND, ["known vulnerabilities:", *answer.vulnerable]
    known = answer.asked - len(answer.unanswered)
    if not known:
        why = f"the source of vulnerabilities knows none of the {answer.asked} packages"
        return UNKNOWN, [f"vulnerabilities were not looked up: {why}"]
    lines = [f"no known vulnerability in {known} packages"]
    if answer.unanswered:
        lines.append(f"not looked up, for nothing is known of them: {', '.join(answer.unanswered)}")
    return CLEAN, lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--must-look-up", action="store_true", help="hashes alone are not enough")
    options = parser.parse_args(arguments)
    code, lines = told(ask())
    lacking = [f"{name}: {line}" for name in LOCKS for line in unhashed((ROOT / name).read_text())]
    if lacking:
        lines += ["without a hash:", *lacking, "run 'make lock'"]
    else:
        lines.append(f"every package of {', '.join(LOCKS)} is pinned by its hashes")
    print("\n".join(f"audit: {line}" for line in lines))
    return FOUND if code == FOUND or lacking or (code == UNKNOWN and options.must_look_up) else 0


if __name__ == "__main__":
    sys.exit(main())
