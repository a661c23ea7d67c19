"""Actions that the published specifications do not have and brokers do: the driver needs them.

They stay out of the table of actions, so that searches and traces keep the specifications' own.
What is larger in the driver than here (a fetch of many records, a high watermark that rises by
many) is several actions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.connectors.simulator.kernel.actions import (
    FENCED,
    NO_SUCH_REPLICA,
    NOT_FOLLOWING,
    NotEnabled,
    Outcome,
    Params,
    passes,
)
from tidestaff.connectors.simulator.kernel.state import NOTHING_HEARD, Replica, State, follows

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.kernel.rules import RuleSet


def restart(state: State, params: Params, _: RuleSet) -> Outcome:
    """A process ends, and the next one begins with what the disk holds.

    Beyond `crash`: it knows no leader epoch, which is in memory only, so that it takes the request
    of an epoch again; and its HW is that of the checkpoint, which may be above the one it had,
    where that fell under a new leader.
    """
    replica, keep, high_watermark = state.replica(params["replica"]), params["keep"], params["hw"]
    if replica is None:
        return NO_SUCH_REPLICA
    if not 0 <= keep <= replica.log_end_offset:
        return NotEnabled("it cannot keep more than its log")
    if not 0 <= high_watermark <= keep:
        return NotEnabled("its HW cannot be above what it keeps")
    return state.with_replica(
        Replica(replica.broker, replica.log[:keep], high_watermark, NOTHING_HEARD)
    )


def controller_repeat(state: State, _: Params, __: RuleSet) -> Outcome:
    """The znode's present state is sent again in its own epoch, with the ISR of now: to a broker
    that starts, or by a new controller to everybody."""
    quorum = state.quorum
    others = tuple(r for r in state.requests if r.leader_epoch != quorum.leader_epoch)
    if len(others) == len(state.requests):
        return NotEnabled("nothing was sent in this epoch")
    return state._replace(requests=(*others, quorum))


def follower_hear_hw(state: State, params: Params, rules: RuleSet) -> Outcome:
    """A fetch at the leader's end, or within its log, that brings no record, but the HW."""
    follower, leader = state.replica(params["follower"]), state.replica(params["leader"])
    if follower is None or leader is None or follower is leader or not follows(follower, leader):
        return NOT_FOLLOWING
    offset = follower.log_end_offset
    if offset > leader.log_end_offset:
        return NotEnabled("the follower is beyond the leader's end")
    if not passes(rules.fetch_fence, leader=leader, follower=follower, offset=offset - 1):
        return FENCED
    heard = min(leader.high_watermark, offset)
    return state.with_replica(follower._replace(high_watermark=heard))


def follower_out_of_range(state: State, params: Params, rules: RuleSet) -> Outcome:
    """A follower that asks beyond its leader's end cuts its log there."""
    follower, leader = state.replica(params["follower"]), state.replica(params["leader"])
    if follower is None or leader is None or follower is leader or not follows(follower, leader):
        return NOT_FOLLOWING
    end = leader.log_end_offset
    if follower.log_end_offset <= end:
        return NotEnabled("the follower is not beyond the leader's end")
    if not passes(rules.fetch_fence, leader=leader, follower=follower, offset=end):
        return FENCED
    high_watermark = min(follower.high_watermark, end)
    return state.with_replica(
        follower._replace(log=follower.log[:end], high_watermark=high_watermark)
    )
