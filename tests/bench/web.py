"""What the web page costs the job, and how fast its server answers with 200,000 partitions.

`python -m tests.bench.web --write` fills a state store through the operator's own buckets, starts
the server and asks it as a browser would; the table goes to docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import urllib.request
import zlib
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from tidestaff.streaming.alerts.batch import OutputRow
from tidestaff.streaming.alerts.event import Event, EventKind
from tidestaff.streaming.alerts.policy import AlertPolicy
from tidestaff.streaming.alerts.store import AlertStore
from tidestaff.streaming.operator.bucket import Bucket
from tidestaff.streaming.operator.judging import _output
from tidestaff.streaming.operator.viewing import View
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.view.limits import HistoryLimits
from tidestaff.streaming.view.store import StateStore
from tidestaff.streaming.web.server import WebServer

from tests.bench.load import BEGAN_MS, PER_TOPIC, Load
from tests.bench.report import write_table
from tests.bench.streaming import block_of_table

BUCKETS: Final = 32
ROUNDS: Final = 6
COMPARED_EVERY: Final = 10
ASKED: Final = 15
DEAD: Final = 20_000
"""Partitions of a grouped alert: a broker that is down."""


class Cost(NamedTuple):
    """Seconds of CPU of one round: judging, telling, writing; and the bytes that travel."""

    judging: float
    telling: float
    writing: float
    sent: int


def fill(work: Path, size: int) -> list[Cost]:
    """Rounds of a quiet cluster into both stores."""
    load = Load(size)
    buckets = [Bucket() for _ in range(BUCKETS)]
    for bucket in buckets:
        bucket.view = View("bench")
    settings = settings_of(work)
    alerts = AlertStore(settings.store_path, AlertPolicy(), lambda: BEGAN_MS)
    state = StateStore(settings.state_path, HistoryLimits())
    costs = []
    for number in range(ROUNDS):
        if number == 1:
            load.compare(COMPARED_EVERY)
        table = load.round()
        homes = np.fromiter(
            (zlib.crc32(s.encode()) % BUCKETS for s in table["subject"].to_pylist()),
            np.int64,
            len(table),
        )
        judging = telling = 0.0
        rows: list[OutputRow] = []
        for at, bucket in enumerate(buckets):
            block = block_of_table(table.take(np.flatnonzero(homes == at)))
            began = time.process_time()
            said = bucket.process(block)
            judged = time.process_time()
            assert bucket.view is not None
            shown = bucket.view.take(bucket, at)
            text = json.dumps(shown)
            telling += time.process_time() - judged
            judging += judged - began
            found = _output(at, bucket, said, 0, "")
            rows += [OutputRow(kind, at_ms, json.dumps(what)) for kind, at_ms, what in found]
            rows.append(OutputRow("state", 0, text))
        began = time.process_time()
        state.take("bench", number, rows)
        writing = time.process_time() - began
        alerts.process_batch("bench", number, rows)
        sent = sum(len(row.payload) for row in rows if row.kind == "state")
        costs.append(Cost(judging, telling, writing, sent))
    alerts.process_batch("bench", ROUNDS, findings(size))
    late = {"bucket": 99, "clocks": {"load": BEGAN_MS + 600_000}}
    alerts.process_batch("bench", ROUNDS + 1, [OutputRow("stats", 0, json.dumps(late))])
    state.close()
    alerts.close()
    return costs


def findings(size: int) -> list[OutputRow]:
    """A broker that is down, and some losses."""
    at_ms = BEGAN_MS + ROUNDS * 5_000
    told = [
        Event(
            EventKind.RAISED,
            "load",
            "ISR008",
            at_ms,
            topic=f"topic-{number // PER_TOPIC}",
            partition=number % PER_TOPIC,
            broker=3,
            because="broker 3 is not in sync",
        )
        for number in range(min(DEAD, size))
    ]
    told += [
        Event(
            EventKind.RAISED,
            "load",
            "TRN001",
            at_ms,
            topic=f"topic-{number}",
            partition=0,
            broker=1,
            because="offsets were committed and are gone",
            offsets=(10, 20 + number),
        )
        for number in range(100)
    ]
    return [OutputRow("finding", event.at_ms, event.text()) for event in told]


def settings_of(work: Path) -> Settings:
    return Settings.model_validate({"work_dir": str(work), "web": {"port": 0}})


QUESTIONS: Final = {
    "overview": "overview",
    "partitions: part of a topic's name": "partitions?q=opic-19",
    "partitions: a name that nothing has": "partitions?q=nothing-like-it",
    "partitions: of one broker": "partitions?broker=7",
    "partitions: under-replicated": "partitions?flag=under_replicated",
    "partitions: page 1,000": "partitions?offset=50000",
    "partitions: never compared": "partitions?verified=false",
    "one partition": "partitions/load/topic-500/7",
    "alerts: by text": "alerts?q=topic-5",
    "alerts: by broker": "alerts?broker=3",
    "what if two brokers stop": "what-if?cluster=load&stop=3&stop=4",
    "coverage": "coverage",
}


class Answered(NamedTuple):
    """Milliseconds, and bytes. CPU is that of server and client together: it tells the truth also
    where the machine is busy with something else."""

    median: float
    worst: float
    cpu: float
    size: int


def answers(work: Path) -> dict[str, Answered]:
    """Each question some times, one after the other."""
    server = WebServer(settings_of(work), print)
    found = {}
    try:
        for name, path in QUESTIONS.items():
            took, cpu, size = [], [], 0
            for _ in range(ASKED):
                began, used = time.perf_counter(), time.process_time()
                with urllib.request.urlopen(f"{server.url}api/v1/{path}") as response:  # noqa: S310
                    size = len(response.read())
                took.append(1_000 * (time.perf_counter() - began))
                cpu.append(1_000 * (time.process_time() - used))
            found[name] = Answered(statistics.median(took), max(took), statistics.median(cpu), size)
    finally:
        server.close()
    return found


def report(size: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        costs = fill(work, size)
        found = answers(work)
        stored = (work / "state.sqlite").stat().st_size
    return f"{server_table(size, found)}\n\n{job_table(size, costs, stored)}"


def server_table(size: int, found: dict[str, Answered]) -> str:
    lines = [
        f"| the server with {size:,} partitions | CPU | wall, median | worst of {ASKED} | answer |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {name} | {one.cpu:.0f} ms | {one.median:.0f} ms | {one.worst:.0f} ms "
            f"| {one.size / 1000:.0f} kB |"
            for name, one in found.items()
        ),
    ]
    return "\n".join(lines)


def job_table(size: int, costs: list[Cost], stored: int) -> str:
    quiet = costs[3:]

    def median(name: str) -> float:
        return statistics.median(getattr(cost, name) for cost in quiet)

    lines = [
        f"| the job, a round of {size:,} partitions, CPU of one core | quiet | first |",
        "|---|---:|---:|",
        f"| judging, without Spark | {median('judging'):.2f} s | {costs[0].judging:.1f} s |",
        f"| telling it for the page | {median('telling'):.2f} s | {costs[0].telling:.1f} s |",
        f"| writing it on the driver | {median('writing'):.2f} s | {costs[0].writing:.1f} s |",
        f"| sent to the driver | {median('sent') / 1e6:.1f} MB | {costs[0].sent / 1e6:.1f} MB |",
        f"| state store on disk | {stored / 1e6:.0f} MB | |",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--size", type=int, default=200_000)
    given = parser.parse_args()
    table = report(given.size)
    sys.stdout.write(table + "\n")
    if given.write:
        write_table("web", table, by="make bench-web")


if __name__ == "__main__":
    main()
