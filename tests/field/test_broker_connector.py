"""The broker connector on a real cluster of three Kafka 3.9.1 nodes in KRaft mode."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.connectors.errors import BrokerSilentError
from tidestaff.consistency.checkpoint_files import parse_offsets
from tidestaff.consistency.model import Bracket, EpochEntry, LineageSource
from tidestaff.consistency.versions import Mode
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

from tests.field.lab import NODES, need_jars, running
from tests.field.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.model import PartitionObservation

    from tests.field.lab import Lab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

PARTITIONS, RECORDS = 3, 30


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need_jars("3.9.1")
    with running(tmp_path_factory.mktemp("lab")) as found:
        yield found


@pytest.fixture
def topic(lab: Lab, request: pytest.FixtureRequest) -> str:
    """One of its own for each test, with some records: no test needs another to have run."""
    name = request.function.__name__[:40]
    make_topic(lab, name)
    produce(lab, name, RECORDS)
    return name


def make_topic(lab: Lab, topic: str) -> None:
    lab.clients.create_topic(topic, partitions=PARTITIONS, configs={"min.insync.replicas": "2"})


def produce(lab: Lab, topic: str, count: int) -> None:
    """So many records to each partition, acknowledged by the whole ISR."""
    from kafka import KafkaProducer  # noqa: PLC0415

    producer = KafkaProducer(bootstrap_servers=lab.answering, acks="all", linger_ms=5)
    try:
        sent = [
            producer.send(topic, b"a record", partition=partition)
            for partition in range(PARTITIONS)
            for _ in range(count)
        ]
        for each in sent:
            each.get(60)
    finally:
        producer.close()


@contextmanager
def watching(lab: Lab, topic: str, **options: Any) -> Iterator[Watching]:
    source = {
        "type": "direct",
        "collector": "brokers",
        "options": {
            "bootstrap_servers": lab.bootstrap,
            "version": "3.9.1",
            "include": topic,
            "timeout_ms": 10_000,
            **options,
        },
    }
    collector = collector_of(Cluster.model_validate({"name": "field", "source": source}))
    assert isinstance(collector, BrokerConnector)
    try:
        yield Watching(collector)
    finally:
        collector.close()


def settled(seen: dict[tuple[str, int], PartitionObservation], end: int) -> bool:
    """Every replica is in the ISR, answers, and has HW and LEO there."""
    return len(seen) == PARTITIONS and all(
        each.bracket is Bracket.COHERENT
        and len(each.state.isr) == len(each.replicas) == len(NODES)
        and {(r.high_watermark, r.log_end_offset) for r in each.replicas} == {(end, end)}
        for each in seen.values()
    )


def consumed_offsets(lab: Lab, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """First and last offsets by partition, as a consumer is told them."""
    from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415

    consumer = KafkaConsumer(bootstrap_servers=lab.bootstrap)
    try:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        first = consumer.beginning_offsets(partitions)
        last = consumer.end_offsets(partitions)
    finally:
        consumer.close()
    return (
        {each.partition: offset for each, offset in first.items()},
        {each.partition: offset for each, offset in last.items()},
    )


def checkpointed(lab: Lab, topic: str, node: int) -> dict[int, int]:
    """High watermarks in the node's own file."""
    text = (lab.log_dir(node) / "replication-offset-checkpoint").read_text(encoding="utf-8")
    entries = parse_offsets(text)
    return {each.partition: offset for each, offset in entries.items() if each.topic == topic}


