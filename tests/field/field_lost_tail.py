"""S-24 on real brokers: two logs differ for ever after a crash that cost one of them its tail.

Two replicas, A and B, B leads. Both hold the acknowledged record; B dies, A leads alone and dies,
too, and the power cut takes what its disk had not been told to keep: the record. A comes back,
alone in the ISR, and writes another record at that offset; then B comes back. Up to 0.10.2 its high
watermark covers its own record, and nothing is cut.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tests.field.field_disks import cut_tail
from tests.field.field_kip101 import (
    ANOTHER,
    CHECKPOINT_S,
    FIRST,
    LOST,
    TOPIC,
    A,
    B,
    outcome_of,
)
from tests.field.field_watch import Watch
from tests.field.lab import running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.field.field_kip101 import Outcome
    from tests.field.lab import Lab

SETTINGS: Final = {
    0: {
        "replica.fetch.wait.max.ms": "300",
        "zookeeper.session.timeout.ms": "6000",
        "unclean.leader.election.enable": "false",
    }
}


def play(folder: Path, version: str) -> Outcome:
    began = time.monotonic()
    with running(folder, version, "zookeeper", settings=SETTINGS) as lab:
        lab.clients.create_topic(TOPIC, assignment=[[B, A]], configs={"min.insync.replicas": "1"})
        with Watch(lab, TOPIC) as watch:
            return _play(lab, watch, began)


def _play(lab: Lab, watch: Watch, began: float) -> Outcome:
    clients = lab.clients
    assert clients.produce(TOPIC, [FIRST], acks="all") == [0]
    (acknowledged_at,) = clients.produce(TOPIC, [LOST], acks="all")
    time.sleep(CHECKPOINT_S)
    watch.wait_rounds(3)
    lab.kill(B)
    clients.until(TOPIC, lambda seen: bool(seen) and seen[0].leader == A, 60)
    watch.wait_rounds(2)
    lab.kill(A)
    cut_tail(lab.replica_dir(A, TOPIC, 0), acknowledged_at)
    # Else it would find its old session, and be refused.
    clients.until(TOPIC, lambda seen: bool(seen) and seen[0].leader == -1, 60)
    lab.start(A)
    clients.until(TOPIC, lambda seen: bool(seen) and seen[0].leader == A, 60)
    elected = time.monotonic()
    watch.wait_rounds(3)
    (another_at,) = clients.produce(TOPIC, [ANOTHER], acks="all")
    watch.wait_rounds(2)
    lab.start(B)
    clients.until(TOPIC, lambda seen: bool(seen) and len(seen[0].isr) == 2, 60)
    watch.wait_rounds(4)
    return outcome_of(lab, watch, (acknowledged_at, another_at), began, elected)
