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
    ProblemKind,
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
    voters: tuple[BrokerId, ...] = ()
    """Of a KRaft quorum; only a live cluster tells them."""
    silent_voters: tuple[BrokerId, ...] = ()
    """Those of them that the leader of the quorum has not heard of for long."""

    @property
    def registrations(self) -> dict[BrokerId, Registration]:
        found = {r.broker: r for o in self.partitions for r in o.live}
        if self.cluster is not None:
            found |= {r.broker: r for r in self.cluster.registrations}
        return dict(sorted(found.items()))

    @property
    def active(self) -> frozenset[BrokerId]:
        return frozenset(b for b, r in self.registrations.items() if not r.fenced)

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
    """The newest of everything, and the one before. A partition that a round does not list is gone,
    if the round saw the cluster's metadata at all; a problem counts if the last round has it."""
    seen = Seen(source)
    latest: dict[tuple[str, int], PartitionObservation] = {}
    before: dict[tuple[str, int], PartitionObservation] = {}
    problems: dict[str, HealthObservation] = {}
    for observations in rounds:
        problems = {}
        listed: set[tuple[str, int]] = set()
        blind = True
        for each in observations:
            if isinstance(each, HealthObservation):
                problems[each.place] = each
                continue
            blind = False
            if isinstance(each, ClusterObservation):
                seen.cluster = each
                continue
            key = (each.topic, each.partition)
            listed.add(key)
            if key in latest:
                before[key] = latest[key]
            latest[key] = each
        if not blind:
            latest = {key: o for key, o in latest.items() if key in listed}
    seen.problems = [each for each in problems.values() if each.problem is not ProblemKind.OK]
    seen.partitions = [latest[key] for key in sorted(latest)]
    seen.earlier = [before[key] for key in sorted(before) if key in latest]
    return seen


def live(cluster: Cluster) -> Seen:
    """Two rounds show who is catching up, and lineages of followers out of sync may take some more,
    as long as each makes more of them known. A partition that changes while it is read is looked at
    again."""
    from tidestaff.streaming.sources.collecting import collector_of  # noqa: PLC0415 - slow

    collector: Any = collector_of(cluster)
    rounds: list[list[Observation]] = []
    unknown: list[int] = []
    try:
        for number in range(_ROUNDS):
            if number:
                time.sleep(BETWEEN_ROUNDS_S)
            rounds.append(collector.round())
            seen = of_observations(f"cluster {cluster.name}", rounds[-2:])
            unknown.append(_without_lineage(seen))
            # Batches are read from the second round on, and some want another round.
            settled = not unknown[-1] or (number > 2 and unknown[-1] >= unknown[-3])
            if number and _coherent(seen) and settled:
                break
    finally:
        if hasattr(collector, "close"):
            collector.close()
    seen.voters = getattr(collector, "voters", ())
    seen.silent_voters = getattr(collector, "silent_voters", ())
    return _not_only_problems(seen)


def _not_only_problems(seen: Seen) -> Seen:
    """Where nothing could be read nothing is safe."""
    if not seen.partitions and seen.problems:
        raise CommandError(seen.problems[0].reason, seen.problems[0].remedy)
    return seen


def _coherent(seen: Seen) -> bool:
    return all(o.bracket is Bracket.COHERENT for o in seen.partitions)


def _without_lineage(seen: Seen) -> int:
    """Replicas that may hold other records than their leader, and nobody knows of which epochs. A
    member of the ISR holds its leader's, an empty log none."""
    return sum(
        replica.lineage is None
        and replica.broker not in each.state.isr
        and replica.log_start_offset != replica.log_end_offset
        for each in seen.partitions
        for replica in each.replicas
    )


def recorded(folder: Path, at_ms: int | None, cluster: str | None) -> Seen:
    """What a recording shows at a moment, or at its end."""
    from tidestaff.streaming.what_if.recording import newest_of  # noqa: PLC0415 - slow

    found = of_observations(f"recording {folder}", newest_of(folder, at_ms, cluster))
    return _not_only_problems(found)


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
