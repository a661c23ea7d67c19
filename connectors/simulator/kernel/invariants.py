"""The invariants of replication, computed on the true state: the oracle for the monitor.

Those with history need a ledger of everything ever committed. A record counts as committed once a
replica that believes it leads has it below its HW, whether or not that replica really leads.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from tidestaff.connectors.simulator.kernel.actions import is_true_leader
from tidestaff.connectors.simulator.kernel.state import Record, follows_in_epoch
from tidestaff.consistency.model import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tidestaff.connectors.simulator.kernel.state import Replica, State
    from tidestaff.consistency.model import BrokerId

Ledger: TypeAlias = frozenset[tuple[int, Record]]
"""Offset and record of everything ever committed, also when it is lost by now."""

EMPTY_LEDGER: Final[Ledger] = frozenset()


def extended(ledger: Ledger, state: State) -> Ledger:
    """The ledger with what the leaders of this state have below their HW; the same if nothing."""
    for replica in state.replicas:
        if replica.believes_it_leads:
            committed = replica.log[: replica.high_watermark]
            new = [entry for entry in enumerate(committed) if entry not in ledger]
            if new:
                ledger = ledger.union(new)
    return ledger


def leader_in_isr_or_none(state: State, _: Ledger) -> bool:
    """The znode's leader is none, or in the znode's ISR."""
    return state.quorum.leader == NO_LEADER or state.quorum.leader in state.quorum.isr


def hw_le_leo(state: State, _: Ledger) -> bool:
    """No replica's HW is above its LEO."""
    return all(r.high_watermark <= r.log_end_offset for r in state.replicas)


def one_leader_per_epoch(state: State, _: Ledger) -> bool:
    """No two replicas believe they lead in the same epoch."""
    epochs = [r.belief.leader_epoch for r in state.replicas if r.believes_it_leads]
    return len(epochs) == len(set(epochs))


def replica_epoch_le_quorum(state: State, _: Ledger) -> bool:
    """No replica knows an epoch that the znode has not reached."""
    return all(r.belief.leader_epoch <= state.quorum.leader_epoch for r in state.replicas)


def log_epochs_monotone(state: State, _: Ledger) -> bool:
    """Epochs never fall along a log, else leader-epoch-checkpoint could not describe it."""
    return all(
        earlier.epoch <= later.epoch
        for replica in state.replicas
        for earlier, later in pairwise(replica.log)
    )


def same_epoch_same_record(state: State, _: Ledger) -> bool:
    """The same offset in the same epoch is the same record, wherever it is held."""
    return all(
        one == other or one.epoch != other.epoch
        for first, second in combinations(state.replicas, 2)
        for one, other in zip(first.log, second.log, strict=False)
    )


def below_hw_agree(state: State, _: Ledger) -> bool:
    """Two replicas hold the same records below the lower of their HWs."""
    for first, second in combinations(state.replicas, 2):
        end = min(first.high_watermark, second.high_watermark)
        if first.log[:end] != second.log[:end]:
            return False
    return True


def follower_matches_leader(state: State, _: Ledger) -> bool:
    """A follower in its leader's epoch holds no other record than the leader anywhere."""
    return all(
        one == other
        for follower, leader in _followings(state)
        for one, other in zip(follower.log, leader.log, strict=False)
    )


def follower_leo_le_leader(state: State, _: Ledger) -> bool:
    """A follower in its leader's epoch is not longer than the leader."""
    return all(f.log_end_offset <= leader.log_end_offset for f, leader in _followings(state))


def follower_hw_le_leader(state: State, _: Ledger) -> bool:
    """Not an invariant: an ordinary election leaves followers with a higher HW than the leader.

    It is here because the traces list it, and because a monitor that alarms on it is wrong.
    """
    return all(f.high_watermark <= leader.high_watermark for f, leader in _followings(state))


def weak_isr(state: State, _: Ledger) -> bool:
    """What a presumed leader committed is on every member of the ISR it believes in."""
    return all(
        _hold_committed(state, leader, leader.belief.isr)
        for leader in state.replicas
        if leader.believes_it_leads
    )


def strong_isr(state: State, _: Ledger) -> bool:
    """What a presumed leader committed is on every replica that could be elected cleanly."""
    return all(
        _hold_committed(state, leader, state.quorum.isr)
        for leader in state.replicas
        if leader.believes_it_leads
    )


def isr_has_committed(state: State, ledger: Ledger) -> bool:
    """Everything ever committed is on every member of the znode's ISR."""
    return all(_holds(r, ledger) for r in state.replicas if r.broker in state.quorum.isr)


def true_leader_has_committed(state: State, ledger: Ledger) -> bool:
    """Everything ever committed is on the leader that znode and broker agree on."""
    return all(_holds(r, ledger) for r in state.replicas if is_true_leader(state, r))


def some_replica_has_committed(state: State, ledger: Ledger) -> bool:
    """Everything ever committed is still somewhere."""
    return all(any(_has(r, *entry) for r in state.replicas) for entry in ledger)


def no_conflicting_commit(_: State, ledger: Ledger) -> bool:
    """No offset was ever committed with two different records."""
    return len({offset for offset, _record in ledger}) == len(ledger)


def _followings(state: State) -> Iterator[tuple[Replica, Replica]]:
    """Follower and leader, wherever both are in the same epoch."""
    for leader in state.replicas:
        if leader.believes_it_leads:
            for follower in state.replicas:
                if follower is not leader and follows_in_epoch(follower, leader):
                    yield follower, leader


def _hold_committed(state: State, leader: Replica, isr: Iterable[BrokerId]) -> bool:
    end = leader.high_watermark
    committed = leader.log[:end]
    return all(r.log[:end] == committed for r in state.replicas if r.broker in isr)


def _has(replica: Replica, offset: int, record: Record) -> bool:
    return offset < replica.log_end_offset and replica.log[offset] == record


def _holds(replica: Replica, ledger: Ledger) -> bool:
    return all(_has(replica, offset, record) for offset, record in ledger)


if TYPE_CHECKING:
    Invariant: TypeAlias = Callable[[State, Ledger], bool]

INVARIANTS: Final[Mapping[str, Invariant]] = {
    "leader_in_isr_or_none": leader_in_isr_or_none,
    "hw_le_leo": hw_le_leo,
    "one_leader_per_epoch": one_leader_per_epoch,
    "replica_epoch_le_quorum": replica_epoch_le_quorum,
    "log_epochs_monotone": log_epochs_monotone,
    "same_epoch_same_record": same_epoch_same_record,
    "below_hw_agree": below_hw_agree,
    "follower_matches_leader": follower_matches_leader,
    "follower_leo_le_leader": follower_leo_le_leader,
    "follower_hw_le_leader": follower_hw_le_leader,
    "weak_isr": weak_isr,
    "strong_isr": strong_isr,
    "isr_has_committed": isr_has_committed,
    "true_leader_has_committed": true_leader_has_committed,
    "some_replica_has_committed": some_replica_has_committed,
    "no_conflicting_commit": no_conflicting_commit,
}
WITH_HISTORY: Final = frozenset(
    {
        "isr_has_committed",
        "true_leader_has_committed",
        "some_replica_has_committed",
        "no_conflicting_commit",
    }
)
NOT_AN_ERROR: Final = frozenset({"follower_hw_le_leader"})


def violated(state: State, ledger: Ledger) -> tuple[str, ...]:
    """The names of all invariants broken here, sorted; the ledger must include this state."""
    return tuple(sorted(name for name, holds in INVARIANTS.items() if not holds(state, ledger)))
