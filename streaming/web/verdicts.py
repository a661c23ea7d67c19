"""One word for each cluster, and why: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.verdict import FindingClass, Severity
from tidestaff.streaming.alerts.identity import Kind, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LOST, DIVERGED, BLIND, AT_RISK, OK = "lost", "diverged", "blind", "at risk", "ok"
WORST_FIRST: Final = (LOST, DIVERGED, BLIND, AT_RISK, OK)
UNCLEAN: Final = "ELE009"
_SIGHT_GONE: Final = frozenset({"SRC001", "SRC002"})
_RANK: Final = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
FIRING: Final = "firing"


@dataclass(frozen=True, slots=True)
class Health:
    """How well a cluster is seen: the age of the newest word of it, None if there was none."""

    age_ms: int | None
    silence_ms: int
    job_runs: bool

    @property
    def blind_because(self) -> str | None:
        if self.age_ms is None:
            return "nothing has been reported on this cluster yet"
        if not self.job_runs:
            return "the monitoring job does not run: what you see is old"
        if self.age_ms > self.silence_ms:
            return f"nothing was reported for {self.age_ms // 1000} s"
        return None


def word_of(code: str) -> str | None:
    """What a firing alert says of its cluster; None for what merely informs."""
    rule = BY_CODE[code]
    if kind_of(code) is Kind.LATCHED:
        return LOST
    if rule.severity is Severity.INFO:
        return None
    if rule.finding is FindingClass.DIVERGENCE:
        return DIVERGED
    return BLIND if code in _SIGHT_GONE else AT_RISK


def verdict(alerts: Sequence[Mapping[str, Any]], health: Health) -> dict[str, Any]:
    """The worst that is true, with the alert that says so and how many say the same."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for alert in sorted(alerts, key=urgency):
        word = word_of(alert["code"]) if alert["status"] == FIRING else None
        if word is not None:
            found.setdefault(word, []).append(alert)
    blind = health.blind_because
    word = next((w for w in WORST_FIRST if w in found or (w == BLIND and blind)), OK)
    saying = found.get(word, [])
    if word == BLIND and blind:
        because = blind
    elif saying:
        because = _sentence(saying[0], len(saying))
    else:
        because = "every rule holds that could be judged"
    return {
        "verdict": word,
        "because": because,
        "alert": saying[0]["fingerprint"] if saying else None,
        "code": saying[0]["code"] if saying else None,
        "next_step": saying[0]["next_step"] if saying else None,
        "also": [w for w in WORST_FIRST if w in found and w != word]
        + ([BLIND] if blind and word in (LOST, DIVERGED) and BLIND not in found else []),
    }


def _sentence(alert: Mapping[str, Any], count: int) -> str:
    name = BY_CODE[alert["code"]].name.replace("-", " ")
    others = f", and {count - 1} more" if count > 1 else ""
    return f"{name}: {where(alert)}{others}"


def where(alert: Mapping[str, Any]) -> str:
    """The place of an alert, as short as it is unmistakable."""
    parts = []
    if alert["topic"] is not None:
        parts.append(f"{alert['topic']}-{alert['partition']}")
    elif alert["cause"]:
        count = alert["members_count"]
        parts.append(f"{count} partitions" if count != 1 else "1 partition")
        parts.append(alert["cause"] if alert["cause"] != "cluster" else "")
    elif alert["place"]:
        parts.append(alert["place"])
    if alert["offsets"]:
        parts.append(f"offsets [{alert['offsets'][0]},{alert['offsets'][1]})")
    elif alert["broker"] is not None and not alert["cause"]:
        parts.append(f"broker {alert['broker']}")
    return ", ".join(part for part in parts if part) or "the cluster"


def urgency(alert: Mapping[str, Any]) -> tuple[int, int, int]:
    """Firing before acknowledged, the worst first, then the oldest."""
    word = word_of(alert["code"])
    rank = WORST_FIRST.index(word) if word is not None else len(WORST_FIRST)
    severity = _RANK[BY_CODE[alert["code"]].severity]
    return (0 if alert["status"] == FIRING else 1, rank * 3 + severity, alert["started_at_ms"])


def grouped(alerts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Alerts by cause: a broker, or the partition they are all about. The worst cause first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for alert in sorted(alerts, key=urgency):
        groups.setdefault((alert["cluster"], cause_of(alert)), []).append(alert)
    return [
        {"cluster": cluster, "cause": cause, "alerts": found}
        for (cluster, cause), found in groups.items()
    ]


def cause_of(alert: Mapping[str, Any]) -> str:
    if alert["cause"]:
        return str(alert["cause"])
    if alert["topic"] is not None:
        return f"{alert['topic']}-{alert['partition']}"
    if alert["broker"] is not None:
        return f"broker {alert['broker']}"
    return str(alert["place"] or "cluster")


def proven(alerts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The last rungs of the ladder: partitions with an open alert of that kind."""
    found: dict[str, set[tuple[str, int]]] = {"unclean": set(), "diverged": set(), "lost": set()}
    for alert in alerts:
        if alert["topic"] is None or alert["status"] != FIRING:
            continue
        subject = (alert["topic"], alert["partition"])
        word = word_of(alert["code"])
        if alert["code"] == UNCLEAN:
            found["unclean"].add(subject)
        if word in (LOST, DIVERGED):
            found[word].add(subject)
    return {name: len(subjects) for name, subjects in found.items()}
