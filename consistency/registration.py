"""Who is registered: ephemeral znodes in ZooKeeper mode, registration records in KRaft mode.

ZooKeeper: a broker is registered while /brokers/ids/N exists, and that node goes with the session
that made it, not with the process. KRaft: mirrors ClusterControlManager and BrokerHeartbeatManager,
where a broker starts fenced and its epoch is the offset of its registration record.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.model import UNKNOWN_BROKER_EPOCH, BrokerId, Registration

if TYPE_CHECKING:
    from collections.abc import Iterable


class ControllerError(StrEnum):
    """What a controller answers; the names are those of Kafka's protocol errors."""

    NONE = "NONE"
    BROKER_ID_NOT_REGISTERED = "BROKER_ID_NOT_REGISTERED"
    DUPLICATE_BROKER_REGISTRATION = "DUPLICATE_BROKER_REGISTRATION"
    ELECTION_NOT_NEEDED = "ELECTION_NOT_NEEDED"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
    INELIGIBLE_REPLICA = "INELIGIBLE_REPLICA"
    INVALID_REPLICATION_FACTOR = "INVALID_REPLICATION_FACTOR"
    INVALID_REPLICA_ASSIGNMENT = "INVALID_REPLICA_ASSIGNMENT"
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_UPDATE_VERSION = "INVALID_UPDATE_VERSION"
    NEW_LEADER_ELECTED = "NEW_LEADER_ELECTED"
    NOT_CONTROLLER = "NOT_CONTROLLER"
    NO_REASSIGNMENT_IN_PROGRESS = "NO_REASSIGNMENT_IN_PROGRESS"
    PREFERRED_LEADER_NOT_AVAILABLE = "PREFERRED_LEADER_NOT_AVAILABLE"
    STALE_BROKER_EPOCH = "STALE_BROKER_EPOCH"
    UNKNOWN_TOPIC_ID = "UNKNOWN_TOPIC_ID"
    UNKNOWN_TOPIC_OR_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"


class EphemeralNode(NamedTuple):
    """A znode that lives as long as the session that created it."""

    path: str
    session: int
    czxid: int


class NodeExists(NamedTuple):
    """The create was refused: the path is still held by the session of somebody else."""

    path: str
    owner: int
    session: int

    def __str__(self) -> str:
        return (
            f"{self.path} already exists and its owner {self.owner} is not the current session "
            f"{self.session}: wait until the old session expires, then start the broker again"
        )


def create_ephemeral(
    existing: EphemeralNode | None, *, path: str, session: int, czxid: int
) -> EphemeralNode | NodeExists:
    """An ephemeral node can be created unless another session still owns one at that path.

    One of the same session is the reply that got lost: it is kept, with its czxid.
    """
    if existing is None:
        return EphemeralNode(path, session, czxid)
    if existing.session == session:
        return existing
    return NodeExists(path, existing.session, session)


def expire_session(nodes: Iterable[EphemeralNode], session: int) -> tuple[EphemeralNode, ...]:
    """The end of a session takes its ephemeral nodes along, and no others."""
    return tuple(node for node in nodes if node.session != session)


class RegistrationChanges(NamedTuple):
    """What happened to the set of brokers, each ascending; a bounced one died and was born."""

    new: tuple[BrokerId, ...]
    dead: tuple[BrokerId, ...]
    bounced: tuple[BrokerId, ...]


def registration_changes(
    before: Iterable[Registration], after: Iterable[Registration]
) -> RegistrationChanges:
    """A broker that is there before and after with a larger czxid has been away in between.

    Only a larger one counts, as in KafkaController: a smaller one is an older reading.
    """
    was = {r.broker: r.broker_epoch for r in before}
    now = {r.broker: r.broker_epoch for r in after}
    return RegistrationChanges(
        new=tuple(sorted(now.keys() - was.keys())),
        dead=tuple(sorted(was.keys() - now.keys())),
        bounced=tuple(sorted(b for b in now.keys() & was.keys() if _bounced(was[b], now[b]))),
    )


def _bounced(was: int, now: int) -> bool:
    return was != UNKNOWN_BROKER_EPOCH and now > was


def is_active(registration: Registration | None) -> bool:
    """Active = registered, not fenced, not in controlled shutdown."""
    return registration is not None and not (registration.fenced or registration.shutting_down)


def check_broker_epoch(registration: Registration | None, broker_epoch: int) -> ControllerError:
    """A request of a broker that is not registered, or under another epoch, is stale."""
    if registration is None or registration.broker_epoch != broker_epoch:
        return ControllerError.STALE_BROKER_EPOCH
    return ControllerError.NONE


class BrokerIncarnation(NamedTuple):
    """A registration with the id of the process that made it, new at every start."""

    registration: Registration
    incarnation: str


class Registered(NamedTuple):
    """A registration that was accepted.

    `clean_shutdown` is None where the same process only amends its registration: then nothing is
    taken from any ISR.
    """

    incarnation: BrokerIncarnation
    clean_shutdown: bool | None


def register_broker(
    existing: BrokerIncarnation | None,
    *,
    broker: BrokerId,
    incarnation: str,
    new_broker_epoch: int,
    previous_broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    session_valid: bool = False,
    rack: str | None = None,
) -> Registered | ControllerError:
    """A new process gets a new epoch and starts fenced; it is refused while the old session lives.

    The shutdown before was clean if the broker names the epoch that is stored for it
    (KIP-966: it found .kafka_cleanshutdown); whoever cannot is treated as crashed.
    """
    if existing is not None and existing.incarnation == incarnation:
        return Registered(
            existing._replace(registration=existing.registration._replace(rack=rack)), None
        )
    if existing is not None and session_valid:
        return ControllerError.DUPLICATE_BROKER_REGISTRATION
    clean = existing is not None and existing.registration.broker_epoch == previous_broker_epoch
    registration = Registration(broker, new_broker_epoch, fenced=True, rack=rack)
    return Registered(BrokerIncarnation(registration, incarnation), clean)


class BrokerControlState(Enum):
    """How far the controller lets a broker go."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    SHUTDOWN_NOW = "shutdown-now"


class Heartbeat(NamedTuple):
    """What a broker asks for in a heartbeat, and how far it has read the metadata log."""

    metadata_offset: int
    wants_fence: bool = False
    wants_shutdown: bool = False


def next_broker_state(
    current: BrokerControlState,
    heartbeat: Heartbeat,
    *,
    registration_offset: int,
    leads_partitions: bool,
    shutdown_seen_by_all: bool,
) -> BrokerControlState:
    """A broker is unfenced once it has read its own registration; it may go once it leads nothing.

    `shutdown_seen_by_all`: every active broker has read past the offset at which this one's
    leaderships were taken away.
    """
    states = BrokerControlState
    if current is states.FENCED:
        if heartbeat.wants_shutdown:
            return states.SHUTDOWN_NOW
        caught_up = heartbeat.metadata_offset >= registration_offset
        return states.UNFENCED if caught_up and not heartbeat.wants_fence else states.FENCED
    if current is states.UNFENCED:
        if heartbeat.wants_shutdown:
            moves_first = leads_partitions and not heartbeat.wants_fence
            return states.CONTROLLED_SHUTDOWN if moves_first else states.SHUTDOWN_NOW
        return states.FENCED if heartbeat.wants_fence else states.UNFENCED
    if current is states.CONTROLLED_SHUTDOWN and (leads_partitions or not shutdown_seen_by_all):
        return states.CONTROLLED_SHUTDOWN
    return states.SHUTDOWN_NOW
