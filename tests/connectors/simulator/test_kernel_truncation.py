"""The exhaustive truncation table, by the kernel's own two lookups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tidestaff.connectors.simulator.kernel.state import (
    LeaderAndIsr,
    Log,
    Record,
    Replica,
)
from tidestaff.connectors.simulator.kernel.truncation import (
    known_epoch_lookup,
    last_matching_record,
    leader_epoch_lookup,
    leader_epoch_rounds,
)

TABLE = Path(__file__).parents[2] / "conformance" / "traces" / "truncation_table.json"
ROWS: list[dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))["rows"]


def log(epochs: list[int]) -> Log:
    """One leader per epoch: the same offset in the same epoch is the same record."""
    return tuple(Record(epoch, offset) for offset, epoch in enumerate(epochs))


def named(row: dict[str, Any]) -> str:
    logs = ("".join(map(str, row[side])) or "-" for side in ("leader_epochs", "follower_epochs"))
    return "leader-{}-follower-{}-epoch-{}".format(*logs, row["leader_epoch"])


def test_the_table_is_whole() -> None:
    assert len(ROWS) == 229
    assert sum(row["histories_consistent"] for row in ROWS) > 100


@pytest.mark.parametrize("row", [r for r in ROWS if r["histories_consistent"]], ids=named)
def test_on_one_history_the_last_match_ends_the_common_prefix(row: dict[str, Any]) -> None:
    leader, follower = log(row["leader_epochs"]), log(row["follower_epochs"])
    found = last_matching_record(leader_log=leader, follower_log=follower)
    assert found == row["final_leo"] == row["longest_common_prefix"]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_the_single_lookup_answers_as_kip101(row: dict[str, Any]) -> None:
    leader, follower = log(row["leader_epochs"]), log(row["follower_epochs"])
    found = leader_epoch_lookup(leader_log=leader, follower_log=follower)
    assert ("local_hw" if found is None else found) == row["kip101_single_lookup"]


def test_the_leaders_last_epoch_ends_at_its_leo_even_where_epochs_went_back() -> None:
    found = leader_epoch_lookup(leader_log=log([0, 2, 1]), follower_log=log([0, 1, 1]))
    assert found == 3


def test_an_answer_above_the_own_leo_is_cut_to_it() -> None:
    assert leader_epoch_lookup(leader_log=log([1, 1, 1]), follower_log=log([1])) == 1


def leading(epochs: list[int], leads_in: int) -> Replica:
    return Replica(1, log(epochs), 0, LeaderAndIsr(1, leads_in, (1, 2)))


@pytest.mark.parametrize("row", [r for r in ROWS if r["histories_consistent"]], ids=named)
def test_on_one_history_rounds_of_epochs_end_at_the_common_prefix(row: dict[str, Any]) -> None:
    found = leader_epoch_rounds(
        leader=leading(row["leader_epochs"], row["leader_epoch"]),
        follower_log=log(row["follower_epochs"]),
        high_watermark=0,
    )
    assert found == row["longest_common_prefix"]


@pytest.mark.parametrize(
    ("leader", "follower", "kept"),
    [
        pytest.param(leading([1, 1], 1), [1, 3, 3], 2, id="nobody-knows-the-epoch"),
        pytest.param(leading([1, 1], 4), [1, 3, 3], 1, id="its-own-epoch-ends-the-one-before"),
        pytest.param(leading([], 0), [1], 1, id="a-leader-without-records"),
        pytest.param(leading([2], 2), [1, 1], 0, id="the-leader-begins-later"),
    ],
)
def test_where_the_leader_does_not_know_the_watermark_is_kept(
    leader: Replica, follower: list[int], kept: int
) -> None:
    found = leader_epoch_rounds(leader=leader, follower_log=log(follower), high_watermark=2)
    assert found == kept


@pytest.mark.parametrize(
    ("leader", "follower", "answer"),
    [
        pytest.param([2, 2], [1], None, id="older-than-the-leaders-first-is-not-known"),
        pytest.param([1, 2], [1, 1], 1, id="what-it-knows-is-the-lookup"),
        pytest.param([2], [], 0, id="a-follower-without-records-cuts-nothing"),
        pytest.param([], [1], None, id="nor-does-an-empty-leader-know"),
        pytest.param([1, 3, 2], [1, 3], 2, id="an-epoch-that-falls-is-not-in-the-list"),
        pytest.param([1, 4], [1, 3, 2], 1, id="nor-is-it-asked-for"),
    ],
)
def test_before_2_0_1_a_leader_knows_epochs_from_its_first_on(
    leader: list[int], follower: list[int], answer: int | None
) -> None:
    assert known_epoch_lookup(leader_log=log(leader), follower_log=log(follower)) == answer
