"""Every action of the protocol as a pure function: (state, params, rules) -> state or NotEnabled.

Steps are small on purpose: one record per fetch, the HW by one. Whoever wants larger ones composes
them. Choices (who is elected, who handles which request) are params: a scheduler, a search or a
trace makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from tidestaff.connectors.simulator.kernel.rules import Fence, IsrExpand, RuleSet, Truncation
from tidestaff.connectors.simulator.kernel.state import (
    Isr,
    LeaderAndIsr,
    Record,
    Replica,
    State,
    follows,
    follows_in_epoch,
)
from tidestaff.connectors.simulator.kernel.truncation import (
    last_matching_record,
    truncation_point,
)
from tidestaff.consistency.model import NO_LEADER, BrokerId

Params: TypeAlias = Mapping[str, int]


class NotEnabled(NamedTuple):
    """The action cannot happen in this state; `because` is the condition that fails."""

    because: str


Outcome: TypeAlias = State | NotEnabled
ActionFunction: TypeAlias = Callable[[State, Params, RuleSet], Outcome]

NO_SUCH_REPLICA: Final = NotEnabled("no such replica")
NOT_LEADING: Final = NotEnabled("it does not believe that it leads")
NOT_FOLLOWING: Final = NotEnabled("the follower does not believe in this leader")
FENCED: Final = NotEnabled("the fence refuses the follower")


def controller_elect(state: State, params: Params, _: RuleSet) -> Outcome:
    """Any member of the ISR may be elected, except the one that leads already."""
    leader = params["leader"]
    if leader not in state.quorum.isr:
        return NotEnabled("the replica is not in the ISR")
    if leader == state.quorum.leader:
        return NotEnabled("the replica leads already")
    return _controller_decides(state, leader, state.quorum.isr)


def controller_shrink_isr(state: State, params: Params, _: RuleSet) -> Outcome:
    """A replica that is gone leaves the ISR; a leader that is gone leaves no leader behind.

    The last member stays in the ISR when it led: it alone is known to have what was committed.
    """
    replica, quorum = params["replica"], state.quorum
    others = without(quorum.isr, replica)
    if replica == quorum.leader:
        return _controller_decides(state, NO_LEADER, others or quorum.isr)
    if replica in quorum.isr:
        return _controller_decides(state, quorum.leader, others)
    return NotEnabled("the replica is neither leader nor in the ISR")


def controller_unclean_elect(state: State, params: Params, _: RuleSet) -> Outcome:
    """A replica from outside the ISR is elected and becomes the whole ISR."""
    leader = params["leader"]
    if state.replica(leader) is None:
        return NO_SUCH_REPLICA
    if leader in state.quorum.isr:
        return NotEnabled("the replica is in the ISR: electing it is clean")
    return _controller_decides(state, leader, (leader,))


def become_leader(state: State, params: Params, _: RuleSet) -> Outcome:
    """Whoever a request with a new epoch names leads in it; log and HW stay as they are."""
    replica, request = _addressed(state, params)
    if replica is None or request is None:
        return NotEnabled("no such replica or request")
    if request.leader != replica.broker:
        return NotEnabled("the request names another leader")
    if request.leader_epoch <= replica.belief.leader_epoch:
        return NotEnabled("the replica knows this epoch already")
    return state.with_replica(replica._replace(belief=request))


def become_follower(state: State, params: Params, rules: RuleSet) -> Outcome:
    """Whoever learns of a new leader cuts its log by the rule and then takes the belief over."""
    replica, request = _addressed(state, params)
    if replica is None or request is None:
        return NotEnabled("no such replica or request")
    leader = state.replica(request.leader)
    if leader is None or leader.broker == replica.broker:
        return NotEnabled("the request names no other leader")
    if request.leader_epoch <= replica.belief.leader_epoch:
        return NotEnabled("the replica knows this epoch already")
    leads_in_it = leader.believes_it_leads and (leader.belief.leader_epoch == request.leader_epoch)
    if rules.truncation_fenced and not leads_in_it:
        return NotEnabled("the leader does not lead in this epoch yet")
    cut = truncation_point(rules.truncate_on_become_follower, leader=leader, follower=replica)
    return state.with_replica(_truncated(replica, cut)._replace(belief=request))


def leader_write(state: State, params: Params, _: RuleSet) -> Outcome:
    """Whoever believes it leads appends in its own epoch, rightly or not."""
    leader = state.replica(params["leader"])
    if leader is None or not leader.believes_it_leads:
        return NOT_LEADING
    if params["record_id"] != state.next_record_id:
        return NotEnabled("record ids are given out in order, each once")
    record = Record(leader.belief.leader_epoch, params["record_id"])
    written = state.with_replica(leader._replace(log=(*leader.log, record)))
    return written._replace(next_record_id=state.next_record_id + 1)


def follower_fetch(state: State, params: Params, rules: RuleSet) -> Outcome:
    """A follower gets the record at its LEO, and with it the leader's HW, which may be lower."""
    follower, leader = _pair(state, params)
    if follower is None or leader is None or not follows(follower, leader):
        return NOT_FOLLOWING
    offset = follower.log_end_offset
    if offset >= leader.log_end_offset:
        return NotEnabled("the leader has no record at this offset")
    if not passes(rules.fetch_fence, leader=leader, follower=follower, offset=offset - 1):
        return FENCED
    return state.with_replica(
        follower._replace(
            log=(*follower.log, leader.log[offset]),
            high_watermark=min(leader.high_watermark, offset + 1),
        )
    )


