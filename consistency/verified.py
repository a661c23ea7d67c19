"""How far all copies of a partition were compared, batch by batch, and found equal.

Digests come for a range now and then, each where the last one ended. What they showed holds until
a log is cut below it, other records are written there, or a copy is made that nobody has compared.
Showing too little is a fault that mends itself, showing too much is not: in doubt it is less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.checks.contents import comparable
from tidestaff.consistency.memory import UNKNOWN_EPOCH, Verified

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tidestaff.consistency.checks.sight import Sight
    from tidestaff.consistency.memory import Era, Lost
    from tidestaff.consistency.model import BatchDigest, OffsetRange


def verified(sight: Sight, eras: Collection[Era], lost: Collection[Lost]) -> Verified | None:
    """What is known to be equal after this observation. `eras` and `lost` are as they are now."""
    if sight.compacted:
        return None
    known = _still_true(sight, eras, lost)
    for offsets, digests in sorted(_by_range(sight).items()):
        if not _equal(sight, offsets, digests):
            known = _up_to(known, offsets.start)
            continue
        goes_on = known if known is not None and known.end == offsets.start else None
        known = Verified(
            start=goes_on.start if goes_on is not None else offsets.start,
            end=offsets.end,
            epoch=max(_epoch(each) for each in digests),
            leader_epoch=sight.state.leader_epoch,
            began_ms=goes_on.began_ms if goes_on is not None else sight.now_ms,
            at_ms=sight.now_ms,
        )
    return known


def _still_true(sight: Sight, eras: Collection[Era], lost: Collection[Lost]) -> Verified | None:
    memory = sight.memory
    known = memory.verified if memory is not None else None
    if memory is None or known is None:
        return None
    if not set(sight.observation.assignment.replicas) <= set(memory.assignment.replicas):
        return None  # a copy that was never compared
    bounds = [
        *(each.log_end_offset for each in sight.replicas if each.log_end_offset is not None),
        *_written_anew(sight, eras, known),
        *(each.offsets.start for each in lost if each not in memory.losses),
    ]
    return _up_to(known, min(bounds, default=known.end))


def _written_anew(sight: Sight, eras: Collection[Era], known: Verified) -> Iterator[int]:
    """Where leaders began that were elected after the comparison."""
    for era in eras:
        if era.epoch > known.leader_epoch and era.start_offset >= 0:
            yield era.start_offset
    for reading in sight.replicas:
        for entry in reading.lineage or ():
            if entry.epoch > known.leader_epoch:
                yield entry.start_offset


def _up_to(known: Verified | None, end: int) -> Verified | None:
    if known is None or end <= known.start:
        return None
    return known if end >= known.end else known._replace(end=end)


def _by_range(sight: Sight) -> dict[OffsetRange, list[BatchDigest]]:
    found: dict[OffsetRange, list[BatchDigest]] = {}
    for digest in sight.observation.digests:
        found.setdefault(digest.offsets, []).append(digest)
    return found


def _equal(sight: Sight, offsets: OffsetRange, digests: list[BatchDigest]) -> bool:
    """Every assigned replica was read, whole, and all say the same."""
    everybody = {each.broker for each in digests} == set(sight.observation.assignment.replicas)
    whole = all(each.crc is not None and each.invalid_at is each.gap_at is None for each in digests)
    alike = len({each.crc for each in digests}) == 1
    judged = sight.coherent and comparable(sight, digests, offsets)
    return everybody and len(digests) > 1 and whole and alike and judged


def _epoch(digest: BatchDigest) -> int:
    return UNKNOWN_EPOCH if digest.leader_epoch is None else digest.leader_epoch
