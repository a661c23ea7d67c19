"""The four states a ZooKeeper-mode controller keeps a partition in, and the moves between them.

Mirrors PartitionState and its valid previous states in PartitionStateMachine (0.8 - 3.9).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class PartitionLifecycle(Enum):
    """What the controller remembers of a partition; never stored in ZooKeeper."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


VALID_PREVIOUS: Final[Mapping[PartitionLifecycle, frozenset[PartitionLifecycle]]] = {
    PartitionLifecycle.NON_EXISTENT: frozenset({PartitionLifecycle.OFFLINE}),
    PartitionLifecycle.NEW: frozenset({PartitionLifecycle.NON_EXISTENT}),
    PartitionLifecycle.ONLINE: frozenset(
        {PartitionLifecycle.NEW, PartitionLifecycle.ONLINE, PartitionLifecycle.OFFLINE}
    ),
    PartitionLifecycle.OFFLINE: frozenset(
        {PartitionLifecycle.NEW, PartitionLifecycle.ONLINE, PartitionLifecycle.OFFLINE}
    ),
}


def next_lifecycle(
    current: PartitionLifecycle, asked: PartitionLifecycle, *, state_written: bool = True
) -> PartitionLifecycle:
    """A partition moves to `asked` only from a valid previous state, else it stays where it is.

    It becomes Online only when its state was written: a failed election or creation changes
    nothing.
    """
    if current not in VALID_PREVIOUS[asked]:
        return current
    if asked is PartitionLifecycle.ONLINE and not state_written:
        return current
    return asked
