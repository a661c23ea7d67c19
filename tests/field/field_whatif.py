"""Random stops of real brokers: the forecast made just before each against what happened.

`python -m tests.field.field_whatif --stops 30` plays them on 3.9.1 with ZooKeeper and on 4.1.1 with
KRaft, and writes docs/what-if-field.md.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency import what_if
from tidestaff.streaming.lab.errors import LabError
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.what_if.seen import live

from tests.field.lab import Kind, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.field.lab import Lab

CLUSTERS: Final = (Kind("3.9.1", "zookeeper"), Kind("4.1.1", "kraft"))
DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "what-if-field.md"
TOPIC: Final = "orders"
PARTITIONS: Final = 6
SETTINGS: Final = {0: {"zookeeper.session.timeout.ms": "6000"}}
WITHIN_S: Final = 90.0

State = dict[int, tuple[int, int, tuple[int, ...]]]
"""By partition: leader, leader epoch, ISR."""


class Outcome(NamedTuple):
    """One stop: what was foretold, what happened, and how long until the two were equal."""

    cluster: str
    stopped: tuple[int, ...]
    how: str
    with_controller: bool
    foretold: State
    happened: State
    seconds: float

    @property
    def equal(self) -> bool:
        return self.foretold == self.happened


def play(folder: Path, kind: Kind, stops: int, seed: int) -> Iterator[Outcome]:
    """Kills and clean stops of one broker, now and then of two; between them everybody is back."""
    chance = random.Random(seed)  # noqa: S311 - which broker is next
    with running(folder, *kind, settings=SETTINGS) as lab:
        brokers = list(lab.brokers)
        orders = [brokers[n % 3 :] + brokers[: n % 3] for n in range(PARTITIONS)]
        lab.clients.create_topic(TOPIC, assignment=orders)
        for number in range(stops):
            records = [b"record"] * chance.randint(1, 20)
            places = {(TOPIC, partition): records for partition in range(PARTITIONS)}
            lab.clients.produce_many(places)
            # A KRaft quorum of three nodes needs two: only one may go at a time there.
            both = kind.mode == "zookeeper" and number % 5 == 4
            who = tuple(sorted(chance.sample(brokers, 2 if both else 1)))
            yield stop(lab, kind, who, kill=chance.random() < 0.5)
            lab.start(*who)
            lab.clients.until(TOPIC, lambda seen: all(len(p.isr) == 3 for p in seen), 120)


def stop(lab: Lab, kind: Kind, who: tuple[int, ...], *, kill: bool) -> Outcome:
    seen = live(_cluster(lab))
    found = what_if.stop(seen.partitions, who, controlled=not kill)
    foretold = {
        c.name.partition: (c.after.leader, c.after.leader_epoch, tuple(sorted(c.after.isr)))
        for c in found.changes
    }
    (lab.kill if kill else lab.stop)(*who)
    began = time.monotonic()
    happened: State = {}
    while happened != foretold and time.monotonic() - began < WITHIN_S:
        time.sleep(1)
        with suppress(LabError):  # a client may still try the broker that is gone
            happened = {
                p.partition: (p.leader, p.leader_epoch, tuple(sorted(p.isr)))
                for p in lab.clients.describe(TOPIC)
            }
    how = "kill" if kill else "clean stop"
    took = time.monotonic() - began
    moves = found.controller_moves and kind.mode == "zookeeper"
    return Outcome(str(kind), who, how, moves, foretold, happened, took)


def _cluster(lab: Lab) -> Cluster:
    asked = {
        "bootstrap_servers": lab.answering,
        "version": lab.plan.version,
        "mode": lab.plan.mode,
        "include": TOPIC,
        "jitter_ms": 0,
        **({"zookeeper_connect": lab.zookeeper_connect} if lab.zookeeper_connect else {}),
    }
    source = {"type": "direct", "collector": "brokers", "options": asked}
    return Cluster.model_validate({"name": "whatif", "source": source})


def report(outcomes: list[Outcome], seed: int) -> str:
    lines = [
        "# Forecasts against real stops",
        "",
        f"Written by `python -m tests.field.field_whatif`, seed {seed}: the forecast made just",
        "before each stop against the leaders, leader epochs and ISR that came of it.",
        "",
        "| cluster | stops | leaders, epochs and ISR as foretold |",
        "|---|---:|---:|",
    ]
    for cluster in dict.fromkeys(o.cluster for o in outcomes):
        mine = [o for o in outcomes if o.cluster == cluster]
        lines.append(f"| {cluster} | {len(mine)} | {sum(o.equal for o in mine)} |")
    lines += [
        "",
        "| cluster | stopped | how | controller | equal | s |",
        "|---|---|---|---|---|---:|",
    ]
    for o in outcomes:
        who = ", ".join(map(str, o.stopped))
        moved = "yes" if o.with_controller else "no"
        equal = "yes" if o.equal else f"**no**: foretold {o.foretold}, happened {o.happened}"
        lines.append(f"| {o.cluster} | {who} | {o.how} | {moved} | {equal} | {o.seconds:.0f} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="field_whatif")
    parser.add_argument("--stops", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="append", choices=[str(kind) for kind in CLUSTERS])
    options = parser.parse_args(arguments)
    outcomes: list[Outcome] = []
    for kind in CLUSTERS:
        if options.cluster and str(kind) not in options.cluster:
            continue
        with tempfile.TemporaryDirectory(prefix="tidestaff-whatif-") as folder:
            for outcome in play(Path(folder) / "lab", kind, options.stops, options.seed):
                outcomes.append(outcome)
                print(outcome, flush=True)
                DOCUMENT.write_text(report(outcomes, options.seed), encoding="utf-8")
    return 0 if all(o.equal for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
