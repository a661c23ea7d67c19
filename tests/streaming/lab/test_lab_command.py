"""`tidestaff lab`, as people type it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.streaming.cli import main
from tidestaff.streaming.commands.lab import configuration
from tidestaff.streaming.lab.cluster import Lab
from tidestaff.streaming.lab.plan import load_plan, make_plan
from tidestaff.streaming.lab.processes import Processes
from tidestaff.streaming.settings_loading import load

from tests.field.lab import need_jars

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDESTAFF_LAB_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param("status", "tidestaff lab up", id="no-lab-yet"),
        pytest.param("sttus", "did you mean status?", id="misspelt"),
        pytest.param("up --version 3.9", "did you mean 3.9.1", id="no-such-version"),
        pytest.param("up extra", "expected nothing more", id="too-many-words"),
        pytest.param("up --set oops", "expected KEY=VALUE", id="setting-without-value"),
        pytest.param("up --set 9:a=b", "N from 1 to 3", id="setting-of-nobody"),
        pytest.param("up --set ²:a=b", "N from 1 to 3", id="setting-of-an-odd-number"),
        pytest.param("up --set 0:a=b", "N from 1 to 3", id="setting-of-broker-nought"),
        pytest.param("topic t --partitions 0", "a number of 1 or more", id="no-partitions"),
        pytest.param("produce t --count 0", "a number of 1 or more", id="no-records"),
        pytest.param("log 1 --count ²", "a number of 1 or more", id="an-odd-number-of-lines"),
        pytest.param("up --name ../x", "expected letters", id="a-name-is-no-path"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", *words.split()]) == 3
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param("kill", "which? (1,2,3)", id="nobody-named"),
        pytest.param("kill 7", "no node '7', expected 1, 2, 3", id="nobody-of-that-number"),
        pytest.param("kill 1", "does not run", id="not-running"),
        pytest.param("partition 1", "expected two nodes", id="half-a-partition"),
        pytest.param("partition 1 zookeeper", "no node 'zookeeper'", id="kraft-has-none"),
        pytest.param("partition 1 1", "cannot be cut off from itself", id="itself"),
        pytest.param("produce", "expected one name", id="no-topic"),
    ],
)
def test_nodes_that_are_not_there(
    labs: Path, words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_plan(labs / "lab", version="4.1.1", cuttable=True).save()
    assert main(["lab", *words.split()]) == 3
    assert told in capsys.readouterr().err


def test_a_partition_that_the_topic_lacks_is_told(
    labs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def produce(*_: object, partition: int, **__: object) -> None:
        raise ValueError(f"Unrecognized partition {partition} for topic orders")

    monkeypatch.setattr("tidestaff.streaming.lab.clients.Clients.describe", lambda *_: ["orders-0"])
    monkeypatch.setattr("tidestaff.streaming.lab.clients.Clients.produce", produce)
    make_plan(labs / "lab", version="4.1.1").save()
    assert main(["lab", "produce", "orders", "--partition", "7"]) == 3
    assert "orders-7: Unrecognized partition 7" in capsys.readouterr().err


@pytest.mark.parametrize(("version", "told"), [("0.10.2.2", True), ("1.1.1", False)])
def test_the_monitor_is_told_the_settings_of_brokers_that_do_not_tell_them(
    labs: Path, version: str, *, told: bool
) -> None:
    file = labs / "monitor.yaml"
    lab = Lab(make_plan(labs / "lab", version=version))
    file.write_text(configuration(lab, "lab"), encoding="utf-8")
    (cluster,) = load(file).clusters
    given = cluster.source.options.get("settings.auto.leader.rebalance.enable")  # type: ignore[union-attr]
    assert given == ("false" if told else None)


def test_a_topic_that_is_not_there_is_told_at_once(
    labs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidestaff.streaming.lab.clients.Clients.describe", lambda *_: [])
    make_plan(labs / "lab", version="4.1.1").save()
    assert main(["lab", "produce", "ordres"]) == 3
    assert "no topic ordres: 'tidestaff lab topic ordres'" in capsys.readouterr().err


def test_a_lab_that_is_down_says_so(labs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_plan(labs / "lab", version="4.1.1", brokers=1).save()
    assert main(["lab", "status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["nodes"] == {"broker-1": "down"}
    assert main(["lab", "down"]) == 0
    assert not (labs / "lab").exists()


@pytest.mark.parametrize("action", ["up", "status", "down"])
def test_a_folder_that_is_no_lab_is_told_with_the_way_out(
    labs: Path, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (labs / "lab" / "broker-1").mkdir(parents=True)
    assert main(["lab", action]) == 3
    told = capsys.readouterr().err
    assert f"{labs / 'lab'} is there and holds no lab.json" in told
    assert "remove the folder, then 'tidestaff lab up'" in told
    assert (labs / "lab" / "broker-1").is_dir()


def test_a_file_where_the_folder_of_a_lab_should_be_is_told(
    labs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (labs / "lab").touch()
    assert main(["lab", "up"]) == 3
    assert "is a file, expected the folder of a lab" in capsys.readouterr().err


def test_a_node_that_is_named_twice_is_meant_once(
    labs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(labs / "lab", version="4.1.1", brokers=2)
    plan.save()
    Processes(plan.folder).start("broker-1", ["sleep", "600"], labs / "log")
    assert main(["lab", "kill", "1", "1"]) == 0
    assert "killed broker-1\n" in capsys.readouterr().out
    assert not Lab(plan).running(1)


@pytest.mark.parametrize("action", ["kill", "stop"])
def test_where_one_of_the_nodes_does_not_run_none_is_ended(
    labs: Path, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(labs / "lab", version="4.1.1", brokers=2)
    plan.save()
    Processes(plan.folder).start("broker-1", ["sleep", "600"], labs / "log")
    try:
        assert main(["lab", action, "1", "2"]) == 3
        assert "broker-2 does not run" in capsys.readouterr().err
        assert not Processes(plan.folder).wait("broker-1", 0.3)
    finally:
        Lab(plan).down()


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_offsets_that_nobody_has_told_are_not_made_up(
    labs: Path,
    more: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tidestaff.streaming.lab.clients.Clients.describe", lambda *_: ["t-0"])
    monkeypatch.setattr(
        "tidestaff.streaming.lab.clients.Clients.produce", lambda *_, **__: [-1, -1]
    )
    make_plan(labs / "lab", version="4.1.1").save()
    assert main(["lab", "produce", "t", "--count", "2", "--acks", "0", *more]) == 0
    told = capsys.readouterr().out
    if more:
        assert json.loads(told)["offsets"] is None
    else:
        assert told == "sent 2 records to t-0, acks=0: no offset is told\n"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
def test_a_first_quarter_of_an_hour(labs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One broker with KRaft: its process outlives each command."""
    need_jars("4.1.1")

    def said(*words: str) -> str:
        code = main(["lab", *words])
        out, err = capsys.readouterr()
        assert code in {0, 1}, err
        return out

    try:
        out = said("up", "--version", "4.1.1", "--brokers", "1")
        plan = load_plan(labs / "lab")
        assert plan.bootstrap in out
        settings = load(labs / "lab" / "tidestaff.yaml")
        (cluster,) = settings.clusters
        assert cluster.source.options["bootstrap_servers"] == plan.bootstrap  # type: ignore[union-attr]

        assert main(["lab", "up"]) == 3
        assert "runs already" in capsys.readouterr().err
        said("topic", "orders", "--partitions", "2")
        assert "offsets 0 to 4" in said("produce", "orders", "--count", "5", "--partition", "1")
        found = json.loads(said("status", "--json"))
        assert found["nodes"] == {"broker-1": "running"}
        assert [(p["topic"], p["leader"]) for p in found["partitions"]] == [("orders", 1)] * 2

        said("pause", "1")
        assert json.loads(said("status", "--json"))["nodes"] == {"broker-1": "paused"}
        said("resume", "1")
        said("kill", "1")
        assert json.loads(said("status", "--json"))["nodes"] == {"broker-1": "down"}
        said("start", "1")
        assert "offsets 5 to 5" in said("produce", "orders", "--count", "1", "--partition", "1")
        assert "no offset is told" in said("produce", "orders", "--count", "2", "--acks", "0")
        clients = Lab(load_plan(labs / "lab")).clients
        assert clients.produce("orders", [b"a", b"b"], acks=0) == [-1, -1]
        assert "started" in said("log", "1", "--count", "200")
    finally:
        if (labs / "lab" / "lab.json").exists():
            Lab(load_plan(labs / "lab")).down()
    assert "removed" in said("down")
    assert not (labs / "lab").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