def follower_truncate(state: State, params: Params, rules: RuleSet) -> Outcome:
    """The first try of KIP-320: a follower whose tail differs cuts back to the last match."""
    if rules.truncate_on_become_follower is not Truncation.NONE_TRUNCATE_ON_TAIL_MISMATCH:
        return NotEnabled("this rule set truncates when a replica becomes a follower")
    follower, leader = _pair(state, params)
    if follower is None or leader is None or not follows(follower, leader):
        return NOT_FOLLOWING
    if tail_epoch_matches(leader=leader, follower=follower):
        return NotEnabled("the follower's tail matches the leader's log")
    cut = last_matching_record(leader_log=leader.log, follower_log=follower.log)
    return state.with_replica(_truncated(follower, cut))


def leader_advance_hw(state: State, params: Params, rules: RuleSet) -> Outcome:
    """A record is committed once the whole ISR the leader believes in holds its offset."""
    leader = state.replica(params["leader"])
    if leader is None or not leader.believes_it_leads:
        return NOT_LEADING
    offset = leader.high_watermark
    if offset >= leader.log_end_offset:
        return NotEnabled("nothing is above the HW")
    for member in map(state.replica, leader.belief.isr):
        if member is None or not follows(member, leader):
            return NotEnabled("a member of the believed ISR does not follow")
        if offset >= member.log_end_offset:
            return NotEnabled("a member of the believed ISR has not fetched the offset")
        if not passes(rules.hw_fence, leader=leader, follower=member, offset=offset):
            return FENCED
    return state.with_replica(leader._replace(high_watermark=offset + 1))


def leader_shrink_isr(state: State, params: Params, rules: RuleSet) -> Outcome:
    """The znode's leader, in the znode's epoch, drops a member that is behind its LEO.

    A follower that the HW fence refuses counts as behind: the leader does not see its position.
    """
    leader, replica = state.replica(params["leader"]), state.replica(params["replica"])
    if leader is None or replica is None:
        return NO_SUCH_REPLICA
    if not is_true_leader(state, leader):
        return NotEnabled("it is not the znode's leader in the znode's epoch")
    if replica.broker not in state.quorum.isr:
        return NotEnabled("the replica is not in the ISR")
    if _reached(rules, leader=leader, follower=replica, end=leader.log_end_offset):
        return NotEnabled("the replica follows and has all the leader has")
    return _leader_decides(state, leader, without(state.quorum.isr, replica.broker))


def leader_expand_isr(state: State, params: Params, rules: RuleSet) -> Outcome:
    """The znode's leader, in the znode's epoch, takes in a follower that reached its HW."""
    leader, replica = state.replica(params["leader"]), state.replica(params["replica"])
    if leader is None or replica is None:
        return NO_SUCH_REPLICA
    if not is_true_leader(state, leader):
        return NotEnabled("it is not the znode's leader in the znode's epoch")
    if replica.broker in state.quorum.isr:
        return NotEnabled("the replica is in the ISR already")
    if not _reached(rules, leader=leader, follower=replica, end=leader.high_watermark):
        return NotEnabled("the replica does not follow or has not reached the leader's HW")
    needs_epoch = rules.isr_expand is IsrExpand.LEO_REACHED_HW_AND_HW_IN_CURRENT_EPOCH
    if needs_epoch and not hw_in_current_epoch(leader):
        return NotEnabled("the leader's HW has not reached its own epoch")
    needs_start = rules.isr_expand is IsrExpand.LEO_REACHED_HW_AND_EPOCH_START
    if needs_start and replica.log_end_offset < epoch_start(leader):
        return NotEnabled("the replica has not reached the start of the leader's epoch")
    return _leader_decides(state, leader, tuple(sorted((*state.quorum.isr, replica.broker))))


