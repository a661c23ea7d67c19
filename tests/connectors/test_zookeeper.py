"""Rounds with ZooKeeper's metadata against trees of plain values: what is read, when it is read
again, how far it belongs together, and what is said where something cannot be read."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.connectors.broker_answers import KAFKA_STORAGE_ERROR, LogDir
from tidestaff.connectors.broker_options import BrokerOptions
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.connectors.errors import (
    ClusterUnreachableError,
    OptionError,
    UnsupportedRequestError,
)
from tidestaff.connectors.zookeeper import ZookeeperConnector, options_without_brokers
from tidestaff.connectors.zookeeper_configs import decode_config
from tidestaff.connectors.zookeeper_metadata import ZookeeperMetadata
from tidestaff.connectors.zookeeper_nodes import About, state_path
from tidestaff.connectors.zookeeper_tree import ZookeeperTree
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import (
    Assignment,
    Bracket,
    ClusterObservation,
    ControllerClaim,
    HealthObservation,
    PartitionObservation,
    ProblemKind,
    Registration,
)
from tidestaff.consistency.monitor import step
from tidestaff.consistency.znodes import Migration

from tests.connectors.fake_brokers import ORDERS, FakeCluster
from tests.connectors.fake_zookeeper import FakeZookeeper

if TYPE_CHECKING:
    from tidestaff.consistency.model import Observation

STATE = state_path("orders", 0)
TOPIC = "/brokers/topics/orders"
MIGRATION = {
    "version": 0,
    "kraft_controller_id": 3000,
    "kraft_controller_epoch": 4,
    "kraft_metadata_offset": 100,
    "kraft_metadata_epoch": 4,
}


class Watched:
    """ZooKeeper alone, or with `brokers`; the clock moves by five seconds a round."""

    def __init__(
        self,
        zookeeper: FakeZookeeper,
        brokers: FakeCluster | None = None,
        *,
        reread_rounds: int = 1_000,
        given: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.now_ms = 1_000_000
        made = BrokerOptions(
            "none",
            **{
                "burst_rounds": 0,
                "jitter_ms": 0,
                "version": "3.9.1",
                "mode": "zookeeper",
                **options,
            },
        )
        tree = ZookeeperTree(zookeeper, reread_rounds=reread_rounds)
        locate = None if brokers is None else brokers.metadata
        metadata = ZookeeperMetadata(tree, zookeeper, made.wants, locate)
        self.connector: ZookeeperConnector | BrokerConnector
        if brokers is None:
            self.connector = ZookeeperConnector(
                metadata, "west", made, now_ms=lambda: self.now_ms, given=given or {}
            )
        else:
            self.connector = BrokerConnector(
                brokers,
                "west",
                made,
                now_ms=lambda: self.now_ms,
                metadata=metadata,
                given=given or {},
            )

    def round(self) -> list[Observation]:
        self.now_ms += 5_000
        return self.connector.round()

    def partition(self) -> PartitionObservation:
        (found,) = partitions(self.round())
        return found

    def cluster(self) -> ClusterObservation:
        (found,) = [each for each in self.round() if isinstance(each, ClusterObservation)]
        return found


def partitions(seen: list[Observation]) -> list[PartitionObservation]:
    return [each for each in seen if isinstance(each, PartitionObservation)]


def health(seen: list[Observation]) -> list[HealthObservation]:
    return [each for each in seen if isinstance(each, HealthObservation)]


# -- what is told


def test_a_partition_is_told_with_the_version_and_the_making_of_its_state() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.state(leader=3, isr=[3, 2], epoch=4, controller_epoch=6)
    seen = Watched(zookeeper).partition()
    node = zookeeper.nodes[STATE]
    assert (seen.state.leader, seen.state.isr, seen.state.leader_epoch) == (3, (3, 2), 4)
    assert (seen.state.partition_epoch, seen.state.controller_epoch) == (node.version, 6)
    assert (seen.state_czxid, seen.topic_id) == (node.czxid, "AAAAAAAAAAAAAAAAAAAAAQ")
    assert (seen.controller, seen.cluster_controller_epoch) == (2, 7)
    assert (seen.authoritative, seen.bracket, seen.replicas) == (True, Bracket.COHERENT, ())


def test_registrations_have_the_transaction_that_made_them_as_their_epoch() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.delete("/brokers/ids/3")
    zookeeper.register(3, rack="b")
    seen = Watched(zookeeper).cluster()
    assert seen.registrations[2] == Registration(
        3, zookeeper.nodes["/brokers/ids/3"].czxid, rack="b"
    )
    assert [each.broker for each in seen.registrations] == [1, 2, 3]
    assert seen.claims == (ControllerClaim(2, 7),)


def test_without_a_controller_none_is_named() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.delete("/controller")
    seen = Watched(zookeeper).cluster()
    assert (seen.controller, seen.controller_epoch, seen.claims) == (-1, 7, ())


def test_a_topic_in_the_queue_of_deletions_is_being_deleted() -> None:
    zookeeper = FakeZookeeper.with_topic()
    watched = Watched(zookeeper)
    assert not watched.partition().deleting
    zookeeper.put("/admin/delete_topics/orders", None)
    assert watched.partition().deleting


def test_a_reassignment_is_told_by_the_topic_node() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.topic(
        "orders", {0: [4, 1, 2, 3]}, adding_replicas={"0": [4]}, removing_replicas={"0": [3]}
    )
    assert Watched(zookeeper).partition().assignment == Assignment((4, 1, 2, 3), (4,), (3,))


@pytest.mark.parametrize(
    ("seen_before", "isr", "target", "expected"),
    [
        pytest.param(True, [1, 2, 3], [4, 1, 2], ((4,), (3,)), id="new-is-who-was-not-there"),
        pytest.param(False, [1, 2, 3], [4, 1, 2], ((4,), (3,)), id="unseen-new-is-out-of-sync"),
        pytest.param(True, [1, 2, 3, 4], [4, 1, 2], ((4,), (3,)), id="new-also-when-in-sync"),
        pytest.param(True, [1, 2, 3], [5, 6], ((), ()), id="request-not-taken-up-yet"),
    ],
)
def test_before_2_4_a_reassignment_is_the_request_and_the_union(
    seen_before: bool,
    isr: list[int],
    target: list[int],
    expected: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    zookeeper = FakeZookeeper.with_topic()
    watched = Watched(zookeeper, version="1.1.1")
    if seen_before:
        watched.round()
    request = [{"topic": "orders", "partition": 0, "replicas": target}]
    zookeeper.put("/admin/reassign_partitions", {"version": 1, "partitions": request})
    zookeeper.topic("orders", {0: [1, 2, 3, 4]})
    zookeeper.state(leader=1, isr=isr, epoch=1)
    assignment = watched.partition().assignment
    assert (assignment.adding, assignment.removing) == expected


def test_imbalance_counts_all_topics_but_those_that_are_being_deleted() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.topic("invoices", {0: [1, 2], 1: [1, 2], 2: [1, 2]})
    zookeeper.state("invoices", 0, leader=2, isr=[2, 1], epoch=1)
    zookeeper.state("invoices", 1, leader=-1, isr=[2], epoch=1)
    watched = Watched(zookeeper, include="orders")
    assert watched.partition().preferred_imbalance == pytest.approx(2 / 4)
    zookeeper.put("/admin/delete_topics/invoices", None)
    assert watched.partition().preferred_imbalance == 0


def test_up_to_3_3_nothing_is_rebalanced_while_anything_is_reassigned() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.topic("invoices", {0: [1, 2, 3]}, removing_replicas={"0": [3]})
    assert Watched(zookeeper, version="3.3.2").round()[1].preferred_imbalance is None  # type: ignore[union-attr]
    assert Watched(zookeeper, version="3.4.1").round()[1].preferred_imbalance == 0  # type: ignore[union-attr]


# -- settings


def test_settings_of_a_topic_stand_before_those_of_all_brokers_and_what_is_given() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.topic("invoices", {0: [1]})
    zookeeper.put("/config/topics/orders", {"version": 1, "config": {"min.insync.replicas": "3"}})
    zookeeper.put(
        "/config/brokers/<default>",
        {"version": 1, "config": {"unclean.leader.election.enable": "true"}},
    )
    watched = Watched(
        zookeeper,
        given={
            "min.insync.replicas": "2",
            "log.cleanup.policy": "compact",
            "replica.lag.time.max.ms": "12000",
        },
    )
    by_topic = {each.topic: each.settings for each in partitions(watched.round())}
    assert by_topic["orders"].min_insync_replicas == 3
    assert by_topic["invoices"].min_insync_replicas == 2
    assert {each.unclean_leader_election_enable for each in by_topic.values()} == {True}
    told = {topic: each.told("min_insync_replicas") for topic, each in by_topic.items()}
    assert told == {
        "orders": "min.insync.replicas=3 (topic override)",
        "invoices": "min.insync.replicas=2 (given to the monitor)",
    }
    assert by_topic["orders"].told("unclean_leader_election_enable") == (
        "unclean.leader.election.enable=true (changed for all brokers)"
    )
    assert {each.compacted for each in by_topic.values()} == {True}
    assert {each.replica_lag_time_max_ms for each in by_topic.values()} == {12_000}
    # Taken away again: what was given counts, in the very next round.
    zookeeper.put("/config/topics/orders", {"version": 1, "config": {}})
    zookeeper.delete("/config/brokers/<default>")
    by_topic = {each.topic: each.settings for each in partitions(watched.round())}
    assert by_topic["orders"].min_insync_replicas == 2
    assert not by_topic["orders"].unclean_leader_election_enable


def test_a_setting_changed_for_one_broker_counts_with_what_that_broker_answers() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    brokers.broker_settings = {"replica.lag.time.max.ms": "10000"}
    zookeeper.put(
        "/config/brokers/2", {"version": 1, "config": {"replica.lag.time.max.ms": "40000"}}
    )
    (seen,) = partitions(Watched(zookeeper, brokers).round())
    assert seen.settings.told("replica_lag_time_max_ms") == (
        "replica.lag.time.max.ms=40000 (changed on a broker)"
    )


def test_brokers_that_cannot_be_asked_for_settings_are_no_problem() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    unsupported = UnsupportedRequestError("DescribeConfigs")
    brokers.errors = {"topic_values": unsupported, "broker_values": unsupported}
    watched = Watched(zookeeper, brokers, version="0.10.2.2", given={"min.insync.replicas": "2"})
    for _ in range(4):
        seen = watched.round()
        assert health(seen) == []
    assert partitions(seen)[0].settings.min_insync_replicas == 2
    settings = partitions(seen)[0].settings
    assert settings.replica_lag_time_max_ms == 10_000
    assert settings.told("min_insync_replicas") == "min.insync.replicas=2 (given to the monitor)"


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"config":{"min.insync.replicas":2}}',
        b'{"config":["ssl.keystore.password=hunter2"]}',
        b"hunter2",
        b"\xff\xfe",
        b"[]",
    ],
)
def test_a_malformed_config_is_named_without_what_it_holds(data: bytes) -> None:
    with pytest.raises(FormatError, match="/config/brokers/1") as caught:
        decode_config(data, "/config/brokers/1", {"min.insync.replicas"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "config"),
    [
        ("/config/topics/orders", {"min.insync.replicas": "two"}),
        ("/config/topics/orders", {"unclean.leader.election.enable": "1"}),
        ("/config/brokers/<default>", {"replica.lag.time.max.ms": ""}),
        ("/config/brokers/1", {"inter.broker.protocol.version": "abc"}),
        ("/config/brokers/1", {"zookeeper.session.timeout.ms": "6000\u0663"}),
    ],
)
def test_a_setting_that_kafka_would_not_take_is_told_by_its_node_and_the_rest_goes_on(
    path: str, config: dict[str, str]
) -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.put("/config/topics", None)
    watched = Watched(zookeeper)
    before = watched.partition()
    zookeeper.put(path, {"version": 1, "config": config})
    seen = watched.round()
    (found,) = partitions(seen)
    assert (found.settings, found.rules) == (before.settings, before.rules)
    (told,) = health(seen)
    assert (told.place, told.problem) == (path, ProblemKind.MALFORMED)
    (name,) = config
    assert name in told.reason


def test_a_protocol_that_the_given_version_cannot_speak_is_told_and_its_own_counts() -> None:
    zookeeper = FakeZookeeper.with_topic()
    watched = Watched(zookeeper, version="2.8.2")
    before = watched.partition()
    protocol = {"inter.broker.protocol.version": "3.9"}
    zookeeper.put("/config/brokers/<default>", {"version": 1, "config": protocol})
    seen = watched.round()
    assert partitions(seen)[0].rules == before.rules
    (told,) = health(seen)
    assert told.place == "inter.broker.protocol.version"
    assert "2.8.2 cannot speak protocol 3.9" in told.reason


def test_a_topic_whose_state_was_made_anew_has_settings_of_its_own_at_once() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    brokers.topic_settings["orders"] = {"min.insync.replicas": "2"}
    watched = Watched(zookeeper, brokers, version="2.0.1")
    assert watched.partition().settings.min_insync_replicas == 2
    zookeeper.delete(TOPIC)
    zookeeper.topic("orders", {0: [1, 2, 3]})
    brokers.topic_settings["orders"] = {"min.insync.replicas": "1"}
    assert watched.partition().settings.min_insync_replicas == 1


def test_a_malformed_config_of_a_topic_left_out_is_not_told() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.topic("payments", {0: [1]})
    zookeeper.put("/config/topics", None)
    for topic in ("orders", "payments"):
        zookeeper.put(f"/config/topics/{topic}", b"hunter2")
    (told,) = health(Watched(zookeeper, exclude="payments").round())
    assert (told.place, told.topic) == ("/config/topics/orders", "orders")


# -- watches


def test_what_no_watch_tells_of_is_not_read_again() -> None:
    zookeeper = FakeZookeeper.with_topic(partitions=3)
    watched = Watched(zookeeper)
    watched.round()
    zookeeper.read = Counter()
    watched.round()
    assert set(zookeeper.read) == {"/controller_epoch"}
    zookeeper.state(partition=1, leader=2, isr=[2, 3], epoch=1)
    seen = {each.partition: each.state.leader for each in partitions(watched.round())}
    assert seen == {0: 1, 1: 2, 2: 1}
    assert set(zookeeper.read) == {"/controller_epoch", state_path("orders", 1)}


def test_a_lost_watch_is_made_good_by_the_next_full_reading() -> None:
    zookeeper = FakeZookeeper.with_topic()
    watched = Watched(zookeeper, reread_rounds=5)
    watched.round()
    zookeeper.deaf = True
    zookeeper.state(leader=2, isr=[2, 3], epoch=1)
    leaders = [watched.partition().state.leader for _ in range(5)]
    assert leaders == [1, 1, 1, 1, 2]


def test_topics_and_brokers_that_come_and_go_are_seen_in_the_next_round() -> None:
    zookeeper = FakeZookeeper.with_topic()
    watched = Watched(zookeeper)
    watched.round()
    zookeeper.topic("invoices", {0: [1, 2], 1: [2, 3]})
    zookeeper.delete("/brokers/ids/3")
    seen = watched.round()
    assert {(each.topic, each.partition) for each in partitions(seen)} == {
        ("orders", 0), ("invoices", 0), ("invoices", 1),
    }  # fmt: skip
    assert [r.broker for r in seen[0].registrations] == [1, 2]  # type: ignore[union-attr]
    zookeeper.delete(TOPIC)
    assert {each.topic for each in partitions(watched.round())} == {"invoices"}


def test_a_leaders_notice_of_an_isr_change_is_a_hint_to_read_the_state_again() -> None:
    zookeeper = FakeZookeeper.with_topic()
    watched = Watched(zookeeper, version="1.1.1")
    watched.round()
    zookeeper.deaf = True
    zookeeper.state(leader=1, isr=[1, 2])
    zookeeper.deaf = False
    named = [{"topic": "orders", "partition": 0}]
    zookeeper.put(
        "/isr_change_notification/isr_change_0000000001", {"version": 1, "partitions": named}
    )
    assert watched.partition().state.isr == (1, 2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["state", "register", "deregister", "topic", "drop", "session", "-"]),
            st.integers(1, 3),
        ),
        max_size=12,
    )
)
def test_what_is_kept_is_always_what_a_first_reading_would_find(
    happenings: list[tuple[str, int]],
) -> None:
    zookeeper = FakeZookeeper.with_topic()
    watched = Watched(zookeeper)
    watched.round()
    for number, (what, broker) in enumerate(happenings, 1):
        if what == "state" and STATE in zookeeper.nodes:
            zookeeper.state(leader=broker, isr=[broker], epoch=number)
        elif what == "register":
            zookeeper.delete(f"/brokers/ids/{broker}")
            zookeeper.register(broker)
        elif what == "deregister":
            zookeeper.delete(f"/brokers/ids/{broker}")
        elif what == "topic":
            zookeeper.topic("orders", {n: [1, 2, 3] for n in range(broker)})
        elif what == "drop":
            zookeeper.delete(TOPIC)
        elif what == "session":
            zookeeper.lose_session()
        now, anew = watched.round(), Watched(zookeeper).round()
        assert [
            (p.topic, p.partition, p.state, p.state_czxid, p.live) for p in partitions(now)
        ] == [(p.topic, p.partition, p.state, p.state_czxid, p.live) for p in partitions(anew)]


# -- how far it belongs together


def test_the_controller_epoch_is_read_after_the_states() -> None:
    """The controller changes and writes while states are read; no state is from the future."""
    zookeeper = FakeZookeeper.with_topic(partitions=4)

    def fail_over(path: str) -> None:
        if path == state_path("orders", 2):
            zookeeper.before = lambda _: None
            zookeeper.put("/controller_epoch", 8)
            for number in range(4):
                zookeeper.state(partition=number, leader=2, isr=[2], epoch=1, controller_epoch=8)

    zookeeper.before = fail_over
    watched = Watched(zookeeper)
    for _ in range(2):
        for each in partitions(watched.round()):
            written = each.state.controller_epoch
            assert each.cluster_controller_epoch is not None
            assert written is not None
            assert written <= each.cluster_controller_epoch


def test_a_change_between_the_two_readings_is_straddled() -> None:
    zookeeper = FakeZookeeper.with_topic(partitions=2)
    brokers = FakeCluster.with_topic(partitions=2)
    watched = Watched(zookeeper, brokers)
    watched.round()

    def elect(name: str) -> None:
        if name == "fetch 2":
            brokers.before = lambda _: None
            zookeeper.state(leader=2, isr=[2, 3], epoch=1)

    brokers.before = elect
    seen = {each.partition: each for each in partitions(watched.round())}
    assert seen[0].bracket is Bracket.STRADDLED
    assert seen[1].bracket is Bracket.COHERENT


def test_a_broker_that_registers_anew_during_a_round_straddles_what_it_holds() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    watched = Watched(zookeeper, brokers)
    assert watched.partition().bracket is Bracket.COHERENT

    def restart(name: str) -> None:
        if name == "fetch 3":
            brokers.before = lambda _: None
            zookeeper.delete("/brokers/ids/3")
            zookeeper.register(3)

    brokers.before = restart
    assert watched.partition().bracket is Bracket.STRADDLED
    assert watched.partition().bracket is Bracket.COHERENT


def test_a_session_lost_during_a_round_is_not_coherent_and_health_says_so() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    watched = Watched(zookeeper, brokers, missed_rounds=1)
    watched.round()

    def lose(name: str) -> None:
        if name == "fetch 3":
            brokers.before = lambda _: None
            zookeeper.lose_session()

    brokers.before = lose
    seen = watched.round()
    assert [each.bracket for each in partitions(seen)] == [Bracket.NONE]
    assert "session" in health(seen)[0].reason
    assert health(seen)[0].problem is ProblemKind.SILENT
    after = watched.round()
    assert [each.bracket for each in partitions(after)] == [Bracket.COHERENT]
    assert [each.problem for each in health(after)] == [ProblemKind.OK]


def test_a_session_lost_while_the_tree_is_read_gives_a_blind_round() -> None:
    zookeeper = FakeZookeeper.with_topic()
    watched = Watched(zookeeper, missed_rounds=1)
    watched.round()

    def lose(_: str) -> None:
        zookeeper.before = lambda _: None
        zookeeper.lose_session()

    zookeeper.before = lose
    (told,) = watched.round()
    assert isinstance(told, HealthObservation)
    assert "was lost while it was read" in told.reason
    assert watched.partition().bracket is Bracket.COHERENT


def test_a_server_that_lags_behind_what_was_seen_is_waited_for() -> None:
    zookeeper = FakeZookeeper.with_topic()
    watched = Watched(zookeeper, missed_rounds=1)
    watched.round()
    zookeeper.zxid -= 50
    zookeeper.lose_session()
    for _ in range(3):
        (told,) = watched.round()
        assert "transaction" in told.reason  # type: ignore[union-attr]
    # A store that was restored from an older copy stays behind: then it is read all the same.
    assert watched.partition().bracket is Bracket.COHERENT


def test_zookeeper_away_gives_no_rows_and_says_so_until_it_is_back() -> None:
    zookeeper = FakeZookeeper.with_topic()
    watched = Watched(zookeeper, missed_rounds=2)
    watched.round()
    zookeeper.silent = True
    assert watched.round() == []
    (told,) = watched.round()
    assert (told.problem, told.place) == (ProblemKind.SILENT, "cluster")  # type: ignore[union-attr]
    zookeeper.silent = False
    zookeeper.lose_session()
    seen = watched.round()
    assert [each.problem for each in health(seen)] == [ProblemKind.OK]
    assert len(partitions(seen)) == 1


def test_a_leader_that_does_not_name_its_epoch_is_believed_under_a_settled_state() -> None:
    """Before 2.1: the state must have been the same a round ago."""
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    for replica in brokers.replicas.values():
        replica.names_epoch = False
    watched = Watched(zookeeper, brokers, version="1.1.1")
    assert [watched.partition().bracket for _ in range(2)] == [
        Bracket.STRADDLED, Bracket.COHERENT,
    ]  # fmt: skip
    zookeeper.state(leader=2, isr=[2, 3], epoch=1)
    # The new leader has not heard of it: it says that it does not lead.
    assert [watched.partition().bracket for _ in range(3)] == [Bracket.STRADDLED] * 3
    brokers.elect(2)
    for replica in brokers.replicas.values():
        replica.names_epoch = False
    assert watched.partition().bracket is Bracket.COHERENT


# -- what cannot be read


@pytest.mark.parametrize(
    ("path", "data"),
    [
        pytest.param(STATE, b"not json", id="state"),
        pytest.param(STATE, b'{"leader":1}', id="half-a-state"),
        pytest.param(TOPIC, b'{"partitions":7}', id="topic"),
    ],
)
def test_a_malformed_node_is_named_and_the_last_good_value_is_never_coherent(
    path: str, data: bytes
) -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.topic("invoices", {0: [1, 2, 3]})
    watched = Watched(zookeeper)
    watched.round()
    good = zookeeper.nodes[path].data
    zookeeper.put(path, data)
    seen = watched.round()
    (told,) = health(seen)
    assert (told.problem, told.place, told.topic) == (ProblemKind.MALFORMED, path, "orders")
    by_topic = {each.topic: each for each in partitions(seen)}
    assert by_topic["orders"].state.leader == 1
    assert by_topic["orders"].bracket is Bracket.STRADDLED
    assert by_topic["invoices"].bracket is Bracket.COHERENT
    zookeeper.put(path, good)
    seen = watched.round()
    assert [each.problem for each in health(seen)] == [ProblemKind.OK]
    assert {each.bracket for each in partitions(seen)} == {Bracket.COHERENT}


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        pytest.param("/brokers/ids/x", {"version": 4}, "a broker id", id="no-id"),
        *(
            pytest.param(f"/brokers/ids/{name}", {"version": 4}, "a broker id", id=f"id-{which}")
            for which, name in (
                ("power", "\u00b2"),
                ("arabic", "\u0663"),
                ("nought", "03"),
                ("large", "9" * 30),
                ("huge", "9" * 5_000),
                ("above-int", "2147483648"),
            )
        ),
        pytest.param("/controller", b"{", "JSON", id="controller"),
        pytest.param("/controller_epoch", b"one", "whole number", id="controller-epoch"),
        pytest.param("/admin/reassign_partitions", b"[]", "JSON object", id="reassignments"),
        pytest.param("/admin/preferred_replica_election", b"1", "JSON", id="elections"),
        pytest.param("/config/topics/orders", b"{", "JSON", id="config"),
        pytest.param("/cluster/id", {"version": "1"}, "id", id="cluster-id"),
        pytest.param("/feature", {"features": 7}, "JSON object", id="feature"),
        pytest.param("/migration", {"version": 0}, "kraft_controller_id", id="migration"),
        pytest.param("/latest_producer_id_block", {"block_start": "x"}, "block", id="producers"),
        pytest.param(
            "/log_dir_event_notification/log_dir_event_0000000000", b"{", "JSON", id="log-dir-event"
        ),
    ],
)
def test_any_malformed_node_is_told_by_its_path_and_the_rest_goes_on(
    path: str, content: object, says: str
) -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.put(path, content)
    seen = Watched(zookeeper).round()
    (told,) = health(seen)
    assert (told.problem, told.place) == (ProblemKind.MALFORMED, path)
    assert says in told.reason
    assert told.remedy
    assert len(partitions(seen)) == 1


@pytest.mark.parametrize("name", ["\u00b2", "\u0663", "03", "9" * 5_000])
def test_settings_of_a_broker_that_cannot_be_are_left_alone(name: str) -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.put(f"/config/brokers/{name}", {"version": 1, "config": {}})
    seen = Watched(zookeeper).round()
    assert not health(seen)
    assert len(partitions(seen)) == 1


def test_a_registration_that_no_session_holds_is_told_and_counts_as_the_controller_counts_it() -> (
    None
):
    """A stale node: nobody answers behind it, and the controller may make the broker leader."""
    zookeeper = FakeZookeeper.with_topic()
    node = zookeeper.nodes["/brokers/ids/3"]
    zookeeper.nodes["/brokers/ids/3"] = node._replace(ephemeral_owner=0)
    seen = Watched(zookeeper).round()
    (told,) = health(seen)
    assert (told.problem, told.place, told.broker) == (ProblemKind.MALFORMED, "/brokers/ids/3", 3)
    assert "belongs to no session" in told.reason
    (cluster,) = [each for each in seen if isinstance(each, ClusterObservation)]
    assert [each.broker for each in cluster.registrations] == [1, 2, 3]


def test_a_node_that_is_half_created_is_told_only_if_it_stays_so() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.put("/controller", b"")
    watched = Watched(zookeeper, missed_rounds=3)
    assert [len(health(watched.round())) for _ in range(3)] == [0, 0, 1]


def test_a_partition_that_stays_without_a_state_is_told_by_its_topic() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.delete(STATE)
    watched = Watched(zookeeper, missed_rounds=2)
    assert health(watched.round()) == []
    (told,) = health(watched.round())
    assert (told.topic, told.place) == ("orders", "/brokers/topics/orders/partitions")


def test_nodes_that_may_not_be_read_are_named_with_the_right_that_is_missing() -> None:
    zookeeper = FakeZookeeper.with_topic()
    for path in ("/cluster/id", "/feature", "/migration", "/latest_producer_id_block"):
        zookeeper.put(path, {})
    zookeeper.put("/log_dir_event_notification", None)
    zookeeper.refused = {
        *("/config/topics/orders", "/admin/delete_topics", "/log_dir_event_notification"),
        *("/cluster/id", "/feature", "/migration", "/latest_producer_id_block"),
    }
    seen = Watched(zookeeper).round()
    assert {each.place for each in health(seen)} == zookeeper.refused
    assert all("right r" in each.remedy for each in health(seen))
    assert len(partitions(seen)) == 1


def test_the_page_of_permissions_lists_what_is_read_and_no_more() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.put("/config/users/alice", {})
    zookeeper.put("/config/brokers/<default>", {"version": 1, "config": {}})
    zookeeper.put("/admin/delete_topics/gone", None)
    zookeeper.put("/isr_change_notification/isr_change_0", {"version": 1, "partitions": []})
    zookeeper.put(f"{EVENTS}/log_dir_event_0000000000", {"version": 1, "broker": 2, "event": 1})
    Watched(zookeeper).round()
    listed, below = znodes_of_the_page()
    assert all(
        path in listed or any(path.startswith(f"{each}/") for each in below)
        for path in zookeeper.read
    ), sorted(zookeeper.read)
    assert listed <= set(zookeeper.read)
    assert all(any(path.startswith(f"{each}/") for path in zookeeper.read) for each in below)


def znodes_of_the_page() -> tuple[set[str], set[str]]:
    """All that are listed, and those of them whose children are, too."""
    page = (Path(__file__).parents[2] / "docs/permissions.md").read_text(encoding="utf-8")
    section = page.partition("## ZooKeeper")[2].partition("\n## ")[0]
    rows = "".join(row.split("|")[1] for row in section.splitlines() if row.startswith("| `/"))
    return set(re.findall(r"`(/[^`]*)`", rows)), set(re.findall(r"`(/[^`]*)` and below", rows))


def test_a_wrong_chroot_is_named() -> None:
    watched = Watched(FakeZookeeper(), missed_rounds=1)
    (told,) = watched.round()
    assert "zk:2181/kafka" in told.reason  # type: ignore[union-attr]
    assert "chroot" in told.remedy  # type: ignore[union-attr]


# -- whose tree it is


def test_what_is_said_of_the_cluster_as_a_whole_is_kept_and_watched() -> None:
    zookeeper = FakeZookeeper.with_topic()
    tree = ZookeeperTree(zookeeper, reread_rounds=1_000)
    assert tree.look(1).about == About()  # as before 0.10.1
    zookeeper.put("/latest_producer_id_block", None)  # nobody has asked for an id yet
    assert (tree.look(2).about, tree.look(2).problems) == (About(), ())
    zookeeper.put("/cluster/id", {"version": "1", "id": "west-id"})
    zookeeper.put("/feature", {"version": 2, "status": 1, "features": {}})
    zookeeper.put("/migration", MIGRATION | {"kraft_controller_id": -1})
    block = {"version": 1, "broker": 1, "block_start": "1000", "block_end": "1999"}
    zookeeper.put("/latest_producer_id_block", block)
    about = tree.look(3).about
    assert (about.cluster_id, about.features, about.producer_ids) == (
        "west-id",
        {},
        range(1000, 2000),
    )
    assert about.migration == Migration(-1, 4, 100, 4)
    assert tree.look(4).problems == ()
    assert zookeeper.read["/cluster/id"] == 2
    level = {"metadata.version": {"max_version_level": 21}}
    zookeeper.put("/feature", {"version": 2, "status": 1, "features": level})
    assert tree.look(5).about.features == {"metadata.version": 21}


def test_zookeeper_and_brokers_of_two_clusters_are_told_at_once_and_nothing_is_judged() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    zookeeper.put("/cluster/id", {"version": "1", "id": "east-id"})
    brokers.cluster_id = "west-id"
    watched = Watched(zookeeper, brokers, missed_rounds=3)
    (told,) = watched.round()
    assert isinstance(told, HealthObservation)
    assert (told.problem, told.place) == (ProblemKind.UNREADABLE, "cluster")
    assert "zk:2181/kafka is of cluster east-id" in told.reason
    assert "brokers are of cluster west-id" in told.reason
    assert "correct zookeeper_connect if west-id is the cluster to watch" in told.remedy
    assert "bootstrap_servers if it is east-id" in told.remedy
    # Brokers that do not answer now are no others.
    brokers.errors = {"metadata": ClusterUnreachableError("somewhere:9092", "timed out")}
    (again,) = watched.round()
    assert again == replace(told, observed_at_ms=told.observed_at_ms + 5_000, round=2)
    brokers.errors, brokers.cluster_id = {}, "east-id"
    seen = watched.round()
    assert [each.problem for each in health(seen)] == [ProblemKind.OK]
    assert [each.bracket for each in partitions(seen)] == [Bracket.COHERENT]


@pytest.mark.parametrize(
    ("in_zookeeper", "of_brokers"),
    [(None, None), (None, "west-id"), ("west-id", None), ("west-id", "west-id")],
)
def test_an_id_that_only_one_side_tells_is_no_difference(
    in_zookeeper: str | None, of_brokers: str | None
) -> None:
    """Before 0.10.1 neither does; brokers that are away tell none."""
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    brokers.cluster_id = of_brokers
    if in_zookeeper is not None:
        zookeeper.put("/cluster/id", {"version": "1", "id": in_zookeeper})
    seen = Watched(zookeeper, brokers).round()
    assert (len(partitions(seen)), health(seen)) == (1, [])


def kraft_takes_over(zookeeper: FakeZookeeper) -> None:
    content = {"version": 2, "brokerid": 3000, "timestamp": "1", "kraftControllerEpoch": 4}
    zookeeper.put("/controller", content)
    zookeeper.put("/controller_epoch", 8)
    zookeeper.put("/migration", MIGRATION)


def test_a_cluster_that_moved_to_kraft_is_told_at_once_and_nothing_is_judged_by_its_copy() -> None:
    """Brokers in KRaft mode register with the quorum alone: the leaders of a tree that stands still
    would look dead."""
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    watched = Watched(zookeeper, brokers, missed_rounds=3)
    assert watched.partition().bracket is Bracket.COHERENT
    kraft_takes_over(zookeeper)
    for broker in (1, 2, 3):
        zookeeper.delete(f"/brokers/ids/{broker}")
        (told,) = watched.round()
        assert isinstance(told, HealthObservation)
        assert told.problem is ProblemKind.UNREADABLE
        assert "KRaft controller 3000 is in charge" in told.reason
        assert "without zookeeper_connect" in told.remedy
    # Also without anybody in /controller.
    zookeeper.delete("/controller")
    (told,) = watched.round()
    assert "KRaft controller 3000 is in charge" in told.reason  # type: ignore[union-attr]


def test_a_kraft_controller_that_takes_over_during_a_round_leaves_nothing_coherent() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    watched = Watched(zookeeper, brokers)
    watched.round()

    def take_over(name: str) -> None:
        if name == "fetch 3":
            brokers.before = lambda _: None
            kraft_takes_over(zookeeper)

    brokers.before = take_over
    seen = watched.round()
    assert [each.bracket for each in partitions(seen)] == [Bracket.NONE]
    assert "KRaft controller 3000" in health(seen)[0].reason


def test_a_migration_that_has_not_begun_is_nothing_and_one_rolled_back_is_told() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.put("/migration", MIGRATION | {"kraft_controller_id": -1})
    watched = Watched(zookeeper)
    assert health(watched.round()) == []
    zookeeper.put("/migration", MIGRATION)
    seen = watched.round()
    (told,) = health(seen)
    assert (told.place, told.problem) == ("/migration", ProblemKind.UNREADABLE)
    assert "rolled back" in told.remedy
    assert [each.bracket for each in partitions(seen)] == [Bracket.COHERENT]
    zookeeper.delete("/migration")
    assert [each.problem for each in health(watched.round())] == [ProblemKind.OK]


# -- log directories that were lost


EVENTS = "/log_dir_event_notification"


@pytest.mark.parametrize("taken_up", [True, False])
def test_a_lost_log_directory_is_looked_for_at_once(taken_up: bool) -> None:
    """The controller removes the event, most often before we can read it."""
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    zookeeper.put(EVENTS, None)
    watched = Watched(zookeeper, brokers, missed_rounds=3, log_dirs_refresh_ms=3_600_000)
    for _ in range(3):
        assert health(watched.round()) == []
    assert brokers.asked["log_dirs"] == 3
    brokers.directories[2] = (LogDir("/data", KAFKA_STORAGE_ERROR),)
    zookeeper.put(f"{EVENTS}/log_dir_event_0000000000", {"version": 1, "broker": 2, "event": 1})
    if taken_up:
        zookeeper.delete(f"{EVENTS}/log_dir_event_0000000000")
    (told,) = health(watched.round())
    assert (told.place, told.broker) == ("log directory /data of broker 2", 2)
    assert brokers.asked["log_dirs"] == 6
    watched.round()
    assert brokers.asked["log_dirs"] == 6
    # An event that nobody takes up is told where it stays.
    places = {each.place for each in health(watched.round())}
    assert (f"{EVENTS}/log_dir_event_0000000000" in places) is not taken_up


def test_a_log_directory_lost_while_there_was_no_session_is_looked_for() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    watched = Watched(zookeeper, brokers, log_dirs_refresh_ms=3_600_000)
    watched.round()
    zookeeper.lose_session()
    zookeeper.put(f"{EVENTS}/log_dir_event_0000000007", {"version": 1, "broker": 2, "event": 1})
    watched.round()
    assert brokers.asked["log_dirs"] == 6


def test_an_event_of_a_log_directory_names_the_broker_also_without_brokers_to_ask() -> None:
    zookeeper = FakeZookeeper.with_topic()
    zookeeper.put(f"{EVENTS}/log_dir_event_0000000007", {"version": 1, "broker": 2, "event": 1})
    watched = Watched(zookeeper, missed_rounds=2)
    assert health(watched.round()) == []
    (told,) = health(watched.round())
    assert (told.problem, told.broker) == (ProblemKind.LOG_DIR_OFFLINE, 2)


def test_brokers_that_are_all_away_do_not_keep_zookeeper_from_being_read() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    brokers.silent = {1, 2, 3}
    brokers.errors = {"software": UnsupportedRequestError("ApiVersions")}
    watched = Watched(zookeeper, brokers, missed_rounds=1)
    seen = watched.round()
    (partition,) = partitions(seen)
    assert (partition.state.leader, partition.replicas) == (1, ())
    assert {each.place for each in health(seen)} >= {"broker 1", "broker 2", "broker 3"}


def test_who_answers_is_not_told_while_somebody_is_left_alone() -> None:
    """A broker that was paused may answer again long before it is asked again."""
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    brokers.silent = {3}
    watched = Watched(zookeeper, brokers, backoff_ms=60_000, backoff_max_ms=60_000)
    told = [watched.cluster().answering for _ in range(3)]
    assert told == [(1, 2), None, None]


def test_a_broker_that_registered_anew_is_asked_at_once() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    brokers.silent = {3}
    watched = Watched(zookeeper, brokers, backoff_ms=60_000, backoff_max_ms=60_000)
    watched.round()
    assert watched.cluster().answering is None
    brokers.silent = set()
    zookeeper.delete("/brokers/ids/3")
    zookeeper.register(3)
    assert watched.cluster().answering == (1, 2, 3)


def test_a_change_of_leaders_raises_nothing() -> None:
    zookeeper, brokers = FakeZookeeper.with_topic(), FakeCluster.with_topic()
    watched = Watched(zookeeper, brokers)
    memory = None
    for number in range(6):
        if number == 2:
            zookeeper.delete("/brokers/ids/1")
            zookeeper.state(leader=2, isr=[2, 3], epoch=1)
            brokers.elect(2, ORDERS)
        memory, verdicts = step(memory, watched.partition())
        assert verdicts.violated == ()
    assert memory is not None
    assert memory.state.partition_epoch == 1


# -- options


def test_the_version_must_be_given_where_no_broker_can_be_asked() -> None:
    with pytest.raises(OptionError, match="version is missing"):
        Watched(FakeZookeeper.with_topic(), version=None)


def test_an_option_of_brokers_is_refused_where_no_broker_is_asked() -> None:
    with pytest.raises(OptionError, match="bootstrap_servers is not known"):
        options_without_brokers({"bootstrap_servers": "a:1"}, {})
    assert options_without_brokers({"include": "orders", "version": "3.9.1"}, {}).wants("orders")


def test_a_cluster_that_never_stands_still_keeps_all_its_partitions() -> None:
    """What is called gone is forgotten: it must not happen because too much else did."""
    zookeeper = FakeZookeeper.with_topic(partitions=2)
    watched = Watched(zookeeper)
    watched.round()
    epochs = iter(range(1, 1_000))

    def moves(path: str) -> None:
        if path == "/controller_epoch":
            zookeeper.state(leader=1, isr=(1, 2, 3), epoch=next(epochs))

    zookeeper.before = moves
    for _ in range(5):
        seen = [each for each in watched.round() if isinstance(each, PartitionObservation)]
        assert [(each.partition, each.bracket) for each in seen] == [
            (0, Bracket.STRADDLED),
            (1, Bracket.COHERENT),
        ]
