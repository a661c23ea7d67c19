"""Healthy but lively: whatever operators do to a cluster in a week, in half an hour, under load.
Nothing false may be raised: nothing grave at all, and else only what is true of a broker that is
stopped just then."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.streaming.lab.errors import LabError

from tests.field.field_beside import AT_LEAST_S, Beside
from tests.field.field_watch import Watch
from tests.field.lab import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.field.field_beside import Asked
    from tests.field.field_watch import Alert
    from tests.field.lab import Kind, Lab

ORDERS, COMPACTED, SHORT, GONE = "orders", "compacted", "short-lived", "made-twice"
SETTINGS: Final = {
    0: {
        "log.retention.check.interval.ms": "3000",
        "log.cleaner.backoff.ms": "2000",
        "log.segment.delete.delay.ms": "1000",
        "zookeeper.session.timeout.ms": "6000",
        "broker.session.timeout.ms": "6000",
        "replica.lag.time.max.ms": "10000",
    },
    # Replicas are cleaned at different times, and one of them hardly ever.
    2: {"log.cleaner.backoff.ms": "7000"},
    3: {"log.cleaner.backoff.ms": "600000"},
}
_ROUND_S: Final = 1.0
TRUE_OF_A_STOPPED_BROKER: Final = frozenset(
    {"SRC001", "SRC002", "ISR008", "ISR006", "ISR002", "REG001", "FCT001", "TRN005"}
)
"""Told while a broker is stopped or killed: that one is silent or gone, what is short of it then,
and that an acks=1 tail of nobody was dropped. Once it has been back for a while none of it is true
any more, whatever else is done to the cluster: elections, moves, topics and partitions made and
removed bring about nothing of the kind. The lab's brokers do not move the lead back by themselves:
of that there is nothing to tell, ever."""
SETTLED_S: Final = 15.0


class Outcome(NamedTuple):
    """What was done, and what was said of it."""

    kind: Kind
    done: list[str]
    records: int
    refused: int
    rounds: int
    alerts: list[Alert]
    tools: list[Asked]
    took_s: float
    away: list[tuple[float, float]]
    """By the clock of the watch: from when to when a broker was stopped, and others were short of
    it."""

    @property
    def false(self) -> list[Alert]:
        return [
            alert
            for alert in self.alerts
            if alert.grave
            or alert.code not in TRUE_OF_A_STOPPED_BROKER
            or not any(since <= alert.at_s <= until + SETTLED_S for since, until in self.away)
        ]


class Load(threading.Thread):
    """Writes to every topic until told to end; counts what is refused while leaders move."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(name="load", daemon=True)
        self.lab, self.records, self.refused = lab, 0, 0
        self._ends = threading.Event()

    def run(self) -> None:
        from kafka import KafkaProducer  # noqa: PLC0415 - slow
        from kafka.errors import KafkaError  # noqa: PLC0415

        producer = KafkaProducer(
            bootstrap_servers=self.lab.bootstrap,
            acks="all",
            enable_idempotence=False,
            linger_ms=20,
            max_block_ms=5_000,
        )
        number = 0
        while not self._ends.is_set():
            number += 1
            sent = []
            for topic in (ORDERS, COMPACTED, SHORT):
                with contextlib.suppress(KafkaError):
                    key = str(number % 50).encode()
                    sent += [producer.send(topic, b"v" * 200, key=key) for _ in range(20)]
            for each in sent:
                try:
                    each.get(20)
                    self.records += 1
                except KafkaError:
                    self.refused += 1
            self._ends.wait(0.1)
        producer.close(timeout=2)

    def end(self) -> None:
        self._ends.set()
        self.join(60)


@contextlib.contextmanager
def under_load(lab: Lab) -> Iterator[Load]:
    load = Load(lab)
    load.start()
    try:
        yield load
    finally:
        load.end()


def play(folder: Path, kind: Kind, *, minutes: float = 30, restarts: int = 2) -> Outcome:
    """All of it, and then load alone until so many minutes of load are over."""
    began = time.monotonic()
    done: list[str] = []
    away: list[tuple[float, float]] = []
    with running(folder, *kind, settings=SETTINGS) as lab:
        _topics(lab)
        with Watch(lab, every_s=_ROUND_S) as watch, under_load(lab) as load:
            until = time.monotonic() + 60 * minutes
            for turn in range(restarts):
                for broker in lab.brokers:
                    with _away(watch, away):
                        lab.stop(broker)
                        lab.start(broker)
                        _whole(lab)
                done.append(f"rolling restart {turn + 1}")
            done += _elections(lab)
            done += _moves(lab)
            _made_twice(lab)
            done.append("topic deleted and made again, three times")
            done += _transactions(lab)
            done += _growth(lab)
            with _away(watch, away):
                done.append(_fail_over(lab))
            alone_s = max(30.0, until - time.monotonic())
            time.sleep(alone_s)
            done.append(f"{alone_s:.0f} s of load alone, with retention and unequal compaction")
            watch.wait_rounds(3)
            # All brokers are up: whatever the tools find now is false.
            with Beside(lab, [COMPACTED, ORDERS], lag_counts=False, any_topic=True) as beside:
                beside.begin()
                tools = beside.end(AT_LEAST_S)
            return Outcome(
                kind,
                done,
                load.records,
                load.refused,
                watch.rounds,
                watch.alerts,
                tools,
                time.monotonic() - began,
                away,
            )


