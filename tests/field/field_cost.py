"""What watching costs the cluster: requests, bytes and the brokers' own CPU a round, by number of
partitions; and what a producer notices, with the monitor on and off by turns in one run.

The brokers' files are in memory where there is room, so that one disk for all is not measured, too.
The p99 spreads by chance all the same: "off/off" says by how much without any monitor, and no
smaller difference than that is shown by a ratio.

All of it takes some eleven minutes, on a machine that does nothing else."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.streaming.lab.processes import Processes
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

from tests.field.field_report import Row
from tests.field.lab import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.field.field_report import Keep
    from tests.field.lab import Kind, Lab

SIZES: Final = (10, 1_000, 5_000)
ROUND_S: Final = 5.0
LIMIT: Final = 0.03
_A_TOPIC: Final = 500
_MEMORY, _ROOM = Path("/dev/shm"), 8 << 30  # noqa: S108 - a folder of our own in it
_WARM_UP: Final = 6
_ROUNDS: Final = 8
_LOAD: Final = "load"
_BATCH, _RECORD = 100, b"x" * 200
_ON_THEIR_WAY: Final = 2_000
_PACE_S: Final = 1 / 200
_WITHIN_S: Final = 510.0
"""No new blocks after that: all of it is to take twelve minutes at the most."""
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


def play(folder: Path, kind: Kind, keep: Keep, quads: int) -> None:
    heap = {**os.environ, "TIDESTAFF_LAB_HEAP": "1g"}
    with _in_memory(folder) as place, running(place, *kind, environment=heap) as lab:
        made = 0
        for size in SIZES:
            made = _grow(lab, made, size)
            keep(_round_cost(lab, kind, size))
            if size == 1_000 and quads:
                keep(_felt_by_a_producer(lab, kind, size, quads))


@contextmanager
def _in_memory(folder: Path) -> Iterator[Path]:
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="tidestaff-field-cost-", dir=_MEMORY) as place:
        yield Path(place) / "lab"


def _grow(lab: Lab, made: int, size: int) -> int:
    """To so many partitions of three replicas each."""
    while made < size:
        count = min(_A_TOPIC, size - made)
        lab.clients.create_topic(f"many-{made}", partitions=count)
        made += count
    return made


def _round_cost(lab: Lab, kind: Kind, size: int) -> Row:
    """Rounds and pauses by turns: what the brokers spend in the pauses, replicating and keeping
    house, they spend in the rounds, too, and it is not the monitor's."""
    connector = connector_of(lab.bootstrap, kind.version)
    try:
        meter = Meter(lab, connector)
        for _ in range(_WARM_UP):
            connector.round()
            time.sleep(1)
        rounds: list[list[float]] = []
        pauses: list[list[float]] = []
        own_s = 0.0
        with meter.bytes_counted():
            for _ in range(_ROUNDS):
                times = [meter.spent()]
                own_s -= time.process_time()
                connector.round()
                own_s += time.process_time()
                times.append(meter.spent())
                time.sleep(ROUND_S)
                times.append(meter.spent())
                rounds.append([b - a for a, b in zip(*times[:2], strict=True)])
                pauses.append([b - a for a, b in zip(*times[1:], strict=True)])
    finally:
        connector.close()
    own_s /= _ROUNDS
    a_round = [statistics.fmean(each) for each in zip(*rounds, strict=True)]
    a_pause = [statistics.fmean(each) for each in zip(*pauses, strict=True)]
    took = [each[4] for each in rounds]
    busy_s = max(0.0, a_round[3] - a_pause[3] / a_pause[4] * a_round[4])
    share = busy_s / ROUND_S / len(lab.brokers)
    return Row(
        "cost",
        f"{size:,} partitions of three replicas: a round",
        str(kind),
        f"the brokers spend no more than {LIMIT:.0%} of a core each, at a round every "
        f"{ROUND_S:.0f} s",
        f"{a_round[0]:.0f} requests to 3 brokers, {a_round[1] / 1_000:,.1f} kB sent, "
        f"{a_round[2] / 1_000:,.1f} kB received; brokers' CPU {1_000 * busy_s:.0f} ms in all, "
        f"{share:.2%} of a core each, beside {a_pause[3] / a_pause[4]:.1%} in all without the "
        f"monitor; a round takes {statistics.median(took):.2f} s and {1_000 * own_s:.0f} ms of the "
        "monitor's own CPU",
        share <= LIMIT,
        sum(took),
    )


