"""What two epoch files of before 2.0.1 can tell of two logs: less than they seem to.

Such a file ignores an epoch that is not larger than its last. A follower that is cut to its high
watermark (its leader does not know its epoch) goes on with records of older epochs, and its file
lists none of them. A record is therefore of the listed epoch or of an older one. It is of the
listed one where an entry starts, and from where on its holder has followed nobody but the leader
of that epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidestaff.consistency.model import Lineage, OffsetRange, ReplicaReading


def listed(file: Lineage, offset: int) -> tuple[int, int] | None:
    """The entry that speaks of this offset: its place in the file and its epoch."""
    at = [place for place, entry in enumerate(file) if entry.start_offset <= offset]
    return (at[-1], file[at[-1]].epoch) if at else None


def certain(reading: ReplicaReading, offset: int) -> bool:
    """Whether the record there is of the listed epoch, and not of an older one."""
    file = reading.lineage or ()
    entry = listed(file, offset)
    if entry is None:
        return False
    place, epoch = entry
    # The first entry is moved up with the log start.
    starts_here = file[place].start_offset == offset and (place > 0 or offset == 0)
    believed = reading.leader_epoch
    followed = believed is not None and epoch >= believed - bool(reading.leads)
    return starts_here or followed


def tell_apart(one: ReplicaReading, other: ReplicaReading, offset: int) -> bool:
    """Whether these two files prove other records at this offset."""
    mine, theirs = listed(one.lineage or (), offset), listed(other.lineage or (), offset)
    if mine is None or theirs is None or mine[1] == theirs[1]:
        return False
    return certain(one if mine[1] > theirs[1] else other, offset)


def tell_nothing(one: ReplicaReading, other: ReplicaReading, within: OffsetRange) -> bool:
    return not any(tell_apart(one, other, offset) for offset in range(*within))
