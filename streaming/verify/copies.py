"""What a verification reads from: the copies of a cluster's partitions, wherever they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidestaff.consistency.batches import Extent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidestaff.connectors.disk_replica import DiskReplica
    from tidestaff.consistency.batches import BatchMark, RangeDigest
    from tidestaff.consistency.model import BrokerId, OffsetRange, TopicPartition

    Asked = Sequence[tuple[TopicPartition, OffsetRange]]

NO_ANSWER: Final = "it gave no answer for this partition"
BYTES_AT_ONCE: Final = 1 << 32
"""Of one question to an agent: it has a minute for it, and a cold disk at worst."""
_LONGEST_ROUND_S: Final = 5.0
_COMPACTED: Final = re.compile(r"__consumer_offsets|__transaction_state|__share_group_state")


class PartitionCopies:
    """One partition: its copies that can be read, who leads, and what cannot be read, why."""

    def __init__(
        self,
        partition: TopicPartition,
        extents: list[Extent],
        leader: BrokerId | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.partition, self.extents = partition, extents
        self.leader, self.leader_epoch = leader, leader_epoch
        self.unread: dict[BrokerId, str] = {}
        self.bytes = 0
        """Of all copies together, as far as it is known."""


class Reached(NamedTuple):
    """How far a comparison came before it was interrupted, and what it was about: in another epoch
    or topic what lies below may be something else, and a copy that was not there, or that began
    above it, was never compared. `log_starts`: of each broker's copy."""

    offset: int
    leader_epoch: int | None = None
    topic_id: str | None = None
    log_starts: tuple[tuple[BrokerId, int], ...] = ()

    @classmethod
    def of(cls, copies: PartitionCopies, offset: int) -> Reached:
        """Of copies all of which were read: what is above the shortest was compared on some of
        them only."""
        shortest = min((each.end for each in copies.extents), default=0)
        ids = {each.topic_id for each in copies.extents if each.topic_id is not None}
        starts = sorted((each.broker, each.log_start_offset) for each in copies.extents)
        topic_id = min(ids, default=None)
        return cls(min(offset, shortest), copies.leader_epoch, topic_id, tuple(starts))

    def holds_for(self, copies: PartitionCopies) -> bool:
        """A log start may have risen: retention goes on."""
        now, before = Reached.of(copies, self.offset), dict(self.log_starts)
        starts = dict(now.log_starts)
        risen = starts.keys() == before.keys() and all(starts[b] >= before[b] for b in starts)
        return risen and now._replace(log_starts=self.log_starts) == self


class Traffic(NamedTuple):
    """How much has been moved so far, over a network or from another process."""

    bytes: int
    requests: int


class CopySource(Protocol):
    """Where copies are read. Questions go to one broker's copies and may be asked from several
    threads, one for each broker. Each may raise a ConnectorError."""

    kind: str
    """`log directories`, `agents` or `brokers`: how it is told."""
    live: bool
    """Whether copies may change while they are read: then a difference is looked at again."""
    at_once: int
    """Partitions that are worth asking for together."""
    bytes_at_once: int
    """Of one copy of one partition, in one question."""
    marks_at_once: int
    bytes_a_round: float
    """Of all copies together, as far as it goes: what Ctrl-C waits for."""

    def partitions(self, wanted: Callable[[str], bool]) -> list[PartitionCopies]: ...
    def again(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionCopies]: ...
    def digests(
        self, broker: BrokerId, asked: Asked, *, check: bool
    ) -> Mapping[TopicPartition, RangeDigest]: ...
    def marks(
        self, broker: BrokerId, asked: Asked
    ) -> Mapping[TopicPartition, Sequence[BatchMark]]: ...
    @property
    def traffic(self) -> Traffic: ...
    @property
    def bytes_read(self) -> int:
        """Of the copies so far, in the middle of a question, too; nought where nobody counts."""
        ...

    def why_silent(self, broker: BrokerId, partition: TopicPartition) -> str:
        """Of a partition that was asked for and is not among the answers."""
        ...

    def close(self) -> None: ...


def bytes_a_round(bytes_a_second: float) -> float:
    """Where bytes are paced a round ends in some seconds: what it has read can be gone on from."""
    return bytes_a_second * _LONGEST_ROUND_S if bytes_a_second else float("inf")


def is_compacted(topic: str, told: Callable[[str], bool]) -> bool:
    """Where no broker can be asked: Kafka's own compacted topics, and those the user names."""
    return told(topic) or _COMPACTED.fullmatch(topic) is not None


def extent_of_files(broker: BrokerId, replica: DiskReplica, *, compacted: bool) -> Extent | str:
    """A copy by its files; or why it cannot be compared."""
    if not replica.online:
        return "its log directory is offline"
    start, end = replica.log_start_offset, replica.log_end_offset
    if replica.high_watermark is None and (end is not None or replica.broken_at is not None):
        return "replication-offset-checkpoint names no high watermark for it"
    if replica.broken_at is not None and replica.high_watermark is not None:
        # It is read as far as it goes: below the watermark that ends with the place where it
        # breaks; above it is what a crash leaves and the broker cuts off when it starts.
        end = max(replica.broken_at, replica.high_watermark)
    if start is None or end is None or replica.high_watermark is None:
        return "its segments cannot be read"
    return Extent(
        broker,
        start,
        # Files are written at different times: a watermark may be older than the log start.
        max(replica.high_watermark, start),
        max(end, start),
        replica.lineage,
        cleaned_up_to(replica, None if compacted else 0),
        topic_id=replica.topic_id,
        broken_at=replica.broken_at,
    )


def cleaned_up_to(replica: DiskReplica, unsaid: int | None) -> int | None:
    """How far a cleaner came, whatever the topic's policy is now; `unsaid` where the file of the
    cleaner is as it should be and does not name the partition."""
    if not replica.cleaner_known:
        return None
    return unsaid if replica.cleaner_offset is None else replica.cleaner_offset
