"""`tidestaff what-if` on scenarios and recordings, as a user or a deployment gate calls it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.linking import Linker
from tidestaff.consistency.model import (
    ClusterObservation,
    HealthObservation,
    ProblemKind,
    Registration,
    TopicPartition,
)
from tidestaff.consistency.versions import Mode
from tidestaff.consistency.what_if import reassign, restart, stop
from tidestaff.streaming.cli import main
from tidestaff.streaming.commands.exits import CommandError, Exit
from tidestaff.streaming.sources.row_files import file_name, write
from tidestaff.streaming.what_if.seen import Seen
from tidestaff.streaming.what_if.told import Rejoining, Voters, of_restart, of_stop
from tidestaff.streaming.what_if.told_changes import of_reassign, of_unclean

from tests.consistency.watch import Watch

if TYPE_CHECKING:
    from pathlib import Path

    from tidestaff.consistency.model import Observation


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


def test_where_nothing_changes_one_line_is_left_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", "stop", "9", "--scenario", "s23-loss-0.10.2"]) == Exit.OK
    assert "offline\n\nBROKER" in capsys.readouterr().out


def test_a_stop_of_everybody_is_not_safe(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = ask(
        capsys, "stop", "1,2,3", "--crash", "--scenario", "s23-loss-0.10.2", "--at", "0"
    )
    assert code == 2
    assert found["offline"]
    assert found["verdict"].startswith("NOT SAFE")


@pytest.mark.parametrize("broker", ["²", "9" * 5000, "x"])
def test_what_is_no_broker_is_told_what_is_expected(
    broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["what-if", "stop", broker, "--scenario", "s23-loss-0.10.2", "--at", "0"]) == 3
    assert f"found '{broker}', expected a broker of 1, 2, 3" in capsys.readouterr().err


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
        # Before anybody waits for a cluster, which is not there either.
        (["unclean", "off", "--bootstrap-server", "127.0.0.1:1"], "expected on"),
        (["reassign", "nowhere.json", "--bootstrap-server", "127.0.0.1:1"], "nowhere.json cannot"),
    ],
)
def test_what_is_not_understood_is_told_with_exit_code_three(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, found = ask(capsys, *arguments)
    assert code == 3
    assert said in " ".join(found["errors"])


CONFIGURED = "clusters: [{name: here, source: %s}]"


def test_a_cluster_is_asked_as_the_monitor_knows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tidestaff.yaml"
    file.write_text(CONFIGURED % "{type: simulator}")
    monkeypatch.setattr("tidestaff.streaming.what_if.seen.BETWEEN_ROUNDS_S", 0.0)
    code, found = ask(capsys, "stop", "2", "--config", str(file))
    assert (code, found["source"]) == (0, "cluster here")


def test_a_look_tells_at_once_what_is_wrong_and_compares_no_contents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor waits for what lasts, and keeps in a file how far it has compared."""
    options = "bootstrap_servers: 127.0.0.1:1, missed_rounds: 9, verify_bytes_per_round: 1000"
    file = tmp_path / "tidestaff.yaml"
    file.write_text(CONFIGURED % f"{{type: direct, collector: brokers, options: {{{options}}}}}")
    asked: list[Any] = []

    def live(cluster: Any) -> None:
        asked.append(cluster.source.options)
        raise CommandError("nobody is there")

    monkeypatch.setattr("tidestaff.streaming.what_if.seen.live", live)
    assert ask(capsys, "stop", "2", "--config", str(file))[0] == 3
    (found,) = asked
    assert found["bootstrap_servers"] == "127.0.0.1:1"
    assert (found["missed_rounds"], found["verify_bytes_per_round"]) == (1, 0)


def test_a_source_that_nobody_can_ask_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tidestaff.yaml"
    file.write_text(CONFIGURED % f"{{type: recording, path: {tmp_path}}}")
    code, found = ask(capsys, "stop", "2", "--config", str(file))
    assert code == 3
    assert "its source is of type recording" in found["errors"][0]


