"""Contents compared all the time: in every round some bytes of some partitions, as digests that the
observations carry and the LOG rules judge.

Partitions take turns, the one that was looked at longest ago first. One that is being changed, that
lags, that is cleaned or that is tiered is passed over: reading must not hurt whoever catches up.
What has been looked at is kept in a file, so that a restart goes on from there; after a while a
partition begins anew, because disks rot also where nobody writes. It begins anew at once when it is
another topic of the same name, or has other replicas; where a log was cut, from the cut.

What differs is halved until its first batch is found. That batch is read again, by turns where many
are wrong (what was read last is told meanwhile), so that the finding stays for as long as it is
true, and ends when somebody has mended it: then the pass goes on from there, for there may be more.

All that is fetched counts, for whatever it was. A fetch brings 1 MiB of a partition, which may be
more than there is left in a round: then the next rounds are left out until it is made up for.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.digest_coverage import WITHIN_63_BITS, CoverageFile, Covered
from tidestaff.connectors.digest_wire import ONE_BATCH_BYTES, PARTITION_BYTES
from tidestaff.connectors.errors import ConnectorError
from tidestaff.consistency.model import (
    BatchDigest,
    Bracket,
    OffsetRange,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.connectors.broker_health import Problem
    from tidestaff.connectors.digest_wire import WireRanges
    from tidestaff.consistency.batches import RangeDigest
    from tidestaff.consistency.model import BrokerId, PartitionObservation

_LONGEST_SPAN: Final = 1 << 40
_GROWS_BY: Final = 8
"""At most, from one range to the next: where offsets take few bytes others may take many."""
_AT_ONCE: Final = 4
_FEW_BATCHES: Final = 64
AGAIN_AFTER_MS: Final = 24 * 3_600_000


class _Wrong(NamedTuple):
    """A batch that is wrong: when it was read last, under which leader, and what was read."""

    at_ms: int
    leader_epoch: int
    digests: Sequence[BatchDigest]


_NEVER: Final = _Wrong(0, -1, ())


class DigestRounds:
    """`bytes_a_round` of every replica, on average; nought reads nothing."""

    def __init__(
        self,
        ranges: WireRanges,
        bytes_a_round: int,
        state_file: str | None = None,
        again_after_ms: int = AGAIN_AFTER_MS,
    ) -> None:
        self._ranges, self._bytes_a_round = ranges, bytes_a_round
        self._again_after_ms = again_after_ms
        self._file = None if state_file is None else CoverageFile(Path(state_file))
        self._left = 0
        self._goes_on_first = False
        self._seen_wrong: dict[TopicPartition, _Wrong] = {}
        """Batches that are wrong, as each was read last."""
        self.coverage = {} if self._file is None else self._file.load()

    def add_to(
        self, observations: Sequence[PartitionObservation], now_ms: int
    ) -> list[PartitionObservation]:
        """The same observations, some of them with digests."""
        for seen in observations:
            self._forget_what_was_cut(seen)
        self._left = min(self._left, 0) + self._bytes_a_round
        waiting = [o for o in observations if _may_be_read(o)]
        if not waiting:
            return list(observations)
        wrong = [o for o in waiting if self._covered(o).wrong_to]
        found: dict[int, list[BatchDigest]] = {}
        if self._left > 0 and self._goes_on_first:
            self._goes_on_first = False
            self._all_go_on(waiting, found, now_ms)
            self._all_wrong(wrong, found, now_ms)
        else:
            self._goes_on_first |= self._all_wrong(wrong, found, now_ms) and self._left <= 0
            self._all_go_on(waiting, found, now_ms)
        if self._file is not None:
            self._file.save(self.coverage)
        return [
            replace(seen, digests=tuple(found[id(seen)])) if found.get(id(seen)) else seen
            for seen in observations
        ]

    def problems(self) -> list[Problem]:
        """What is wrong with the file, once."""
        return [] if self._file is None else self._file.problems()

    def _all_wrong(
        self,
        wrong: Sequence[PartitionObservation],
        found: dict[int, list[BatchDigest]],
        now_ms: int,
    ) -> bool:
        """For half of what is left in this round, so that the rest of the logs has its turn.
        Whether anything was read."""
        half = self._left // 2
        before = self._ranges.bytes_moved
        for seen in sorted(wrong, key=lambda o: self._seen_wrong.get(_partition(o), _NEVER).at_ms):
            partition, epoch = _partition(seen), seen.state.leader_epoch
            if self._left > half:
                self._seen_wrong[partition] = _Wrong(now_ms, epoch, self._look_again(seen))
            known = self._seen_wrong.get(partition, _NEVER)
            # Under another leader it may have been cut, and fetched anew.
            told = known.digests if known.leader_epoch == epoch else ()
            found[id(seen)] = [*told, *found.get(id(seen), ())]
            if not self._covered(seen).wrong_to:
                self._seen_wrong.pop(partition, None)
        return self._ranges.bytes_moved > before

    def _all_go_on(
        self,
        waiting: Sequence[PartitionObservation],
        found: dict[int, list[BatchDigest]],
        now_ms: int,
    ) -> None:
        for seen in sorted(waiting, key=self._looked_at_ms)[:_AT_ONCE]:
            if self._left <= 0:
                return
            known_wrong = self._covered(seen).wrong_to
            digests = self._go_on(seen, now_ms)
            found[id(seen)] = [*found.get(id(seen), ()), *digests]
            if self._covered(seen).wrong_to and not known_wrong:
                epoch = seen.state.leader_epoch
                self._seen_wrong[_partition(seen)] = _Wrong(now_ms, epoch, digests)

    def _looked_at_ms(self, seen: PartitionObservation) -> int:
        known = self.coverage.get(_partition(seen))
        return 0 if known is None else known.at_ms

    def _covered(self, seen: PartitionObservation) -> Covered:
        known, what = self.coverage.get(_partition(seen)), _what(seen)
        return known if known is not None and known.what == what else Covered(what=what)

    def _forget_what_was_cut(self, seen: PartitionObservation) -> None:
        partition = _partition(seen)
        known = self.coverage.get(partition)
        if known is None:
            return
        ends = [r.log_end_offset for r in seen.replicas if r.log_end_offset is not None]
        if min(ends, default=known.verified_to) < known.verified_to:
            self.coverage[partition] = known._replace(verified_to=min(ends))

    def _look_again(self, seen: PartitionObservation) -> list[BatchDigest]:
        """At the batch that was wrong in an earlier round."""
        partition, covered = _partition(seen), self._covered(seen)
        offsets = OffsetRange(covered.wrong_from, covered.wrong_to)
        gone = offsets.start < max(r.log_start_offset or 0 for r in seen.replicas)
        answers = {} if gone else self._ask(seen, offsets, ONE_BATCH_BYTES)
        if answers is None:
            return []  # nobody knows: it stays
        if not answers or _alike(answers):
            # What else was found since then was not kept: it is looked for at once.
            self.coverage[partition] = covered._replace(
                verified_to=min(covered.verified_to, covered.wrong_from),
                at_ms=0,
                wrong_from=0,
                wrong_to=0,
            )
        return [_digest(broker, answer) for broker, answer in answers.items()]

    def _go_on(self, seen: PartitionObservation, now_ms: int) -> list[BatchDigest]:
        """The next range of this pass."""
        partition, covered = _partition(seen), self._covered(seen)
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
        before = self._ranges.bytes_used
        answers = self._ask(seen, offsets)
        if answers is None:
            return []
        used = (self._ranges.bytes_used - before) // len(answers)
        covered = covered._replace(
            verified_to=offsets.end,
            began_ms=covered.began_ms or now_ms,
            at_ms=now_ms,
            span=self._next_span(offsets, used),
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
        self,
        seen: PartitionObservation,
        offsets: OffsetRange,
        bytes_at_once: int = PARTITION_BYTES,
    ) -> dict[BrokerId, RangeDigest] | None:
        """What every replica says of a range; None where one does not."""
        partition, before = _partition(seen), self._ranges.bytes_moved
        self._ranges.topic_ids[seen.topic] = seen.topic_id
        answers = {}
        try:
            for each in seen.replicas:
                told = self._ranges.digests(
                    each.broker, [(partition, offsets)], check=True, bytes_at_once=bytes_at_once
                )
                if partition not in told or told[partition].starts_at:
                    return None
                answers[each.broker] = told[partition]
        except ConnectorError:
            return None  # the round itself tells of a broker that does not answer
        finally:
            self._spend(seen, before)
        return answers

    def _spend(self, seen: PartitionObservation, before: int) -> None:
        """What was moved since then, by each replica."""
        self._left -= (self._ranges.bytes_moved - before) // len(seen.replicas)

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
        found = None if batch is None else self._ask(seen, batch, ONE_BATCH_BYTES)
        return None if batch is None or found is None or _alike(found) else (batch, found)

    def _first_batch(self, seen: PartitionObservation, offsets: OffsetRange) -> OffsetRange | None:
        """Among few batches, by their headers."""
        partition, before = _partition(seen), self._ranges.bytes_moved
        try:
            marks = [
                self._ranges.marks(each.broker, [(partition, offsets)]).get(partition, ())
                for each in seen.replicas
            ]
        except ConnectorError:
            return None
        finally:
            self._spend(seen, before)
        for side in zip_longest(*marks):
            there = [mark for mark in side if mark is not None]
            if len(set(side)) > 1 or any(mark.intact is False for mark in there):
                first = min(mark.first_offset for mark in there)
                return OffsetRange(first, max(mark.last_offset for mark in there) + 1)
        return None

    def _next_span(self, offsets: OffsetRange, used: int) -> int:
        """As many offsets as some whole fetches bring, going by the last range: less than one is
        not to be had, and of one that is begun the rest would be thrown away."""
        fetches = -(-self._bytes_a_round // (_AT_ONCE * PARTITION_BYTES))
        wanted_bytes = fetches * PARTITION_BYTES * 7 // 8
        span = offsets.end - offsets.start
        wanted = min(span * wanted_bytes // max(used, 1), span * _GROWS_BY)
        return max(1, min(wanted, _LONGEST_SPAN))


def _partition(seen: PartitionObservation) -> TopicPartition:
    return TopicPartition(seen.topic, seen.partition)


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
        None if answer.unreadable_at is not None else answer.digest & WITHIN_63_BITS,
        answer.last_epoch,
        answer.unreadable_at if answer.unreadable_at is not None else answer.invalid_at,
    )
