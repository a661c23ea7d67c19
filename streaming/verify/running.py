"""A verification from its beginning to its end: many partitions at once, every broker in a thread.

A difference that is found where copies may still change is looked at once more with fresh bounds:
a leader may have changed, a log may have been cut while it was read.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.errors import ConnectorError
from tidestaff.consistency.comparison import Comparison
from tidestaff.consistency.comparison_quick import compare_lineages
from tidestaff.consistency.comparison_verdict import Outcome
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.verify.copies import BYTES_AT_ONCE, Reached
from tidestaff.streaming.verify.threads import in_threads

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidestaff.consistency.batches import BatchMark, RangeDigest
    from tidestaff.consistency.comparison import Question
    from tidestaff.consistency.comparison_verdict import Verdict
    from tidestaff.consistency.model import BrokerId, TopicPartition
    from tidestaff.streaming.verify.copies import CopySource, PartitionCopies

_LOOKED_AT: Final = 3
_UNKNOWN_SPAN: Final = 1 << 17
"""Offsets of one question where nobody told how large the logs are."""
_LEAST_AT_ONCE: Final = 1 << 20
"""Less than a fetch brings is not asked for."""


class Result(NamedTuple):
    """The verdict on one partition, and which copies it is about."""

    partition: TopicPartition
    verdict: Verdict
    brokers: tuple[BrokerId, ...]
    leader: BrokerId | None
    unread: tuple[tuple[BrokerId, str], ...] = ()
    quick: bool = False
    reached: Reached = Reached(0)


class Progress(NamedTuple):
    """How far it has come. Bytes are estimated from the offsets that are done; they are nought
    where nobody told how large the logs are."""

    done: int
    partitions: int
    share: float
    bytes_done: float
    seconds: float
    offsets_done: float = 0.0
    stopping: bool = False
    """It was told to stop, and finishes what is being read."""


class _Item:
    """One partition on its way."""

    def __init__(
        self, copies: PartitionCopies, comparison: Comparison, offsets: int, looked: int
    ) -> None:
        self.copies, self.comparison = copies, comparison
        self.offsets, self.looked = offsets, looked
        self.question: Question | None = None
        self.found: dict[BrokerId, object] = {}


class Verification:
    """`done_to` says where an earlier run has come to; `stop` ends it early."""

    def __init__(
        self,
        source: CopySource,
        *,
        stop: threading.Event,
        check: bool = False,
        quick: bool = False,
        done_to: Mapping[TopicPartition, Reached] | None = None,
        tell: Callable[[Progress], None] = lambda _: None,
        threads: int = 8,
    ) -> None:
        self._source, self._stop, self._check, self._quick = source, stop, check, quick
        self._done_to, self._tell = done_to or {}, tell
        self._threads = threads
        self._began = time.monotonic()
        self._bytes = self._weight = self._partitions = 0
        self._finished = self._share = 0.0
        self.results: list[Result] = []
        self.active: deque[_Item] = deque()
        self.interrupted = False
        """It was told to stop before it had seen every partition."""

    def run(self, copies: Iterable[PartitionCopies]) -> list[Result]:
        """Partitions whose lineages disagree come first: whoever waits sees them first."""
        listed = list(copies)
        if self._quick:
            self.results = self._quickly(listed)
            return self.results
        waiting = deque(sorted(listed, key=_agrees))
        self._bytes, self._partitions = sum(each.bytes for each in listed), len(listed)
        self._weight = max(sum(map(_offsets, listed)), 1)
        while (waiting or self.active) and not self._stop.is_set():
            self._fill(waiting)
            self._round()
            self._progress()
        if self._stop.is_set():
            self._settle()
        self.interrupted = bool(waiting or self.active)
        return self.results

    @property
    def unfinished(self) -> dict[TopicPartition, Reached]:
        """Where a later run may go on. A partition begins anew where anything but equality was
        found so far: what was not read or not comparable would else be told as equal."""
        found = {}
        for item in self.active:
            so_far = item.comparison.verdict()
            odd = (
                *(so_far.differences, so_far.corrupt, so_far.uncompared),
                *(so_far.unread, so_far.why, so_far.apart),
            )
            if not any(odd) and not item.copies.unread and item.looked == 1:
                reached = Reached.of(item.copies, item.comparison.done_to)
                found[item.copies.partition] = reached
        return found

    # -- the inside

    def _quickly(self, listed: Sequence[PartitionCopies]) -> list[Result]:
        found = {each.partition: _by_lineage(each) for each in listed}
        odd = [p for p, each in found.items() if each.verdict.outcome is Outcome.DIVERGED]
        if odd and self._source.live:
            found |= {p: _by_lineage(fresh) for p, fresh in self._again(odd).items()}
        return list(found.values())

    def _fill(self, waiting: deque[PartitionCopies]) -> None:
        """As many as are worth asking for together, and no more than a round may read."""
        read = sum(self._weighs(item.copies) for item in self.active)
        while waiting and len(self.active) < self._source.at_once:
            read += self._weighs(waiting[0])
            if self.active and read > self._source.bytes_a_round:
                return
            self.active.append(self._begin(waiting.popleft()))

    def _weighs(self, copies: PartitionCopies) -> float:
        """Bytes of one question to all copies."""
        return min(copies.bytes, self._at_once(copies) * len(copies.extents))

    def _at_once(self, copies: PartitionCopies) -> float:
        most = self._source.bytes_a_round / max(len(copies.extents), 1)
        return min(self._source.bytes_at_once, max(most, _LEAST_AT_ONCE))

    def _begin(self, copies: PartitionCopies, looked: int = 1) -> _Item:
        offsets = _offsets(copies)
        reached = self._done_to.get(copies.partition)
        span = _UNKNOWN_SPAN
        if copies.bytes and copies.extents:
            a_copy = copies.bytes / len(copies.extents)
            longest = max(e.log_end_offset - e.log_start_offset for e in copies.extents)
            span = int(max(self._at_once(copies) * longest / a_copy, 1))
        elif self._source.bytes_at_once >= BYTES_AT_ONCE:
            span = 1 << 62
        comparison = Comparison(
            copies.extents,
            leader=copies.leader,
            span=span,
            marks_at_once=self._source.marks_at_once,
            done_to=reached.offset if reached is not None and reached.holds_for(copies) else 0,
            scrub=self._check,
        )
        return _Item(copies, comparison, offsets, looked)

    def _round(self) -> None:
        """The next question of every partition, all of a broker's together."""
        asked: dict[tuple[BrokerId, bool], list[_Item]] = {}
        before, self.active, done = self.active, deque(), []
        for item in before:
            item.question, item.found = item.comparison.question(), {}
            if item.question is None:
                done.append(item)
                continue
            self.active.append(item)
            for broker in item.question.window.brokers:
                asked.setdefault((broker, item.question.marks), []).append(item)
        self._finish(done)
        before_it = self._source.bytes_read
        answered = in_threads(
            self._ask,
            asked.items(),
            self._threads,
            meanwhile=lambda: self._progress(self._source.bytes_read - before_it),
        )
        for (broker, _), items, answers in answered:
            for item in items:
                if isinstance(answers, ConnectorError):
                    item.comparison.unreadable(broker, answers.reason)
                elif item.copies.partition in answers:
                    item.found[broker] = answers[item.copies.partition]
                else:
                    why = self._source.why_silent(broker, item.copies.partition)
                    item.comparison.unreadable(broker, why)
        for item in self.active:
            if item.question is not None:  # None: it has just begun anew
                self._take(item)

    def _settle(self) -> None:
        """Nothing is asked any more; what has no question left is done."""
        before, self.active, done = self.active, deque(), []
        for item in before:
            question = item.comparison.question()
            if question is None:
                done.append(item)
            else:
                item.comparison.again(question)
                self.active.append(item)
        self._finish(done)

    def _ask(
        self, asked: tuple[tuple[BrokerId, bool], list[_Item]]
    ) -> tuple[
        tuple[BrokerId, bool], list[_Item], Mapping[TopicPartition, object] | ConnectorError
    ]:
        (broker, marks), items = asked
        ranges = [(i.copies.partition, i.question.offsets) for i in items if i.question]
        try:
            if marks:
                return asked[0], items, self._source.marks(broker, ranges)
            return asked[0], items, self._source.digests(broker, ranges, check=self._check)
        except ConnectorError as error:
            return asked[0], items, error

    def _take(self, item: _Item) -> None:
        question = item.question
        assert question is not None
        if len(item.found) < len(question.window.brokers):
            item.comparison.again(question)
        elif question.marks:
            marks: dict[BrokerId, list[BatchMark]] = item.found  # type: ignore[assignment]
            item.comparison.marks(question, marks)
        else:
            digests: dict[BrokerId, RangeDigest] = item.found  # type: ignore[assignment]
            item.comparison.digests(question, digests)

    def _finish(self, items: Sequence[_Item]) -> None:
        """What looks wrong is looked at again, all of it in one reading of the cluster."""
        verdicts = [(item, item.comparison.verdict()) for item in items]
        suspicious = [
            item
            for item, verdict in verdicts
            if verdict.outcome in (Outcome.DIVERGED, Outcome.CORRUPT)
            and self._source.live
            and item.looked < _LOOKED_AT
        ]
        found = self._again([item.copies.partition for item in suspicious]) if suspicious else {}
        for item, verdict in verdicts:
            fresh = found.get(item.copies.partition)
            moved = fresh is not None and fresh.leader_epoch != item.copies.leader_epoch
            if fresh is not None and (item.looked == 1 or moved):
                fresh.bytes = fresh.bytes or item.copies.bytes
                fresh.unread = {**item.copies.unread, **fresh.unread}
                self.active.append(self._begin(fresh, looked=item.looked + 1))
                continue
            self._finished += item.offsets
            self.results.append(_result(item.copies, verdict))

    def _again(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionCopies]:
        """Nothing where nobody can be asked: then what was found the first time is told."""
        try:
            return self._source.again(partitions)
        except (ConnectorError, CommandError):
            return {}

    def _progress(self, read: int | None = None) -> None:
        """`read`: so many bytes since the last round ended. What is asked for counts as done, so
        that in the middle of a round this is what will be done at its end."""
        under_way = sum(item.offsets - item.comparison.left for item in self.active)
        share = min((self._finished + max(under_way, 0)) / self._weight, 1.0)
        if read is None:
            self._share = share
        else:
            share = min(self._share + read / max(self._bytes, 1), share)
        seconds = time.monotonic() - self._began
        done, told = share * self._weight, share * self._bytes
        self._tell(
            Progress(
                len(self.results),
                self._partitions,
                share,
                told,
                seconds,
                done,
                self._stop.is_set(),
            )
        )


def _offsets(copies: PartitionCopies) -> int:
    return max((e.end - e.log_start_offset for e in copies.extents), default=0)


def _agrees(copies: PartitionCopies) -> bool:
    if len({each.lineage for each in copies.extents if each.lineage}) < 2:
        return True
    return compare_lineages(copies.extents, copies.leader).outcome is not Outcome.DIVERGED


def _by_lineage(copies: PartitionCopies) -> Result:
    return _result(copies, compare_lineages(copies.extents, copies.leader), quick=True)


def _result(copies: PartitionCopies, verdict: Verdict, *, quick: bool = False) -> Result:
    without = {each.broker for each in verdict.apart}
    brokers = tuple(sorted(e.broker for e in copies.extents if e.broker not in without))
    unread = tuple(sorted(copies.unread.items()))
    reached = Reached.of(copies, verdict.equal_up_to or 0)
    return Result(copies.partition, verdict, brokers, copies.leader, unread, quick, reached)
