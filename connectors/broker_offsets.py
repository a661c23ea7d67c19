"""Where the logs of one broker's replicas begin and end, and how far they are committed.

Log start, HW and LEO are read in this order, in which none can be above the next. The long way has
a request for each of them, and one more before the fetch, which starts at the log end so that no
records travel. The short way leaves out what need not be asked: from 0.11 on a fetch tells the log
start, and a log that did not grow ends where it did. Wherever its answers leave a doubt that those
of the long way would not, the replica is read the long way, in the same round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidestaff.connectors.broker_answers import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    NO_ERROR,
    ListedOffset,
)
from tidestaff.connectors.errors import UnsupportedRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidestaff.connectors.broker_answers import BrokerReader, FetchedState
    from tidestaff.consistency.model import BrokerId, TopicPartition

    Listed = Mapping[TopicPartition, ListedOffset]

T = TypeVar("T")


class Offsets(NamedTuple):
    """The answers on some replicas of one broker. A replica whose position is an error was not
    fetched from."""

    starts: Listed
    positions: Listed
    fetched: Mapping[TopicPartition, FetchedState]
    ends: Listed
    local_starts: Listed

    def with_others(self, others: Offsets, instead_of: Collection[TopicPartition]) -> Offsets:
        """`others` counts for those, also where it says nothing of them."""
        return Offsets(
            _joined(self.starts, others.starts, instead_of),
            _joined(self.positions, others.positions, instead_of),
            _joined(self.fetched, others.fetched, instead_of),
            _joined(self.ends, others.ends, instead_of),
            _joined(self.local_starts, others.local_starts, instead_of),
        )


_STILL: Final = 2
"""So many readings before must agree on a log's end. A leader is read twice in a round, so that one
of them would be no sign."""


class _Log(NamedTuple):
    """A log as it was read last, and how many readings in a row before found it the same.
    `by_long_way`: a fetch did not tell what it should."""

    end: ListedOffset
    still: int
    by_long_way: bool


class OffsetReader:
    """Keeps where each log ended, to know from where to fetch next time. `tiered` topics have the
    older part of their logs elsewhere, so of them nothing is fetched from a position of before."""

    def __init__(self, reader: BrokerReader, tiered: Callable[[str], bool]) -> None:
        self._reader, self._tiered = reader, tiered
        self._logs: dict[BrokerId, dict[TopicPartition, _Log]] = {}

    def forget(self) -> None:
        """Everything is asked for anew, and what is gone is not kept."""
        self._logs = {}

    def read(
        self,
        broker: BrokerId,
        partitions: Sequence[TopicPartition],
        topic_ids: Mapping[str, str | None],
    ) -> Offsets:
        logs = self._logs.setdefault(broker, {})
        short = [p for p in partitions if p not in logs or not logs[p].by_long_way]
        found = self._short_way(broker, short, topic_ids, logs)
        doubtful = {p for p in short if self._is_doubtful(found, p, logs.get(p))}
        left = [p for p in partitions if p in doubtful or (p in logs and logs[p].by_long_way)]
        if left:
            found = found.with_others(self._long_way(broker, left, topic_ids), doubtful)
        for partition, end in found.ends.items():
            logs[partition] = _seen(end, found.fetched.get(partition), logs.get(partition))
        return found

    def _long_way(
        self,
        broker: BrokerId,
        partitions: Sequence[TopicPartition],
        topic_ids: Mapping[str, str | None],
    ) -> Offsets:
        starts = self._reader.list_offsets(broker, partitions, EARLIEST)
        local_starts = self._local_starts(broker, partitions)
        positions = self._reader.list_offsets(broker, partitions, LATEST)
        fetched = self._fetched(broker, positions, topic_ids)
        ends = self._reader.list_offsets(broker, partitions, LATEST)
        return Offsets(starts, positions, fetched, ends, local_starts)

    def _short_way(
        self,
        broker: BrokerId,
        partitions: Sequence[TopicPartition],
        topic_ids: Mapping[str, str | None],
        logs: Mapping[TopicPartition, _Log],
    ) -> Offsets:
        if not partitions:
            return Offsets({}, {}, {}, {}, {})
        local_starts = self._local_starts(broker, partitions)
        positions = {p: logs[p].end for p in partitions if self._is_quiet(p, logs.get(p))}
        asked = [p for p in partitions if p not in positions]
        if asked:
            positions |= self._reader.list_offsets(broker, asked, LATEST)
        fetched = self._fetched(broker, positions, topic_ids)
        starts = {
            partition: ListedOffset(NO_ERROR, told.log_start_offset)
            for partition, told in fetched.items()
            if told.error == NO_ERROR
        }
        ends = self._reader.list_offsets(broker, partitions, LATEST)
        return Offsets(starts, positions, fetched, ends, local_starts)

    def _is_quiet(self, partition: TopicPartition, log: _Log | None) -> bool:
        """One that grows is asked: from an old position on its records would travel."""
        return log is not None and log.still >= _STILL and not self._tiered(partition.topic)

    def _is_doubtful(self, found: Offsets, partition: TopicPartition, log: _Log | None) -> bool:
        position, end = found.positions.get(partition), found.ends.get(partition)
        if position is None or position.error != NO_ERROR:
            return False  # nor would the long way come further
        fetched = found.fetched.get(partition)
        if fetched is None or fetched.error != NO_ERROR or fetched.log_start_offset < 0:
            return True
        if fetched.log_start_offset > fetched.high_watermark:
            return True  # a broker looks at the HW first: both may have moved in between
        if end is None or end.error != NO_ERROR or not self._is_quiet(partition, log):
            return False
        return end.leader_epoch != position.leader_epoch or end.offset < position.offset

    def _fetched(
        self, broker: BrokerId, positions: Listed, topic_ids: Mapping[str, str | None]
    ) -> Mapping[TopicPartition, FetchedState]:
        at = {p: each.offset for p, each in positions.items() if each.error == NO_ERROR}
        return self._reader.fetch(broker, at, topic_ids) if at else {}

    def _local_starts(self, broker: BrokerId, partitions: Sequence[TopicPartition]) -> Listed:
        tiered = [partition for partition in partitions if self._tiered(partition.topic)]
        try:
            return self._reader.list_offsets(broker, tiered, EARLIEST_LOCAL) if tiered else {}
        except UnsupportedRequestError:
            return {}


def _seen(end: ListedOffset, fetched: FetchedState | None, before: _Log | None) -> _Log:
    """Without an epoch (before 2.1) nobody could tell that a log was cut meanwhile, so its end is
    asked for every time."""
    told = fetched is not None and fetched.error == NO_ERROR and fetched.log_start_offset >= 0
    same = before is not None and end.error == NO_ERROR and end == before.end
    still = told and same and end.leader_epoch is not None
    return _Log(
        end,
        still=before.still + 1 if still and before is not None else 0,
        by_long_way=fetched is not None and not told,
    )


def _joined(
    mine: Mapping[TopicPartition, T],
    theirs: Mapping[TopicPartition, T],
    instead_of: Collection[TopicPartition],
) -> dict[TopicPartition, T]:
    return {**{p: told for p, told in mine.items() if p not in instead_of}, **theirs}
