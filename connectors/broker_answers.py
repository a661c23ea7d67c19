"""What brokers answer, as plain values, and the small Protocol through which they are asked.

The connector is written against the Protocol; one adapter file speaks the wire protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.connectors.setting_values import Told
    from tidestaff.consistency.model import BrokerId, Registration, TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4

# Kafka's error codes that mean something to the connector.
NO_ERROR: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
NOT_LEADER_OR_FOLLOWER: Final = 6
REPLICA_NOT_AVAILABLE: Final = 9
TOPIC_AUTHORIZATION_FAILED: Final = 29
UNSUPPORTED_VERSION: Final = 35
KAFKA_STORAGE_ERROR: Final = 56
UNKNOWN_TOPIC_ID: Final = 100

ERROR_NAMES: Final = {
    -1: "UNKNOWN_SERVER_ERROR",
    OFFSET_OUT_OF_RANGE: "OFFSET_OUT_OF_RANGE",
    UNKNOWN_TOPIC_OR_PARTITION: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_OR_FOLLOWER",
    REPLICA_NOT_AVAILABLE: "REPLICA_NOT_AVAILABLE",
    TOPIC_AUTHORIZATION_FAILED: "TOPIC_AUTHORIZATION_FAILED",
    KAFKA_STORAGE_ERROR: "KAFKA_STORAGE_ERROR",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    UNKNOWN_TOPIC_ID: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
}


def error_name(code: int) -> str:
    return ERROR_NAMES.get(code, f"error {code}")


class ListedPartition(NamedTuple):
    """A partition as a broker's metadata has it; the leader epoch is -1 before 2.1."""

    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    topic_id: str | None = None


class ClusterMetadata(NamedTuple):
    """One answer of one broker. `brokers` are the live ones, with their racks.

    `controller` is Kafka's word; in KRaft mode it is any broker, see `Quorum`. The cluster's id is
    told from 0.10.1 on.
    """

    brokers: Mapping[BrokerId, str | None]
    controller: BrokerId
    partitions: Mapping[TopicPartition, ListedPartition]
    cluster_id: str | None = None


class Software(NamedTuple):
    """What a broker says of itself: release, mode, level of metadata.version, whether ELR is on."""

    version: str
    kraft: bool
    metadata_level: int | None = None
    elr: bool | None = None


class Voter(NamedTuple):
    """A member of the metadata quorum, as its leader knows it. -1 where it knows nothing."""

    node: int
    log_end_offset: int
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


class Quorum(NamedTuple):
    """The KRaft controller, its epoch, and how far the voters are; `observers` are brokers."""

    leader: BrokerId
    epoch: int
    high_watermark: int = -1
    voters: tuple[Voter, ...] = ()
    observers: tuple[Voter, ...] = ()


class Moving(NamedTuple):
    """A running reassignment."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


class Eligible(NamedTuple):
    """ELR of a partition, with the state it belongs to."""

    leader_epoch: int
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    last_known_elr: tuple[BrokerId, ...]


class TopicValues(NamedTuple):
    """Settings by topic, and the topics that may not be asked."""

    found: Mapping[str, Mapping[str, Told]]
    refused: tuple[str, ...] = ()


class ListedOffset(NamedTuple):
    """An offset of one replica, and the leader epoch it believes in (None before 2.1)."""

    error: int
    offset: int = -1
    leader_epoch: int | None = None


class FetchedState(NamedTuple):
    """What a fetch says besides records; `by_topic_id` where it was asked by id (3.1+). The log
    start is told from 0.11 on."""

    error: int
    high_watermark: int = -1
    by_topic_id: bool = False
    log_start_offset: int = -1


class BatchHeader(NamedTuple):
    """A batch of a log: its offsets, both inclusive, and its leader epoch (None before 0.11)."""

    first_offset: int
    last_offset: int
    leader_epoch: int | None


class FetchedBatches(NamedTuple):
    """Whole batches from a position on; none where they do not fit into the limits."""

    error: int
    high_watermark: int = -1
    headers: tuple[BatchHeader, ...] = ()


class HeldReplica(NamedTuple):
    """A replica in a log directory; `future`: it is being moved there from another one."""

    partition: TopicPartition
    size: int
    future: bool = False


class LogDir(NamedTuple):
    """A log directory; one that is offline tells of no replicas. Bytes are told from 3.3 on."""

    path: str
    error: int
    replicas: tuple[HeldReplica, ...] = ()
    total_bytes: int | None = None
    usable_bytes: int | None = None


class EpochQuestion(NamedTuple):
    """Where does `epoch` end? Asked under the leader epoch the replica believes in."""

    partition: TopicPartition
    current_leader_epoch: int
    epoch: int


class EpochEnd(NamedTuple):
    """The largest epoch not above the one asked for, and where it ends."""

    error: int
    epoch: int = -1
    end_offset: int = -1


class BrokerReader(Protocol):
    """Questions to a cluster; none of them changes anything. Every one may raise a ConnectorError.

    Questions with a broker go to this broker itself, as replica -2, and may be asked from several
    threads at once.
    """

    def metadata(self, turn: int) -> ClusterMetadata: ...
    def software(self) -> Software: ...
    def quorum(self) -> Quorum: ...
    def registered(self) -> Sequence[Registration]: ...
    def refused_topics(self, topics: Sequence[str]) -> Sequence[str]: ...
    def reassignments(self, controller: BrokerId) -> Mapping[TopicPartition, Moving]: ...
    def eligible(self) -> Mapping[TopicPartition, Eligible]: ...
    def topic_values(self, topics: Sequence[str], keys: Sequence[str]) -> TopicValues: ...
    def broker_values(self, broker: BrokerId, keys: Sequence[str]) -> Mapping[str, Told]: ...
    def ping(self, broker: BrokerId) -> None: ...
    def log_dirs(self, broker: BrokerId) -> Sequence[LogDir]: ...
    def list_offsets(
        self, broker: BrokerId, partitions: Sequence[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, ListedOffset]: ...
    def leading(
        self, broker: BrokerId, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, bool]: ...
    def fetch(
        self,
        broker: BrokerId,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
    ) -> Mapping[TopicPartition, FetchedState]: ...
    def batches(
        self,
        broker: BrokerId,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
        *,
        whole_bytes: int,
        partition_bytes: int,
    ) -> Mapping[TopicPartition, FetchedBatches]: ...
    def epoch_ends(
        self, broker: BrokerId, asked: Sequence[EpochQuestion]
    ) -> Sequence[EpochEnd]: ...
    def close(self) -> None: ...
