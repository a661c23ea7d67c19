"""Real brokers with an authorizer, that of KRaft and that of ZooKeeper clusters: every way to log
in by ordinary client properties, and the rights of docs/permissions.md, which suffice, and of which
each is needed."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.connectors.errors import (
    AuthenticationRefusedError,
    ClusterUnreachableError,
    NotAuthorizedError,
)
from tidestaff.connectors.publishing import Record
from tidestaff.consistency.model import HealthObservation, PartitionObservation, ProblemKind
from tidestaff.streaming.lab.releases import KRAFT, ZOOKEEPER
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

from tests.connectors.test_zookeeper import znodes_of_the_page
from tests.field.lab import need_jars
from tests.field.secured import PASSWORD, SCRAM, VERSION, Acl, needed, secured, write_properties
from tests.field.secured_settings import USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.connectors.kafka_python_producer import KafkaTransport

    from tests.field.secured import SecuredLab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
    # The library leaves the socket of a handshake that failed to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed .ssl.SSLSocket:ResourceWarning"),
]

TOPIC, RECORDS = "orders", 10
NEEDED = needed(VERSION)
DOCS = Path(__file__).resolve().parents[2] / "docs" / "permissions.md"
KEPT_BY_BROKERS = "/config/brokers"
"""The one of the page's znodes that Kafka itself keeps from everybody but brokers."""

on_kraft = pytest.mark.parametrize("lab", ["kraft"], indirect=True)
on_zookeeper = pytest.mark.parametrize("lab", ["zookeeper"], indirect=True)
on_each = pytest.mark.parametrize(
    ("lab", "metadata"),
    [
        pytest.param("kraft", "brokers", id="kraft"),
        pytest.param("zookeeper", "brokers", id="zookeeper-by-brokers"),
        pytest.param("zookeeper", "zookeeper", id="zookeeper"),
    ],
    indirect=["lab"],
)
"""Kinds of clusters, and who is asked for the metadata."""


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> SecuredLab:
    found: SecuredLab = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def kraft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredLab]:
    with _with_a_topic(tmp_path_factory.mktemp("kraft"), KRAFT) as found:
        yield found


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredLab]:
    with _with_a_topic(tmp_path_factory.mktemp("zookeeper"), ZOOKEEPER) as found:
        # Kafka has made it for brokers alone, with zookeeper.set.acl.
        assert found.znodes()[KEPT_BY_BROKERS] is False
        found.let_read({KEPT_BY_BROKERS: True})
        yield found


@contextmanager
def _with_a_topic(folder: Path, mode: str) -> Iterator[SecuredLab]:
    need_jars(VERSION)
    with secured(folder, VERSION, mode) as found:
        found.lab.clients.create_topic(TOPIC)
        found.lab.clients.produce(TOPIC, [b"a record"] * RECORDS)
        found.allow(*NEEDED)
        found.allow(*NEEDED, user=f"CN={USER}")
        yield found


@contextmanager
def collecting(
    lab: SecuredLab,
    listener: str,
    lines: dict[str, str],
    tmp_path: Path,
    metadata: str = "brokers",
    **options: Any,
) -> Iterator[BrokerConnector]:
    """With the properties in a file, as people have them; of ZooKeeper one asks as nobody."""
    file = tmp_path / "client.properties"
    write_properties(file, lines)
    if metadata == "zookeeper":
        options["zookeeper_connect"] = lab.lab.zookeeper_connect
    source = {
        "type": "direct",
        "collector": "brokers",
        "options": {
            "bootstrap_servers": lab.listeners[listener],
            "command_config": str(file),
            "version": VERSION,
            "timeout_ms": 5_000,
            "jitter_ms": 0,
            "settings_refresh_ms": 1,
            "log_dirs_refresh_ms": 1,
            "missed_rounds": 1,
            **options,
        },
    }
    collector = collector_of(Cluster.model_validate({"name": "secured", "source": source}))
    assert isinstance(collector, BrokerConnector)
    try:
        yield collector
    finally:
        collector.close()


