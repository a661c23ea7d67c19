"""The whole job, killed with SIGKILL at twenty moments: every transition once in every sink."""

from __future__ import annotations

import io
import json
import random
import re
import sqlite3
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tidestaff.streaming import checkpoint
from tidestaff.streaming.alerts.outbox import Outgoing
from tidestaff.streaming.alerts.reading import AlertReader
from tidestaff.streaming.replaying import replay_on, settings_for
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.sinks.console import ConsoleSink
from tidestaff.streaming.sinks.kafka import ID_HEADER
from tidestaff.streaming.sinks.sink import FOR_PEOPLE, is_for
from tidestaff.streaming.sources.row_files import listed

from tests.brokers import start_broker
from tests.streaming.job.conftest import record
from tests.streaming.job.processes import Monitor
from tests.streaming.sinks.receiver import receiving

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tidestaff.streaming.alerts.transition import Transition

    from tests.brokers import Broker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.whole_run,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

KILLS = 20
TOPIC = "alerts"
ALL = ["pending", "firing", "acknowledged", "resolved"]
OPERATOR = {"buckets": 2, "trigger_interval_ms": 0}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    started = start_broker(tmp_path / "broker", [TOPIC])
    yield started
    started.stop()


def config(folder: Path, recording: Path, urls: tuple[str, str], broker: Broker) -> dict[str, Any]:
    source = {"type": "recording", "path": str(recording), "files_per_batch": 1}
    kafka = {"bootstrap_servers": broker.bootstrap, "topic": TOPIC}
    return {
        "work_dir": str(folder / "data"),
        "clusters": [{"name": "replay", "source": source}],
        "spark": {"master": "local[2]", "driver_memory": "1g", "quick_start": True},
        "operator": OPERATOR,
        "metrics": {"enabled": False},
        "web": {"enabled": False},
        "sinks": [
            {"type": "jsonl", "path": str(folder / "alerts.jsonl")},
            {"type": "parquet", "path": str(folder / "parquet")},
            {"type": "webhook", "url": urls[0], "statuses": ALL},
            {"type": "alertmanager", "url": urls[1]},
            {"type": "console", "statuses": ALL},
            {"type": "kafka", **kafka},
        ],
    }


def killed_again_and_again(folder: Path, told: dict[str, Any], batches: int) -> list[int]:
    """Kills while it starts, and at any moment of a batch; how many were planned each time. Never
    waits for more than the `batches` there are: a fast machine is through with them early."""
    chance = random.Random(20)  # noqa: S311 - reproducible
    struck = []
    for number in range(KILLS):
        before = planned(folder)
        monitor = Monitor(folder / f"m{number}", told)
        try:
            if chance.random() < 0.2:
                passes(chance.uniform(0, 10), folder, before + 3)
            else:
                more = min(before + chance.randint(1, 3), batches)
                monitor.until(lambda more=more: planned(folder) >= more)  # type: ignore[misc]
                passes(chance.uniform(0, 1.5), folder, more + 2)
        finally:
            monitor.kill()
        struck.append(planned(folder))
    return struck


def passes(seconds: float, folder: Path, most: int) -> None:
    """So much time, but no more than so many batches in all: work is to be left for later kills."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and planned(folder) < most:
        time.sleep(0.005)


def planned(folder: Path) -> int:
    """How many batches were begun."""
    entries = (folder / "data" / "checkpoint" / "offsets").glob("[0-9]*")
    return 1 + max((int(path.name) for path in entries), default=-1)


def finished(folder: Path, told: dict[str, Any]) -> None:
    last = Monitor(folder / "last", told, "--until-idle")
    try:
        assert last.wait() == 0, last.err[-2000:]
    finally:
        last.kill()


def sent_to(broker: Broker) -> list[str]:
    from kafka import KafkaConsumer  # noqa: PLC0415 - slow

    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=3_000,
        group_id=None,
    )
    found = [dict(record.headers)[ID_HEADER].decode() for record in consumer]
    consumer.close()
    return found


def shown_by(transitions: Iterable[Transition]) -> list[str]:
    """The head lines a console has for these, without the details below them."""
    stream = io.StringIO()
    ConsoleSink(stream=stream, colour=False).deliver(
        [Outgoing(number, each, "") for number, each in enumerate(transitions)]
    )
    return heads(stream.getvalue())


def heads(text: str) -> list[str]:
    """Only whole lines: a kill may cut the last one."""
    whole = text[: text.rfind("\n") + 1]
    return [line for line in whole.splitlines() if re.search(r"  id [0-9a-f]{8}$", line)]


def test_a_job_killed_twenty_times_tells_every_sink_everything_once(
    spark: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    recording = tmp_path / "recording"
    record(recording, Settings(), rounds=140, rounds_a_file=4)
    base = Settings.model_validate({"operator": OPERATOR})
    (tmp_path / "calm").mkdir()
    calm = replay_on(
        spark, settings_for(base, recording, tmp_path / "calm", 1_000), close=False
    ).transitions

    folder = tmp_path / "killed"
    with receiving() as receiver, receiving() as alertmanager:
        told = config(folder, recording, (receiver.url, alertmanager.url), broker)
        struck = killed_again_and_again(folder, told, len(listed(recording)))
        finished(folder, told)
        requests = list(receiver.requests)
        posted = [alert for each in alertmanager.requests for alert in json.loads(each.body)]
    assert len(set(struck)) > KILLS // 3, "it was struck in the middle of its work"
    assert str(checkpoint.done(folder / "data" / "checkpoint")).find(listed(recording)[-1]) >= 0

    store = folder / "data" / "alerts.sqlite"
    reader = AlertReader(store)
    kept = [transition for _, transition in reader.transitions(limit=99_999)]
    reader.close()
    own = [each for each in kept if each.fields["code"] != "SRC005"]
    assert sorted(each.text for each in own) == sorted(each.text for each in calm)

    once = Counter({each.id: 1 for each in kept})
    with sqlite3.connect(store) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    lines = (folder / "alerts.jsonl").read_text().splitlines()
    assert sorted(lines) == sorted(each.text for each in kept)
    parts = [pq.read_table(path)["id"].to_pylist() for path in (folder / "parquet").glob("a*")]
    assert Counter(value for part in parts for value in part) == once
    # A webhook is posted at least once; its key tells a repetition from something new.
    assert Counter({request.headers["idempotency-key"]: 1 for request in requests}) == once
    assert Counter(sent_to(broker)) == once

    # Alertmanager is told states, by labels: the last it was told of every alert is how it ended.
    # It is not told of suspicions, so neither that they came to nothing.
    shown = [each for each in kept if is_for(FOR_PEOPLE, each)]
    last = {alert["labels"]["fingerprint"]: "endsAt" in alert for alert in posted}
    assert last == {each.fingerprint: each.fields["status"] == "resolved" for each in shown}

    # A console cannot be asked what it showed before a kill: what was on its way then is shown
    # again, word for word, by the next run; nothing is left out, nothing twice in one run.
    runs = [heads(path.read_text()) for path in sorted(folder.glob("*/out"))]
    assert {line for run in runs for line in run} == set(shown_by(kept))
    assert all(len(set(run)) == len(run) for run in runs)
