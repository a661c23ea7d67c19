"""Small states, written short: what the table tests of the kernel start from."""

from __future__ import annotations

from tidestaff.connectors.simulator.kernel.state import LeaderAndIsr, Record, Replica, State

NONE = -1


def heard(leader: int, leader_epoch: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(leader, leader_epoch, isr)


def replica(
    broker: int, epochs: str = "", hw: int = 0, belief: LeaderAndIsr | None = None
) -> Replica:
    """A replica whose record at offset n has id n, written in the epoch that digit n names."""
    log = tuple(Record(int(epoch), offset) for offset, epoch in enumerate(epochs))
    return Replica(broker, log, hw, belief or heard(NONE, NONE))


def state(
    quorum: LeaderAndIsr, *replicas: Replica, requests: tuple[LeaderAndIsr, ...] = ()
) -> State:
    """A state in which the next record id is one that no log holds."""
    longest = max(len(r.log) for r in replicas)
    return State(quorum, replicas, requests or (quorum,), next_record_id=longest)
