"""What the broker connector tells of a real KRaft cluster beyond offsets: followers' lineages as
their files have them, fenced brokers, eligible leader replicas, voters, log directories."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.consistency.checkpoint_files import LEADER_EPOCHS, parse_leader_epochs
from tidestaff.consistency.model import Bracket, HealthObservation, LineageSource
from tidestaff.streaming.jars import JarError, jars
from tidestaff.streaming.lab.cluster import Lab
from tidestaff.streaming.lab.plan import make_plan
from tidestaff.streaming.lab.releases import release_of
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

from tests.field.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.model import Lineage, PartitionObservation

    Seen = dict[tuple[str, int], PartitionObservation]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

VERSION, BROKERS = "4.1.1", (1, 2, 3)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    try:
        jars(release_of(VERSION).lock)
    except JarError as error:
        pytest.skip(f"the jars of Kafka {VERSION} cannot be had: {error}")
    settings = {0: {"broker.session.timeout.ms": "6000"}}
    plan = make_plan(
        tmp_path_factory.mktemp("kraft"), version=VERSION, brokers=3, settings=settings
    )
    with Lab(plan) as found:
        yield found


@contextmanager
def watching(lab: Lab, topic: str, **options: Any) -> Iterator[Watching]:
    source = {
        "type": "direct",
        "collector": "brokers",
        "options": {
            "bootstrap_servers": lab.bootstrap,
            "version": VERSION,
            "include": topic,
            "timeout_ms": 10_000,
            "log_dirs_refresh_ms": 1,
            **options,
        },
    }
    collector = collector_of(Cluster.model_validate({"name": "field", "source": source}))
    assert isinstance(collector, BrokerConnector)
    try:
        yield Watching(collector, every_s=0.3)
    finally:
        collector.close()


@contextmanager
def admin_of(lab: Lab) -> Iterator[Any]:
    from kafka import KafkaAdminClient  # noqa: PLC0415 - slow

    admin = KafkaAdminClient(bootstrap_servers=lab.answering, request_timeout_ms=10_000)
    try:
        yield admin
    finally:
        admin.close()


def move_leader(lab: Lab, topic: str, first: int) -> None:
    """By another order of the replicas and a preferred election: a new leader epoch."""
    from kafka import TopicPartition  # noqa: PLC0415

    order = [first, *(broker for broker in BROKERS if broker != first)]
    place = TopicPartition(topic, 0)
    with admin_of(lab) as admin:
        admin.alter_partition_reassignments({place: order})
        lab.clients.until(topic, lambda seen: bool(seen) and list(seen[0].replicas) == order)
        admin.elect_leaders(0, {topic: [0]})
    lab.clients.until(topic, lambda seen: bool(seen) and seen[0].leader == first)


def delete_before(lab: Lab, topic: str, offset: int) -> None:
    from kafka import TopicPartition  # noqa: PLC0415

    with admin_of(lab) as admin:
        admin.delete_records({TopicPartition(topic, 0): offset})


def written(lab: Lab, broker: int, topic: str, end: int) -> Lineage:
    """The replica's own file, without epochs that have no records."""
    path = lab.replica_dir(broker, topic, 0) / LEADER_EPOCHS
    found = parse_leader_epochs(path.read_text(encoding="utf-8"))
    last = [entry for entry in found[-1:] if entry.start_offset < end]
    return (*(a for a, b in pairwise(found) if a.start_offset < b.start_offset), *last)


def all_told(seen: Seen, topic: str, end: int) -> bool:
    """Every replica is there to its end, and every one has a lineage."""
    if (topic, 0) not in seen:
        return False
    replicas = seen[topic, 0].replicas
    return len(replicas) == 3 and all(
        r.lineage is not None and r.log_end_offset == r.high_watermark == end for r in replicas
    )


def compare(lab: Lab, watch: Watching, topic: str, end: int) -> None:
    seen = watch.until(lambda found: all_told(found, topic, end))
    told = {r.broker: r for r in seen[topic, 0].replicas}
    assert {r.lineage_source for r in told.values() if not r.leads} == {LineageSource.BATCH_HEADERS}
    for broker in BROKERS:
        lineage = told[broker].lineage
        assert lineage is not None
        mine = written(lab, broker, topic, end)
        # The leader's list has the epoch it took up, with or without records.
        assert tuple(e for e in lineage if e.start_offset < end) == mine, (broker, lineage, mine)


