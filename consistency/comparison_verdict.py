"""What a comparison of contents can say."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.partitions import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.consistency.batches import BatchMark
    from tidestaff.consistency.partitions import BrokerId
    from tidestaff.consistency.windows import Above, Apart, Behind


class Outcome(Enum):
    """The verdict in one word."""

    EQUAL = "equal"
    BEHIND = "behind"
    DIVERGED = "diverged"
    CORRUPT = "corrupt"
    NOT_COMPARABLE = "not comparable"


class Difference(NamedTuple):
    """Batches in a row that differ in the same way. `held` is what each copy has at the first of
    them; `minority` those that are wrong, as far as it can be told, and `why` by what."""

    offsets: OffsetRange
    minority: tuple[BrokerId, ...]
    why: str
    held: Mapping[BrokerId, BatchMark | None]
    batches: int
    records: int


class Corrupt(NamedTuple):
    """A copy with a batch that is not what was written."""

    broker: BrokerId
    offset: int
    why: str


class Uncompared(NamedTuple):
    """Offsets that could not be compared."""

    offsets: OffsetRange
    why: str
    batches: int = 0


class Verdict(NamedTuple):
    """Of one partition. `equal_up_to` and `epoch`: so far the copies that were read are alike.

    `complete` is False where a limit was reached: then there is more that differs than is told.
    `apart`: copies that took no part. `above`: what copies hold above their own high watermarks.
    `compared` is False where no copy holds anything committed: then nothing differs.
    """

    outcome: Outcome
    equal_up_to: int | None = None
    epoch: int | None = None
    differences: tuple[Difference, ...] = ()
    corrupt: tuple[Corrupt, ...] = ()
    behind: tuple[Behind, ...] = ()
    uncompared: tuple[Uncompared, ...] = ()
    unread: tuple[tuple[BrokerId, str], ...] = ()
    why: str = ""
    complete: bool = True
    apart: tuple[Apart, ...] = ()
    above: tuple[Above, ...] = ()
    compared: bool = True


def joined(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    """Neighbours with the same minority as one. They may overlap: batches are cut differently."""
    found: list[Difference] = []
    for each in sorted(differences, key=lambda d: (d.offsets.end, d.offsets.start)):
        last = found[-1] if found else None
        near = last is not None and each.offsets.start <= last.offsets.end
        if last is not None and near and each.minority == last.minority:
            start = min(last.offsets.start, each.offsets.start)
            end = max(last.offsets.end, each.offsets.end)
            records = min(last.records + each.records, end - start)
            found[-1] = last._replace(
                offsets=OffsetRange(start, end),
                batches=last.batches + each.batches,
                records=records,
            )
        else:
            found.append(each)
    return tuple(found)
