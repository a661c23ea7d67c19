"""Rows of random fault histories, and the plain way to judge them: `step`, row after row."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from tidestaff.connectors.linking import Linker
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.faults import WEIGHTS, RandomFaults
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.settings import QUICK
from tidestaff.connectors.wire import GONE, PARTITION, observation_of
from tidestaff.consistency.monitor import step
from tidestaff.streaming.operator import events
from tidestaff.streaming.operator.bucket import Bucket, Limits
from tidestaff.streaming.operator.rows import block_of
from tidestaff.streaming.operator.saving import Keeper, restore
from tidestaff.streaming.operator.silence import silent
from tidestaff.streaming.simulation.watch import rules_of_preset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidestaff.connectors.wire import Row

TOPICS = {"a": [[1, 2, 3], [2, 3, 1]], "b": [[2, 3]]}
LIMITS = Limits(lateness_ms=4_000, silence_ms=60_000)
EVERY_MS = 500


def rows_of(preset: str, seed: int, *, lasting_ms: int = 60_000, faults: bool = True) -> list[Row]:
    """Half of the time with faults by chance, half of it without."""
    cluster = SimulatedCluster(preset, [1, 2, 3], TOPICS, QUICK, seed)
    chaos = RandomFaults(cluster, seed, frozenset(WEIGHTS) if faults else frozenset({"produce"}))
    chaos.schedule(lasting_ms // 2 if faults else lasting_ms)
    sampler, linker = Sampler(cluster, rules_of_preset(preset), EVERY_MS), Linker()
    rows: list[Row] = []
    while cluster.now_ms < lasting_ms:
        rows += linker.link(sampler.round())
        cluster.advance(EVERY_MS)
    return rows


class Plain:
    """One memory a subject, nothing clever."""

    def __init__(self) -> None:
        self.memories: dict[tuple[str, str, str], Any] = {}
        self.findings: list[events.Event] = []
        self._active: dict[tuple[str, str, str], events.Findings] = {}

    def see(self, rows: Iterable[Row]) -> Plain:
        for row in rows:
            key = (PARTITION if row.kind == GONE else row.kind, row.cluster, row.subject)
            if row.kind == GONE:
                self._gone(key, row)
            else:
                self._judge(key, row)
        return self

    def _gone(self, key: tuple[str, str, str], row: Row) -> None:
        memory = self.memories.pop(key, None)
        topic, _, number = row.subject.rpartition("-")
        seen = silent(
            row.cluster, row.observed_at_ms, topic=topic, partition=int(number), source=row.source
        )
        for code, broker in self._active.pop(key, {}):
            told = events.cleared(code, broker, seen)
            self.findings.append({**told, "topic_id": memory.topic_id, "place": None})

    def _judge(self, key: tuple[str, str, str], row: Row) -> None:
        observation = observation_of(row)
        before = self.memories.get(key)
        was, now = getattr(before, "topic_id", None), getattr(observation, "topic_id", None)
        if None not in (was, now) and was != now:
            for code, broker in self._active.pop(key, {}):
                told = events.cleared(code, broker, observation)
                self.findings.append({**told, "topic_id": was})
        self.memories[key], verdicts = step(before, observation)
        active = self._active.get(key, {})
        self._active[key], told = events.changes(active, verdicts, observation, before)  # type: ignore[assignment]
        self.findings.extend(told)  # type: ignore[arg-type]


def canonical(found: Iterable[events.Event]) -> list[str]:
    return sorted(json.dumps(event, sort_keys=True) for event in found)


def through_a_bucket(
    rows: Sequence[Row], seed: int, limits: Limits = LIMITS
) -> tuple[Bucket, list[events.Event], int]:
    """In batches of random sizes, every few of which the bucket is saved and opened again."""
    chance = random.Random(seed)  # noqa: S311 - a seed on purpose
    keeper = Keeper(Bucket(limits))
    found: list[events.Event] = []
    at = quiet = 0
    while at < len(rows):
        size = chance.choice([1, 3, 7, 50, 400])
        said = keeper.bucket.process(block_of(rows[at : at + size]))
        at += size
        found += said.findings
        quiet += said.counts["quiet"]
        if chance.random() < 0.3:
            keeper = restore(keeper.save(), limits)
    return keeper.bucket, found, quiet


def disordered(rows: Sequence[Row], seed: int, late_ms: int) -> list[Row]:
    """Rows up to so late, some of them twice."""
    chance = random.Random(seed)  # noqa: S311 - a seed on purpose
    arrival = [(row.observed_at_ms + chance.randint(0, late_ms), at) for at, row in enumerate(rows)]
    found = [rows[at] for _, at in sorted(arrival)]
    return [row for each in found for row in ([each, each] if chance.random() < 0.1 else [each])]
