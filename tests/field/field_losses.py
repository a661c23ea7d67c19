"""What an unclean election lost, by reality and not by the monitor nor by what a producer was told.

A producer that hears no answer in time sends again, and both copies may be committed: it knows the
offset of one. So what was committed is asked of the leader as any consumer asks it, right before it
dies, and held against its files once it is dead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tidestaff.connectors.disk_replica import DiskReplica

    from tests.field.field_watch import Alert
    from tests.field.lab import Lab

LOSS_CODES = frozenset({"TRN001", "ELE009"})


class Loss(NamedTuple):
    """Committed records [first, end) of a partition that its new leader does not have; `twice` of
    them are there a second time, under another offset."""

    subject: str
    first: int
    end: int
    twice: int = 0

    def told_by(self, alert: Alert) -> bool:
        return alert.code in LOSS_CODES and (alert.subject, alert.first, alert.end) == self[:3]

    def covers(self, alert: Alert) -> bool:
        """All that is told was lost."""
        if alert.first is None or alert.end is None or alert.subject != self.subject:
            return False
        return self.first <= alert.first <= alert.end <= self.end


def consumers_ends(lab: Lab, at: int, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The high watermark of each partition, as the leader that this broker knows of tells it to
    consumers."""
    from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 - slow

    places = [TopicPartition(topic, number) for number in partitions]
    if not places:
        return {}
    consumer = KafkaConsumer(bootstrap_servers=lab.bootstrap_of(at))
    try:
        return {place.partition: end for place, end in consumer.end_offsets(places).items()}
    finally:
        consumer.close()


def committed_end(told: int, dead: DiskReplica) -> int:
    """Where the committed part of a dead leader's log ended: what consumers were told, or a later
    checkpoint of it; a tail beyond it was never committed."""
    return max(told, dead.high_watermark or 0)


def lost(
    subject: str, told: int, dead: DiskReplica, leader: DiskReplica, folder: Path
) -> Loss | None:
    """None: the new leader has all that was committed. `folder`: the dead leader's replica."""
    end = committed_end(told, dead)
    assert leader.log_end_offset is not None
    if leader.log_end_offset >= end:
        return None
    values = [value for at, value in records(folder) if leader.log_end_offset <= at < end]
    assert len(values) == end - leader.log_end_offset
    return Loss(subject, leader.log_end_offset, end, len(values) - len(set(values)))


def records(folder: Path) -> list[tuple[int, bytes]]:
    """All whole records of a replica's segments, decoded by the client library."""
    from kafka.record import MemoryRecords  # noqa: PLC0415 - slow

    found: list[tuple[int, bytes]] = []
    for segment in sorted(folder.glob("*.log")):
        content = MemoryRecords(segment.read_bytes())
        while content.has_next():
            found += [(each.offset, each.value) for each in content.next_batch()]
    return found
