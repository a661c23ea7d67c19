"""Who is controller in ZooKeeper mode, and which of its writes are let through.

Mirrors KafkaZkClient (claim, fencing). The znodes are plain values: every function takes what is
in ZooKeeper and gives what is there afterwards.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tidestaff.consistency.model import BrokerId, PartitionState
    from tidestaff.consistency.versions import RuleSet

MATCH_ANY_VERSION: Final = -1
ZOOKEEPER_CONTROLLER: Final = -1
FIRST_CONTROLLER_EPOCH: Final = 1


class Code(Enum):
    """ZooKeeper's result codes, as far as fencing needs them, and Kafka's ControllerMoved."""

    OK = "OK"
    NONODE = "NONODE"
    NODEEXISTS = "NODEEXISTS"
    BADVERSION = "BADVERSION"
    CONTROLLER_MOVED = "ControllerMovedException"


class ControllerNode(NamedTuple):
    """/controller. `kraft_epoch` is kraftControllerEpoch, -1 for a broker in ZooKeeper mode.

    A broker's node is ephemeral; that of a KRaft controller (migration) outlives its session.
    """

    broker: BrokerId
    kraft_epoch: int = ZOOKEEPER_CONTROLLER

    @property
    def ephemeral(self) -> bool:
        return self.kraft_epoch == ZOOKEEPER_CONTROLLER


class EpochNode(NamedTuple):
    """/controller_epoch: its number and its zkVersion."""

    controller_epoch: int
    version: int


class ControllerZnodes(NamedTuple):
    """The two nodes that say who is controller. No /controller is a legal state: nobody is now."""

    controller: ControllerNode | None = None
    epoch: EpochNode | None = None


class ClaimOutcome(Enum):
    """How an attempt to become controller ended.

    OTHER_CONTROLLER: /controller was there, the broker only watches. LOST_RACE: a KRaft
    controller's transaction failed and it will try again. NO_EPOCH: a KRaft controller found no
    /controller_epoch.
    """

    CLAIMED = "claimed"
    OTHER_CONTROLLER = "other-controller"
    CONTROLLER_MOVED = "controller-moved"
    LOST_RACE = "lost-race"
    NO_EPOCH = "no-epoch"


class Claim(NamedTuple):
    """The outcome, the znodes afterwards, and what the claimant holds: its epoch and the
    zkVersion of /controller_epoch by which its writes are fenced (both None unless CLAIMED)."""

    outcome: ClaimOutcome
    znodes: ControllerZnodes
    controller_epoch: int | None = None
    epoch_version: int | None = None


def create_epoch_node(
    node: EpochNode | None, *, controller_epoch: int
) -> tuple[Code, EpochNode | None]:
    """/controller_epoch is created once, at version 0; a second creator is refused."""
    if node is not None:
        return Code.NODEEXISTS, node
    return Code.OK, EpochNode(controller_epoch, 0)


def set_epoch_node(
    node: EpochNode | None, *, controller_epoch: int, expected_version: int
) -> tuple[Code, EpochNode | None]:
    """/controller_epoch is set only by whoever knows its version, which then rises by one."""
    if node is None:
        return Code.NONODE, None
    if expected_version not in (MATCH_ANY_VERSION, node.version):
        return Code.BADVERSION, node
    return Code.OK, EpochNode(controller_epoch, node.version + 1)


def claim_controller(
    znodes: ControllerZnodes, *, broker: BrokerId, rules: RuleSet, read: EpochNode | None = None
) -> Claim:
    """A broker becomes controller only where /controller does not exist; the epoch then rises by
    one.

    `read` is /controller_epoch as the broker read it before, where that may be out of date.
    """
    if znodes.controller is not None:
        return Claim(ClaimOutcome.OTHER_CONTROLLER, znodes)
    if rules.controller_claim_atomic:
        return register_controller(znodes, broker=broker, read=read)
    created = create_controller_node(znodes, broker=broker)
    return bump_controller_epoch(created.znodes, read=read)


def register_controller(
    znodes: ControllerZnodes, *, broker: BrokerId, read: EpochNode | None = None
) -> Claim:
    """2.1+: /controller is created and /controller_epoch raised in one transaction, or neither.

    A transaction refused with NODEEXISTS or BADVERSION is still a success if /controller names the
    broker under the very epoch it tried to write: then only the reply was lost.
    """
    # A missing epoch node is created first, with 0: the first controller's epoch is then 1.
    epoch = znodes.epoch or EpochNode(0, 0)
    before = znodes._replace(epoch=epoch)
    seen = epoch if read is None else read
    claimed_epoch = seen.controller_epoch + 1
    code, after = set_epoch_node(
        epoch, controller_epoch=claimed_epoch, expected_version=seen.version
    )
    if before.controller is None and code is Code.OK and after is not None:
        claimed = ControllerZnodes(ControllerNode(broker), after)
        return Claim(ClaimOutcome.CLAIMED, claimed, claimed_epoch, after.version)
    mine = before.controller is not None and before.controller.broker == broker
    if mine and epoch.controller_epoch == claimed_epoch:
        return Claim(ClaimOutcome.CLAIMED, before, claimed_epoch, epoch.version)
    return Claim(ClaimOutcome.CONTROLLER_MOVED, before)


def create_controller_node(znodes: ControllerZnodes, *, broker: BrokerId) -> Claim:
    """0.8 - 2.0, first step: /controller names the broker while /controller_epoch is still the
    old.

    The outcome CLAIMED carries no epoch: what is seen now is a legal transient, not yet a
    controller.
    """
    if znodes.controller is not None:
        return Claim(ClaimOutcome.OTHER_CONTROLLER, znodes)
    return Claim(ClaimOutcome.CLAIMED, znodes._replace(controller=ControllerNode(broker)))


def bump_controller_epoch(znodes: ControllerZnodes, *, read: EpochNode | None = None) -> Claim:
    """0.8 - 2.0, second step: the epoch rises by compare-and-set; the first controller creates
    it as 1.

    That first controller believes the new node to have version 1, though ZooKeeper gave it 0.
    """
    seen = znodes.epoch if read is None else read
    if seen is None:
        created = znodes._replace(epoch=EpochNode(FIRST_CONTROLLER_EPOCH, 0))
        return Claim(ClaimOutcome.CLAIMED, created, FIRST_CONTROLLER_EPOCH, 1)
    code, after = set_epoch_node(
        znodes.epoch,
        controller_epoch=seen.controller_epoch + 1,
        expected_version=seen.version,
    )
    if code is not Code.OK or after is None:
        return Claim(ClaimOutcome.CONTROLLER_MOVED, znodes)
    moved = znodes._replace(epoch=after)
    return Claim(ClaimOutcome.CLAIMED, moved, after.controller_epoch, after.version)


def claim_for_kraft(
    znodes: ControllerZnodes, *, node: BrokerId, kraft_epoch: int, read: EpochNode | None = None
) -> Claim:
    """Migration (3.4 - 3.9): a KRaft controller takes /controller from whoever has it, for good.

    Only a KRaft controller of the same or a newer KRaft epoch stands in its way. /controller_epoch
    must exist and rises by one.
    """
    holder = znodes.controller
    if holder is not None and not holder.ephemeral and holder.kraft_epoch >= kraft_epoch:
        return Claim(ClaimOutcome.CONTROLLER_MOVED, znodes)
    if znodes.epoch is None:
        return Claim(ClaimOutcome.NO_EPOCH, znodes)
    seen = znodes.epoch if read is None else read
    code, after = set_epoch_node(
        znodes.epoch,
        controller_epoch=seen.controller_epoch + 1,
        expected_version=seen.version,
    )
    if code is not Code.OK or after is None:
        return Claim(ClaimOutcome.LOST_RACE, znodes)
    claimed = ControllerZnodes(ControllerNode(node, kraft_epoch), after)
    return Claim(ClaimOutcome.CLAIMED, claimed, after.controller_epoch, after.version)


def resign(znodes: ControllerZnodes, *, held_epoch_version: int) -> tuple[Code, ControllerZnodes]:
    """A controller deletes /controller only while /controller_epoch still has the version it
    holds."""
    if znodes.epoch is None or held_epoch_version not in (MATCH_ANY_VERSION, znodes.epoch.version):
        return Code.CONTROLLER_MOVED, znodes
    if znodes.controller is None:
        return Code.NONODE, znodes
    return Code.OK, znodes._replace(controller=None)


def session_ended(znodes: ControllerZnodes, *, broker: BrokerId) -> ControllerZnodes:
    """A broker's /controller goes with its session; /controller_epoch stays, and so does a KRaft
    controller's /controller."""
    holder = znodes.controller
    if holder is None or holder.broker != broker or not holder.ephemeral:
        return znodes
    return znodes._replace(controller=None)


