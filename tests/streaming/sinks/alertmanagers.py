"""Something that speaks the v2 API of Alertmanager: the real program where it is installed, else a
server on loopback that refuses whatever the documented schema refuses."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.streaming.sinks.receiver import Receiver, Request, receiving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STARTS_WITHIN_S = 20.0
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Alertmanager(NamedTuple):
    """`alerts` are those that are active now."""

    url: str
    alerts: Callable[[], list[dict[str, Any]]]


def program() -> str | None:
    return shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")


@contextmanager
def real(directory: Path) -> Iterator[Alertmanager]:
    found = program()
    assert found is not None
    config = directory / "alertmanager.yml"
    config.write_text("route:\n  receiver: nobody\nreceivers:\n  - name: nobody\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        found,
        f"--config.file={config}",
        f"--storage.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=error",
    ]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(f"{url}/-/ready")
        yield Alertmanager(url, lambda: _get(f"{url}/api/v2/alerts"))
    finally:
        process.kill()
        process.wait()


@contextmanager
def strict() -> Iterator[Alertmanager]:
    with receiving() as receiver:
        held: dict[str, dict[str, Any]] = {}

        def judge(request: Request) -> tuple[int, str]:
            problem = _refusal(request)
            if problem:
                return 400, json.dumps(problem)
            for alert in json.loads(request.body):
                held[json.dumps(alert["labels"], sort_keys=True)] = alert
            return 200, ""

        def active() -> list[dict[str, Any]]:
            now = datetime.now(UTC)
            ends = {key: alert.get("endsAt") for key, alert in held.items()}
            return [
                alert
                for key, alert in held.items()
                if ends[key] is None or datetime.fromisoformat(ends[key]) > now
            ]

        receiver.judge = judge
        yield Alertmanager(receiver.url, active)


def _refusal(request: Request) -> str | None:
    """What the OpenAPI document of v2 (postableAlerts) does not allow."""
    if request.path != "/api/v2/alerts" or request.headers["content-type"] != "application/json":
        return "no such operation"
    for alert in json.loads(request.body):
        if set(alert) - {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}:
            return "unknown property"
        if not alert.get("labels"):
            return "labels are required"
        texts = {**alert["labels"], **alert.get("annotations", {})}
        if not all(LABEL.fullmatch(k) and isinstance(v, str) for k, v in texts.items()):
            return "label sets map names to strings"
        if not all(alert["labels"].values()):
            return "empty label"
        times = [datetime.fromisoformat(alert[k]) for k in ("startsAt", "endsAt") if k in alert]
        if any(at.tzinfo is None for at in times) or times != sorted(times):
            return "start time must be before end time"
    return None


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - loopback
        return json.load(response)


def _wait(url: str) -> None:
    ends_s = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1):  # noqa: S310 - loopback
                return
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < ends_s, "alertmanager does not come up"
            time.sleep(0.05)


__all__ = ["Alertmanager", "Receiver", "program", "real", "strict"]
