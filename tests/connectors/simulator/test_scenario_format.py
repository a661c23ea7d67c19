"""The scenario format: what is wrong with a line is told with its number and the nearest word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tidestaff.connectors.simulator.action_text import as_text
from tidestaff.connectors.simulator.cluster import NeverStartedError, SimulatedCluster
from tidestaff.connectors.simulator.presets import PRESETS
from tidestaff.connectors.simulator.scenario import (
    ScenarioError,
    parse,
    preset_like,
    read,
    rewritten,
    shipped,
)
from tidestaff.connectors.simulator.scenario_commands import COMMANDS, Setting, build
from tidestaff.connectors.simulator.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "version 3.9.1\nbrokers 1 2 3\ntopic t replicas 1,2,3\n----\n\n"


def problem(text: str) -> str:
    with pytest.raises(ScenarioError) as raised:
        parse(text, "story.txt")
    return str(raised.value)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("crsh 2", "found 'crsh', expected a command; did you mean crash?", id="verb"),
        pytest.param("zzz", "expected a command (produce, crash, power-loss,", id="nothing-alike"),
        pytest.param("produce t-0 ² records", "expected how many records", id="no-count"),
        pytest.param("delete-records t-0 ²", "found '²' after 'delete-", id="no-ascii-digit"),
        pytest.param(f"delete-records t-0 {'9' * 19}", "expected an offset", id="too-many-digits"),
        pytest.param("wait ٣s", "expected a time like 500ms", id="time-in-ascii-digits"),
        pytest.param("set loss 7", "loss as a fraction from 0 to 1", id="setting-out-of-range"),
        pytest.param(
            "crash", "found the end of the line after 'crash', expected a broker", id="end"
        ),
        pytest.param(
            "crash 4", "found '4' after 'crash', expected a broker (1, 2, 3)", id="broker"
        ),
        pytest.param("crash x", "usage: crash BROKER...", id="the-usage-is-told"),
        pytest.param(
            "produce t-1 m", "expected a partition (t-0); did you mean t-0?", id="partition"
        ),
        pytest.param("produce t-0", "expected names of records", id="records-have-names"),
        pytest.param("produce t-0 -5 records", "expected how many records", id="fewer-than-none"),
        pytest.param("produce t-0 0 records", "expected how many records", id="no-records"),
        pytest.param("wait 10", "expected a time like 500ms, 10s or 2m", id="time-has-a-unit"),
        pytest.param("wait", "found the end of the line", id="time-is-needed"),
        pytest.param(
            "wait 1441m", "found '1441m' after 'wait', expected a time", id="too-long-a-wait"
        ),
        pytest.param("produce t-0 1 record", "expected the word records", id="one-is-records-too"),
        pytest.param("wait 1s 2s", "found '2s' after 'wait', expected the end of", id="too-much"),
        pytest.param("elect prefered t-0", "did you mean preferred?", id="kind-of-election"),
        pytest.param("reassign t-0 1,1", "expected replicas as 1,2,3", id="a-broker-twice"),
        pytest.param("reassign t-0 1,9", "expected replicas as 1,2,3", id="a-strange-broker"),
        pytest.param("set min.insync.replica 2", "did you mean min.insync.replicas?", id="setting"),
        pytest.param(
            "set t session.timeout.ms 2", "expected a setting (min.insync", id="topic-has-few"
        ),
        pytest.param("set min.insync.replicas x", "min.insync.replicas as a number", id="value"),
        pytest.param("set unclean.leader.election.enable 1", "true, false", id="true-or-false"),
        pytest.param("cut 1", "expected a broker, zookeeper or controller", id="two-ends"),
        pytest.param(
            "cut 1 1",
            "found '1' after 'cut', expected the other end of a link from 1 (2, 3, zookeeper, c",
            id="no-link-to-itself",
        ),
        pytest.param("cut 1 2 1", "expected the other end of a link from 1", id="nor-among-others"),
        pytest.param(
            "heal zookeeper zookeeper", "from zookeeper (1, 2, 3, controller)", id="or-heal"
        ),
        pytest.param("create-topic u 1,2", "expected the word (replicas)", id="create"),
        pytest.param("delete-topic u", "expected a topic (t)", id="an-unknown-topic"),
        pytest.param("delete-records t-0 x", "expected an offset", id="offset"),
        pytest.param("slow-fetches 1 many", "expected records a fetch", id="how-slow"),
        pytest.param("slow-fetcher-removal 1 2", "expected a time like", id="how-late"),
        pytest.param("brokers 4", "expected it in the scenario's first block", id="head-too-late"),
        pytest.param(
            "produce t-0 \x1b[31mred", r"found the character '\x1b', expected visible", id="escape"
        ),
        pytest.param(
            "# A story \u202eyrots", r"found the character '\u202e'", id="what-turns-the-order"
        ),
        pytest.param(f"crash {'9' * 900}", f"found '{'9' * 76}... after 'crash'", id="a-long-word"),
        pytest.param("create-topic ../x replicas 1", "the name of a topic: up to 249", id="name"),
        pytest.param(f"create-topic {'x' * 250} replicas 1", "up to 249 of letters", id="too-long"),
    ],
)
def test_a_wrong_command(line: str, told: str) -> None:
    found = problem(f"{HEAD}# Fine.\n{line}\n----\n")
    assert found.startswith("story.txt, line 7: found ")
    assert told in found


@pytest.mark.parametrize(
    ("head", "told"),
    [
        pytest.param("verzion 3.9.1\n", "line 1: found 'verzion', expected one of", id="word"),
        pytest.param("verzion 3.9.1\n", "did you mean version?", id="nearest-word"),
        pytest.param("version 3.10\n", "line 1: found '3.10', expected a version of", id="version"),
        pytest.param("brokers a\n", "line 1: found 'a', expected broker ids", id="brokers"),
        pytest.param(
            "brokers 1\ntopic t replicas 2\n", "line 2: found '2', expected replicas", id="ar"
        ),
        pytest.param("crash 1\n", "a command follows after the head", id="command-too-early"),
        pytest.param("acks some\n", "expected acks as (all, 1)", id="acks"),
        pytest.param("show all\n", "expected what to show (controller, versions", id="show"),
        pytest.param(
            "",
            "story.txt: the file is empty: the head is incomplete, expected 'version",
            id="empty",
        ),
        pytest.param(
            "# Why.\n", "story.txt, line 1: the head is incomplete", id="nothing-but-a-comment"
        ),
        pytest.param("seed ²\n", "line 1: found '²', expected a number", id="seed"),
        pytest.param(f"seed {'9' * 5000}\n", "of at most 18 digits", id="seed-of-many-digits"),
        pytest.param("brokers ²\n", "line 1: found '²', expected broker ids", id="broker-digit"),
        pytest.param("brokers 1 1 2\n", "line 1: found '1' twice, expected every", id="twice"),
        pytest.param("brokers 1\nbrokers 1\n", "line 2: found '1' twice", id="twice-in-two-lines"),
        pytest.param("version 3.9\nversion 0.10.2\n", "line 2: found 'version' twice", id="again"),
        pytest.param("seed 1\nseed 1\n", "line 2: found 'seed' twice", id="seed-again"),
        pytest.param(
            "brokers 1 2\ntopic t replicas 1\ntopic t replicas 2\n",
            "line 3: found topic 't' twice, expected every topic once",
            id="topic-again",
        ),
        pytest.param("brokers 1\ntopic .. replicas 1\n", "line 2: found '..', expected", id="dots"),
        pytest.param("brokers 2147483648\n", "none above 2147483647", id="broker-id-too-large"),
        pytest.param("version 2\n", "line 1: found '2', expected a version of", id="ambiguous"),
        pytest.param(
            "version 3.9\nbrokers 1\n", "expected 'topic t replicas 1,2,3'", id="what-is-missing"
        ),
    ],
)
def test_a_wrong_head(head: str, told: str) -> None:
    assert told in problem(head)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        *(("loss", value, "loss as a fraction from 0 to 1") for value in ("7", "-1", "nan", "²")),
        ("loss", "1e9", "loss as a fraction from 0 to 1, like 0.1"),
        ("fetch.max.records", "0", "fetch.max.records as a number from 1 to 999999999"),
        ("fetch.max.records", "1000000000", "fetch.max.records as a number from 1 to 999999999"),
        ("session.timeout.ms", "0", "session.timeout.ms as a number from 1"),
        ("start.ms", "-1", "start.ms as a number from 0 to 10000"),
        ("start.ms", "10001", "start.ms as a number from 0 to 10000"),
        ("controller.pause.ms", "999999999", "controller.pause.ms as a number from 0 to 10000"),
        ("loss", "0.9", "loss in the head as a fraction from 0 to 0.5"),
        ("min.insync.replicas", "²", "min.insync.replicas as a number from 1"),
    ],
)
def test_a_value_that_a_setting_does_not_take(setting: str, value: str, expected: str) -> None:
    found = problem(f"version 3.9\nset {setting} {value}\n")
    assert f"story.txt, line 2: found '{value}', expected {expected}" in found


@pytest.mark.parametrize(("value", "loss"), [("0", 0.0), (".5", 0.5), ("0.25", 0.25)])
def test_a_loss_is_a_fraction(value: str, loss: float) -> None:
    head = f"version 3.9\nbrokers 1\ntopic t replicas 1\nset loss {value}\nset start.ms 0\n"
    assert parse(head, "s").settings == Settings(loss=loss, start_ms=0)


def test_a_block_may_lose_every_message() -> None:
    [step] = [line.step for line in parse(f"{HEAD}set loss 1\n", "s").blocks[0].lines]
    assert step.actions[0]["settings"] == {"loss": 1.0}


def test_settings_with_which_no_broker_comes_up_are_named() -> None:
    settings = Settings(loss=0.99, start_ms=10_000)
    with pytest.raises(NeverStartedError, match=r"within 60 s .* loss 0.99, start.ms 10000, ses"):
        SimulatedCluster("3.9.1-kraft", [1, 2, 3], {}, settings)


@pytest.mark.parametrize(
    ("below", "told"),
    [
        ("produce t-0 m1", "produce belongs above it"),
        ("produs t-0 m2", "did you mean produce?"),
        ("topic u replicas 1", "topic belongs above it"),
        ("# Then.", "a blank line ends a block"),
        ("  crash 1", "crash belongs above it"),
    ],
)
def test_a_command_below_the_rule_is_not_swallowed(below: str, told: str) -> None:
    """It would never be done, and `--rewrite` would delete it."""
    found = problem(f"{HEAD}crash 1\n----\nt-0 leader=1 epoch=0 isr=(1)\n{below}\n")
    assert found.startswith(f"story.txt, line 9: found '{below}' below ----, expected a line of")
    assert told in found


@pytest.mark.parametrize("number", ["1000000001", "999999999999999999"])
def test_no_more_records_at_once_than_offsets_bear(number: str) -> None:
    found = problem(f"{HEAD}produce t-0 {number} records\n")
    assert f"line 6: found '{number}' after 'produce', expected how many records, 1000" in found


def test_every_wrong_line_is_told_at_once() -> None:
    found = problem(f"{HEAD}crsh 2\n----\n\nstrat 2\n----\n").splitlines()
    assert [line.partition(":")[0] for line in found] == ["story.txt, line 6", "story.txt, line 9"]


def test_of_very_many_wrong_lines_the_first_are_told_and_the_others_counted() -> None:
    told = problem("".join(f"junk{number}\n" for number in range(5_000))).splitlines()
    assert len(told) == 21
    assert told[0].startswith("story.txt, line 1: found 'junk0'")
    assert told[-1] == "and 4980 more wrong lines"


def test_a_form_feed_ends_no_line() -> None:
    found = problem(f"{HEAD}# One\x0cstory.\ncrsh 1\n").splitlines()
    assert found[0].startswith("story.txt, line 6: found the character '\\x0c'")
    assert found[1].startswith("story.txt, line 7: found 'crsh'")


def test_a_byte_order_mark_and_carriage_returns_are_no_mistake(tmp_path: Path) -> None:
    text = f"{HEAD}# Fine.\ncrash 1\n"
    (tmp_path / "plain.txt").write_bytes(text.encode())
    (tmp_path / "notepad.txt").write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    plain, notepad = read(tmp_path / "plain.txt"), read(tmp_path / "notepad.txt")
    assert (notepad.head, notepad.blocks) == (plain.head, plain.blocks)
    assert [block.commands for block in notepad.blocks] == [["crash 1"]]


def test_a_text_comes_back_as_it_was() -> None:
    then = "# Then.\ncrash 1\n----\nt-0 leader=2\n"
    text = f"# Why.\n#\n# More.\n{HEAD.strip()}\nt-0 leader=1\n\n{then}"
    scenario = parse(text, "story.txt")
    assert scenario.title == "Why."
    assert scenario.blocks[0].comment == "Then."
    assert scenario.blocks[0].expected == ["t-0 leader=2"]
    assert rewritten(scenario, [["t-0 leader=1"], ["t-0 leader=2"]]) == text


def test_states_may_be_left_out() -> None:
    scenario = parse("version 3.9\nbrokers 1\ntopic t replicas 1\n\ncrash 1\n\nstart 1\n", "s")
    assert [block.commands for block in scenario.blocks] == [["crash 1"], ["start 1"]]


def test_settings_have_kafkas_names() -> None:
    head = "version 3.9\nbrokers 1\ntopic t replicas 1\nset replica.lag.time.max.ms 5000\n"
    assert parse(head, "s").settings == Settings(replica_lag_time_max_ms=5_000)


@pytest.mark.parametrize(
    ("text", "preset"),
    [
        ("0.10.2", "0.10.2.2"),
        ("3.9", "3.9.1"),
        ("3.9-kraft", "3.9.1-kraft"),
        ("3", "3.9.1"),
        ("1", "1.1.1"),
        ("0", None),
        ("3-kraft", None),
        ("9", None),
    ],
)
def test_a_version_may_be_shortened(text: str, preset: str | None) -> None:
    assert preset_like(text) == preset
    assert preset is None or preset in PRESETS


@pytest.mark.parametrize(
    "line",
    [
        *("produce t-0 m1 m2", "produce t-0 5 records", "produce t-0 m1 to 2", "crash 1"),
        *(
            "power-loss 1",
            "stop 1",
            "start 1",
            "bounce 1",
            "expire-session 1",
            "pause 1",
            "resume 1",
        ),
        *("slow-fetches 1 2", "usual-fetches 1", "hold-fetches 1", "hold-fetches 1 t-0"),
        *("slow-fetcher-removal 1 500ms", "usual-fetcher-removal 1"),
        *("release-fetches 1", "fetch-request 1 t-0", "fetch-response 1 t-0", "cut 1 2", "heal"),
        *("cut 1 zookeeper", "heal 1 2", "fail-controller", "elect preferred t-0"),
        *("elect unclean t-0", "reassign t-0 3,2", "set min.insync.replicas 2", "wipe-disk 1"),
        *("set t unclean.leader.election.enable true", "delete-topic t", "delete-records t-0 3"),
        *("create-topic u replicas 1,2 2,3", "retention 1 t-0 3"),
    ],
)
def test_an_action_is_told_in_the_words_that_mean_it(line: str) -> None:
    step = build(line.split(), Setting([1, 2, 3], {"t": 1}))
    assert [as_text(action) for action in step.actions] == [line]


def test_the_shipped_scenarios_use_most_of_the_commands() -> None:
    used = {
        line.text.split()[0]
        for path in shipped().values()
        for block in read(path).blocks
        for line in block.lines
    }
    rarely = {"pause", "resume", "sample", "retention"}
    assert set(COMMANDS) - rarely == used
