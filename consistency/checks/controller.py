"""CTL: one controller, whose epoch only rises, and whose writes are the only ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.model import NO_LEADER
from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.cluster_sight import ClusterSight
    from tidestaff.consistency.checks.sight import Finding, Sight


def somebody_is_controller(sight: ClusterSight) -> Iterator[Finding]:
    """CTL001: a cluster has a controller; while it has none, nothing fails over.

    Short gaps are normal: the node goes with the old controller's session and comes with the next
    claim. Elections, ISR changes and topic changes all wait for it.
    """
    if sight.observation.controller == NO_LEADER:
        yield Violated(
            "CTL001",
            expected="a controller",
            observed="no controller",
            because="elections, ISR changes and topic changes all wait for one",
        )


def one_controller_per_epoch(sight: ClusterSight) -> Iterator[Finding]:
    """CTL002: a controller epoch belongs to one broker.

    From 2.1 /controller and the new epoch are written in one transaction. Before, the name comes
    first and the epoch a moment later: a legal transient, so older versions are judged after a
    grace time.
    """
    observation = sight.observation
    by_epoch: dict[int, int] = {}
    for claim in observation.claims:
        first = by_epoch.setdefault(claim.controller_epoch, claim.broker)
        if first != claim.broker:
            yield _two_controllers(claim.controller_epoch, first, claim.broker)
            return
    owner = sight.memory.epoch_owner if sight.memory is not None else None
    if owner is None or not sight.coherent or observation.controller is None:
        return
    same_epoch = observation.controller_epoch == owner.controller_epoch
    if same_epoch and 0 <= observation.controller != owner.broker:
        yield _two_controllers(owner.controller_epoch, owner.broker, observation.controller)


def _two_controllers(epoch: int, first: int, second: int) -> Violated:
    return Violated(
        "CTL002",
        expected=f"one controller in controller epoch {epoch}",
        observed=f"brokers {first} and {second}",
        because="the controller epoch rises with every new controller",
        broker=second,
    )


def controller_epoch_never_falls(sight: ClusterSight) -> Iterator[Finding]:
    """CTL003: /controller_epoch only rises.

    Brokers and ZooKeeper fence whoever carries a smaller epoch; one that falls means that the store
    itself went back, as after a restore.
    """
    before = sight.memory.controller_epoch if sight.memory is not None else None
    now = sight.observation.controller_epoch
    if before is not None and now is not None and now < before:
        yield Violated(
            "CTL003",
            expected=f"controller epoch {before} or more",
            observed=f"controller epoch {now}",
            because="brokers refuse a controller with a smaller epoch than they know: "
            "nothing it decides is carried out",
        )


def no_write_by_a_stale_controller(sight: Sight) -> Iterator[Finding]:
    """CTL004: a state written after a new controller took over carries the new controller epoch.

    The epoch compared is one that was read *before* the remembered state was. Leaders up to 2.6
    change the ISR themselves and write the controller epoch they know, which may be old. Each state
    is one znode read at once, so a round in which it changed shows the write as well as any other;
    the round after would not show it any more.
    """
    before, now, memory = sight.previous, sight.state, sight.memory
    if before is None or memory is None or now.controller_epoch is None:
        return
    if now.partition_epoch <= before.partition_epoch:
        return  # not written since, or the source does not tell
    known = memory.controller_epoch_before_state
    if known is None:
        yield Unknown("CTL004", "/controller_epoch from before the last reading of the state")
        return
    written_by_leader = (
        not sight.rules.isr_change_through_controller
        and now.leader_epoch == before.leader_epoch
        and now.leader == before.leader
    )
    if now.controller_epoch < known and not written_by_leader:
        yield Violated(
            "CTL004",
            expected=f"controller epoch {known} or more in the new state",
            observed=f"controller epoch {now.controller_epoch} in version {now.partition_epoch}",
            because=f"controller epoch {known} had begun before this write: a controller that was "
            "replaced is still writing",
        )


def no_state_from_the_future(sight: Sight) -> Iterator[Finding]:
    """CTL005: no state carries a controller epoch above /controller_epoch, read after the state.

    The epoch is raised before anything is written under it, so with this order of reading a larger
    one in the state cannot come about lawfully.
    """
    written, known = sight.state.controller_epoch, sight.observation.cluster_controller_epoch
    if written is not None and known is not None and written > known:
        yield Violated(
            "CTL005",
            expected=f"controller epoch {known} or less",
            observed=f"controller epoch {written} in the partition state",
            because="/controller_epoch rises before anything is written under the new epoch",
        )
