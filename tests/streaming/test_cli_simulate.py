"""`tidestaff simulate` and `tidestaff scenarios`: what a learner sees, and what a program reads."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest
from tidestaff.connectors.simulator.faults import NEVER_LOSE
from tidestaff.connectors.simulator.scenario import read, shipped
from tidestaff.connectors.wire import GONE, observation_of
from tidestaff.streaming.cli import main
from tidestaff.streaming.simulation.history import REPAIRS, History
from tidestaff.streaming.simulation.ledger import compared
from tidestaff.streaming.simulation.performance import Performance
from tidestaff.streaming.simulation.recording import of_lines
from tidestaff.streaming.simulation.watch import Watch
from tidestaff.streaming.sources.row_files import batches, file_name, listed, to_rows


@pytest.fixture(autouse=True)
def a_wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    return code, capsys.readouterr().out


def test_the_list_has_every_scenario_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = output(capsys, "scenarios")
    assert code == 0
    assert [name for name in shipped() if name not in out] == []
    code, out = output(capsys, "scenarios", "--json")
    listed = json.loads(out)["scenarios"]
    assert [each["name"] for each in listed] == list(shipped())
    assert all(each["title"].endswith(".") for each in listed)
    assert len({each["title"] for each in listed}) == len(listed)


def test_a_page_is_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = output(capsys, "scenarios", "s22-two-fetch-rounds")
    assert (code, out) == (0, shipped()["s22-two-fetch-rounds"].read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        pytest.param("rolling-restart-3.9", 0, id="no-alert"),
        pytest.param("s21-why-a-watermark", 0, id="for-information-only"),
        pytest.param("s05-stale-registration-3.9", 1, id="warning"),
        pytest.param("s23-loss-0.10.2", 2, id="critical"),
        pytest.param("s23-loss-0", 2, id="as-much-of-a-name-as-is-enough"),
    ],
)
def test_the_exit_code_is_the_gravest_alert(
    name: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert output(capsys, "simulate", name)[0] == code


def test_the_story_is_told_with_alerts_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = output(capsys, "simulate", "s23-loss-0.10.2")
    election = out.index("Step 5 of 7")
    assert election < out.index("! TRN001 committed-offsets-lost") < out.index("Step 6 of 7")
    assert "  ~   1 leader   hw=1 leo=1" in out
    assert "committed [1,2) lost, leader 1 epoch 2" in out
    assert "Read on: tidestaff rules " in out
    assert "\x1b" not in out


def test_the_same_commands_under_another_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = output(capsys, "simulate", "s23-loss-0.10.2", "--version", "3.9")
    assert (code, "No alert." in out) == (0, True)


def test_json_has_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = output(capsys, "simulate", "s23-loss-0.10.2", "--json")
    content = json.loads(out)
    assert content["exit_code"] == code == 2
    assert len(content["steps"]) == 8
    [partition] = content["steps"][5]["partitions"]
    assert (partition["leader"], partition["isr"]) == (1, [1])
    assert partition["replicas"][2]["log_end_offset"] == 1
    [alert] = content["steps"][5]["alerts"]
    assert (alert["code"], alert["offsets"]) == ("TRN001", [1, 2])
    assert [entry["alert"]["code"] for entry in content["ledger"]] == ["TRN001", "TRN006", "TRN006"]


def test_watch_draws_one_frame_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = output(capsys, "simulate", "s24-divergence-0.10.2", "--watch")
    assert code == 2
    assert [f"step {n} of 8" in out for n in range(9)] == [True] * 9
    assert "    1 leader    | e0  | e3  H>       M0/0 M2/3" in out


def test_watch_draws_a_random_history_too(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("simulate", "--seed", "7", "--version", "0.10.2", "--steps", "12")
    code, told = output(capsys, *arguments)
    watched, drawn = output(capsys, *arguments, "--watch")
    assert watched == code
    frames = drawn.split("A random history: seed 7, Kafka 0.10.2.2  ")[1:]
    assert frames[0].startswith("step 0 of 12, ")
    assert {frame.split(" of ")[0] for frame in frames} >= {f"step {n}" for n in (1, 6, 12)}
    assert all("(no topic)" in frame or " leader=" in frame for frame in frames)
    assert re.search(r"1 leader +\| e0 .*H>", drawn)
    ledger = "What really happened"
    assert drawn[drawn.index(ledger) :] == told[told.index(ledger) :]


def test_a_topic_that_chance_leaves_deleted_does_not_keep_a_history_from_its_end() -> None:
    """Seed 9: deleted by the first action, and not made again in the time that was planned."""
    history = History("3.9.1", 9, {"recreate_topic"} | REPAIRS)
    advance, left = history.cluster.advance, 100_000

    def counted(duration_ms: int) -> None:
        nonlocal left
        left -= 1
        assert left, "endless"
        advance(duration_ms)

    history.cluster.advance = counted  # type: ignore[method-assign]
    history.run(2)
    made = [action["do"] for action in history.cluster.actions]
    assert made[:2] == ["delete_topic", "create_topic"]


def test_faults_that_did_not_happen_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--seed", "1", "--faults", "wipe-disk,pause", "--steps", "40"]
    assert main([*arguments, "--json"]) < 3
    found = capsys.readouterr()
    assert "of the faults asked for, wipe-disk did not happen in this history" in found.err
    assert any(
        "pause" in text for step in json.loads(found.out)["steps"] for text in step["commands"]
    )
    main(["simulate", "--seed", "1", "--steps", "5"])
    assert capsys.readouterr().err == "", "nobody asked for any"


def test_what_a_replaced_controller_writes_is_in_the_ledger(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """0.10.2, seed 5: broker 1 sleeps through the loss of its office, and writes when it wakes up.
    At 1 s the new epoch and the old one's write lie between two looks: nobody can tell."""
    arguments = ("simulate", "--seed", "5", "--version", "0.10.2", "--steps", "105", "--json")
    ledger = json.loads(output(capsys, *arguments)[1])["ledger"]
    assert [(entry["truth"], (entry["alert"] or {}).get("code")) for entry in ledger] == [
        ("state written by the controller of epoch 1, epoch 2 had begun", None),
        ("state written by the controller of epoch 4, epoch 5 had begun", "CTL004"),
    ]


