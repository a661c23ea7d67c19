"""The judge of the random search: what is missed has the reason that is true of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proof.histories import Plan, live_again
from tests.proof.ledger import DELETING, FELL_BACK, judge

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


def fell_back(*, removed_ms: int | None) -> list[dict[str, Any]]:
    """The leader of b comes back with an empty disk, alone in the ISR. Its five records are lost by
    that, unless they were removed before."""
    actions: list[dict[str, Any]] = [
        {"at_ms": 4_000, "do": "pause", "broker": 2},
        {"at_ms": 6_500, "do": "produce", "topic": "b", "partition": 0, "records": 5},
        {"at_ms": removed_ms, "do": "delete_records", "topic": "b", "partition": 0, "offset": 5},
        {"at_ms": 12_900, "do": "clean_stop", "broker": 3},
        {"at_ms": 13_000, "do": "wipe_disk", "broker": 3},
        {"at_ms": 13_100, "do": "start", "broker": 3},
    ]
    return [action for action in actions if action["at_ms"] is not None]


@pytest.mark.parametrize(
    ("removed_ms", "losses", "raised", "reasons"),
    [
        pytest.param(None, 1, 1, {}, id="what-is-lost-is-raised"),
        pytest.param(9_000, 0, 0, {}, id="what-a-sample-showed-as-removed-is-not"),
        pytest.param(
            *(12_500, 0, 1, {f"loss raised: {FELL_BACK}": 1}),
            id="what-was-removed-unseen-is-raised-and-counted-under-its-own-name",
        ),
    ],
)
@pytest.mark.parametrize("preset", ["3.9.1-kraft", "4.1.1-kraft"])
def test_records_that_were_removed_are_not_lost_with_the_log(
    preset: str, removed_ms: int | None, losses: int, raised: int, reasons: dict[str, int]
) -> None:
    plan = Plan(preset, seed=1, every_ms=TWO_SECONDS_MS)
    watched = live_again(plan, fell_back(removed_ms=removed_ms), 20_000)
    found = judge(watched)
    assert len(watched.cluster.truth.losses) == losses
    assert found.confirmed["TRN001"] == raised
    assert dict(found.reasons) == reasons
    assert found.disagreements == 0
