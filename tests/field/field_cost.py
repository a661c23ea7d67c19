"""What watching costs the cluster: requests, bytes and the brokers' own CPU a round, by number of
partitions; and what a producer notices, with the monitor on and off by turns in one run."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.streaming.lab.processes import Processes
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

from tests.field.field_report import Row
from tests.field.lab import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.field.field_report import Keep
    from tests.field.lab import Kind, Lab

SIZES: Final = (10, 1_000, 5_000)
ROUND_S: Final = 5.0
LIMIT: Final = 0.03
_A_TOPIC: Final = 500
_ROUNDS: Final = 6
_LOAD: Final = "load"
_BATCH, _RECORD = 100, b"x" * 200
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """Since the connector was made."""

    requests: int
    sent: int
    received: int
    cpu_s: float
    at_s: float


class Meter:
    """Counts what a connector sends and receives, and what the brokers spend meanwhile."""

    def __init__(self, lab: Lab, connector: BrokerConnector) -> None:
        reader: Any = connector._reader
        self._pids = [Processes(lab.plan.folder).pid(f"broker-{b}") for b in lab.brokers]
        self.requests = self.sent = self.received = 0
        ask = reader.ask

        def counting(request: Any, broker: int) -> Any:
            self.requests += 1
            return ask(request, broker)

        reader.ask = counting

    @contextmanager
    def bytes_counted(self) -> Iterator[None]:
        """The library's sockets, while only this connector has any."""
        from kafka.net.transport import (  # type: ignore[import-untyped]  # noqa: PLC0415
            KafkaTCPTransport,
        )

        receive, send = KafkaTCPTransport._sock_recv, KafkaTCPTransport._sock_send

        def received(transport: Any) -> Any:
            data, error = receive(transport)
            self.received += len(data)
            return data, error

        def sent(transport: Any) -> Any:
            count, error = send(transport)
            self.sent += count
            return count, error

        KafkaTCPTransport._sock_recv, KafkaTCPTransport._sock_send = received, sent
        try:
            yield
        finally:
            KafkaTCPTransport._sock_recv, KafkaTCPTransport._sock_send = receive, send

    def spent(self) -> Spent:
        cpu_s = sum(_cpu_s(pid) for pid in self._pids if pid is not None)
        return Spent(self.requests, self.sent, self.received, cpu_s, time.monotonic())


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - no path of ours
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def connector_of(bootstrap: str, version: str) -> BrokerConnector:
    options = {"bootstrap_servers": bootstrap, "version": version, "jitter_ms": 0}
    source = {"type": "direct", "collector": "brokers", "options": options}
    found = collector_of(Cluster.model_validate({"name": "field", "source": source}))
    assert isinstance(found, BrokerConnector)
    return found


def play(folder: Path, kind: Kind, keep: Keep, pairs: int) -> None:
    heap = {**os.environ, "TIDESTAFF_LAB_HEAP": "1g"}
    with running(folder, *kind, environment=heap) as lab:
        made = 0
        for size in SIZES:
            made = _grow(lab, made, size)
            keep(_round_cost(lab, kind, size))
            if size == 1_000:
                keep(_felt_by_a_producer(lab, kind, size, pairs))


def _grow(lab: Lab, made: int, size: int) -> int:
    """To so many partitions of three replicas each."""
    while made < size:
        count = min(_A_TOPIC, size - made)
        lab.clients.create_topic(f"many-{made}", partitions=count)
        made += count
    return made


def _round_cost(lab: Lab, kind: Kind, size: int) -> Row:
    connector = connector_of(lab.bootstrap, kind.version)
    try:
        meter = Meter(lab, connector)
        for _ in range(3):
            connector.round()
        idle = meter.spent()
        time.sleep(2 * ROUND_S)
        with meter.bytes_counted():
            before = meter.spent()
            idle_share = (before.cpu_s - idle.cpu_s) / (before.at_s - idle.at_s)
            took = []
            for _ in range(_ROUNDS):
                began = time.monotonic()
                connector.round()
                took.append(time.monotonic() - began)
            after = meter.spent()
    finally:
        connector.close()
    a_round = [(b - a) / _ROUNDS for a, b in zip(before, after, strict=True)]
    busy_s = max(0.0, a_round[3] - idle_share * a_round[4])
    share = busy_s / ROUND_S / len(lab.brokers)
    return Row(
        "cost",
        f"{size:,} partitions of three replicas: a round",
        str(kind),
        f"the brokers spend no more than {LIMIT:.0%} of a core each, at a round every "
        f"{ROUND_S:.0f} s",
        f"{a_round[0]:.0f} requests to 3 brokers, {a_round[1] / 1_000:,.1f} kB sent, "
        f"{a_round[2] / 1_000:,.1f} kB received; brokers' CPU {1_000 * busy_s:.0f} ms in all, "
        f"{share:.2%} of a core each; a round takes {statistics.median(took):.2f} s",
        share <= LIMIT,
        sum(took),
    )


