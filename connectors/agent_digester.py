"""The agent's side of digests: ranges are read from the directories of their replicas."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.agent_digests import DigestAnswer
from tidestaff.connectors.digest_files import RangeReader
from tidestaff.connectors.pacing import ByteRate
from tidestaff.consistency.batches import RangeDigest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.connectors.agent_digests import DigestQuestion, Range
    from tidestaff.consistency.model import TopicPartition

MOST_MARKS: Final = 50_000
WORKS_FOR_S: Final = 5.0
BYTES_A_SECOND: Final = 100_000_000
_MOST_READERS: Final = 10_000


class Digester:
    """Answers questions from the directories that `place_of` names. `relist` looks for them anew: a
    replica may have been made, or moved, since anybody looked."""

    def __init__(
        self,
        place_of: Callable[[TopicPartition], str | None],
        relist: Callable[[], object] = lambda: None,
        *,
        bytes_a_second: float = BYTES_A_SECOND,
        works_for_s: float = WORKS_FOR_S,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._place_of, self._relist = place_of, relist
        self._works_for_s, self._now_s = works_for_s, now_s
        self._rate = ByteRate(bytes_a_second, now_s, sleep)
        self._readers: dict[str, RangeReader] = {}

    def answer(self, question: DigestQuestion) -> list[DigestAnswer]:
        """At least one answer, and more until the time is over."""
        until, marks = self._now_s() + self._works_for_s, 0
        found: list[DigestAnswer] = []
        if not all(self._there(each.partition) for each in question.ranges):
            self._relist()
        for each in question.ranges:
            found.append(self._one(each, question))
            marks += len(found[-1].marks)
            if self._now_s() > until or marks > MOST_MARKS:
                break
        return found

    def _there(self, partition: TopicPartition) -> bool:
        place = self._place_of(partition)
        return place is not None and os.path.isdir(place)  # noqa: PTH112 - pathlib is slow

    def _one(self, each: Range, question: DigestQuestion) -> DigestAnswer:
        place = self._place_of(each.partition)
        if place is None:
            gone = "the replica is not on the broker's disks"
            at = each.offsets.start
            return DigestAnswer(RangeDigest(each.offsets, unreadable_at=at, reason=gone))
        if len(self._readers) > _MOST_READERS:
            self._readers.clear()
        reader = self._readers.setdefault(place, RangeReader(place, self._rate.wait))
        if question.marks:
            return DigestAnswer(RangeDigest(each.offsets), tuple(reader.marks(each.offsets)))
        return DigestAnswer(reader.digest(each.offsets, check=question.check))
