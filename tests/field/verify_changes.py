"""What changes while `tidestaff verify` reads: retention, a leader, a broker that goes; and logs
whose older part is elsewhere. Each on real brokers, as a part of one cluster's life."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tidestaff.streaming.jars import JarError, jars
from tidestaff.streaming.verify.running import Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.field.lab import Lab

TIERED_LOCK: Final = Path(__file__).parent / "tiered.lock"
WRITES, RECORDS_A_WRITE = 20, 10
MANY: Final = WRITES * RECORDS_A_WRITE
SEGMENT_BYTES, LOCAL_BYTES, RETAINED_BYTES = 700, 1_000, 1_500
SEGMENTS: Final = {"segment.bytes": str(SEGMENT_BYTES)}
"""Some writes in each, and only what is closed can go."""
_BYTES_AT_ONCE: Final = 200
WITHIN_S: Final = 60.0


def wait_until(done: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < until, otherwise
        time.sleep(0.1)


def write(lab: Lab, topic: str, writes: int = WRITES) -> None:
    for _ in range(writes):
        lab.clients.produce(topic, [b"record"] * RECORDS_A_WRITE)


def first_offset(lab: Lab, broker: int, topic: str) -> int:
    """Of the files that are there."""
    return min(int(path.stem) for path in lab.replica_dir(broker, topic, 0).glob("*.log"))


def _is_trimmed(lab: Lab, broker: int, topic: str, to_bytes: int) -> bool:
    """Whether retention has nothing left to do: it never goes below what is to be kept."""
    paths = lab.replica_dir(broker, topic, 0).glob("*.log")
    return sum(path.stat().st_size for path in paths) < to_bytes + SEGMENT_BYTES


# -- a log whose older part is elsewhere


def tiered_settings(folder: Path) -> dict[str, str]:
    """Brokers that move closed segments into a folder; skips the test where the jar is missing."""
    try:
        (jar,) = jars(TIERED_LOCK)
    except JarError as error:
        pytest.skip(f"tiered storage cannot be had: {error}")
    package = "org.apache.kafka.server.log.remote.storage"
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": f"{package}.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "remote.log.storage.manager.impl.prefix": "rsm.",
        "rsm.dir": str(folder),
        "remote.log.metadata.manager.listener.name": "INNER",
        "remote.log.metadata.manager.impl.prefix": "rlmm.",
        "rlmm.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.remote.log.metadata.topic.replication.factor": "1",
        "remote.log.manager.task.interval.ms": "300",
    }


def begin_to_move(lab: Lab, topic: str) -> None:
    configs = {
        **SEGMENTS,
        "remote.storage.enable": "true",
        "local.retention.bytes": str(LOCAL_BYTES),
    }
    lab.clients.create_topic(topic, assignment=[[1, 2, 3]], configs=configs)
    write(lab, topic)


def until_moved(lab: Lab, topic: str) -> None:
    wait_until(
        lambda: all(_is_trimmed(lab, broker, topic, LOCAL_BYTES) for broker in lab.brokers),
        "not every broker has moved its closed segments away",
    )


# -- changes under way


class InTheMiddle:
    """Does something after the first round of questions; ranges are small, most come after it."""

    def __init__(self, patch: pytest.MonkeyPatch, act: Callable[[], None], *, after: int) -> None:
        patch.setattr("tidestaff.streaming.verify.brokers._WIRE_BYTES", _BYTES_AT_ONCE)
        self._act, self._after, self._rounds = act, after, 0
        ask: Any = Verification._round

        def round_of(verification: Verification) -> None:
            if self._rounds == self._after:
                self._act()
            self._rounds += 1
            ask(verification)

        patch.setattr(Verification, "_round", round_of)

    @property
    def was_there(self) -> bool:
        return self._rounds > self._after


def retention(lab: Lab, topic: str) -> None:
    """All brokers have deleted closed segments, each for itself."""
    from kafka.admin import ConfigResource, ConfigResourceType  # type: ignore[import-untyped] # noqa: PLC0415 - slow

    few = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.bytes": str(RETAINED_BYTES)})
    lab.clients.ask("set retention of", topic, lambda admin: admin.alter_configs([few]))
    wait_until(
        lambda: all(_is_trimmed(lab, broker, topic, RETAINED_BYTES) for broker in lab.brokers),
        "not every broker has deleted closed segments",
    )


def move_leader(lab: Lab, topic: str, first: int) -> None:
    """By another order of the replicas and a preferred election: a new leader epoch. It goes on
    with records of its own."""
    from kafka import TopicPartition  # noqa: PLC0415 - slow

    order = [first, *(broker for broker in lab.brokers if broker != first)]
    place = TopicPartition(topic, 0)
    lab.clients.ask(
        "move", topic, lambda admin: admin.alter_partition_reassignments({place: order})
    )
    lab.clients.until(topic, lambda seen: list(seen[0].replicas) == order)
    lab.clients.ask("elect for", topic, lambda admin: admin.elect_leaders(0, {topic: [0]}))
    lab.clients.until(topic, lambda seen: seen[0].leader == first)
    write(lab, topic, 1)


# -- transactions


def transactions(lab: Lab, topic: str) -> Iterator[None]:
    """One committed, one aborted, and one that is open until the caller goes on."""
    from kafka import KafkaProducer  # noqa: PLC0415 - slow

    producer = KafkaProducer(
        bootstrap_servers=lab.answering, transactional_id=topic, acks="all", max_block_ms=60_000
    )
    try:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction, None):
            producer.begin_transaction()
            for _ in range(RECORDS_A_WRITE):
                producer.send(topic, b"in a transaction", partition=0)
            producer.flush()
            if end is not None:
                end()
        yield
        producer.abort_transaction()
    finally:
        producer.close()
