"""Faults put into a real cluster by hand: each must be found, named right, and in time.

Files and znodes are altered behind Kafka's back, by the test; the monitor only reads. An agent runs
beside every broker. Each fault has a topic of its own, so that one cannot hide another.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.checkpoint_files import encode_leader_epochs, parse_leader_epochs
from tidestaff.consistency.model import EpochEntry

from tests.field import field_acls, field_contents, field_disks
from tests.field.field_inject import SESSION_S, Fault, Injected, agents_of
from tests.field.field_lawful import fenced_by_a_controller
from tests.field.field_seeds import zookeeper_of
from tests.field.field_watch import Watch
from tests.field.lab import Kind, running

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from tests.field.field_report import Keep

SETTINGS: Final = {
    0: {
        "zookeeper.session.timeout.ms": f"{SESSION_S}000",
        "broker.session.timeout.ms": f"{SESSION_S}000",
        # A broker without ZooKeeper waits for it with every question for a topic's settings, and
        # kafka-topics asks: of the lab's two threads a zombie would soon have none left to answer.
        "num.io.threads": "32",
    }
}
EPOCHS: Final = "leader-epoch-checkpoint"
MISSED: Final = 2
BESIDE: Final = (Kind("3.9.1", "zookeeper"), Kind("4.1.1", "kraft"))
"""Where Kafka's own tools are asked about each fault as well."""
BACKOFF_MS: Final = 1_000
"""Who is silent is asked in every round. That a registration is stale (REG001) is told when its
broker is asked again, so this is part of how late that may be; 30 s by default."""


def play(folder: Path, kind: Kind, keep: Keep, parts: Collection[str] = ()) -> None:
    """All faults that this kind of cluster can have, or those of some parts only."""
    wanted = [part for part in parts_of(kind) if not parts or part in parts]
    if wanted != ["acl"]:
        _on_one_cluster(folder, kind, keep, [part for part in wanted if part != "acl"])
    if "acl" in wanted:
        field_acls.play(folder / "secured", kind, keep)


def _on_one_cluster(folder: Path, kind: Kind, keep: Keep, wanted: Collection[str]) -> None:
    with (
        field_disks.small_disk(folder / "small") as small,
        running(folder / "lab", *kind, cuttable=True, settings=_settings(folder, small)) as lab,
        agents_of(lab) as agents,
        Watch(
            lab,
            agents=agents,
            missed_rounds=MISSED,
            backoff_max_ms=BACKOFF_MS,
            **field_contents.COMPARED,
        ) as watch,
    ):
        injected = Injected(lab, watch, kind, keep, beside=kind in BESIDE)
        for part in wanted:
            if part == "disk":
                _disk_full(injected, small)
            else:
                PARTS[part](injected)


def parts_of(kind: Kind) -> list[str]:
    version = tuple(map(int, kind.version.split(".")))
    return [
        "contents",
        "tail",
        *(["epochs"] if version >= (0, 11) else []),
        *(["identity"] if version >= (2, 8) else []),
        "disk",
        *(["znodes"] if kind.mode == "zookeeper" else []),
        "brokers",
        "acl",
    ]


def _settings(folder: Path, small: Path | None) -> dict[int, dict[str, str]]:
    """Broker 3 has a second log directory, on a small disk, where one can be had."""
    found = {number: dict(values) for number, values in SETTINGS.items()}
    if small is not None:
        data = folder / "lab" / "broker-3" / "data"
        found[3] = {"log.dirs": f"{data},{small}", "num.recovery.threads.per.data.dir": "1"}
    return found


def _tail(injected: Injected) -> None:
    """The only replica: what is gone from its disk is gone."""
    lab = injected.lab
    injected.topic("tail", (2,))

    def cut() -> None:
        lab.kill(2)
        field_disks.cut_tail(lab.replica_dir(2, "tail", 0), 15)
        time.sleep(SESSION_S)
        lab.start(2)
        lab.clients.until("tail", lambda seen: seen[0].leader == 2)

    injected.expect(
        Fault(
            "segment tail of a leader cut while it was down",
            "TRN001",
            "tail-0",
            cut,
            2,
            15,
            topic="tail",
        )
    )


