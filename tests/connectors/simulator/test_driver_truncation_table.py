"""The exhaustive truncation table by the driver's own replicas: each row's logs, a leader that
answers and a follower that cuts, question by question."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tidestaff.connectors.simulator import following, leading
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.log import Run
from tidestaff.connectors.simulator.replica import LeadershipOrder, Phase, Replica
from tidestaff.consistency.model import Assignment, PartitionState, TopicPartition

TABLE = Path(__file__).parents[2] / "conformance" / "traces" / "truncation_table.json"
ROWS: list[dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))["rows"]
LEADER, FOLLOWER, PARTITION, AT_MOST = 1, 2, TopicPartition("t", 0), 9


@cache
def cluster(preset: str) -> SimulatedCluster:
    return SimulatedCluster(preset, [LEADER, FOLLOWER], {})


def replica(preset: str, broker: int, epochs: list[int], *, high_watermark: int) -> Replica:
    """One leader per epoch: the same offset in the same epoch is the same record."""
    made = Replica(PARTITION, broker, "id", cluster(preset).preset, set())
    made.append_fetched(Run(epoch, epoch, at, at + 1) for at, epoch in enumerate(epochs))
    made.high_watermark = high_watermark
    return made


def cuts(preset: str, row: dict[str, Any], high_watermark: int = 0) -> tuple[list[int], Replica]:
    """Where the follower's log ends after every answer that cut it, up to the first fetch that the
    leader serves."""
    leader, follower = (cluster(preset).brokers[b] for b in (LEADER, FOLLOWER))
    epoch = row["leader_epoch"]
    state = PartitionState(LEADER, epoch, (LEADER, FOLLOWER), 0)
    order = LeadershipOrder(PARTITION, "id", state, Assignment((LEADER, FOLLOWER)))
    leads = replica(preset, LEADER, row["leader_epochs"], high_watermark=0)
    follows = replica(preset, FOLLOWER, row["follower_epochs"], high_watermark=high_watermark)
    leader.replicas[PARTITION], follower.replicas[PARTITION] = leads, follows
    leading.become_leader(leader, leads, order)
    assert following.become_follower(follower, follows, order)
    following.start_over(follows)
    ends: list[int] = []
    for _ in range(AT_MOST):
        before, truncating = follows.log_end, follows.phase is Phase.TRUNCATING
        question = following.ask(follows, follower.now_ms, 0)
        assert question is not None
        answer = leading.answer(leader, FOLLOWER, question)
        if not truncating and not answer.diverging:
            return ends, follows
        following.take(follower, follows, answer)
        if follows.log_end < before or answer.diverging:
            ends.append(follows.log_end)
    pytest.fail(f"no end after {AT_MOST} questions: {ends}")


def named(row: dict[str, Any]) -> str:
    logs = ("".join(map(str, row[side])) or "-" for side in ("leader_epochs", "follower_epochs"))
    return "leader-{}-follower-{}-epoch-{}".format(*logs, row["leader_epoch"])


@pytest.mark.parametrize("preset", ["2.8.2", "3.9.1", "3.9.1-kraft"])
def test_truncation_on_fetch_cuts_round_by_round_as_the_table_has_it(preset: str) -> None:
    for row in ROWS:
        ends, follows = cuts(preset, row)
        assert ends == [cut["truncate_to"] for cut in row["rounds"]], named(row)
        assert follows.log_end == row["final_leo"], named(row)


@pytest.mark.parametrize("preset", ["2.0.1", "2.4.1"])
def test_kip_279_ends_at_the_common_prefix_of_one_history(preset: str) -> None:
    for row in ROWS:
        if row["histories_consistent"]:
            _, follows = cuts(preset, row)
            assert follows.log_end == row["longest_common_prefix"], named(row)


@pytest.mark.parametrize("preset", ["1.1.1"])
def test_kip_101_cuts_at_its_single_lookup(preset: str) -> None:
    """A row's HW is its follower's whole log, and 0: so it shows where the HW is fallen back to.

    Before 2.0.1 a leader does not know the end of an epoch older than its first; the table's rule
    answers with the start of that (LeaderEpochFileCache.endOffsetFor of 1.1 against the models').
    """
    older = 0
    for row in ROWS:
        leader, follower = row["leader_epochs"], row["follower_epochs"]
        wanted = row["kip101_single_lookup"]
        if leader and follower and follower[-1] < leader[0]:
            assert wanted == 0
            wanted, older = "local_hw", older + 1
        for high_watermark in {0, len(follower)}:
            _, follows = cuts(preset, row, high_watermark)
            end = high_watermark if wanted == "local_hw" else wanted
            assert follows.log_end == end, (named(row), high_watermark)
    assert older > 0


def test_before_epochs_the_high_watermark_is_all_that_is_kept() -> None:
    for row in ROWS:
        for high_watermark in range(len(row["follower_epochs"]) + 1):
            _, follows = cuts("0.10.2.2", row, high_watermark)
            assert follows.log_end == high_watermark, named(row)
