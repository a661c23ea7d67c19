"""FCT: what the next failure would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.verdict import Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Finding, Sight


def survives_one_failure(sight: Sight) -> Iterator[Finding]:
    """FCT001: if the leader's broker stops now, somebody else can lead.

    The forecast runs the election rules of the cluster's version on the state as it is now.
    """
    observation, leader = sight.observation, sight.state.leader
    if leader < 0 or len(observation.assignment.target) < 2 or observation.deleting:
        return
    outcome = sight.without_the_leader
    if outcome.offline:
        yield Violated(
            "FCT001",
            expected=f"a next leader if broker {leader} stops",
            observed=f"ISR {list(sight.state.isr)}: the partition would be offline",
            because="no other replica that is active may be elected",
            broker=leader,
        )


def loses_nothing_at_the_next_failure(sight: Sight) -> Iterator[Finding]:
    """FCT002: if the leader's broker stops now, no committed offset is lost.

    Either unclean election is allowed and the next in line is behind, or an electable replica
    already lacks committed records.
    """
    observation, leader = sight.observation, sight.state.leader
    if leader < 0 or sight.leader_watermark is None or observation.deleting:
        return
    outcome = sight.without_the_leader
    if outcome.lost is not None:
        listed = {*sight.state.isr, *sight.state.elr}
        allowed = observation.settings.told("unclean_leader_election_enable")
        yield Violated(
            "FCT002",
            expected=f"committed offsets survive a stop of broker {leader}",
            observed=f"broker {outcome.leader} would lead without {outcome.lost}",
            because="it may be elected and does not hold them"
            + ("" if outcome.leader in listed else f": {allowed}"),
            broker=outcome.leader,
            offsets=outcome.lost,
        )
