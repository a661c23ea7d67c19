"""What the monitor keeps of a partition or a cluster between two observations, in bounded space.

After a truncation the evidence is gone from the cluster, so the ledger of what was committed has to
live here: the highest HW ever seen on a leader, and the epochs of the offsets below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tidestaff.consistency.model import (
        Assignment,
        BrokerId,
        ControllerClaim,
        Lineage,
        OffsetRange,
        PartitionSettings,
        PartitionState,
        Registration,
    )
    from tidestaff.consistency.origins import Origins
    from tidestaff.consistency.verdict import Verdicts
    from tidestaff.consistency.versions import Mode, RuleSet

MAX_LEDGER_ENTRIES: Final = 16
MAX_LINEAGE_ENTRIES: Final = 32
MAX_ERAS: Final = 8
MAX_LOST_RANGES: Final = 16
MAX_BESIDE: Final = 8
MAX_ISR_EXITS: Final = 4
MAX_SUSPICIONS: Final = 64
NOBODY: Final = -1
UNKNOWN_EPOCH: Final = -1


class PredictedCut(NamedTuple):
    """Where a replica must end up when it has truncated for one leader epoch.

    `at_least` is the bound that can be judged: a replica may have fetched more before it learnt of
    the epoch than was last seen, and from there on it only grows.
    """

    leader_epoch: int
    offset: int
    at_least: int
    because: str


class ReplicaMemory(NamedTuple):
    """The last coherent sight of one replica.

    `mark_offset` is where the leader's log ended at `mark_at_ms`: once the replica reaches it, it
    is known to have been caught up at that time. `following`: it said itself that it follows in the
    metadata's leader epoch. `fetched_in_epoch`: there was proof that it fetched in that epoch.
    `led_to`: where its log ended as it led by its own word in a round since that is not coherent.
    """

    broker: BrokerId
    broker_epoch: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    lineage: Lineage | None
    leader_epoch: int
    partition_epoch: int
    caught_up_at_ms: int
    mark_at_ms: int
    mark_offset: int
    following: bool = False
    fetched_in_epoch: bool = False
    cut: PredictedCut | None = None
    isr_exits_ms: tuple[int, ...] = ()
    led_to: int = 0


class Era(NamedTuple):
    """One leader epoch: who led, and the leader's LEO when it was first seen leading.

    `start_offset` is exact only while `exact`: the first sample may come after the first write.
    """

    epoch: int
    leader: BrokerId
    start_offset: int
    exact: bool


class SettledWatermark(NamedTuple):
    """What a replica's HW checkpoint holds at the least: an HW that has stood for its interval.

    `marks` are (time, HW) of the last interval, from which the next one comes.
    """

    broker: BrokerId
    offset: int
    marks: tuple[tuple[int, int], ...]


class KeptTail(NamedTuple):
    """Old records a returning replica keeps by the high-watermark rule although its leader has
    written others there: [start, end)."""

    broker: BrokerId
    leader_epoch: int
    start: int
    end: int


class Lost(NamedTuple):
    """Committed offsets that were reported as lost, and the epoch of the records that were there:
    others that are written and committed at these offsets later can be lost too."""

    offsets: OffsetRange
    epoch: int

    def may_be(self, other: Lost) -> bool:
        """Whether both may be the same records."""
        return self.epoch == other.epoch or UNKNOWN_EPOCH in (self.epoch, other.epoch)


class Beside(NamedTuple):
    """Records [offsets] of `epoch` that a leader of `leader_epoch` had committed, by its own word,
    while the ledger has others there: two leaders, and nobody in office to tell which holds."""

    offsets: OffsetRange
    epoch: int
    leader_epoch: int


class Verified(NamedTuple):
    """All copies hold the same in [start, end): compared in one pass that began at `began_ms` and
    came to `end` at `at_ms`, under `leader_epoch`. `epoch` is that of the last record there."""

    start: int
    end: int
    epoch: int
    leader_epoch: int
    began_ms: int
    at_ms: int


class Suspicion(NamedTuple):
    """A condition that is met but must last its grace time before it is an alert."""

    code: str
    broker: BrokerId
    since_ms: int
    last_ms: int
    samples: int


class PartitionMemory(NamedTuple):
    """All that is kept of one partition.

    `last_isr`: the ISR when there last was a leader; None if it may have changed unseen.
    """

    topic_id: str | None
    state_czxid: int | None
    observed_at_ms: int
    interval_ms: int
    rules: RuleSet
    state: PartitionState
    assignment: Assignment
    live: tuple[Registration, ...]
    settings: PartitionSettings
    controller: BrokerId | None
    controller_epoch: int | None
    controller_epoch_before_state: int | None
    controller_since_ms: int
    committed_start: int
    committed_end: int
    ledger: Lineage
    ledger_end: int
    eras: tuple[Era, ...]
    replicas: tuple[ReplicaMemory, ...]
    joined_isr: tuple[BrokerId, ...]
    suspicions: tuple[Suspicion, ...]
    lost: tuple[OffsetRange, ...]
    was_compacted: bool
    settled_watermarks: tuple[SettledWatermark, ...]
    kept_tails: tuple[KeptTail, ...]
    calm: Verdicts | None
    last_isr: tuple[BrokerId, ...] | None = None
    origins: Origins | None = None
    lost_epochs: tuple[int, ...] = ()
    verified: Verified | None = None
    beside: tuple[Beside, ...] = ()

    @property
    def losses(self) -> tuple[Lost, ...]:
        """`lost` with the epochs beside it; state that was kept without them knows none."""
        missing = len(self.lost) - len(self.lost_epochs)
        epochs = (UNKNOWN_EPOCH,) * missing + self.lost_epochs
        return tuple(map(Lost, self.lost, epochs))

    def replica(self, broker: BrokerId) -> ReplicaMemory | None:
        for replica in self.replicas:
            if replica.broker == broker:
                return replica
        return None

    def era(self, epoch: int) -> Era | None:
        for era in self.eras:
            if era.epoch == epoch:
                return era
        return None


class ClusterMemory(NamedTuple):
    """All that is kept of one cluster as a whole."""

    observed_at_ms: int
    mode: Mode
    controller: BrokerId | None
    controller_epoch: int | None
    registrations: tuple[Registration, ...]
    epoch_owner: ControllerClaim | None
    suspicions: tuple[Suspicion, ...]


class HealthMemory(NamedTuple):
    """All that is kept of one source's own health."""

    observed_at_ms: int
    suspicions: tuple[Suspicion, ...]


Memory: TypeAlias = PartitionMemory | ClusterMemory | HealthMemory