# -- what a producer notices


class Slice(NamedTuple):
    """Some seconds of a producer that waits for every batch."""

    watched: bool
    batches_s: float
    latencies: list[float]


def _felt_by_a_producer(lab: Lab, kind: Kind, size: int, pairs: int) -> Row:
    began = time.monotonic()
    lab.clients.create_topic(_LOAD, partitions=6, configs={"min.insync.replicas": "2"})
    found: list[tuple[Slice, Slice]] = []
    chance = random.Random(1)  # noqa: S311 - replayable
    with _monitor(lab, kind) as monitor, _producer(lab) as producer:
        _slice(producer, monitor, watched=True)
        for _ in range(pairs):
            first = chance.random() < 0.5
            one, other = (
                _slice(producer, monitor, watched=watched) for watched in (first, not first)
            )
            found.append((one, other) if first else (other, one))
    ratio, low, high = _interval(
        [on.batches_s / off.batches_s for on, off in found], chance, statistics.median
    )
    slow, slow_low, slow_high = _interval(found, chance, _p99_ratio)
    on_s, off_s = (statistics.mean(pair[n].batches_s for pair in found) for n in (0, 1))
    return Row(
        "cost",
        f"a producer (acks=all, batches of {_BATCH} records) beside {size:,} partitions watched",
        str(kind),
        f"throughput and p99 within {LIMIT:.0%} of those without the monitor, at a round every "
        f"{ROUND_S:.0f} s",
        f"{pairs} pairs of {ROUND_S:.0f} s on and off by chance: "
        f"{on_s * _BATCH:,.0f} records/s on, "
        f"{off_s * _BATCH:,.0f} off; throughput on/off {ratio:.3f} (median of pairs; 95 % interval "
        f"{low:.3f} to {high:.3f}); p99 on/off {slow:.3f} ({slow_low:.3f} to {slow_high:.3f})",
        ratio >= 1 - LIMIT and slow <= 1 + LIMIT,
        time.monotonic() - began,
    )


def _p99_ratio(found: Sequence[tuple[Slice, Slice]]) -> float:
    on, off = (sorted(each for pair in found for each in pair[n].latencies) for n in (0, 1))
    return on[int(0.99 * len(on))] / off[int(0.99 * len(off))]


def _interval(found: list[Any], chance: random.Random, figure: Any) -> tuple[float, float, float]:
    """The figure, and where 95 % of the figures of as many pairs drawn by chance from them lie."""
    drawn = sorted(figure(chance.choices(found, k=len(found))) for _ in range(400))
    return figure(found), drawn[10], drawn[-11]


def _slice(producer: Any, monitor: subprocess.Popen[str], *, watched: bool) -> Slice:
    began = time.monotonic()
    if watched:
        assert monitor.stdin is not None
        print("round", file=monitor.stdin, flush=True)
    latencies = []
    while time.monotonic() < began + ROUND_S:
        at = time.monotonic()
        sent = [producer.send(_LOAD, _RECORD) for _ in range(_BATCH)]
        producer.flush(60)
        for each in sent:
            each.get(60)
        latencies.append(time.monotonic() - at)
    took = time.monotonic() - began
    if watched:
        assert monitor.stdout is not None
        assert monitor.stdout.readline().strip() == "done"
    return Slice(watched, len(latencies) / took, latencies)


@contextmanager
def _producer(lab: Lab) -> Iterator[Any]:
    from kafka import KafkaProducer  # noqa: PLC0415 - slow

    producer = KafkaProducer(bootstrap_servers=lab.bootstrap, acks="all", linger_ms=0)
    try:
        yield producer
    finally:
        producer.close(timeout=5)


@contextmanager
def _monitor(lab: Lab, kind: Kind) -> Iterator[subprocess.Popen[str]]:
    """A process of its own: its Python must not slow down the producer's. It gets what the brokers
    leave of the cores, as in real life it has another machine."""
    command = [sys.executable, "-m", "tests.field.field_cost"]
    process = subprocess.Popen(
        [*command, lab.bootstrap, kind.version],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            yield process
        finally:
            process.kill()


def _rounds_on_demand(bootstrap: str, version: str) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    connector = connector_of(bootstrap, version)
    try:
        for _ in range(3):
            connector.round()
        print("ready", flush=True)
        for _ in sys.stdin:
            connector.round()
            print("done", flush=True)
    finally:
        connector.close()


if __name__ == "__main__":
    _rounds_on_demand(*sys.argv[1:])
