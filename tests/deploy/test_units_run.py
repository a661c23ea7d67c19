"""What the units start comes up with no more than systemd gives it, and ends when it is told to.

Folders are moved below a temporary one; user, sandbox and cgroup are systemd's and are not tried.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from tidestaff.connectors.agent_client import AgentClient, AgentRefusesError, AgentSilentError
from tidestaff.consistency.model import TopicPartition
from tidestaff.streaming.lab.plan import free_ports

from tests.brokers import start_broker
from tests.connectors.disk import write_log_dir
from tests.streaming.job.processes import PROGRAM, children_of, kill_if_there

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

UNITS: Final = Path(__file__).resolve().parents[2] / "conf" / "systemd"
INSTALLED: Final = "/opt/tidestaff/bin/tidestaff"
MOVED: Final = ("/etc/tidestaff", "/var/lib/tidestaff", "/var/cache/tidestaff", "/var/lib/kafka")
TOPIC: Final = "tidestaff.observations"


class Unit:
    """The service of a unit file, its folders below another root."""

    def __init__(self, name: str, root: Path, instance: str = "") -> None:
        text = (UNITS / name).read_text(encoding="utf-8").replace("%i", instance)
        for folder in MOVED:
            text = text.replace(folder, f"{root}{folder}")
            (root / folder.lstrip("/")).mkdir(parents=True)
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read_string(text)
        self.service = parser["Service"]
        # The one setting that a unit gives again and again.
        self.credentials = dict(
            each.split(":", 1) for each in re.findall(r"^LoadCredential=(\S+)$", text, re.MULTILINE)
        )
        self.root = root
        # An environment of systemd's has this and nothing of a login's; the interpreter of the
        # tests may need to be told where the package is.
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
        self.environment = {"PATH": path, "LANG": "C.UTF-8", "HOME": f"{root}/var/lib/tidestaff"}
        if "Environment" in self.service:
            self.environment |= dict([self.service["Environment"].split("=", 1)])
        for variable in ("PYTHONPATH", "JAVA_HOME"):
            if variable in os.environ:
                self.environment[variable] = os.environ[variable]

    def configured(self, content: dict[str, Any]) -> None:
        words = shlex.split(self.service["ExecStart"])
        path = Path(words[words.index("--config") + 1])
        assert path.is_relative_to(self.root), f"the unit reads {path}"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")

    def start(self, which: str = "ExecStart") -> subprocess.Popen[bytes]:
        self._load_credentials()
        program, *words = [
            # Of the environment, as systemd does it.
            re.sub(r"\$\{(\w+)\}", lambda found: self.environment[found[1]], word)
            for word in shlex.split(self.service[which])
        ]
        assert program == INSTALLED
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*PROGRAM, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.service.get("WorkingDirectory", "/"),
                env=self.environment,
                umask=int(self.service["UMask"], 8),
                start_new_session=True,
            )

    def _load_credentials(self) -> None:
        folder = self.root / "run" / "credentials"
        if self.credentials:
            folder.mkdir(parents=True, exist_ok=True)
            self.environment["CREDENTIALS_DIRECTORY"] = str(folder)
        for name, source in self.credentials.items():
            (folder / name).write_bytes(Path(source).read_bytes())
            (folder / name).chmod(0o400)

    @property
    def log(self) -> Path:
        return self.root / "log"

    def run_until(self, there: Callable[[], bool]) -> int:
        """SIGTERM to the main process alone, as KillMode=mixed has it; its exit code."""
        assert self.service["KillMode"] == "mixed"
        process = self.start()
        below: list[int] = []
        try:
            ends = time.monotonic() + 180
            while not there():
                assert process.poll() is None, self.log.read_text()[-3_000:]
                assert time.monotonic() < ends, self.log.read_text()[-3_000:]
                time.sleep(0.2)
            below = children_of(process.pid)
            process.send_signal(signal.SIGTERM)
            # After that systemd would kill it, and a batch could be cut short.
            return process.wait(float(self.service["TimeoutStopSec"]))
        finally:
            below = below or children_of(process.pid)
            if process.poll() is None:
                process.kill()
            process.wait()
            for pid in below:
                kill_if_there(pid)


def test_the_monitor_s_unit_comes_up_and_ends_in_time(tmp_path: Path) -> None:
    unit = Unit("tidestaff.service", tmp_path)
    metrics, web = free_ports(2)
    unit.configured(
        {
            "work_dir": unit.service["WorkingDirectory"],
            "clusters": [
                {"name": "c", "source": {"type": "simulator", "scenario": "story-0.10.2"}}
            ],
            "spark": {"master": "local[2]", "driver_memory": "1g", "quick_start": True},
            "operator": {"buckets": 2, "trigger_interval_ms": 500},
            "metrics": {"enabled": True, "port": metrics},
            "web": {"port": web},
        }
    )
    assert unit.start("ExecStartPre").wait() == 0, unit.log.read_text()

    def judges() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics") as answer:
                text = answer.read().decode()
        except (urllib.error.URLError, OSError):
            return False
        known = [line for line in text.splitlines() if line.startswith("tidestaff_partitions_kn")]
        return any(float(line.rpartition(" ")[2]) > 0 for line in known)

    assert unit.run_until(judges) == 0
    assert "the state is saved" in unit.log.read_text()


def test_a_collector_s_unit_comes_up_and_ends_in_time(tmp_path: Path) -> None:
    from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 - slow

    unit = Unit("tidestaff-collect@.service", tmp_path / "machine", "east")
    broker = start_broker(tmp_path / "broker", [TOPIC])
    source = {
        "type": "direct",
        "collector": "brokers",
        "round_interval_ms": 500,
        "options": {"bootstrap_servers": broker.bootstrap},
    }
    unit.configured(
        {
            "work_dir": unit.service["WorkingDirectory"],
            "clusters": [{"name": "east", "source": source}],
            "transport": {"bootstrap_servers": broker.bootstrap, "topic": TOPIC},
        }
    )
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    place = TopicPartition(TOPIC, 0)
    try:
        code = unit.run_until(lambda: consumer.end_offsets([place])[place] > 0)
    finally:
        consumer.close()
        broker.stop()
    assert code == 0, unit.log.read_text()
    assert (unit.root / "var/lib/tidestaff/collect/east").is_dir()


def certificate(folder: Path) -> None:
    """Signed by itself, for loopback, where the unit's comment and the documents have it."""
    subject = ("-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(folder / "agent.key"), "-out", str(folder / "agent.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files],
        check=True,
        capture_output=True,
    )