@pytest.mark.parametrize(
    ("voters", "silent", "code", "said"),
    [
        pytest.param((), (), Exit.WARNING, "RISKY", id="zookeeper-or-nobody-told"),
        pytest.param((7, 8, 9), (), Exit.WARNING, "RISKY", id="controllers-of-their-own"),
        pytest.param((1, 2, 3), (), Exit.CRITICAL, "(1 of 3 voters)", id="most-of-the-voters-stop"),
        pytest.param((1, 2, 8, 9), (), Exit.CRITICAL, "(2 of 4 voters)", id="half-is-no-majority"),
        pytest.param((1, 2, 7, 8, 9), (), Exit.WARNING, "RISKY", id="three-of-five-stay"),
        pytest.param(
            (1, 2, 7, 8, 9), (9,), Exit.CRITICAL, "(2 of 5 voters)", id="one-of-the-three-is-silent"
        ),
        pytest.param((2, 8, 9), (2,), Exit.WARNING, "RISKY", id="who-is-silent-stops-nothing"),
    ],
)
def test_a_stop_that_leaves_no_quorum_is_not_safe(
    voters: tuple[int, ...], silent: tuple[int, ...], code: Exit, said: str
) -> None:
    seen = [Watch(version="4.1.1", mode=Mode.KRAFT).observation()]
    told = of_stop(stop(seen, {1, 2}, controlled=True), Rejoining(), voters=Voters(voters, silent))
    assert (told.code, said in told.verdict) == (code, True)
    assert told.value["quorum_lost"] is (code is Exit.CRITICAL)


@pytest.mark.parametrize(
    ("voters", "silent", "code", "said"),
    [
        pytest.param((1, 2, 3), (), Exit.OK, "SAFE", id="two-of-three-stay"),
        pytest.param((1, 2, 9), (9,), Exit.WARNING, "without brokers 1, 2", id="one-is-silent"),
        pytest.param((7, 8, 9), (9,), Exit.OK, "SAFE", id="controllers-of-their-own"),
        pytest.param((1,), (), Exit.CRITICAL, "(1 voter)", id="there-is-no-other"),
    ],
)
def test_a_restart_waits_for_a_quorum(
    voters: tuple[int, ...], silent: tuple[int, ...], code: Exit, said: str
) -> None:
    seen = [Watch(version="4.1.1", mode=Mode.KRAFT).observation()]
    told = of_restart(restart(seen, [1, 2, 3]), Rejoining(), Voters(voters, silent))
    assert (told.code, said in told.verdict) == (code, True), told.verdict


def test_a_restart_begins_with_who_is_down() -> None:
    """It cannot be stopped; every other stop is safer once it is back. Broker 4 holds nothing."""
    watch = Watch(version="4.1.1", mode=Mode.KRAFT, isr=(1, 2)).stop(3).register(3, fenced=True)
    first = watch.observation()
    brokers = (*watch.live.values(), Registration(4, 104))
    whole = ClusterObservation("c", first.observed_at_ms, first.rules, None, None, None, brokers)
    seen = Seen("a test", whole, [first])
    told = of_restart(restart(seen.partitions, [1, 2, 3, 4], seen.active), Rejoining())
    assert told.value["order"][0] == 3
    assert [each["down"] for each in told.value["steps"]] == [True, False, False, False]
    assert "is down: start it" in told.lines[1]
    assert sum("is down" in each for each in told.lines) == 1


def test_a_recording_answers_as_the_cluster_would_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The end of that story: all are back in sync, and broker 1 leads, last of the assignment."""
    main(["simulate", "s23-loss-3.9", "--record", str(tmp_path / "kept")])
    capsys.readouterr()
    code, leads = ask(capsys, "stop", "1", "--recording", str(tmp_path / "kept"))
    (moved,) = leads["partitions"]
    assert (code, moved["leader"], moved["isr"]) == (0, [1, 3], [[1, 2, 3], [2, 3]])


def test_a_topic_that_was_deleted_in_a_recording_is_not_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And rounds that begin anew with a collector are told apart by their times."""
    linker, folder = Linker(), tmp_path / "kept"
    folder.mkdir()
    for at_ms, number, topics in ((5_000, 7, "ab"), (9_000, 8, "ab"), (12_000, 1, "b")):
        seen: list[Observation] = [
            replace(
                Watch(now_ms=at_ms, leader=2 if number == 1 else 1).observation(),
                topic=topic,
                round=number,
            )
            for topic in topics
        ]
        write(folder / file_name(at_ms, 1, "parquet"), linker.link(seen))
    code, found = ask(capsys, "stop", "2", "--recording", str(folder))
    assert (code, [p["topic"] for p in found["partitions"]]) == (0, ["b"])
    assert found["partitions"][0]["leader"] == [2, 1]
    code, found = ask(capsys, "stop", "2", "--recording", str(folder), "--at", "9000")
    assert [p["leader"] for p in found["partitions"]] == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("scenario", "at", "code", "said"),
    [
        ("follower-failure-3.9", 2, 3, "CANNOT TELL"),
        ("old-leaders-tail-2.8", 2, 1, "RISKY: 1 partition would have one in-sync copy left"),
    ],
)
def test_a_restart_is_not_safer_than_the_stops_it_is_made_of(
    capsys: pytest.CaptureFixture[str], scenario: str, at: int, code: int, said: str
) -> None:
    where = ("--scenario", scenario, "--at", str(at))
    found, told = ask(capsys, "restart", "all", *where)
    assert found == code
    assert told["verdict"].startswith(said)
    stops = [ask(capsys, "stop", str(broker), *where)[0] for broker in told["order"]]
    assert max(stops) == code


