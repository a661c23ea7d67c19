"""The monitor's alarms beside the simulator's ledger: confirmed, false, missed and why.

Nothing here believes the monitor: a loss is confirmed by the ledger of committed records, different
records by the logs themselves at the moment of the alarm.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.model import Bracket, OffsetRange

from tests.proof.watching import DIFFERENT_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidestaff.connectors.simulator.truth import Divergence, Loss, UncleanElection

    from tests.proof.histories import Watched
    from tests.proof.watching import Alarm, Glimpse

NOT_COMMITTED: Final = "no sample saw the commit"
NOT_AFTER: Final = "no coherent sample of the leader after it"
LOST_BEFORE: Final = "the same offsets were reported before"
RETENTION: Final = "retention had passed the offsets"
NO_LINEAGE: Final = "written again before the next sample, no lineage before 0.11"
SAME_EPOCH: Final = "written again in the same leader epoch"
NO_EPOCHS: Final = "logs without epochs, and the high-watermark rule proves nothing"
DAMAGED: Final = "logs without epochs, and a damaged disk"
SKIPPED: Final = "states skipped between two samples"
JOINED: Final = "was none: the leader joined the ISR in the same write"
STRADDLED: Final = "something changed while the sample was taken"
SUCCEEDED: Final = "another leader had followed before the next sample"
TOO_WIDE: Final = "its range goes below a log start that no sample had shown"
UNEXPLAINED: Final = "unexplained"


@dataclass(slots=True)
class Outcome:
    """What one history, or many, came to. `samples` are observations of partitions and cluster."""

    histories: int = 0
    actions: int = 0
    events: int = 0
    samples: int = 0
    confirmed: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    exact: Counter[str] = field(default_factory=Counter)
    partly: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, other: Outcome) -> None:
        self.histories += other.histories
        self.actions += other.actions
        self.events += other.events
        self.samples += other.samples
        for name in ("confirmed", "false", "exact", "partly", "missed", "reasons"):
            getattr(self, name).update(getattr(other, name))

    @property
    def disagreements(self) -> int:
        return sum(self.false.values()) + sum(
            count for reason, count in self.reasons.items() if reason.endswith(UNEXPLAINED)
        )


def judge(watched: Watched) -> Outcome:
    """Compare what was raised with what is true."""
    cluster, watcher = watched.cluster, watched.watcher
    found = Outcome(1, len(cluster.actions), cluster.loop.events, watcher.observations)
    for alarm in watcher.alarms:
        kind = found.confirmed if is_true(watched, alarm) else found.false
        kind[alarm.violated.code] += 1
        if is_too_wide(watched, alarm):
            found.reasons[f"loss raised: {TOO_WIDE}"] += 1
    for loss in cluster.truth.losses:
        _count(found, "loss", *_loss_found(watched, loss))
    for divergence in cluster.truth.divergences:
        _count(found, "divergence", *_divergence_found(watched, divergence))
    for election in cluster.truth.unclean_elections:
        _count(found, "unclean election", *_election_found(watched, election))
    return found


def _count(outcome: Outcome, what: str, how: str, why: str) -> None:
    getattr(outcome, how)[what] += 1
    if why:
        outcome.reasons[f"{what} {how}: {why}"] += 1


def false_alarms(watched: Watched) -> list[Alarm]:
    return [alarm for alarm in watched.watcher.alarms if not is_true(watched, alarm)]


def is_true(watched: Watched, alarm: Alarm) -> bool:
    truth, code, offsets = watched.cluster.truth, alarm.violated.code, alarm.violated.offsets
    if code == "ELE009":
        return any(e.partition == alarm.partition for e in _by(truth.unclean_elections, alarm))
    if code == "TRN001":
        lost = [loss.offsets for loss in _by(truth.losses, alarm)]
        return (offsets is not None and covers(lost, offsets)) or is_too_wide(watched, alarm)
    if code in DIFFERENT_RECORDS and offsets is not None:
        known = [found.offsets for found in _by(truth.divergences, alarm)]
        return covers([*alarm.differing, *known], offsets)
    if code == "ISR001":
        return alarm.isr_outside
    # Before 2.1 nothing fences the writes of a controller that was replaced: they do happen.
    return (
        code == "CTL004"
        and alarm.stale_write
        and not watched.cluster.preset.controller_writes_fenced
    )


def is_too_wide(watched: Watched, alarm: Alarm) -> bool:
    """A true loss, named together with offsets that retention had removed since the last sample."""
    truth, offsets = watched.cluster.truth, alarm.violated.offsets
    lost = [loss.offsets for loss in _by(truth.losses, alarm)]
    if alarm.violated.code != "TRN001" or offsets is None or not lost or covers(lost, offsets):
        return False
    return covers([OffsetRange(0, alarm.floor), *lost], offsets)


def _by(entries: Iterable[Loss | Divergence | UncleanElection], alarm: Alarm) -> list:
    return [e for e in entries if e.partition == alarm.partition and e.at_ms <= alarm.until_ms]


def covers(ranges: Iterable[OffsetRange], wanted: OffsetRange) -> bool:
    """Every offset of `wanted` is in one of the ranges."""
    position = wanted.start
    for start, end in sorted(ranges):
        if start <= position < end:
            position = end
    return position >= wanted.end


def meets(one: OffsetRange, other: OffsetRange) -> bool:
    return one.start < other.end and other.start < one.end


def _alarms(watched: Watched, codes: Iterable[str], entry: Loss | Divergence) -> list[OffsetRange]:
    return [
        alarm.violated.offsets
        for alarm in watched.watcher.alarms
        if alarm.violated.code in codes
        and alarm.partition == entry.partition
        and alarm.until_ms >= entry.at_ms
        and alarm.violated.offsets is not None
        and is_true(watched, alarm)
    ]


def _loss_found(watched: Watched, loss: Loss) -> tuple[str, str]:
    """Exact: raised over its whole range, by alarms that claim nothing beyond the ledger."""
    raised = _alarms(watched, ["TRN001"], loss)
    if covers(raised, loss.offsets):
        return "exact", ""
    seen = _committed_seen(watched, loss)
    if any(meets(offsets, loss.offsets) for offsets in raised):
        return "partly", NOT_COMMITTED if seen < loss.offsets.end else _why_unseen(watched, loss)
    return "missed", NOT_COMMITTED if seen <= loss.offsets.start else _why_unseen(watched, loss)


def _glimpses(watched: Watched, loss: Loss) -> list[Glimpse]:
    """The coherent samples of that very topic in which its leader answered."""
    return [
        glimpse
        for glimpse in watched.watcher.glimpses.get(loss.partition, [])
        if glimpse.coherent and glimpse.log_end >= 0 and glimpse.topic == loss.topic_id
    ]


def _committed_seen(watched: Watched, loss: Loss) -> int:
    """How far a coherent sample had shown the leader's HW before the loss, and since the loss
    before it: what was lost then and is lost now was committed in between."""
    since_ms = max(
        (
            earlier.at_ms
            for earlier in watched.cluster.truth.losses
            if earlier.partition == loss.partition
            and earlier.at_ms < loss.at_ms
            and meets(earlier.offsets, loss.offsets)
        ),
        default=-1,
    )
    before = [g for g in _glimpses(watched, loss) if since_ms <= g.at_ms < loss.at_ms]
    return max((g.high_watermark for g in before), default=-1)


def _why_unseen(watched: Watched, loss: Loss) -> str:
    after = [g for g in _glimpses(watched, loss) if g.at_ms >= loss.at_ms]
    before = [
        alarm.violated.offsets
        for alarm in watched.watcher.alarms
        if alarm.violated.code == "TRN001"
        and alarm.partition == loss.partition
        and alarm.at_ms < loss.at_ms
        and alarm.violated.offsets is not None
    ]
    if not after:
        return NOT_AFTER
    if any(covers([offsets], loss.offsets) for offsets in before):
        return LOST_BEFORE
    first = after[0]
    if first.log_start > loss.offsets.start:
        return RETENTION
    if not watched.cluster.preset.epoch_file and first.log_end > loss.offsets.start:
        return NO_LINEAGE
    if first.log_end >= loss.offsets.end and first.leader_epoch == loss.leader_epoch:
        return SAME_EPOCH
    if first.leader_epoch > loss.leader_epoch:
        return SUCCEEDED
    return UNEXPLAINED


def _divergence_found(watched: Watched, divergence: Divergence) -> tuple[str, str]:
    codes = DIFFERENT_RECORDS | {"TRN001"}
    raised = _alarms(watched, codes, divergence)
    if covers(raised, divergence.offsets):
        return "exact", ""
    why = DAMAGED if divergence.damaged else NO_EPOCHS
    if watched.cluster.preset.epoch_file:
        why = UNEXPLAINED
    if any(meets(offsets, divergence.offsets) for offsets in raised):
        return "partly", why
    return "missed", why


def _election_found(watched: Watched, election: UncleanElection) -> tuple[str, str]:
    glimpses = watched.watcher.glimpses.get(election.partition, [])
    following = [g for g in glimpses if g.at_ms >= election.at_ms]
    for alarm in watched.watcher.alarms:
        mine = alarm.violated.code == "ELE009" and alarm.partition == election.partition
        if (
            mine
            and alarm.until_ms >= election.at_ms
            and alarm.leader_epoch == election.leader_epoch
        ):
            return "exact", ""
    at = glimpses.index(following[0]) if following else 0
    if at == 0 or following[0].leader_epoch != election.leader_epoch:
        return "missed", SKIPPED
    if glimpses[at].partition_epoch != glimpses[at - 1].partition_epoch + 1:
        return "missed", SKIPPED
    if glimpses[at].bracket is Bracket.STRADDLED:
        return "missed", STRADDLED
    if glimpses[at].isr_size > 1:
        return "missed", JOINED
    return "missed", UNEXPLAINED
