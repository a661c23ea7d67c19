"""Faults put into a real 3.9.1 cluster with ZooKeeper by hand: each must be found and named right.

Files and znodes are altered behind Kafka's back, by the test; the monitor only reads. An agent runs
beside every broker. Each fault has a topic of its own, so that one cannot hide another.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.checkpoint_files import encode_leader_epochs, parse_leader_epochs
from tidestaff.consistency.model import EpochEntry
from tidestaff.streaming.lab.plan import LOOPBACK, free_ports
from tidestaff.streaming.lab.processes import Processes

from tests.field.field_report import Row
from tests.field.field_seeds import zookeeper_of
from tests.field.field_watch import Watch
from tests.field.lab import Kind, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.field.field_watch import Alert
    from tests.field.lab import Lab

CLUSTER: Final = Kind("3.9.1", "zookeeper")
SESSION_S: Final = 6
SETTINGS: Final = {0: {"zookeeper.session.timeout.ms": f"{SESSION_S}000"}}
EPOCHS: Final = "leader-epoch-checkpoint"
FOUND_WITHIN_S: Final = 90.0


@contextmanager
def agents_of(lab: Lab) -> Iterator[str]:
    """An agent for each broker; the option that names them."""
    processes = Processes(lab.plan.folder)
    ports = dict(zip(lab.brokers, free_ports(len(lab.brokers)), strict=True))
    try:
        for broker, port in ports.items():
            command = [sys.executable, "-m", "tidestaff.streaming.cli", "agent"]
            command += ["--log-dir", str(lab.log_dir(broker)), "--broker", str(broker)]
            command += ["--listen", f"{LOOPBACK}:{port}"]
            processes.start(f"agent-{broker}", command, lab.plan.folder / f"agent-{broker}.log")
        yield ",".join(f"{broker}=http://{LOOPBACK}:{port}" for broker, port in ports.items())
    finally:
        for broker in ports:
            processes.signal(f"agent-{broker}", signal.SIGKILL)
            processes.wait(f"agent-{broker}", 10)


class Injected:
    """Puts in one fault after the other and keeps a row for each."""

    def __init__(self, lab: Lab, watch: Watch, zookeeper: Any, rows: list[Row]) -> None:
        self.lab, self.watch, self.zookeeper = lab, watch, zookeeper
        self.rows = rows

    def topic(self, name: str, *, leader_moves: bool = False) -> None:
        """Led by 1, twenty records; with `leader_moves` three epochs of them."""
        lab = self.lab
        lab.clients.create_topic(name, assignment=[[1, 2, 3]])
        lab.clients.produce(name, [b"record"] * 20)
        if leader_moves:
            for broker in (1, 2):
                lab.stop(broker)
                lab.clients.until(name, lambda s, b=broker: s[0].leader != b)  # type: ignore[misc]
                lab.clients.produce(name, [b"record"] * 20)
                lab.start(broker)
                lab.clients.until(name, lambda s: len(s[0].isr) == 3)
        self.watch.wait_until(lambda: self.watch.partition(name) is not None)
        self.watch.wait_rounds(3)

    def expect(
        self,
        fault: str,
        code: str,
        where: str,
        put_in: Callable[[], None],
        *,
        broker: int | None = None,
        mend: Callable[[], None] = lambda: None,
    ) -> None:
        """`where` is part of the subject the alert must have."""
        before = set(self.watch.alerts)

        def mine(alert: Alert) -> bool:
            return (
                alert.code == code
                and where in alert.subject
                and (broker is None or alert.broker == broker)
                and alert not in before
            )

        began, rounds = time.monotonic(), self.watch.rounds
        put_in()
        self.watch.wait_until(lambda: any(map(mine, self.watch.alerts)), FOUND_WITHIN_S, must=False)
        took, rounds = time.monotonic() - began, self.watch.rounds - rounds
        new = [alert for alert in self.watch.alerts if alert not in before]
        found = [alert for alert in new if mine(alert)]
        told = ", ".join(dict.fromkeys(map(str, new))) or "nothing"
        of = "" if broker is None else f", broker {broker}"
        self.rows.append(
            Row(
                "injected",
                fault,
                str(CLUSTER),
                f"{code} at {where}{of}",
                f"{'found' if found else 'not found'} after {took:.0f} s, {rounds} rounds; "
                f"told: {told}",
                bool(found),
                took,
            )
        )
        mend()
        self.watch.wait_rounds(2)


def play(folder: Path, rows: list[Row]) -> None:
    with (
        running(folder, *CLUSTER, cuttable=True, settings=SETTINGS) as lab,
        agents_of(lab) as agents,
        zookeeper_of(lab, read_only=False) as zookeeper,
        Watch(lab, agents=agents) as watch,
    ):
        injected = Injected(lab, watch, zookeeper, rows)
        _epoch_files(injected)
        _topic_id(injected)
        _znodes(injected)
        _brokers(injected)


def _epoch_files(injected: Injected) -> None:
    lab = injected.lab
    injected.topic("epochs", leader_moves=True)
    file = lab.replica_dir(2, "epochs", 0) / EPOCHS
    text = file.read_text(encoding="utf-8")
    lineage = parse_leader_epochs(text)

    def write(content: str) -> None:
        file.write_text(content, encoding="utf-8")

    def restore() -> None:
        write(text)

    injected.expect(
        "epoch file of a follower torn",
        "EPO001",
        "epochs-0",
        lambda: write(text[:-2]),
        mend=restore,
    )
    missing = (*lineage[:1], *lineage[2:])
    injected.expect(
        f"epoch file of a follower without epoch {lineage[1].epoch}",
        "EPO004",
        "epochs-0",
        lambda: write(encode_leader_epochs(missing)),
        broker=2,
        mend=restore,
    )
    future = (*lineage, EpochEntry(lineage[-1].epoch + 90, lineage[-1].start_offset + 1))
    injected.expect(
        "epoch file of a follower with an epoch from the future",
        "EPO003",
        "epochs-0",
        lambda: write(encode_leader_epochs(future)),
        broker=2,
        mend=restore,
    )


def _topic_id(injected: Injected) -> None:
    injected.topic("identity")
    file = injected.lab.replica_dir(3, "identity", 0) / "partition.metadata"
    text = file.read_text(encoding="utf-8")
    other = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    injected.expect(
        "replica directory of another topic id",
        "LOG004",
        "identity-0",
        lambda: _void(file.write_text(other, encoding="utf-8")),
        broker=3,
        mend=lambda: _void(file.write_text(text, encoding="utf-8")),
    )


def _znodes(injected: Injected) -> None:
    zookeeper = injected.zookeeper

    def forge(topic: str, **fields: Any) -> None:
        path = f"/brokers/topics/{topic}/partitions/0/state"
        state = json.loads(zookeeper.get(path)[0])
        zookeeper.set(path, json.dumps({**state, **fields}).encode())

    injected.topic("forged-leader")
    injected.expect(
        "state znode forged: leader outside the ISR",
        "ELE002",
        "forged-leader-0",
        lambda: forge("forged-leader", isr=[2, 3]),
    )
    _move_controller(injected)
    injected.topic("forged-epoch")
    injected.expect(
        "state znode forged: written with the epoch of an old controller",
        "CTL004",
        "forged-epoch-0",
        lambda: forge("forged-epoch", controller_epoch=1, isr=[1, 2]),
    )


def _move_controller(injected: Injected) -> None:
    lab = injected.lab
    for _ in range(2):
        controller = lab.clients.controller()
        lab.stop(controller)
        lab.start(controller)
    lab.clients.until("epochs", lambda seen: len(seen[0].isr) == 3)


def _brokers(injected: Injected) -> None:
    lab = injected.lab
    injected.topic("brokers")
    injected.expect(
        "SIGSTOP on a leader",
        "SRC001",
        "broker 1",
        lambda: lab.pause(1),
        broker=1,
        mend=lambda: _back(lab, lab.resume),
    )
    injected.expect(
        "a leader that has lost ZooKeeper and goes on (zombie)",
        "REG002",
        "cluster",
        lambda: lab.cut(1, 0),
        broker=1,
        mend=lambda: _back(lab, lambda _: lab.heal()),
    )
    injected.expect(
        "a broker unreachable",
        "SRC001",
        "broker 3",
        lambda: lab.kill(3),
        broker=3,
        mend=lambda: _started(lab, 3),
    )


def _back(lab: Lab, mend: Callable[[int], None]) -> None:
    mend(1)
    lab.clients.until("brokers", lambda seen: len(seen[0].isr) == 3, 90)


def _started(lab: Lab, broker: int) -> None:
    time.sleep(SESSION_S)
    lab.start(broker)
    lab.clients.until("brokers", lambda seen: len(seen[0].isr) == 3, 90)


def _void(_: object) -> None:
    """For a lambda whose value nobody wants."""