def crash(state: State, params: Params, _: RuleSet) -> Outcome:
    """A broker restarts with what was flushed: it forgets leader and ISR, but not the epoch."""
    replica, keep, high_watermark = state.replica(params["replica"]), params["keep"], params["hw"]
    if replica is None:
        return NO_SUCH_REPLICA
    if not 0 <= keep <= replica.log_end_offset:
        return NotEnabled("it cannot keep more than its log")
    if not 0 <= high_watermark <= min(replica.high_watermark, keep):
        return NotEnabled("its checkpointed HW cannot be above its HW or above what it keeps")
    belief = LeaderAndIsr(NO_LEADER, replica.belief.leader_epoch, ())
    return state.with_replica(Replica(replica.broker, replica.log[:keep], high_watermark, belief))


def passes(fence: Fence, *, leader: Replica, follower: Replica, offset: int) -> bool:
    """Whether the leader may serve or count this follower, who follows it, at this offset."""
    if fence is Fence.NONE:
        return True
    if fence is Fence.SAME_LEADER_EPOCH:
        return follows_in_epoch(follower, leader)
    if fence is Fence.TAIL_EPOCH_MATCHES:
        return tail_epoch_matches(leader=leader, follower=follower)
    assert fence is Fence.RECORD_EPOCH_MATCHES
    return offset < 0 or leader.log[offset].epoch == follower.log[offset].epoch


def _reached(rules: RuleSet, *, leader: Replica, follower: Replica, end: int) -> bool:
    """The leader sees that the follower holds all below `end`: it follows, and passes the fence."""
    return (
        follows(follower, leader)
        and follower.log_end_offset >= end
        and passes(rules.hw_fence, leader=leader, follower=follower, offset=end - 1)
    )


def tail_epoch_matches(*, leader: Replica, follower: Replica) -> bool:
    """The leader holds the offset of the follower's last record, written in the same epoch."""
    if not follower.log:
        return True
    tail = follower.log_end_offset - 1
    return tail < leader.log_end_offset and leader.log[tail].epoch == follower.log[tail].epoch


def hw_in_current_epoch(leader: Replica) -> bool:
    """All below the leader's LEO is committed, or the next record to commit is of its epoch."""
    offset = leader.high_watermark
    return offset == leader.log_end_offset or (
        leader.log[offset].epoch == leader.belief.leader_epoch
    )


def epoch_start(leader: Replica) -> int:
    """Where the leader's own epoch begins in its log: its LEO as long as it has written nothing."""
    older = (r.epoch != leader.belief.leader_epoch for r in leader.log)
    return sum(older)


def is_true_leader(state: State, replica: Replica) -> bool:
    """Belief and znode agree that this replica leads, and in which epoch."""
    return (
        replica.believes_it_leads
        and state.quorum.leader == replica.broker
        and state.quorum.leader_epoch == replica.belief.leader_epoch
    )


def without(isr: Isr, broker: BrokerId) -> Isr:
    return tuple(member for member in isr if member != broker)


def _controller_decides(state: State, leader: BrokerId, isr: Isr) -> State:
    request = LeaderAndIsr(leader, state.quorum.leader_epoch + 1, isr)
    return state._replace(quorum=request, requests=(*state.requests, request))


def _leader_decides(state: State, leader: Replica, isr: Isr) -> State:
    belief = leader.belief._replace(isr=isr)
    changed = state.with_replica(leader._replace(belief=belief))
    return changed._replace(quorum=state.quorum._replace(isr=isr))


def _addressed(state: State, params: Params) -> tuple[Replica | None, LeaderAndIsr | None]:
    return state.replica(params["replica"]), state.request(params["leader_epoch"])


def _pair(state: State, params: Params) -> tuple[Replica | None, Replica | None]:
    """Follower and leader; None for both where one replica is named as both."""
    if params["follower"] == params["leader"]:
        return None, None
    return state.replica(params["follower"]), state.replica(params["leader"])


def _truncated(replica: Replica, log_end_offset: int) -> Replica:
    high_watermark = min(replica.high_watermark, log_end_offset)
    return replica._replace(log=replica.log[:log_end_offset], high_watermark=high_watermark)
