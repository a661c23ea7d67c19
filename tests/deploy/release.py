"""`python -m tests.deploy.release vX.Y.Z`: whether everything says that version; `--notes` prints
its section of the changelog."""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]


def versions(root: Path = ROOT) -> dict[str, str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    chart = yaml.safe_load((root / "helm" / "tidestaff" / "Chart.yaml").read_text())
    return {
        "pyproject.toml": project["project"]["version"],
        "helm/tidestaff/Chart.yaml appVersion": str(chart["appVersion"]),
    }


def notes(changelog: str, version: str) -> str | None:
    """The section of a version, None where there is none."""
    match = re.search(
        rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    return match[1].strip() if match is not None else None


def problems(tag: str, found: dict[str, str], changelog: str) -> list[str]:
    version = tag.removeprefix("v")
    wrong = [
        f"{where} says {said}, the tag {tag}: set it to {version}"
        for where, said in found.items()
        if said != version
    ]
    if not notes(changelog, version):
        wrong.append(f"CHANGELOG.md has no section '## {version}': rename Unreleased")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag")
    parser.add_argument("--notes", action="store_true")
    options = parser.parse_args()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    wrong = problems(options.tag, versions(), changelog)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    if options.notes:
        print(notes(changelog, options.tag.removeprefix("v")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
