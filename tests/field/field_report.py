"""The table of the field test: rows that the run itself writes to docs/field-test.md."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.field.field_lawful import in_words

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "field-test.md"
ROWS: Final = DOCS / "field-test.json"

SECTIONS: Final = {
    "seeds": "1. The documented experiments, on real brokers",
    "kip101": "2. KIP-101: loss and divergence",
    "truncation": "3. Truncation predicted, truncation done",
    "injected": "4. Injected faults",
    "lively": "5. Healthy but lively: nothing may be raised",
    "tools": "6. Side by side with Kafka's own tools",
    "cost": "7. What watching costs the cluster",
}

FIGURES: Final[dict[str, tuple[str, ...]]] = {
    "injected": (
        "s from the injection",
        "lawful until, s",
        "s after that",
        "rounds after that",
        "within 2 rounds and a batch",
    ),
    "tools": (
        "Tidestaff",
        "kafka-topics --under-replicated-partitions",
        "kafka-topics --unavailable-partitions",
        "ReplicaVerificationTool",
    ),
}
"""Columns that only the rows of a section have."""

NOT_MEASURED: Final = "not measured"
"""Of rows that were run before there was such a column."""

TOOLS: Final = """\
Seconds from the injection to the first finding, of everybody. Kafka's tools are asked from the same
moment on, beside the monitor and on the same cores: kafka-topics every 10 s, and for 25 s at least;
ReplicaVerificationTool stays for 15 s and reports every 2 s, and is started anew after 20 s. A
finding of kafka-topics is a line about a partition of the case that was whole before the injection;
one of ReplicaVerificationTool is a checksum or an offset that does not match, or, where nobody
writes, a lag. That a partition is named does not say that the tool tells what is wrong with it. Of
healthy clusters every finding is a false one. "No answer": a tool that had not ended after 45 s,
or failed each time. A stale registration needs a broker that died, which the tools see before the
registration is forged. In rows where nothing was measured the tools were
asked once, after the monitor had found the fault.
"""

COST: Final = """\
All of it runs on one machine. Beside the producer the monitor is a process with idle priority: it
gets what brokers and producer leave of the cores, as if it had a machine of its own. So that row
compares what it asks of the brokers, not what it takes from its neighbours. It holds by the ratios
that were measured, and their intervals say how much that is worth: where one is wider than the
limit, as that of the p99 on two cores, the row shows no harm, and would not show a small one.
"""

BROKE_OFF: Final = "the whole"

INTRODUCTION: Final = """\
# Field test

Written by `make field`, on real brokers started from their published jars; nothing here is typed
by hand. Each row is one experiment: what Kafka's rules say must come of it, and what came. **no**
in the last column is a row that failed, and stays until it holds. "Grave" alerts are those of loss,
divergence and protocol; a broker that is killed or paused is lawfully told as silent (SRC001). "Of"
is the commit that was run, with a + where it had changes on top; "older" rows were run before that
was kept. 04f145c and c3aa1f9 are steps of work that came in whole, as a3eea98, and are not
in the history by themselves.
"""


INTRODUCTIONS: Final = {"injected": in_words(), "tools": TOOLS, "cost": COST}


class Row(NamedTuple):
    """One experiment on one cluster."""

    section: str
    experiment: str
    cluster: str
    expected: str
    seen: str
    holds: bool
    seconds: float
    of: str = "older"
    figures: dict[str, str] | None = None


Keep = Callable[[Row], None]


def load() -> list[Row]:
    if not ROWS.exists() or not ROWS.stat().st_size:
        return []
    return [Row(**row) for row in json.loads(ROWS.read_text(encoding="utf-8"))["rows"]]


def merge(old: list[Row], new: list[Row]) -> list[Row]:
    """New rows replace those of the same section, experiment and cluster, and the one that said
    that the section broke off."""
    fresh = {(row.section, row.experiment, row.cluster) for row in new}
    ran = {(row.section, where) for row in new for where in ("-", row.cluster)}

    def stays(row: Row) -> bool:
        if row.experiment == BROKE_OFF:
            return not any((row.section, where) in ran for where in row.cluster.split(","))
        return (row.section, row.experiment, row.cluster) not in fresh

    kept = [row for row in old if stays(row)]
    order = list(SECTIONS)
    return sorted([*kept, *new], key=lambda row: order.index(row.section))


def add(row: Row, day: str) -> None:
    """Into the table as it is now: another run may write at the same time."""
    with ROWS.open("a", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write(merge(load(), [row._replace(of=commit())]), day)


def write(rows: list[Row], day: str) -> None:
    body = {"day": day, "machine": machine(), "rows": [_kept(row) for row in rows]}
    ROWS.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(rows, day), encoding="utf-8")


def _kept(row: Row) -> dict[str, object]:
    """Rows without figures stay as they were written."""
    return {k: v for k, v in row._asdict().items() if k != "figures" or v is not None}


def page(rows: list[Row], day: str) -> str:
    held = sum(row.holds for row in rows)
    parts = [INTRODUCTION, f"{day}, {machine()}. {held} of {len(rows)} rows hold.\n"]
    for section, title in SECTIONS.items():
        mine = [row for row in rows if row.section == section]
        parts.append(f"## {title}\n")
        if not mine:
            parts.append("Not run.\n")
            continue
        parts += [INTRODUCTIONS[section]] if section in INTRODUCTIONS else []
        lines = _table(mine, FIGURES.get(section, ()))
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _table(rows: list[Row], figures: tuple[str, ...]) -> list[str]:
    names = ["experiment", "cluster", "expected", "seen", *figures, "s", "of", "holds"]
    lines = [names, ["---"] * len(names)]
    for row in rows:
        measured = row.figures or {}
        cells = [row.experiment, row.cluster, row.expected, row.seen]
        cells += [measured.get(name, NOT_MEASURED) for name in figures]
        cells += [f"{row.seconds:.0f}", row.of, "yes" if row.holds else "**no**"]
        lines.append([_cell(cell) for cell in cells])
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


def _asked(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def commit() -> str:
    """What is run, documents apart: this very table changes while it is written."""
    git = ["git", "-C", str(DOCS.parent)]
    head = _asked(*git, "rev-parse", "--short", "HEAD").stdout.strip()
    changed = _asked(*git, "status", "--porcelain", "--", ":!docs").stdout.strip()
    return f"{head}+" if head and changed else head


def machine() -> str:
    said = _asked("java", "-version").stderr
    java = said.split('"')[1] if '"' in said else "unknown"
    return f"{os.cpu_count()} cores, Java {java}, Python {platform.python_version()}"