def _epoch_files(injected: Injected) -> None:
    lab = injected.lab
    injected.topic("epochs")
    lab.stop(1)
    lab.clients.until("epochs", lambda seen: seen[0].leader != 1)
    lab.clients.produce("epochs", [b"a record"] * 20)
    lab.start(1)
    lab.clients.until("epochs", lambda seen: len(seen[0].isr) == 3)
    injected.watch.wait_rounds(3)
    file = field_disks.replica_dir(lab, 3, "epochs") / EPOCHS
    text = file.read_text(encoding="utf-8")
    lineage = parse_leader_epochs(text)

    def write(content: str) -> Callable[[], object]:
        return lambda: file.write_text(content, encoding="utf-8")

    # Cut where a write may end: the file counts more entries than it has.
    torn = text[: text.rstrip().rindex("\n") + 1]
    follower = (
        f"epoch file of a follower, {' '.join(f'{e.epoch}@{e.start_offset}' for e in lineage)}"
    )
    injected.expect(
        Fault(
            f"{follower}: torn",
            "EPO001",
            "epochs-0",
            write(torn),
            3,
            mend=write(text),
            topic="epochs",
        )
    )
    injected.expect(
        Fault(
            f"{follower}: epoch {lineage[-1].epoch} is missing",
            "EPO004",
            "epochs-0",
            write(encode_leader_epochs(lineage[:-1])),
            3,
            lineage[-1].start_offset,
            mend=write(text),
            topic="epochs",
        )
    )
    future = (*lineage, EpochEntry(lineage[-1].epoch + 90, lineage[-1].start_offset + 1))
    injected.expect(
        Fault(
            f"{follower}: an epoch from the future",
            "EPO003",
            "epochs-0",
            write(encode_leader_epochs(future)),
            3,
            mend=write(text),
            topic="epochs",
        )
    )


def _topic_id(injected: Injected) -> None:
    lab = injected.lab
    injected.topic("identity")
    if injected.version < (3, 0):
        # 2.8 writes no file when it makes a log: it does when it is told of the replica again.
        lab.stop(2)
        lab.start(2)
        lab.clients.until("identity", lambda seen: len(seen[0].isr) == 3)
        injected.watch.wait_rounds(2)
    file = field_disks.replica_dir(lab, 3, "identity") / "partition.metadata"
    # A broker may write it after the log is there.
    until = time.monotonic() + 30
    while not file.is_file() and time.monotonic() < until:
        time.sleep(0.2)
    text = file.read_text(encoding="utf-8")
    other = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    injected.expect(
        Fault(
            "replica directory of another topic id",
            "LOG004",
            "identity-0",
            lambda: file.write_text(other, encoding="utf-8"),
            3,
            mend=lambda: file.write_text(text, encoding="utf-8"),
            topic="identity",
        )
    )


def _disk_full(injected: Injected, small: Path | None) -> None:
    if small is None:
        return
    # A broker puts a replica where fewest are: one of these lies on the small disk.
    names = [f"disk-{number}" for number in range(6)]
    for name in names:
        injected.lab.clients.create_topic(name, assignment=[[1, 3]])
    topic = next(name for name in names if (small / f"{name}-0").is_dir())

    def fill() -> None:
        field_disks.fill(small)
        injected.lab.clients.produce(topic, [b"x" * 50_000] * 4, acks=1)

    def make_room() -> None:
        (small / field_disks.FULL).unlink()
        if injected.lab.running(3):
            injected.lab.kill(3)
        time.sleep(SESSION_S)
        injected.lab.start(3)
        injected.lab.clients.until(topic, lambda seen: len(seen[0].isr) == 2, 120)

    # Before KIP-112 a broker that cannot write to one of its log directories halts.
    halts = injected.version < (1, 0)
    name = f"disk full: {'the broker halts' if halts else 'a log directory goes offline'}"
    code, where = ("SRC001", "broker 3") if halts else ("LOG005", f"{topic}-0")
    injected.expect(Fault(name, code, where, fill, 3, mend=make_room, topic=topic))


def _znodes(injected: Injected) -> None:
    with zookeeper_of(injected.lab, read_only=False) as zookeeper:
        _forge(injected, zookeeper)


