"""A live cluster under watch: rounds of a connector, judged as the job would judge them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.model import ClusterObservation, HealthObservation, PartitionObservation
from tidestaff.consistency.monitor import step
from tidestaff.consistency.verdict import Violated

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.connectors.brokers import BrokerConnector
    from tidestaff.consistency.model import Observation

PATIENCE_S: Final = 180.0
"""How long a test waits before it says that something does not come: no measure of speed."""


def subject(observation: Observation) -> tuple[str, ...]:
    if isinstance(observation, PartitionObservation):
        return ("partition", observation.topic, str(observation.partition))
    if isinstance(observation, HealthObservation):
        return ("health", observation.place)
    return ("cluster",)


@dataclass
class Watching:
    """Keeps the memory of every subject, and everything that was ever raised."""

    connector: BrokerConnector
    every_s: float = 1.0
    raised: dict[str, list[str]] = field(default_factory=dict)
    last: list[Observation] = field(default_factory=list)
    _memories: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def look(self) -> dict[tuple[str, int], PartitionObservation]:
        """One round, judged; its partitions."""
        self.last = self.connector.round()
        for observation in self.last:
            key = subject(observation)
            self._memories[key], verdicts = step(self._memories.get(key), observation)
            for each in verdicts.violated:
                assert isinstance(each, Violated)
                text = f"{'/'.join(key)}: expected {each.expected}; observed {each.observed}"
                self.raised.setdefault(each.code, []).append(text)
        return {
            (each.topic, each.partition): each
            for each in self.last
            if isinstance(each, PartitionObservation)
        }

    def until(
        self,
        done: Callable[[dict[tuple[str, int], PartitionObservation]], bool],
        within_s: float = PATIENCE_S,
    ) -> dict[tuple[str, int], PartitionObservation]:
        end = time.monotonic() + within_s
        while True:
            seen = self.look()
            if done(seen):
                return seen
            if time.monotonic() > end:
                raise AssertionError(f"not within {within_s} s; the last round saw {seen}")
            time.sleep(self.every_s)

    @property
    def cluster(self) -> ClusterObservation:
        (found,) = [each for each in self.last if isinstance(each, ClusterObservation)]
        return found