def test_followers_lineages_are_what_their_files_say(lab: Lab) -> None:
    topic, end = "lineages", 0
    lab.clients.create_topic(topic, assignment=[[1, 2, 3]])
    with watching(lab, topic) as watch:
        for leader, count in ((1, 40), (2, 25), (3, 0), (1, 1), (2, 60), (3, 0), (2, 7)):
            move_leader(lab, topic, leader)
            if count:
                # Batches of several records, and of one.
                lab.clients.produce(topic, [b"x" * 50] * count, linger_ms=count % 2 * 20)
            end += count
            watch.look()
        compare(lab, watch, topic, end)

        # The log start moves into the middle of an epoch, and of a batch.
        delete_before(lab, topic, 50)
        watch.until(lambda seen: all(r.log_start_offset == 50 for r in seen[topic, 0].replicas))
        compare(lab, watch, topic, end)
        assert watch.raised == {}, watch.raised


def test_a_lineage_of_large_batches_is_found_as_well(lab: Lab) -> None:
    """Larger than what is fetched beside others."""
    topic, end = "large", 0
    lab.clients.create_topic(topic, assignment=[[1, 2, 3]])
    with watching(lab, topic) as watch:
        for leader in (1, 2, 3):
            move_leader(lab, topic, leader)
            lab.clients.produce(topic, [b"x" * 40_000] * 3)
            end += 3
        compare(lab, watch, topic, end)
        assert watch.raised == {}, watch.raised


def test_a_killed_broker_is_fenced_eligible_and_behind(lab: Lab) -> None:
    topic = "killed"
    lab.clients.create_topic(topic, assignment=[[1, 2, 3]], configs={"min.insync.replicas": "3"})
    lab.clients.produce(topic, [b"a record"] * 10)
    with watching(lab, topic, missed_rounds=1, timeout_ms=3_000) as watch:
        seen = watch.until(lambda found: all_told(found, topic, 10))
        assert not any(r.fenced for r in watch.cluster.registrations)
        assert watch.cluster.rules.elr
        # Not the one that leads the quorum: the next controller would be another story.
        killed = next(b for b in (3, 2, 1) if b != watch.cluster.controller)
        lab.kill(killed)
        try:
            seen = watch.until(
                lambda found: (
                    any(r.fenced for r in watch.cluster.registrations)
                    and found[topic, 0].bracket is Bracket.COHERENT
                    and killed not in found[topic, 0].state.isr
                ),
            )
            (fenced,) = [r for r in watch.cluster.registrations if r.fenced]
            assert fenced.broker == killed
            assert seen[topic, 0].state.elr == (killed,)
            watch.until(lambda _: f"controller {killed}" in places(watch))
            assert places(watch)[f"broker {killed}"].reason.endswith("(it is fenced)")
        finally:
            lab.start(killed)
        watch.until(lambda found: all_told(found, topic, 10))
        assert set(watch.raised) <= {"SRC001"}, watch.raised


def places(watch: Watching) -> dict[str, HealthObservation]:
    return {each.place: each for each in watch.last if isinstance(each, HealthObservation)}


def test_log_directories_tell_sizes(lab: Lab) -> None:
    from tidestaff.connectors.kafka_python_reader import KafkaPythonReader  # noqa: PLC0415

    topic = "sizes"
    lab.clients.create_topic(topic, assignment=[[1]])
    lab.clients.produce(topic, [b"x" * 1_000] * 10)
    reader = KafkaPythonReader(lab.bootstrap, {}, timeout_ms=10_000)
    try:
        reader.metadata(0)
        (found,) = reader.log_dirs(1)
    finally:
        reader.close()
    assert found.path == str(lab.log_dir(1))
    assert found.error == 0
    (held,) = [each for each in found.replicas if each.partition.topic == topic]
    assert held.size > 10_000
    assert not held.future
    assert found.total_bytes is not None
    assert found.usable_bytes is not None
    assert 0 < found.usable_bytes <= found.total_bytes


def test_an_election_is_looked_at_closely(lab: Lab) -> None:
    topic = "closely"
    lab.clients.create_topic(topic, assignment=[[1, 2, 3]])
    lab.clients.produce(topic, [b"a record"] * 10)
    with watching(lab, topic, burst_rounds=3, burst_interval_ms=200) as watch:
        watch.until(lambda found: all_told(found, topic, 10))
        move_leader(lab, topic, 2)
        until = time.monotonic() + 120
        while True:
            watch.look()
            mine = [each for each in watch.last if getattr(each, "topic", None) == topic]
            if len(mine) > 1:
                break
            assert time.monotonic() < until
        assert len(mine) == 4
        assert watch.raised == {}, watch.raised
