"""A long run of the job on a large cluster under faults: memory, state, latency, and the truth.

`python -m tests.bench.soak --minutes 20 --partitions 20000 --write` feeds a simulated cluster in
real time (tests/bench/feed.py) through the job as it stands, with default settings, its own source,
the alert store, the page's state and the JSON lines sink, and compares what was raised with what
the simulator knows to be lost.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.verdict import FindingClass
from tidestaff.streaming.alerts.store import AlertStore
from tidestaff.streaming.delivery import Dispatcher, Route
from tidestaff.streaming.pipeline import Job
from tidestaff.streaming.running import StoreReceiver, quarantine_of
from tidestaff.streaming.session import start
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.sinks.jsonl import JsonLinesSink
from tidestaff.streaming.view.store import StateReceiver, StateStore

from tests.bench.processes import resident_mb, resident_mb_by_program
from tests.bench.report import write_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.alerts.batch import OutputRow

LOOKS: Final = 4
"""How often memory is looked at in parts, evenly over the run, each time after a collection."""
GRAVE: Final = (FindingClass.LOSS, FindingClass.DIVERGENCE, FindingClass.PROTOCOL)
_AFTER_S: Final = 40.0
_BEFORE_END_S: Final = 10.0


class Lines:
    """Notes when a transition came out: the last step of its way."""

    name = "lines"

    def __init__(self, path: Path) -> None:
        self._sink = JsonLinesSink(path)
        self.came_s: dict[str, float] = {}
        self.alerts: list[dict[str, Any]] = []

    def deliver(self, outgoing: Any) -> None:
        self._sink.deliver(outgoing)
        now = time.time()
        for each in outgoing:
            told = each.transition.fields
            key = f"{told['fingerprint']}-{told['number']}"
            if key not in self.came_s:
                self.came_s[key] = now
                self.alerts.append({**told, "came_s": now})

    def close(self) -> None:
        self._sink.close()


class Measured:
    """A receiver of the job as the others are: what each batch took and what it left in memory."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []
        self.without: int | None = None
        self._last = time.perf_counter()

    def process_batch(self, _: str, __: int, rows: Sequence[OutputRow]) -> None:
        stats = [json.loads(row.payload) for row in rows if row.kind == "stats"]
        now = time.perf_counter()
        self.batches.append(
            {
                "at_s": time.time(),
                "memory_mb": resident_mb(without=self.without),
                "wall_s": now - self._last,
                **{
                    name: sum(one[name] for one in stats)
                    for name in ("rows", "stepped", "state_bytes", "quarantined", "late")
                },
            }
        )
        self._last = now


