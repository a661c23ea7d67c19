"""The places a collector reads from, each late or lossy in its own way.

A broker's answer may take its time, or not come. Metadata may be old: a ZooKeeper server that lags
behind the others, or a broker that was not told yet, answers with what was true a while ago.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.coordination import PartitionMetadata
    from tidestaff.consistency.model import (
        BrokerId,
        ControllerClaim,
        Registration,
        TopicPartition,
    )

METADATA: Final = "metadata"


class Trouble(NamedTuple):
    """What is wrong with one place.

    `delay_ms`: a broker's answer takes up to that long; metadata is that old. `loss`: the
    probability that an answer of a broker does not come.
    """

    delay_ms: int = 0
    loss: float = 0.0


WELL: Final = Trouble()


def broker_place(broker: BrokerId) -> str:
    """As health observations name it."""
    return f"broker {broker}"


class Metadata(NamedTuple):
    """All that the metadata said at one moment; read like the cluster's own."""

    at_ms: int
    known: dict[TopicPartition, PartitionMetadata]
    members: tuple[Registration, ...]
    boss: BrokerId | None
    epoch: int
    claimed: tuple[ControllerClaim, ...]

    def partitions(self) -> list[TopicPartition]:
        return list(self.known)

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        return self.known.get(partition)

    def registrations(self) -> tuple[Registration, ...]:
        return self.members

    def controller(self) -> BrokerId | None:
        return self.boss

    def controller_epoch(self) -> int:
        return self.epoch

    def claims(self) -> tuple[ControllerClaim, ...]:
        return self.claimed


class LateMetadata:
    """Keeps what the metadata said after every event, for as long as somebody may still be shown
    it."""

    def __init__(self, cluster: SimulatedCluster, delay_ms: int) -> None:
        self._cluster, self._delay_ms = cluster, delay_ms
        self._past: deque[Metadata] = deque([self._read()])
        self._next_listener = cluster.after_event
        cluster.after_event = self._after_event

    def now(self) -> Metadata:
        """What a reader is shown now."""
        shown_ms = self._cluster.now_ms - self._delay_ms
        while len(self._past) > 1 and self._past[1].at_ms <= shown_ms:
            self._past.popleft()
        return self._past[0]

    def _after_event(self, touched: Sequence[TopicPartition]) -> None:
        seen = self._read()
        if seen[1:] != self._past[-1][1:]:
            self._past.append(seen)
        if self._next_listener is not None:
            self._next_listener(touched)

    def _read(self) -> Metadata:
        mode = self._cluster.mode
        known = {p: m for p in mode.partitions() if (m := mode.partition(p)) is not None}
        return Metadata(
            self._cluster.now_ms,
            known,
            mode.registrations(),
            mode.controller(),
            mode.controller_epoch(),
            mode.claims(),
        )