# -- what a producer notices


class Block(NamedTuple):
    """Some seconds of a producer: what was acknowledged a second, and how long each record took."""

    records_s: float
    latencies: list[float]


class Quad(NamedTuple):
    """Four blocks in a row, on and off as ABBA or BAAB: whatever drifts evenly cancels out."""

    on: tuple[Block, Block]
    off: tuple[Block, Block]

    @property
    def throughput(self) -> float:
        """On by off."""
        on, off = (sum(block.records_s for block in each) for each in (self.on, self.off))
        return on / off

    @property
    def noise(self) -> float:
        """Of the two blocks without the monitor, the later by the earlier: 1 but for the noise."""
        return self.off[1].records_s / self.off[0].records_s


def quad_of(blocks: Sequence[Block], order: Sequence[bool]) -> Quad:
    on = [block for block, watched in zip(blocks, order, strict=True) if watched]
    off = [block for block, watched in zip(blocks, order, strict=True) if not watched]
    return Quad((on[0], on[1]), (off[0], off[1]))


def p99_ratio(quads: Sequence[Quad]) -> float:
    on, off = (_p99([block for q in quads for block in q[n]]) for n in (0, 1))
    return on / off


def _p99(blocks: Sequence[Block]) -> float:
    together = sorted(each for block in blocks for each in block.latencies)
    return together[int(0.99 * len(together))]


def noise_of_p99(quads: Sequence[Quad]) -> float:
    return _p99([q.off[1] for q in quads]) / _p99([q.off[0] for q in quads])


def _median_throughput(quads: Sequence[Quad]) -> float:
    return statistics.median(q.throughput for q in quads)


def _felt_by_a_producer(lab: Lab, kind: Kind, size: int, quads: int) -> Row:
    """One producer sends as much as it can, for the throughput; another at a steady pace that
    leaves the brokers room, for the p99: that of a full queue tells only how long the queue is."""
    began = time.monotonic()
    lab.clients.create_topic(_LOAD, partitions=6, configs={"min.insync.replicas": "2"})
    chance = random.Random(1)  # noqa: S311 - replayable
    full: list[Quad] = []
    paced: list[Quad] = []
    with (
        _monitor(lab, kind) as monitor,
        _producer(lab, linger_ms=5) as fast,
        _producer(lab, linger_ms=0) as steady,
    ):
        # The first of each only warms up.
        for turn in range(-1, quads):
            if turn > 0 and time.monotonic() > began + _WITHIN_S:
                break
            full.append(_quad(_flooded, fast, monitor, turn=turn))
            paced.append(_quad(_paced, steady, monitor, turn=turn))
    del full[0], paced[0]
    ratio, low, high = _interval(full, chance, _median_throughput)
    slow, slow_low, slow_high = _interval(paced, chance, p99_ratio)
    noises = sorted(q.noise for q in full)
    _, quiet_low, quiet_high = _interval(paced, chance, noise_of_p99)
    on_s, off_s = (statistics.mean(b.records_s for q in full for b in q[n]) for n in (0, 1))
    files = "in memory" if _MEMORY in lab.plan.folder.parents else "on disk"
    return Row(
        "cost",
        f"a producer (acks=all) beside {size:,} partitions watched",
        str(kind),
        f"throughput and p99 within {LIMIT:.0%} of those without the monitor, at a round every "
        f"{ROUND_S:.0f} s",
        f"{len(full)} times off, on, on, off or the reverse, {ROUND_S:.0f} s each; the "
        f"brokers' files are {files}. At full speed "
        f"{on_s:,.0f} records/s on, {off_s:,.0f} off; throughput on/off {ratio:.3f} (median; 95 % "
        f"interval {low:.3f} to {high:.3f}; off/off of the same runs {noises[0]:.3f} to "
        f"{noises[-1]:.3f}). At {1 / _PACE_S:.0f} records/s p99 "
        f"{1_000 * _p99([b for q in paced for b in q.on]):.1f} ms on, "
        f"{1_000 * _p99([b for q in paced for b in q.off]):.1f} off; on/off {slow:.3f} "
        f"({slow_low:.3f} to {slow_high:.3f}; off/off {quiet_low:.3f} to {quiet_high:.3f})",
        ratio >= 1 - LIMIT and slow <= 1 + LIMIT,
        time.monotonic() - began,
    )


