"""The words the whole project speaks in: plain values, no behaviour beyond reading them.

Offsets are exclusive ends unless named otherwise: a log end offset (LEO) of 8 means offsets 0..7
exist, a high watermark (HW) of 4 means offsets 0..3 are committed. `-1` is Kafka's "none" for a
leader, an epoch or an offset; `None` is ours for "not read".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidestaff.consistency.errors import ConsistencyError as ConsistencyError
from tidestaff.consistency.errors import FormatError as FormatError
from tidestaff.consistency.errors import UnknownVersionError as UnknownVersionError

# These alone can be had without the rest, which takes longer to import than a short command runs.
from tidestaff.consistency.partitions import BrokerId as BrokerId
from tidestaff.consistency.partitions import EpochEntry as EpochEntry
from tidestaff.consistency.partitions import Lineage as Lineage
from tidestaff.consistency.partitions import OffsetRange as OffsetRange
from tidestaff.consistency.partitions import TopicPartition as TopicPartition

if TYPE_CHECKING:
    from tidestaff.consistency.versions import RuleSet

NO_LEADER: Final = -1
LEADER_DURING_DELETION: Final = -2
UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1
UNKNOWN_PARTITION_EPOCH: Final = -1


class RecoveryState(Enum):
    """leader_recovery_state of KIP-704: RECOVERING marks a leader chosen uncleanly."""

    RECOVERED = 0
    RECOVERING = 1


class PartitionState(NamedTuple):
    """What the controller says of a partition: the state znode, or KRaft's partition registration.

    `partition_epoch` is the zkVersion of the state znode in ZooKeeper mode, -1 where the source
    does not tell it (brokers' metadata answers do not). `controller_epoch` is the one written into
    the state znode, None in KRaft mode.
    """

    leader: BrokerId
    leader_epoch: int
    isr: tuple[BrokerId, ...]
    partition_epoch: int = UNKNOWN_PARTITION_EPOCH
    controller_epoch: int | None = None
    recovery: RecoveryState = RecoveryState.RECOVERED
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()


class Assignment(NamedTuple):
    """Assigned replicas (AR) in order; `adding` and `removing` only while a reassignment runs."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas that remain when the reassignment is done."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def origin(self) -> tuple[BrokerId, ...]:
        """The replicas a cancelled reassignment goes back to (their old order is not kept)."""
        return tuple(r for r in self.replicas if r not in self.adding)


class Registration(NamedTuple):
    """A broker that is registered: its epoch is the znode's czxid, or KRaft's registration
    offset."""

    broker: BrokerId
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    fenced: bool = False
    shutting_down: bool = False
    rack: str | None = None


class SettingSource(Enum):
    """Where the value of a setting comes from, by Kafka's own names as far as it has them.

    Brokers before 1.1 tell only whether a topic has its own value; before 0.11 they tell nothing.
    """

    TOPIC = "DYNAMIC_TOPIC_CONFIG"
    BROKER = "DYNAMIC_BROKER_CONFIG"
    CLUSTER = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    STATIC = "STATIC_BROKER_CONFIG"
    DEFAULT = "DEFAULT_CONFIG"
    GIVEN = "GIVEN_TO_THE_MONITOR"
    UNKNOWN = "UNKNOWN"

    @property
    def words(self) -> str:
        return _SOURCE_WORDS[self]


_SOURCE_WORDS: Final = {
    SettingSource.TOPIC: "topic override",
    SettingSource.BROKER: "changed on a broker",
    SettingSource.CLUSTER: "changed for all brokers",
    SettingSource.STATIC: "brokers' properties",
    SettingSource.DEFAULT: "Kafka's default",
    SettingSource.GIVEN: "given to the monitor",
    SettingSource.UNKNOWN: "",
}


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """Effective settings of a partition and of the brokers that hold it, with Kafka's own names."""

    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    session_timeout_ms: int = 18_000
    replica_fetch_wait_max_ms: int = 500
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    leader_imbalance_per_broker_percentage: int = 10
    compacted: bool = False
    remote_storage: bool = False
    unclean_leader_election_enable_source: SettingSource = SettingSource.UNKNOWN
    min_insync_replicas_source: SettingSource = SettingSource.UNKNOWN
    replica_lag_time_max_ms_source: SettingSource = SettingSource.UNKNOWN

    def told(self, name: str) -> str:
        """A setting as a person looks for it: unclean.leader.election.enable=true (topic override).

        `name` is the field; one without a known source is told without it.
        """
        value: object = getattr(self, name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        source: SettingSource = getattr(self, f"{name}_source")
        where = f" ({source.words})" if source.words else ""
        return f"{name.replace('_', '.')}={text}{where}"


class LineageSource(Enum):
    """Where a replica's epoch lineage was read.

    Batch headers are bisected down to the batch where the epoch changes, so all three are complete
    for epochs that have records; a lineage that may miss one is not delivered.
    """

    CHECKPOINT_FILE = "checkpoint-file"
    BATCH_HEADERS = "batch-headers"
    LEADER_ANSWERS = "leader-answers"


class ReplicaReading(NamedTuple):
    """What one replica said of its own log in one round.

    Read in this order: log start, HW, LEO, lineage. All of them only grow between truncations, so
    in this order `log_start <= HW <= LEO` must hold although the values come from separate calls.
    `leader_epoch` is the epoch this replica itself believes in; `leads` whether it believes it
    leads.
    """

    broker: BrokerId
    log_start_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    broker_epoch: int | None = None
    leader_epoch: int | None = None
    leads: bool | None = None
    lineage: Lineage | None = None
    lineage_source: LineageSource = LineageSource.CHECKPOINT_FILE
    local_log_start_offset: int | None = None
    topic_id: str | None = None
    log_dir_online: bool = True
    read_at_ms: int | None = None


class Bracket(Enum):
    """How far the readings of one round belong together (metadata, leader, followers, leader,
    metadata).

    COHERENT: metadata version, leader epoch and topic id were the same before and after, and the
    leader itself was in that leader epoch. STRADDLED: something changed in between. NONE: not
    bracketed.
    """

    COHERENT = "coherent"
    STRADDLED = "straddled"
    NONE = "none"


class BatchDigest(NamedTuple):
    """Checksums of one replica over one offset range of complete batches."""

    broker: BrokerId
    offsets: OffsetRange
    crc: int | None
    leader_epoch: int | None = None
    invalid_at: int | None = None
    gap_at: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionObservation:
    """One round's sight of one partition: metadata, every replica's own words, and how coherent it
    is.

    `live` are the registrations among the assigned replicas, read with the metadata. `state` was
    read before the replicas; `leader_again` is the second reading of the leader, after the
    followers. `cluster_controller_epoch` is /controller_epoch read *after* the state znode
    (ZooKeeper mode only). `authoritative` is False where the metadata came from a broker's cache,
    which may lag. `preferred_imbalance` is the share of the partitions that prefer AR[0] which it
    does not lead; None where it is not known, or while the controller does not rebalance (up to
    3.3: during any reassignment in the cluster). `continuous`: the source vouches that nothing of
    this changed unseen since its last observation of the partition.
    """

    cluster: str
    topic: str
    partition: int
    observed_at_ms: int
    rules: RuleSet
    state: PartitionState
    assignment: Assignment
    live: tuple[Registration, ...]
    settings: PartitionSettings = PartitionSettings()
    replicas: tuple[ReplicaReading, ...] = ()
    leader_again: ReplicaReading | None = None
    bracket: Bracket = Bracket.COHERENT
    topic_id: str | None = None
    state_czxid: int | None = None
    controller: BrokerId | None = None
    cluster_controller_epoch: int | None = None
    preferred_imbalance: float | None = None
    digests: tuple[BatchDigest, ...] = ()
    deleting: bool = False
    authoritative: bool = True
    continuous: bool = False
    source: str = "unknown"
    round: int = 0


class ControllerClaim(NamedTuple):
    """Who names itself (or is named) controller, and under which controller epoch."""

    broker: BrokerId
    controller_epoch: int


@dataclass(frozen=True, slots=True)
class ClusterObservation:
    """One round's sight of the cluster as a whole: controller and registrations.

    `controller_epoch_before` and `controller_epoch` enclose the reading of the controller; they
    differ when the controller changed in between. `answering` are the brokers that answered a
    request themselves, `leading` those of them that still serve as a leader of some partition.
    """

    cluster: str
    observed_at_ms: int
    rules: RuleSet
    controller: BrokerId | None
    controller_epoch: int | None
    controller_epoch_before: int | None
    registrations: tuple[Registration, ...]
    answering: tuple[BrokerId, ...] | None = None
    leading: tuple[BrokerId, ...] = ()
    claims: tuple[ControllerClaim, ...] = ()
    session_timeout_ms: int = 18_000
    source: str = "unknown"
    round: int = 0


class ProblemKind(Enum):
    """What kept a source from reading something."""

    SILENT = "silent"
    NOT_REPORTED = "not-reported"
    UNREADABLE = "unreadable"
    MALFORMED = "malformed"
    CLOCK_SKEW = "clock-skew"
    LOG_DIR_OFFLINE = "log-dir-offline"
    CHECKPOINT_ENTRY_MISSING = "checkpoint-entry-missing"
    STRAY_DIRECTORY = "stray-directory"
    RECORDS_REFUSED = "records-refused"
    SINK_FAILING = "sink-failing"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class HealthObservation:
    """A source says what it could not read, where, why, and since when; or that it is well
    again."""

    cluster: str
    observed_at_ms: int
    source: str
    problem: ProblemKind
    place: str = ""
    reason: str = ""
    remedy: str = ""
    broker: BrokerId | None = None
    topic: str | None = None
    partition: int | None = None
    since_ms: int | None = None
    skew_ms: int = 0
    round: int = 0


Observation: TypeAlias = PartitionObservation | ClusterObservation | HealthObservation
