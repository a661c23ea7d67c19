"""One broker's own words on its replicas: log start, HW, LEO, lineage, read in this order.

Every question goes to the replica's broker itself as replica -2, which a follower answers too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.connectors.broker_answers import (
    KAFKA_STORAGE_ERROR,
    NO_ERROR,
    TOPIC_AUTHORIZATION_FAILED,
)
from tidestaff.connectors.broker_headers import FollowerLog
from tidestaff.connectors.broker_lineage import Leading, from_log_start, walk
from tidestaff.connectors.broker_offsets import OffsetReader
from tidestaff.connectors.broker_roles import Roles
from tidestaff.connectors.errors import ConnectorError
from tidestaff.consistency.model import LineageSource, ReplicaReading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tidestaff.connectors.broker_answers import BrokerReader, ListedOffset
    from tidestaff.connectors.broker_following import FollowerLineages
    from tidestaff.connectors.broker_lineage import Lineages, Office
    from tidestaff.connectors.broker_offsets import Offsets
    from tidestaff.consistency.model import BrokerId, Lineage, TopicPartition


class Told(NamedTuple):
    """What a broker said of its replicas, the error codes of those it said nothing of, and topics
    that it may not tell of, or not all: Read is missing. Leaders whose lineage has too many entries
    are named."""

    readings: dict[TopicPartition, ReplicaReading]
    errors: dict[TopicPartition, int]
    refused: set[str]
    too_long: set[TopicPartition]


class ReplicaReader:
    """Reads replicas of a broker, at most `at_once` in one request. `tiered` topics have the older
    part of their logs elsewhere."""

    def __init__(
        self,
        reader: BrokerReader,
        lineages: Lineages,
        now_ms: Callable[[], int],
        *,
        at_once: int,
        followers: FollowerLineages | None = None,
        tiered: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._reader, self._lineages, self._now_ms = reader, lineages, now_ms
        self._at_once, self._followers, self._tiered = at_once, followers, tiered
        self._offsets, self._roles = OffsetReader(reader, tiered), Roles(reader)

    def forget(self) -> None:
        """What was known of earlier readings: everything is asked for anew."""
        self._offsets.forget()
        self._roles.forget()

    def read(
        self,
        broker: BrokerId,
        partitions: Sequence[TopicPartition],
        topic_ids: Mapping[str, str | None],
        *,
        as_leader: bool,
    ) -> Told:
        """`as_leader`: the metadata says that it leads these."""
        told = Told({}, {}, set(), set())
        for some in _split(partitions, self._at_once):
            parts = self._offsets.read(broker, some, topic_ids)
            leads, newest = self._roles.claims(broker, parts.ends, as_leader=as_leader)
            lineages = self._lineages_of(broker, parts, newest, topic_ids, told.too_long)
            for partition, fetched in parts.fetched.items():
                if fetched.error == TOPIC_AUTHORIZATION_FAILED:
                    told.refused.add(partition.topic)
            for partition in some:
                error = _error(parts, partition)
                if error == NO_ERROR:
                    told.readings[partition] = self._reading(
                        broker, partition, parts, leads.get(partition), topic_ids
                    )._replace(
                        lineage=lineages.get(partition), lineage_source=LineageSource.LEADER_ANSWERS
                    )
                    continue
                if error == TOPIC_AUTHORIZATION_FAILED:
                    # Describe would do for this request, and the next would be refused: Read
                    # implies it, and is what must be granted.
                    told.refused.add(partition.topic)
                    continue
                told.errors[partition] = error
                if error == KAFKA_STORAGE_ERROR:
                    told.readings[partition] = ReplicaReading(
                        broker, log_dir_online=False, read_at_ms=self._now_ms()
                    )
        self._follow(broker, told, topic_ids)
        return told

    def _follow(self, broker: BrokerId, told: Told, topic_ids: Mapping[str, str | None]) -> None:
        """Lineages of those that do not lead, from their batches. Those of a tiered log would have
        to be fetched from where its older part is, so they are left alone."""
        if self._followers is None:
            return
        logs = {
            partition: log
            for partition, reading in told.readings.items()
            if reading.leads is False
            and not self._tiered(partition.topic)
            and (log := _follower_log(reading, topic_ids.get(partition.topic))) is not None
        }
        hints = {partition: self._lineages.latest(partition) for partition in logs}
        try:
            found = self._followers.of_broker(broker, logs, hints, topic_ids)
        except ConnectorError:
            return  # what was read already counts; the next question tells whether it is away
        for partition, lineage in found.items():
            told.readings[partition] = told.readings[partition]._replace(
                lineage=lineage, lineage_source=LineageSource.BATCH_HEADERS
            )

    def _reading(
        self,
        broker: BrokerId,
        partition: TopicPartition,
        parts: Offsets,
        leads: bool | None,
        topic_ids: Mapping[str, str | None],
    ) -> ReplicaReading:
        start, end = _offset(parts.starts.get(partition)), parts.ends[partition]
        fetched = parts.fetched.get(partition)
        # A log that was cut under a new leader between the two has a HW of the old epoch.
        position = parts.positions[partition]
        same_epoch = position.leader_epoch == end.leader_epoch and position.offset <= end.offset
        watermark = None
        if fetched is not None and fetched.error == NO_ERROR and same_epoch:
            watermark = fetched.high_watermark if fetched.high_watermark >= 0 else None
        by_id = fetched is not None and fetched.error == NO_ERROR and fetched.by_topic_id
        return ReplicaReading(
            broker,
            log_start_offset=start,
            high_watermark=watermark,
            log_end_offset=end.offset,
            leader_epoch=end.leader_epoch,
            leads=leads,
            local_log_start_offset=_offset(parts.local_starts.get(partition)),
            topic_id=topic_ids.get(partition.topic) if by_id else None,
            read_at_ms=self._now_ms(),
        )

    def _lineages_of(
        self,
        broker: BrokerId,
        parts: Offsets,
        newest: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
        too_long: set[TopicPartition],
    ) -> dict[TopicPartition, Lineage]:
        found: dict[TopicPartition, Lineage] = {}
        missing: dict[TopicPartition, Leading] = {}
        offices: dict[TopicPartition, Office] = {}
        for partition, epoch in newest.items():
            start, believes = parts.starts.get(partition), parts.ends[partition].leader_epoch
            if start is None or start.error != NO_ERROR or epoch < 0 or believes is None:
                continue
            office = offices[partition] = (broker, believes, topic_ids.get(partition.topic))
            known = self._lineages.known(partition, office)
            if known is not None:
                found[partition] = from_log_start(known, start.offset)
            elif self._lineages.is_too_long(partition, office):
                too_long.add(partition)
            else:
                missing[partition] = Leading(believes, epoch, start.offset)
        walked = walk(missing, lambda q: self._roles.epoch_ends(broker, q))
        for partition, lineage in walked.found.items():
            self._lineages.keep(partition, offices[partition], lineage)
            found[partition] = from_log_start(lineage, missing[partition].log_start_offset)
        for partition in walked.too_long:
            self._lineages.keep_too_long(partition, offices[partition])
            too_long.add(partition)
        return found


def _offset(answer: ListedOffset | None) -> int | None:
    told = answer is not None and answer.error == NO_ERROR and answer.offset >= 0
    return answer.offset if told and answer is not None else None


def _follower_log(reading: ReplicaReading, topic_id: str | None) -> FollowerLog | None:
    start, watermark = reading.log_start_offset, reading.high_watermark
    end, epoch = reading.log_end_offset, reading.leader_epoch
    if start is None or watermark is None or end is None or epoch is None:
        return None
    return FollowerLog(start, watermark, end, epoch, topic_id)


def _error(parts: Offsets, partition: TopicPartition) -> int:
    """Why there is no reading of the replica; NO_ERROR if there is one."""
    for answers in (parts.positions, parts.ends):
        answer = answers.get(partition)
        if answer is None or answer.error != NO_ERROR:
            return -1 if answer is None else answer.error
    return NO_ERROR


def _split(
    partitions: Sequence[TopicPartition], at_once: int
) -> Iterator[Sequence[TopicPartition]]:
    for begin in range(0, len(partitions), at_once):
        yield partitions[begin : begin + at_once]
