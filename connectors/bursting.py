"""Which partitions are worth a closer look: those whose leader epoch has just changed.

What goes wrong goes wrong in the seconds after a new leader; a few samples at short distance see
what the next round would find gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidestaff.connectors.cluster_view import KnownPartition
    from tidestaff.consistency.model import TopicPartition


class EpochChanges:
    """Keeps the leader epoch of every partition from round to round."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._epochs: dict[TopicPartition, int] | None = None

    def moved(self, partitions: Mapping[TopicPartition, KnownPartition]) -> list[TopicPartition]:
        """Those in another epoch than a round ago, no more than `most`. A partition that is new has
        no epoch to differ from."""
        before, now = self._epochs, {p: known.state.leader_epoch for p, known in partitions.items()}
        self._epochs = now
        if before is None:
            return []
        changed = [p for p, epoch in now.items() if before.get(p, epoch) != epoch]
        return changed[: self._most]
