"""The lab itself: the same life of a cluster as processes and in containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.lab.errors import LabError, NodeDownError

from tests.field.lab import need_jars, running
from tests.field.lab_containers import Containers, image_of, need_engine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.field.lab import Lab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:testcontainers.*"),
]

TOPIC = "seen"


def live_through_everything(lab: Lab) -> None:
    """Two brokers: one is killed, comes back, is paused, goes on, is stopped."""
    clients = lab.clients
    clients.create_topic(TOPIC, assignment=[[2, 1]], configs={"min.insync.replicas": "1"})
    assert clients.produce(TOPIC, [b"a", b"b"]) == [0, 1]

    lab.kill(2)
    assert not lab.running(2)
    clients.until(TOPIC, lambda seen: [p.leader for p in seen] == [1])
    assert clients.produce(TOPIC, [b"c"], acks=1) == [2]

    lab.start(2)
    clients.until(TOPIC, lambda seen: [sorted(p.isr) for p in seen] == [[1, 2]])
    assert list(lab.replica_dir(2, TOPIC, 0).glob("*.log"))

    lab.pause(2)
    assert lab.running(2)
    assert lab.paused(2)
    clients.until(TOPIC, lambda seen: [p.isr for p in seen] == [(1,)])
    lab.resume(2)
    clients.until(TOPIC, lambda seen: [sorted(p.isr) for p in seen] == [[1, 2]])
    assert clients.read(TOPIC) == [b"a", b"b", b"c"]

    lab.stop(2)
    assert "shut down completed" in lab.log(2)


SETTINGS = {0: {"zookeeper.session.timeout.ms": "3000"}}


def test_a_cluster_of_processes(tmp_path: Path) -> None:
    need_jars("3.9.1")
    with running(tmp_path, "3.9.1", "zookeeper", brokers=2, settings=SETTINGS) as lab:
        live_through_everything(lab)
    assert not any(lab.running(node) for node in lab.nodes)


def test_a_cluster_of_containers(tmp_path: Path) -> None:
    need_engine()
    need_jars("3.9.1")
    engine = Containers(image_of("3.9.1"), tmp_path)
    try:
        with running(
            tmp_path, "3.9.1", "zookeeper", brokers=2, settings=SETTINGS, engine=engine
        ) as lab:
            live_through_everything(lab)
        assert not any(lab.running(node) for node in lab.nodes)
    finally:
        engine.close()


def test_two_brokers_that_are_cut_lose_sight_of_each_other_and_clients_of_neither(
    tmp_path: Path,
) -> None:
    need_jars("3.9.1")
    settings = {0: {"replica.lag.time.max.ms": "3000", "zookeeper.session.timeout.ms": "4000"}}
    with running(
        tmp_path, "3.9.1", "zookeeper", brokers=2, cuttable=True, settings=settings
    ) as lab:
        # An ISR is shrunk by way of the controller: a leader that is cut off from it could not.
        leader = lab.clients.controller()
        (other,) = {1, 2} - {leader}
        lab.clients.create_topic(TOPIC, assignment=[[leader, other]])
        lab.cut(1, 2)
        assert lab.cuts == [(1, 2)]
        at = lab.bootstrap_of(leader)
        assert lab.clients.produce_many({(TOPIC, 0): [b"x"]}, acks=1, at=at) == {(TOPIC, 0): [0]}
        lab.clients.until(TOPIC, lambda seen: [p.isr for p in seen] == [(leader,)])
        lab.heal()
        lab.clients.until(TOPIC, lambda seen: [sorted(p.isr) for p in seen] == [[1, 2]])

        # Cut off from ZooKeeper the leader's session ends, though its process is well.
        lab.cut(leader, 0)
        lab.clients.until(TOPIC, lambda seen: [p.leader for p in seen] == [other], 60)
        assert lab.running(leader)


def test_a_broker_that_cannot_start_is_told_at_once_with_its_last_lines(tmp_path: Path) -> None:
    need_jars("3.9.1")
    settings = {0: {"log.retention.ms": "soon"}}
    with (
        pytest.raises(LabError, match=r"log\.retention\.ms") as told,
        running(tmp_path, "3.9.1", "kraft", brokers=1, settings=settings),
    ):
        pass
    assert "in time" not in str(told.value)


def test_a_broker_that_ends_while_it_starts_shows_its_log(tmp_path: Path) -> None:
    need_jars("3.9.1")
    settings = {0: {"log.retention.ms": "soon"}}
    with (
        pytest.raises(NodeDownError, match=r"(?s)broker-1 ended.*log\.retention\.ms"),
        running(tmp_path, "3.9.1", "zookeeper", brokers=1, settings=settings),
    ):
        pass
