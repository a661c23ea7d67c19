"""`run`, `record`, `replay`, `alerts`, `status` and `package` as far as they go without Spark."""

from __future__ import annotations

import json
import time
import zipfile
from typing import TYPE_CHECKING

import pytest
import yaml
from tidestaff.streaming.alerts.store import AlertStore
from tidestaff.streaming.checkpoint import CheckpointLock
from tidestaff.streaming.cli import main
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.replaying import Replayed, settings_for
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.settings_loading import load
from tidestaff.streaming.sources.row_files import listed

if TYPE_CHECKING:
    from pathlib import Path

LOSS = {
    "event": "raised",
    "cluster": "east",
    "code": "TRN001",
    "topic": "orders",
    "partition": 0,
    "topic_id": None,
    "place": None,
    "broker": 1,
    "leader_epoch": 2,
    "at_ms": 60_000,
    "since_ms": None,
    "expected": "LEO >= 2",
    "observed": "LEO 1",
    "because": "it is gone",
    "offsets": [1, 2],
    "evidence": {"round": 3},
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work directory in which one loss was found."""
    settings = Settings(work_dir=str(tmp_path))
    store = AlertStore(settings.store_path, settings.policy, lambda: 60_000)
    stats = {"bucket": 0, "rows": 9, "clocks": {"east": 60_000}}
    rows = [("finding", 60_000, json.dumps(LOSS)), ("stats", 60_000, json.dumps(stats))]
    store.process_batch("query", 0, rows)
    store.close()
    return tmp_path


def test_print_config_shows_what_is_in_force_without_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("sinks: [{type: webhook, url: 'http://h/SECRET'}]")
    monkeypatch.setenv("TIDESTAFF_OPERATOR__BUCKETS", "77")
    assert main(["run", "--config", str(path), "--print-config"]) == 0
    out = capsys.readouterr().out
    assert yaml.safe_load(out)["operator"]["buckets"] == 77
    assert "SECRET" not in out
    assert main(["run", "--config", str(path), "--print-config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == yaml.safe_load(out)


def test_a_wrong_configuration_is_told_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("sparc: {}")
    assert main(["run", "--config", str(path)]) == 3
    assert "unknown key 'sparc'; did you mean spark?" in capsys.readouterr().err
    assert main(["run", "--config", str(tmp_path / "none.yaml")]) == 3
    assert "there is no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        pytest.param(
            "{type: direct, collector: simulatr}", "did you mean simulator?", id="collector"
        ),
        pytest.param("{type: recording, path: /no/such}", "no such directory", id="recording"),
        pytest.param("{type: simulator, scenario: s99}", "no scenario and no file", id="scenario"),
        pytest.param("{type: simulator, version: '9'}", "expected one the simulator", id="version"),
        pytest.param(
            "{type: direct, collector: brokers, options: {bootstrap_servers: 'a:909x'}}",
            "bootstrap_servers is no list of host:port",
            id="servers",
        ),
        pytest.param(
            "{type: direct, collector: zookeeper, options: {zookeeper_connect: zk}}",
            "zookeeper_connect is no list of host:port",
            id="zookeeper",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
def test_a_source_that_cannot_be_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, problem: str
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"work_dir: {tmp_path}/w\nclusters: [{{name: c, source: {source}}}]")
    assert main(["run", "--config", str(path)]) == 3
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "w").exists()


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        pytest.param(
            "{type: alertmanager, url: 'http://me:" + "hunter2@h/'}",
            "sinks: alertmanager: its url holds a password",
            id="a-password-in-the-address",
        ),
        pytest.param(
            "{type: alertmanager, url: 'http://[hunter2/'}",
            "sinks: alertmanager: its url is no address",
            id="no-address",
        ),
        pytest.param(
            "{type: webhook, name: slack, url: 'hunter2'}",
            "sinks: slack: its url is not http or https",
            id="not-http",
        ),
        pytest.param(
            "{type: webhook, url: 'http://h/hunter2', template: '$nobody'}",
            "sinks: webhook: its template has nobody",
            id="a-template-with-a-name-that-is-none",
        ),
        pytest.param(
            "{type: kafka, bootstrap_servers: b, topic: t, properties: {sasl.passwort: hunter2}}",
            "sinks: kafka: client property sasl.passwort",
            id="a-client-property-that-is-none",
        ),
    ],
)
def test_a_sink_that_cannot_be_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sink: str, problem: str
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"work_dir: {tmp_path}/w\nsinks: [{sink}]")
    assert main(["run", "--config", str(path)]) == 3
    said = capsys.readouterr().err
    assert problem in said
    assert "hunter2" not in said
    assert not (tmp_path / "w").exists()


def test_record_writes_files_that_are_named_by_their_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rec"
    assert main(["record", "--out", str(out), "--rounds", "12", "--fast", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rounds"] == 24
    assert told["files"] == len(listed(out)) == 4
    assert main(["record", "--out", str(out), "--fast"]) == 3
    assert "would never end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["replay", "{}/none"], "there is no such directory", id="replay-nothing"),
        pytest.param(["replay", "{}"], "no .parquet or .avro files", id="replay-empty"),
        pytest.param(["alerts", "--work-dir", "{}"], "there is no alert store", id="no-store"),
        pytest.param(["status", "--work-dir", "{}"], "there is no alert store", id="no-status"),
        pytest.param(["alerts", "ack"], "the id is missing", id="ack-without-id"),
        pytest.param(["alerts", "akc", "1"], "did you mean ack?", id="misspelt-action"),
        pytest.param(["alerts", "--since", "soon"], "expected a time like", id="no-time"),
        pytest.param(["alerts", "--status", "firin"], "did you mean firing?", id="no-status-word"),
        pytest.param(["package", "-o", "{}/x.tar"], "ends in .zip", id="not-a-zip"),
        pytest.param(["run", "--json"], "take a sink of type jsonl", id="run-has-no-end"),
        pytest.param(["run", "--max-batches", "0"], "expected a number of 1 or more", id="none"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert main([each.replace("{}", str(tmp_path)) for each in arguments]) == 3
    assert problem in capsys.readouterr().err


def test_a_replay_that_fails_sends_nobody_to_a_log_that_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r.parquet").touch()

    def fails(settings: Settings, *_: object) -> None:
        raise CommandError("the query failed: why", f"see {settings.work}/logs")

    monkeypatch.setattr("tidestaff.streaming.replaying.replay", fails)
    assert main(["replay", str(tmp_path)]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "tidestaff: the query failed: why",
        "run it with --work-dir DIR to keep Spark's own log",
    ]
    assert main(["replay", str(tmp_path), "--work-dir", f"{tmp_path}/w"]) == 3
    assert capsys.readouterr().err.splitlines()[1] == f"see {tmp_path}/w/logs"


def test_a_replay_that_was_told_to_stop_does_not_say_that_there_is_no_alert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r.parquet").touch()
    some = Replayed([], 7, 3, complete=False)
    for found, code in [(some, 0), (some._replace(interrupted=True), 130)]:
        monkeypatch.setattr("tidestaff.streaming.replaying.replay", lambda *_, f=found: f)
        assert main(["replay", str(tmp_path)]) == code
        assert "7 rows of 3 files (stopped before its end)" in capsys.readouterr().out
        assert main(["replay", str(tmp_path), "--json"]) == code
        assert json.loads(capsys.readouterr().out)["exit_code"] == code


def test_alerts_are_listed_shown_and_taken_on(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--work-dir", str(work)]
    assert main(["alerts", *where, "--json"]) == 2
    (found,) = json.loads(capsys.readouterr().out)["alerts"]
    assert (found["code"], found["topic"], found["status"]) == ("TRN001", "orders", "firing")
    assert main(["alerts", *where, "--topic", "payments"]) == 0
    assert "No alert." in capsys.readouterr().out

    short = found["fingerprint"][:6]
    assert main(["alerts", "show", short, *where]) == 2
    told = capsys.readouterr().out
    assert "TRN001 committed-offsets-lost" in told
    assert '"round": 3' in told

    assert main(["alerts", "ack", short, *where]) == 3
    assert "--why is missing" in capsys.readouterr().err
    assert main(["alerts", "ack", short, "--why", "restored", "--who", "ada", *where]) == 0
    assert "taken on by ada" in capsys.readouterr().out
    assert main(["alerts", *where]) == 0, "what somebody has taken on does not call for anybody"
    assert "acknowledged" in capsys.readouterr().out
    assert main(["alerts", "ack", "zz", "--why", "x", *where]) == 3


def test_a_code_that_does_not_exist_is_not_taken_for_no_alert(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--work-dir", str(work)]
    assert main(["alerts", "--code", "trn001", "--code", "ISR001", *where]) == 2
    assert main(["alerts", "--code", "ISR001", *where]) == 0
    capsys.readouterr()
    assert main(["alerts", "--code", "TRN01", *where]) == 3
    assert "unknown code 'TRN01'; did you mean TRN001?" in capsys.readouterr().err


def test_status_says_that_nobody_watches(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--work-dir", str(work), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["running"] is None
    assert list(found["clusters"]) == ["east"]
    assert main(["status", "--work-dir", str(work)]) == 2
    assert "no: start it with 'tidestaff run'" in capsys.readouterr().out


def test_status_expects_nothing_of_a_cluster_that_is_not_watched_any_more(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the store's cluster (east, silent for years) nothing is expected once it is taken out."""
    config = tmp_path / "t.yaml"
    config.write_text("clusters: [{name: west, source: {type: simulator}}]")
    now_ms = int(time.time() * 1_000)
    store = AlertStore(work / "alerts.sqlite", Settings().policy, lambda: now_ms)
    heard = {"bucket": 0, "rows": 1, "clocks": {"west": now_ms}}
    store.process_batch("query", 1, [("stats", now_ms, json.dumps(heard))])
    store.close()
    with CheckpointLock(work):
        assert main(["status", "--work-dir", str(work)]) == 2
        capsys.readouterr()
        assert main(["status", "--work-dir", str(work), "--config", str(config)]) == 0
        told = capsys.readouterr().out.splitlines()
        (east,) = [line for line in told if line.startswith("east")]
        assert east.endswith("ago, not watched any more")
        config.write_text("clusters: [{name: east, source: {type: simulator}}]")
        assert main(["status", "--work-dir", str(work), "--config", str(config)]) == 2
        config.write_text("clusters: [{name: any, source: {type: recording, path: x}}]")
        assert main(["status", "--work-dir", str(work), "--config", str(config)]) == 2


def test_whoever_has_no_name_on_the_machine_says_who_takes_an_alert_on(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nameless)
    where = ["--work-dir", str(work)]
    main(["alerts", "--json", *where])
    (found,) = json.loads(capsys.readouterr().out)["alerts"]
    assert main(["alerts", "ack", found["fingerprint"], "--why", "x", *where]) == 3
    assert "no name on this machine, expected --who" in capsys.readouterr().err
    told = ["alerts", "ack", found["fingerprint"], "--why", "x", "--who", "ada", *where]
    assert main(told) == 0


def test_a_replay_leaves_alone_what_the_base_s_own_job_keeps(tmp_path: Path) -> None:
    (tmp_path / "r.parquet").touch()
    config = tmp_path / "t.yaml"
    config.write_text(
        "alerts: {store: /kept/alerts.sqlite}\nview: {store: /kept/state.sqlite}\n"
        "quarantine: {path: /kept/q.jsonl}\ncheckpoint_dir: hdfs://kept/checkpoint\n"
    )
    found = settings_for(load(config, {}), tmp_path, tmp_path / "work", 4)
    places = (found.store_path, found.state_path, found.quarantine_path)
    assert {path.relative_to(tmp_path / "work").parts[0] for path in places} == {
        *("alerts.sqlite", "state.sqlite", "quarantine")
    }
    assert found.checkpoint_dir is None


def test_the_archive_is_a_package_and_the_same_every_time(tmp_path: Path) -> None:
    one, two = tmp_path / "a" / "t.zip", tmp_path / "b" / "t.zip"
    assert main(["package", "-o", str(one)]) == main(["package", "-o", str(two)]) == 0
    assert one.read_bytes() == two.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert {
        "tidestaff/__init__.py",
        "tidestaff/streaming/operator/judging.py",
        "tidestaff/conf/avro/v1/observation.avsc",
        "tidestaff/conf/avro/v2/partition.avsc",
        "tidestaff/streaming/worker_daemon.py",
    } <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    assert (one.parent / "tidestaff_main.py").is_file()
