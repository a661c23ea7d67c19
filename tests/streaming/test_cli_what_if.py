"""`tidestaff what-if` on scenarios and recordings, as a user or a deployment gate calls it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.streaming.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["what-if", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_safe_stop_exits_with_nought_and_says_so_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["what-if", "stop", "3", "--scenario", "s23-loss-0.10.2", "--at", "0"])
    text = capsys.readouterr().out
    assert code == 0
    assert text.startswith("SAFE: stopping broker 3")
    assert "3 -> " in text


def test_a_stop_of_everybody_is_not_safe(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = ask(
        capsys, "stop", "1,2,3", "--crash", "--scenario", "s23-loss-0.10.2", "--at", "0"
    )
    assert code == 2
    assert found["offline"]
    assert found["verdict"].startswith("NOT SAFE")


def test_a_plan_for_a_rolling_restart_names_an_order(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = ask(capsys, "restart", "all", "--scenario", "s23-loss-0.10.2", "--at", "0")
    assert code == 0
    assert set(found["order"]) >= {1, 2, 3}


def test_a_reassignment_to_a_broker_that_is_not_there_never_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, seen = ask(capsys, "stop", "1", "--scenario", "s23-loss-0.10.2", "--at", "0")
    del code
    topic = seen["partitions"][0]["topic"]
    plan = tmp_path / "plan.json"
    move = {"topic": topic, "partition": 0, "replicas": [77, 2, 1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    code, found = ask(capsys, "reassign", str(plan), "--scenario", "s23-loss-0.10.2", "--at", "0")
    assert code == 2
    assert found["partitions"][0]["away"] == [77]


def test_unclean_on_where_everybody_leads_is_safe_now(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = ask(capsys, "unclean", "on", "--scenario", "s23-loss-0.10.2", "--at", "0")
    assert code in (0, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stop", "77", "--scenario", "s23-loss-0.10.2"], "expected a broker of"),
        (["stop", "rack:b", "--scenario", "s23-loss-0.10.2"], "no broker of rack"),
        (["stpo", "1", "--scenario", "s23-loss-0.10.2"], "did you mean stop"),
        (["stop", "1"], "expected one of --bootstrap-server"),
        (["unclean", "off", "--scenario", "s23-loss-0.10.2"], "expected on"),
    ],
)
def test_what_is_not_understood_is_told_with_exit_code_three(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, found = ask(capsys, *arguments)
    assert code == 3
    assert said in " ".join(found["errors"])


def test_a_recording_answers_as_the_cluster_would_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The end of that story: all are back in sync, and broker 1 leads, last of the assignment."""
    main(["simulate", "s23-loss-3.9", "--record", str(tmp_path / "kept")])
    capsys.readouterr()
    code, leads = ask(capsys, "stop", "1", "--recording", str(tmp_path / "kept"))
    (moved,) = leads["partitions"]
    assert (code, moved["leader"], moved["isr"]) == (0, [1, 3], [[1, 2, 3], [2, 3]])
