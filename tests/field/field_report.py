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

BROKE_OFF: Final = "the whole"

INTRODUCTION: Final = """\
# Field test

Written by `make field`, on real brokers started from their published jars; nothing here is typed
by hand. Each row is one experiment: what Kafka's rules say must come of it, and what came. **no**
in the last column is a row that failed, and stays until it holds. "Grave" alerts are those of loss,
divergence and protocol; a broker that is killed or paused is lawfully told as silent (SRC001). "Of"
is the commit that was run, with a + where it had changes on top; "older" rows were run before that
was kept.
"""


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


Keep = Callable[[Row], None]


def load() -> list[Row]:
    if not ROWS.exists() or not ROWS.stat().st_size:
        return []
    return [Row(**row) for row in json.loads(ROWS.read_text(encoding="utf-8"))["rows"]]


def merge(old: list[Row], new: list[Row]) -> list[Row]:
    """New rows replace those of the same section, experiment and cluster, and the one that said
    that the section broke off."""
    fresh = {(row.section, row.experiment, row.cluster) for row in new}
    fresh |= {(row.section, BROKE_OFF, where) for row in new for where in ("-", row.cluster)}
    kept = [row for row in old if (row.section, row.experiment, row.cluster) not in fresh]
    order = list(SECTIONS)
    return sorted([*kept, *new], key=lambda row: order.index(row.section))


def add(row: Row, day: str) -> None:
    """Into the table as it is now: another run may write at the same time."""
    with ROWS.open("a", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write(merge(load(), [row._replace(of=commit())]), day)


def write(rows: list[Row], day: str) -> None:
    body = {"day": day, "machine": machine(), "rows": [row._asdict() for row in rows]}
    ROWS.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(rows, day), encoding="utf-8")


def page(rows: list[Row], day: str) -> str:
    held = sum(row.holds for row in rows)
    parts = [INTRODUCTION, f"{day}, {machine()}. {held} of {len(rows)} rows hold.\n"]
    for section, title in SECTIONS.items():
        mine = [row for row in rows if row.section == section]
        parts.append(f"## {title}\n")
        if not mine:
            parts.append("Not run.\n")
            continue
        lines = [
            "| experiment | cluster | expected | seen | s | of | holds |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {_cell(row.experiment)} | {row.cluster} | {_cell(row.expected)} "
            f"| {_cell(row.seen)} | {row.seconds:.0f} | {row.of} "
            f"| {'yes' if row.holds else '**no**'} |"
            for row in mine
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


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
