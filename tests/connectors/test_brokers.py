"""Rounds of the broker connector against a cluster of plain values: what is read, how far it
belongs together, and what is said where something cannot be read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from tidestaff.connectors.broker_answers import (
    KAFKA_STORAGE_ERROR,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    Eligible,
    EpochEnd,
    Moving,
    Quorum,
    Software,
)
from tidestaff.connectors.broker_decoding import values_of
from tidestaff.connectors.broker_lineage import Leading, walk
from tidestaff.connectors.broker_options import BrokerOptions, options_of
from tidestaff.connectors.broker_settings import ClusterSettings, rules_of
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.connectors.errors import (
    ClusterUnreachableError,
    ControllerSilentError,
    NotAuthorizedError,
    OptionError,
    UnsupportedRequestError,
)
from tidestaff.connectors.pacing import Pace
from tidestaff.connectors.setting_values import Told
from tidestaff.connectors.wire import observation_of, row_of
from tidestaff.consistency.model import (
    Assignment,
    Bracket,
    EpochEntry,
    LineageSource,
    PartitionSettings,
    ProblemKind,
    SettingSource,
    TopicPartition,
)
from tidestaff.consistency.monitor import step
from tidestaff.consistency.versions import Mode

from tests.connectors.fake_brokers import ORDERS, FakeCluster, FakeReplica
from tests.connectors.watched import ROUND_MS, Watched, cluster_of, health, partitions

TOLD = (
    *("unclean_leader_election_enable", "min_insync_replicas"),
    "replica_lag_time_max_ms",
)


def test_every_replica_is_read_from_its_own_broker() -> None:
    cluster = FakeCluster.with_topic()
    cluster.replicas[2, ORDERS] = FakeReplica(leo=9, hw=8, start=1)
    seen = Watched(cluster).partition()
    assert [(r.broker, r.log_start_offset, r.high_watermark, r.log_end_offset, r.leads)
            for r in seen.replicas] == [
        (1, 0, 10, 10, True), (2, 1, 8, 9, False), (3, 0, 10, 10, False),
    ]  # fmt: skip
    assert seen.leader_again == seen.replicas[0]
    assert seen.bracket is Bracket.COHERENT


def test_brokers_metadata_is_not_authoritative_and_has_no_partition_epoch() -> None:
    seen = Watched(FakeCluster.with_topic()).partition()
    assert not seen.authoritative
    assert seen.state.partition_epoch == -1
    assert seen.topic_id == "id-of-orders"
    assert {r.topic_id for r in seen.replicas} == {"id-of-orders"}


@pytest.mark.parametrize(
    ("version", "share"),
    [
        pytest.param("0.10.2.2", None, id="replicas-in-the-order-of-their-ids"),
        pytest.param("1.1.1", 1.0, id="replicas-in-the-order-of-the-assignment"),
    ],
)
def test_the_preferred_leader_is_known_where_brokers_tell_the_order(
    version: str, share: float | None
) -> None:
    """Led by 2 for ever: where the first of the list need not be preferred, nobody is accused."""
    cluster = FakeCluster.with_topic(leader=2)
    watched = Watched(cluster, version=version, mode="zookeeper")
    seen = watched.partition()
    assert seen.preferred_imbalance == share
    memory = None
    codes: set[str] = set()
    for number in range(40):
        later = replace(seen, observed_at_ms=seen.observed_at_ms + 30_000 * number)
        memory, verdicts = step(memory, later)
        codes |= {each.code for each in verdicts.violated}
    assert ("ELE010" in codes) is (share is not None)


def test_a_replica_is_read_in_the_order_log_start_watermark_log_end() -> None:
    """Everything grows with every question; in this order no value is above the next."""
    cluster = FakeCluster.with_topic()

    def grow(_: str) -> None:
        for place, replica in cluster.replicas.items():
            cluster.replicas[place] = replace(
                replica, start=replica.start + 5, hw=replica.hw + 5, leo=replica.leo + 5
            )

    for replica in cluster.replicas.values():
        replica.start, replica.hw, replica.leo = 10, 14, 18
    cluster.before = grow
    for reading in Watched(cluster).partition().replicas:
        assert reading.log_start_offset is not None
        assert reading.high_watermark is not None
        assert reading.log_end_offset is not None
        assert reading.log_start_offset < reading.high_watermark < reading.log_end_offset


def test_leaders_are_read_before_followers_and_again_after_them() -> None:
    cluster = FakeCluster.with_topic(leader=2)
    asked: list[str] = []
    cluster.before = asked.append
    Watched(cluster).round()
    fetches = [each for each in asked if each.startswith(("fetch", "metadata"))]
    assert fetches == ["metadata", "fetch 2", "fetch 1", "fetch 3", "fetch 2", "metadata"]


def elected(cluster: FakeCluster) -> None:
    cluster.elect(2)


def isr_shrinks(cluster: FakeCluster) -> None:
    cluster.partitions[ORDERS] = cluster.partitions[ORDERS]._replace(isr=(1, 3))


def made_again(cluster: FakeCluster) -> None:
    cluster.partitions[ORDERS] = cluster.partitions[ORDERS]._replace(topic_id="another")


def vanishes(cluster: FakeCluster) -> None:
    del cluster.partitions[ORDERS]
    cluster.replicas.clear()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(elected, id="a-new-leader"),
        pytest.param(isr_shrinks, id="another-isr"),
        pytest.param(made_again, id="a-topic-made-again"),
        pytest.param(vanishes, id="a-topic-that-vanishes"),
    ],
)
@pytest.mark.parametrize("moment", ["fetch 1", "latest 2", "fetch 3", "epoch_ends 1"])
def test_what_changes_while_it_is_read_is_straddled(change: Any, moment: str) -> None:
    cluster = FakeCluster.with_topic()
    changed: list[str] = []

    def live_on(asked: str) -> None:
        if asked == moment and not changed:
            changed.append(asked)
            change(cluster)

    cluster.before = live_on
    seen = Watched(cluster).partition()
    assert changed
    assert seen.bracket is Bracket.STRADDLED


def test_a_leader_in_another_epoch_than_the_metadata_is_straddled() -> None:
    cluster = FakeCluster.with_topic()
    cluster.replicas[1, ORDERS] = FakeReplica(epoch=1, leads=True, lineage=((0, 0), (1, 10)))
    assert Watched(cluster).partition().bracket is Bracket.STRADDLED


def test_a_leader_that_says_it_does_not_lead_is_straddled() -> None:
    cluster = FakeCluster.with_topic()
    cluster.replicas[1, ORDERS] = FakeReplica(leads=False)
    assert Watched(cluster).partition().bracket is Bracket.STRADDLED


def test_without_a_leader_the_metadata_alone_makes_it_coherent() -> None:
    cluster = FakeCluster.with_topic()
    cluster.partitions[ORDERS] = cluster.partitions[ORDERS]._replace(leader=-1)
    seen = Watched(cluster).partition()
    assert seen.bracket is Bracket.COHERENT
    assert seen.leader_again is None


def test_metadata_that_cannot_be_read_again_leaves_no_bracket() -> None:
    cluster = FakeCluster.with_topic()

    def fail_later(asked: str) -> None:
        if asked == "ping 1" or asked.startswith("fetch"):
            cluster.errors["metadata"] = ClusterUnreachableError("somewhere:9092", "timed out")

    cluster.before = fail_later
    assert Watched(cluster).partition().bracket is Bracket.NONE


def test_a_replica_that_becomes_leader_between_two_questions_claims_no_epoch() -> None:
    """It names epoch 0 with its log end and leads in epoch 1: leading in 0 would be a lie."""
    cluster = FakeCluster.with_topic()
    cluster.before = lambda asked: elected(cluster) if asked == "epoch_ends 2" else None
    seen = Watched(cluster).partition()
    assert [(r.broker, r.leads, r.leader_epoch) for r in seen.replicas if r.broker == 2] == [
        (2, None, 0)
    ]


def test_a_watermark_of_an_older_epoch_than_the_log_end_is_left_out() -> None:
    cluster = FakeCluster.with_topic()
    cluster.before = lambda asked: elected(cluster) if asked == "fetch 2" else None
    (reading,) = [r for r in Watched(cluster).partition().replicas if r.broker == 2]
    assert reading.high_watermark is None
    assert reading.log_end_offset == 10


def test_a_log_cut_before_the_fetch_has_no_watermark_but_a_log_end() -> None:
    cluster = FakeCluster.with_topic()
    cluster.replicas[2, ORDERS].fetch_error = OFFSET_OUT_OF_RANGE
    (reading,) = [r for r in Watched(cluster).partition().replicas if r.broker == 2]
    assert (reading.high_watermark, reading.log_end_offset) == (None, 10)


# -- lineage


def leader_with(*lineage: tuple[int, int], start: int = 0, leo: int = 100) -> FakeReplica:
    return FakeReplica(
        start=start, leo=leo, epoch=lineage[-1][0], leads=True, lineage=tuple(lineage)
    )


@pytest.mark.parametrize(
    ("replica", "told"),
    [
        pytest.param(leader_with((0, 0)), ((0, 0),), id="one-epoch"),
        pytest.param(leader_with((0, 0), (1, 5), (4, 9)), ((0, 0), (1, 5), (4, 9)), id="with-gaps"),
        pytest.param(
            leader_with((3, 7), (4, 9), start=7), ((3, 7), (4, 9)), id="trimmed-at-the-start"
        ),
        pytest.param(leader_with((1, 7), start=7), ((1, 7),), id="epoch-0-is-trimmed-away"),
        pytest.param(leader_with((2, 0), (5, 0 + 4)), ((2, 0), (5, 4)), id="first-epoch-is-not-0"),
        pytest.param(leader_with((0, 0), (1, 100)), ((0, 0), (1, 100)), id="newest-epoch-is-empty"),
    ],
)
def test_the_leaders_lineage_is_complete(
    replica: FakeReplica, told: tuple[tuple[int, int], ...]
) -> None:
    cluster = FakeCluster.with_topic(epoch=replica.epoch)
    cluster.replicas[1, ORDERS] = replica
    leader = Watched(cluster).partition().replicas[0]
    assert leader.lineage == tuple(EpochEntry(*each) for each in told)
    assert leader.lineage_source is LineageSource.LEADER_ANSWERS


def test_a_follower_tells_no_lineage() -> None:
    seen = Watched(FakeCluster.with_topic()).partition()
    assert [r.lineage for r in seen.replicas if not r.leads] == [None, None]


def test_a_lineage_that_changes_while_it_is_asked_for_is_not_delivered() -> None:
    """Retention moves the first entry between two answers."""
    answers = iter([(1, 9), (0, 12)])
    found = walk(
        {ORDERS: Leading(4, 4, 0)},
        lambda asked: [EpochEnd(0, *next(answers)) for _ in asked],
    )
    assert (found.found, found.too_long) == ({}, [])


def test_a_leader_with_hundreds_of_epochs_tells_its_lineage_once() -> None:
    cluster = FakeCluster.with_topic(epoch=400)
    for replica in cluster.replicas.values():
        replica.leo = replica.hw = 1_000
    watched = Watched(cluster, header_fetches=0)
    watched.round()
    cluster.asked.clear()
    leader = watched.partition().replicas[0]
    assert leader.lineage == tuple(EpochEntry(each, 2 * each) for each in range(401))
    assert cluster.asked["epoch_ends"] == 2


def test_a_lineage_that_is_too_long_is_told_and_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidestaff.connectors.broker_lineage.LONGEST", 20)
    cluster = FakeCluster.with_topic(epoch=30)
    for replica in cluster.replicas.values():
        replica.leo = replica.hw = 100
    watched = Watched(cluster, header_fetches=0, settings_refresh_ms=3 * ROUND_MS)
    (told,) = health(watched.round())
    assert (told.place, told.problem, told.broker, told.topic) == (
        *("lineage of topic orders on broker 1", ProblemKind.UNREADABLE, 1, "orders"),
    )
    assert "tidestaff agent" in told.remedy
    cluster.asked.clear()
    assert [each.place for each in health(watched.round())] == [told.place]
    assert cluster.asked["epoch_ends"] == 2
    # Retention has removed the older ones. It is looked for when everything is asked anew.
    for replica in cluster.replicas.values():
        replica.start, replica.lineage = 50, replica.lineage[25:]
    seen = [watched.round() for _ in range(2)]
    assert partitions(seen[-1])[0].replicas[0].lineage is not None
    assert [each.problem for each in health(seen[-1])] == [ProblemKind.OK]


def test_a_lineage_that_was_cut_while_it_was_asked_for_is_asked_for_again() -> None:
    cluster = FakeCluster.with_topic(epoch=4)
    cluster.replicas[1, ORDERS].lineage = ((0, 0), (1, 12), (4, 8))
    watched = Watched(cluster, header_fetches=0)
    seen = watched.round()
    assert (partitions(seen)[0].replicas[0].lineage, health(seen)) == (None, [])
    cluster.replicas[1, ORDERS].lineage = ((0, 0), (4, 8))
    assert watched.partition().replicas[0].lineage == (EpochEntry(0, 0), EpochEntry(4, 8))


def test_a_known_lineage_costs_one_question_a_reading_and_follows_the_log_start() -> None:
    cluster = FakeCluster.with_topic(epoch=4)
    watched = Watched(cluster)
    watched.round()
    cluster.asked.clear()
    cluster.replicas[1, ORDERS].start = 5
    leader = watched.partition().replicas[0]
    assert cluster.asked["epoch_ends"] == 2  # the leader twice
    assert leader.lineage == (EpochEntry(2, 5), EpochEntry(3, 6), EpochEntry(4, 8))


def test_brokers_without_epochs_are_read_without_lineage() -> None:
    cluster = FakeCluster.with_topic()
    cluster.errors["epoch_ends"] = UnsupportedRequestError("OffsetForLeaderEpoch")
    seen = Watched(cluster).partition()
    assert [(r.leads, r.lineage, r.log_end_offset) for r in seen.replicas] == [(None, None, 10)] * 3


# -- settings, version, controller


def test_settings_come_from_topic_and_brokers() -> None:
    cluster = FakeCluster.with_topic()
    cluster.topic_settings["orders"] = {
        "unclean.leader.election.enable": "true",
        "min.insync.replicas": "2",
        "cleanup.policy": "compact,delete",
        "remote.storage.enable": "true",
    }
    cluster.broker_settings = {
        "replica.lag.time.max.ms": "7000",
        "broker.session.timeout.ms": "6000",
    }
    seen = Watched(cluster).round()
    settings = partitions(seen)[0].settings
    assert (settings.unclean_leader_election_enable, settings.min_insync_replicas) == (True, 2)
    assert (settings.compacted, settings.remote_storage) == (True, True)
    assert settings.replica_lag_time_max_ms == 7_000
    assert settings.session_timeout_ms == cluster_of(seen).session_timeout_ms == 6_000
    assert [settings.told(name) for name in TOLD] == [
        "unclean.leader.election.enable=true (topic override)",
        "min.insync.replicas=2 (topic override)",
        "replica.lag.time.max.ms=7000 (brokers' properties)",
    ]


def test_a_setting_that_nobody_told_of_has_no_source() -> None:
    cluster = FakeCluster.with_topic()
    cluster.topic_settings["orders"] = {}
    settings = Watched(cluster).partition().settings
    assert [settings.told(name) for name in TOLD] == [
        "unclean.leader.election.enable=false",
        "min.insync.replicas=1",
        "replica.lag.time.max.ms=30000",
    ]


class Described(NamedTuple):
    """An entry of a DescribeConfigs answer, as the library gives it."""

    name: str
    value: str | None
    config_source: int = -1
    is_default: bool = False


class Result(NamedTuple):
    configs: list[Described]


@pytest.mark.parametrize(
    ("said", "topic", "source"),
    [
        pytest.param({"config_source": 1}, True, SettingSource.TOPIC, id="topic-override"),
        pytest.param({"config_source": 2}, True, SettingSource.BROKER, id="dynamic-of-one-broker"),
        pytest.param({"config_source": 3}, True, SettingSource.CLUSTER, id="dynamic-of-all"),
        pytest.param({"config_source": 4}, False, SettingSource.STATIC, id="properties"),
        pytest.param({"config_source": 5}, False, SettingSource.DEFAULT, id="kafkas-default"),
        pytest.param({"config_source": 0}, True, SettingSource.UNKNOWN, id="broker-does-not-know"),
        pytest.param({"config_source": 99}, True, SettingSource.UNKNOWN, id="of-a-later-release"),
        pytest.param({}, True, SettingSource.TOPIC, id="before-1.1-topic-with-its-own-value"),
        pytest.param(
            {"is_default": True}, True, SettingSource.UNKNOWN, id="before-1.1-topic-or-its-broker"
        ),
        pytest.param({}, False, SettingSource.STATIC, id="before-1.1-broker-has-only-properties"),
        pytest.param(
            {"is_default": True}, False, SettingSource.DEFAULT, id="before-1.1-broker-default"
        ),
    ],
)
def test_an_answer_says_where_a_value_comes_from(
    said: dict[str, int], topic: bool, source: SettingSource
) -> None:
    answer = Result([Described("min.insync.replicas", "2", **said), Described("secret", None)])
    assert values_of(answer, topic=topic) == {"min.insync.replicas": Told("2", source)}


def test_a_topic_that_went_and_came_back_is_told_with_what_it_says_now() -> None:
    cluster = FakeCluster.with_topic()
    cluster.topic_settings["orders"] = {"min.insync.replicas": "2"}
    watched = Watched(cluster)
    watched.round()
    orders = cluster.partitions.pop(ORDERS)
    cluster.partitions[TopicPartition("invoices", 0)] = orders._replace(topic_id="another")
    watched.round()
    cluster.partitions[ORDERS] = orders
    cluster.topic_settings["orders"] = {"min.insync.replicas": "1"}
    found = {each.topic: each.settings.min_insync_replicas for each in partitions(watched.round())}
    assert found == {"orders": 1, "invoices": 1}


def test_a_topic_made_anew_between_two_rounds_has_settings_of_its_own_at_once() -> None:
    cluster = FakeCluster.with_topic()
    cluster.topic_settings["orders"] = {"min.insync.replicas": "2"}
    watched = Watched(cluster)
    assert watched.partition().settings.min_insync_replicas == 2
    cluster.partitions[ORDERS] = cluster.partitions[ORDERS]._replace(topic_id="another")
    cluster.topic_settings["orders"] = {"unclean.leader.election.enable": "true"}
    settings = watched.partition().settings
    assert (settings.unclean_leader_election_enable, settings.min_insync_replicas) == (True, 1)


def test_settings_of_a_topic_nobody_told_of_are_the_defaults() -> None:
    """A watch or a burst may show a topic before its settings are asked for."""
    settings = ClusterSettings(FakeCluster(), BrokerOptions("somewhere:9092"))
    settings.refresh([1], {}, 0)
    assert settings.of("orders").min_insync_replicas == 1


@pytest.mark.parametrize(
    ("topic", "broker", "place"),
    [
        pytest.param(
            {"min.insync.replicas": "two"}, {}, "settings of topic orders", id="min-isr-in-words"
        ),
        pytest.param(
            {"unclean.leader.election.enable": ""}, {}, "settings of topic orders", id="no-flag"
        ),
        pytest.param(
            {}, {"replica.lag.time.max.ms": "9" * 30}, "settings of broker 1", id="longer-than-long"
        ),
        pytest.param(
            {}, {"inter.broker.protocol.version": "abc"}, "settings of broker 1", id="no-protocol"
        ),
        pytest.param(
            {},
            {"inter.broker.protocol.version": "9.9"},
            "inter.broker.protocol.version",
            id="protocol-of-no-release",
        ),
    ],
)
def test_a_setting_that_kafka_would_not_take_is_told_and_the_default_counts(
    topic: dict[str, str], broker: dict[str, str], place: str
) -> None:
    cluster = FakeCluster.with_topic()
    cluster.told = Software("2.8", kraft=False)
    cluster.topic_settings["orders"] = {**topic, "cleanup.policy": "compact"}
    cluster.broker_settings = {**broker, "zookeeper.session.timeout.ms": "7000"}
    watched = Watched(cluster)
    seen = watched.round()
    told = {each.place: each for each in health(seen)}
    assert place in told
    assert told[place].problem is ProblemKind.MALFORMED
    (found,) = partitions(seen)
    assert found.settings == PartitionSettings(compacted=True, session_timeout_ms=7_000)
    assert str(found.rules.protocol) == "2.8"


def test_numbers_and_flags_are_read_as_kafka_reads_them() -> None:
    cluster = FakeCluster.with_topic()
    cluster.topic_settings["orders"] = {
        "min.insync.replicas": " +2 ",
        "unclean.leader.election.enable": " True",
    }
    cluster.broker_settings = {"leader.imbalance.check.interval.seconds": str(2**63 - 1)}
    seen = Watched(cluster).round()
    (found,) = partitions(seen)
    assert (found.settings.min_insync_replicas, health(seen)) == (2, [])
    assert found.settings.unclean_leader_election_enable
    assert observation_of(row_of(found)) == found  # 64 bits are enough for it


def test_settings_are_kept_and_asked_for_again_now_and_then() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster, settings_refresh_ms=3 * ROUND_MS)
    for _ in range(3):
        watched.round()
    assert (cluster.asked["software"], cluster.asked["topic_values"]) == (1, 1)
    watched.round()
    assert (cluster.asked["software"], cluster.asked["topic_values"]) == (2, 2)


def test_a_new_topic_is_asked_for_at_once() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    watched.round()
    other = FakeCluster.with_topic("invoices")
    cluster.partitions |= other.partitions
    cluster.replicas |= other.replicas
    cluster.topic_settings["invoices"] = {"min.insync.replicas": "2"}
    found = {each.topic: each.settings.min_insync_replicas for each in partitions(watched.round())}
    assert found == {"orders": 1, "invoices": 2}


def kraft(version: str, level: int, *, elr: bool) -> Software:
    return Software(version, kraft=True, metadata_level=level, elr=elr)


@pytest.mark.parametrize(
    ("software", "options", "told"),
    [
        pytest.param(kraft("3.9", 21, elr=False), {}, ("3.9.0 kraft", "3.9-IV0"), id="kraft"),
        pytest.param(
            kraft("3.9", 21, elr=False),
            {"version": "3.9.1"},
            ("3.9.1 kraft", "3.9-IV0"),
            id="the-given-version-counts",
        ),
        pytest.param(
            kraft("4.1", 26, elr=True), {}, ("4.1.0 kraft elr", "4.1-IV0"), id="elr-is-on"
        ),
        pytest.param(
            kraft("3.3", 8, elr=False), {}, ("3.4.0 kraft", "3.4-IV0"), id="level-is-newer"
        ),
        pytest.param(Software("2.8", kraft=False), {}, ("2.8.0 zookeeper", "2.8"), id="zookeeper"),
    ],
)
def test_the_rule_set_is_the_clusters(
    software: Software, options: dict[str, str], told: tuple[str, str]
) -> None:
    rules = rules_of(software, BrokerOptions("somewhere:9092", **options))  # type: ignore[arg-type]
    assert (str(rules), str(rules.protocol)) == told


def test_brokers_there_are_no_rules_for_are_told_and_seen_again_after_an_upgrade() -> None:
    cluster = FakeCluster.with_topic()
    cluster.told = Software("2.8", kraft=True)
    watched = Watched(cluster, missed_rounds=1)
    (told,) = health(watched.round())
    assert told.reason == "Kafka 2.8.0 has no production KRaft mode"
    assert "KRaft is covered from 3.3" in told.remedy
    cluster.told = kraft("3.9", 21, elr=False)
    assert partitions(watched.round())


def test_the_oldest_protocol_of_the_brokers_counts_in_zookeeper_mode() -> None:
    spoken = ("2.8", "2.6", "2.7-IV2")
    rules = rules_of(Software("2.8", kraft=False), BrokerOptions("somewhere:9092"), spoken)
    assert str(rules.protocol) == "2.6"


def test_the_controller_is_the_leader_of_the_quorum() -> None:
    cluster = FakeCluster.with_topic()
    cluster.leader_of_quorum = Quorum(3, 17)
    seen = cluster_of(Watched(cluster).round())
    assert (seen.controller, seen.controller_epoch, seen.controller_epoch_before) == (3, 17, 17)
    assert seen.rules.mode is Mode.KRAFT


def test_a_reassignment_says_who_comes_and_goes() -> None:
    cluster = FakeCluster.with_topic()
    cluster.moving[ORDERS] = Moving((3, 1, 2), adding=(3,), removing=(2,))
    assert Watched(cluster).partition().assignment == Assignment((1, 2, 3), (3,), (2,))


def test_a_reassignment_counts_on_while_nobody_tells_of_it() -> None:
    cluster = FakeCluster.with_topic()
    cluster.moving[ORDERS] = Moving((3, 1, 2), adding=(3,), removing=(2,))
    watched = Watched(cluster)
    watched.round()
    cluster.errors["reassignments"] = ClusterUnreachableError("somewhere:9092", "timed out")
    assert watched.partition().assignment.adding == (3,)
    cluster.partitions[ORDERS] = cluster.partitions[ORDERS]._replace(replicas=(3, 1), isr=(3, 1))
    seen = watched.partition()
    assert seen.assignment == Assignment((3, 1))
    assert seen.bracket is Bracket.COHERENT


def test_a_reassignment_of_another_moment_is_left_out_and_straddled() -> None:
    cluster = FakeCluster.with_topic()
    cluster.moving[ORDERS] = Moving((1, 2, 3, 4), adding=(4,), removing=())
    seen = Watched(cluster).partition()
    assert seen.assignment == Assignment((1, 2, 3))
    assert seen.bracket is Bracket.STRADDLED


def test_eligible_leaders_are_asked_for_where_the_cluster_has_them() -> None:
    cluster = FakeCluster.with_topic()
    Watched(cluster).round()
    assert not cluster.asked["eligible"]
    cluster.told = Software("4.1", kraft=True, metadata_level=26, elr=True)
    cluster.partitions[ORDERS] = cluster.partitions[ORDERS]._replace(isr=(1,))
    cluster.elr[ORDERS] = Eligible(0, (1,), (2,), (3,))
    state = Watched(cluster).partition().state
    assert (state.elr, state.last_known_elr) == ((2,), (3,))


def test_without_a_word_on_eligible_leaders_nothing_is_judged_where_there_may_be_some() -> None:
    """A clean election out of the ELR would look unclean."""
    cluster = FakeCluster.with_topic()
    cluster.told = Software("4.1", kraft=True, metadata_level=26, elr=True)
    assert Watched(cluster).partition().bracket is Bracket.COHERENT, "all are in sync"
    cluster.partitions[ORDERS] = cluster.partitions[ORDERS]._replace(isr=(1,))
    assert Watched(cluster).partition().bracket is Bracket.STRADDLED
    cluster.elr[ORDERS] = Eligible(0, (1,), (), ())
    assert Watched(cluster).partition().bracket is Bracket.COHERENT


# -- what cannot be read


def test_a_silent_broker_is_told_after_three_rounds_and_when_it_is_back() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    assert health(watched.round()) == []
    cluster.silent.add(3)
    since_ms = watched.now_ms + ROUND_MS
    assert [health(watched.round()) for _ in range(2)] == [[], []]
    (told,) = health(watched.round())
    assert (told.problem, told.place, told.broker) == (ProblemKind.SILENT, "broker 3", 3)
    assert told.since_ms == since_ms
    assert "does not answer" in told.reason
    assert "advertised listener" in told.remedy
    cluster.silent.clear()
    told = health([each for _ in range(3) for each in watched.round()])[-1]
    assert (told.problem, told.place) == (ProblemKind.OK, "broker 3")
    assert health(watched.round()) == []


def test_the_rest_goes_on_while_a_broker_is_silent() -> None:
    cluster = FakeCluster.with_topic()
    cluster.silent.add(3)
    seen = Watched(cluster).round()
    (partition,) = partitions(seen)
    assert [r.broker for r in partition.replicas] == [1, 2]
    assert partition.bracket is Bracket.COHERENT
    assert cluster_of(seen).answering == (1, 2)
    assert [r.broker for r in cluster_of(seen).registrations] == [1, 2, 3]


def given_up(cluster: FakeCluster, broker: int = 1) -> None:
    """The cluster has elected another and does not list it any more; it has not heard of it."""
    stays = cluster.replicas[broker, ORDERS]
    cluster.elect(2)
    cluster.partitions[ORDERS] = cluster.partitions[ORDERS]._replace(isr=(2, 3))
    cluster.replicas[broker, ORDERS] = stays
    del cluster.live[broker]


def test_a_leader_that_was_given_up_and_goes_on_is_asked_and_told_as_a_zombie() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    watched.round()
    given_up(cluster)
    memories: dict[type, Any] = {}
    codes: set[str] = set()
    for _ in range(12):
        seen = watched.round()
        assert cluster_of(seen).leading == (1, 2)
        assert [r.broker for r in partitions(seen)[0].replicas if r.leads] == [1, 2]
        assert health(seen) == []
        for each in seen:
            memories[type(each)], verdicts = step(memories.get(type(each)), each)
            codes |= {found.code for found in verdicts.violated}
    assert codes == {"REG002"}


def test_a_registered_broker_that_stays_silent_is_told_though_it_is_asked_ever_less_often() -> None:
    """Rounds in which it rests say nothing of it, and must not make forget what others said."""
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    watched.round()
    cluster.silent.add(3)
    memory, codes, rested = None, set(), 0
    for _ in range(30):
        seen = cluster_of(watched.round())
        rested += seen.answering is None
        memory, verdicts = step(memory, seen)
        codes |= {(each.code, each.broker) for each in verdicts.violated}
    assert rested > 10
    assert codes == {("REG001", 3)}


def test_a_broker_that_is_gone_for_good_is_left_alone() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    watched.round()
    given_up(cluster)
    cluster.silent.add(1)
    rounds = 600_000 // ROUND_MS
    for _ in range(rounds):
        watched.round()
    # Less and less often, and then not at all.
    assert 0 < cluster.asked["in vain 1"] < rounds / 4
    cluster.asked.clear()
    for _ in range(20):
        (told,) = health(watched.round())
        assert "does not list it" in told.reason
    assert not cluster.asked["in vain 1"]


def test_a_silent_broker_is_asked_once_a_round_and_less_often_with_time() -> None:
    cluster = FakeCluster.with_topic(partitions=3)
    cluster.silent.add(1)
    watched = Watched(cluster, backoff_ms=1_000, backoff_max_ms=60_000)
    for _ in range(20):
        watched.round()
    settings = 1  # once for its settings
    assert 4 <= cluster.asked["in vain 1"] - settings <= 8


def test_a_broker_that_is_listed_again_is_asked_at_once() -> None:
    cluster = FakeCluster.with_topic()
    cluster.silent.add(3)
    watched = Watched(cluster, backoff_ms=60_000, backoff_max_ms=60_000)
    watched.round()
    del cluster.live[3]
    watched.round()
    cluster.silent.clear()
    cluster.live[3] = None
    assert cluster_of(watched.round()).answering == (1, 2, 3)


def test_a_broker_that_the_cluster_does_not_list_is_silent_without_being_asked() -> None:
    cluster = FakeCluster.with_topic()
    del cluster.live[3]
    cluster.silent.add(3)
    watched = Watched(cluster)
    (told,) = health([each for _ in range(3) for each in watched.round()])
    assert "does not list it" in told.reason
    assert not cluster.asked["in vain 3"]


def test_a_broker_without_replicas_answers_too() -> None:
    cluster = FakeCluster.with_topic()
    cluster.live[4] = "rack-a"
    seen = cluster_of(Watched(cluster).round())
    assert seen.answering == (1, 2, 3, 4)
    assert seen.registrations[-1].rack == "rack-a"


def test_an_unreachable_cluster_is_told_and_no_partition_is_said_to_be_gone() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    watched.round()
    cluster.silent |= {1, 2, 3}
    seen = [watched.round() for _ in range(3)]
    assert [len(each) for each in seen] == [0, 0, 1]
    (told,) = health(seen[-1])
    assert (told.problem, told.place) == (ProblemKind.SILENT, "cluster")


def test_a_round_that_saw_nothing_ends_no_problem() -> None:
    cluster = FakeCluster.with_topic()
    cluster.silent.add(3)
    watched = Watched(cluster)
    for _ in range(3):
        watched.round()
    cluster.silent |= {1, 2}
    assert [each.problem for each in health(watched.round())] == []


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("error", id="neither-offsets-nor-records"),
        pytest.param("fetch_error", id="offsets-but-no-records"),
    ],
)
def test_a_refused_topic_names_the_missing_acl_at_once(where: str) -> None:
    """Who granted Describe, where nothing is allowed, would be told of Read next."""
    cluster = FakeCluster.with_topic()
    for replica in cluster.replicas.values():
        setattr(replica, where, TOPIC_AUTHORIZATION_FAILED)
    (told,) = health(Watched(cluster).round())
    assert told.problem is ProblemKind.UNREADABLE
    assert (told.place, told.topic) == ("topic orders", "orders")
    assert "ACL Read on topic orders is missing" in told.reason
    assert "--operation Read --topic orders" in told.remedy


def test_refused_settings_name_the_missing_acl_and_defaults_count() -> None:
    cluster = FakeCluster.with_topic()
    cluster.refused_settings = ("orders",)
    cluster.errors["broker_values"] = NotAuthorizedError(
        "DescribeConfigs", "cluster", "kafka-cluster"
    )
    watched = Watched(cluster)
    seen = watched.round()
    assert {each.place: each.reason for each in health(seen)} == {
        "settings of topic orders": "not authorised: ACL DescribeConfigs on topic orders is "
        "missing",
        "settings of brokers": "not authorised: ACL DescribeConfigs on cluster kafka-cluster is "
        "missing",
    }
    assert partitions(seen)[0].settings.replica_lag_time_max_ms == 30_000
    assert len(health(watched.round())) == 2


def test_a_refused_quorum_leaves_the_controller_unknown() -> None:
    cluster = FakeCluster.with_topic()
    cluster.errors["quorum"] = NotAuthorizedError("Describe", "cluster", "kafka-cluster")
    seen = Watched(cluster).round()
    assert cluster_of(seen).controller is None
    assert [each.place for each in health(seen)] == ["quorum"]


def test_a_controller_that_is_away_is_asked_once_a_round() -> None:
    cluster = FakeCluster.with_topic()
    cluster.moving[ORDERS] = Moving((3, 1, 2), adding=(3,), removing=(2,))
    watched = Watched(cluster)
    watched.round()
    cluster.errors["quorum"] = ControllerSilentError("DescribeQuorum")
    cluster.asked.clear()
    seen = watched.round()
    assert (cluster.asked["quorum"], cluster.asked["reassignments"]) == (1, 0)
    assert cluster_of(seen).controller is None
    assert partitions(seen)[0].assignment.adding == (3,)


def test_an_offline_log_directory_is_told_with_the_replica() -> None:
    cluster = FakeCluster.with_topic()
    cluster.replicas[2, ORDERS].error = KAFKA_STORAGE_ERROR
    watched = Watched(cluster)
    seen = [watched.round() for _ in range(3)][-1]
    assert [r.log_dir_online for r in partitions(seen)[0].replicas] == [True, False, True]
    (told,) = health(seen)
    assert told.problem is ProblemKind.LOG_DIR_OFFLINE


def test_a_replica_that_its_broker_does_not_know_is_told_after_three_rounds() -> None:
    cluster = FakeCluster.with_topic()
    del cluster.replicas[2, ORDERS]
    watched = Watched(cluster)
    seen = [watched.round() for _ in range(3)]
    assert [len(health(each)) for each in seen] == [0, 0, 1]
    assert "UNKNOWN_TOPIC_OR_PARTITION for orders-0" in health(seen[-1])[0].reason


def test_settings_that_cannot_be_read_anew_do_not_end_the_round() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster, settings_refresh_ms=1)
    watched.round()
    cluster.errors["software"] = ClusterUnreachableError("somewhere:9092", "timed out")
    assert len(partitions(watched.round())) == 1


# -- how much is asked


def test_topics_are_taken_and_left_out_by_their_whole_names() -> None:
    options = BrokerOptions("somewhere:9092", include=r"orders.*|invoices", exclude=r".*-test")
    asked = ["orders", "orders-eu", "orders-test", "invoices", "invoices-eu", "__consumer_offsets"]
    assert [each for each in asked if options.wants(each)] == ["orders", "orders-eu", "invoices"]


def test_a_topic_left_out_is_not_read() -> None:
    cluster = FakeCluster.with_topic()
    seen = Watched(cluster, exclude="orders").round()
    assert partitions(seen) == []
    assert not cluster.asked["fetch"]
    assert cluster_of(seen).answering == (1, 2, 3)


def test_requests_are_split_by_size() -> None:
    cluster = FakeCluster.with_topic(partitions=25)
    seen = Watched(cluster, partitions_per_request=10).round()
    assert len(partitions(seen)) == 25
    assert all(len(each.replicas) == 3 for each in partitions(seen))
    assert max(cluster.sizes) == 10


def test_requests_of_a_round_do_not_grow_with_its_partitions() -> None:
    few, many = FakeCluster.with_topic(partitions=1), FakeCluster.with_topic(partitions=500)
    for cluster in (few, many):
        Watched(cluster).round()
    assert few.asked == many.asked


def test_a_pace_spreads_requests_evenly() -> None:
    now_ms = 0.0
    sent: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now_ms
        now_ms += seconds * 1_000

    pace = Pace(100, lambda: now_ms, sleep)
    for _ in range(5):
        pace.wait()
        sent.append(now_ms)
    assert sent == [0, 10, 20, 30, 40]


def test_rounds_begin_a_little_later_by_chance() -> None:
    watched = Watched(FakeCluster.with_topic(), jitter_ms=400)
    late = [cluster_of(watched.round()).observed_at_ms % ROUND_MS for _ in range(3)]
    assert len(set(late)) == 3


# -- options


def test_options_secrets_and_client_properties_come_together_and_are_not_shown() -> None:
    found = options_of(
        {
            "bootstrap_servers": "a:9092",
            "timeout_ms": 900,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
        },
        {"sasl.jaas.config": 'x required username="me" password="s3cret;";'},
    )
    assert found.timeout_ms == 900
    assert found.properties == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": "s3cret;",
    }
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({}, "bootstrap_servers is missing", id="no-servers"),
        pytest.param({"bootstrap_servers": "a", "tmeout": 1}, "tmeout is not known", id="unknown"),
        pytest.param({"bootstrap_servers": "a", "timeout_ms": "soon"}, "no whole", id="a-word"),
        pytest.param({"bootstrap_servers": "a", "timeout_ms": 0}, "no whole number", id="nought"),
        pytest.param({"bootstrap_servers": "a", "include": "("}, "regular", id="no-expression"),
        pytest.param({"bootstrap_servers": "a", "mode": "raft"}, "neither", id="no-mode"),
        pytest.param(
            {"bootstrap_servers": "a", "security.protocol": "SSL", "ssl.truststore.type": "JKS"},
            "not PEM",
            id="a-java-store",
        ),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, object], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        options_of(given, {})


def test_a_wrong_secret_is_not_told() -> None:
    with pytest.raises(OptionError) as caught:
        options_of({"bootstrap_servers": "a"}, {"sasl.jaas.config": "hunter2"})
    assert "hunter2" not in str(caught.value)


# -- judged


def test_an_election_between_rounds_and_within_one_raises_nothing() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    memory: Any = None
    raised: list[Any] = []
    for number in range(12):
        if number == 3:
            cluster.elect(2)
        cluster.before = (
            (lambda asked: cluster.elect(3) if asked == "fetch 1" else None)
            if number == 6
            else lambda _: None
        )
        for replica in cluster.replicas.values():
            replica.leo += 5
            replica.hw += 5
        memory, verdicts = step(memory, watched.partition())
        raised += verdicts.violated
    assert raised == []


def test_committed_offsets_that_are_gone_are_found() -> None:
    cluster = FakeCluster.with_topic()
    watched = Watched(cluster)
    memory: Any = None
    codes: set[str] = set()
    for number in range(4):
        if number == 2:
            for replica in cluster.replicas.values():
                replica.leo = replica.hw = 6
            cluster.elect(2)
        memory, verdicts = step(memory, watched.partition())
        codes |= {each.code for each in verdicts.violated}
    assert "TRN001" in codes


def test_a_partition_is_named_as_the_metadata_names_it() -> None:
    cluster = FakeCluster.with_topic("a-b", partitions=2)
    seen = partitions(Watched(cluster).round())
    assert [TopicPartition(e.topic, e.partition) for e in seen] == [("a-b", 0), ("a-b", 1)]


def test_a_restarted_connector_says_of_what_it_told_before_that_it_is_over() -> None:
    cluster = FakeCluster.with_topic()
    cluster.silent.add(3)
    before, after = Watched(cluster), Watched(cluster)
    told = [health(before.round()) for _ in range(3)][-1]
    after.now_ms = before.now_ms
    after.connector.resume(told)
    (still,) = health(after.round())
    assert (still.place, still.problem) == ("broker 3", ProblemKind.SILENT)
    assert still.since_ms == told[0].since_ms
    cluster.silent.clear()
    after.now_ms += 600_000
    assert [(h.place, h.problem) for h in health(after.round())] == [("broker 3", ProblemKind.OK)]
    assert health(after.round()) == []


def test_closing_a_connector_ends_what_asks_for_it() -> None:
    pool = ThreadPoolExecutor(2)
    connector = BrokerConnector(
        *(FakeCluster.with_topic(), "west", BrokerOptions("somewhere:9092", jitter_ms=0)),
        now_ms=lambda: 0,
        each=pool.map,
        closing=pool.shutdown,
    )
    assert connector.round()
    connector.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)
