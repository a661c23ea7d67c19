"""A cluster that is a few dictionaries: what each broker would answer, and who does not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidestaff.connectors.broker_answers import (
    EARLIEST,
    EARLIEST_LOCAL,
    NO_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    BatchHeader,
    ClusterMetadata,
    Eligible,
    EpochEnd,
    EpochQuestion,
    FetchedBatches,
    FetchedState,
    ListedOffset,
    ListedPartition,
    LogDir,
    Moving,
    Quorum,
    Software,
    TopicValues,
)
from tidestaff.connectors.errors import BrokerSilentError, ClusterUnreachableError, ConnectorError
from tidestaff.connectors.setting_values import from_one_place
from tidestaff.consistency.model import Registration, SettingSource, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidestaff.connectors.setting_values import Told

FENCED_LEADER_EPOCH = 74
KRAFT_39 = Software("3.9", kraft=True, metadata_level=21, elr=False)
QUORUM = Quorum(1, 5)
ORDERS = TopicPartition("orders", 0)


@dataclass
class FakeReplica:
    """One copy of a log, with what its broker believes."""

    leo: int = 10
    hw: int = 10
    start: int = 0
    epoch: int = 0
    leads: bool = False
    error: int = NO_ERROR
    fetch_error: int = NO_ERROR
    lineage: tuple[tuple[int, int], ...] = ((0, 0),)
    names_epoch: bool = True
    fetch_tells_start: bool = True
    local_start: int = 0

    @property
    def batches(self) -> list[BatchHeader]:
        """One record each."""
        starts = dict(self.lineage)
        epoch, found = -1, []
        for offset in range(self.leo):
            epoch = max((e for e, start in starts.items() if start <= offset), default=epoch)
            found.append(BatchHeader(offset, offset, epoch))
        return [each for each in found if each.last_offset >= self.start]

    def end_offset_for(self, epoch: int) -> EpochEnd:
        """As the leader answers it from 2.0.1 on."""
        if epoch == self.lineage[-1][0]:
            return EpochEnd(NO_ERROR, epoch, self.leo)
        higher = [each for each in self.lineage if each[0] > epoch]
        if epoch < 0 or not higher:
            return EpochEnd(NO_ERROR)
        lower = [each[0] for each in self.lineage if each[0] <= epoch]
        return EpochEnd(NO_ERROR, lower[-1] if lower else epoch, higher[0][1])


@dataclass
class FakeCluster:
    """Implements BrokerReader. `before` is called with the name of every question, so that a test
    can let the cluster live on in between."""

    partitions: dict[TopicPartition, ListedPartition] = field(default_factory=dict)
    replicas: dict[tuple[int, TopicPartition], FakeReplica] = field(default_factory=dict)
    live: dict[int, str | None] = field(default_factory=lambda: dict.fromkeys((1, 2, 3)))
    silent: set[int] = field(default_factory=set)
    told: Software = KRAFT_39
    cluster_id: str | None = None
    leader_of_quorum: Quorum = QUORUM
    moving: dict[TopicPartition, Moving] = field(default_factory=dict)
    elr: dict[TopicPartition, Eligible] = field(default_factory=dict)
    topic_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_settings: dict[str, str] = field(default_factory=dict)
    refused_settings: tuple[str, ...] = ()
    hidden_topics: tuple[str, ...] = ()
    registrations: tuple[Registration, ...] = ()
    directories: dict[int, tuple[LogDir, ...]] = field(default_factory=dict)
    errors: dict[str, ConnectorError] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    sizes: list[int] = field(default_factory=list)
    fetched_from: dict[tuple[int, TopicPartition], int] = field(default_factory=dict)
    before: Callable[[str], None] = lambda _: None

    @staticmethod
    def with_topic(
        name: str = "orders", *, partitions: int = 1, leader: int = 1, epoch: int = 0
    ) -> FakeCluster:
        """Three replicas on brokers 1 to 3, all in sync."""
        made = FakeCluster()
        for number in range(partitions):
            partition = TopicPartition(name, number)
            made.partitions[partition] = ListedPartition(
                leader, epoch, (1, 2, 3), (1, 2, 3), f"id-of-{name}"
            )
            for broker in (1, 2, 3):
                made.replicas[broker, partition] = FakeReplica(
                    epoch=epoch,
                    leads=broker == leader,
                    lineage=tuple((each, 2 * each) for each in range(epoch + 1)),
                )
        return made

    def elect(self, leader: int, partition: TopicPartition = ORDERS) -> None:
        """A new leader in the next epoch, and everybody has heard of it."""
        known = self.partitions[partition]
        epoch = known.leader_epoch + 1
        self.partitions[partition] = known._replace(leader=leader, leader_epoch=epoch)
        for broker in known.replicas:
            replica = self.replicas[broker, partition]
            self.replicas[broker, partition] = replace(
                replica,
                epoch=epoch,
                leads=broker == leader,
                lineage=(*replica.lineage, (epoch, replica.leo)),
            )

    def _asked(self, name: str, broker: int | None = None) -> None:
        self.asked[name] += 1
        self.before(name if broker is None else f"{name} {broker}")
        if name in self.errors:
            raise self.errors[name]
        if broker in self.silent:
            self.asked[f"in vain {broker}"] += 1
            raise BrokerSilentError(broker or 0, "timed out")

    def metadata(self, turn: int) -> ClusterMetadata:
        self._asked("metadata")
        if not set(self.live) - self.silent:
            raise ClusterUnreachableError("somewhere:9092", "timed out")
        return ClusterMetadata(dict(self.live), 1, dict(self.partitions), self.cluster_id)

    def software(self) -> Software:
        self._asked("software")
        return self.told

    def quorum(self) -> Quorum:
        self._asked("quorum")
        return self.leader_of_quorum

    def registered(self) -> Sequence[Registration]:
        self._asked("registered")
        return self.registrations

    def refused_topics(self, topics: Sequence[str]) -> Sequence[str]:
        self._asked("refused_topics")
        return [each for each in topics if each in self.hidden_topics]

    def reassignments(self, controller: int) -> Mapping[TopicPartition, Moving]:
        self._asked("reassignments")
        return self.moving

    def eligible(self) -> Mapping[TopicPartition, Eligible]:
        self._asked("eligible")
        return self.elr

    def topic_values(self, topics: Sequence[str], keys: Sequence[str]) -> TopicValues:
        self._asked("topic_values")
        found = {
            each: from_one_place(self.topic_settings.get(each, {}), SettingSource.TOPIC)
            for each in topics
        }
        for each in self.refused_settings:
            found.pop(each, None)
        return TopicValues(found, tuple(each for each in self.refused_settings if each in topics))

    def broker_values(self, broker: int, keys: Sequence[str]) -> Mapping[str, Told]:
        self._asked("broker_values", broker)
        return from_one_place(self.broker_settings, SettingSource.STATIC)

    def close(self) -> None:
        self._asked("close")

    def ping(self, broker: int) -> None:
        self._asked("ping", broker)

    def log_dirs(self, broker: int) -> Sequence[LogDir]:
        self._asked("log_dirs", broker)
        return self.directories.get(broker, (LogDir("/data", NO_ERROR),))

    def list_offsets(
        self, broker: int, partitions: Sequence[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, ListedOffset]:
        names = {EARLIEST: "earliest", EARLIEST_LOCAL: "earliest_local"}
        self._asked(names.get(timestamp, "latest"), broker)
        self.sizes.append(len(partitions))
        found = {}
        for partition in partitions:
            replica = self.replicas.get((broker, partition))
            if replica is None:
                found[partition] = ListedOffset(UNKNOWN_TOPIC_OR_PARTITION)
            elif replica.error:
                found[partition] = ListedOffset(replica.error)
            else:
                offsets = {EARLIEST: replica.start, EARLIEST_LOCAL: replica.local_start}
                offset = offsets.get(timestamp, replica.leo)
                epoch = replica.epoch if replica.names_epoch else None
                found[partition] = ListedOffset(NO_ERROR, offset, epoch)
        return found

    def leading(
        self, broker: int, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, bool]:
        self._asked("leading", broker)
        return {p: self.replicas[broker, p].leads for p in partitions}

    def fetch(
        self,
        broker: int,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
    ) -> Mapping[TopicPartition, FetchedState]:
        self._asked("fetch", broker)
        self.fetched_from.update({(broker, p): position for p, position in positions.items()})
        found = {}
        for partition, position in positions.items():
            replica = self.replicas.get((broker, partition))
            if replica is None or replica.fetch_error:
                error = UNKNOWN_TOPIC_OR_PARTITION if replica is None else replica.fetch_error
                found[partition] = FetchedState(error)
            elif not replica.start <= position <= replica.leo:
                found[partition] = FetchedState(OFFSET_OUT_OF_RANGE)
            else:
                start = replica.start if replica.fetch_tells_start else -1
                found[partition] = FetchedState(NO_ERROR, replica.hw, True, start)  # noqa: FBT003
        return found

    def batches(
        self,
        broker: int,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
        *,
        whole_bytes: int,
        partition_bytes: int,
    ) -> Mapping[TopicPartition, FetchedBatches]:
        self._asked("batches", broker)
        found = {}
        for partition, position in positions.items():
            replica = self.replicas[broker, partition]
            headers = [h for h in replica.batches if h.last_offset >= position]
            visible = position < min(replica.hw, replica.leo)
            found[partition] = FetchedBatches(
                NO_ERROR, replica.hw, tuple(headers[:1]) if visible else ()
            )
        return found

    def epoch_ends(self, broker: int, asked: Sequence[EpochQuestion]) -> Sequence[EpochEnd]:
        self._asked("epoch_ends", broker)
        return [self._epoch_end(broker, question) for question in asked]

    def _epoch_end(self, broker: int, question: EpochQuestion) -> EpochEnd:
        replica = self.replicas.get((broker, question.partition))
        if replica is None:
            return EpochEnd(UNKNOWN_TOPIC_OR_PARTITION)
        if question.current_leader_epoch < replica.epoch:
            return EpochEnd(FENCED_LEADER_EPOCH)
        if not replica.leads:
            return EpochEnd(NOT_LEADER_OR_FOLLOWER)
        return replica.end_offset_for(question.epoch)
