"""`tidestaff tour`: what it shows is what the rules say, readable, and coloured only if wanted."""

from __future__ import annotations

import json

import pytest
from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.versions import rules_for
from tidestaff.streaming.cli import main
from tidestaff.streaming.commands import layout, tour
from tidestaff.streaming.commands.drawing import DrawnLog, draw
from tidestaff.streaming.commands.layout import Paint
from tidestaff.streaming.commands.scene import as_leader, log
from tidestaff.streaming.commands.tour_elections import (
    assignment_order,
    last_replica,
    unclean_choice,
)
from tidestaff.streaming.commands.tour_logs import divergence, leader_answer, loss_by_watermark
from tidestaff.streaming.commands.tour_watermark import frozen_watermark


@pytest.mark.parametrize(
    ("scene", "row", "cells"),
    [
        pytest.param(
            assignment_order, "next leader", ("broker 5",) * 3, id="S-18-five-and-not-nine"
        ),
        pytest.param(
            loss_by_watermark, "committed offsets lost", ("[1,2)", "none"), id="S-23-lost-in-0.10.2"
        ),
        pytest.param(divergence, "logs differ from offset", ("1", "none"), id="S-24-and-S-28"),
        pytest.param(
            leader_answer,
            "epoch 0",
            ("100", "150 (wrong)", "100", "0 (wrong)"),
            id="S-29-three-wordings",
        ),
        pytest.param(
            unclean_choice,
            "leader epoch",
            ("1 -> 2 -> 2", "1 -> 2 -> 3"),
            id="S-32-epochs-as-replayed-on-real-brokers",
        ),
        pytest.param(
            unclean_choice,
            "leader_recovery_state",
            ("0 (RECOVERED)", "1 (RECOVERING)"),
            id="S-32-recovering",
        ),
        pytest.param(
            frozen_watermark, "high watermark", ("5 -> 8", "5 -> 5"), id="frozen-from-3.7"
        ),
        pytest.param(last_replica, "ELR", ("[]", "[2,3]"), id="elr-keeps-the-second-last"),
        pytest.param(
            last_replica,
            "2 returns, leads next",
            ("nobody: offline", "broker 2"),
            id="elr-brings-it-back",
        ),
    ],
)
def test_a_scene_tells_the_prediction(scene: object, row: str, cells: tuple[str, ...]) -> None:
    assert callable(scene)
    rows = {each[0]: each[1:] for each in scene().rows}
    assert rows[row] == cells


def test_the_tour_fits_100_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["tour"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert "\x1b" not in out
    assert f"{len(tour.SCENES)}/{len(tour.SCENES)}" in out


def test_the_tour_as_json_has_every_scene(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tour", "--json"]) == 0
    scenes = json.loads(capsys.readouterr().out)["scenes"]
    assert len(scenes) == len(tour.SCENES) >= 7
    for scene in scenes:
        assert list(scene) == ["title", "story", "logs", "columns", "rows", "lesson", "alerts"]
        assert all(len(row) == len(scene["columns"]) for row in scene["rows"])
        assert all(alert["code"] in BY_CODE for alert in scene["alerts"])


@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [
        pytest.param(True, {}, True, id="a-terminal-has-colour"),
        pytest.param(False, {}, False, id="a-pipe-has-none"),
        pytest.param(True, {"NO_COLOR": "1"}, False, id="NO_COLOR-forbids-it"),
        pytest.param(True, {"NO_COLOR": ""}, True, id="an-empty-NO_COLOR-forbids-nothing"),
        pytest.param(True, {"TERM": "dumb"}, False, id="a-dumb-terminal-has-none"),
    ],
)
def test_colour(
    terminal: bool, environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    assert layout.wants_colour() == coloured


def test_a_short_log_is_drawn_offset_by_offset() -> None:
    logs = [DrawnLog("A", log(2, 1, (0, 0))), DrawnLog("B", log(3, 3, (0, 0), (2, 1)), "leads")]
    assert draw(logs, Paint(colour=False), indent=0) == [
        "offset  0     1     2     3",
        "A       | e0  H e0  >",
        "B       | e0  | e2  | e2  H>    leads",
    ]


def test_a_long_log_is_drawn_where_something_changes() -> None:
    logs = [DrawnLog("A", log(170, 100, (0, 0), (1, 150)))]
    assert draw(logs, Paint(colour=False), indent=0) == [
        "offset  0         100       150       170",
        "A       | e0 ---- H e0 ---- | e1 ---- >",
    ]


def test_a_log_that_starts_later_is_drawn_from_there() -> None:
    late = log(3, 2, (0, 0))._replace(log_start_offset=1)
    assert draw([DrawnLog("A", log(3, 3, (0, 0))), DrawnLog("B", late)], Paint(colour=False)) == [
        "    offset  0     1     2     3",
        "    A       | e0  | e0  | e0  H>",
        "    B             | e0  H e0  >",
    ]


def test_where_there_is_little_room_old_epochs_share_a_column() -> None:
    long = log(170, 160, (0, 0), (1, 50), (2, 100), (3, 150))
    logs = [DrawnLog("A", long, "   remark"), DrawnLog("B", log(120, 120, (0, 0)))]
    drawn = draw(logs, Paint(colour=False), indent=0, width=62)
    assert drawn == [
        "offset  0         120       150       160       170",
        "A       | e0-2 -- | e2 ---- | e3 ---- H e3 ---- >",
        "B       | e0 ---- H>",
    ]
    assert draw(logs, Paint(colour=False), width=200) == draw(logs, Paint(colour=False))


def test_colour_changes_nothing_but_the_colour() -> None:
    logs = [DrawnLog("A", log(2, 1, (0, 0)), "leads")]
    painted = "\n".join(draw(logs, Paint(colour=True)))
    for code in ("2", "32", "33", "0"):
        painted = painted.replace(f"\x1b[{code}m", "")
    assert painted == "\n".join(draw(logs, Paint(colour=False)))


@pytest.mark.parametrize(
    ("version", "entries"),
    [
        pytest.param("3.9", [(0, 0), (4, 5)], id="a-leader-records-its-epoch-at-once"),
        pytest.param("1.1", [(0, 0)], id="up-to-2.0.0-with-its-first-record"),
    ],
)
def test_a_log_as_its_leader_holds_it(version: str, entries: list[tuple[int, int]]) -> None:
    assert as_leader(log(5, 5, (0, 0)), 4, rules_for(version)).lineage == tuple(entries)