def run(partitions: int, minutes: int, *, work: Path) -> dict[str, Any]:
    """The job as `tidestaff run` makes it, with its own source, on a recording that goes on."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    feed = work / "feed"
    feed.mkdir()
    source = {"type": "recording", "path": str(feed), "files_per_batch": 2}
    clusters = [{"name": "load", "source": source}]
    settings = Settings.model_validate({"work_dir": str(work / "data"), "clusters": clusters})
    spark = start(settings)
    store = AlertStore(settings.store_path, settings.policy, lambda: int(1_000 * time.time()))
    lines = Lines(work / "alerts.jsonl")
    dispatcher = Dispatcher(store, [Route(lines)])
    dispatcher.start()
    page = StateStore(settings.state_path, settings.history)
    measured = Measured()
    receivers = [
        StoreReceiver(store, lambda _: dispatcher.notify()),
        quarantine_of(settings),
        StateReceiver(page, print),
        measured,
    ]
    job = Job(spark, settings, receivers, view=True)
    command = [sys.executable, "-m", "tests.bench.feed", str(feed)]
    size = ["--partitions", str(partitions), "--minutes", str(minutes)]
    child = subprocess.Popen([*command, *size])
    measured.without = child.pid
    looks: list[dict[str, float]] = []
    began = time.monotonic()
    seen, quiet_since = -1, began

    def over() -> bool:
        """When the feed has ended and nothing has come for a while."""
        nonlocal seen, quiet_since
        now = time.monotonic()
        due_s = 60 * minutes * (len(looks) + 1) / LOOKS - _BEFORE_END_S
        if len(looks) < LOOKS and now - began > due_s:
            looks.append(_memory_in_parts(spark, child.pid, page_file=settings.state_path))
        if child.poll() is None or seen != len(measured.batches):
            seen, quiet_since = len(measured.batches), now
        return now - quiet_since > _AFTER_S / 2

    try:
        job.watch(over, print)
    finally:
        if child.poll() is None:
            child.kill()
        dispatcher.drain(10)
        dispatcher.stop()
        page.close()
        store.close()
        spark.stop()
    truth = json.loads((work / "truth.json").read_text(encoding="utf-8"))
    entered = {int(p.stem): p.stat().st_mtime for p in feed.glob("*.parquet")}
    return outcome(truth, lines.alerts, measured.batches, entered) | {"looks": looks}


def _memory_in_parts(spark: Any, feed_pid: int, *, page_file: Path) -> dict[str, float]:
    """What is in use, not what was once taken: a JVM keeps its heap, filled with garbage or not."""
    jvm = spark._jvm
    jvm.java.lang.System.gc()
    used = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
    resident = resident_mb_by_program(without=feed_pid)
    return {
        "live heap of the JVM": used.getUsed() / 2**20,
        "resident memory of the JVM": resident.pop("java", 0.0),
        "resident memory of Python, driver and workers": sum(resident.values()),
        "state store of the page, on disk": page_file.stat().st_size / 2**20,
    }


def outcome(
    truth: dict[str, Any],
    alerts: list[dict[str, Any]],
    batches: list[dict[str, Any]],
    entered: dict[int, float],
) -> dict[str, Any]:
    firing = [a for a in alerts if a["status"] == "firing"]
    raised = [
        (f"{a['topic']}-{a['partition']}", a["offsets"]) for a in firing if a["code"] == "TRN001"
    ]
    lost = [(subject, offsets) for subject, offsets, _ in truth["losses"]]
    grave = [a for a in firing if BY_CODE[a["code"]].finding in GRAVE and a["severity"] != "info"]
    unknown = [a for a in grave if (a["topic"], a["partition"]) != ("fragile", 0)]
    by_code: dict[str, int] = {}
    for alert in firing:
        by_code[alert["code"]] = by_code.get(alert["code"], 0) + 1
    losses = [a for a in firing if a["code"] in ("TRN001", "ELE009")]
    rounds = [(a["evidence"]["round"] - 1, a["came_s"]) for a in losses]
    waits = [(number, came - entered[number]) for number, came in rounds if number in entered]
    first_steady = len(entered) // 4
    steady = batches[len(batches) // 4 :]
    quarter = max(1, len(steady) // 4)
    return {
        "losses": len(lost),
        "exact": sum(found in raised for found in lost),
        "raised_beyond": sum(found not in lost for found in raised),
        "unclean": len(truth["unclean"]),
        "unclean_raised": by_code.get("ELE009", 0),
        "false_grave": [f"{a['code']} {a['topic']}-{a['partition']}" for a in unknown],
        "firing": by_code,
        "waits_s": [wait for _, wait in waits],
        "steady_waits_s": [wait for number, wait in waits if number >= first_steady],
        "memory_first_mb": statistics.median(b["memory_mb"] for b in steady[:quarter]),
        "memory_last_mb": statistics.median(b["memory_mb"] for b in steady[-quarter:]),
        "state_first": statistics.median(b["state_bytes"] for b in steady[:quarter]),
        "state_last": statistics.median(b["state_bytes"] for b in steady[-quarter:]),
        "batches": len(batches),
        "rows": sum(b["rows"] for b in batches),
        "quarantined": sum(b["quarantined"] for b in batches),
        "batch_s": statistics.median(b["wall_s"] for b in steady),
        "latest_round_s": truth["latest_round_s"],
    }


def told(found: dict[str, Any], partitions: int, minutes: int) -> str:
    others = ", ".join(f"{code} {n}" for code, n in sorted(found["firing"].items()))
    ledger = f"{found['losses']}, {found['exact']}"
    unclean = f"{found['unclean']}, {found['unclean_raised']}"
    taken = f"{found['batches']:,}, {found['rows']:,}, {found['quarantined']}"
    memory = f"{found['memory_first_mb']:,.0f} MB, {found['memory_last_mb']:,.0f} MB"
    state = f"{found['state_first'] / 1e6:.2f} MB, {found['state_last'] / 1e6:.2f} MB"
    rows = [
        ("partitions x 3 replicas, a round every 5 s; minutes", f"{partitions:,}; {minutes}"),
        ("losses in the simulator's ledger, raised with their exact range", ledger),
        ("TRN001 beyond the ledger", str(found["raised_beyond"])),
        ("unclean elections, raised", unclean),
        ("loss, divergence, protocol alerts on other partitions", str(len(found["false_grave"]))),
        ("alerts that fired", others or "none"),
        ("observation into the source to alert out: median, p95", _waited(found["waits_s"])),
        ("the same, without the first quarter of the run", _waited(found["steady_waits_s"])),
        ("batches, rows, quarantined", taken),
        ("memory of the job, first and last quarter", memory),
        ("state, first and last quarter", state),
        *(
            (f"{part}, at each quarter's end", _listed([look[part] for look in found["looks"]]))
            for part in (found["looks"] or [{}])[0]
        ),
        ("the feed's latest round was late by", f"{found['latest_round_s']:.1f} s"),
    ]
    lines = ["| long run | measured |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows)])


def _waited(waits_s: list[float]) -> str:
    """The first rounds wait for Spark to start and for every partition to be judged in full."""
    if not waits_s:
        return "none came"
    p95 = sorted(waits_s)[min(len(waits_s) - 1, int(0.95 * len(waits_s)))]
    return f"{statistics.median(waits_s):.1f} s, {p95:.1f} s"


def _listed(values_mb: list[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in values_mb) + " MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=20_000)
    parser.add_argument("--minutes", type=int, default=20)
    parser.add_argument("--name", default="soak", help="which table of docs/benchmarks.md")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = run(given.partitions, given.minutes, work=Path(work))
    table = told(found, given.partitions, given.minutes)
    waits = " ".join(f"{wait:.1f}" for wait in found["waits_s"])
    sys.stdout.write(f"{table}\n{json.dumps(found['false_grave'])}\nwaits in turn, s: {waits}\n")
    if given.write:
        write_table(given.name, table)


if __name__ == "__main__":
    main()
