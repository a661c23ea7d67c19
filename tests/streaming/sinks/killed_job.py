"""A job without Spark, to be killed: takes batches, delivers them, and like Spark repeats a batch
that it had not written down as done.

    python -m tests.streaming.sinks.killed_job DIRECTORY WEBHOOK_URL [SINK]

It kills itself at the worst moment for SINK: when that has taken a delivery and nobody knows it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidestaff.streaming.alerts.store import AlertStore
from tidestaff.streaming.delivery import Dispatcher, Route
from tidestaff.streaming.sinks.jsonl import JsonLinesSink
from tidestaff.streaming.sinks.parquet import ParquetSink
from tidestaff.streaming.sinks.webhook import WebhookSink

from tests.streaming.alerts.lives import GROUPED, LATCHED, PLAIN, POLICY, event
from tests.streaming.alerts.shop import QUERY, clock_row, finding, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.alerts.batch import OutputRow
    from tidestaff.streaming.alerts.outbox import Outgoing
    from tidestaff.streaming.sinks.sink import Sink

BATCHES = 500
ROUND_MS = 5_000


def rows_of(batch: int) -> list[OutputRow]:
    """Each batch raises and clears some of each kind; now and then a record is refused."""
    at_ms = batch * ROUND_MS
    rows = [clock_row(at_ms)]
    for number, code in enumerate((PLAIN, GROUPED, LATCHED)):
        kind = ("pending", "raised", "cleared")[batch % 3]
        partition = (batch // 3 + number) % 7
        offsets = (batch // 3, batch) if code == LATCHED else None
        rows.append(
            finding(
                event(kind, at_ms + number, code, partition=partition, offsets=offsets, broker=1)
            )
        )
    if batch % 40 == 0:
        rows.append(refused(at_ms))
    return rows


class Fatal:
    """A sink whose second delivery is the last thing the process does."""

    def __init__(self, sink: Sink) -> None:
        self.name, self.close = sink.name, sink.close
        self._sink, self._deliveries = sink, 0

    def deliver(self, outgoing: Sequence[Outgoing]) -> None:
        self._sink.deliver(outgoing)
        self._deliveries += 1
        if self._deliveries == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def done(directory: Path) -> int:
    path = directory / "done"
    return int(path.read_text()) if path.exists() else -1


def main(arguments: Sequence[str]) -> int:
    directory, url, *fatal = Path(arguments[0]), *arguments[1:]
    store = AlertStore(directory / "alerts.db", POLICY, lambda: 0)
    sinks: list[Sink] = [
        JsonLinesSink(directory / "alerts.jsonl", rotate_bytes=50_000, keep_files=100),
        ParquetSink(directory / "parquet"),
        WebhookSink(url, template="$json"),
    ]
    sinks = [Fatal(sink) if sink.name in fatal else sink for sink in sinks]
    dispatcher = Dispatcher(store, [Route(sink, from_start=True) for sink in sinks])
    dispatcher.start()
    print("ready", flush=True)
    for batch in range(done(directory) + 1, BATCHES):
        store.process_batch(QUERY, batch, rows_of(batch))
        dispatcher.notify()
        time.sleep(0.004)
        written = directory / "done.tmp"
        written.write_text(str(batch))
        written.replace(directory / "done")
    drained = dispatcher.drain(30)
    dispatcher.stop()
    store.close()
    return 0 if drained else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
