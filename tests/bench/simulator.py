"""What the simulator costs: events and actions a second, observations a second as a load source,
and whether memory stays flat.

`python -m tests.bench.simulator --write` puts the table into README.md. Figures are of one process
on one core, in processor time; a quiet machine still gives better ones.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import io
import platform
import pstats
import resource
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.faults import NEVER_LOSE, RandomFaults
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.settings import QUICK, Settings

from tests.proof.histories import TOPICS, rules_of

README: Final = Path(__file__).resolve().parents[2] / "README.md"
BEGIN, END = "<!-- bench:simulator -->", "<!-- /bench:simulator -->"
PRESET: Final = "3.9.1"
MANY: Final = 10_000
BROKERS: Final = tuple(range(1, 7))
# So many seconds that brokers stop, crash and come back in them; in five hardly anything happens.
ROUNDS: Final = 40
SURVIVABLE: Final = NEVER_LOSE - {"recreate_topic", "reassign"}


def living(seconds: float) -> tuple[float, float]:
    """Events and actions a second of a small cluster under constant faults."""
    cluster = SimulatedCluster(PRESET, [1, 2, 3], TOPICS, QUICK, 1)
    faults = RandomFaults(cluster, 1, SURVIVABLE)
    faults.schedule(1_000_000_000)
    began = time.process_time()
    while time.process_time() - began < seconds:
        cluster.advance(1_000)
    took_s = time.process_time() - began
    return cluster.loop.events / took_s, len(cluster.actions) / took_s


def large(partitions: int) -> tuple[SimulatedCluster, RandomFaults]:
    """A cluster of so many partitions with three replicas each on six brokers."""
    count = len(BROKERS)
    replicas = [[BROKERS[(p + r) % count] for r in range(3)] for p in range(partitions)]
    settings = Settings(unclean_leader_election_enable=False)
    cluster = SimulatedCluster(PRESET, BROKERS, {"load": replicas}, settings, 1)
    return cluster, RandomFaults(cluster, 1, SURVIVABLE - {"retention"}, every_ms=(500, 4_000))


def load(partitions: int, rounds: int) -> tuple[float, float, str]:
    """Observations a second of the sampler alone, and together with the cluster's own life."""
    cluster, faults = large(partitions)
    # What is built once need not be looked through by every collection.
    gc.collect()
    gc.freeze()
    sampler = Sampler(cluster, rules_of(PRESET), 1_000)
    faults.schedule(1_000 * rounds)
    seen, sampling_s, began = 0, 0.0, time.process_time()
    for _ in range(rounds):
        before = time.process_time()
        seen += len(sampler.round())
        sampling_s += time.process_time() - before
        cluster.advance(1_000)
    whole_s = time.process_time() - began
    return seen / sampling_s, seen / whole_s, hottest(sampler)


def hottest(sampler: Sampler, functions: int = 6) -> str:
    """Where a round spends its time, by the function's own time."""
    profile = cProfile.Profile()
    profile.runcall(sampler.round)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(functions)
    return text.getvalue()


class Mark(NamedTuple):
    """How far a run has come, and the most memory it has taken so far."""

    actions: int
    events: int
    peak_mb: float


def memory(actions: int) -> list[Mark]:
    """After a tenth of the actions, after half and after all of them."""
    cluster = SimulatedCluster(PRESET, [1, 2, 3], TOPICS, QUICK, 1)
    faults = RandomFaults(cluster, 1, SURVIVABLE)
    faults.schedule(1_000_000_000)
    sampler = Sampler(cluster, rules_of(PRESET), 5_000)
    found, done = [], 0
    for mark in (actions // 10, actions // 2, actions):
        while done < mark:
            cluster.advance(5_000)
            sampler.round()
            done += len(cluster.actions)
            # The lists of actions and notes are the run's record; a load source drops them.
            cluster.actions.clear()
            cluster.notes.clear()
        gc.collect()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found.append(Mark(done, cluster.loop.events, peak))
    return found


def table(*, partitions: int, rounds: int, actions: int) -> tuple[str, str]:
    # Memory first: the peak of a process never falls.
    marks = memory(actions)
    events_s, actions_s = living(3.0)
    alone, together, profile = load(partitions, rounds)
    rows = [
        ("simulated events per second, three brokers under constant faults", f"{events_s:,.0f}"),
        ("steps (random actions) per second in the same run", f"{actions_s:,.0f}"),
        (f"observations per second of the sampler, {partitions:,} x 3 replicas", f"{alone:,.0f}"),
        ("the same with the cluster's own life, a round a second", f"{together:,.0f}"),
        *(
            (
                f"peak memory after {each.actions:,} steps ({each.events:,} events), sampled",
                f"{each.peak_mb:,.0f} MB",
            )
            for each in marks
        ),
    ]
    lines = ["| simulator, one core | measured |", "|---|---:|"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    where = f"Python {platform.python_version()}, {platform.machine()}"
    return "\n".join([*lines, "", f"Written by `make bench` ({where})."]), profile


def write(text: str) -> int:
    readme = README.read_text(encoding="utf-8")
    if BEGIN not in readme or END not in readme:
        sys.stderr.write(f"README.md has no {BEGIN} and {END}: add them where the table belongs\n")
        return 1
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    parser.add_argument("--partitions", type=int, default=MANY)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=1_000_000, help="for the memory rows")
    parser.add_argument("--profile", action="store_true", help="show where a round spends its time")
    given = parser.parse_args()
    text, profile = table(partitions=given.partitions, rounds=given.rounds, actions=given.steps)
    sys.stdout.write(text + "\n" + (profile if given.profile else ""))
    return write(text) if given.write else 0


if __name__ == "__main__":
    sys.exit(main())
