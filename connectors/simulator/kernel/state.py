"""The true state of one partition: the znode, every replica, and the requests ever issued.

Values are tuples in one canonical order, so equal states are equal values and hash alike: a search
hashes hundreds of thousands of them. Truth and belief are apart: `quorum` is what the znode says,
`Replica.belief` is the last LeaderAndIsr that replica handled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidestaff.consistency.model import NO_LEADER, UNDEFINED_EPOCH, BrokerId

if TYPE_CHECKING:
    from collections.abc import Iterable


class Record(NamedTuple):
    """A record as replication sees it: the leader epoch it was written in, and which one it is."""

    epoch: int
    record_id: int


Log: TypeAlias = tuple[Record, ...]
Isr: TypeAlias = tuple[BrokerId, ...]


class LeaderAndIsr(NamedTuple):
    """What the controller writes into the znode and sends to brokers; `isr` is sorted."""

    leader: BrokerId
    leader_epoch: int
    isr: Isr


NOTHING_HEARD: Final = LeaderAndIsr(NO_LEADER, UNDEFINED_EPOCH, ())


class Replica(NamedTuple):
    """One copy of the partition, with what its broker believes about it."""

    broker: BrokerId
    log: Log = ()
    high_watermark: int = 0
    belief: LeaderAndIsr = NOTHING_HEARD

    @property
    def log_end_offset(self) -> int:
        return len(self.log)

    @property
    def believes_it_leads(self) -> bool:
        return self.belief.leader == self.broker


class State(NamedTuple):
    """Everything the next step depends on.

    `requests` holds every LeaderAndIsr ever issued, one per leader epoch, oldest first: a request
    may arrive late, twice, out of order or never, so none is ever taken away.
    """

    quorum: LeaderAndIsr
    replicas: tuple[Replica, ...]
    requests: tuple[LeaderAndIsr, ...] = ()
    next_record_id: int = 0

    def replica(self, broker: BrokerId) -> Replica | None:
        """The replica on this broker; None where the partition is not assigned to it."""
        for replica in self.replicas:
            if replica.broker == broker:
                return replica
        return None

    def request(self, leader_epoch: int) -> LeaderAndIsr | None:
        """The request issued with this leader epoch; each epoch has one at most."""
        for request in self.requests:
            if request.leader_epoch == leader_epoch:
                return request
        return None

    def with_replica(self, changed: Replica) -> State:
        """The same state, but for this one replica."""
        replicas = tuple(changed if r.broker == changed.broker else r for r in self.replicas)
        return self._replace(replicas=replicas)


def initial_state(brokers: Iterable[BrokerId]) -> State:
    """Before the first election: no leader, nobody has heard anything, every replica in the ISR."""
    assigned = tuple(sorted(set(brokers)))
    quorum = LeaderAndIsr(NO_LEADER, UNDEFINED_EPOCH, assigned)
    return State(quorum, tuple(Replica(broker) for broker in assigned))


def follows(follower: Replica, leader: Replica) -> bool:
    """Both believe in this leader, in whatever epoch; a leader follows itself."""
    return follower.belief.leader == leader.broker == leader.belief.leader


def follows_in_epoch(follower: Replica, leader: Replica) -> bool:
    """Both believe in this leader and in the same leader epoch."""
    return follows(follower, leader) and follower.belief.leader_epoch == leader.belief.leader_epoch
