"""What the simulator's own ledger is made of: the entries that `truth` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.log import Run
    from tidestaff.consistency.model import BrokerId, OffsetRange, TopicPartition


class Loss(NamedTuple):
    """Committed records [start, end) that the leader of `leader_epoch` does not hold.

    `records` are the lost ones. `unclean`: there was an election outside the ISR (and ELR) since
    the leader before it took office; `damaged`: its own disk had lost records. Either explains a
    loss; with neither the protocol itself lost the data.
    """

    at_ms: int
    partition: TopicPartition
    topic_id: str
    offsets: OffsetRange
    leader: BrokerId
    leader_epoch: int
    unclean: bool
    damaged: bool
    records: tuple[Run, ...] = ()


class Divergence(NamedTuple):
    """Two members of the ISR that hold different records at committed offsets: these, of either."""

    at_ms: int
    partition: TopicPartition
    topic_id: str
    offsets: OffsetRange
    brokers: tuple[BrokerId, BrokerId]
    damaged: bool
    records: tuple[tuple[Run, ...], tuple[Run, ...]] = ((), ())


class UncleanElection(NamedTuple):
    """A leader that was in neither the ISR nor the ELR just before."""

    at_ms: int
    partition: TopicPartition
    leader: BrokerId
    leader_epoch: int
    topic_id: str


class StaleWrite(NamedTuple):
    """A controller that had been replaced wrote a partition's state: that of `controller_epoch`,
    when `current_epoch` had begun."""

    at_ms: int
    partition: TopicPartition
    controller_epoch: int
    current_epoch: int


class Stranded(NamedTuple):
    """The last in-sync replica, deleted because a reassignment was replaced by another."""

    at_ms: int
    partition: TopicPartition
    broker: BrokerId


class StrayCommit(NamedTuple):
    """What a leader committed after it had left the assignment: whoever asks the assigned replicas
    does not hear of it."""

    at_ms: int
    partition: TopicPartition
    topic_id: str
    broker: BrokerId
    records: tuple[Run, ...]


class TornTail(NamedTuple):
    """What a power loss took from a log: it had not been flushed."""

    at_ms: int
    partition: TopicPartition
    topic_id: str
    broker: BrokerId
    offsets: OffsetRange
