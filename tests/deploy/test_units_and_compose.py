"""Units as systemd reads them; compose file and workflows against the schemas of those who run
them, which check-jsonschema carries."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "conf" / "systemd").glob("*.service"))
COMPOSE = ROOT / "conf" / "compose" / "compose.yaml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
PROGRAM = "/opt/tidestaff/bin/tidestaff"


def complaints(folder: Path, unit: Path, text: str) -> str:
    """What systemd says of a unit; the program it starts need not be installed for that."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze (Debian: systemd): units are parsed only")
    path = folder / unit.name.replace("@.", "@east.")
    path.write_text(text.replace(PROGRAM, sys.executable), encoding="utf-8")
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if path.name in line]
    return "\n".join(said)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    assert complaints(tmp_path, unit, unit.read_text(encoding="utf-8")) == ""


def test_systemd_finds_what_is_wrong(tmp_path: Path) -> None:
    text = UNITS[0].read_text(encoding="utf-8").replace("ProtectSystem=", "ProtectSytem=")
    assert "ProtectSytem" in complaints(tmp_path, UNITS[0], text)


def checked(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    return subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False)


def test_the_compose_file_is_one_compose_takes(tmp_path: Path) -> None:
    done = checked("compose-spec", COMPOSE)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text(encoding="utf-8").replace("read_only:", "readonly:"))
    done = checked("compose-spec", wrong)
    assert done.returncode == 1
    assert "readonly" in done.stdout


def test_workflows_are_ones_that_are_run() -> None:
    assert WORKFLOWS
    done = checked("github-workflows", *WORKFLOWS)
    assert done.returncode == 0, done.stdout
