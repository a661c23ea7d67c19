"""From rounds of observations to linked rows: every row names the one before it.

A row that is lost or late leaves a gap the receiver can see, and a partition that is no longer
listed is said to be gone instead of falling silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.connectors.bodies import unchanging_of
from tidestaff.connectors.wire import GONE, HEALTH, PARTITION, Row, row_of, signal
from tidestaff.consistency.model import PartitionObservation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidestaff.consistency.model import Observation


class Linker:
    """Keeps, for one source, when each subject was observed last."""

    def __init__(self) -> None:
        self._last_ms: dict[tuple[str, str, str], int] = {}
        self._listed: dict[str, set[str]] = {}
        self._bodies: dict[tuple[str, str, int], tuple[object, bytes]] = {}

    def resume(self, rows: Iterable[Row]) -> None:
        """Go on after a restart: the next rows follow these, of one complete round or more."""
        for row in rows:
            place = (PARTITION if row.kind == GONE else row.kind, row.cluster, row.subject)
            listed = self._listed.setdefault(row.cluster, set())
            if row.kind == GONE:
                self._last_ms.pop(place, None)
                listed.discard(row.subject)
                continue
            self._last_ms[place] = row.observed_at_ms
            if row.kind == PARTITION:
                listed.add(row.subject)

    def link(self, observations: Iterable[Observation]) -> list[Row]:
        """The rows of one complete round: a partition that was in the last one and is not in this
        one is gone, if the round saw the cluster's metadata at all."""
        rows = [self._linked(observation) for observation in observations]
        listed: dict[str, set[str]] = {}
        seen: dict[str, Row] = {}
        for row in rows:
            if row.kind == HEALTH:
                continue
            seen[row.cluster] = row
            if row.kind == PARTITION:
                listed.setdefault(row.cluster, set()).add(row.subject)
        for cluster, row in seen.items():
            subjects = listed.get(cluster, set())
            missing = self._listed.get(cluster, set()) - subjects
            rows += [self._gone(row, subject) for subject in sorted(missing)]
            self._listed[cluster] = subjects
        return rows

    def _gone(self, like: Row, subject: str) -> Row:
        topic, _, partition = subject.rpartition("-")
        self._bodies.pop((like.cluster, topic, int(partition)), None)
        return signal(
            GONE,
            cluster=like.cluster,
            source=like.source,
            subject=subject,
            at_ms=like.observed_at_ms,
            previous_ms=self._last_ms.pop((PARTITION, like.cluster, subject)),
        )

    def _linked(self, observation: Observation) -> Row:
        """Encoding is the dear part: the body of a partition that did not change is used again."""
        if not isinstance(observation, PartitionObservation):
            return self._with_previous(row_of(observation))
        place = (observation.cluster, observation.topic, observation.partition)
        unchanging = unchanging_of(observation)
        known = self._bodies.get(place)
        body = known[1] if known is not None and known[0] == unchanging else None
        row = row_of(observation, body=body)
        if body is None:
            self._bodies[place] = unchanging, row.body
        return self._with_previous(row)

    def _with_previous(self, row: Row) -> Row:
        key = (row.kind, row.cluster, row.subject)
        previous = self._last_ms.get(key)
        self._last_ms[key] = row.observed_at_ms
        return row if previous is None else row._replace(previous_at_ms=previous)
