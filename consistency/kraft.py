"""The KRaft controller's one builder: every change of a partition is made here, in nine steps.

Mirrors PartitionChangeBuilder and PartitionRegistration.merge. Log directories are left out: a
replica whose directory is offline is simply not acceptable as a leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidestaff.consistency.kraft_reassignment import complete_reassignment
from tidestaff.consistency.model import NO_LEADER, Assignment, BrokerId, RecoveryState

if TYPE_CHECKING:
    from tidestaff.consistency.versions import RuleSet

Brokers: TypeAlias = tuple[BrokerId, ...]
Acceptable: TypeAlias = Callable[[BrokerId], bool]


class KraftElection(Enum):
    """How far the controller goes to find a leader."""

    PREFERRED = "PREFERRED"
    ONLINE = "ONLINE"
    UNCLEAN = "UNCLEAN"


class KraftPartition(NamedTuple):
    """A partition as the KRaft controller keeps it."""

    replicas: Brokers
    isr: Brokers
    elr: Brokers = ()
    last_known_elr: Brokers = ()
    leader: BrokerId = NO_LEADER
    removing: Brokers = ()
    adding: Brokers = ()
    recovery: RecoveryState = RecoveryState.RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.replicas, adding=self.adding, removing=self.removing)


class PartitionChange(NamedTuple):
    """A PartitionChangeRecord: None means unchanged; a `leader`, even the same, is a new epoch."""

    leader: BrokerId | None = None
    isr: Brokers | None = None
    elr: Brokers | None = None
    last_known_elr: Brokers | None = None
    replicas: Brokers | None = None
    removing: Brokers | None = None
    adding: Brokers | None = None
    recovery: RecoveryState | None = None


class Targets(NamedTuple):
    """What an event wants the partition to become; None means as it is."""

    isr: Brokers | None = None
    replicas: Brokers | None = None
    removing: Brokers | None = None
    adding: Brokers | None = None
    recovery: RecoveryState | None = None


class Elected(NamedTuple):
    """The broker that should lead (-1 = nobody can), and whether records may be lost by it."""

    leader: BrokerId
    unclean: bool = False


class _Draft(NamedTuple):
    isr: Brokers
    replicas: Brokers
    removing: Brokers
    adding: Brokers
    recovery: RecoveryState
    elr: Brokers
    last_known_elr: Brokers


def effective_min_isr(*, min_insync_replicas: int, replication_factor: int) -> int:
    """No more in-sync replicas can be asked for than there are replicas of partition 0."""
    return min(min_insync_replicas, replication_factor)


def apply_change(partition: KraftPartition, change: PartitionChange) -> KraftPartition:
    """Every change raises the partition epoch; one with a leader raises the leader epoch too."""
    bump = 0 if change.leader is None else 1
    fields = {name: value for name, value in change._asdict().items() if value is not None}
    return partition._replace(
        **fields,
        leader_epoch=partition.leader_epoch + bump,
        partition_epoch=partition.partition_epoch + 1,
    )


def elect(
    partition: KraftPartition,
    *,
    election: KraftElection,
    acceptable: Acceptable,
    rules: RuleSet,
    isr: Brokers | None = None,
    elr: Brokers | None = None,
    replicas: Brokers | None = None,
    use_last_known_leader: bool = True,
) -> Elected:
    """A leader comes from the ISR, or from the ELR when the ISR is empty; a valid one stays.

    PREFERRED asks the first replica before the old leader. When nobody is valid, the last known
    leader may come back even where unclean election is off; UNCLEAN takes any acceptable replica.
    """
    isr = partition.isr if isr is None else isr
    elr = partition.elr if elr is None else elr
    replicas = partition.replicas if replicas is None else replicas
    candidates = (partition.leader, *replicas)
    if election is KraftElection.PREFERRED:
        candidates = (*replicas[:1], *candidates)
    eligible = isr or elr
    for candidate in candidates:
        if candidate in eligible and acceptable(candidate):
            return Elected(candidate)
    remembered = partition.last_known_elr
    may_return = rules.elr and use_last_known_leader and not eligible and len(remembered) == 1
    # Up to 4.0.1 the controller looks whether the last known leader lives, and elects it anyway.
    if may_return and (not rules.last_known_leader_must_be_active or acceptable(remembered[0])):
        return Elected(remembered[0], unclean=True)
    if election is KraftElection.UNCLEAN:
        for candidate in replicas:
            if acceptable(candidate):
                return Elected(candidate, unclean=True)
    return Elected(NO_LEADER)


def build_change(
    partition: KraftPartition,
    *,
    acceptable: Acceptable,
    rules: RuleSet,
    min_isr: int,
    election: KraftElection = KraftElection.ONLINE,
    targets: Targets = Targets(),  # noqa: B008 - an immutable value
    unclean_shutdown: Collection[BrokerId] = (),
    use_last_known_leader: bool = True,
) -> PartitionChange | None:
    """The record that brings a partition to its targets with a lawful leader; None = nothing to do.

    `min_isr` is the effective one, `acceptable` says who may lead now. The steps are Kafka's and
    their order counts: each sees what the ones before it wrote.
    """
    draft = _completed(_draft(partition, targets), rules)
    if rules.elr:
        draft = _with_elr(partition, draft, min_isr, unclean_shutdown)
    elected = elect(
        partition,
        election=election,
        acceptable=acceptable,
        rules=rules,
        isr=draft.isr,
        elr=draft.elr,
        replicas=draft.replicas,
        use_last_known_leader=use_last_known_leader,
    )
    draft, change = _with_leader(partition, draft, elected, rules)
    if change.leader is None and _replica_leaves(partition, draft.replicas):
        change = change._replace(leader=partition.leader)
    draft, change = _write_elr(partition, draft, change, rules, use_last_known_leader)
    change = _write_isr(partition, draft, change, rules)
    # Up to 3.7 an empty target ISR counts as a shrink although it is never written (KAFKA-16624).
    new_isr = draft.isr if rules.empty_isr_counts_as_shrink else change.isr
    if change.leader is None and _shrink_bumps(partition, new_isr, rules):
        change = change._replace(leader=partition.leader)
    if rules.elr and use_last_known_leader:
        change = _remember_last_leader(partition, change, rules)
    change = _write_assignment(partition, draft, change)
    return None if change == PartitionChange() else change


def bumps_leader_epoch(
    partition: KraftPartition, *, isr: Brokers | None, replicas: Brokers, rules: RuleSet
) -> bool:
    """A kept leader gets a new epoch when a replica leaves, or (MV < 3.6-IV0) the ISR shrinks.

    `isr` is the ISR that is written, None where it is not.
    """
    return _replica_leaves(partition, replicas) or _shrink_bumps(partition, isr, rules)


def _replica_leaves(partition: KraftPartition, replicas: Brokers) -> bool:
    return not set(partition.replicas) <= set(replicas)


def _shrink_bumps(partition: KraftPartition, isr: Brokers | None, rules: RuleSet) -> bool:
    return rules.isr_shrink_bumps_epoch and isr is not None and not set(partition.isr) <= set(isr)


def _draft(partition: KraftPartition, targets: Targets) -> _Draft:
    return _Draft(
        isr=partition.isr if targets.isr is None else targets.isr,
        replicas=partition.replicas if targets.replicas is None else targets.replicas,
        removing=partition.removing if targets.removing is None else targets.removing,
        adding=partition.adding if targets.adding is None else targets.adding,
        recovery=partition.recovery if targets.recovery is None else targets.recovery,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
    )


def _completed(draft: _Draft, rules: RuleSet) -> _Draft:
    """Step 1: a reassignment whose new replicas have caught up is finished on the way."""
    done = complete_reassignment(
        Assignment(draft.replicas, adding=draft.adding, removing=draft.removing),
        isr=draft.isr,
        completion=rules.reassignment_completion,
    )
    if done is None:
        return draft
    return draft._replace(isr=done.isr, replicas=done.replicas, removing=(), adding=())


def _with_elr(
    partition: KraftPartition, draft: _Draft, min_isr: int, unclean_shutdown: Collection[BrokerId]
) -> _Draft:
    """Step 2: who leaves an ISR below min ISR stays eligible, unless it may have lost records."""
    if len(draft.isr) >= min_isr:
        return draft._replace(elr=(), last_known_elr=())
    room = _table_size(len(draft.elr))
    known = (*draft.elr, *partition.isr)
    elr = tuple(
        b for b in _hash_order(known, room) if b not in draft.isr and b not in unclean_shutdown
    )
    last_known = tuple(
        b
        for b in _hash_order((*known, *draft.last_known_elr), room)
        if b not in draft.isr and b not in elr
    )
    return draft._replace(elr=elr, last_known_elr=last_known)


def _table_size(expected: int) -> int:
    size = 16
    while size < expected * 4 // 3 + 1:
        size *= 2
    return size


def _hash_order(brokers: Iterable[BrokerId], room: int) -> Brokers:
    """The order of Java's HashSet: the record is written when the *list* differs, so it matters."""
    distinct = tuple(dict.fromkeys(brokers))
    while len(distinct) > room * 3 // 4:
        room *= 2
    return tuple(sorted(distinct, key=lambda b: (b ^ ((b & 0xFFFFFFFF) >> 16)) & (room - 1)))


