"""A real cluster for a test: three KRaft nodes from jars on free ports of loopback, each a process
that is ended by its id."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.jars import jars

from tests.brokers import LOCK, BrokerError, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES: Final = (1, 2, 3)
SESSION_MS: Final = 9_000
_CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
_STARTS_WITHIN_S: Final = 150.0
_ENDS_WITHIN_S: Final = 20.0
_JAVA: Final = ("nice", "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Lab:
    """Nodes that are brokers and controllers at once; `kill` and `start` take them by number."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(2 * len(NODES))
        self.ports = dict(zip(NODES, ports[: len(NODES)], strict=True))
        self._controller_ports = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self._folder = folder
        self._java = [
            *_JAVA,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            ":".join(map(str, jars(LOCK, {}))),
        ]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def data(self, node: int) -> Path:
        """The log directory of a node."""
        return self._folder / f"node-{node}" / "data"

    def format(self) -> None:
        for node in NODES:
            self._file(node).parent.mkdir(parents=True, exist_ok=True)
            self._file(node).write_text(self._properties(node), encoding="utf-8")
            command = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID]
            subprocess.run(
                [*self._java, *command, "-c", str(self._file(node))],
                check=True,
                capture_output=True,
            )

    def start(self, *nodes: int) -> None:
        for node in nodes:
            log = self._file(node).with_name("broker.log")
            with log.open("ab") as out:
                self._processes[node] = subprocess.Popen(
                    [*self._java, "kafka.Kafka", str(self._file(node))],
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
        until = time.monotonic() + _STARTS_WITHIN_S
        for node in nodes:
            self._wait(node, until)

    def kill(self, node: int) -> None:
        """SIGKILL: the node has no time to say good-bye."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def pause(self, node: int) -> None:
        """SIGSTOP: the process is there, its port is open, and nobody answers."""
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    def close(self) -> None:
        for process in self._processes.values():
            process.terminate()
        until = time.monotonic() + _ENDS_WITHIN_S
        for process in self._processes.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _file(self, node: int) -> Path:
        return self._folder / f"node-{node}" / "server.properties"

    def _wait(self, node: int, until: float) -> None:
        log = self._file(node).with_name("broker.log")
        while time.monotonic() < until and self._processes[node].poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.ports[node]), timeout=1):
                    return
            except OSError:
                time.sleep(0.2)
        raise BrokerError(f"node {node} does not listen: {log.read_text()[-2_000:]}")

    def _properties(self, node: int) -> str:
        voters = ",".join(f"{n}@127.0.0.1:{p}" for n, p in self._controller_ports.items())
        port, controller_port = self.ports[node], self._controller_ports[node]
        return f"""\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={self.data(node)}
broker.session.timeout.ms={SESSION_MS}
offsets.topic.replication.factor=3
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=3
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
auto.leader.rebalance.enable=false
num.network.threads=1
num.io.threads=2
background.threads=1
"""


@contextmanager
def running(folder: Path) -> Iterator[Lab]:
    """All nodes up; every process is ended whatever happens."""
    lab = Lab(folder)
    lab.format()
    try:
        lab.start(*NODES)
        yield lab
    finally:
        lab.close()
