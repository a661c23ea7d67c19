"""Which copy is wrong where copies differ: by majority, by its own checksum, by lineage.

Two copies that differ are alike in being different. Three have a majority. Of two, the one whose
bytes do not match their checksum is wrong; else the one whose batch was written in another leader
epoch than the leader's lineage has there; else the one that is not the leader.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidestaff.consistency.batches import BatchMark, Extent
    from tidestaff.consistency.partitions import BrokerId, Lineage

BY_MAJORITY: Final = "the others agree"
BY_CHECKSUM: Final = "its bytes do not match its checksum"
BY_LINEAGE: Final = "the leader's lineage has another epoch there"
BY_NEWEST_LINEAGE: Final = "the lineage that goes on to the newest epoch has another one there"
"""Where nobody says who leads."""
BY_ABSENCE: Final = "it has no such batch; the other's is of the epoch the lineage has there"
BY_LEADER: Final = "the leader holds something else"
CANNOT_TELL: Final = "nothing tells which is right"


class Reference(NamedTuple):
    """Whose words count: the leader, and its lineage. Without a leader (copied directories) it is
    the lineage that goes on to the newest epoch, if one alone does."""

    leader: BrokerId | None
    lineage: Lineage

    @classmethod
    def of(cls, extents: Sequence[Extent], leader: BrokerId | None) -> Reference:
        lineages = {e.broker: e.lineage for e in extents if e.lineage}
        if leader is not None:
            return cls(leader, lineages.get(leader, ()))
        newest = max((lineage[-1].epoch for lineage in lineages.values()), default=None)
        with_it = [lineage for lineage in lineages.values() if lineage[-1].epoch == newest]
        return cls(None, with_it[0] if len(set(with_it)) == 1 else ())

    def epoch_at(self, offset: int) -> int | None:
        return max((e.epoch for e in self.lineage if e.start_offset <= offset), default=None)


def minority_of(
    held: Mapping[BrokerId, BatchMark | None], offset: int, reference: Reference
) -> tuple[tuple[BrokerId, ...], str]:
    """The wrong ones and by what they are known; none where nothing tells."""
    kinds = Counter(mark and mark.identity for mark in held.values())
    most, votes = kinds.most_common(1)[0]
    if votes * 2 > len(held):
        return _those(held, lambda m: (m and m.identity) != most), BY_MAJORITY
    rotten = _those(held, lambda m: m is not None and m.intact is False)
    if rotten:
        return rotten, BY_CHECKSUM
    expected = reference.epoch_at(offset)
    if expected is not None:
        wrong = _those(held, lambda m: m is None or m.leader_epoch != expected)
        if 0 < len(wrong) < len(held):
            if all(held[broker] is None for broker in wrong):
                return wrong, BY_ABSENCE
            return wrong, BY_LINEAGE if reference.leader is not None else BY_NEWEST_LINEAGE
    if reference.leader is not None and reference.leader in held:
        right = held[reference.leader]
        return _those(held, lambda m: (m and m.identity) != (right and right.identity)), BY_LEADER
    return (), CANNOT_TELL


def _those(
    held: Mapping[BrokerId, BatchMark | None], wrong: Callable[[BatchMark | None], bool]
) -> tuple[BrokerId, ...]:
    return tuple(sorted(broker for broker, mark in held.items() if wrong(mark)))