def test_an_alert_of_a_stale_controller_without_its_write_is_called_out() -> None:
    history = History("0.10.2.2", 5, NEVER_LOSE)
    history.run(105)
    truth = history.cluster.truth
    early, late = truth.stale_writes
    truth.stale_writes[:] = [early]
    assert [
        (entry.what, entry.alert is None) for entry in compared(truth, history.watch.alerts)
    ] == [
        ("state written by the controller of epoch 1, epoch 2 had begun", True),
        ("nothing in the ledger", False),
    ]
    assert late.at_ms > early.at_ms


@pytest.mark.parametrize("place", ["/dev/null/x", "/dev/null", "a recording"])
def test_a_recording_that_cannot_be_written_is_told_before_anything_is_played(
    place: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if place == "a recording":
        place = str(tmp_path)
        (tmp_path / file_name(5, 1, "parquet")).touch()
    monkeypatch.delattr(Performance, "blocks")
    monkeypatch.delattr(History, "run")
    for played in (["s23-loss-3.9"], ["--seed", "1"]):
        assert main(["simulate", *played, "--record", place]) == 3
        assert f"tidestaff: {place}: " in capsys.readouterr().err


def test_a_wrong_scenario_leaves_no_directory_for_its_recording(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    kept = tmp_path / "kept"
    assert main(["simulate", str(tmp_path / "mine.txt"), "--record", str(kept)]) == 3
    assert not kept.exists()


def test_what_was_recorded_is_judged_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    assert output(capsys, "simulate", "s32-unclean-election-3.9", "--record", str(kept))[0] == 2
    seen = kept / "observations.jsonl"
    performance = Performance(read(shipped()["s32-unclean-election-3.9"]))
    list(performance.blocks())
    again = Watch()
    again.see(of_lines(seen.read_text(encoding="utf-8").splitlines(), str(seen)))
    assert again.alerts == performance.watch.alerts
    assert len(again.alerts) >= 2


def test_a_recording_holds_the_rows_that_replay_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, kept = "s32-unclean-election-3.9", tmp_path / "kept"
    assert output(capsys, "simulate", name, "--record", str(kept))[0] == 2
    [file] = listed(kept)
    rows = [row for batch in batches(kept / file) for row in to_rows(batch)]
    seen = [observation_of(row) for row in rows if row.kind != GONE]
    again = Watch()
    again.see(seen)
    performance = Performance(read(shipped()[name]))
    list(performance.blocks())
    assert again.alerts == performance.watch.alerts
    assert main(["simulate", name, "--record", str(kept)]) == 3
    assert "found another recording" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["", ".", "mine"])
def test_a_recording_is_not_put_among_other_files(
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / place
    folder.mkdir(exist_ok=True)
    (folder / "observations.jsonl").write_text("precious")
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "s22-two-fetch-rounds", "--record", place]) == 3
    assert "found 'observations.jsonl' in it, expected an empty or a" in capsys.readouterr().err
    assert [path.read_text() for path in folder.iterdir()] == ["precious"]


