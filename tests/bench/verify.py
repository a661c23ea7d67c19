"""What comparing contents costs, side by side with Kafka's ReplicaVerificationTool, on one real
cluster of three brokers: `python -m tests.bench.verify --write`.

The tool never ends: it is stopped once it reports that it has come to the end of every partition.
CPU is that of whoever compares (for agents: theirs, too), with the start of its process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.jars import jars

from tests.bench.processes import cpu_seconds
from tests.bench.report import write_table
from tests.bench.verify_report import tables
from tests.field.agents import agents_of
from tests.field.lab import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.field.lab import Lab

VERSION: Final = "3.9.1"
RECORD_BYTES: Final = 1_000
TOOL, WIRE, AGENTS = "ReplicaVerificationTool", "wire mode", "agent mode"
BOTH = "brokers and agents"
_TOOL_CLASS: Final = "org.apache.kafka.tools.ReplicaVerificationTool"
# As kafka-run-class.sh starts a tool.
_TOOL_JVM: Final = ("-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_AT_THE_END: Final = re.compile(r"max lag is 0 for partition")
_MISMATCH: Final = re.compile(r"(un|mis)matched checksum")
_TOOL_WITHIN_S: Final = 300.0
_HWM: Final = re.compile(r"VmHWM:\s+(\d+) kB")
_RCHAR: Final = re.compile(r"rchar: (\d+)")
_IDLE_S: Final = 5.0
DEFAULT_KB, LARGE_KB = 16, 64
GB: Final = 1e9


@dataclass
class Run:
    """One comparison of everything, by one of them."""

    who: str
    gigabytes: float
    partitions: int
    wall_s: float = 0.0
    cpu_s: float = 0.0
    brokers_cpu_s: float = 0.0
    bytes_moved: float = 0.0
    peak_mb: float = 0.0
    said: str = ""
    code: int | None = None
    batch_kb: int = 16
    parts: dict[str, float] = field(default_factory=dict)


class Bench:
    """The cluster, its agents, and who is measured on it."""

    def __init__(self, lab: Lab, agents: str, agent_pids: Iterable[int]) -> None:
        self.lab, self.agents, self._agent_pids = lab, agents, list(agent_pids)
        self.runs: list[Run] = []
        self.idle = 0.0
        """CPU seconds of the brokers in a second in which nobody asks them anything."""
        self._broker_pids = [
            json.loads(path.read_text(encoding="utf-8"))["pid"]
            for path in sorted((lab.plan.folder / "pids").glob("broker-*.json"))
        ]

    # -- data

    def fill(self, topic: str, gigabytes: float, batch_kb: int = DEFAULT_KB) -> None:
        """By Kafka's own producer."""
        count = int(gigabytes * GB / RECORD_BYTES)
        self.lab.tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(count), "--record-size", str(RECORD_BYTES)),
            *("--throughput", "-1", "--producer-props", "acks=all", "linger.ms=50"),
            *(f"batch.size={batch_kb * 1_024}", f"max.request.size={1 << 21}"),
            *(f"bootstrap.servers={self.lab.bootstrap}", "buffer.memory=134217728"),
            for_s=900,
        )
        self.lab.clients.until(topic, lambda seen: all(len(p.isr) == 3 for p in seen), 120)

    def segments(self, topic: str) -> list[Path]:
        return [
            path
            for broker in self.lab.brokers
            for path in self.lab.log_dir(broker).glob(f"{topic}-*/*.log")
        ]

    def size(self, topic: str) -> float:
        return sum(path.stat().st_size for path in self.segments(topic)) / GB

    def warm(self, topic: str) -> None:
        """Everything is read once, so that disks do not count."""
        for path in self.segments(topic):
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 22):
                    pass

    # -- who is measured

    def measure(self, topic: str, partitions: int, repeat: int, batch_kb: int = DEFAULT_KB) -> None:
        gigabytes = self.size(topic)
        self.warm(topic)
        before = self._brokers()
        time.sleep(_IDLE_S)
        self.idle = (self._brokers() - before) / _IDLE_S
        # Modules are compiled, and agents have loaded theirs: they run for weeks.
        self.both(topic, Run(BOTH, 0, 0))
        each: tuple[tuple[str, Callable[[str, Run], Run]], ...]
        each = ((TOOL, self.tool), (WIRE, self.wire), (AGENTS, self.by_agents), (BOTH, self.both))
        for who, run in each:
            empty = Run(who, gigabytes, partitions, batch_kb=batch_kb)
            taken = [run(topic, replace(empty)) for _ in range(repeat)]
            kept = sorted(taken, key=lambda r: r.cpu_s)[(len(taken) - 1) // 2]
            kept.wall_s = median(r.wall_s for r in taken)
            kept.peak_mb = max(r.peak_mb for r in taken)
            self.runs.append(kept)
            print(kept, flush=True)

    def tool(self, topic: str, run: Run, until: re.Pattern[str] = _AT_THE_END) -> Run:
        """Until it says that all is compared, or something else we wait for."""
        path = ":".join(map(str, jars(self.lab.release.lock)))
        java = ["java", *_TOOL_JVM, _QUIET, "-cp", path, _TOOL_CLASS]
        asked = ["--broker-list", self.lab.bootstrap, "--topics-include", topic, "--time", "-2"]
        command = [*java, *asked, "--report-interval-ms", "100"]
        before, began = self._brokers(), time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            assert child.stdout is not None
            said: list[str] = []
            for line in _lines(child.stdout.fileno(), began + _TOOL_WITHIN_S):
                said.append(line.strip())
                if until.search(line):
                    break
            else:
                said.append(f"not at the end after {_TOOL_WITHIN_S:.0f} s; {said[-1:]}")
            run.wall_s, run.cpu_s = time.monotonic() - began, cpu_seconds(child.pid)
            proc = Path(f"/proc/{child.pid}")
            run.peak_mb = int(_found(_HWM, proc / "status")) / 1024
            run.bytes_moved = float(_found(_RCHAR, proc / "io"))
            child.kill()
        run.brokers_cpu_s = max(self._brokers() - before - self.idle * run.wall_s, 0.0)
        run.said = said[-1] if said else ""
        return run

    def wire(self, topic: str, run: Run) -> Run:
        return self._verify(topic, run, "--bootstrap-server", self.lab.bootstrap)

    def by_agents(self, topic: str, run: Run) -> Run:
        return self._verify(topic, run, "--agents", self.agents)

    def both(self, topic: str, run: Run) -> Run:
        where = ("--bootstrap-server", self.lab.bootstrap, "--agents", self.agents)
        return self._verify(topic, run, *where)

    def _verify(self, topic: str, run: Run, *more: str) -> Run:
        command = [sys.executable, "-m", "tidestaff.streaming.cli", "verify", "--json"]
        command += ["--topic", topic, "--rate", "0"]
        before, agents, began = self._brokers(), self._of(self._agent_pids), time.monotonic()
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen([*command, *more], stdout=out, env=_environment())
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            run.wall_s = time.monotonic() - began
            out.seek(0)
            found: dict[str, Any] = json.loads(out.read())
        run.code, run.said = child.returncode, "; ".join([found["verdict"], *_findings(found)])
        own = usage.ru_utime + usage.ru_stime
        by_agents = self._of(self._agent_pids) - agents
        run.parts = {"own": own, "agents": by_agents, "system": usage.ru_stime}
        run.cpu_s, run.peak_mb = own + by_agents, usage.ru_maxrss / 1024
        run.brokers_cpu_s = max(self._brokers() - before - self.idle * run.wall_s, 0.0)
        run.bytes_moved = found["bytes_moved"]
        return run

    def _brokers(self) -> float:
        return self._of(self._broker_pids)

    def _of(self, pids: Iterable[int]) -> float:
        return sum(map(cpu_seconds, pids))

    # -- a fault

    def diverge(self, topic: str, partitions: int) -> list[Run]:
        """One bit of a checksum in the midst of one replica."""
        path = max(self.lab.replica_dir(3, topic, partitions // 2).glob("*.log"))
        where = _batch_after(path, path.stat().st_size // 2)
        with path.open("r+b") as file:
            file.seek(where + 20)
            byte = file.read(1)[0]
            file.seek(where + 20)
            file.write(bytes([byte ^ 1]))
        gigabytes = self.size(topic)
        found = [self.tool(topic, Run(TOOL, gigabytes, partitions), _MISMATCH)]
        runs: tuple[tuple[str, Callable[[str, Run], Run]], ...]
        runs = ((WIRE, self.wire), (AGENTS, self.by_agents))
        found += [run(topic, Run(who, gigabytes, partitions)) for who, run in runs]
        for each in found:
            print(each, flush=True)
        return found


def _lines(descriptor: int, until: float) -> Iterator[str]:
    """What a process writes, as long as there is time: one that hangs writes nothing at all."""
    rest = b""
    while (left := until - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            return
        if not (data := os.read(descriptor, 1 << 16)):
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


def _environment() -> dict[str, str]:
    """Compiled modules are kept, as on every machine that is not a test's."""
    return {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _findings(found: dict[str, Any]) -> Iterator[str]:
    for partition in found["partitions"]:
        for each in partition["differences"]:
            wrong = ", ".join(map(str, each["wrong"]))
            yield (
                f"{partition['topic']}-{partition['partition']} offsets [{each['start']}, "
                f"{each['end']}): broker {wrong} is wrong ({each['known_by']}), "
                f"{each['records']} records"
            )


def _found(pattern: re.Pattern[str], path: Path) -> str:
    match = pattern.search(path.read_text(encoding="ascii"))
    return match[1] if match else "0"


def _batch_after(path: Path, byte: int) -> int:
    """Where the first batch behind a byte begins."""
    at = 0
    with path.open("rb") as file:
        while at < byte:
            file.seek(at + 8)
            at += 12 + int.from_bytes(file.read(4))
    return at


def _compare_sizes(bench: Bench, options: argparse.Namespace) -> list[Run]:
    """Growing logs, then the same with larger batches; returns what was said of a fault."""
    clients, count = bench.lab.clients, options.partitions
    sizes = [float(each) for each in options.sizes.split(",") if each]
    if not sizes:
        return []
    clients.create_topic("bench", partitions=count)
    for size in sizes:
        bench.fill("bench", (size - bench.size("bench")) / 3)
        bench.measure("bench", count, options.repeat)
    diverged = bench.diverge("bench", count)
    clients.delete_topic("bench")
    if options.large:
        clients.create_topic("large", partitions=count)
        bench.fill("large", options.large / 3, LARGE_KB)
        bench.measure("large", count, options.repeat, LARGE_KB)
        clients.delete_topic("large")
    return diverged


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="verify")
    parser.add_argument("--sizes", default="1,3,10", help="GB on disk, three copies together")
    parser.add_argument("--partitions", type=int, default=30)
    parser.add_argument("--large", type=float, default=3.0, help="GB in larger batches, 0: none")
    parser.add_argument("--scale", default="100,1000,3000", help="numbers of partitions")
    parser.add_argument("--scale-size", type=float, default=0.9, help="GB on disk for those")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the brokers write")
    parser.add_argument("--write", action="store_true", help="the tables in docs/benchmarks.md")
    options = parser.parse_args(arguments)
    settings = {0: {"log.segment.bytes": "268435456", "num.replica.fetchers": "2"}}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder))
        lab = stack.enter_context(
            running(Path(folder) / "lab", VERSION, "kraft", settings=settings)
        )
        agents, pids = stack.enter_context(agents_of(lab))
        bench = Bench(lab, agents, pids)
        diverged = _compare_sizes(bench, options)
        for count in map(int, filter(None, options.scale.split(","))):
            topic, began = f"many-{count}", time.monotonic()
            lab.clients.create_topic(topic, partitions=count)
            print(f"{topic}: created after {time.monotonic() - began:.0f} s", flush=True)
            bench.fill(topic, options.scale_size / 3)
            print(f"{topic}: filled after {time.monotonic() - began:.0f} s", flush=True)
            bench.measure(topic, count, 1)
            lab.clients.delete_topic(topic)
    kept = {"runs": [asdict(r) for r in bench.runs], "diverged": [asdict(r) for r in diverged]}
    print(json.dumps(kept), flush=True)
    text = tables(bench.runs, diverged)
    print(text)
    if options.write:
        write_table("verify", text, by="make bench-verify")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
