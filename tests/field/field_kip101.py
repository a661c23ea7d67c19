"""KIP-101 on real brokers: an acknowledged record lost, or two logs that differ for ever.

Three brokers, A, B and C, all in the ISR, C leads, A is controller. A long wait of followers'
fetches keeps their high watermarks one fetch behind. B is stopped, C is killed; the controller
makes B leader, which cannot answer; A, told to follow B, cuts its log to its high watermark where
Kafka is older than 0.11. When B's session runs out A leads, without the record.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.field.field_tools import replica_verification
from tests.field.field_watch import Watch
from tests.field.lab import running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.field.field_watch import Alert
    from tests.field.lab import Lab

A, B, C = 1, 2, 3
TOPIC: Final = "payments"
FETCH_WAIT_S: Final = 25.0
SHORT_SESSION_S, LONG_SESSION_S = 6.0, 25.0
FIRST, LOST, ANOTHER = b"first-record", b"acknowledged-record", b"another-record"
# High watermarks are written down every five seconds. Six would do for C itself; to be certain of
# it from outside takes the time of writing and of some rounds more.
CHECKPOINT_S: Final = 7.5

SETTINGS: Final = {
    0: {
        "replica.fetch.wait.max.ms": str(int(FETCH_WAIT_S * 1_000)),
        "replica.lag.time.max.ms": "60000",
        "replica.socket.timeout.ms": "60000",
        "unclean.leader.election.enable": "false",
        "default.replication.factor": "3",
        "zookeeper.session.timeout.ms": str(int(SHORT_SESSION_S * 1_000)),
    },
    A: {"zookeeper.session.timeout.ms": str(int(LONG_SESSION_S * 1_000))},
    B: {"zookeeper.session.timeout.ms": str(int(LONG_SESSION_S * 1_000))},
}


class Outcome(NamedTuple):
    """What became of the cluster, and what the monitor said."""

    version: str
    acknowledged_at: int
    another_at: int
    holds: dict[int, tuple[bytes, ...]]
    """By broker, which of the records are in its log when all are back."""

    consumed: list[bytes]
    isr: tuple[int, ...]
    alerts: list[Alert]
    lost_seen_s: float | None
    """From the election of A to the alert of the loss."""

    tools: dict[str, str]
    took_s: float

    @property
    def lost(self) -> bool:
        return LOST not in self.consumed

    @property
    def diverged(self) -> bool:
        return len(set(self.holds.values())) > 1

    @property
    def grave(self) -> list[Alert]:
        return [alert for alert in self.alerts if alert.grave]


def play(folder: Path, version: str, *, diverge: bool) -> Outcome:
    """Without `diverge` C is killed at once, and never had time to write down its high watermark:
    it cuts the record itself when it comes back."""
    began = time.monotonic()
    with running(folder, version, "zookeeper", settings=SETTINGS) as lab:
        # A starts first and so is controller; the lab starts all at once, so it is made sure of.
        _controller_on_a(lab)
        lab.clients.create_topic(
            TOPIC, assignment=[[C, B, A]], configs={"min.insync.replicas": "1"}
        )
        with Watch(lab, TOPIC) as watch:
            return _play(lab, watch, diverge=diverge, began=began)


def _play(lab: Lab, watch: Watch, *, diverge: bool, began: float) -> Outcome:
    clients = lab.clients
    # The fetch that brings a follower the second record tells it that the first is committed.
    assert clients.produce(TOPIC, [FIRST], acks="all") == [0]
    watch.wait_rounds(1)
    (acknowledged_at,) = clients.produce(TOPIC, [LOST], acks="all")
    acknowledged = time.monotonic()
    watch.wait_rounds(1)
    if diverge:
        time.sleep(max(0.0, acknowledged + CHECKPOINT_S - time.monotonic()))
        watch.wait_rounds(2)
        # Else the followers learn that the record is committed, and keep it.
        assert time.monotonic() < acknowledged + FETCH_WAIT_S - 2, "the machine is too slow"
    lab.pause(B)
    lab.kill(C)
    clients.until(TOPIC, lambda seen: bool(seen) and seen[0].leader == A, 120)
    elected = time.monotonic()
    watch.wait_rounds(3)
    (another_at,) = clients.produce(TOPIC, [ANOTHER], acks="all")
    watch.wait_rounds(2)
    lab.resume(B)
    lab.start(C)
    clients.until(TOPIC, lambda seen: bool(seen) and len(seen[0].isr) == 3, 120)
    watch.wait_rounds(4)
    return outcome_of(lab, watch, (acknowledged_at, another_at), began, elected)


def outcome_of(
    lab: Lab, watch: Watch, offsets: tuple[int, int], began: float, elected: float
) -> Outcome:
    """When all are back. `offsets`: of the acknowledged record, and of the other one."""
    (seen,) = lab.clients.describe(TOPIC)
    lost = watch.found("TRN001")
    return Outcome(
        lab.plan.version,
        *offsets,
        holds={broker: _holds(lab, broker) for broker in sorted(seen.replicas)},
        consumed=lab.clients.read(TOPIC),
        isr=tuple(sorted(seen.isr)),
        alerts=watch.alerts,
        lost_seen_s=watch.began + lost[0].at_s - elected if lost else None,
        tools=_tools(lab),
        took_s=time.monotonic() - began,
    )


def _controller_on_a(lab: Lab) -> None:
    """Alone it has no choice, and it stays controller when the others are back."""
    if lab.clients.controller() == A:
        return
    for broker in (B, C):
        lab.stop(broker)
    until = time.monotonic() + 60
    while (controller := lab.clients.controller()) != A:
        assert time.monotonic() < until, f"controller is {controller}, expected {A}"
        time.sleep(0.5)
    for broker in (B, C):
        lab.start(broker)


def _holds(lab: Lab, broker: int) -> tuple[bytes, ...]:
    """Values are written as they are, so the bytes of the segments show them."""
    segments = sorted(lab.replica_dir(broker, TOPIC, 0).glob("*.log"))
    text = b"".join(segment.read_bytes() for segment in segments)
    return tuple(value for value in (FIRST, LOST, ANOTHER) if value in text)


def _tools(lab: Lab) -> dict[str, str]:
    """What Kafka's own tools say when all is over."""
    found = {
        "kafka-topics --under-replicated-partitions": lab.topics_tool(
            "--describe", "--under-replicated-partitions"
        ),
        "kafka-topics --unavailable-partitions": lab.topics_tool(
            "--describe", "--unavailable-partitions"
        ),
        "ReplicaVerificationTool": replica_verification(lab, TOPIC),
    }
    return {name: text.strip() for name, text in found.items()}