def _with_leader(
    partition: KraftPartition, draft: _Draft, elected: Elected, rules: RuleSet
) -> tuple[_Draft, PartitionChange]:
    """Step 3: a leader from the ELR is clean and the whole ISR; an unclean one is RECOVERING."""
    leader = elected.leader
    if leader == partition.leader:
        return draft, PartitionChange()
    if leader in draft.elr:
        draft = draft._replace(isr=(leader,), elr=tuple(b for b in draft.elr if b != leader))
    change = PartitionChange(leader=leader)
    if elected.unclean:
        change = change._replace(isr=(leader,))
        if partition.recovery is not RecoveryState.RECOVERING and rules.leader_recovery_state:
            change = change._replace(recovery=RecoveryState.RECOVERING)
    return draft, change


def _write_elr(
    partition: KraftPartition,
    draft: _Draft,
    change: PartitionChange,
    rules: RuleSet,
    use_last_known_leader: bool,
) -> tuple[_Draft, PartitionChange]:
    """Step 5: an unclean election, or the feature being off, empties both lists."""
    if change.isr is not None or not rules.elr:
        draft = draft._replace(elr=(), last_known_elr=())
    if draft.elr != partition.elr:
        change = change._replace(elr=draft.elr)
    # With the last known leader in use, step 8 alone decides what last_known_elr holds.
    if not use_last_known_leader and draft.last_known_elr != partition.last_known_elr:
        change = change._replace(last_known_elr=draft.last_known_elr)
    return draft, change


