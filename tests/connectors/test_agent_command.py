"""`tidestaff agent` as people and services call it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tidestaff.connectors.agent_client import AgentClient
from tidestaff.consistency.model import TopicPartition
from tidestaff.streaming.cli import main

from tests.connectors.disk import TOPIC_ID, write_log_dir, write_replica

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    found = write_log_dir(tmp_path / "data", orders_0=7, orders_1=9)
    epochs = found / "orders-1" / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 0\n4 6\n")
    return found


def once(*arguments: object) -> int:
    return main(["agent", "--once", *map(str, arguments)])


def test_what_is_there_is_a_table(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert once("--log-dir", log_dir) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["broker", "1"]
    assert [line.split() for line in lines[-3:]] == [
        ["PARTITION", "START", "HW", "LOG", "END", "EPOCHS", "TOPIC", "ID"],
        ["orders-0", "0", "7", "10", "0@0", TOPIC_ID],
        ["orders-1", "0", "9", "10", "0@0", "4@6", TOPIC_ID],
    ]


def test_several_directories_are_named_in_the_table(
    tmp_path: Path,
    log_dir: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    second = write_log_dir(tmp_path / "data2", payments_0=3)
    write_replica(second, "old-0.0123456789abcdef0123456789abcdef-delete")
    (second / ".kafka_cleanshutdown").touch()
    assert once("--log-dir", log_dir, "--log-dir", second) == 0
    out = capsys.readouterr().out
    assert "1 replicas, 1 delete, cleanly shut down" in out
    assert "LOG DIR" in out


def test_the_same_as_json(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert once("--log-dir", log_dir, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == 0
    assert found["broker"] == 1
    assert found["log_dirs"][0]["meta"]["cluster_id"] == "abc"
    assert found["replicas"][1]["lineage"] == [[0, 0], [4, 6]]
    assert found["problems"] == []


@pytest.mark.parametrize(
    ("name", "code"), [("lost+found/", 1), ("orders-0/leader-epoch-checkpoint", 2)]
)
def test_exit_codes_tell_how_bad_it_is(
    log_dir: Path, capsys: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    if name.endswith("/"):
        (log_dir / name).mkdir()
    else:
        (log_dir / name).write_text("torn")
    assert once("--log-dir", log_dir) == code
    assert f"{log_dir}/{name.rstrip('/')}" in capsys.readouterr().out


def test_a_directory_that_is_gone_is_critical_and_the_other_is_told(
    tmp_path: Path, log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert once("--log-dir", tmp_path / "nowhere", "--log-dir", log_dir) == 2
    assert "orders-1" in capsys.readouterr().out


def test_copied_files_need_no_meta_properties(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (log_dir / "meta.properties").unlink()
    assert once("--log-dir", log_dir) == 0
    assert "not told" in capsys.readouterr().out
    assert once("--log-dir", log_dir, "--broker", 7) == 0
    assert capsys.readouterr().out.split()[:2] == ["broker", "7"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["--log-dir", "{tmp}/nowhere", "--once"], "no log directory", id="gone"),
        pytest.param(["--log-dir", "{tmp}/nowhere"], "no log directory", id="gone-to-listen"),
        pytest.param(["--log-dir", "{dir}", "--log-dir", "{dir}/"], "the same", id="twice"),
        pytest.param(["--log-dir", "{dir}", "--broker", "9"], "broker 1, not to 9", id="not-mine"),
        pytest.param(["--log-dir", "{dir}", "--broker", "x"], "invalid int", id="no-number"),
        pytest.param(["--log-dir", "{dir}", "--listen", "8471"], "HOST:PORT", id="no-host"),
        pytest.param(["--log-dir", "{dir}", "--listen", "0.0.0.0:0"], "token", id="no-token"),
        pytest.param(["--log-dir", "{dir}", "--tls-key", "k"], "--tls-cert", id="key-alone"),
        pytest.param(["--log-dir", "{dir}", "--tls-cert", "/no.pem"], "PEM", id="no-cert"),
        pytest.param(["--log-dir", "{dir}", "--token-file", "/no"], "/no", id="no-token-file"),
        pytest.param(
            ["--log-dir", "{dir}", "--token-file", "{tmp}/short"], "fewer than", id="short-token"
        ),
        pytest.param(["--once"], "--log-dir", id="no-directory"),
    ],
)
def test_what_cannot_be_is_told(
    tmp_path: Path,
    log_dir: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    (tmp_path / "short").write_text("sesame\n")
    given = [each.format(tmp=tmp_path, dir=log_dir) for each in arguments]
    assert main(["agent", *given]) == 3
    told = capsys.readouterr().err
    assert says in told
    assert "sesame" not in told


def test_directories_of_two_brokers_need_two_agents(
    tmp_path: Path, log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_log_dir(tmp_path / "other", broker=2, t_0=1)
    assert once("--log-dir", log_dir, "--log-dir", other) == 3
    assert "an agent of its own" in capsys.readouterr().err


def test_without_meta_properties_a_listening_agent_must_be_told_its_broker(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (log_dir / "meta.properties").unlink()
    assert main(["agent", "--log-dir", str(log_dir)]) == 3
    assert "give --broker" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_the_process_answers_until_it_is_told_to_end(
    tmp_path: Path, log_dir: Path, ending: signal.Signals
) -> None:
    token = tmp_path / "token"
    token.write_text("sixteen-letters-or-more\n")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tidestaff.streaming.cli", "agent", "--json"),
            *("--log-dir", str(log_dir), "--listen", "127.0.0.1:0", "--token-file", str(token)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert (said["broker"], said["replicas"]) == (1, 2)
        client = AgentClient(token=token.read_text().strip(), timeout_ms=5_000)
        answer = client.ask(1, said["url"], [TopicPartition("orders", 0)])
        assert answer.replicas[TopicPartition("orders", 0)].high_watermark == 7
        process.send_signal(ending)
        out, errors = process.communicate(timeout=15)
        assert (process.returncode, out, errors) == (0, "", "")
    finally:
        process.kill()
        process.wait()
