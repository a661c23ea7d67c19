"""A simulated cluster as a collector: what it lives through is written down beforehand, so that a
restarted job goes through the very same life and carries on where it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.faults import NEVER_LOSE, WEIGHTS, RandomFaults
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.scenario import Player, preset_like, read
from tidestaff.connectors.simulator.settings import QUICK, ClusterConfig
from tidestaff.consistency.model import HealthObservation, PartitionObservation
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.commands.scenarios import find
from tidestaff.streaming.settings import STORY
from tidestaff.streaming.simulation.performance import too_early
from tidestaff.streaming.simulation.watch import rules_of_preset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.consistency.model import Observation, ReplicaReading
    from tidestaff.streaming.settings import SimulatorSource

STORIES: Final = Path(__file__).parent / "stories"
_FOR_EVER_MS: Final = 10**12
_TRAFFIC: Final = 5


class Told(NamedTuple):
    """A sentence of the story, and when in the cluster's life it is told."""

    at_ms: int
    text: str


class Script(NamedTuple):
    """All that a simulated life is made of. `actions` have their time in `at_ms`."""

    config: ClusterConfig
    actions: tuple[dict[str, Any], ...] = ()
    told: tuple[Told, ...] = ()
    end_ms: int = 0


def script_of(name: str, source: SimulatorSource) -> Script:
    if source.scenario is None:
        return Script(_random_config(name, source))
    path = STORIES / f"{source.scenario}.txt"
    return written(name, path if path.is_file() else find(source.scenario))


def written(name: str, path: Path) -> Script:
    """A scenario, played once to learn at which time each of its actions is due."""
    scenario = read(path)
    cluster = scenario.cluster()
    player = Player(scenario, cluster, lambda: None)
    told = []
    for block in scenario.blocks:
        told.append(Told(cluster.now_ms, " ".join(block.comment.split())))
        player.play(block)
    actions = tuple(action for action in cluster.actions if action["applied"])
    config = replace(cluster.config, cluster=name)
    speaks = path.stem.startswith(STORY)
    return Script(config, actions, tuple(told) if speaks else (), cluster.now_ms)


def _random_config(name: str, source: SimulatorSource) -> ClusterConfig:
    preset = preset_like(source.version)
    if preset is None:
        raise CommandError(
            f"clusters: {name}: found version {source.version!r}, expected one the simulator plays",
            "'tidestaff simulate --help' lists them",
        )
    brokers = tuple(range(1, source.brokers + 1))
    size = min(source.replication_factor, source.brokers)
    topics = {
        f"topic-{topic}": tuple(
            tuple(brokers[(topic + number + each) % len(brokers)] for each in range(size))
            for number in range(source.partitions)
        )
        for topic in range(source.topics)
    }
    return ClusterConfig(preset, brokers, topics, QUICK, source.seed, name)


class SimulatedCollector:
    """One round after the other, at a fixed rate of the cluster's own time.

    Event times are the cluster's time plus `origin_ms`; whoever starts the collector sets it.
    """

    def __init__(self, name: str, source: SimulatorSource) -> None:
        self.script = script_of(name, source)
        self.origin_ms = 0
        self.rounds = 0
        self.every_ms, self._last = source.round_interval_ms, source.rounds
        self._kinds = _kinds(source)
        config = self.script.config
        self.cluster = SimulatedCluster(
            config.preset,
            config.brokers,
            config.topics,
            config.settings,
            config.seed,
            cluster=config.cluster,
        )
        self._began_ms = self.cluster.now_ms
        self._sampler = Sampler(self.cluster, rules_of_preset(config.preset))
        self._due = list(self.script.actions)
        if source.scenario is None and self._kinds:
            interval = source.fault_interval_ms
            faults = RandomFaults(
                self.cluster, config.seed, self._kinds, every_ms=(interval // 2, 2 * interval)
            )
            faults.schedule(_FOR_EVER_MS)

    @property
    def finished(self) -> bool:
        return self._last is not None and self.rounds >= self._last

    @property
    def now_ms(self) -> int:
        """Event time of the round before."""
        return self.origin_ms + self.cluster.now_ms

    def round(self) -> list[Observation]:
        self.rounds += 1
        self._live_until(self._began_ms + self.rounds * self.every_ms)
        seen = [each for each in self._sampler.round() if not too_early(each)]
        return [shifted(each, self.origin_ms) for each in seen]

    def told(self) -> list[Told]:
        """What has happened since the round before, in words."""
        until, since = self.cluster.now_ms, self.cluster.now_ms - self.every_ms
        return [
            Told(each.at_ms + self.origin_ms, each.text)
            for each in self.script.told
            if since <= each.at_ms < until
        ]

    def _live_until(self, until_ms: int) -> None:
        while self._due and self._due[0]["at_ms"] <= until_ms:
            action = self._due.pop(0)
            self.cluster.advance(max(0, action["at_ms"] - self.cluster.now_ms))
            self.cluster.apply(action)
        self.cluster.advance(max(0, until_ms - self.cluster.now_ms))
        if self.script.end_ms and not self._due and self.rounds % _TRAFFIC == 0:
            # The story is told; records go on flowing, or nothing would be left to watch.
            for partition in self.cluster.mode.partitions():
                self.cluster.produce(*partition)


def _kinds(source: SimulatorSource) -> Sequence[str]:
    if source.faults == "none":
        return ()
    return sorted(WEIGHTS if source.faults == "all" else NEVER_LOSE)


def shifted(observation: Observation, by_ms: int) -> Observation:
    """The same observation, so much later."""
    at_ms = observation.observed_at_ms + by_ms
    if isinstance(observation, PartitionObservation):
        again = observation.leader_again
        return replace(
            observation,
            observed_at_ms=at_ms,
            replicas=tuple([_later(each, by_ms) for each in observation.replicas]),
            leader_again=None if again is None else _later(again, by_ms),
        )
    if isinstance(observation, HealthObservation) and observation.since_ms is not None:
        return replace(observation, observed_at_ms=at_ms, since_ms=observation.since_ms + by_ms)
    return replace(observation, observed_at_ms=at_ms)


def _later(reading: ReplicaReading, by_ms: int) -> ReplicaReading:
    return reading._replace(read_at_ms=None if (t := reading.read_at_ms) is None else t + by_ms)
