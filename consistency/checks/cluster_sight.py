"""What a check of the whole cluster sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidestaff.consistency.checks.sight import Finding
    from tidestaff.consistency.memory import ClusterMemory
    from tidestaff.consistency.model import ClusterObservation, HealthObservation


class ClusterSight:
    """One observation of a cluster beside what is remembered of it. Read only."""

    def __init__(self, memory: ClusterMemory | None, observation: ClusterObservation) -> None:
        self.memory = memory
        self.observation = observation
        self.now_ms = observation.observed_at_ms
        # The controller's name and its epoch are two readings: they belong together only if the
        # epoch was the same before and after the name was read.
        self.coherent = observation.controller_epoch == observation.controller_epoch_before


ClusterCheck: TypeAlias = "Callable[[ClusterSight], Iterable[Finding]]"
HealthCheck: TypeAlias = "Callable[[HealthObservation], Iterable[Finding]]"
