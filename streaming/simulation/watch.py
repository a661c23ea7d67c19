"""The monitor at work on observations: one memory for each partition, cluster and place, and which
alerts have just been raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.model import ClusterObservation, PartitionObservation, TopicPartition
from tidestaff.consistency.monitor import step
from tidestaff.consistency.verdict import Severity
from tidestaff.consistency.versions import Mode, rules_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidestaff.consistency.memory import Memory
    from tidestaff.consistency.model import Observation
    from tidestaff.consistency.verdict import Violated
    from tidestaff.consistency.versions import RuleSet


class Alert(NamedTuple):
    """A rule that has just been found violated, at a partition or at the cluster (None), which was
    last seen at `since_ms` before."""

    at_ms: int
    partition: TopicPartition | None
    violated: Violated
    since_ms: int = -1

    @property
    def severity(self) -> Severity:
        return BY_CODE[self.violated.code].severity

    @property
    def line(self) -> str:
        code, told = self.violated.code, self.violated
        return f"! {code} {BY_CODE[code].name}: expected {told.expected}; observed {told.observed}"

    def as_value(self) -> dict[str, Any]:
        told = self.violated
        return {
            "at_ms": self.at_ms,
            "partition": None if self.partition is None else str(self.partition),
            "code": told.code,
            "name": BY_CODE[told.code].name,
            "severity": self.severity.value,
            "expected": told.expected,
            "observed": told.observed,
            "because": told.because,
            "broker": told.broker,
            "offsets": None if told.offsets is None else list(told.offsets),
        }


class Watch:
    """An alert is raised when its rule is violated and was not in the observation before."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self._memories: dict[object, Memory] = {}
        self._active: dict[object, set[tuple[object, ...]]] = {}
        self._seen_ms: dict[object, int] = {}
        self._taken = 0

    def see(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            self._see(observation)

    def _see(self, observation: Observation) -> None:
        key: object = ()
        partition = None
        if isinstance(observation, PartitionObservation):
            partition = TopicPartition(observation.topic, observation.partition)
            key = (partition, observation.topic_id or observation.state_czxid)
        elif not isinstance(observation, ClusterObservation):
            key = observation.place
        self._memories[key], verdicts = step(self._memories.get(key), observation)
        before = self._active.get(key, set())
        now: set[tuple[object, ...]] = set()
        for violated in verdicts.violated:
            what = (violated.code, violated.broker, violated.offsets)
            now.add(what)
            if what not in before:
                since_ms = self._seen_ms.get(key, -1)
                alert = Alert(observation.observed_at_ms, partition, violated, since_ms)
                self.alerts.append(alert)
        self._active[key] = now
        self._seen_ms[key] = observation.observed_at_ms

    def take(self) -> list[Alert]:
        """The alerts raised since this was last asked."""
        found = self.alerts[self._taken :]
        self._taken = len(self.alerts)
        return found


def rules_of_preset(preset: str) -> RuleSet:
    """The rules for a version of the simulator, as the monitor of that cluster would have them."""
    mode = Mode.KRAFT if preset.endswith("-kraft") else Mode.ZOOKEEPER
    return rules_for(preset.removesuffix("-kraft"), mode)


def gravest(alerts: Iterable[Alert]) -> Severity:
    """Of no alert at all it is INFO."""
    order = [Severity.INFO, Severity.WARNING, Severity.CRITICAL]
    return max((alert.severity for alert in alerts), key=order.index, default=Severity.INFO)