def test_the_agent_s_unit_answers_whoever_knows_its_token_and_ends_in_time(tmp_path: Path) -> None:
    unit = Unit("tidestaff-agent.service", tmp_path)
    (port,) = free_ports(1)
    unit.service["ExecStart"] = unit.service["ExecStart"].replace(":8471", f":{port}")
    assert f"0.0.0.0:{port}" in unit.service["ExecStart"], "beyond loopback, so with a token"
    etc = tmp_path / "etc" / "tidestaff"
    (etc / "secrets").mkdir()
    (etc / "secrets" / "agent-token").write_text("of-this-test-and-nobody-else\n")
    certificate(etc)
    write_log_dir(tmp_path / "var" / "lib" / "kafka", orders_0=7)
    clients = [
        AgentClient(token=token, timeout_ms=5_000, ca_file=str(etc / "agent.pem"))
        for token in ("of-this-test-and-nobody-else", "of-somebody-who-has-guessed")
    ]
    asked = TopicPartition("orders", 0)
    url = f"https://127.0.0.1:{port}"
    found: list[Any] = []

    def answers() -> bool:
        try:
            found[:] = [clients[0].ask(1, url, [asked])]
        except AgentSilentError:
            return False
        with pytest.raises(AgentRefusesError):
            clients[1].ask(1, url, [asked])
        return True

    assert unit.run_until(answers) == 0, unit.log.read_text()
    assert found[0].broker == 1
    assert found[0].replicas[asked].high_watermark == 7
