"""A real browser, and a running job for it to look at.

Screenshots of every view go to the directory SCREENSHOTS_DIR names, if it is set: build
artefacts, and the pictures in docs/.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.web.server import WebServer

from tests.streaming.job.processes import Monitor
from tests.streaming.web.test_verified import Compared
from tests.streaming.web.watched import HTML, LOSS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Page

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]

SHOTS = os.environ.get("SCREENSHOTS_DIR")


def program() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = program()
    if found is None:
        pytest.skip("no Chromium is installed (Debian: chromium)")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that may not complain: an error on its console fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        lost = "ERR_CONNECTION" in message.text or "ERR_INCOMPLETE" in message.text
        if message.type in ("error", "warning") and not lost:
            complaints.append(message.text)

    opened.on("console", heard)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.set_default_timeout(60_000)
    yield opened
    context.close()
    assert complaints == []


@pytest.fixture
def shot(request: pytest.FixtureRequest) -> Callable[[Page, str], None]:
    def take(page: Page, name: str) -> None:
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)

    return take


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def story(version: str) -> dict[str, object]:
    """A simulated cluster that goes through KIP-101, looked at twice a second."""
    path = Path(__file__).parent / f"loss-{version}.txt"
    return {"type": "simulator", "scenario": str(path), "round_interval_ms": 500}


PATIENCE_S = 420


class RunningJob:
    """`tidestaff run` on two simulated clusters: one that loses a record, one that does not."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.config = {
            "clusters": [
                {"name": name, "source": story(version)}
                for name, version in (("old-0.10.2", "0.10.2.2"), ("new-3.9", "3.9.1"))
            ],
            "operator": {"buckets": 2},
            "spark": {"master": "local[2]", "driver_memory": "1g", "quick_start": True},
            "metrics": {"enabled": False},
            "web": {"port": self.port},
        }
        self.monitor = Monitor(folder, self.config)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def die(self) -> None:
        self.monitor.kill()

    def come_back(self) -> None:
        self.monitor = Monitor(self.folder, self.config)

    def end(self) -> None:
        if self.monitor.process.poll() is None:
            self.monitor.signal(signal.SIGTERM)
        self.monitor.wait()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[RunningJob]:
    started = RunningJob(tmp_path_factory.mktemp("job") / "run")
    try:
        started.monitor.until(lambda: "the web page is at" in started.monitor.err)
        assert re.search(rf"127\.0\.0\.1:{started.port}/", started.monitor.err)
        started.monitor.until(lambda: "TRN001" in started.monitor.out)
        yield started
    finally:
        started.end()


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of `tidestaff web` on stores that no job writes any more; one topic has an odd
    name, and contents of two partitions were compared."""
    folder = tmp_path_factory.mktemp("still")
    watched = Compared(folder)
    watched.play(LOSS, "old").play(LOSS, "odd", HTML)
    watched.round({0: (0, 6), 1: (0, 10)})
    watched.finish().close()
    settings = Settings.model_validate({"work_dir": str(folder), "web": {"port": 0}})
    server = WebServer(settings, lambda _: None)
    yield server.url.rstrip("/")
    server.close()
