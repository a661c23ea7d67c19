"""Followers' lineages for a round: which batch headers are asked of a broker, and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.connectors.broker_answers import NO_ERROR
from tidestaff.connectors.broker_headers import FollowerLog, HeaderSearch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidestaff.connectors.broker_answers import BrokerReader
    from tidestaff.consistency.model import BrokerId, Lineage, TopicPartition

    Searches = dict[TopicPartition, HeaderSearch]

AT_ONCE: Final = 32
"""Partitions of one fetch."""
PARTITION_BYTES: Final = 16_384
"""A batch that is larger is fetched alone; a broker then sends it whole, whatever the limit."""
WHOLE_BYTES: Final = AT_ONCE * PARTITION_BYTES


class FollowerLineages:
    """Keeps the searches of all followers. At most `fetches` requests a broker and round."""

    def __init__(self, reader: BrokerReader, fetches: int) -> None:
        self._reader, self._fetches = reader, fetches
        self._searches: dict[BrokerId, Searches] = {}
        self._before: dict[BrokerId, Searches] = {}

    def forget(self) -> None:
        """Now and then everything is read anew; until then, what was found before counts."""
        self._before, self._searches = self._searches, {}

    def of_broker(
        self,
        broker: BrokerId,
        logs: Mapping[TopicPartition, FollowerLog],
        hints: Mapping[TopicPartition, Lineage],
        topic_ids: Mapping[str, str | None],
    ) -> dict[TopicPartition, Lineage]:
        """The lineages that are complete by now. May raise a ConnectorError."""
        if not self._fetches:
            return {}
        mine = self._searches.setdefault(broker, {})
        before = self._before.get(broker, {})
        for partition, log in logs.items():
            search = mine.get(partition)
            if search is None or not search.is_of(log):
                search = mine[partition] = HeaderSearch(log)
            search.begin_round(log)
            older = before.get(partition)
            over = search.is_over(hints.get(partition, ()))
            if older is not None and older.is_of(log) and not over:
                older.begin_round(log)
            else:
                before.pop(partition, None)
        for _ in range(self._fetches):
            positions = self._next(mine, logs, hints)
            if not positions:
                break
            found = self._reader.batches(
                broker,
                positions,
                topic_ids,
                whole_bytes=WHOLE_BYTES,
                partition_bytes=PARTITION_BYTES,
            )
            for partition, position in positions.items():
                answer = found.get(partition)
                if answer is None or answer.error != NO_ERROR:
                    del mine[partition]
                else:
                    mine[partition].take(position, answer.headers)
        done: dict[TopicPartition, Lineage] = {}
        for partition in logs:
            hint = hints.get(partition, ())
            search = mine.get(partition)
            if search is not None and not search.is_over(hint):
                search = before.get(partition)
            lineage = None if search is None else search.lineage(hint)
            if lineage is not None:
                done[partition] = lineage
        return done

    def _next(
        self,
        mine: Searches,
        logs: Mapping[TopicPartition, FollowerLog],
        hints: Mapping[TopicPartition, Lineage],
    ) -> dict[TopicPartition, int]:
        """One that needs the fetch for itself, or as many others as fit."""
        positions: dict[TopicPartition, int] = {}
        for partition in logs:
            search = mine.get(partition)
            if search is None:
                continue
            position = search.next_position(hints.get(partition, ()))
            if position is None:
                continue
            if search.alone:
                return {partition: position}
            if len(positions) < AT_ONCE:
                positions[partition] = position
        return positions
