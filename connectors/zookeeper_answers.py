"""What ZooKeeper answers, as plain values, and the small Protocol through which it is asked.

Nothing in the Protocol can change a znode. One adapter file knows the client library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidestaff.connectors.errors import (
    AuthenticationRefusedError,
    ConnectorError,
    MetadataNotOursError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Znode(NamedTuple):
    """A node's bytes and what ZooKeeper keeps of it. The owner is 0 unless it is ephemeral."""

    data: bytes
    version: int
    czxid: int
    ephemeral_owner: int = 0


class ZookeeperSilentError(ConnectorError):
    """ZooKeeper does not answer, or the session with it is gone; what was watched is unknown."""

    retriable = True

    def __init__(self, servers: str, cause: str) -> None:
        super().__init__(
            f"ZooKeeper at {servers} does not answer ({cause})",
            "see that it is up, has a quorum and can be reached from here, and that "
            "zookeeper_tls is what its port expects",
        )
        self.servers, self.cause = servers, cause


class SessionLostError(ConnectorError):
    """The session was lost while the tree was read: what was read does not belong together."""

    retriable = True

    def __init__(self, servers: str) -> None:
        super().__init__(
            f"the session with ZooKeeper at {servers} was lost while it was read",
            "nothing of this round is used; it is read anew. If it lasts, compare "
            "zookeeper_session_timeout_ms with pauses of this process and of the network",
        )
        self.servers = servers


class ZookeeperBehindError(ConnectorError):
    """A new session sees an older state than the one before: its server lags."""

    retriable = True

    def __init__(self, servers: str, seen: int, known: int) -> None:
        super().__init__(
            f"ZooKeeper at {servers} is at transaction {seen:#x} and was at {known:#x}",
            "wait until the server has caught up; if it was restored from an older copy, it is "
            "read all the same after some rounds",
        )
        self.servers, self.seen, self.known = servers, seen, known


class ZnodeMissingError(ConnectorError):
    """There is no Kafka where we look."""

    retriable = True

    def __init__(self, path: str, servers: str) -> None:
        super().__init__(
            f"znode {path} does not exist in ZooKeeper at {servers}",
            "compare zookeeper.connect of the brokers with zookeeper_connect here, the chroot at "
            "its end above all",
        )
        self.path, self.servers = path, servers


class TwoClustersError(MetadataNotOursError):
    """ZooKeeper and the brokers belong to different clusters."""

    def __init__(self, servers: str, in_zookeeper: str, of_brokers: str) -> None:
        super().__init__(
            f"ZooKeeper at {servers} is of cluster {in_zookeeper}, the brokers are of cluster "
            f"{of_brokers}: nothing is judged by states of the one and replicas of the other",
            f"correct zookeeper_connect if {of_brokers} is the cluster to watch, or "
            f"bootstrap_servers if it is {in_zookeeper}",
        )
        self.servers, self.in_zookeeper, self.of_brokers = servers, in_zookeeper, of_brokers


class MovedToKraftError(MetadataNotOursError):
    """A KRaft controller has taken over: ZooKeeper has copies, written late and in the end never.
    Brokers that run in KRaft mode do not register there, so that live leaders look dead."""

    def __init__(self, servers: str, controller: int) -> None:
        super().__init__(
            f"KRaft controller {controller} is in charge of the cluster of ZooKeeper at {servers}: "
            "what ZooKeeper holds is a copy that lags or stands still, so nothing is judged by it",
            "watch the cluster through its brokers: collector brokers without zookeeper_connect",
        )
        self.servers, self.controller = servers, controller


class ZnodeRefusedError(ConnectorError):
    """A node's ACL does not let us read it."""

    retriable = True

    def __init__(self, path: str) -> None:
        super().__init__(
            f"not authorised: znode {path} may not be read",
            f"give this identity the right r on it (zkCli: setAcl {path} ...), or set "
            "zookeeper_digest or zookeeper_sasl_username to one that has it",
        )
        self.path = path


class ZookeeperRefusesError(AuthenticationRefusedError):
    """The credentials are not accepted."""

    def __init__(self, servers: str) -> None:
        ConnectorError.__init__(
            self,
            f"ZooKeeper at {servers} refuses the credentials",
            "compare zookeeper_sasl_username and its password, or zookeeper_digest, with the "
            "server's",
        )
        self.servers, self.place, self.cause = servers, servers, "credentials"


class ZnodeReader(Protocol):
    """Reads znodes below the chroot and leaves watches, each of which tells once of a change.

    None is a node that is not there. Every question may raise a ConnectorError, and one node's
    answer may be the reason why it cannot be read.
    """

    @property
    def servers(self) -> str:
        """Where it reads, chroot and all, for people."""

    @property
    def session(self) -> int:
        """Another number after every loss of the connection: watches from before it are void."""

    @property
    def last_zxid(self) -> int:
        """The newest transaction this session has seen."""

    def get(self, paths: Sequence[str]) -> Mapping[str, Znode | ZnodeRefusedError | None]: ...
    def children(
        self, paths: Sequence[str]
    ) -> Mapping[str, tuple[str, ...] | ZnodeRefusedError | None]: ...
    def changed(self) -> set[str]:
        """Paths told to have changed since it was asked last. Whatever ZooKeeper had told before
        its latest answer is among them."""

    def close(self) -> None: ...
