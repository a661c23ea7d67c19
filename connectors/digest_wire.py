"""Digests of ranges over the brokers' protocol: batches are fetched from each replica itself, as
replica -2, and only their headers are kept. Requests name several partitions, and bytes are paced.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidestaff.connectors.broker_answers import (
    EARLIEST,
    EARLIEST_LOCAL,
    NO_ERROR,
    OFFSET_OUT_OF_RANGE,
    error_name,
)
from tidestaff.connectors.digests import Fold, Stop
from tidestaff.connectors.errors import ConnectorError, UnsupportedRequestError
from tidestaff.connectors.segments import checked_from, checksum
from tidestaff.consistency.batches import RangeDigest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidestaff.connectors.broker_answers import ListedOffset
    from tidestaff.connectors.segments import Batch
    from tidestaff.consistency.batches import BatchMark
    from tidestaff.consistency.model import BrokerId, OffsetRange, TopicPartition

PARTITION_BYTES: Final = 1 << 20
ONE_BATCH_BYTES: Final = 1 << 16
"""To begin with where one batch is asked for: brokers send at least one, or more is asked for."""
PARTITIONS: Final = 8
_LARGEST: Final = 1 << 26


class FetchedRecords(NamedTuple):
    """What a fetch returned of one partition: whole batches, and perhaps part of one more. A view
    is of a buffer that the next fetch may overwrite."""

    error: int
    records: bytes | memoryview = b""


class RecordsReader(Protocol):
    """Questions to one broker itself; each may raise a ConnectorError."""

    def records(
        self,
        broker: BrokerId,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
        *,
        whole_bytes: int,
        partition_bytes: int,
    ) -> Mapping[TopicPartition, FetchedRecords]: ...
    def list_offsets(
        self, broker: BrokerId, partitions: Sequence[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, ListedOffset]: ...


class _Reading:
    """One range on its way."""

    def __init__(
        self,
        partition: TopicPartition,
        offsets: OffsetRange,
        *,
        check: bool,
        keep: bool,
        bytes_at_once: int,
    ) -> None:
        self.partition = partition
        self.position = offsets.start
        self.bytes_at_once = bytes_at_once
        self.bytes_used = 0
        self._data: bytes | memoryview = b""
        look = self._intact if check or keep else None
        self.fold = Fold(offsets, check=look, keep=keep)
        self.answer: RangeDigest | None = None
        self.lost = False
        """Nothing is handed out at the position: retention has passed it, or the log ends there."""

    def take(self, found: FetchedRecords, *, alone: bool) -> None:
        """`alone`: the request named nobody else, so nothing had to give way to others."""
        if found.error == OFFSET_OUT_OF_RANGE:
            self.lost = True
        elif found.error != NO_ERROR:
            raise FetchRefusedError(self.partition, found.error)
        else:
            self._scan(found.records, alone=alone)

    def _scan(self, records: bytes | memoryview, *, alone: bool) -> None:
        self._data = records
        at, stop = self.fold.scan(records, 0, position=0, limit=len(records))
        self._data = b""
        self.bytes_used += at
        self.position = max(self.position, self.fold.last_offset + 1)
        if stop is Stop.BROKEN:
            why = "" if self.fold.broken is None else f": {self.fold.broken.reason}"
            self._end(unreadable_at=self.position, reason=f"the broker sent no batch{why}")
        elif stop is Stop.PAST or self.position >= self.fold.offsets.end:
            self._end()
        elif at == 0 and records:
            # Not one batch fits: more is asked for, within reason.
            self.bytes_at_once *= 2
            if self.bytes_at_once > _LARGEST:
                self._end(unreadable_at=self.position, reason="a batch is too large to fetch")
        elif not records and alone:
            self.lost = True

    def begins_at(self, log_start: int) -> None:
        """Of one that is lost. Whoever has less than it said was cut: it differs, and is looked at
        again with fresh bounds."""
        if log_start > self.position:
            self.answer = RangeDigest(self.fold.offsets, starts_at=log_start)
        else:
            self._end()

    def _end(self, *, unreadable_at: int | None = None, reason: str = "") -> None:
        self.answer = self.fold.digest(unreadable_at=unreadable_at, reason=reason)

    def _intact(self, batch: Batch) -> bool:
        covered = self._data[batch.position + checked_from(batch.magic) : batch.end_position]
        return checksum(batch.magic, 0, bytes(covered)) == batch.crc


class FetchRefusedError(ConnectorError):
    """A broker does not hand out a partition; the others go on."""

    def __init__(self, partition: TopicPartition, code: int) -> None:
        super().__init__(
            f"{partition} is refused with {error_name(code)}",
            "see that the replica is there, and that reading the topic is allowed",
        )
        self.partition, self.code = partition, code


class WireRanges:
    """Reads ranges of replicas. `pace` is told how many bytes came, and may wait."""

    def __init__(self, reader: RecordsReader, pace: Callable[[int], None] = lambda _: None) -> None:
        self._reader, self._pace = reader, pace
        self.topic_ids: dict[str, str | None] = {}
        self.bytes_moved = self.bytes_used = self.requests = 0
        """A fetch brings at least some bytes more than the batches it was for."""
        self.refused: dict[BrokerId, dict[TopicPartition, str]] = {}
        """What a broker did not hand out when it was last asked, and why."""

    def digests(
        self,
        broker: BrokerId,
        asked: Sequence[tuple[TopicPartition, OffsetRange]],
        *,
        check: bool = False,
        bytes_at_once: int = PARTITION_BYTES,
    ) -> dict[TopicPartition, RangeDigest]:
        """Partitions that are refused are left out."""
        found = self._read(broker, asked, check=check, keep=False, bytes_at_once=bytes_at_once)
        return {each.partition: each.answer for each in found if each.answer is not None}

    def marks(
        self, broker: BrokerId, asked: Sequence[tuple[TopicPartition, OffsetRange]]
    ) -> dict[TopicPartition, Sequence[BatchMark]]:
        found = self._read(broker, asked, check=True, keep=True)
        return {each.partition: each.fold.marks for each in found if each.answer is not None}

    def _read(
        self,
        broker: BrokerId,
        asked: Sequence[tuple[TopicPartition, OffsetRange]],
        *,
        check: bool,
        keep: bool,
        bytes_at_once: int = PARTITION_BYTES,
    ) -> list[_Reading]:
        readings = [
            _Reading(p, offsets, check=check, keep=keep, bytes_at_once=bytes_at_once)
            for p, offsets in asked
        ]
        waiting = deque(readings)
        refused = self.refused[broker] = {}
        while waiting:
            some = [waiting.popleft() for _ in range(min(PARTITIONS, len(waiting)))]
            if some[0].bytes_at_once > PARTITION_BYTES:
                waiting.extendleft(reversed(some[1:]))
                some = some[:1]
            answers = self._fetch(broker, some)
            empty = all(not a.records for a in answers.values())
            for each in some:
                found = answers.get(each.partition)
                if found is None:
                    continue
                try:
                    each.take(found, alone=len(some) == 1 or empty)
                except FetchRefusedError as error:
                    refused[each.partition] = error.reason
                    continue
                if each.answer is None and not each.lost:
                    # Whoever had to give way comes first the next time.
                    (waiting.append if found.records else waiting.appendleft)(each)
        self.bytes_used += sum(each.bytes_used for each in readings)
        self._find(broker, {each.partition: each for each in readings if each.lost})
        return readings

    def _find(self, broker: BrokerId, lost: Mapping[TopicPartition, _Reading]) -> None:
        """An answer that an offset is out of range does not say what is in range: it is asked. Of a
        tiered log the local part counts; the rest would come from somewhere else."""
        if not lost:
            return
        partitions = list(lost)
        try:
            starts = self._reader.list_offsets(broker, partitions, EARLIEST_LOCAL)
        except UnsupportedRequestError:
            starts = self._reader.list_offsets(broker, partitions, EARLIEST)
        for partition, start in starts.items():
            if start.error == NO_ERROR and partition in lost:
                lost[partition].begins_at(start.offset)

    def _fetch(
        self, broker: BrokerId, some: Sequence[_Reading]
    ) -> Mapping[TopicPartition, FetchedRecords]:
        answers = self._reader.records(
            broker,
            {each.partition: each.position for each in some},
            self.topic_ids,
            whole_bytes=sum(each.bytes_at_once for each in some),
            partition_bytes=max(each.bytes_at_once for each in some),
        )
        size = sum(len(each.records) for each in answers.values())
        self.bytes_moved += size
        self.requests += 1
        self._pace(size)
        return answers
