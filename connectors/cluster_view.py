"""The metadata of a cluster at one moment, whoever tells it: a broker's cache, or ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tidestaff.connectors.broker_health import Problem
    from tidestaff.consistency.model import (
        Assignment,
        BrokerId,
        PartitionState,
        Registration,
        TopicPartition,
    )
    from tidestaff.consistency.versions import RuleSet


class KnownPartition(NamedTuple):
    """A partition as the source has it. `version` is what must not change while replicas are read.

    `agreed`: all that is said of it is about the same moment. `settled`: it was the same already in
    the round before, so that its brokers have heard of it.
    """

    state: PartitionState
    assignment: Assignment
    version: object
    topic_id: str | None = None
    state_czxid: int | None = None
    deleting: bool = False
    agreed: bool = True
    settled: bool = False


class ClusterView(NamedTuple):
    """All partitions that are wanted, who is registered, and who is controller.

    `imbalance`: of the partitions that prefer a broker, the share it does not lead; empty while the
    controller does not rebalance. `controller` is None where it is not told, -1 where there is
    none; the two epochs enclose it. `voters` of a KRaft quorum elect it by majority.
    `log_dir_events` is another number when a broker has told the controller that it lost a log
    directory.
    """

    registrations: Mapping[BrokerId, Registration]
    partitions: Mapping[TopicPartition, KnownPartition]
    imbalance: Mapping[BrokerId, float]
    controller: BrokerId | None = None
    controller_epoch: int | None = None
    controller_epoch_before: int | None = None
    voters: tuple[BrokerId, ...] = ()
    log_dir_events: int = 0

    @property
    def live(self) -> set[BrokerId]:
        """Brokers that can be asked: a fenced one is known to the controller, and no more."""
        return {broker for broker, each in self.registrations.items() if not each.fenced}


class ChangedValues(NamedTuple):
    """Settings that were changed while the cluster runs; None is the default of all brokers."""

    topics: Mapping[str, Mapping[str, str]]
    brokers: Mapping[BrokerId | None, Mapping[str, str]]


# Tells brokers and topics to whoever keeps their settings; gives back the rules that count. A topic
# comes with what tells it from one that had its name before: its id, or the making of its state.
Refresh = Callable[
    [Collection["BrokerId"], Mapping[str, object], "ChangedValues | None"],
    "RuleSet",
]
Problems = dict[str, "Problem"]


class MetadataSource(Protocol):
    """Tells the metadata before the replicas are read, and again after them.

    `before` may raise a ConnectorError: then the round saw nothing. `after` is None where it could
    not be read, or where what was read before does not count any more. What else cannot be read is
    noted by its place.
    """

    name: str
    authoritative: bool

    def before(self, turn: int, refresh: Refresh, problems: Problems) -> ClusterView: ...
    def after(self, turn: int, problems: Problems) -> ClusterView | None: ...
    def close(self) -> None: ...