def health(connector: BrokerConnector) -> list[HealthObservation]:
    return [each for each in connector.round() if isinstance(each, HealthObservation)]


@on_kraft
@pytest.mark.parametrize("way", ["scram", "plain", "oauth", "tls", "mtls"])
def test_the_cluster_is_read_by_every_way_to_log_in(
    lab: SecuredLab, tmp_path: Path, way: str
) -> None:
    with collecting(lab, *lab.login(way), tmp_path) as connector:
        seen = connector.round()
        assert [each for each in seen if isinstance(each, HealthObservation)] == []
        # Another test's topic may stand beside it.
        (found,) = [
            each for each in seen if isinstance(each, PartitionObservation) and each.topic == TOPIC
        ]
        (reading,) = found.replicas
        assert (reading.high_watermark, reading.log_end_offset) == (RECORDS, RECORDS)
        assert reading.lineage == ((0, 0),)


@on_kraft
@pytest.mark.parametrize(
    ("way", "change", "error"),
    [
        pytest.param(
            "scram",
            {"sasl.jaas.config": SCRAM.replace(USER, "nobody")},
            AuthenticationRefusedError,
            id="an-unknown-user",
        ),
        pytest.param(
            "plain",
            {"sasl.jaas.config": f'x required username="{USER}" password="hunter2";'},
            AuthenticationRefusedError,
            id="a-wrong-password",
        ),
        pytest.param(
            "tls",
            {"ssl.truststore.location": "client.crt"},
            ClusterUnreachableError,
            id="a-broker-nobody-trusts",
        ),
        pytest.param(
            "mtls",
            {"ssl.keystore.location": ""},
            ClusterUnreachableError,
            id="no-certificate-of-the-client",
        ),
    ],
)
def test_who_is_not_let_in_is_told_why_without_a_secret(
    lab: SecuredLab,
    tmp_path: Path,
    way: str,
    change: dict[str, str],
    error: type[Exception],
) -> None:
    listener, lines = lab.login(way)
    place = "ssl.truststore.location"
    if place in change:
        change = {place: str(lab.folder / change[place])}
    with collecting(lab, listener, {**lines, **change}, tmp_path, timeout_ms=1_500) as connector:
        (told,) = health(connector)
    gc.collect()
    assert told.problem in (ProblemKind.UNREADABLE, ProblemKind.SILENT)
    said = told.reason + told.remedy
    assert "hunter2" not in said
    assert PASSWORD not in said
    if error is AuthenticationRefusedError:
        assert "refuses the credentials" in said
    else:
        assert lab.listeners[listener] in said


@on_each
def test_the_acls_suffice_and_nothing_is_refused(
    lab: SecuredLab, metadata: str, tmp_path: Path
) -> None:
    before = len(lab.denied())
    with collecting(lab, *lab.login(), tmp_path, metadata) as connector:
        for _ in range(3):
            seen = connector.round()
            assert [each for each in seen if isinstance(each, HealthObservation)] == []
    assert lab.denied()[before:] == []


@on_each
@pytest.mark.parametrize("acl", NEEDED, ids=str)
def test_without_one_of_them_it_is_named_and_with_it_all_is_well_again(
    lab: SecuredLab, metadata: str, tmp_path: Path, acl: Acl
) -> None:
    with collecting(lab, *lab.login(), tmp_path, metadata) as connector:
        assert health(connector) == []
        before = len(lab.denied())
        lab.take_away(acl)
        try:
            told = until(connector, bool)
            # What other tests look for in vain in the broker's log can be seen there.
            assert lab.denied()[before:] != []
            name = TOPIC if acl.resource == "topic" else acl.name
            wanted = f"not authorised: ACL {acl.operation} on {acl.resource} {name} is missing"
            assert {each.reason for each in told} == {wanted}
            assert {each.problem for each in told} == {ProblemKind.UNREADABLE}
            for each in told:
                assert f"--operation {acl.operation}" in each.remedy
        finally:
            lab.allow(acl)
        until(connector, lambda found: not found)


