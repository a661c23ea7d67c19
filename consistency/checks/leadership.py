"""ELE: who leads, and under which epoch: what must hold in every state, whatever led to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.model import UNKNOWN_PARTITION_EPOCH
from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Finding, Sight
    from tidestaff.consistency.model import BrokerId


def leader_in_isr(sight: Sight) -> Iterator[Finding]:
    """ELE002: a leader is a member of the ISR it leads.

    Leader and ISR are set by one write, so no order of reading can tear them apart.
    """
    state = sight.state
    if state.leader >= 0 and state.leader not in state.isr:
        yield Violated(
            "ELE002",
            expected=f"leader in ISR {list(state.isr)}",
            observed=f"leader {state.leader}",
            because="one write sets leader and ISR together, in ZooKeeper and in KRaft mode",
            broker=state.leader,
        )


def leader_in_assignment(sight: Sight) -> Iterator[Finding]:
    """ELE003: a leader is one of the assigned replicas.

    State and assignment are two nodes or two records; only a coherent bracket makes them
    comparable.
    """
    replicas = sight.observation.assignment.replicas
    if sight.state.leader >= 0 and sight.state.leader not in replicas:
        yield Violated(
            "ELE003",
            expected=f"leader out of assignment {list(replicas)}",
            observed=f"leader {sight.state.leader}",
            because="a replica that is not assigned holds no log to lead with",
            broker=sight.state.leader,
        )


def leader_is_live(sight: Sight) -> Iterator[Finding]:
    """ELE004: a dead leader is replaced once its session has run out and the controller had time.

    Until then it is normal: the controller learns of a death when the session runs out, then works
    through its queue.
    """
    leader = sight.state.leader
    if leader < 0 or leader in sight.present:
        return
    if not sight.controller_settled:
        yield Unknown("ELE004", "a controller that had a session timeout to act", leader)
        return
    yield Violated(
        "ELE004",
        expected=f"a leader among the registered brokers {sorted(sight.present)}",
        observed=f"leader {leader}, which is {_absence(sight, leader)}",
        because="the controller moves leadership away when a registration goes",
        broker=leader,
    )


def _absence(sight: Sight, broker: BrokerId) -> str:
    return "fenced" if broker in sight.registrations else "not registered"


def one_leader_per_epoch(sight: Sight) -> Iterator[Finding]:
    """ELE006: one leader epoch never has two leaders, in the metadata or in the brokers' own minds.

    Two brokers that both believe to lead are lawful in different epochs, while the old one has not
    been told; never in one.
    """
    state = sight.state
    era = sight.memory.era(state.leader_epoch) if sight.memory is not None else None
    known = era is not None and sight.identified
    if era is not None and known and state.leader >= 0 and 0 <= era.leader != state.leader:
        yield Violated(
            "ELE006",
            expected=f"leader {era.leader} in epoch {state.leader_epoch}",
            observed=f"leader {state.leader} in epoch {state.leader_epoch}",
            because="every election raises the leader epoch",
            broker=state.leader,
        )
    claims: dict[int, BrokerId] = {}
    for reading in sight.replicas:
        if not reading.leads or reading.leader_epoch is None:
            continue
        first = claims.setdefault(reading.leader_epoch, reading.broker)
        if first != reading.broker:
            yield Violated(
                "ELE006",
                expected=f"one leader in epoch {reading.leader_epoch}",
                observed=f"brokers {first} and {reading.broker} both lead in it",
                because="a leader epoch is given to one broker only",
                broker=reading.broker,
            )


def leader_epoch_never_falls(sight: Sight) -> Iterator[Finding]:
    """ELE007: the leader epoch of one topic id never decreases.

    A topic deleted and made again under its old name starts at 0: without a topic id or the state
    znode's czxid that cannot be told apart, and is not judged.
    """
    before = sight.previous
    if before is None or sight.state.leader_epoch >= before.leader_epoch:
        return
    if not sight.identified:
        yield Unknown("ELE007", "topic id or czxid: the topic may have been deleted and made again")
        return
    yield Violated(
        "ELE007",
        expected=f"leader epoch {before.leader_epoch} or more",
        observed=f"leader epoch {sight.state.leader_epoch}",
        because="brokers refuse requests of a smaller epoch: replication stops",
    )


def every_change_has_a_version(sight: Sight) -> Iterator[Finding]:
    """ELE008: leader, leader epoch and ISR change only together with a new partition epoch.

    zkVersion and partition epoch are counted by the store. A change without one was made behind the
    controller's back, or the store lost writes.
    """
    before, now = sight.previous, sight.state
    if before is None or now.leader_epoch < before.leader_epoch:
        return
    if UNKNOWN_PARTITION_EPOCH in (before.partition_epoch, now.partition_epoch):
        yield Unknown("ELE008", "the partition epoch: the source does not tell it")
        return
    if not sight.identified:
        yield Unknown("ELE008", "topic id or czxid: the topic may have been deleted and made again")
        return
    changed = (now.leader, now.leader_epoch, now.isr) != (
        before.leader,
        before.leader_epoch,
        before.isr,
    )
    if now.partition_epoch < before.partition_epoch or (
        changed and now.partition_epoch == before.partition_epoch
    ):
        yield Violated(
            "ELE008",
            expected=f"partition epoch above {before.partition_epoch}",
            observed=f"partition epoch {now.partition_epoch} with leader {now.leader}, epoch "
            f"{now.leader_epoch}, ISR {list(now.isr)}",
            because="every write of the state raises its version; a change without one was not "
            "written by a controller",
        )


def deposed_leader_stops_committing(sight: Sight) -> Iterator[Finding]:
    """ELE011: a leader of an older epoch cannot go on committing once its followers have left it.

    It may lawfully commit once more with followers that have not been told either. When it goes on,
    clients are acknowledged records that will be cut.
    """
    for reading in sight.replicas:
        if not reading.leads or reading.leader_epoch is None or reading.high_watermark is None:
            continue
        remembered = sight.remembered(reading.broker)
        if reading.leader_epoch >= sight.state.leader_epoch or remembered is None:
            continue
        if sight.state.leader < 0 and reading.broker in sight.state.isr:
            continue  # nobody else can be elected: what it commits stays
        if reading.high_watermark > remembered.high_watermark:
            yield Violated(
                "ELE011",
                expected=f"the HW of broker {reading.broker} stands still at "
                f"{remembered.high_watermark}",
                observed=f"HW {reading.high_watermark} in leader epoch {reading.leader_epoch}",
                because=f"leader epoch {sight.state.leader_epoch} has begun: what is committed "
                "under the old one is cut later",
                broker=reading.broker,
            )