def test_a_partition_that_changed_while_it_was_read_makes_a_restart_unknown() -> None:
    seen = [Watch(version="4.1.1", mode=Mode.KRAFT).observation()]
    moving = [TopicPartition(seen[0].topic, seen[0].partition)]
    told = of_restart(restart(seen, [1, 2, 3]), Rejoining(), unsettled=moving)
    assert told.code is Exit.UNKNOWN
    plan = {moving[0]: seen[0].assignment.replicas}
    moves = reassign(seen, plan, {1, 2, 3})
    assert (of_reassign(moves).code, of_reassign(moves, moving).code) == (Exit.OK, Exit.UNKNOWN)
    assert of_unclean((), None, unsettled=moving).code is Exit.UNKNOWN


LEADERLESS = ("--scenario", "s24-divergence-0.10.2", "--at", "5")


def test_a_partition_without_a_leader_is_never_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"partitions": [{"topic": "t", "partition": 0, "replicas": [9]}]}')
    code, found = ask(capsys, "reassign", str(plan), *LEADERLESS)
    assert (code, found["partitions"][0]["unknown"]) == (2, "it has no leader to copy from")


def test_unclean_on_does_not_deny_a_partition_that_nobody_could_lead(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, found = ask(capsys, "unclean", "on", *LEADERLESS)
    assert (code, found["verdict"][:40]) == (1, "RISKY: nobody is there to lead 1 partiti")


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ([], "names no partition"),
        ([("t", 0, [1, 2]), ("t", 0, [2, 3])], "names a partition twice"),
        ([("t", 0, [])], "found none"),
        ([("t", 0, [1, 1])], "found 1,1"),
        ([("t", 0, "12")], "no reassignment"),
        ([("t", 0, [1.5])], "no reassignment"),
        ([("t", 0, [-1])], "no reassignment"),
        ([("t", True, [1])], "no reassignment"),
    ],
)
def test_a_plan_that_kafka_would_refuse_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], moves: list[Any], said: str
) -> None:
    named = [dict(zip(("topic", "partition", "replicas"), each, strict=True)) for each in moves]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": named}))
    code, found = ask(capsys, "reassign", str(plan), "--scenario", "s23-loss-3.9", "--at", "0")
    assert code == 3
    assert said in found["errors"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bootstrap-server", "127.0.0.1:1", "--at", "5"), "--at goes with --scenario or --rec"),
        (("--scenario", "s23-loss-3.9", "--cluster", "x"), "--cluster goes with --config or"),
        (("--scenario", "s23-loss-3.9", "--zookeeper", "x"), "--zookeeper goes with --bootstrap"),
        (("--scenario", "s23-loss-3.9", "--at", "-1"), "found -1"),
        (("--scenario", "s23-loss-3.9", "--crash"), "--crash goes with stop only"),
    ],
)
def test_an_option_that_would_be_left_alone_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    code, found = ask(capsys, "restart", "all", *words)
    assert code == 3
    assert said in found["errors"][0]


@pytest.mark.parametrize("words", [("stop", "all"), ("restart", "all"), ("unclean", "on")])
def test_a_recording_of_nothing_but_problems_is_not_safe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    why = HealthObservation("c", 5_000, "brokers", ProblemKind.UNREADABLE, reason="no answer")
    write(tmp_path / file_name(5_000, 1, "parquet"), Linker().link([why]))
    code, found = ask(capsys, *words, "--recording", str(tmp_path))
    assert (code, found["errors"][0]) == (3, "tidestaff: no answer")


