"""What a rule of the catalogue is: a public code, a claim, and when its breach is an alert."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidestaff.consistency.checks.sight import Finding
    from tidestaff.consistency.verdict import FindingClass, Scope, Severity

SightT = TypeVar("SightT")


class Sampling(Enum):
    """Which observations a rule may be judged on (measured on model-checked protocols).

    AT_ONCE: any, whatever was read when. UNSTRADDLED: metadata that did not change while it was
    read. BRACKETED: only a coherent bracket; anything less accuses healthy clusters.
    """

    AT_ONCE = "at once"
    UNSTRADDLED = "on metadata read at one time"
    BRACKETED = "on a coherent bracket"


@dataclass(frozen=True, slots=True)
class Timing:
    """The settings that grace times are counted in."""

    session_timeout_ms: int = 18_000
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    leader_imbalance_check_interval_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Grace:
    """How long, and over how many observations in a row, a breach must last to be an alert."""

    samples: int = 1
    fixed_ms: int = 0
    session_timeouts: int = 0
    lag_times: int = 0
    fetch_waits: int = 0
    rebalance_checks: int = 0

    def ms(self, timing: Timing) -> int:
        return (
            self.fixed_ms
            + self.session_timeouts * timing.session_timeout_ms
            + self.lag_times * timing.replica_lag_time_max_ms
            + self.fetch_waits * timing.replica_fetch_wait_max_ms
            + self.rebalance_checks * timing.leader_imbalance_check_interval_ms
        )

    def __str__(self) -> str:
        parts = [
            f"{count} x {name}" if count > 1 else name
            for count, name in (
                (self.session_timeouts, "session timeout"),
                (self.lag_times, "replica.lag.time.max.ms"),
                (self.fetch_waits, "replica.fetch.wait.max.ms"),
                (self.rebalance_checks, "leader.imbalance.check.interval.seconds"),
            )
            if count
        ]
        if self.fixed_ms:
            parts.append(f"{self.fixed_ms / 1000:g} s")
        lasting = " + ".join(parts)
        if self.samples > 1:
            return f"{self.samples} observations in a row" + (f" over {lasting}" if lasting else "")
        return lasting or "none"


NO_GRACE: Final = Grace()


@dataclass(frozen=True, slots=True)
class Rule(Generic[SightT]):
    """One row of the catalogue. The code is a public contract and is never reused."""

    code: str
    name: str
    severity: Severity
    finding: FindingClass
    scope: Scope
    claim: str
    inputs: str
    check: Callable[[SightT], Iterable[Finding]]
    sampling: Sampling = Sampling.AT_ONCE
    grace: Grace = NO_GRACE
    versions: str = "all"
    compares_metadata: bool = False

    def grace_on(self, lagging_ms: int) -> Grace:
        """The grace where the metadata may be this old: a rule that holds replicas against it must
        see the breach outlast the lag."""
        if not lagging_ms or not self.compares_metadata:
            return self.grace
        return replace(
            self.grace,
            samples=max(3, self.grace.samples),
            fixed_ms=self.grace.fixed_ms + lagging_ms,
        )

    @property
    def family(self) -> str:
        return self.code[:3]

    @property
    def why(self) -> str:
        """The reasoning behind the claim: what the check's docstring says after its first part."""
        _, _, reasons = (self.check.__doc__ or "").strip().partition("\n\n")
        return " ".join(reasons.split())
