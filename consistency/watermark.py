"""The high watermark (HW): how a leader advances it, a follower takes it over, a log bounds it.

HW is exclusive: offsets below it are committed and may be read. Mirrors
Partition.maybeIncrementLeaderHW and UnifiedLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.errors import ConsistencyError
from tidestaff.consistency.isr import is_under_min_isr
from tidestaff.consistency.model import BrokerId, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tidestaff.consistency.versions import RuleSet


class RemoteReplica(NamedTuple):
    """A follower as the leader's HW rule sees it; `log_end_offset` is -1 before its first fetch."""

    log_end_offset: int
    caught_up: bool = True
    eligible: bool = True


class LocalLog(NamedTuple):
    """The three offsets of one replica's log: 0 <= log start <= HW <= LEO."""

    log_start_offset: int = 0
    high_watermark: int = 0
    log_end_offset: int = 0


class BeyondHighWatermarkError(ConsistencyError):
    """A log start above the high watermark, which would drop uncommitted records."""

    code = "OFFSET_OUT_OF_RANGE"

    def __init__(self, to: int, high_watermark: int) -> None:
        super().__init__(
            f"log start {to} is above the high watermark {high_watermark}: "
            "ask for an offset at or below it"
        )
        self.to, self.high_watermark = to, high_watermark


def advance(
    *,
    high_watermark: int,
    log_end_offset: int,
    followers: Mapping[BrokerId, RemoteReplica],
    committed_isr: Collection[BrokerId],
    maximal_isr: Collection[BrokerId],
    min_insync_replicas: int,
    rules: RuleSet,
) -> int:
    """A leader's HW is the smallest log end it waits for, and never goes back while it leads.

    `followers` are all assigned replicas but the leader itself.
    """
    if is_frozen(
        isr_size=len(committed_isr),
        min_insync_replicas=min_insync_replicas,
        replica_count=len(followers) + 1,
        rules=rules,
    ):
        return high_watermark
    awaited = _awaited(followers, maximal_isr=maximal_isr, rules=rules)
    lowest = min((r.log_end_offset for r in awaited.values()), default=log_end_offset)
    return max(high_watermark, min(lowest, log_end_offset))


def held_by(
    *,
    log_end_offset: int,
    followers: Mapping[BrokerId, RemoteReplica],
    maximal_isr: Collection[BrokerId],
    rules: RuleSet,
) -> tuple[BrokerId, ...]:
    """The replicas whose log end keeps the HW below the leader's log end, ascending."""
    awaited = _awaited(followers, maximal_isr=maximal_isr, rules=rules)
    lowest = min((r.log_end_offset for r in awaited.values()), default=log_end_offset)
    if lowest >= log_end_offset:
        return ()
    return tuple(sorted(b for b, r in awaited.items() if r.log_end_offset == lowest))


def is_frozen(
    *, isr_size: int, min_insync_replicas: int, replica_count: int, rules: RuleSet
) -> bool:
    """From 3.7 the HW stands still while the ISR is smaller than the effective min ISR."""
    return rules.watermark_frozen_under_min_isr and is_under_min_isr(
        isr_size=isr_size,
        min_insync_replicas=min_insync_replicas,
        replica_count=replica_count,
        rules=rules,
    )


def _awaited(
    followers: Mapping[BrokerId, RemoteReplica],
    *,
    maximal_isr: Collection[BrokerId],
    rules: RuleSet,
) -> dict[BrokerId, RemoteReplica]:
    """ISR members, and from 0.10.2 caught-up replicas about to join (from 3.6 only if they may)."""

    def waits(broker: BrokerId, replica: RemoteReplica) -> bool:
        if broker in maximal_isr:
            return True
        may_join = replica.eligible or not rules.watermark_ignores_inactive
        return rules.watermark_waits_outside_isr and replica.caught_up and may_join

    return {broker: replica for broker, replica in followers.items() if waits(broker, replica)}


def follow(log: LocalLog, *, leader_high_watermark: int) -> LocalLog:
    """A follower takes the HW of each fetch response, within its own log. It may go down.

    A response with a diverging epoch must not come here: it touches neither HW nor log start.
    """
    return log._replace(high_watermark=_clamp(leader_high_watermark, log))


def follow_log_start(log: LocalLog, *, leader_log_start_offset: int) -> LocalLog:
    """A follower's log start follows its leader's, but never beyond its own HW."""
    start = min(leader_log_start_offset, log.high_watermark)
    return log._replace(log_start_offset=max(log.log_start_offset, start))


def increment(log: LocalLog, *, to: int) -> LocalLog:
    """A leader's HW only rises, and not beyond the log end."""
    return log._replace(high_watermark=max(log.high_watermark, min(to, log.log_end_offset)))


def append(log: LocalLog, *, records: int) -> LocalLog:
    """Appending moves the log end alone."""
    return log._replace(log_end_offset=log.log_end_offset + records)


def raise_log_start(log: LocalLog, *, to: int) -> LocalLog:
    """Retention and DeleteRecords move the log start up, never down, and never past the HW."""
    if to > log.high_watermark:
        raise BeyondHighWatermarkError(to, log.high_watermark)
    return log._replace(log_start_offset=max(log.log_start_offset, to))


def truncate(log: LocalLog, *, to: int) -> LocalLog:
    """Cutting to an offset lowers the HW with it; at or below the log start it empties the log."""
    if to >= log.log_end_offset:
        return log
    if to < log.log_start_offset:
        return truncate_fully(to=to)
    return log._replace(log_end_offset=to, high_watermark=min(log.high_watermark, to))


def truncate_fully(*, to: int, log_start_offset: int | None = None) -> LocalLog:
    """An emptied log starts and ends at one offset, its HW too; tiered, its start may be lower."""
    start = to if log_start_offset is None else min(log_start_offset, to)
    return LocalLog(start, to, to)


def initial(
    *, checkpointed_high_watermark: int | None, log_start_offset: int, log_end_offset: int
) -> LocalLog:
    """At start-up the HW is the checkpointed one (0 if there is none), within the log."""
    log = LocalLog(log_start_offset, log_start_offset, log_end_offset)
    return log._replace(high_watermark=_clamp(checkpointed_high_watermark or 0, log))


def is_latest_offset_available(*, high_watermark: int, leader_epoch_start_offset: int) -> bool:
    """Clients are told "latest" only once the HW has reached the leader epoch's start (KIP-207)."""
    return high_watermark >= leader_epoch_start_offset


def readable(log: LocalLog) -> OffsetRange:
    """What a consumer may read: HW excluded, as with every position."""
    return OffsetRange(log.log_start_offset, log.high_watermark)


def _clamp(offset: int, log: LocalLog) -> int:
    return max(log.log_start_offset, min(offset, log.log_end_offset))
