"""Prometheus and Alertmanager as processes of their own, on loopback, ended by their id."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONF = Path(__file__).resolve().parents[2] / "conf"


def program(*names: str) -> str:
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    pytest.skip(f"{names[0]} is not installed (Debian: prometheus, prometheus-alertmanager)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def asked(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - loopback
        text = response.read()
    return json.loads(text) if text else None


def until(found: Callable[[], Any], within_s: float, what: str) -> tuple[Any, float]:
    """What is found at last, and when (wall clock)."""
    ends = time.monotonic() + within_s
    while True:
        try:
            value = found()
        except (urllib.error.URLError, OSError):
            value = None
        if value:
            return value, time.time()
        assert time.monotonic() < ends, f"not within {within_s} s: {what}"
        time.sleep(0.1)


@contextmanager
def running(command: list[str], folder: Path, ready: str) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        until(lambda: _answers(ready), 60, f"{command[0]} answers")
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - loopback
        return bool(response.status == 200)


@contextmanager
def alertmanager(folder: Path, webhook: str) -> Iterator[str]:
    """The example of conf/, with another receiver's address and no patience."""
    folder.mkdir()
    config = yaml.safe_load((CONF / "alertmanager" / "alertmanager.yaml").read_text())
    (receiver,) = [each for each in config["receivers"] if each["name"] == "on-call"]
    receiver["webhook_configs"][0]["url"] = webhook
    config["route"] |= {"group_wait": "1s", "group_interval": "1s"}
    (folder / "alertmanager.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        program("prometheus-alertmanager", "alertmanager"),
        "--config.file=alertmanager.yaml",
        "--storage.path=data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    with running(command, folder, f"http://127.0.0.1:{port}/-/ready"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def prometheus(folder: Path, target: int, alertmanager_url: str) -> Iterator[str]:
    """The example of conf/ with a scrape and an evaluation every second."""
    folder.mkdir()
    shutil.copy(CONF / "prometheus" / "rules.yaml", folder)
    config = yaml.safe_load((CONF / "prometheus" / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{target}"]
    address = urllib.parse.urlsplit(alertmanager_url).netloc
    config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [address]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        program("prometheus"),
        "--config.file=prometheus.yaml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with running(command, folder, f"http://127.0.0.1:{port}/-/ready"):
        yield f"http://127.0.0.1:{port}"
