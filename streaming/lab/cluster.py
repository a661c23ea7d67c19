"""One interface to a real cluster: nodes that are started, stopped, killed, paused and cut off."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.jars import jars
from tidestaff.streaming.lab import wires
from tidestaff.streaming.lab.clients import Clients
from tidestaff.streaming.lab.errors import LabError, NodeDownError
from tidestaff.streaming.lab.plan import LOOPBACK, ZOOKEEPER_NODE, load_plan, node_name
from tidestaff.streaming.lab.processes import Processes
from tidestaff.streaming.lab.properties import (
    CLUSTER_ID,
    LOG4J_1,
    SIMPLE_LOGGER,
    broker_properties,
    text_of,
    zookeeper_properties,
)
from tidestaff.streaming.lab.releases import KRAFT, ZOOKEEPER_LOCK, release_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidestaff.streaming.lab.plan import Plan
    from tidestaff.streaming.lab.processes import Engine

STARTS_WITHIN_S: Final = 150.0
ENDS_WITHIN_S: Final = 45.0
TOOL_WITHIN_S: Final = 120.0
_LAST_LINES: Final = 15
HEAP: Final = "TIDESTAFF_LAB_HEAP"
_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# What brokers of every release say last when they start.
_STARTED: Final = re.compile(rb"Kafka ?Server.*\bstarted\b")
_ZOOKEEPER_WITHIN_S: Final = 60.0


class Lab:
    """The nodes of a plan. Brokers have the numbers of the plan, ZooKeeper has 0."""

    def __init__(
        self,
        plan: Plan,
        *,
        engine: Engine | None = None,
        environment: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.plan, self._say = plan, say
        self.release = release_of(plan.version)
        self._environment = os.environ if environment is None else environment
        self._engine = engine or Processes(plan.folder)
        self._helpers = Processes(plan.folder)
        self._class_paths: dict[Path, str] = {}
        self.clients = Clients(self)

    # -- what is there

    @property
    def bootstrap(self) -> str:
        return self.plan.bootstrap

    @property
    def zookeeper_connect(self) -> str:
        return self.plan.zookeeper_connect

    @property
    def brokers(self) -> tuple[int, ...]:
        return self.plan.brokers

    @property
    def nodes(self) -> tuple[int, ...]:
        return self.brokers if self.plan.mode == KRAFT else (ZOOKEEPER_NODE, *self.brokers)

    def bootstrap_of(self, broker: int) -> str:
        return f"{LOOPBACK}:{self.plan.clients[broker]}"

    def log_dir(self, broker: int) -> Path:
        return self.plan.log_dir(broker)

    def replica_dir(self, broker: int, topic: str, partition: int) -> Path:
        return self.log_dir(broker) / f"{topic}-{partition}"

    def log(self, node: int) -> str:
        """All that the node has logged, over all its starts."""
        try:
            return self.plan.log(node).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def running(self, node: int) -> bool:
        return self._engine.running(node_name(node))

    def paused(self, node: int) -> bool:
        return self._mark(node).exists()

    @property
    def answering(self) -> str:
        """The addresses of the brokers that can answer now, for clients; all where none can."""
        able = [b for b in self.brokers if self.running(b) and not self.paused(b)]
        return ",".join(map(self.bootstrap_of, able or self.brokers))

    # -- start

    def up(self) -> None:
        """All nodes; those that run are left alone. If one does not come up, all are ended."""
        self._fetch()
        self.plan.save()
        try:
            if self.plan.cuttable and not self._helpers.running(wires.NAME):
                self._start_wires()
            if ZOOKEEPER_NODE in self.nodes and not self.running(ZOOKEEPER_NODE):
                self._start_zookeeper()
            self.start(*(broker for broker in self.brokers if not self.running(broker)))
        except BaseException:
            self.down()
            raise

    def start(self, *nodes: int, wait: bool = True) -> None:
        """With `wait`, until each says that it has started."""
        marks = {}
        for node in nodes:
            self._known(node)
            if self.running(node):
                raise LabError(f"{node_name(node)} runs already")
            self._mark(node).unlink(missing_ok=True)
            if node == ZOOKEEPER_NODE:
                self._start_zookeeper()
                continue
            marks[node] = self._size(node)
            self._start_broker(node)
        if wait:
            until = time.monotonic() + STARTS_WITHIN_S
            for node, mark in marks.items():
                self._wait_started(node, mark, until)

    def configure(self, broker: int, **properties: str) -> None:
        """Settings of one broker (0: of all) from its next start on; `_` stands for `.`."""
        mine = self.plan.settings.setdefault(broker, {})
        mine.update({name.replace("_", "."): value for name, value in properties.items()})
        self.plan.save()

    # -- faults

    def stop(self, *nodes: int) -> None:
        """SIGTERM: a broker hands over what it leads, and writes down that it ended well."""
        self._signal(signal.SIGTERM, *nodes)
        for node in nodes:
            if not self._engine.wait(node_name(node), ENDS_WITHIN_S):
                raise NodeDownError(
                    f"{node_name(node)} did not end within {ENDS_WITHIN_S:.0f} s of SIGTERM; "
                    "its last lines:",
                    *self._last_lines(node),
                )

    def kill(self, *nodes: int) -> None:
        """SIGKILL: no time to say good-bye."""
        self._signal(signal.SIGKILL, *nodes)
        for node in nodes:
            self._engine.wait(node_name(node), ENDS_WITHIN_S)

    def _signal(self, number: signal.Signals, *nodes: int) -> None:
        for node in nodes:  # all of them, before any is told
            self._running(node)
        for node in nodes:
            self._engine.signal(node_name(node), number)

    def pause(self, node: int) -> None:
        """SIGSTOP: the process is there, its port is open, and nobody answers."""
        self._signal(signal.SIGSTOP, node)
        self._mark(node).touch()

    def resume(self, node: int) -> None:
        self._signal(signal.SIGCONT, node)
        self._mark(node).unlink(missing_ok=True)

    def cut(self, one: int, other: int, *, inner_only: bool = False) -> None:
        """Nothing passes between the two until they are healed; clients reach both.

        `inner_only`: followers cannot fetch, while a KRaft controller still hears its brokers.
        """
        if not self.plan.cuttable:
            raise LabError("this lab has no wires to cut: start it with wires")
        for node in (one, other):
            self._known(node)
        if one == other:
            raise LabError(f"{node_name(one)} cannot be cut off from itself")
        new = wires.Cut(frozenset({one, other}), inner_only)
        self._write_cuts({*wires.read_cuts(self.plan.folder), new})

    def heal(self) -> None:
        self._write_cuts(set())

    @property
    def cuts(self) -> list[tuple[int, int]]:
        pairs = {each.pair for each in wires.read_cuts(self.plan.folder)}
        return sorted((min(pair), max(pair)) for pair in pairs)

    # -- end

    def down(self) -> None:
        """Every process is ended, whatever it takes; folders and logs stay."""
        names = [*(node_name(broker) for broker in self.brokers), node_name(ZOOKEEPER_NODE)]
        for engine, name in [
            *((self._engine, name) for name in names),
            (self._helpers, wires.NAME),
        ]:
            if engine.running(name):
                # Nothing is kept: there is no reason to wait for a hand-over.
                engine.signal(name, signal.SIGKILL)
                engine.wait(name, ENDS_WITHIN_S)

    def remove(self) -> None:
        self.down()
        shutil.rmtree(self.plan.folder, ignore_errors=True)

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.clients.close()
        self.down()

    # -- Kafka's own tools

    def tool(
        self, main_class: str, *arguments: str, check: bool = True, for_s: float | None = None
    ) -> str:
        """What a class of the release's jars prints; with `for_s` what it printed by then, as some
        of Kafka's tools never end. One that may fail tells its errors as well."""
        try:
            done = subprocess.run(  # noqa: S603 - our own command
                self.tool_command(main_class, *arguments),
                capture_output=True,
                text=True,
                check=False,
                timeout=for_s or TOOL_WITHIN_S,
                cwd=self.plan.folder,
            )
        except subprocess.TimeoutExpired as expired:
            if for_s is not None:
                return (expired.stdout or b"").decode(errors="replace")
            raise LabError(f"{main_class} did not end within {TOOL_WITHIN_S:.0f} s") from None
        if check and done.returncode:
            said = [*done.stdout.splitlines(), *done.stderr.splitlines()][-_LAST_LINES:]
            raise LabError(f"{main_class} failed with code {done.returncode}:", *said)
        return done.stdout + (done.stderr if done.returncode else "")

    def tool_command(self, main_class: str, *arguments: str) -> list[str]:
        """For whoever runs a tool himself, and reads what it says while it says it."""
        return [*self._java(quiet=True), main_class, *arguments]

    def topics_tool(self, *arguments: str) -> str:
        """kafka-topics of the release."""
        return self.tool(*self.topics_arguments(*arguments))

    def topics_arguments(self, *arguments: str) -> tuple[str, ...]:
        where = ("--bootstrap-server", self.bootstrap)
        if self.release.topics_by_zookeeper:
            where = ("--zookeeper", self.zookeeper_connect)
        return f"{self.release.tools_package}.TopicCommand", *where, *arguments

    # -- the inside

    def _fetch(self) -> None:
        self._class_path(self.release.lock)
        if ZOOKEEPER_NODE in self.nodes:
            self._class_path(ZOOKEEPER_LOCK)

    def _class_path(self, lock: Path) -> str:
        if lock not in self._class_paths:
            found = jars(lock, self._environment, self._say)
            self._class_paths[lock] = ":".join(map(str, found))
        return self._class_paths[lock]

    def _java(self, lock: Path | None = None, *, quiet: bool = False) -> list[str]:
        lock = lock or self.release.lock
        home = self._environment.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else "java"
        flags: tuple[str, ...] = SIMPLE_LOGGER
        if quiet:
            flags = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)
        if lock == self.release.lock and not self.release.simple_logger:
            file = self.plan.folder / ("quiet.log4j" if quiet else "log4j.properties")
            text = re.sub("INFO|WARN", "ERROR", LOG4J_1) if quiet else LOG4J_1
            file.write_text(text, encoding="utf-8")
            flags = (f"-Dlog4j.configuration=file:{file}",)
        sasl = "-Dzookeeper.sasl.client=false"
        heap = f"-Xmx{self._environment.get(HEAP, '256m')}"
        return [java, heap, *_JVM, sasl, *flags, "-cp", self._class_path(lock)]

    def _start_wires(self) -> None:
        log = self.plan.folder / "wires.log"
        log.unlink(missing_ok=True)
        self._helpers.start(
            wires.NAME, [sys.executable, "-m", wires.__name__, str(self.plan.folder)], log
        )
        until = time.monotonic() + STARTS_WITHIN_S
        while wires.READY not in log.read_text(encoding="utf-8"):
            if not self._helpers.running(wires.NAME) or time.monotonic() > until:
                lines = log.read_text(encoding="utf-8").splitlines()[-_LAST_LINES:]
                raise LabError("the wires between the brokers did not come up:", *lines)
            time.sleep(0.05)

    def _start_zookeeper(self) -> None:
        folder = self.plan.node_folder(ZOOKEEPER_NODE)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "zookeeper.properties"
        file.write_text(text_of(zookeeper_properties(self.plan)), encoding="utf-8")
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._engine.start(
            node_name(ZOOKEEPER_NODE),
            [*self._java(ZOOKEEPER_LOCK), main_class, str(file)],
            self.plan.log(ZOOKEEPER_NODE),
        )
        until = time.monotonic() + _ZOOKEEPER_WITHIN_S
        while not _says_imok(self.plan.zookeeper):
            self._still_coming(ZOOKEEPER_NODE, until)

    def _start_broker(self, broker: int) -> None:
        folder = self.plan.node_folder(broker)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "server.properties"
        file.write_text(text_of(broker_properties(self.plan, broker)), encoding="utf-8")
        if self.plan.mode == KRAFT and not (self.log_dir(broker) / "meta.properties").exists():
            self.tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file))
        self._engine.start(
            node_name(broker), [*self._java(), "kafka.Kafka", str(file)], self.plan.log(broker)
        )

    def _size(self, node: int) -> int:
        log = self.plan.log(node)
        return log.stat().st_size if log.exists() else 0

    def _wait_started(self, node: int, mark: int, until: float) -> None:
        self._say(f"waiting for {node_name(node)}")
        while True:
            with self.plan.log(node).open("rb") as log:
                log.seek(mark)
                if _STARTED.search(log.read()):
                    return
            self._still_coming(node, until)

    def _still_coming(self, node: int, until: float) -> None:
        ended = not self.running(node)
        if ended or time.monotonic() > until:
            how = "ended" if ended else "did not come up in time"
            raise NodeDownError(
                f"{node_name(node)} {how}; the last lines of {self.plan.log(node)}:",
                *self._last_lines(node),
            )
        time.sleep(0.1)

    def _last_lines(self, node: int) -> Iterable[str]:
        return self.log(node).splitlines()[-_LAST_LINES:]

    def _mark(self, node: int) -> Path:
        """There while the node is paused, whoever paused it."""
        return self.plan.node_folder(node) / "paused"

    def _known(self, node: int) -> None:
        if node not in self.nodes:
            numbers = ", ".join(map(str, self.brokers))
            raise LabError(f"there is no broker {node} in this lab: it has {numbers}")

    def _running(self, node: int) -> None:
        self._known(node)
        if not self.running(node):
            raise LabError(f"{node_name(node)} does not run: 'tidestaff lab start' starts it")

    def _write_cuts(self, cuts: set[wires.Cut]) -> None:
        wires.write_cuts(self.plan.folder, cuts)
        # The wires look for it many times a second.
        time.sleep(0.3)


def open_lab(folder: Path, **more: object) -> Lab:
    """The lab that was started before, perhaps by another process."""
    return Lab(load_plan(folder), **more)  # type: ignore[arg-type]


def _says_imok(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as line:
            line.sendall(b"ruok")
            return line.recv(16) == b"imok"
    except OSError:
        return False
