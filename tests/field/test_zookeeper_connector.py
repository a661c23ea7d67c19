"""ZooKeeper as the source of metadata, on real clusters: what is told is what the znodes, Kafka's
own answers and the prediction say, and nothing is raised that is not so."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.connectors.zookeeper import ZookeeperConnector
from tidestaff.consistency.forecast import forecast
from tidestaff.consistency.model import (
    NO_LEADER,
    Assignment,
    Bracket,
    ControllerClaim,
    HealthObservation,
)
from tidestaff.streaming.jars import JarError, jars
from tidestaff.streaming.lab.cluster import Lab
from tidestaff.streaming.lab.plan import ZOOKEEPER_NODE, make_plan
from tidestaff.streaming.lab.releases import ZOOKEEPER_LOCK, release_of
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

from tests.field.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidestaff.consistency.model import PartitionObservation

    Seen = dict[tuple[str, int], PartitionObservation]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.longest,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

BROKERS = (1, 2, 3)
RECORDS = 30
READING = {"GetData", "GetChildren", "Exists"}
# A broker that is down is not heard, and what it holds is missed: both are so.
TRUE_OF_A_DEAD_BROKER = {"SRC001"}


def _lab(folder: Path, version: str) -> Lab:
    try:
        jars(release_of(version).lock)
        jars(ZOOKEEPER_LOCK)
    except JarError as error:
        pytest.skip(f"the jars of Kafka {version} cannot be had: {error}")
    settings = {0: {"auto.leader.rebalance.enable": "false", "delete.topic.enable": "true"}}
    return Lab(make_plan(folder, version=version, mode="zookeeper", brokers=3, settings=settings))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with _lab(tmp_path_factory.mktemp("zookeeper-3.9.1"), "3.9.1") as found:
        yield found


@pytest.fixture
def topic(lab: Lab, request: pytest.FixtureRequest) -> str:
    """One of its own for each test, led by brokers 1 to 3 in turn; whoever is down is started."""
    lab.start(*(node for node in lab.nodes if not lab.running(node)))
    name = request.function.__name__[:40]
    make_topic(lab, name)
    return name


def make_topic(lab: Lab, name: str, configs: dict[str, str] | None = None) -> None:
    lab.clients.create_topic(name, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]], configs=configs)
    for partition in range(3):
        lab.clients.produce(name, [b"a record"] * RECORDS, partition=partition)


@contextmanager
def watching(lab: Lab, topic: str, collector: str = "brokers", **more: Any) -> Iterator[Watching]:
    brokers = {"bootstrap_servers": lab.bootstrap, "timeout_ms": 10_000}
    options = {
        **(brokers if collector == "brokers" else {}),
        "zookeeper_connect": lab.zookeeper_connect,
        "zookeeper_session_timeout_ms": 6_000,
        "version": lab.plan.version,
        "include": topic,
        "jitter_ms": 0,
        **more,
    }
    source = {"type": "direct", "collector": collector, "options": options}
    made = collector_of(Cluster.model_validate({"name": "field", "source": source}))
    assert isinstance(made, BrokerConnector | ZookeeperConnector)
    try:
        yield Watching(made, every_s=0.5)
    finally:
        made.close()


@contextmanager
def zookeeper(lab: Lab, **more: Any) -> Iterator[Any]:
    """A client of the test's own."""
    from kazoo.client import KazooClient  # noqa: PLC0415 - slow

    client = KazooClient(lab.zookeeper_connect, **more)
    client.start(20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def whole(seen: Seen) -> bool:
    return len(seen) == 3 and all(
        each.bracket is Bracket.COHERENT
        and set(each.state.isr) == set(BROKERS)
        and len(each.replicas) == 3
        and len({(r.high_watermark, r.log_end_offset) for r in each.replicas}) == 1
        for each in seen.values()
    )


def registered(watch: Watching) -> set[int]:
    return {each.broker for each in watch.cluster.registrations}


def without(watch: Watching, broker: int, seen: Seen) -> bool:
    """The controller has dealt with the death everywhere."""
    return (
        broker not in registered(watch)
        and watch.cluster.controller in registered(watch)
        and all(
            each.bracket is Bracket.COHERENT
            and broker not in each.state.isr
            and each.state.leader not in (broker, NO_LEADER)
            for each in seen.values()
        )
    )


def as_predicted(before: Seen, after: Seen, stopped: int) -> None:
    """Leader, epoch and ISR of every partition are those that were predicted from before."""
    for place, known in before.items():
        expected = forecast(known, stopping=[stopped])
        state = after[place].state
        assert (state.leader, state.leader_epoch, state.isr) == (
            expected.leader,
            expected.leader_epoch,
            expected.isr,
        ), place


def test_what_is_told_is_what_the_znodes_and_the_brokers_say(lab: Lab) -> None:
    topic = "what_is_told"
    make_topic(lab, topic, {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"})
    with watching(lab, topic) as watch, zookeeper(lab) as client:
        seen = watch.until(whole)
        described = {each.partition: each for each in lab.clients.describe(topic)}
        node = json.loads(client.get(f"/brokers/topics/{topic}")[0])
        for (_, number), each in seen.items():
            data, stat = client.get(f"/brokers/topics/{topic}/partitions/{number}/state")
            written = json.loads(data)
            assert (each.state.partition_epoch, each.state_czxid) == (stat.version, stat.czxid)
            assert (each.state.leader, list(each.state.isr)) == (written["leader"], written["isr"])
            assert each.state.controller_epoch == written["controller_epoch"]
            assert each.state.leader_epoch == written["leader_epoch"]
            kafka = described[number]
            assert (each.state.leader, each.state.leader_epoch) == (
                kafka.leader,
                kafka.leader_epoch,
            )
            assert (each.assignment.replicas, each.state.isr) == (kafka.replicas, kafka.isr)
            assert each.topic_id == node["topic_id"]
            assert {r.log_end_offset for r in each.replicas} == {RECORDS}
            assert each.settings.min_insync_replicas == 2
            assert each.settings.unclean_leader_election_enable
            assert each.authoritative
        controller = json.loads(client.get("/controller")[0])["brokerid"]
        epoch = int(client.get("/controller_epoch")[0])
        assert watch.cluster.controller == controller
        assert watch.cluster.claims == (ControllerClaim(controller, epoch),)
        assert {r.broker: r.broker_epoch for r in watch.cluster.registrations} == {
            broker: client.get(f"/brokers/ids/{broker}")[1].czxid for broker in BROKERS
        }
        about_the_cluster(lab, topic, watch, client)
        assert watch.raised == {}


def about_the_cluster(lab: Lab, topic: str, watch: Watching, client: Any) -> None:
    """Brokers and ZooKeeper are of one cluster; the first producer that wants an id changes what
    the node says of them. Nothing in any of it is malformed to us."""
    connector: Any = watch.connector
    tree, reader = connector._metadata._tree, connector._reader
    node = json.loads(client.get("/cluster/id")[0])
    assert {reader.metadata(turn).cluster_id for turn in range(3)} == {node["id"]}
    assert tree._last.about.cluster_id == node["id"]
    assert tree._last.about.features == json.loads(client.get("/feature")[0])["features"] == {}
    assert tree._last.about.migration is None
    lab.tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "10", "--record-size", "10", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={lab.bootstrap}", "enable.idempotence=true"),
    )
    block = json.loads(client.get("/latest_producer_id_block")[0])
    watch.until(lambda _: tree._last.about.producer_ids is not None)
    ids = tree._last.about.producer_ids
    assert (str(ids.start), str(ids.stop - 1)) == (block["block_start"], block["block_end"])
    assert tree._last.problems == ()

    # An event is gone as soon as the controller has seen it; we know that there was one.
    events, asked = tree._last.about.log_dir_events, []
    log_dirs = reader.log_dirs
    reader.log_dirs = lambda broker: [asked.append(broker), log_dirs(broker)][1]
    lost = json.dumps({"version": 1, "broker": 2, "event": 1}).encode()
    client.create("/log_dir_event_notification/log_dir_event_", lost, sequence=True)
    watch.until(lambda _: tree._last.about.log_dir_events > events)
    assert set(asked) == set(BROKERS)

    # As if zookeeper_connect led to another cluster.
    data = client.get("/cluster/id")[0]
    client.set("/cluster/id", json.dumps({**node, "id": "another"}).encode())
    try:
        told = connector.round()
    finally:
        client.set("/cluster/id", data)
    assert [each.place for each in told] == ["cluster"]
    assert "is of cluster another" in told[0].reason
    assert f"are of cluster {node['id']}" in told[0].reason
    watch.until(whole)


def test_a_setting_changed_in_zookeeper_counts_in_the_next_round(lab: Lab, topic: str) -> None:
    """A change of a topic's settings is a write of /config/topics, which is watched."""
    with watching(lab, topic, "zookeeper") as watch:
        (first, *_) = watch.look().values()
        assert first.settings.min_insync_replicas == 1
        lab.tool(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", lab.bootstrap, "--entity-type", "topics"),
            *("--entity-name", topic, "--alter", "--add-config", "min.insync.replicas=2"),
        )
        before = watch.connector.rounds
        watch.until(lambda s: all(e.settings.min_insync_replicas == 2 for e in s.values()))
        # The watch's event is on its way for a moment; a re-read comes far later.
        assert watch.connector.rounds - before <= 10
        assert watch.raised == {}


def test_a_forged_state_is_found_and_named(lab: Lab, topic: str) -> None:
    """Written behind the controller's back: the leader is not in the ISR."""
    path = f"/brokers/topics/{topic}/partitions/0/state"
    with watching(lab, topic) as watch, zookeeper(lab) as client:
        watch.until(whole)
        data = client.get(path)[0]
        client.set(path, json.dumps({**json.loads(data), "isr": [2, 3]}).encode())
        watch.until(lambda _: "ELE002" in watch.raised)
        assert [text.partition(":")[0] for text in watch.raised["ELE002"]] == [
            f"partition/{topic}/0"
        ] * len(watch.raised["ELE002"])
        client.set(path, data)


def test_death_and_return_of_a_leader_and_preferred_election_are_as_predicted(
    lab: Lab, topic: str
) -> None:
    with watching(lab, topic) as watch:
        before = watch.until(whole)
        epochs = {r.broker: r.broker_epoch for r in watch.cluster.registrations}
        was_controller, epoch = watch.cluster.controller, watch.cluster.controller_epoch
        killed = next(b for b in BROKERS if b != was_controller)
        lab.kill(killed)
        after = watch.until(lambda seen: without(watch, killed, seen))
        as_predicted(before, after, killed)
        assert (watch.cluster.controller, watch.cluster.controller_epoch) == (was_controller, epoch)

        lab.start(killed)
        back = watch.until(whole)
        now = {r.broker: r.broker_epoch for r in watch.cluster.registrations}
        assert now[killed] > epochs[killed]
        assert {b: now[b] for b in BROKERS if b != killed} == {
            b: epochs[b] for b in BROKERS if b != killed
        }
        # The leader stays where it is until somebody asks for the preferred one.
        assert {p: each.state.leader for p, each in back.items()} == {
            p: each.state.leader for p, each in after.items()
        }
        lab.tool(
            "org.apache.kafka.tools.LeaderElectionCommand",
            *("--bootstrap-server", lab.bootstrap, "--election-type", "preferred"),
            "--all-topic-partitions",
        )
        preferred = watch.until(
            lambda seen: (
                whole(seen)
                and all(e.state.leader == e.assignment.replicas[0] for e in seen.values())
            ),
        )
        for place, each in preferred.items():
            moved = back[place].state.leader != each.state.leader
            assert each.state.leader_epoch == back[place].state.leader_epoch + moved
            assert each.state.isr == back[place].state.isr
        assert set(watch.raised) <= TRUE_OF_A_DEAD_BROKER, watch.raised


def test_the_controller_that_takes_over_decides_as_predicted(lab: Lab, topic: str) -> None:
    with watching(lab, topic) as watch:
        before = watch.until(whole)
        killed, epoch = watch.cluster.controller, watch.cluster.controller_epoch
        assert killed is not None
        assert epoch is not None
        lab.kill(killed)
        after = watch.until(lambda seen: without(watch, killed, seen))
        assert watch.cluster.controller_epoch == epoch + 1
        as_predicted(before, after, killed)
        written = {each.state.controller_epoch for each in after.values()}
        assert written == {epoch + 1}

        lab.start(killed)
        watch.until(whole)
        assert set(watch.raised) <= TRUE_OF_A_DEAD_BROKER, watch.raised


def test_a_reassignment_is_seen_while_it_waits_and_when_it_is_done(lab: Lab, topic: str) -> None:
    moving = f"{topic}-moving"
    with watching(lab, moving, timeout_ms=2_000) as watch, zookeeper(lab) as client:
        controller = json.loads(client.get("/controller")[0])["brokerid"]
        target, stays, leaves = sorted(BROKERS, key=controller.__eq__)
        lab.clients.create_topic(moving, assignment=[[stays, leaves]])
        lab.clients.produce(moving, [b"a record"] * RECORDS)
        watch.until(lambda seen: len(seen) == 1)
        # Registered, so that the controller takes the request, and too busy to fetch.
        lab.pause(target)
        try:
            request = [{"topic": moving, "partition": 0, "replicas": [target, stays]}]
            client.create(
                "/admin/reassign_partitions",
                json.dumps({"version": 1, "partitions": request}).encode(),
            )
            seen = watch.until(
                lambda found: any(e.assignment.being_reassigned for e in found.values()), 20
            )
            (waiting,) = seen.values()
            assert waiting.assignment.adding == (target,)
            assert waiting.assignment.removing == (leaves,)
            for _ in range(4):
                watch.look()
        finally:
            lab.resume(target)
        watch.until(
            lambda found: all(
                each.assignment == Assignment((target, stays))
                and set(each.state.isr) == {target, stays}
                and each.state.leader == stays
                and each.bracket is Bracket.COHERENT
                for each in found.values()
            ),
        )
        assert set(watch.raised) <= TRUE_OF_A_DEAD_BROKER, watch.raised


def test_a_topic_deleted_and_made_again_is_another_topic(lab: Lab, topic: str) -> None:
    with watching(lab, topic) as watch:
        before = watch.until(whole)
        lab.clients.delete_topic(topic)
        watch.until(lambda seen: not seen)
        make_topic(lab, topic)
        after = watch.until(whole)
        for place, each in after.items():
            assert each.topic_id != before[place].topic_id
            assert each.state_czxid > before[place].state_czxid
        for _ in range(3):
            watch.look()
            time.sleep(watch.every_s)
        assert watch.raised == {}


def test_neither_an_expired_session_of_ours_nor_a_restart_of_zookeeper_raises_anything(
    lab: Lab, topic: str
) -> None:
    """Rounds in between see nothing; what is called coherent is of one session."""
    with watching(lab, topic) as watch:
        before = watch.until(whole)
        reader = watch.connector._metadata._reader
        session = reader.session
        # Somebody with our session ends it: that is what an expiry is to the server.
        with zookeeper(lab, client_id=reader._client.client_id):
            pass
        until = time.monotonic() + 120
        while reader.session == session:
            assert time.monotonic() < until
            watch.look()
        after = watch.until(whole)
        assert {p: e.state for p, e in after.items()} == {p: e.state for p, e in before.items()}
        # Watches of the new session work.
        lab.clients.produce(topic, [b"one more"])
        watch.until(lambda s: whole(s) and s[topic, 0].replicas[0].log_end_offset > RECORDS)
        assert watch.raised == {}

        lab.stop(ZOOKEEPER_NODE)
        told: list[HealthObservation] = []
        until = time.monotonic() + 120
        while not told:
            assert time.monotonic() < until
            assert watch.look() == {} or not told
            told = [each for each in watch.last if isinstance(each, HealthObservation)]
        assert "ZooKeeper" in told[0].reason
        lab.start(ZOOKEEPER_NODE)
        again = watch.until(whole)
        assert {p: e.state.leader_epoch for p, e in again.items()} == {
            p: e.state.leader_epoch for p, e in before.items()
        }
        for _ in range(3):
            watch.look()
            time.sleep(watch.every_s)
        assert set(watch.raised) <= {"SRC001"}, watch.raised


def test_nothing_is_ever_written_to_zookeeper(lab: Lab, topic: str) -> None:
    """Every request of the client is recorded as it is put on the wire."""
    from kazoo.client import KazooClient  # noqa: PLC0415 - slow

    sent: set[str] = set()

    class Recording(KazooClient):  # type: ignore[misc]
        def _call(self, request: Any, async_object: Any) -> Any:
            sent.add(type(request).__name__)
            return super()._call(request, async_object)

    with watching(lab, topic, "zookeeper", zookeeper_reread_rounds=2) as watch:
        watch.connector._metadata._reader._make_client = Recording
        watch.until(lambda seen: len(seen) == 3)
        lab.clients.create_topic(f"{topic}-more", assignment=[[1, 2, 3]])
        lab.clients.delete_topic(f"{topic}-more")
        for _ in range(4):
            seen = watch.look()
        assert {each.bracket for each in seen.values()} == {Bracket.COHERENT}
        assert {each.replicas for each in seen.values()} == {()}
        assert watch.raised == {}
    assert "GetData" in sent
    assert sent <= {*READING, "Close", "Connect"}


@pytest.mark.parametrize("version", ["0.10.2.2", "1.1.1", "2.8.2"])
def test_old_brokers_are_read_and_do_as_predicted(
    version: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Before 2.1 replicas do not name their epoch; before 0.11 nobody can be asked for settings."""
    given = {"settings.replica.lag.time.max.ms": 10_000, "settings.min.insync.replicas": 2}
    with _lab(tmp_path_factory.mktemp(f"zookeeper-{version}"), version) as lab:
        make_topic(lab, "orders", {"unclean.leader.election.enable": "false"})
        with watching(lab, "orders", **(given if version == "0.10.2.2" else {})) as watch:
            before = watch.until(whole)
            for each in before.values():
                assert {r.log_end_offset for r in each.replicas} == {RECORDS}
                assert {r.broker: r.leads for r in each.replicas} == {
                    broker: broker == each.state.leader for broker in BROKERS
                }
                assert not each.settings.unclean_leader_election_enable
                assert each.settings.min_insync_replicas == (2 if version == "0.10.2.2" else 1)
            killed = next(b for b in BROKERS if b != watch.cluster.controller)
            lab.kill(killed)
            after = watch.until(lambda seen: without(watch, killed, seen))
            as_predicted(before, after, killed)
            for partition in range(3):
                lab.clients.produce("orders", [b"more"] * RECORDS, partition=partition)
            lab.start(killed)
            watch.until(
                lambda seen: whole(seen) and seen["orders", 2].replicas[0].log_end_offset > RECORDS,
            )
            for _ in range(3):
                watch.look()
                time.sleep(watch.every_s)
            assert set(watch.raised) <= TRUE_OF_A_DEAD_BROKER, watch.raised
