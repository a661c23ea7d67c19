"""The pictures in docs/images: `python -m tests.browser.pictures` takes them anew.

The two clusters of `make run` live through their story in simulated time, through the operator and
into the stores as in the job, but without Spark: seconds instead of minutes. Look at them.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from playwright.sync_api import expect, sync_playwright
from tidestaff.connectors.linking import Linker
from tidestaff.streaming.checkpoint import CheckpointLock
from tidestaff.streaming.settings import Settings, SimulatorSource
from tidestaff.streaming.sources.simulated import SimulatedCollector
from tidestaff.streaming.web.server import WebServer

from tests.browser.conftest import FLAGS, program
from tests.streaming.web.watched import Watched

IMAGES: Final = Path(__file__).resolve().parents[2] / "docs" / "images"
AFTERWARDS: Final = 240
"""Rounds after the end of the story."""


def play(folder: Path, settings: Settings) -> None:
    """The story of every cluster; the last round is now."""
    watched, linkers = Watched(folder), [Linker() for _ in settings.clusters]
    collectors = []
    for cluster in settings.clusters:
        assert isinstance(cluster.source, SimulatorSource)
        collectors.append(SimulatedCollector(cluster.name, cluster.source))
        every_ms = cluster.source.round_interval_ms
    rounds = max(each.script.end_ms for each in collectors) // every_ms + AFTERWARDS
    for each in collectors:
        each.origin_ms = time.time_ns() // 1_000_000 - rounds * every_ms
    for _ in range(rounds):
        for collector, linker in zip(collectors, linkers, strict=True):
            watched.see(linker.link(collector.round()))
    watched.close()


def take(url: str) -> None:
    found = program()
    assert found is not None, "Chromium is needed (Debian: chromium)"
    views = {
        "overview": ("", ".verdict"),
        "partition": ("partition/new-3.9/clicks/0", "svg.picture"),
        "learn": ("learn", ".side"),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.set_default_timeout(60_000)
        for name, (path, there) in views.items():
            page.goto(f"{url}#/{path}")
            expect(page.locator(there).first).to_be_visible()
            if name == "learn":
                for _ in range(5):
                    page.get_by_role("button", name="next step").click()
            expect(page.locator("#live")).to_have_text("live")
            page.screenshot(path=IMAGES / f"{name}.png", full_page=True)
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate({"work_dir": folder, "web": {"port": 0}})
        play(Path(folder), settings)
        with CheckpointLock(settings.work):
            server = WebServer(settings, print)
            try:
                take(server.url)
            finally:
                server.close()


if __name__ == "__main__":
    main()