@contextlib.contextmanager
def _away(watch: Watch, away: list[tuple[float, float]]) -> Iterator[None]:
    since = time.monotonic() - watch.began
    yield
    away.append((since, time.monotonic() - watch.began))


def _topics(lab: Lab) -> None:
    configs = {"min.insync.replicas": "1"}
    segments = {"segment.ms": "5000", "segment.bytes": "1048576"}
    lab.clients.create_topic(ORDERS, partitions=6, configs=configs)
    lab.clients.create_topic(
        COMPACTED,
        partitions=3,
        configs={**segments, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    )
    lab.clients.create_topic(
        SHORT, partitions=3, configs={**segments, "retention.ms": "5000", **configs}
    )


def _whole(lab: Lab) -> None:
    for topic in (ORDERS, COMPACTED, SHORT):
        lab.clients.until(topic, lambda seen: all(len(p.isr) == len(p.replicas) for p in seen), 90)


def _at_least(kind_version: str, wanted: tuple[int, ...]) -> bool:
    return tuple(map(int, kind_version.split("."))) >= wanted


def _elections(lab: Lab) -> list[str]:
    for _ in range(2):
        if _by_protocol(lab):
            lab.tool(
                f"{lab.release.tools_package}.LeaderElectionCommand",
                *("--bootstrap-server", lab.bootstrap, "--election-type", "preferred"),
                "--all-topic-partitions",
                check=False,
            )
        else:
            lab.tool(
                "kafka.admin.PreferredReplicaLeaderElectionCommand",
                *("--zookeeper", lab.zookeeper_connect),
            )
        time.sleep(2)
    return ["preferred elections of all partitions"]


def _by_protocol(lab: Lab) -> bool:
    """Since KIP-460 and KIP-455 brokers are asked for elections and moves; before, a znode is
    written by the tool."""
    return _at_least(lab.plan.version, (2, 4))


def _moves(lab: Lab) -> list[str]:
    """Every partition of orders to two other brokers and back."""
    before = {p.partition: p.replicas for p in lab.clients.describe(ORDERS)}
    for turn in (1, 0):
        wanted = {
            (ORDERS, number): list(replicas[turn:] + replicas[:turn])[: 3 - turn]
            for number, replicas in before.items()
        }
        _move(lab, wanted)
        lab.clients.until(
            ORDERS,
            lambda seen, want=wanted: all(  # type: ignore[misc]
                sorted(p.replicas) == sorted(want[p.topic, p.partition])
                and sorted(p.isr) == sorted(p.replicas)
                for p in seen
            ),
            90,
        )
    return ["reassignment of all partitions of a topic, there and back"]


def _move(lab: Lab, wanted: dict[tuple[str, int], list[int]]) -> None:
    if not _by_protocol(lab):
        file = lab.plan.folder / "moves.json"
        moved = [{"topic": t, "partition": n, "replicas": to} for (t, n), to in wanted.items()]
        file.write_text(json.dumps({"version": 1, "partitions": moved}), encoding="utf-8")
        lab.tool(
            "kafka.admin.ReassignPartitionsCommand",
            *("--zookeeper", lab.zookeeper_connect),
            *("--reassignment-json-file", str(file), "--execute"),
        )
        return
    from kafka import TopicPartition  # noqa: PLC0415 - slow

    moves = {TopicPartition(*place): brokers for place, brokers in wanted.items()}
    lab.clients.ask("move", ORDERS, lambda admin: admin.alter_partition_reassignments(moves))


def _made_twice(lab: Lab) -> None:
    for _ in range(3):
        lab.clients.create_topic(GONE, partitions=2)
        lab.clients.produce(GONE, [b"x"] * 20)
        time.sleep(2)
        lab.clients.delete_topic(GONE)
        until = time.monotonic() + 60
        while any(p.topic == GONE for p in lab.clients.describe()):
            assert time.monotonic() < until, f"{GONE} is not deleted"
            time.sleep(0.5)
        time.sleep(2)


def _transactions(lab: Lab) -> list[str]:
    if not _at_least(lab.plan.version, (0, 11)):
        return []
    from kafka import KafkaProducer  # noqa: PLC0415 - slow

    producer = KafkaProducer(
        bootstrap_servers=lab.answering, transactional_id="field", acks="all", max_block_ms=60_000
    )
    try:
        producer.init_transactions()
        for number in range(10):
            producer.begin_transaction()
            for partition in range(3):
                producer.send(ORDERS, b"in a transaction", partition=partition)
            producer.flush()
            if number % 3 == 0:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close(timeout=5)
    return ["ten transactions, four of them aborted"]


def _growth(lab: Lab) -> list[str]:
    if _at_least(lab.plan.version, (1, 0)):
        lab.clients.ask("add partitions to", ORDERS, lambda a: a.create_partitions({ORDERS: 9}))
    else:
        lab.topics_tool("--alter", "--topic", ORDERS, "--partitions", "9")
    lab.clients.until(ORDERS, lambda seen: len(seen) == 9 and all(p.leader > 0 for p in seen))
    return ["three partitions more"]


def _fail_over(lab: Lab) -> str:
    """The controller is killed and comes back."""
    controller = lab.clients.controller()
    if controller not in lab.brokers:
        raise LabError(f"no controller among {lab.brokers}: {controller}")
    lab.kill(controller)
    time.sleep(10)
    lab.start(controller)
    _whole(lab)
    return f"controller {controller} killed and back"