@pytest.mark.parametrize("command", ["scenarios", "simulate"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(b"\xff\xfe\x00", "not a text in UTF-8", id="no-text"),
        pytest.param(b"junk 1\n", "line 1: found 'junk'", id="no-scenario"),
        pytest.param(None, "cannot be read: Input/output error", id="unreadable"),
    ],
)
def test_a_file_that_is_no_scenario_is_told_and_not_printed(
    command: str,
    content: bytes | None,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(content or b"")
    if content is None:
        monkeypatch.setattr(Path, "read_text", _broken_disk)
    assert main([command, str(path)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert f"tidestaff: {path}" in said.err
    assert told in said.err


def _broken_disk(*_: object, **__: object) -> str:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_one_seed_is_one_history(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("simulate", "--seed", "7", "--version", "0.10.2", "--steps", "30")
    first, again = output(capsys, *arguments), output(capsys, *arguments)
    assert first == again
    assert "A random history: seed 7, Kafka 0.10.2.2" in first[1]
    assert "What really happened, and what the monitor said" in first[1]
    other = output(capsys, "simulate", "--seed", "8", "--version", "0.10.2", "--steps", "30")
    assert other != first


def test_only_the_faults_asked_for_happen(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--seed", "1", "--faults", "crash,power-loss", "--steps", "40", "--json")
    _, out = output(capsys, "simulate", *arguments)
    verbs = {text.split()[0] for step in json.loads(out)["steps"] for text in step["commands"]}
    allowed = {"crash", "power-loss", "produce", "start", "resume", "heal", "release-fetches"}
    assert verbs - allowed <= {"usual-fetches", "(every"}
    assert "crash" in verbs


def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = tmp_path / "mine.txt"
    story.write_text("version 3.9\nbrokers 1 2\ntopic t replicas 1,2\n\nproduce t-0 a\n\nstop 2\n")
    code, out = output(capsys, "simulate", str(story))
    assert code == 0
    assert "log=(a/0)" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["s23-los"], "did you mean s23-loss-", id="a-name-is-told-its-nearest"),
        pytest.param(["s3"], " more?\n", id="a-name-that-many-begin-with"),
        pytest.param([""], "no file '', expected a name or a file\n", id="no-name"),
        pytest.param(["nowhere.txt"], "no scenario and no file 'nowhere.txt'", id="no-file"),
        pytest.param([], "expected either a scenario", id="nothing-to-play"),
        pytest.param(["s23-loss-3.9", "--seed", "1"], "expected either", id="both"),
        pytest.param(["s23-loss-3.9", "--steps", "1"], "go with --seed", id="steps-of-a-scenario"),
        pytest.param(["--seed", "x"], "expected a number", id="a-seed-is-a-number"),
        pytest.param(["--seed", "1", "--steps", "0"], "expected a number from 1 on", id="steps"),
        pytest.param(["--seed", "²"], "found '²', expected a number from 0 on", id="seed-digit"),
        pytest.param(["--seed", "9" * 5000], "of at most 18 digits", id="seed-of-many-digits"),
        pytest.param(["--seed", "-1"], "found '-1', expected a number from 0 on", id="below-0"),
        pytest.param(["--seed", "1", "--steps", "²"], "a number from 1 on", id="steps-digit"),
        pytest.param(["--seed", "1", "--watch", "--json"], "without --json", id="watch-as-json"),
        pytest.param(
            ["--seed", "1", "--faults", ","], "found ',', expected some of", id="no-fault"
        ),
        pytest.param(["--seed", "1", "--version", "0"], "found '0', expected one", id="ambiguous"),
        pytest.param(["--seed", "1", "--faults", "crsh"], "did you mean crash?", id="fault"),
        pytest.param(["--seed", "1", "--version", "3.10"], "expected one of 0.8.2.2", id="version"),
        pytest.param(["s23-loss-3.9", "--delay", "x"], "expected seconds", id="delay"),
    ],
)
def test_bad_input_is_exit_3(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == 3
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("version", ["3.9", "3.9-kraft"])
@pytest.mark.parametrize("line", ["fetch 1", "fetch-request 1", "create-topic t replicas 2"])
def test_a_command_that_can_do_nothing_says_so(
    line: str, version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A leader fetches from nobody, and a topic is made once."""
    story = tmp_path / "mine.txt"
    story.write_text(f"version {version}\nbrokers 1 2\ntopic t replicas 1,2\n\n{line}\n")
    assert (
        f"    {line}: not possible now, nothing done" in output(capsys, "simulate", str(story))[1]
    )


def test_a_wrong_line_is_told_with_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = tmp_path / "mine.txt"
    story.write_text("version 3.9\nbrokers 1 2\ntopic t replicas 1,2\n\ncrsh 2\n")
    assert main(["simulate", str(story)]) == 3
    told = f"{story}, line 5: found 'crsh', expected a command; did you mean crash?"
    assert told in capsys.readouterr().err
