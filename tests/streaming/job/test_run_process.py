"""`tidestaff run` as people run it: it starts, tells, ends in good order and goes on again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tidestaff.streaming.sources.row_files import listed

from tests.streaming.job.processes import PROGRAM, Monitor, children_of, kill_if_there

pytestmark = pytest.mark.spark

# Seconds on a quiet machine; the batch that runs has five, Spark ten and the sinks two to end.
ENDS_WITHIN_S = 45.0
SMALL = {"master": "local[2]", "driver_memory": "1g", "quick_start": True}


def config(work: Path, source: dict[str, Any]) -> dict[str, Any]:
    return {
        "work_dir": str(work / "data"),
        "clusters": [{"name": "c", "source": source}],
        "spark": SMALL,
        "operator": {"buckets": 2, "trigger_interval_ms": 200, "tick_interval_ms": 1_000},
        "sinks": [{"type": "console"}, {"type": "jsonl", "path": str(work / "alerts.jsonl")}],
        "metrics": {"enabled": False},
        "web": {"port": 0},
    }


def asked(*arguments: str) -> tuple[int, Any]:
    done = subprocess.run(
        [*PROGRAM, *arguments, "--json"], capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout)


def test_it_tells_ends_when_it_is_told_to_and_goes_on_where_it_was(tmp_path: Path) -> None:
    source = {"type": "simulator", "scenario": "s23-loss-0.10.2", "round_interval_ms": 250}
    told = config(tmp_path, source)
    monitor = Monitor(tmp_path / "first", told)
    work = str(tmp_path / "data")
    try:
        monitor.until(lambda: "TRN001" in monitor.out)

        refused = subprocess.run(
            [*PROGRAM, "run", "--config", str(tmp_path / "first" / "tidestaff.yaml")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode == 3
        assert f"process {monitor.process.pid}" in refused.stderr

        code, status = asked("status", "--work-dir", work)
        assert str(monitor.process.pid) in status["running"]
        assert list(status["clusters"]) == ["c"]
        code, alerts = asked("alerts", "--work-dir", work, "--code", "TRN001")
        assert code == 2
        (loss,) = alerts["alerts"]

        told_at = time.monotonic()
        monitor.signal(signal.SIGTERM)
        assert monitor.wait() == 0
        assert time.monotonic() - told_at < ENDS_WITHIN_S
    finally:
        monitor.kill()
    assert "the state is saved" in monitor.err

    code, _ = asked("alerts", "ack", loss["fingerprint"][:8], "--why", "test", "--work-dir", work)
    assert code == 0
    rounds = len(listed(tmp_path / "data" / "journal" / "c"))
    again = Monitor(tmp_path / "second", told)
    try:
        again.until(lambda: len(listed(tmp_path / "data" / "journal" / "c")) > rounds + 4)
        told_at = time.monotonic()
        again.press_ctrl_c()
        assert again.wait() == 130
        assert time.monotonic() - told_at < ENDS_WITHIN_S
    finally:
        again.kill()
    assert "the state is saved" in again.err
    lines = [json.loads(line) for line in (tmp_path / "alerts.jsonl").read_text().splitlines()]
    ids = [line["id"] for line in lines]
    assert len(ids) == len(set(ids))
    fired = [(line["code"], line["status"]) for line in lines if line["code"] == "TRN001"]
    assert fired[0] == ("TRN001", "firing")
    assert fired.count(("TRN001", "firing")) == 1


@pytest.mark.parametrize("word", ["starting Spark", "Spark is up"])
def test_it_ends_as_told_also_while_it_starts(tmp_path: Path, word: str) -> None:
    source = {"type": "simulator", "rounds": 3}
    monitor = Monitor(tmp_path / "run", config(tmp_path, source))
    try:
        monitor.until(lambda: word in monitor.err)
        below = children_of(monitor.process.pid)
        monitor.signal(signal.SIGTERM)
        assert monitor.wait() == 0
        assert "Traceback" not in monitor.err
        until = time.monotonic() + 60
        while any(Path(f"/proc/{pid}").exists() for pid in below):
            assert time.monotonic() < until, "what it had started goes with it"
            time.sleep(0.1)
    finally:
        monitor.kill()


def test_a_jvm_that_is_just_coming_up_goes_with_it(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "run", config(tmp_path, {"type": "simulator", "rounds": 3}))
    try:
        monitor.until(lambda: bool(children_of(monitor.process.pid)))
        time.sleep(0.5)
        below = children_of(monitor.process.pid)
        monitor.press_ctrl_c()
        assert monitor.wait() == 130
        assert "Traceback" not in monitor.err
        until = time.monotonic() + 60
        while any(Path(f"/proc/{pid}").exists() for pid in below):
            assert time.monotonic() < until, "it is left over"
            time.sleep(0.1)
    finally:
        monitor.kill()


def test_a_replay_that_is_told_while_it_starts_leaves_nothing_behind(
    recording: Path, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [*PROGRAM, "replay", str(recording)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 60
        while not children_of(process.pid):
            assert time.monotonic() < until, "nothing is started"
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    finally:
        kill_if_there(process.pid)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not out
    assert not list(scratch.glob("tidestaff-replay-*"))