def test_every_replica_tells_what_consumers_and_files_say(lab: Lab, topic: str) -> None:
    with watching(lab, topic) as watch:
        seen = watch.until(lambda found: settled(found, RECORDS))

        first, last = consumed_offsets(lab, topic)
        for (_, partition), each in seen.items():
            assert {r.log_start_offset for r in each.replicas} == {first[partition]} == {0}
            assert {r.high_watermark for r in each.replicas} == {last[partition]}
            assert {r.broker: r.leads for r in each.replicas} == {
                node: node == each.state.leader for node in NODES
            }
            assert {r.topic_id for r in each.replicas} == {each.topic_id}
            (leader,) = [r for r in each.replicas if r.leads]
            assert leader.lineage_source is LineageSource.LEADER_ANSWERS
            assert leader.lineage == (EpochEntry(0, 0),)
            told = each.settings.told("min_insync_replicas")
            assert told == "min.insync.replicas=2 (topic override)"
            told = each.settings.told("replica_lag_time_max_ms")
            assert told == "replica.lag.time.max.ms=30000 (Kafka's default)"
            assert not each.authoritative
            assert each.state.partition_epoch == -1
        assert watch.cluster.answering == NODES
        assert watch.cluster.controller in NODES
        assert watch.cluster.rules.mode is Mode.KRAFT
        assert str(watch.cluster.rules.protocol) == "3.9-IV0"
        assert watch.raised == {}

        # Written every five seconds.
        until = time.monotonic() + 120
        while any(set(checkpointed(lab, topic, node).values()) != {RECORDS} for node in NODES):
            assert time.monotonic() < until
            time.sleep(0.5)


def test_a_killed_leader_is_replaced_and_nothing_but_its_silence_is_raised(
    lab: Lab, topic: str
) -> None:
    with watching(lab, topic) as watch:
        before = watch.until(lambda found: settled(found, RECORDS))
        killed = before[topic, 0].state.leader

        lab.kill(killed)
        seen = watch.until(
            lambda found: (
                len(found) == PARTITIONS
                and all(
                    each.bracket is Bracket.COHERENT
                    and killed not in each.state.isr
                    and each.state.leader != killed
                    for each in found.values()
                )
            ),
        )
        for place, each in seen.items():
            was = before[place].state
            led = was.leader == killed
            assert each.state.leader_epoch == was.leader_epoch + led
            assert sorted(r.broker for r in each.replicas) == sorted(set(NODES) - {killed})
        produce(lab, topic, RECORDS)
        for _ in range(5):
            watch.look()
            time.sleep(watch.every_s)

        lab.start(killed)
        seen = watch.until(lambda found: settled(found, 2 * RECORDS))
        (leader,) = [r for r in seen[topic, 0].replicas if r.leads]
        assert leader.lineage == (EpochEntry(0, 0), EpochEntry(1, RECORDS))
        for _ in range(3):
            watch.look()
            time.sleep(watch.every_s)
        # The connector says that it does not hear the broker; the cluster itself did nothing wrong.
        assert set(watch.raised) == {"SRC001"}, watch.raised


def counted_timeouts(watch: Watching) -> list[str]:
    """Grows by a line for every question that is not answered in time: what a round costs is
    counted in them, as seconds are the machine's."""
    reader: Any = watch.connector._reader
    ask = reader.ask
    found: list[str] = []

    def counting(request: Any, broker: int) -> Any:
        try:
            return ask(request, broker)
        except BrokerSilentError:
            found.append(f"{request.name} to broker {broker}")
            raise

    reader.ask = counting
    return found


def test_a_paused_broker_costs_a_round_little_and_is_told_until_it_goes_on(
    lab: Lab, topic: str
) -> None:
    """Its port is open, so every question to it costs a timeout: it must not be asked often."""
    with watching(lab, topic, timeout_ms=2_000) as watch:
        seen = watch.until(lambda found: settled(found, RECORDS))
        paused = seen[topic, 0].state.leader
        timeouts = counted_timeouts(watch)
        lab.pause(paused)
        a_round: list[int] = []
        try:
            until = time.monotonic() + 120
            while "SRC001" not in watch.raised:
                assert time.monotonic() < until
                before = len(timeouts)
                watch.look()
                a_round.append(len(timeouts) - before)
            assert paused not in (watch.cluster.answering or ())
        finally:
            lab.resume(paused)
        assert any(a_round), "nobody asked the paused broker"
        # One each for metadata, controller, readings and what follows.
        assert max(a_round) <= 4, (a_round, timeouts)
        watch.until(lambda found: settled(found, RECORDS))
        assert watch.cluster.answering == NODES
        # It may have led the quorum, which then could not be read either.
        assert set(watch.raised) <= {"SRC001", "SRC002"}, watch.raised
