"""The demo of conf/compose: what it mounts is there and is read by those it is mounted for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "conf" / "compose"
SERVICES = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))["services"]
VOLUMES = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))["volumes"]
EVERY_SERVICE = pytest.mark.parametrize("service", SERVICES)


def mounts(service: str) -> dict[str, Path]:
    """What a container sees of this tree: path inside -> path here."""
    found = {}
    for volume in SERVICES[service].get("volumes", ()):
        source, target, *mode = volume.split(":")
        if source not in VOLUMES:
            assert mode == ["ro"], f"{service} may write to {source}"
            found[target] = FOLDER / source
    return found


def inside(service: str, folder: Path) -> Path:
    """The mounts of a container, laid out below a folder as the container has them."""
    for target, source in mounts(service).items():
        path = folder / target.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, path)
    return folder


def environment(service: str) -> dict[str, str]:
    """As compose fills it in where nobody has set anything."""
    given: dict[str, str] = SERVICES[service].get("environment", {})
    return {key: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text) for key, text in given.items()}


@EVERY_SERVICE
def test_every_file_that_is_mounted_exists(service: str) -> None:
    for target, source in mounts(service).items():
        assert source.exists(), f"{service}: {source} for {target}"


@EVERY_SERVICE
def test_an_image_has_a_version(service: str) -> None:
    image = SERVICES[service]["image"]
    if service == "tidestaff":
        assert image == "${TIDESTAFF_IMAGE:-tidestaff/tidestaff:dev}"
    else:
        assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", image)


@EVERY_SERVICE
def test_ports_are_published_on_loopback_only(service: str) -> None:
    for port in SERVICES[service].get("ports", ()):
        assert port.startswith("127.0.0.1:"), port


def settings(folder: Path) -> dict[str, Any]:
    """What the monitor takes the demo's command and configuration for, asked as a process."""
    command = SERVICES["tidestaff"]["command"]
    moved = [word if word[0] != "/" else str(folder) + word for word in command]
    done = subprocess.run(
        [sys.executable, "-m", "tidestaff.streaming.cli", *moved, "--print-config"],
        env={**os.environ, **environment("tidestaff")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def test_the_monitor_takes_its_command_and_what_others_ask_it_for_is_served(
    tmp_path: Path,
) -> None:
    found = settings(inside("tidestaff", tmp_path))
    assert found["work_dir"] in {volume.split(":")[1] for volume in _of("tidestaff", "volumes")}
    web, metrics = found["web"], found["metrics"]
    assert f"127.0.0.1:{web['port']}:{web['port']}" in _of("tidestaff", "ports")
    assert (web["host"], metrics["host"]) == ("0.0.0.0", "0.0.0.0")  # noqa: S104 - a container's
    scraped = yaml.safe_load(mounts("prometheus")["/etc/prometheus/prometheus.yml"].read_text())
    (job,) = scraped["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"tidestaff:{metrics['port']}"]}]
    (demo,) = [each for each in found["clusters"] if each["name"] == "demo"]
    listener = environment("kafka")["KAFKA_ADVERTISED_LISTENERS"]
    assert f"PLAINTEXT://{demo['source']['options']['bootstrap_servers']}" == listener


def _of(service: str, key: str) -> list[str]:
    found: list[str] = SERVICES[service][key]
    return found


def test_prometheus_finds_the_project_s_rules(tmp_path: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    folder = inside("prometheus", tmp_path) / "etc" / "prometheus"
    done = subprocess.run(
        [program, "check", "config", "prometheus.yml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rules = yaml.safe_load((ROOT / "conf" / "prometheus" / "rules.yaml").read_text())["groups"]
    assert f"{sum(len(group['rules']) for group in rules)} rules found" in done.stdout


def test_grafana_finds_every_dashboard_and_what_they_draw_from(tmp_path: Path) -> None:
    folder = inside("grafana", tmp_path)
    provisioning = folder / "etc" / "grafana" / "provisioning"
    (provider,) = _provisioned(provisioning / "dashboards", "providers")
    assert provider["type"] == "file"
    found = sorted((folder / provider["options"]["path"].lstrip("/")).glob("*.json"))
    assert [path.name for path in found] == sorted(
        path.name for path in (ROOT / "conf" / "grafana").glob("*.json")
    )
    (source,) = _provisioned(provisioning / "datasources", "datasources")
    assert source["isDefault"]
    assert source["url"] == "http://prometheus:9090"
    for path in found:
        variable = json.loads(path.read_text(encoding="utf-8"))["templating"]["list"][0]
        assert (variable["type"], variable["query"]) == ("datasource", source["type"])


def _provisioned(folder: Path, key: str) -> list[dict[str, Any]]:
    (path,) = folder.iterdir()
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content["apiVersion"] == 1
    found: list[dict[str, Any]] = content[key]
    return found
