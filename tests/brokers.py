"""A real Kafka broker for a test: one process in KRaft mode on free ports of loopback, ended by its
id. The jars come from a lock file and are kept in the user's cache between runs."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.streaming.jars import jars
from tidestaff.streaming.lab.plan import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterable

LOCK: Final = Path(__file__).parent / "brokers.lock"
_CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
_STARTS_WITHIN_S: Final = 90.0
_ENDS_WITHIN_S: Final = 15.0
_JAVA: Final = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class BrokerError(Exception):
    """The broker did not come up; the end of its log says why."""


class Broker(NamedTuple):
    """A broker that answers at `bootstrap`."""

    bootstrap: str
    process: subprocess.Popen[bytes]
    work_dir: Path

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not enough; by the id of the process."""
        self.process.terminate()
        try:
            self.process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def start_broker(work_dir: Path, topics: Iterable[str] = ()) -> Broker:
    """One broker that is its own controller; `topics` are made with one partition each."""
    class_path = ":".join(map(str, jars(LOCK, {})))
    work_dir.mkdir(parents=True, exist_ok=True)
    port, controller_port = free_ports(2)
    properties = work_dir / "server.properties"
    properties.write_text(_properties(work_dir, port, controller_port), encoding="utf-8")
    java = [*_JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)],
        check=True,
        capture_output=True,
    )
    log = work_dir / "broker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(properties)], stdout=out, stderr=out, start_new_session=True
        )
    broker = Broker(f"127.0.0.1:{port}", process, work_dir)
    try:
        _wait(broker, log)
        create_topics(broker.bootstrap, topics)
    except BaseException:
        broker.kill()
        raise
    return broker


def create_topics(bootstrap: str, topics: Iterable[str]) -> None:
    from kafka import KafkaAdminClient  # noqa: PLC0415 - slow
    from kafka.admin import NewTopic  # noqa: PLC0415

    wanted = [NewTopic(topic, num_partitions=1, replication_factor=1) for topic in topics]
    if wanted:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            admin.create_topics(wanted)
        finally:
            admin.close()


def _properties(work_dir: Path, port: int, controller_port: int) -> str:
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={work_dir / "data"}
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=true
num.network.threads=1
num.io.threads=2
background.threads=1
"""


def _wait(broker: Broker, log: Path) -> None:
    host, _, port = broker.bootstrap.partition(":")
    until = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < until:
        if broker.process.poll() is not None:
            break
        try:
            with socket.create_connection((host, int(port)), timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise BrokerError(f"no broker at {broker.bootstrap}: {log.read_text()[-2_000:]}")