def _interval(found: list[Any], chance: random.Random, figure: Any) -> tuple[float, float, float]:
    """The figure, and where 95 % of the figures of as many quads drawn by chance from them lie."""
    drawn = sorted(figure(chance.choices(found, k=len(found))) for _ in range(400))
    return figure(found), drawn[10], drawn[-11]


Produce = Callable[[Any, Callable[[], bool]], Block]


def _quad(produce: Produce, producer: Any, monitor: Monitor, *, turn: int) -> Quad:
    order = (False, True, True, False) if turn % 2 == 0 else (True, False, False, True)
    return quad_of([_block(produce, producer, monitor, watched=w) for w in order], order)


def _block(produce: Produce, producer: Any, monitor: Monitor, *, watched: bool) -> Block:
    """At least as long as the time between two rounds, and never shorter than the round itself:
    what the monitor does must not fall outside of what is measured."""
    ends = time.monotonic() + ROUND_S
    if watched:
        monitor.begin_round()
    return produce(producer, lambda: time.monotonic() >= ends and monitor.idle)


def _flooded(producer: Any, over: Callable[[], bool]) -> Block:
    """What is acknowledged while as many records as may be are on their way: less than a second's
    worth, so that what is sent in a block is told in that block."""
    room, acknowledged = threading.Semaphore(_ON_THEIR_WAY), 0

    def told(_: object) -> None:
        nonlocal acknowledged
        acknowledged += 1
        room.release()

    began = time.monotonic()
    while not over():
        for _ in range(_BATCH):
            room.acquire()
            producer.send(_LOAD, _RECORD).add_callback(told)
    producer.flush(60)
    return Block(acknowledged / (time.monotonic() - began), [])


def _paced(producer: Any, over: Callable[[], bool]) -> Block:
    """A record is late from when it was due, also where the one before it was in its way."""
    producer.flush(60)
    latencies: list[float] = []
    began = due = time.monotonic()

    def timed(_: object, since: float) -> None:
        latencies.append(time.monotonic() - since)

    while not over():
        time.sleep(max(0.0, due - time.monotonic()))
        producer.send(_LOAD, _RECORD).add_callback(timed, since=due)
        due += _PACE_S
    producer.flush(60)
    return Block(len(latencies) / (time.monotonic() - began), latencies)


@contextmanager
def _producer(lab: Lab, *, linger_ms: int) -> Iterator[Any]:
    from kafka import KafkaProducer  # noqa: PLC0415 - slow

    producer = KafkaProducer(bootstrap_servers=lab.bootstrap, acks="all", linger_ms=linger_ms)
    try:
        yield producer
    finally:
        producer.close(timeout=5)


class Monitor:
    """A process of its own: its Python must not slow down the producer's. It gets what the brokers
    leave of the cores, as in real life it has another machine."""

    def __init__(self, lab: Lab, kind: Kind) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.field.field_cost", lab.bootstrap, kind.version],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "ready"
        self._idle = threading.Event()
        self._idle.set()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def begin_round(self) -> None:
        assert self._idle.is_set()
        assert self._process.stdin is not None
        self._idle.clear()
        print("round", file=self._process.stdin, flush=True)

    @property
    def idle(self) -> bool:
        assert self._process.poll() is None, "the monitor ended"
        return self._idle.is_set()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            self._idle.set()

    def close(self) -> None:
        with self._process:
            self._process.kill()
        self._listener.join()


@contextmanager
def _monitor(lab: Lab, kind: Kind) -> Iterator[Monitor]:
    with closing(Monitor(lab, kind)) as monitor:
        yield monitor


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
