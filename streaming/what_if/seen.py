"""A cluster as it was seen: live, at a moment of a recording, or after a step of a scenario."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.model import (
    Bracket,
    ClusterObservation,
    HealthObservation,
    PartitionObservation,
    TopicPartition,
)
from tidestaff.streaming.commands.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tidestaff.consistency.model import BrokerId, Observation, Registration
    from tidestaff.streaming.settings import Cluster

BETWEEN_ROUNDS_S: Final = 2.0
_ROUNDS: Final = 5


@dataclass
class Seen:
    """The last sight of every partition, the one before it, and what could not be read."""

    source: str
    cluster: ClusterObservation | None = None
    partitions: list[PartitionObservation] = field(default_factory=list)
    earlier: list[PartitionObservation] = field(default_factory=list)
    problems: list[HealthObservation] = field(default_factory=list)

    @property
    def registrations(self) -> dict[BrokerId, Registration]:
        found = {r.broker: r for o in self.partitions for r in o.live}
        if self.cluster is not None:
            found |= {r.broker: r for r in self.cluster.registrations}
        return dict(sorted(found.items()))

    @property
    def brokers(self) -> list[BrokerId]:
        assigned = {b for o in self.partitions for b in o.assignment.replicas}
        return sorted(assigned | self.registrations.keys())

    @property
    def unsettled(self) -> list[TopicPartition]:
        """Seen while something changed: what is said of them may be of two moments."""
        return [
            TopicPartition(o.topic, o.partition)
            for o in self.partitions
            if o.bracket is Bracket.STRADDLED
        ]


def of_observations(source: str, rounds: Iterable[Iterable[Observation]]) -> Seen:
    """The newest of everything, and the one before."""
    seen = Seen(source)
    latest: dict[tuple[str, int], PartitionObservation] = {}
    before: dict[tuple[str, int], PartitionObservation] = {}
    for observations in rounds:
        seen.problems = []
        for each in observations:
            if isinstance(each, ClusterObservation):
                seen.cluster = each
            elif isinstance(each, HealthObservation):
                seen.problems.append(each)
            else:
                key = (each.topic, each.partition)
                if key in latest:
                    before[key] = latest[key]
                latest[key] = each
    seen.partitions = [latest[key] for key in sorted(latest)]
    seen.earlier = [before[key] for key in sorted(before)]
    return seen


def live(cluster: Cluster) -> Seen:
    """Some rounds: lineages of followers take a few, and two show who is catching up. A partition
    that changes while it is read is looked at again."""
    from tidestaff.streaming.sources.collecting import collector_of  # noqa: PLC0415 - slow

    collector: Any = collector_of(cluster)
    rounds: list[list[Observation]] = []
    try:
        for number in range(_ROUNDS):
            if number:
                time.sleep(BETWEEN_ROUNDS_S)
            rounds.append(collector.round())
            seen = of_observations(f"cluster {cluster.name}", rounds[-2:])
            if number and _coherent(seen) and _lineages(seen):
                break
    finally:
        if hasattr(collector, "close"):
            collector.close()
    if not seen.partitions and seen.problems:
        raise CommandError(seen.problems[0].reason, seen.problems[0].remedy)
    return seen


def _coherent(seen: Seen) -> bool:
    return all(o.bracket is Bracket.COHERENT for o in seen.partitions)


def _lineages(seen: Seen) -> bool:
    return all(r.lineage is not None for o in seen.partitions for r in o.replicas)


def recorded(folder: Path, at_ms: int | None, cluster: str | None) -> Seen:
    """What a recording shows at a moment, or at its end."""
    from tidestaff.connectors.wire import observation_of  # noqa: PLC0415 - slow
    from tidestaff.streaming.sources.row_files import batches, listed, to_rows  # noqa: PLC0415

    if not folder.is_dir() or not listed(folder):
        raise CommandError(
            f"{folder}: no recording is there", "give a folder that 'tidestaff record' wrote"
        )
    rounds: dict[tuple[str, int], list[Observation]] = {}
    names: set[str] = set()
    for name in listed(folder):
        for batch in batches(folder / name):
            for row in to_rows(batch):
                names.add(row.cluster)
                late = at_ms is not None and row.observed_at_ms > at_ms
                if late or (cluster is not None and row.cluster != cluster):
                    continue
                found = observation_of(row)
                if found is not None:
                    rounds.setdefault((row.cluster, row.round), []).append(found)
    if len({key[0] for key in rounds}) > 1:
        raise CommandError(
            f"{folder} holds several clusters: {', '.join(sorted(names))}", "say which: --cluster"
        )
    if not rounds:
        raise CommandError(f"{folder} holds nothing of that moment or cluster", "see --at")
    ordered = sorted(rounds.values(), key=lambda found: found[0].observed_at_ms)
    return of_observations(f"recording {folder}", ordered)


def played(name: str, at: int | None) -> Seen:
    """A scenario up to a step, or to its end."""
    from tidestaff.connectors.simulator.scenario import read  # noqa: PLC0415 - slow
    from tidestaff.streaming.commands.scenarios import find  # noqa: PLC0415
    from tidestaff.streaming.simulation.performance import Performance  # noqa: PLC0415

    kept: list[Observation] = []
    performance = Performance(read(find(name)), kept.append)
    steps = 0
    for steps, _ in enumerate(performance.blocks()):
        if at is not None and steps >= at:
            break
    if at is not None and steps < at:
        raise CommandError(f"{name} has {steps} steps, found --at {at}", "give one of them")
    rounds: dict[int, list[Observation]] = {}
    for each in kept:
        rounds.setdefault(each.round, []).append(each)
    if not rounds:
        raise CommandError(f"{name} shows nothing of its cluster before step {steps}", "see --at")
    return of_observations(f"scenario {name}, step {steps}", rounds.values())
