"""A scenario played under the monitor's eyes, block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.scenario import Player
from tidestaff.connectors.simulator.scenario_state import state_lines
from tidestaff.consistency.model import HealthObservation, ProblemKind
from tidestaff.streaming.simulation.watch import Watch, rules_of_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidestaff.connectors.simulator.scenario import Block, Scenario
    from tidestaff.consistency.model import Observation, TopicPartition
    from tidestaff.streaming.simulation.watch import Alert

SILENT_AFTER_MS: Final = 15_000
"""Three reports that a source of every five seconds owes."""


class Played(NamedTuple):
    """A block, the lines of the state it led to, and the alerts among them."""

    block: Block
    at_ms: int
    state: list[str]
    alerts: list[Alert]


class Performance:
    """One run of a scenario: a cluster, a faithful sampler, the monitor."""

    def __init__(
        self, scenario: Scenario, record: Callable[[Observation], None] | None = None
    ) -> None:
        self.scenario = scenario
        self.cluster = scenario.cluster()
        self.watch = Watch()
        self._sampler = Sampler(self.cluster, rules_of_preset(scenario.preset))
        self._record = record
        self._player = Player(scenario, self.cluster, self._look)

    def _look(self) -> None:
        seen = [each for each in self._sampler.round() if not too_early(each)]
        self.watch.see(seen)
        if self._record is not None:
            for observation in seen:
                self._record(observation)

    def blocks(self) -> Iterator[Played]:
        """The head first: the cluster as it begins."""
        self._player.settle()
        yield self._told(self.scenario.head, [])
        for block in self.scenario.blocks:
            yield self._told(block, self._player.play(block))

    def _told(self, block: Block, remarks: list[str]) -> Played:
        alerts = self.watch.take()
        state = state_lines(self.cluster, self.scenario.shown, by_partition(alerts), remarks)
        return Played(block, self.cluster.now_ms, state, alerts)


def too_early(observation: Observation) -> bool:
    """A source is silent when it has missed its reports, not when one call went unanswered."""
    if not isinstance(observation, HealthObservation) or observation.since_ms is None:
        return False
    silent = observation.problem is ProblemKind.SILENT
    return silent and observation.observed_at_ms - observation.since_ms < SILENT_AFTER_MS


def by_partition(alerts: Sequence[Alert]) -> dict[TopicPartition | None, list[str]]:
    """Lines for each partition; what is raised twice in one block is told once."""
    found: dict[TopicPartition | None, list[str]] = {}
    for alert in alerts:
        lines = found.setdefault(alert.partition, [])
        if alert.line not in lines:
            lines.append(alert.line)
    return found
