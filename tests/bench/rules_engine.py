"""What judging costs: steps a second, growth with the number of partitions, bytes kept.

`python -m tests.bench.rules_engine --write` puts the table into README.md. Figures are of one
process on one core; run it on a quiet machine, and compare ratios rather than seconds.
"""

from __future__ import annotations

import argparse
import gc
import platform
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidestaff.consistency.model import EpochEntry
from tidestaff.consistency.monitor import judge_partition, step

from tests.consistency.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.consistency.memory import PartitionMemory
    from tidestaff.consistency.model import PartitionObservation

README = Path(__file__).resolve().parents[2] / "README.md"
BEGIN, END = "<!-- bench:rules-engine -->", "<!-- /bench:rules-engine -->"
EPOCHS = ((0, 0), (3, 1_200_000), (7, 5_000_000))


def observation_at(
    base: PartitionObservation, partition: int, round_number: int, *, spread: int = 1_000_003
) -> PartitionObservation:
    """A partition of its own: other offsets, other objects, as they come off the wire.

    Registrations and settings are shared, as a decoder that sees the same values again shares them.
    """
    offset = 6_000_000 + partition * spread + round_number * 1_000
    replicas = tuple(
        reading._replace(
            log_start_offset=1_000_000 + partition,
            high_watermark=offset,
            log_end_offset=offset,
            lineage=tuple(EpochEntry(epoch, start + partition) for epoch, start in EPOCHS),
            leader_epoch=EPOCHS[-1][0],
        )
        for reading in base.replicas
    )
    state = base.state._replace(leader_epoch=EPOCHS[-1][0], isr=tuple(base.state.isr))
    return replace(
        base,
        partition=partition,
        observed_at_ms=base.observed_at_ms + round_number * 5_000,
        state=state,
        replicas=replicas,
        leader_again=replicas[0],
        topic_id=f"topic-id-{partition:013d}",
    )


def per_second(run: Callable[[], int], *, at_least_s: float = 1.0) -> float:
    """The best of three: what the code costs, not what else the machine did."""
    best = 0.0
    for _ in range(3):
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < at_least_s / 3:
            done += run()
        best = max(best, done / (time.perf_counter() - started))
    return best


def quiet_steps_per_second(partitions: int) -> float:
    base = Watch().observation()
    rounds = 4 if partitions >= 100_000 else 8
    memories = _calm_memories(base, partitions)
    best = 0.0
    number = 2
    for _ in range(rounds):
        number += 1
        observations = [observation_at(base, p, number) for p in range(partitions)]
        gc.collect()
        gc.disable()
        started = time.perf_counter()
        for p, observation in enumerate(observations):
            memories[p], _ = step(memories[p], observation)
        best = max(best, partitions / (time.perf_counter() - started))
        gc.enable()
    assert all(memory.calm is not None for memory in memories)
    return best


def _calm_memories(base: PartitionObservation, partitions: int) -> list[PartitionMemory]:
    memories: list[PartitionMemory] = []
    for p in range(partitions):
        memory, _ = step(None, observation_at(base, p, 0))
        memory, _ = step(memory, observation_at(base, p, 1))
        memory, verdicts = step(memory, observation_at(base, p, 2))
        assert not verdicts.violated
        memories.append(memory)
    return memories


def transition_steps_per_second() -> float:
    """A leader fails: prediction, election check, truncation forecast, new ledger."""
    base = Watch().observation()
    memory = _calm_memories(base, 1)[0]
    before = observation_at(base, 0, 3)
    gone = before.state.leader
    next_leader = before.replicas[1]
    lineage = (*(next_leader.lineage or ()), EpochEntry(8, next_leader.log_end_offset or 0))
    elected = next_leader._replace(leads=True, leader_epoch=8, lineage=lineage)
    after = replace(
        before,
        state=before.state._replace(
            leader=elected.broker,
            leader_epoch=8,
            isr=before.state.isr[1:],
            partition_epoch=before.state.partition_epoch + 1,
        ),
        live=before.live[1:],
        replicas=(elected, before.replicas[2]._replace(leader_epoch=8)),
        leader_again=elected,
    )
    assert gone not in {r.broker for r in after.replicas}

    def run() -> int:
        for _ in range(100):
            judge_partition(memory, after)
        return 100

    _, verdicts = judge_partition(memory, after)
    assert not verdicts.violated, verdicts
    return per_second(run)


def bytes_per_partition(partitions: int = 10_000) -> float:
    """What stays alive of a partition once its observations are gone."""
    base = Watch().observation()
    gc.collect()
    tracemalloc.start()
    memories = _calm_memories(base, partitions)
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(memories) == partitions
    return kept / partitions


def table() -> str:
    rows = [
        ("quiet steps per second, 1,000 partitions", f"{quiet_steps_per_second(1_000):,.0f}"),
        ("quiet steps per second, 10,000 partitions", f"{quiet_steps_per_second(10_000):,.0f}"),
        ("quiet steps per second, 100,000 partitions", f"{quiet_steps_per_second(100_000):,.0f}"),
        ("steps per second on a change of leader", f"{transition_steps_per_second():,.0f}"),
        ("bytes kept per quiet partition (3 replicas)", f"{bytes_per_partition():,.0f}"),
    ]
    lines = ["| rules engine, one core | measured |", "|---|---:|"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    where = f"Python {platform.python_version()}, {platform.machine()}"
    return "\n".join([*lines, "", f"Written by `make bench` ({where})."])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    text = table()
    sys.stdout.write(text + "\n")
    if parser.parse_args().write:
        readme = README.read_text(encoding="utf-8")
        before, rest = readme.split(BEGIN)
        _, after = rest.split(END)
        README.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
