"""Random fault histories, watched all along, also while they heal; each one can be lived again.

A history is determined by its plan. Its actions, applied again at their times, give the same
history without the generator of faults, so that any part of them can be tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.faults import NEVER_LOSE, WEIGHTS, RandomFaults
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.settings import QUICK, Settings
from tidestaff.consistency.versions import Mode, rules_for

from tests.proof.watching import Watcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.connectors.simulator.places import Trouble
    from tidestaff.connectors.simulator.sampler import Readings, Targets
    from tidestaff.consistency.model import TopicPartition
    from tidestaff.consistency.versions import RuleSet

    from tests.proof.watching import Logs

TOPICS: Final = {"a": [[1, 2, 3]], "b": [[2, 3]]}
UNHURRIED: Final = Settings(unclean_leader_election_enable=False)
SLOWER: Final = 40
EVERY_STEP: Final = 0
_QUIET_ROUND_MS: Final = 1_000
_PIECE_MS: Final = 1_000
_AT_MOST_MS: Final = 4_000_000
_STARTS: Final = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """All that determines a watched history. `real_timeouts`: Kafka's own, forty times as slow.

    `every_ms` of EVERY_STEP: a faithful sample after every event that changes what can be seen, and
    after every single write of a state node.
    """

    preset: str
    seed: int
    steps: int = 200
    kinds: frozenset[str] = NEVER_LOSE
    weights: tuple[tuple[str, int], ...] = ()
    every_ms: int = 1_000
    skew_ms: int = 0
    loss: float = 0.0
    duplication: float = 0.0
    reorder: float = 0.0
    places: tuple[tuple[str, Trouble], ...] = ()
    bracketed: bool = True
    real_timeouts: bool = False
    act_every_ms: tuple[int, int] = (50, 400)
    settings: Settings = QUICK


class AttentiveSampler(Sampler):
    """Keeps the records of every log that is read in a round that takes time, as they were then."""

    logs: Logs

    def _read(self, targets: Targets, into: Readings) -> None:
        for broker in sorted(targets):
            answers: Readings = {partition: {} for partition in into}
            super()._read({broker: targets[broker]}, answers)
            for partition, answer in answers.items():
                for reading in answer.values():
                    replica = self.cluster.replica(broker, partition)
                    runs = replica.log.runs if replica is not None else ()
                    self.logs[partition, broker, reading.read_at_ms] = tuple(runs)
                into[partition].update(answer)


class Watched:
    """A cluster whose time passes round by round."""

    def __init__(self, plan: Plan) -> None:
        settings = UNHURRIED if plan.real_timeouts else plan.settings
        self.plan = plan
        self.cluster = SimulatedCluster(plan.preset, [1, 2, 3], TOPICS, settings, plan.seed)
        self.watcher = Watcher(self.cluster)
        self.sampler = AttentiveSampler(
            self.cluster,
            rules_of(plan.preset),
            plan.every_ms,
            skew=plan.skew_ms,
            loss=plan.loss,
            duplication=plan.duplication,
            reorder=plan.reorder,
            places=dict(plan.places),
            bracketed=plan.bracketed,
            continuous=plan.every_ms == EVERY_STEP,
            seed=plan.seed,
        )
        self.sampler.logs = self.watcher.logs_read
        self._next_round_ms = self.cluster.now_ms
        self._around: object = None
        if plan.every_ms == EVERY_STEP:
            self.cluster.after_event = self._look
            self.cluster.after_write = lambda partition: self._see([partition])

    def advance(self, duration_ms: int) -> None:
        self.advance_to(self.cluster.now_ms + duration_ms)

    def _look(self, touched: Sequence[TopicPartition]) -> None:
        """Sample what an event has touched; everything if brokers came, went or fell silent."""
        mode, brokers = self.cluster.mode, self.cluster.brokers.values()
        around = (mode.registrations(), mode.controller(), [b.answers for b in brokers])
        if around != self._around:
            self._around, touched = around, mode.partitions()
        if touched:
            self._see(touched)

    def _see(self, partitions: Sequence[TopicPartition]) -> None:
        for observation in self.sampler.look(partitions):
            self.watcher.see(observation)

    def advance_to(self, end_ms: int) -> None:
        """Let time pass up to `end_ms`, or as far beyond it as the last round takes."""
        cluster, every_ms = self.cluster, self.plan.every_ms or _QUIET_ROUND_MS
        while self._next_round_ms <= end_ms:
            cluster.advance(max(0, self._next_round_ms - cluster.now_ms))
            for observation in self.sampler.round():
                self.watcher.see(observation)
            self._next_round_ms = max(self._next_round_ms + every_ms, cluster.now_ms)
        cluster.advance(max(0, end_ms - cluster.now_ms))


def rules_of(preset: str) -> RuleSet:
    mode = Mode.KRAFT if preset.endswith("-kraft") else Mode.ZOOKEEPER
    return rules_for(preset.removesuffix("-kraft"), mode)


def live(plan: Plan) -> Watched:
    """Random faults until there were `steps` actions, then healing, then a quiet while."""
    watched = Watched(plan)
    scale = SLOWER if plan.real_timeouts else 1
    least_ms, most_ms = plan.act_every_ms
    every_ms = (least_ms * scale, most_ms * scale)
    faults = RandomFaults(watched.cluster, plan.seed, plan.kinds, dict(plan.weights), every_ms)
    faults.schedule(_AT_MOST_MS)
    while len(watched.cluster.actions) < plan.steps and watched.cluster.now_ms < _AT_MOST_MS:
        watched.advance(_PIECE_MS * scale)
    faults._until_ms = 0
    watched.advance(every_ms[1] + 1)
    heal(watched)
    watched.advance(3 * (plan.every_ms or _QUIET_ROUND_MS))
    return watched


def heal(watched: Watched) -> None:
    """End every fault and start every broker, a few times over.

    `RandomFaults.heal` waits until all are up. Up to 2.0 that may be never: a broker whose log is
    ahead of its leader's exits as often as it is started.
    """
    cluster, settings = watched.cluster, watched.cluster.settings
    cluster.apply({"do": "heal"})
    for broker in sorted(cluster.brokers):
        for verb in ("release_fetches", "slow_follower", "resume"):
            cluster.on(verb, broker)
        if cluster.brokers[broker].fetcher_removal_ms:
            cluster.on("slow_fetcher_removal", broker)
    watched.advance(4 * settings.request_timeout_ms + settings.session_ms + 1)
    for _ in range(_STARTS):
        for broker in cluster.sorted_brokers():
            if not broker.up:
                cluster.on("start", broker.id)
        watched.advance(settings.start_ms + settings.session_ms)
    watched.advance(settings.session_ms + 2 * settings.lag_ms)


def live_again(plan: Plan, actions: Sequence[Mapping[str, Any]], until_ms: int) -> Watched:
    """The history that these actions make, watched in the same way."""
    watched = Watched(plan)
    for action in actions:
        act = partial(watched.cluster.apply, action)
        watched.cluster.loop.at(int(action["at_ms"]), act, outside=True)  # type: ignore[arg-type]
    watched.advance_to(until_ms)
    return watched


def all_kinds(plan: Plan) -> Plan:
    """The same with the faults that take committed records away."""
    return replace(plan, kinds=frozenset(WEIGHTS))
