"""Verdicts have three values: a rule holds, is violated, or cannot be judged.

A half-read snapshot is Unknown: never Holds, never an alert.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tidestaff.consistency.model import BrokerId, OffsetRange


class Severity(Enum):
    """How soon somebody must look: CRITICAL pages, WARNING waits for the morning, INFO is kept."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class FindingClass(Enum):
    """What is at stake."""

    LOSS = "loss"
    DIVERGENCE = "divergence"
    EXPOSURE = "exposure"
    PROTOCOL = "protocol"
    AVAILABILITY = "availability"
    FORECAST = "forecast"
    SIGHT = "sight"


class Scope(Enum):
    """Which kind of observation a rule judges."""

    PARTITION = "partition"
    CLUSTER = "cluster"
    HEALTH = "health"


class Violated(NamedTuple):
    """The rule is broken: what Kafka's rules make of the inputs, what was seen, and why they
    clash."""

    code: str
    expected: str
    observed: str
    because: str
    broker: BrokerId | None = None
    offsets: OffsetRange | None = None
    since_ms: int | None = None


class Unknown(NamedTuple):
    """The rule cannot be judged on this observation, and what is missing.

    `suspected_since_ms` is set where the condition is met but has not yet lasted its grace time.
    """

    code: str
    missing: str
    broker: BrokerId | None = None
    suspected_since_ms: int | None = None


class Holds(NamedTuple):
    """The rule was judged and holds."""

    code: str


Verdict: TypeAlias = Holds | Violated | Unknown


class Verdicts(NamedTuple):
    """The verdicts of one step: every rule of the scope that is not listed holds.

    Ten thousand quiet partitions a second hold fifty rules each; writing that down would cost more
    than judging it.
    """

    scope: Scope
    violated: tuple[Violated, ...] = ()
    unknown: tuple[Unknown, ...] = ()

    def of(self, code: str, broker: BrokerId | None = None) -> Verdict:
        """The verdict of one rule, for one broker where the rule judges brokers one by one."""
        for violated in self.violated:
            if violated.code == code and broker in (None, violated.broker):
                return violated
        for unknown in self.unknown:
            if unknown.code == code and (broker is None or unknown.broker in (None, broker)):
                return unknown
        return Holds(code)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes that are violated, each once, in catalogue order."""
        return tuple(dict.fromkeys(violated.code for violated in self.violated))
