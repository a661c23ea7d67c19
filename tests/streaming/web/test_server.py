"""The server: where it listens, what it says, how it ends; and live updates over a connection."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

from tidestaff.streaming.cli import main
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.web.server import WebServer, listening

from tests.streaming.web.watched import CALM, Watched, played

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_port_that_is_taken_is_replaced_and_that_is_said() -> None:
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = listening("127.0.0.1", port, said.append)
    with found:
        another = found.getsockname()[1]
    assert another != port
    assert f"port {port} cannot be used" in said[0]
    assert f"it is on port {another} instead" in said[0]


def test_a_free_port_is_taken_in_silence() -> None:
    said: list[str] = []
    listening("127.0.0.1", 0, said.append).close()
    assert said == []


def test_the_world_is_refused_without_a_log_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["web", "--work-dir", str(tmp_path), "--host", "0.0.0.0"])  # noqa: S104
    assert code == 3
    assert "set web.token" in capsys.readouterr().err


def test_a_directory_that_is_not_there_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["web", "--work-dir", str(tmp_path / "none")]) == 3
    assert "there is no such directory" in capsys.readouterr().err


def test_the_command_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidestaff.streaming.cli", "web", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--work-dir", str(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        url = line.split()[5].rstrip(";")
        with urllib.request.urlopen(f"{url}healthz", timeout=60) as found:  # noqa: S310 - loopback
            assert found.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_a_page_that_is_open_is_told_when_something_has_changed(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "w")
    rows = played(CALM, "c")
    watched.see(next(rows))
    settings = Settings.model_validate({"work_dir": str(tmp_path / "w"), "web": {"port": 0}})
    server = WebServer(settings, print)
    try:
        with urllib.request.urlopen(f"{server.url}api/v1/events", timeout=60) as stream:  # noqa: S310
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert _next_event(stream) == "change"
            watched.see(next(rows))
            assert _next_event(stream) == "change"
            server.close()
            assert not server.running, "an open page keeps nobody from ending"
    finally:
        server.close()
        watched.close()


def _next_event(stream: object) -> str:
    while True:
        line = stream.readline().decode()  # type: ignore[attr-defined]
        assert line, "the stream has ended"
        if line.startswith("event: "):
            return str(line.removeprefix("event: ").strip())