def _write_isr(
    partition: KraftPartition, draft: _Draft, change: PartitionChange, rules: RuleSet
) -> PartitionChange:
    """Step 6: without ELR the last ISR is kept, so that somebody can be elected again."""
    writable = bool(draft.isr) or rules.elr
    if change.isr is None and writable and draft.isr != partition.isr:
        return change._replace(isr=draft.isr)
    return change


def _remember_last_leader(
    partition: KraftPartition, change: PartitionChange, rules: RuleSet
) -> PartitionChange:
    """Step 8: the leader is remembered when the partition loses it, forgotten when it has one."""
    leader, remembered = change.leader, partition.last_known_elr
    led = leader is not None and leader != NO_LEADER
    if rules.last_known_elr_on_any_leader_loss:
        lost = leader == NO_LEADER and not remembered
    else:
        lost = change.isr == () and remembered != (partition.leader,)
        led = led or (leader is None and partition.leader != NO_LEADER)
    if lost:
        return change._replace(last_known_elr=(partition.leader,))
    return change._replace(last_known_elr=()) if led and remembered else change


def _write_assignment(
    partition: KraftPartition, draft: _Draft, change: PartitionChange
) -> PartitionChange:
    """Step 9: the assignment and the recovery state, as far as they differ."""
    if draft.replicas and draft.replicas != partition.replicas:
        change = change._replace(replicas=draft.replicas)
    if draft.removing != partition.removing:
        change = change._replace(removing=draft.removing)
    if draft.adding != partition.adding:
        change = change._replace(adding=draft.adding)
    if draft.recovery is not partition.recovery:
        change = change._replace(recovery=draft.recovery)
    return change