def test_three_brokers_killed_and_cut_off_from_each_other(
    labs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page has it, with a shorter lag so that it does not take long."""
    need_jars("3.9.1")

    def said(words: str) -> str:
        code = main(["lab", *words.split()])
        out, err = capsys.readouterr()
        assert code in {0, 1}, err
        return out

    def partitions() -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = json.loads(said("status --json"))["partitions"]
        return shown

    def until(sizes: set[int]) -> None:
        """The sizes of all ISRs."""
        end = time.monotonic() + 180
        found: list[tuple[int, ...]] = []
        while not found or {len(each) for each in found} != sizes:
            assert time.monotonic() < end, found
            time.sleep(0.5)
            found = [p["isr"] for p in partitions()]

    try:
        said("up --version 3.9.1 --mode zookeeper --set replica.lag.time.max.ms=3000")
        said("topic orders --partitions 3")
        said("kill 2")
        until({2})
        said("start 2")
        until({3})
        cut: list[int] = []
        found = partitions()
        clients = Lab(load_plan(labs / "lab")).clients
        end = time.monotonic() + 180
        while all(len(p["isr"]) == 3 for p in found):
            assert time.monotonic() < end, found
            # A leader that does not reach the controller cannot shrink its ISR: the wire is between
            # the two others. On a busy machine the controller may move.
            others = sorted({1, 2, 3} - {clients.controller()})
            if others != cut:
                said("heal")
                cut = others
                said(f"partition {cut[0]} {cut[1]}")
                assert json.loads(said("status --json"))["cuts"] == [cut]
                assert "cut: broker-{} and broker-{}".format(*cut) in said("status")
            # A follower as long as its leader stays in the ISR, however long it is silent.
            for each in found:
                if each["leader"] in cut:
                    said(f"produce orders --acks 1 --partition {each['partition']}")
            time.sleep(0.5)
            found = partitions()
        said("heal")
        assert json.loads(said("status --json"))["cuts"] == []
        until({3})
    finally:
        if (labs / "lab" / "lab.json").exists():
            Lab(load_plan(labs / "lab")).down()
    assert "removed" in said("down")
