"""Contents compared all the time: in every round some bytes of some partitions, as digests that the
observations carry and the LOG rules judge.

Partitions take turns, the one that was looked at longest ago first. One that is being changed, that
lags, that is cleaned or that is tiered is passed over: reading must not hurt whoever catches up.
What has been looked at is kept in a file, so that a restart goes on from there; after a while a
partition begins anew, because disks rot also where nobody writes. It begins anew at once when it is
another topic of the same name, or has other replicas; where a log was cut, from the cut.

What differs is halved until its first batch is found. That batch is read again in every round, so
that the finding stays for as long as it is true, and ends when somebody has mended it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.errors import ConnectorError
from tidestaff.consistency.model import BatchDigest, Bracket, OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.connectors.digest_wire import WireRanges
    from tidestaff.consistency.batches import RangeDigest
    from tidestaff.consistency.model import BrokerId, PartitionObservation

_FIRST_SPAN: Final = 1_000
_LONGEST_SPAN: Final = 1 << 40
_AT_ONCE: Final = 4
_FEW_BATCHES: Final = 64
AGAIN_AFTER_MS: Final = 24 * 3_600_000
_WITHIN_63_BITS: Final = (1 << 63) - 1


class Covered(NamedTuple):
    """Of one partition: equal so far up to an offset, since when this pass goes on, when it was
    last looked at, how many offsets are worth asking for at once, and what is compared: which
    topic, on which brokers. [wrong_from, wrong_to) is a batch that is not the same everywhere, or
    not intact."""

    verified_to: int = 0
    began_ms: int = 0
    at_ms: int = 0
    span: int = _FIRST_SPAN
    what: str = ""
    wrong_from: int = 0
    wrong_to: int = 0


class DigestRounds:
    """`bytes_a_round` of every replica, about; nought reads nothing."""

    def __init__(
        self,
        ranges: WireRanges,
        bytes_a_round: int,
        state_file: str | None = None,
        again_after_ms: int = AGAIN_AFTER_MS,
    ) -> None:
        self._ranges, self._bytes_a_round = ranges, bytes_a_round
        self._again_after_ms = again_after_ms
        self._file = None if state_file is None else Path(state_file)
        self.coverage: dict[TopicPartition, Covered] = self._load()

    def add_to(
        self, observations: Sequence[PartitionObservation], now_ms: int
    ) -> list[PartitionObservation]:
        """The same observations, some of them with digests."""
        for seen in observations:
            self._forget_what_was_cut(seen)
        waiting = [o for o in observations if _may_be_read(o)]
        waiting.sort(key=self._looked_at_ms)
        chosen = {id(o) for o in waiting[:_AT_ONCE]}
        wrong = {id(o) for o in waiting if self._covered(o).wrong_to}
        if not chosen:
            return list(observations)
        found = []
        for seen in observations:
            digests: list[BatchDigest] = []
            if id(seen) in wrong:
                digests += self._look_again(seen)
            if id(seen) in chosen:
                digests += self._go_on(seen, now_ms)
            found.append(replace(seen, digests=tuple(digests)) if digests else seen)
        self._save()
        return found

    def _looked_at_ms(self, seen: PartitionObservation) -> int:
        known = self.coverage.get(TopicPartition(seen.topic, seen.partition))
        return 0 if known is None else known.at_ms

    def _covered(self, seen: PartitionObservation) -> Covered:
        known, what = self.coverage.get(TopicPartition(seen.topic, seen.partition)), _what(seen)
        return known if known is not None and known.what == what else Covered(what=what)

    def _forget_what_was_cut(self, seen: PartitionObservation) -> None:
        partition = TopicPartition(seen.topic, seen.partition)
        known = self.coverage.get(partition)
        if known is None:
            return
        ends = [r.log_end_offset for r in seen.replicas if r.log_end_offset is not None]
        if min(ends, default=known.verified_to) < known.verified_to:
            self.coverage[partition] = known._replace(verified_to=min(ends))

    def _look_again(self, seen: PartitionObservation) -> list[BatchDigest]:
        """At the batch that was wrong in an earlier round."""
        partition, covered = TopicPartition(seen.topic, seen.partition), self._covered(seen)
        offsets = OffsetRange(covered.wrong_from, covered.wrong_to)
        gone = offsets.start < max(r.log_start_offset or 0 for r in seen.replicas)
        answers = {} if gone else self._ask(seen, offsets)
        if answers is None:
            return []  # nobody knows: it stays
        if not answers or _alike(answers):
            self.coverage[partition] = covered._replace(wrong_from=0, wrong_to=0)
        return [_digest(broker, answer) for broker, answer in answers.items()]

    def _go_on(self, seen: PartitionObservation, now_ms: int) -> list[BatchDigest]:
        """The next range of this pass."""
        partition, covered = TopicPartition(seen.topic, seen.partition), self._covered(seen)
        start = max(r.log_start_offset or 0 for r in seen.replicas)
        end = min(min(r.high_watermark or 0, r.log_end_offset or 0) for r in seen.replicas)
        if end - covered.verified_to < covered.span and covered.began_ms:
            # Seen to its end, or so near to it that one that is written to never gets nearer.
            over = now_ms - covered.began_ms > self._again_after_ms
            covered = covered._replace(verified_to=0, began_ms=now_ms) if over else covered
        begin = max(start, covered.verified_to)
        self.coverage[partition] = covered._replace(at_ms=now_ms)
        if begin >= end:
            return []
        offsets = OffsetRange(begin, min(end, begin + covered.span))
        before = self._ranges.bytes_moved
        answers = self._ask(seen, offsets)
        if answers is None:
            return []
        moved = (self._ranges.bytes_moved - before) // len(answers)
        covered = covered._replace(
            verified_to=offsets.end,
            began_ms=covered.began_ms or now_ms,
            at_ms=now_ms,
            span=self._next_span(offsets, moved),
        )
        if not _alike(answers):
            wrong = self._first_wrong(seen, offsets, answers)
            if wrong is None:
                return []  # as if it had not been read: the next round looks again
            offsets, answers = wrong
            if not covered.wrong_to:
                covered = covered._replace(wrong_from=offsets.start, wrong_to=offsets.end)
        self.coverage[partition] = covered
        return [_digest(broker, answer) for broker, answer in answers.items()]

    def _ask(
        self, seen: PartitionObservation, offsets: OffsetRange
    ) -> dict[BrokerId, RangeDigest] | None:
        """What every replica says of a range; None where one does not."""
        partition = TopicPartition(seen.topic, seen.partition)
        self._ranges.topic_ids[seen.topic] = seen.topic_id
        answers = {}
        try:
            for each in seen.replicas:
                told = self._ranges.digests(each.broker, [(partition, offsets)], check=True)
                if partition not in told or told[partition].starts_at:
                    return None
                answers[each.broker] = told[partition]
        except ConnectorError:
            return None  # the round itself tells of a broker that does not answer
        return answers

    def _first_wrong(
        self, seen: PartitionObservation, offsets: OffsetRange, answers: dict[BrokerId, RangeDigest]
    ) -> tuple[OffsetRange, dict[BrokerId, RangeDigest]] | None:
        """Of a range that differs, the first batch that does. None where the copies are alike by
        now, or cannot be read any more.

        Not `consistency.comparison`, which narrows ranges down as well: that one ends with a
        verdict, and here the rules give it. They need one range with a digest of every copy, and
        the same in every round; a comparison goes on without a copy that cannot be read, follows
        what differs to its end and forgets the digests.
        """
        found: dict[BrokerId, RangeDigest] | None
        while max(each.batches for each in answers.values()) > _FEW_BATCHES:
            middle = (offsets.start + offsets.end) // 2
            first = OffsetRange(offsets.start, middle)
            found = self._ask(seen, first)
            if found is not None and _alike(found):
                first = OffsetRange(middle, offsets.end)
                found = self._ask(seen, first)
            if found is None or _alike(found):
                return None
            offsets, answers = first, found
        if any(each.unreadable_at is not None for each in answers.values()):
            return offsets, answers
        batch = self._first_batch(seen, offsets)
        found = None if batch is None else self._ask(seen, batch)
        return None if batch is None or found is None or _alike(found) else (batch, found)

    def _first_batch(self, seen: PartitionObservation, offsets: OffsetRange) -> OffsetRange | None:
        """Among few batches, by their headers."""
        partition = TopicPartition(seen.topic, seen.partition)
        try:
            marks = [
                self._ranges.marks(each.broker, [(partition, offsets)]).get(partition, ())
                for each in seen.replicas
            ]
        except ConnectorError:
            return None
        for side in zip_longest(*marks):
            there = [mark for mark in side if mark is not None]
            if len(set(side)) > 1 or any(mark.intact is False for mark in there):
                first = min(mark.first_offset for mark in there)
                return OffsetRange(first, max(mark.last_offset for mark in there) + 1)
        return None

    def _next_span(self, offsets: OffsetRange, moved: int) -> int:
        """As many offsets as the bytes of a round are, going by the last range."""
        wanted = (offsets.end - offsets.start) * self._bytes_a_round // _AT_ONCE // max(moved, 1)
        return max(1, min(wanted, _LONGEST_SPAN))

    # -- the file

    def _load(self) -> dict[TopicPartition, Covered]:
        """A file that cannot be used is begun anew: it only says where to go on."""
        if self._file is None:
            return {}
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
            return {
                TopicPartition(topic, int(number)): _covered_of(kept)
                for topic, number, kept in content["coverage"]
            }
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _save(self) -> None:
        if self._file is None:
            return
        content = {"coverage": [[*p, list(covered)] for p, covered in self.coverage.items()]}
        beside = self._file.with_name(f"{self._file.name}.tmp")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(content), encoding="utf-8")
            beside.replace(self._file)
        except OSError:
            return  # a restart begins anew, that is all


def _covered_of(kept: Sequence[object]) -> Covered:
    """Raises TypeError where it is none."""
    kinds = [type(each) for each in Covered()]
    if [type(each) for each in kept] != kinds:
        raise TypeError("not what is kept of a partition")
    return Covered._make(kept)


def _what(seen: PartitionObservation) -> str:
    brokers = " ".join(str(broker) for broker in sorted(seen.assignment.replicas))
    return f"{seen.topic_id or seen.state_czxid or ''} {brokers}"


def _may_be_read(seen: PartitionObservation) -> bool:
    whole = (
        set(seen.state.isr) == set(seen.assignment.replicas) == {r.broker for r in seen.replicas}
    )
    known = all(
        r.log_start_offset is not None
        and r.high_watermark is not None
        and r.log_end_offset is not None
        for r in seen.replicas
    )
    settled = seen.bracket is Bracket.COHERENT and not seen.deleting
    plain = not (seen.settings.compacted or seen.settings.remote_storage)
    return whole and known and settled and plain and len(seen.replicas) > 1


def _alike(answers: Mapping[BrokerId, RangeDigest]) -> bool:
    """All say the same, and nobody has found anything wrong with what it read: then neither LOG001
    nor LOG002 finds anything in their digests, and else one of them does."""
    said = answers.values()
    whole = all(each.unreadable_at is None and each.invalid_at is None for each in said)
    return whole and len({(each.digest, each.batches) for each in said}) == 1


def _digest(broker: BrokerId, answer: RangeDigest) -> BatchDigest:
    return BatchDigest(
        broker,
        answer.offsets,
        None if answer.unreadable_at is not None else answer.digest & _WITHIN_63_BITS,
        answer.last_epoch,
        answer.unreadable_at if answer.unreadable_at is not None else answer.invalid_at,
    )
