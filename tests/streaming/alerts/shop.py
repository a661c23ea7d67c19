"""A store with a clock that a test sets, and output rows as the operator writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidestaff.streaming.alerts.batch import OutputRow
from tidestaff.streaming.alerts.store import AlertStore, BatchReport

from tests.streaming.alerts.lives import POLICY

if TYPE_CHECKING:
    from pathlib import Path

    from tidestaff.streaming.alerts.event import Event
    from tidestaff.streaming.alerts.policy import AlertPolicy

QUERY = "query-1"


class Clock:
    """Wall clock in a test's hand."""

    def __init__(self, at_ms: int = 1_000_000) -> None:
        self.at_ms = at_ms

    def __call__(self) -> int:
        return self.at_ms

    def monotonic_s(self) -> float:
        return self.at_ms / 1000


def finding(event: Event) -> OutputRow:
    return OutputRow("finding", event.at_ms, event.text())


def stats(bucket: int = 0, **fields: Any) -> OutputRow:
    return OutputRow("stats", 0, json.dumps({"bucket": bucket, **fields}))


def clock_row(at_ms: int, cluster: str = "c") -> OutputRow:
    return stats(clocks={cluster: at_ms})


def refused(at_ms: int, **fields: Any) -> OutputRow:
    record = {
        "cluster": "c",
        "source": "zk",
        "subject": "t-0",
        "reason": "schema version 9 is not known",
        "remedy": "upgrade the job",
        "at_ms": at_ms,
        "raw": "",
    }
    return OutputRow("quarantine", at_ms, json.dumps(record | fields))


class Shop:
    """A store and its next batch number."""

    def __init__(self, directory: Path, policy: AlertPolicy = POLICY) -> None:
        self.path, self.policy, self.clock = directory / "alerts.db", policy, Clock()
        self.store = AlertStore(self.path, policy, self.clock)
        self.number = 0

    def batch(self, *events: Event, clock: int | None = None) -> BatchReport:
        rows = [finding(event) for event in events]
        if clock is not None:
            rows.append(clock_row(clock))
        return self.rows(*rows)

    def rows(self, *rows: OutputRow) -> BatchReport:
        report = self.store.process_batch(QUERY, self.number, rows)
        self.number += 1
        return report

    def reopen(self) -> None:
        self.store.close()
        self.store = AlertStore(self.path, self.policy, self.clock)
