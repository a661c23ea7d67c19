"""How much of the past the state store keeps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How much of the past is kept: moments of one partition, moments of all, and for how long."""

    per_partition: int = 200
    rows: int = 200_000
    days: int = 30
