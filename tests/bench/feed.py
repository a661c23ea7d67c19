"""A large simulated cluster in real time, a file of rows every round, with a loss every minute.

Brokers from `FRAGILE` on hold one small topic that allows unclean elections: every minute its
follower dies, records are written to the leader alone, the leader dies, and the follower comes back
to lead. On the other brokers harmless faults take turns. `truth.json` says in the end what was
lost.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from tidestaff.connectors.linking import Linker
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.settings import Settings
from tidestaff.connectors.wire import Row
from tidestaff.streaming.simulation.performance import too_early
from tidestaff.streaming.simulation.watch import rules_of_preset

from tests.bench.load import SCHEMA

ROUND_MS: Final = 5_000
BROKERS: Final = 60
FRAGILE: Final = 101
PRESET: Final = "3.9.1"
MINUTE_MS: Final = 60_000


class Feed:
    """The cluster and its faults, minute by minute."""

    def __init__(self, partitions: int) -> None:
        spread = [[(p + r) % BROKERS + 1 for r in range(3)] for p in range(partitions - 1)]
        topics = {"load": spread, "fragile": [[FRAGILE, FRAGILE + 1]]}
        brokers = [*range(1, BROKERS + 1), FRAGILE, FRAGILE + 1]
        # Followers that wait longer for new records: the load is the monitor's, not the cluster's.
        settings = Settings(unclean_leader_election_enable=False, replica_fetch_wait_max_ms=2_500)
        self.cluster = SimulatedCluster(PRESET, brokers, topics, settings, 1)
        change = {"unclean_leader_election_enable": True}
        self.cluster.apply({"do": "change_settings", "topic": "fragile", "settings": change})
        self.sampler = Sampler(self.cluster, rules_of_preset(PRESET), ROUND_MS)
        self.linker = Linker()
        self.partitions = partitions - 1
        self._turn = 0
        self.cluster.produce("fragile", 0, 20)

    def plan(self, at_ms: int, minute: int) -> None:
        """The faults of one minute."""
        leader, follower = FRAGILE, FRAGILE + 1
        if minute % 2:
            leader, follower = follower, leader
        victim = minute % BROKERS + 1
        kind = ("crash", "clean_stop", "controller_failover")[minute % 3]
        harmless = [(5_000, kind, victim), (30_000, "start", victim)]
        fatal = [
            (0, "crash", follower),
            (23_000, "crash", leader),
            (44_000, "start", follower),
            (50_000, "start", leader),
        ]
        for after, verb, broker in (*harmless, *fatal):
            self._at(at_ms + after, {"do": verb, "broker": broker})
        for after in (15_000, 15_500, 52_000):
            write = {"do": "produce", "topic": "fragile", "partition": 0, "records": 5}
            self._at(at_ms + after, write)

    def _at(self, at_ms: int, action: dict[str, Any]) -> None:
        self.cluster.loop.at(at_ms, lambda: self.cluster.apply(action), outside=True)  # type: ignore[arg-type,return-value]

    def round(self) -> list[Row]:
        """Some logs grow, time passes, everything is looked at."""
        share = max(1, self.partitions // 10)
        for number in range(share):
            self.cluster.produce("load", (self._turn * share + number) % self.partitions, 10)
        self._turn += 1
        self.cluster.advance(ROUND_MS)
        seen = [each for each in self.sampler.round() if not too_early(each)]
        rows = self.linker.link(seen)
        # The run's own record is not needed, and grows.
        self.cluster.actions.clear()
        self.cluster.notes.clear()
        return rows


def write(rows: list[Row], folder: Path, number: int) -> None:
    """Whole or not at all."""
    columns = {name: [getattr(row, name) for row in rows] for name in Row._fields}
    hidden = folder / f".{number:06}.parquet"
    pq.write_table(pa.table(columns, SCHEMA), hidden, compression="zstd", row_group_size=10_000)
    hidden.rename(folder / f"{number:06}.parquet")


def run(folder: Path, partitions: int, minutes: int) -> None:
    feed = Feed(partitions)
    began = time.monotonic()
    slips = 0.0
    rounds = minutes * MINUTE_MS // ROUND_MS
    quiet_rounds = 6
    for number in range(rounds + quiet_rounds):
        at_ms = feed.cluster.now_ms
        # A quiet minute first, in which the job starts and judges everything in full once, and
        # half of one at the end.
        minute, rest = divmod(number - MINUTE_MS // ROUND_MS, MINUTE_MS // ROUND_MS)
        if rest == 0 and 0 <= minute < minutes - 1:
            feed.plan(at_ms, minute)
        rows = feed.round()
        due = began + number * ROUND_MS / 1_000
        slips = max(slips, time.monotonic() - due)
        time.sleep(max(0.0, due - time.monotonic()))
        write(rows, folder, number)
    truth = feed.cluster.truth
    found = {
        "losses": [[str(x.partition), list(x.offsets), x.at_ms] for x in truth.losses],
        "unclean": [[str(x.partition), x.leader_epoch] for x in truth.unclean_elections],
        "divergences": len(truth.divergences),
        "latest_round_s": slips,
    }
    (folder.parent / "truth.json").write_text(json.dumps(found), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--partitions", type=int, default=20_000)
    parser.add_argument("--minutes", type=int, default=20)
    given = parser.parse_args()
    run(given.folder, given.partitions, given.minutes)


if __name__ == "__main__":
    main()