class StateWrite(NamedTuple):
    """The result of a write to a state node, and the node's zkVersion afterwards (None if
    refused)."""

    code: Code
    new_version: int | None = None


def write_state(
    *,
    node_version: int | None,
    expected_version: int,
    controller_epoch_version: int,
    held_epoch_version: int,
    rules: RuleSet,
) -> StateWrite:
    """A state node is written only at the version that was read and, from 2.1, only by the
    controller that still holds /controller_epoch's version; that check comes first and ends the
    controller.

    `node_version` None: the node does not exist. BADVERSION is retried after a new read: the
    leader changed its ISR meanwhile.
    """
    held = (MATCH_ANY_VERSION, controller_epoch_version)
    if rules.controller_writes_fenced and held_epoch_version not in held:
        return StateWrite(Code.CONTROLLER_MOVED)
    if node_version is None:
        return StateWrite(Code.NONODE)
    if expected_version not in (MATCH_ANY_VERSION, node_version):
        return StateWrite(Code.BADVERSION)
    return StateWrite(Code.OK, node_version + 1)


def may_change(state: PartitionState, *, controller_epoch: int) -> bool:
    """A controller does not touch a state node that a later controller has written (all
    versions)."""
    return state.controller_epoch is None or state.controller_epoch <= controller_epoch
