"""What is true beside what was raised: the simulator's own ledger and the monitor's alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.verdict import FindingClass, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.connectors.simulator.entries import Divergence, Loss, StaleWrite
    from tidestaff.connectors.simulator.truth import Truth
    from tidestaff.consistency.model import OffsetRange, TopicPartition
    from tidestaff.streaming.simulation.watch import Alert

LOSS_CODES: Final = frozenset({"TRN001"})
STALE_CODE: Final = "CTL004"
UNCLEAN_CODES: Final = frozenset({"ELE009"})
_GRAVE: Final = frozenset({FindingClass.LOSS, FindingClass.DIVERGENCE, FindingClass.PROTOCOL})
DIVERGENCE_CODES: Final = frozenset(
    code for code, rule in BY_CODE.items() if rule.finding is FindingClass.DIVERGENCE
)


class Entry(NamedTuple):
    """One thing that happened (or only was said to have), and the alert that tells it."""

    at_ms: int
    partition: TopicPartition | None
    what: str
    alert: Alert | None


def compared(truth: Truth, alerts: Sequence[Alert]) -> list[Entry]:
    """Every entry of the ledger with its alert, or none; then grave alerts without an entry."""
    found: list[Entry] = []
    for loss in truth.losses:
        what = f"committed {loss.offsets} lost, leader {loss.leader} epoch {loss.leader_epoch}"
        alert = _alert(alerts, LOSS_CODES, loss.partition, loss.at_ms, loss.offsets)
        found.append(Entry(loss.at_ms, loss.partition, what, alert))
    for parted in truth.divergences:
        one, other = parted.brokers
        what = f"brokers {one} and {other} differ in {parted.offsets}"
        alert = _alert(alerts, DIVERGENCE_CODES, parted.partition, parted.at_ms, parted.offsets)
        found.append(Entry(parted.at_ms, parted.partition, what, alert))
    for election in truth.unclean_elections:
        what = f"unclean election of {election.leader}, epoch {election.leader_epoch}"
        alert = _alert(alerts, UNCLEAN_CODES, election.partition, election.at_ms, None)
        found.append(Entry(election.at_ms, election.partition, what, alert))
    for write in truth.stale_writes:
        what = (
            f"state written by the controller of epoch {write.controller_epoch}, "
            f"epoch {write.current_epoch} had begun"
        )
        alert = _of_stale_write(alerts, write)
        found.append(Entry(write.at_ms, write.partition, what, alert))
    told = {id(entry.alert) for entry in found}
    found += [
        Entry(alert.at_ms, alert.partition, "nothing in the ledger", alert)
        for alert in alerts
        if _is_grave(alert) and id(alert) not in told and not _explained(alert, truth)
    ]
    return sorted(found, key=lambda entry: entry.at_ms)


def _alert(
    alerts: Sequence[Alert],
    codes: frozenset[str],
    partition: TopicPartition,
    at_ms: int,
    offsets: OffsetRange | None,
) -> Alert | None:
    for alert in alerts:
        if alert.violated.code not in codes or alert.partition != partition:
            continue
        if alert.at_ms >= at_ms and _overlap(alert.violated.offsets, offsets):
            return alert
    return None


def _of_stale_write(alerts: Sequence[Alert], write: StaleWrite) -> Alert | None:
    """The alert of the first look after the write, which is the only one that can show it."""
    for alert in alerts:
        about = (alert.violated.code, alert.partition) == (STALE_CODE, write.partition)
        if about and alert.since_ms < write.at_ms <= alert.at_ms:
            return alert
    return None


def _overlap(told: OffsetRange | None, true: OffsetRange | None) -> bool:
    return told is None or true is None or (told.start < true.end and true.start < told.end)


def _is_grave(alert: Alert) -> bool:
    rule = BY_CODE[alert.violated.code]
    return rule.finding in _GRAVE and rule.severity is Severity.CRITICAL


def _explained(alert: Alert, truth: Truth) -> bool:
    """A second alert on what the ledger knows."""
    known: dict[str, Sequence[Loss | Divergence]] = {
        **dict.fromkeys(LOSS_CODES, truth.losses),
        **dict.fromkeys(DIVERGENCE_CODES, truth.divergences),
    }
    return any(
        each.partition == alert.partition
        and each.at_ms <= alert.at_ms
        and _overlap(alert.violated.offsets, each.offsets)
        for each in known.get(alert.violated.code, ())
    )