def _forge(injected: Injected, zookeeper: Any) -> None:
    lab = injected.lab

    def forge(topic: str, **fields: Any) -> Callable[[], object]:
        def put_in() -> None:
            path = f"/brokers/topics/{topic}/partitions/0/state"
            state = json.loads(zookeeper.get(path)[0])
            zookeeper.set(path, json.dumps({**state, **fields}).encode())

        return put_in

    injected.topic("forged-leader")
    injected.expect(
        Fault(
            "state znode forged: leader outside the ISR",
            "ELE002",
            "forged-leader-0",
            forge("forged-leader", isr=[2, 3]),
            1,
            topic="forged-leader",
        )
    )
    _move_controller(injected)
    injected.topic("forged-epoch")
    # Leaders up to 2.6 write ISRs themselves, lawfully with an old epoch; leaders' epochs never.
    by_a_controller = {} if injected.version >= (2, 7) else {"leader_epoch": 1}
    injected.expect(
        Fault(
            "state znode forged: written with the epoch of an old controller",
            "CTL004",
            "forged-epoch-0",
            forge("forged-epoch", controller_epoch=1, isr=[1, 2], **by_a_controller),
            topic="forged-epoch",
        )
    )
    injected.topic("stale")
    path = "/brokers/ids/2"

    def register() -> None:
        """A node that no session holds, of a broker that is gone. The monitor has seen that it is
        gone: it does not count from its death on."""
        data = zookeeper.get(path)[0]
        lab.kill(2)
        until = time.monotonic() + 60
        while zookeeper.exists(path) is not None:
            assert time.monotonic() < until, "the registration does not go"
            time.sleep(0.2)
        injected.watch.wait_rounds(1)
        zookeeper.create(path, data)

    def deregister() -> None:
        zookeeper.delete(path)
        lab.start(2)
        lab.clients.until("forged-epoch", lambda seen: seen[0].leader > 0)

    name = "stale registration"
    injected.expect(Fault(name, "REG001", "cluster", register, 2, mend=deregister, topic="stale"))


def _move_controller(injected: Injected) -> None:
    lab = injected.lab
    controller = lab.clients.controller()
    lab.stop(controller)
    lab.start(controller)


def _brokers(injected: Injected) -> None:
    lab = injected.lab
    injected.topic("brokers")

    def back() -> None:
        lab.clients.until("brokers", lambda seen: len(seen[0].isr) == 3, 120)

    def resume() -> None:
        lab.resume(1)
        back()

    def restart() -> None:
        time.sleep(SESSION_S)
        lab.start(3)
        back()

    injected.expect(
        Fault(
            "SIGSTOP on a leader",
            "SRC001",
            "broker 1",
            lambda: lab.pause(1),
            1,
            mend=resume,
            topic="brokers",
        )
    )
    _zombie(injected)
    back()
    injected.expect(
        Fault(
            "a broker unreachable",
            "SRC001",
            "broker 3",
            lambda: lab.kill(3),
            3,
            mend=restart,
            topic="brokers",
        )
    )


def _zombie(injected: Injected) -> None:
    """Whoever leads now: the one that was stopped before may have lost the lead by that."""
    lab = injected.lab
    (seen,) = lab.clients.describe("brokers")
    leader = seen.leader

    def cut_off() -> None:
        away = {0} if injected.kind.mode == "zookeeper" else {*lab.brokers} - {leader}
        for node in away:
            lab.cut(leader, node)

    with _session_ended(injected, leader) as ended:
        injected.expect(
            Fault(
                "a leader that has lost ZooKeeper, or its controller, and goes on (zombie)",
                "REG002",
                "cluster",
                cut_off,
                leader,
                mend=lab.heal,
                topic="brokers",
                begun=ended,
                needs_s=SESSION_S,
                why="the end of its session",
            )
        )


@contextmanager
def _session_ended(injected: Injected, broker: int) -> Iterator[Callable[[], bool]]:
    """Whether ZooKeeper, or the controller, has given the broker up."""
    if injected.kind.mode != "zookeeper":
        yield fenced_by_a_controller(injected.lab, broker)
        return
    with zookeeper_of(injected.lab) as zookeeper:
        yield lambda: zookeeper.exists(f"/brokers/ids/{broker}") is None


PARTS: Final[dict[str, Callable[[Injected], None]]] = {
    "contents": field_contents.play,
    "tail": _tail,
    "epochs": _epoch_files,
    "identity": _topic_id,
    "znodes": _znodes,
    "brokers": _brokers,
}
ALL_PARTS: Final = (*PARTS, "disk", "acl")
