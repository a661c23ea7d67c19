"""`tidestaff predict truncation` and `watermark`: the seeds' numbers, every exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.streaming.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def predicted(
    tmp_path: Path, what: str, version: str, asked: object, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON and text of one prediction; both forms must agree on the code."""
    file = tmp_path / "input.json"
    file.write_text(json.dumps(asked), encoding="utf-8")
    arguments = ["predict", what, "--version", version, "--input", str(file)]
    code = main([*arguments, "--json"])
    content = json.loads(capsys.readouterr().out)
    assert main(arguments) == code == content["exit_code"]
    return code, content, capsys.readouterr().out


def logs(
    leader: list[list[int]], leader_end: int, follower: list[list[int]], end: int, **more: Any
) -> dict[str, Any]:
    """Two logs; `hw` is the follower's, its log end unless told."""
    return {
        "leader": {"log_end_offset": leader_end, "epochs": leader},
        "follower": {
            "log_end_offset": end,
            "high_watermark": more.pop("hw", end),
            "epochs": follower,
        },
        **more,
    }


TWO = [[0, 0], [1, 10]]


@pytest.mark.parametrize(
    ("version", "asked", "final", "lost", "code"),
    [
        pytest.param("3.9", logs(TWO, 15, [[0, 0]], 8), 8, None, 0, id="S-33-older-and-shorter"),
        pytest.param("3.9", logs(TWO, 15, TWO, 12), 12, None, 0, id="S-33-same-and-shorter"),
        pytest.param("3.9", logs(TWO, 15, [[0, 0]], 13, hw=9), 10, None, 1, id="S-33-older-longer"),
        pytest.param("3.9", logs(TWO, 15, TWO, 17, hw=9), 15, None, 1, id="S-33-same-and-longer"),
        pytest.param(
            "3.9",
            logs(TWO, 15, [[0, 0]], 13, hw=9, committed=12),
            *(10, [10, 12], 2),
            id="what-was-committed-and-goes-is-lost",
        ),
        pytest.param(
            "0.10.2", logs([[0, 0]], 2, [[0, 0]], 2, hw=1), 1, None, 1, id="S-23-cut-but-not-lost"
        ),
        pytest.param(
            "3.9", logs([[0, 0]], 2, [[0, 0]], 2, hw=1), 2, None, 0, id="S-27-epochs-cut-nothing"
        ),
        pytest.param(
            "0.10.2", logs([[0, 0]], 1, [[0, 0]], 2), 1, [1, 2], 2, id="S-23-the-loss-itself"
        ),
        pytest.param(
            "3.9", logs([[0, 0], [1, 1]], 2, [[0, 0]], 2), 1, [1, 2], 2, id="S-28-cut-at-1"
        ),
        pytest.param(
            "1.1", logs([[0, 0], [1, 1]], 2, [[0, 0]], 2), 1, [1, 2], 2, id="S-28-kip-101"
        ),
        pytest.param(
            "2.0", logs([[0, 0], [1, 1]], 2, [[0, 0]], 2), 1, [1, 2], 2, id="S-28-kip-279"
        ),
    ],
)
def test_truncation(
    version: str,
    asked: dict[str, Any],
    final: int,
    lost: list[int] | None,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, content, text = predicted(tmp_path, "truncation", version, asked, capsys)
    assert (content["final_offset"], content["lost"], found) == (final, lost, code)
    assert f"(exit {code})" in text
    assert list(content) == [
        *("prediction", "rule_set", "final_offset", "rounds", "restart_at", "exact", "cut"),
        *("comes_back", "lost", "diverges_at", "broker_exits", "because", "rule", "result"),
        "exit_code",
    ]


def test_records_cut_by_the_watermark_come_back_from_the_leader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = logs([[0, 0]], 10, [[0, 0]], 6, hw=4)
    _, content, text = predicted(tmp_path, "truncation", "0.10.2", asked, capsys)
    assert (content["cut"], content["comes_back"], content["exact"]) == ([4, 6], [4, 6], False)
    assert "fetched again from the leader" in text


def test_a_divergence_nobody_notices_is_critical(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S-24, above an uncommitted offset: HW truncation leaves two records at one offset."""
    asked = logs([[0, 0], [1, 1]], 3, [[0, 0]], 2, hw=2)
    code, content, _ = predicted(tmp_path, "truncation", "0.10.2", asked, capsys)
    assert (code, content["cut"], content["diverges_at"]) == (2, None, 1)


def test_a_broker_ahead_of_its_leader_exits_before_0_11(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = logs([], 1, [], 2, settings={"unclean_leader_election_enable": False})
    code, content, text = predicted(tmp_path, "truncation", "0.10.2", asked, capsys)
    assert (code, content["broker_exits"]) == (2, True)
    assert "the follower's broker exits" in text


def test_a_follower_behind_the_leaders_log_start_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = logs([[0, 20]], 30, [[0, 0]], 5)
    asked["leader"]["log_start_offset"] = 20
    code, content, text = predicted(tmp_path, "truncation", "3.9", asked, capsys)
    assert (content["restart_at"], content["cut"], content["lost"]) == (20, [0, 5], None)
    assert code == 1
    assert "begins anew at 20" in text


def leads(end: int, hw: int, isr: list[int], ends: dict[str, Any], **more: Any) -> dict[str, Any]:
    followers = {
        broker: {"log_end_offset": each} if isinstance(each, int) else each
        for broker, each in ends.items()
    }
    leader = {"log_end_offset": end, "high_watermark": hw}
    return {"leader": leader, "followers": followers, "isr": isr, **more}


JOINING = {"log_end_offset": 3, "caught_up": True}
FENCED = {"log_end_offset": 3, "caught_up": True, "eligible": False}


@pytest.mark.parametrize(
    ("version", "asked", "watermark", "held_by", "frozen", "code"),
    [
        pytest.param(
            "3.9", leads(8, 4, [1, 2], {"2": 8}), 8, [], False, 0, id="S-20-slowest-reaches-the-end"
        ),
        pytest.param("3.9", leads(8, 8, [1], {}), 8, [], False, 0, id="at-the-end-is-well"),
        pytest.param("3.9", leads(11, 0, [1, 2], {"2": 9}), 9, [2], False, 0, id="S-21-moves-to-9"),
        pytest.param("3.9", leads(8, 4, [1, 2], {"2": 4}), 4, [2], False, 1, id="held-by-a-member"),
        pytest.param(
            "3.9", leads(8, 4, [1, 2], {"2": 4, "3": 2}), 4, [2], False, 1, id="others-not-awaited"
        ),
        pytest.param(
            "3.9", leads(8, 4, [1], {"2": JOINING}), 4, [2], False, 1, id="a-joining-one-holds-it"
        ),
        pytest.param(
            "0.10.1", leads(8, 4, [1], {"2": JOINING}), 8, [], False, 0, id="but-not-up-to-0.10.1"
        ),
        pytest.param(
            "3.9", leads(8, 4, [1], {"2": FENCED}), 8, [], False, 0, id="nor-if-it-may-not-join"
        ),
        pytest.param(
            "3.7",
            leads(8, 5, [1], {"2": 5, "3": 5}, min_insync_replicas=2),
            *(5, [], True, 1),
            id="frozen-under-min-isr-from-3.7",
        ),
        pytest.param(
            "3.6",
            leads(8, 5, [1], {"2": 5, "3": 5}, min_insync_replicas=2),
            *(8, [], False, 0),
            id="not-frozen-in-3.6",
        ),
        pytest.param(
            "3.9",
            leads(8, 4, [1], {"2": {"log_end_offset": 6}}, maximal_isr=[1, 2]),
            *(6, [2], False, 0),
            id="a-member-being-added-counts-already",
        ),
    ],
)
def test_watermark(
    version: str,
    asked: dict[str, Any],
    watermark: int,
    held_by: list[int],
    frozen: bool,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, content, text = predicted(tmp_path, "watermark", version, asked, capsys)
    assert (content["high_watermark"], content["held_by"]) == (watermark, held_by)
    assert (content["frozen"], found) == (frozen, code)
    assert ("frozen" in text) == frozen
    assert list(content) == [
        *("prediction", "rule_set", "high_watermark_before", "high_watermark", "log_end_offset"),
        *("frozen", "held_by", "awaited", "because", "rule", "result", "exit_code"),
    ]
