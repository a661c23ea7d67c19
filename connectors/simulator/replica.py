"""One replica: what is on its disk, what its process believes, and what it does in its role."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.simulator.epoch_file import EpochFile
from tidestaff.connectors.simulator.log import ReplicaLog, Run
from tidestaff.consistency.model import NO_LEADER, UNDEFINED_EPOCH, Assignment, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidestaff.connectors.simulator.leading import Answer, Ask
    from tidestaff.connectors.simulator.presets import Preset
    from tidestaff.consistency.model import BrokerId, PartitionState


_NONE = Assignment(())
# Kafka writes 0 here, which is long ago on a real clock.
NEVER_MS: Final = -(10**12)


class LeadershipOrder(NamedTuple):
    """What a broker is told of a partition: LeaderAndIsr, or a record of the metadata log."""

    partition: TopicPartition
    topic_id: str
    state: PartitionState
    assignment: Assignment


class StopOrder(NamedTuple):
    """StopReplica: stop following, and with `delete` drop the directory."""

    partition: TopicPartition
    topic_id: str
    delete: bool


class HandOver(NamedTuple):
    """A follower has taken over a leader epoch and not yet ended its fetches of an earlier one:
    `epoch` is the one they were made in."""

    epoch: int


class Phase(Enum):
    """Where a follower's fetcher stands with one partition."""

    TRUNCATING = "truncating"
    FETCHING = "fetching"
    FAILED = "failed"


@dataclass(slots=True)
class FollowerProgress:
    """What a leader knows of one follower: the offset of its last fetch, and when it had
    caught up."""

    log_end_offset: int = -1
    last_fetch_ms: int = NEVER_MS
    last_fetch_leader_end: int = -1
    last_caught_up_ms: int = NEVER_MS
    broker_epoch: int | None = None
    answered: Answer | None = None


@dataclass(slots=True)
class Replica:
    """Disk first (survives the process), then memory (does not)."""

    partition: TopicPartition
    broker: BrokerId
    topic_id: str
    preset: Preset
    touched: set[TopicPartition]
    log: ReplicaLog = field(default_factory=ReplicaLog)
    epochs: EpochFile = field(init=False)
    checkpointed_hw: int = 0
    flushed_end: int = 0
    damaged: bool = False

    high_watermark: int = 0
    leader: BrokerId = NO_LEADER
    leader_epoch: int = -1
    partition_epoch: int = -1
    controller_epoch: int = -1
    isr: tuple[BrokerId, ...] = ()
    assignment: Assignment = _NONE
    known: bool = False

    followers: dict[BrokerId, FollowerProgress] = field(default_factory=dict)
    epoch_start: int = 0
    pending_isr: tuple[BrokerId, ...] | None = None
    pending_id: int = 0

    phase: Phase = Phase.FETCHING
    fetch_offset: int = 0
    last_fetched_epoch: int = UNDEFINED_EPOCH
    not_before_ms: int = 0
    hand_over: HandOver | None = None
    asked: Ask | None = None
    nothing_new: Answer | None = None

    def __post_init__(self) -> None:
        self.epochs = EpochFile(self.preset.epoch_cache_generation)

    @property
    def leads(self) -> bool:
        return self.known and self.leader == self.broker

    @property
    def log_end(self) -> int:
        return self.log.end

    def append_own(self, writer: int, records: int) -> None:
        """The leader writes: its records carry its epoch."""
        if records and self.preset.epoch_file:
            self.epochs.assign(self.leader_epoch, self.log.end)
        self.log.append(self.leader_epoch, writer, records)
        self.touched.add(self.partition)

    def append_fetched(self, runs: Iterable[Run]) -> None:
        """A follower writes what it fetched; an epoch is entered with its first batch."""
        for run in runs:
            if self.preset.epoch_file:
                self.epochs.assign(run.epoch, run.start)
            self.log.extend((run,))
        self.touched.add(self.partition)

    def truncate_to(self, offset: int) -> None:
        """Cut the log; trailing empty epochs go even if no record does."""
        self.log.truncate_to(offset)
        self.epochs.truncate_from_end(self.log.end)
        self.high_watermark = min(self.high_watermark, self.log.end)
        self.flushed_end = min(self.flushed_end, self.log.end)
        self.touched.add(self.partition)

    def restart_at(self, offset: int) -> None:
        """Drop the whole log and begin at `offset`."""
        self.log.restart_at(offset)
        self.epochs.clear()
        self.high_watermark = self.flushed_end = offset
        self.touched.add(self.partition)

    def set_high_watermark(self, offset: int) -> None:
        clamped = self._hw_within_log(offset)
        if clamped != self.high_watermark:
            self.high_watermark = clamped
            self.touched.add(self.partition)

    def _hw_within_log(self, offset: int) -> int:
        """Where retention may pass the high watermark, it may lie below the log."""
        least = self.log.start if self.preset.retention_stops_at_hw else 0
        return max(least, min(offset, self.log.end))

    def remove_old_segments(self, offset: int) -> None:
        """Retention: before 0.11.0.1 it looks at the age and size of segments alone."""
        stops = self.preset.retention_stops_at_hw
        self._raise_log_start(min(offset, self.high_watermark if stops else self.log.end))

    def raise_log_start(self, offset: int) -> None:
        """DeleteRecords, and what followers learn of it (0.11+); never above the high
        watermark."""
        self._raise_log_start(min(offset, self.high_watermark))

    def _raise_log_start(self, offset: int) -> None:
        if offset > self.log.start:
            self.log.raise_start(offset)
            self.epochs.truncate_from_start(offset)
            self.touched.add(self.partition)

    def flush(self) -> None:
        self.flushed_end = self.log.end

    def checkpoint(self) -> None:
        self.checkpointed_hw = self.high_watermark

    def lose_unflushed(self) -> None:
        """Power is gone: what the page cache held is lost. A file's lost tail is real damage only
        if there was one."""
        if self.flushed_end < self.log.end:
            self.damaged = True
            self.log.truncate_to(max(self.flushed_end, self.log.start))
            self.epochs.truncate_from_end(self.log.end)
            self.touched.add(self.partition)

    def recover(self) -> None:
        """A process starts: memory is as the disk says, the role is unknown."""
        self.epochs.truncate_from_end(self.log.end)
        self.epochs.truncate_from_start(self.log.start)
        self.flushed_end = self.log.end
        self.high_watermark = self._hw_within_log(self.checkpointed_hw)
        self.leader, self.leader_epoch, self.partition_epoch = NO_LEADER, -1, -1
        self.controller_epoch, self.isr, self.assignment = -1, (), Assignment(())
        self.known = False
        self.stop_role()
        self.touched.add(self.partition)

    def stop_role(self) -> None:
        self.followers = {}
        self.pending_isr = None
        self.phase = Phase.FETCHING
        self.not_before_ms = 0
        self.hand_over = None
