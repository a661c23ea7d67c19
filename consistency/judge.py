"""From findings to verdicts: grace times (guard G4) and the suspicions kept meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidestaff.consistency.memory import MAX_SUSPICIONS, NOBODY, Suspicion
from tidestaff.consistency.rules import NO_GRACE
from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidestaff.consistency.rules import Rule, Timing

SightT = TypeVar("SightT")

# A suspicion does not bridge a gap in the observations: two blips an hour apart are not one hour.
MAX_GAP_MS: Final = 120_000


class Judgement(NamedTuple):
    """What one observation came to."""

    violated: tuple[Violated, ...]
    unknown: tuple[Unknown, ...]
    suspicions: tuple[Suspicion, ...]


def judge(
    rules: Iterable[Rule[SightT]],
    sight: SightT,
    *,
    may_judge: Callable[[Rule[SightT]], str | None],
    suspicions: tuple[Suspicion, ...],
    now_ms: int,
    timing: Timing,
    interval_ms: int = 0,
    lagging_ms: int = 0,
) -> Judgement:
    """Run every rule; a breach within its grace time is Unknown, and remembered as a suspicion.

    `interval_ms` is the time between the two observations before this one: slow polling is no gap.
    `lagging_ms` is how old the metadata may be; rules that hold replicas against it wait that long.

    A rule that cannot be judged now neither confirms nor clears a suspicion.
    """
    violated: list[Violated] = []
    unknown: list[Unknown] = []
    kept: list[Suspicion] = []
    for rule in rules:
        missing = may_judge(rule)
        if missing is not None:
            unknown.append(Unknown(rule.code, missing))
            kept.extend(s for s in suspicions if s.code == rule.code)
            continue
        for finding in rule.check(sight):
            if isinstance(finding, Unknown):
                unknown.append(finding)
                kept.extend(_same(suspicions, rule.code, finding.broker))
                continue
            grace = rule.grace_on(lagging_ms)
            if grace == NO_GRACE:
                violated.append(finding)
                continue
            grace_ms = grace.ms(timing)
            suspicion = _continued(
                suspicions, finding, now_ms, max(grace_ms, MAX_GAP_MS, 2 * interval_ms)
            )
            kept.append(suspicion)
            lasted_ms = now_ms - suspicion.since_ms
            if suspicion.samples >= grace.samples and lasted_ms >= grace_ms:
                violated.append(finding._replace(since_ms=suspicion.since_ms))
            else:
                unknown.append(_not_yet(finding, suspicion, grace.samples, grace_ms))
    return Judgement(tuple(violated), tuple(unknown), tuple(kept[:MAX_SUSPICIONS]))


def _not_yet(finding: Violated, suspicion: Suspicion, samples: int, grace_ms: int) -> Unknown:
    return Unknown(
        finding.code,
        f"a breach that lasts {grace_ms} ms over {samples} observations",
        finding.broker,
        suspicion.since_ms,
    )


def _continued(
    suspicions: tuple[Suspicion, ...], finding: Violated, now_ms: int, longest_gap_ms: int
) -> Suspicion:
    for suspicion in _same(suspicions, finding.code, finding.broker):
        if now_ms - suspicion.last_ms <= longest_gap_ms:
            return suspicion._replace(last_ms=now_ms, samples=suspicion.samples + 1)
    broker = NOBODY if finding.broker is None else finding.broker
    return Suspicion(finding.code, broker, now_ms, now_ms, 1)


def _same(suspicions: tuple[Suspicion, ...], code: str, broker: int | None) -> Iterable[Suspicion]:
    key = NOBODY if broker is None else broker
    return (s for s in suspicions if s.code == code and s.broker == key)
