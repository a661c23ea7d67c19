"""The judge of the random search: what is missed has the reason that is true of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proof.histories import Plan, live_again
from tests.proof.ledger import DELETING, judge

UNCLEANLY = {"unclean_leader_election_enable": True}
TWO_SECONDS_MS = 2_000


def elected_uncleanly(*, deleted: bool) -> list[dict[str, Any]]:
    """The leader of b dies, then its follower falls silent; the first comes back and is elected.
    Whether the topic is deleted then, before the next sample at 12 s, is the difference."""
    actions: list[dict[str, Any]] = [
        {"at_ms": 4_000, "do": "crash", "broker": 2},
        {"at_ms": 7_000, "do": "pause", "broker": 3},
        {"at_ms": 7_500, "do": "start", "broker": 2},
        {"at_ms": 10_500, "do": "change_settings", "topic": "b", "settings": UNCLEANLY},
    ]
    return [*actions, {"at_ms": 11_000, "do": "delete_topic", "topic": "b"}][: 4 + deleted]


@pytest.mark.parametrize("preset", ["2.8.2", "3.9.1"])
@pytest.mark.parametrize("deleted", [False, True])
def test_an_election_of_a_topic_that_is_deleted_before_the_next_sample_is_not_judged(
    preset: str, *, deleted: bool
) -> None:
    plan = Plan(preset, seed=1, every_ms=TWO_SECONDS_MS)
    watched = live_again(plan, elected_uncleanly(deleted=deleted), 20_000)
    found = judge(watched)
    assert len(watched.cluster.truth.unclean_elections) == 1
    assert (found.exact["unclean election"], found.missed["unclean election"]) == (
        (0, 1) if deleted else (1, 0)
    )
    assert dict(found.reasons) == ({f"unclean election missed: {DELETING}": 1} if deleted else {})
    assert found.disagreements == 0