@on_each
def test_describe_instead_of_read_leaves_the_high_watermark_out_and_says_so(
    lab: SecuredLab, metadata: str, tmp_path: Path
) -> None:
    read, describe = Acl("Read", "topic", "*"), Acl("Describe", "topic", "*")
    lab.allow(describe)
    lab.take_away(read)
    try:
        with collecting(lab, *lab.login(), tmp_path, metadata) as connector:
            told = until(connector, bool)
            assert {each.reason for each in told} == {
                f"not authorised: ACL Read on topic {TOPIC} is missing"
            }
            (found,) = [o for o in connector.round() if isinstance(o, PartitionObservation)]
            assert found.replicas[0].high_watermark is None
            assert found.replicas[0].log_end_offset == RECORDS
    finally:
        lab.allow(read)
        lab.take_away(describe)


@on_kraft
def test_publishing_needs_write_on_the_topic_and_no_more(lab: SecuredLab) -> None:
    from tidestaff.connectors.client_properties import client_options  # noqa: PLC0415
    from tidestaff.connectors.kafka_python_producer import KafkaTransport  # noqa: PLC0415 - slow

    lab.lab.clients.create_topic("rows")
    write = Acl("Write", "topic", "rows")
    lab.take_away(*NEEDED)
    lab.allow(write)
    listener, lines = lab.login()
    transport = KafkaTransport(lab.listeners[listener], "rows", client_options(lines))
    try:
        for _ in range(2):
            assert transport.publish([Record(b"a key", b"a value")]) == 0
        assert lab.lab.clients.read("rows") == [b"a value"] * 2
        lab.take_away(write)
        with pytest.raises(NotAuthorizedError, match="ACL Write on topic rows is missing"):
            publish_for(transport, 120)
    finally:
        transport.close()
        lab.allow(*NEEDED)


@on_zookeeper
def test_the_znodes_of_the_page_are_all_that_must_be_readable_and_one_is_not_by_itself(
    lab: SecuredLab, tmp_path: Path
) -> None:
    """With zookeeper.set.acl. What Kafka leaves open beside them, /kafka-acl too, is closed."""
    from kafka.admin import ConfigResource, ConfigResourceType  # noqa: PLC0415 - slow

    def told() -> list[str]:
        """By a new session: that rights have changed, no watch would tell."""
        with collecting(lab, *lab.login(), tmp_path, "zookeeper") as connector:
            return [each.reason for each in health(connector)]

    changed = ConfigResource(ConfigResourceType.BROKER, "1", {"log.retention.ms": "604800000"})
    with lab.admin() as admin:
        admin.alter_configs([changed])
    listed, below = znodes_of_the_page()
    left = lab.znodes()
    mine = {p for p in left if p in listed or any(p.startswith(f"{each}/") for each in below)}
    made = f"{KEPT_BY_BROKERS}/1"
    assert {path for path in mine if not left[path]} == {made}
    assert left["/kafka-acl"]
    assert not left["/config/users"]
    assert told() == [f"not authorised: znode {made} may not be read"]
    lab.let_read({path: path in mine for path in left})
    try:
        assert told() == []
        lab.let_read({KEPT_BY_BROKERS: False})
        assert told() == [f"not authorised: znode {KEPT_BY_BROKERS} may not be read"]
    finally:
        lab.let_read({**left, KEPT_BY_BROKERS: True, made: True})


def publish_for(transport: KafkaTransport, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        transport.publish([Record(b"a key", b"a value")])


def until(connector: BrokerConnector, done: Any) -> list[HealthObservation]:
    """ACLs reach a broker a moment later. What is over is told once, so it is left out here."""
    end = time.monotonic() + 120
    while True:
        found = [each for each in health(connector) if each.problem is not ProblemKind.OK]
        if done(found):
            # Once more: every part of the round has then seen the change.
            return [each for each in health(connector) if each.problem is not ProblemKind.OK]
        assert time.monotonic() < end, found
        time.sleep(0.2)


def test_the_page_lists_these_acls() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for acl in NEEDED:
        assert f"--operation {acl.operation}" in text
