"""A job that is killed at twenty random moments, and at the worst one for each sink: every sink has
every transition exactly once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tidestaff.streaming.alerts.reading import AlertReader
from tidestaff.streaming.alerts.store import AlertStore

from tests.streaming.alerts.lives import POLICY
from tests.streaming.alerts.shop import QUERY
from tests.streaming.sinks.killed_job import BATCHES, done, rows_of
from tests.streaming.sinks.receiver import receiving

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
KILLS = 20


def expected(directory: Path) -> list[str]:
    """What a job tells that nobody disturbs."""
    directory.mkdir()
    store = AlertStore(directory / "alerts.db", POLICY, lambda: 0)
    told = []
    for batch in range(BATCHES):
        told += store.process_batch(QUERY, batch, rows_of(batch)).transitions
    store.close()
    return sorted(each.text for each in told)


def start(directory: Path, url: str, *fatal: str) -> subprocess.Popen[str]:
    module = "tests.streaming.sinks.killed_job"
    command = [sys.executable, "-m", module, str(directory), url, *fatal]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_every_transition_is_exactly_once_in_every_sink(tmp_path: Path) -> None:
    chance = random.Random(20)  # noqa: S311 - reproducible
    directory = tmp_path / "killed"
    directory.mkdir()
    killed_at = []
    with receiving() as receiver:
        for _ in range(KILLS):
            with start(directory, receiver.url) as process:
                time.sleep(chance.uniform(0, 0.25))
                process.kill()
            assert process.returncode == -9, "it ended before it was killed: give it more batches"
            killed_at.append(done(directory))
        for sink in ("jsonl", "parquet", "webhook"):
            with start(directory, receiver.url, sink) as process:
                assert process.wait(300) == -9
        with start(directory, receiver.url) as process:
            assert process.wait(300) == 0
    assert len(set(killed_at)) > KILLS // 2

    told = expected(tmp_path / "undisturbed")
    stored = [
        each.text for _, each in AlertReader(directory / "alerts.db").transitions(limit=9_999)
    ]
    assert sorted(stored) == told

    files = directory.glob("alerts.jsonl*")
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    assert sorted(lines) == told

    reader = AlertReader(directory / "alerts.db")
    ids = [each.id for _, each in reader.transitions(limit=9_999)]
    parts = [pq.read_table(path)["id"].to_pylist() for path in (directory / "parquet").glob("a*")]
    assert Counter(value for part in parts for value in part) == Counter(ids)

    bodies: dict[str, set[bytes]] = {}
    for request in receiver.requests:
        bodies.setdefault(request.headers["idempotency-key"], set()).add(request.body)
    assert set(bodies) == set(ids)
    assert all(len(each) == 1 for each in bodies.values())
    assert sorted(body.decode() for (body,) in bodies.values()) == told
