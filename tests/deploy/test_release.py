"""What is released says one version; what people start by hand is what the program takes."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidestaff.streaming.cli import command_line
from tidestaff.streaming.settings_loading import load

from tests.deploy import release

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "conf" / "systemd").glob("*.service"))
COMPOSE = ROOT / "conf" / "compose"
CHANGELOG = "# Changelog\n\n## 1.2.3\n\n- a change\n\n## 1.2.2\n\n- an older one\n"


def test_package_chart_and_readme_say_one_version() -> None:
    assert len(set(release.versions().values())) == 1


def test_a_tag_that_nothing_else_says_is_refused_with_what_to_do() -> None:
    said = release.problems("v9.9.9", {"pyproject.toml": "1.2.3"}, CHANGELOG)
    assert said == [
        "pyproject.toml says 1.2.3, the tag v9.9.9: set it to 9.9.9",
        "CHANGELOG.md has no section '## 9.9.9': rename Unreleased",
    ]
    assert release.problems("v1.2.3", {"pyproject.toml": "1.2.3"}, CHANGELOG) == []
    assert release.notes(CHANGELOG, "1.2.3") == "- a change"


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    return found


def test_a_release_is_tested_before_it_is_published_and_signed_without_a_key() -> None:
    jobs = workflow("release.yaml")["jobs"]
    assert jobs["publish"]["needs"] == "test"
    assert jobs["publish"]["permissions"]["id-token"] == "write"
    steps = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    for word in ("make test", "audit --must-look-up", "make sbom", "cosign sign ", "helm package"):
        assert word in steps
    text = (ROOT / ".github" / "workflows" / "release.yaml").read_text()
    assert "secrets." not in text


@pytest.mark.parametrize("name", ["check.yaml", "release.yaml"])
def test_workflows_ask_for_few_rights(name: str) -> None:
    assert workflow(name)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_start_commands_the_program_knows(path: Path) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text(encoding="utf-8"))
    for key in ("ExecStartPre", "ExecStart"):
        if unit.has_option("Service", key):
            program, *words = shlex.split(unit.get("Service", key))
            assert program == "/opt/tidestaff/bin/tidestaff"
            assert command_line(words)
    assert unit.get("Service", "NoNewPrivileges") == "yes"
    assert unit.get("Service", "ProtectSystem") == "strict"
    assert unit.get("Service", "User") == "tidestaff"


def test_the_demo_is_one_the_program_takes() -> None:
    settings = load(
        COMPOSE / "tidestaff.yaml", {"WEB_TOKEN": "of-this-test-alone-of-enough-letters"}
    )
    assert [cluster.name for cluster in settings.clusters] == ["demo", "story"]
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    assert command_line(services["tidestaff"]["command"])
    assert services["tidestaff"]["read_only"] is True
    assert all(":rw,exec" in each for each in services["tidestaff"]["tmpfs"]), "as in test_image.py"
    for service in services.values():
        image = re.sub(r"\$\{\w+:-(.+)\}", r"\1", service["image"])
        assert re.search(r":[\w.-]+$", image)
        assert not image.endswith(":latest")
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert not source.startswith("./") or (COMPOSE / source).is_file(), volume
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")
