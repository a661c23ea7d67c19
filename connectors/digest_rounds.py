"""Contents compared all the time: in every round some bytes of some partitions, as digests that the
observations carry and the LOG rules judge.

Partitions take turns, the one that was looked at longest ago first. One that is being changed, that
lags, that is cleaned or that is tiered is passed over: reading must not hurt whoever catches up.
What has been looked at is kept in a file, so that a restart goes on from there; after a while a
partition begins anew, because disks rot also where nobody writes. It begins anew at once when it is
another topic of the same name, or has other replicas; where a log was cut, from the cut.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.errors import ConnectorError
from tidestaff.consistency.model import BatchDigest, Bracket, OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.connectors.digest_wire import WireRanges
    from tidestaff.consistency.batches import RangeDigest
    from tidestaff.consistency.model import BrokerId, PartitionObservation

_FIRST_SPAN: Final = 1_000
_LONGEST_SPAN: Final = 1 << 40
_AT_ONCE: Final = 4
_AGAIN_AFTER_MS: Final = 24 * 3_600_000
_WITHIN_63_BITS: Final = (1 << 63) - 1


class Covered(NamedTuple):
    """Of one partition: equal so far up to an offset, since when this pass goes on, when it was
    last looked at, how many offsets are worth asking for at once, and what is compared: which
    topic, on which brokers."""

    verified_to: int = 0
    began_ms: int = 0
    at_ms: int = 0
    span: int = _FIRST_SPAN
    what: str = ""


class DigestRounds:
    """`bytes_a_round` of every replica, about; nought reads nothing."""

    def __init__(
        self, ranges: WireRanges, bytes_a_round: int, state_file: str | None = None
    ) -> None:
        self._ranges, self._bytes_a_round = ranges, bytes_a_round
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
        found = [self._with_digests(o, now_ms) if id(o) in chosen else o for o in observations]
        if chosen:
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

    def _with_digests(self, seen: PartitionObservation, now_ms: int) -> PartitionObservation:
        partition, covered = TopicPartition(seen.topic, seen.partition), self._covered(seen)
        start = max(r.log_start_offset or 0 for r in seen.replicas)
        end = min(min(r.high_watermark or 0, r.log_end_offset or 0) for r in seen.replicas)
        if end - covered.verified_to < covered.span and covered.began_ms:
            # Seen to its end, or so near to it that one that is written to never gets nearer.
            over = now_ms - covered.began_ms > _AGAIN_AFTER_MS
            covered = covered._replace(verified_to=0, began_ms=now_ms) if over else covered
        begin = max(start, covered.verified_to)
        if begin >= end:
            self.coverage[partition] = covered._replace(at_ms=now_ms)
            return seen
        offsets = OffsetRange(begin, min(end, begin + covered.span))
        self._ranges.topic_ids[seen.topic] = seen.topic_id
        before = self._ranges.bytes_moved
        try:
            told = {
                r.broker: self._ranges.digests(r.broker, [(partition, offsets)], check=True)
                for r in seen.replicas
            }
        except ConnectorError:
            return seen  # the round itself tells of a broker that does not answer
        answers = {broker: found[partition] for broker, found in told.items() if partition in found}
        if len(answers) < len(seen.replicas) or any(a.starts_at for a in answers.values()):
            self.coverage[partition] = covered._replace(at_ms=now_ms)
            return seen
        moved = (self._ranges.bytes_moved - before) // len(answers)
        self.coverage[partition] = Covered(
            offsets.end,
            covered.began_ms or now_ms,
            now_ms,
            self._next_span(offsets, moved),
            covered.what,
        )
        return replace(seen, digests=tuple(_digest(b, a) for b, a in answers.items()))

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
                TopicPartition(topic, int(number)): Covered(
                    int(verified_to), int(began_ms), int(at_ms), int(span), str(what)
                )
                for topic, number, (verified_to, began_ms, at_ms, span, what) in content["coverage"]
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


def _digest(broker: BrokerId, answer: RangeDigest) -> BatchDigest:
    return BatchDigest(
        broker,
        answer.offsets,
        None if answer.unreadable_at is not None else answer.digest & _WITHIN_63_BITS,
        answer.last_epoch,
        answer.unreadable_at if answer.unreadable_at is not None else answer.invalid_at,
    )