def test_a_pattern_that_leaves_nothing_is_not_safe(capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--scenario", "s23-loss-3.9", "--at", "0")
    code, found = ask(capsys, "stop", "1", *where, "--topics-exclude", ".*")
    assert code == 3
    assert "leaves no partition of 1" in found["errors"][0]


def test_what_is_to_be_copied_from_an_unread_leader_is_not_known() -> None:
    watch = Watch(version="4.1.1", mode=Mode.KRAFT)
    seen = watch.observation()
    blind = replace(seen, replicas=tuple(r for r in seen.replicas if r.broker != seen.state.leader))
    moved = {TopicPartition(seen.topic, seen.partition): (2, 3, 4)}
    codes = [of_reassign(reassign([o], moved, {1, 2, 3, 4})).code for o in (seen, blind)]
    assert codes == [Exit.OK, Exit.UNKNOWN]


@pytest.mark.parametrize(
    ("place", "topic", "code"),
    [
        ("settings of topic t", "t", 3),
        ("settings of topics", None, 3),
        ("settings of topic other", "other", 0),
    ],
)
def test_what_is_safe_by_defaults_alone_is_not_known_to_be_safe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, topic: str | None, code: int
) -> None:
    seen = Watch(version="4.1.1", mode=Mode.KRAFT).observation()
    problem = HealthObservation(
        seen.cluster,
        seen.observed_at_ms,
        "brokers",
        ProblemKind.UNREADABLE,
        place,
        "no",
        topic=topic,
    )
    rows = Linker().link([seen, problem])
    write(tmp_path / file_name(seen.observed_at_ms, 1, "parquet"), rows)
    found, told = ask(capsys, "stop", "3", "--recording", str(tmp_path))
    assert (found, told["verdict"][:11] == "CANNOT TELL") == (code, code == 3)


DELETED = """\
# A topic of one broker comes to its end.
version {version}
brokers 1 2 3
topic t replicas 1,2,3
topic u replicas 3
----

delete-topic u
wait 20s
----
"""


@pytest.mark.parametrize("version", ["3.9.1", "3.9.1-kraft"])
def test_a_topic_that_was_deleted_in_a_scenario_is_not_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    story = tmp_path / "deleted.txt"
    story.write_text(DELETED.format(version=version))
    code, found = ask(capsys, "stop", "3", "--scenario", str(story))
    assert (code, [p["topic"] for p in found["partitions"]]) == (0, ["t"])
    assert found["leaders_after"]["3"] == found["leaders_before"]["3"] == 0


LEFT_ALONE = """\
# Nobody in sync is there to lead u.
version {version}
brokers 1 2 3
topic t replicas 1
topic u replicas 3,2
set unclean.leader.election.enable false
----

hold-fetches 2
produce u-0 m0 m1
wait 60s
----

crash 3
expire-session 3
wait 5s
----
"""


@pytest.mark.parametrize("version", ["3.9.1", "4.1.1-kraft"])
@pytest.mark.parametrize("question", ["stop", "restart"])
def test_what_is_offline_already_is_said_and_is_not_called_safe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, question: str
) -> None:
    story = tmp_path / "offline.txt"
    story.write_text(LEFT_ALONE.format(version=version))
    code, found = ask(capsys, question, "2", "--scenario", str(story))
    assert (code, found["verdict"].split(":")[0]) == (1, "RISKY"), found["verdict"]
    assert "1 partition is offline already" in found["verdict"]
    if question == "stop":
        assert (found["offline"], found["offline_already"]) == ([], ["u-0"])
    assert ask(capsys, question, "1", "--scenario", str(story))[0] == 2


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("[" * 100_000, id="nested-without-end"),
        pytest.param('{"partitions": [{"topic": null, "partition": 0, "replicas": [1]}]}', id="no"),
        pytest.param(
            '{"partitions": [{"topic": "\\ud800", "partition": 0, "replicas": [1]}]}', id="half"
        ),
        pytest.param('{"partitions": [{"topic": "t", "partition": 0, "replicas": 1}]}', id="one"),
        pytest.param(
            '{"partitions": [{"topic": "t", "partition": 4294967296, "replicas": [1]}]}', id="huge"
        ),
        pytest.param("1" * 5_000, id="a-number-without-end"),
    ],
)
def test_a_plan_that_is_none_is_refused_with_what_is_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(content)
    code, found = ask(capsys, "reassign", str(plan), "--scenario", "s23-loss-3.9", "--at", "0")
    assert code == 3
    assert "no reassignment, expected" in found["errors"][0]
