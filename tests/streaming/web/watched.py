"""A job without Spark: simulated clusters through the operator's buckets into both stores."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from tidestaff.connectors.linking import Linker
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.scenario import Player, read, shipped
from tidestaff.consistency.model import PartitionObservation
from tidestaff.streaming.alerts.batch import OutputRow
from tidestaff.streaming.alerts.policy import AlertPolicy
from tidestaff.streaming.alerts.store import AlertStore
from tidestaff.streaming.operator.bucket import Bucket, Limits
from tidestaff.streaming.operator.judging import _output
from tidestaff.streaming.operator.rows import block_of
from tidestaff.streaming.operator.viewing import View
from tidestaff.streaming.simulation.watch import rules_of_preset
from tidestaff.streaming.view.limits import HistoryLimits
from tidestaff.streaming.view.store import StateStore
from tidestaff.streaming.web.stores import Places

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidestaff.connectors.wire import Row
    from tidestaff.consistency.model import Observation

LOSS, CALM = "s23-loss-0.10.2", "s23-loss-3.9"
HTML = "<img src=x onerror=alert(1)>"


def played(scenario: str, cluster: str, topic: str | None = None) -> Iterator[list[Row]]:
    """The rows of each look at a scenario's cluster, under names of the test's own."""
    story = read(shipped()[scenario])
    simulated = story.cluster()
    sampler, linker = Sampler(simulated, rules_of_preset(story.preset)), Linker()
    looks: list[list[Row]] = []

    def named(seen: Observation) -> Observation:
        if topic is not None and isinstance(seen, PartitionObservation):
            return replace(seen, cluster=cluster, topic=topic)
        return replace(seen, cluster=cluster)

    def look() -> None:
        looks.append(linker.link([named(each) for each in sampler.round()]))

    player = Player(story, simulated, look)
    player.settle()
    look()
    for block in story.blocks:
        player.play(block)
        look()
    yield from looks


class Watched:
    """Both stores, and what they are fed by."""

    def __init__(self, folder: Path, history: HistoryLimits | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.places = Places(folder, folder / "alerts.sqlite", folder / "state.sqlite")
        self.alerts = AlertStore(self.places.alerts, AlertPolicy(), lambda: 10**6)
        self.state = StateStore(self.places.state, history or HistoryLimits())
        self.bucket = Bucket(Limits())
        self.bucket.view = View("first")
        self.batch = 0
        self.last: list[OutputRow] = []

    def see(self, rows: list[Row]) -> None:
        said = self.bucket.process(block_of(rows))
        assert self.bucket.view is not None
        shown = self.bucket.view.take(self.bucket, 0)
        found = _output(0, self.bucket, said, 0, "")
        if shown is not None:
            found.append(("state", 0, shown))
        self.last = [OutputRow(kind, at, json.dumps(payload)) for kind, at, payload in found]
        self.put()
        self.batch += 1

    def put(self) -> None:
        self.alerts.process_batch("query", self.batch, self.last)
        self.state.take("query", self.batch, self.last)

    def play(self, scenario: str, cluster: str, topic: str | None = None) -> Watched:
        for rows in played(scenario, cluster, topic):
            self.see(rows)
        return self

    def finish(self) -> Watched:
        """Time passes, so that what waits for others is told."""
        clocks = dict.fromkeys(self.bucket.clocks, 10**9)
        row = OutputRow("stats", 0, json.dumps({"bucket": 99, "clocks": clocks}))
        self.alerts.process_batch("query", self.batch, [row])
        self.batch += 1
        return self

    def close(self) -> None:
        self.alerts.close()
        self.state.close()
