"""The adapter to the client library: what it can be shown without a broker. The field test has the
rest."""

from __future__ import annotations

import ast
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tidestaff.connectors.broker_decoding import metadata_of
from tidestaff.connectors.errors import (
    AnswerMalformedError,
    AuthenticationRefusedError,
    ClusterUnreachableError,
    NotAuthorizedError,
    OptionError,
)
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

# The library reads its schemas in a way that Python 3.11 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")

CONNECTORS = Path(__file__).resolve().parents[2] / "connectors"
ADAPTERS = {
    *("kafka_python_client.py", "kafka_python_reader.py", "kafka_python_requests.py"),
}
WRITING = "kafka_python_producer.py"
READING = {
    *("ApiVersionsRequest", "DescribeConfigsRequest", "DescribeQuorumRequest", "FetchRequest"),
    *("DescribeTopicPartitionsRequest", "ListOffsetsRequest", "MetadataRequest"),
    *("ListPartitionReassignmentsRequest", "OffsetForLeaderEpochRequest"),
    *("DescribeClusterRequest", "DescribeLogDirsRequest"),
}


def reader_of(bootstrap_servers: str, **properties: object) -> Any:
    from tidestaff.connectors.kafka_python_reader import KafkaPythonReader  # noqa: PLC0415 - slow

    return KafkaPythonReader(bootstrap_servers, properties, timeout_ms=300)


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def imports_of(path: Path) -> set[tuple[str, str]]:
    """Modules and names of the client library that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kafka":
            found |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(a.name, "") for a in node.names if a.name.split(".")[0] == "kafka"}
    return found


def test_nothing_but_reading_can_be_asked() -> None:
    imported = {name for each in ADAPTERS for _, name in imports_of(CONNECTORS / each)}
    assert {each for each in imported if each.endswith("Request")} == READING
    assert not {each for each in imported if each.startswith("Kafka")} - {"KafkaConnectionManager"}


def test_only_the_adapters_touch_the_client_library() -> None:
    touching = {path.name for path in CONNECTORS.rglob("*.py") if imports_of(path)}
    assert touching == {*ADAPTERS, WRITING}


def test_no_collector_can_reach_what_writes() -> None:
    """It is made by the command that publishes, and for the transport only."""
    modules = [path for path in CONNECTORS.rglob("*.py") if path.name != WRITING]
    assert modules
    name = WRITING.removesuffix(".py")
    assert [path.name for path in modules if name in path.read_text(encoding="utf-8")] == []


def test_a_cluster_that_is_not_there_is_named_and_leaves_no_thread_behind() -> None:
    place = f"127.0.0.1:{free_port()}"
    reader = reader_of(place)
    for _ in range(2):
        with pytest.raises(ClusterUnreachableError, match=place):
            reader.metadata(0)
    reader.close()
    assert [each.name for each in threading.enumerate() if "kafka-io" in each.name] == []


def test_a_property_the_client_does_not_have_is_named_without_its_value() -> None:
    with pytest.raises(OptionError, match=r"ssl\.cafil is not a property") as caught:
        reader_of("127.0.0.1:9", ssl_cafil="hunter2")
    assert "hunter2" not in str(caught.value)


def test_kerberos_without_its_package_is_told_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidestaff.connectors.kafka_python_client.find_spec", lambda _: None)
    with pytest.raises(OptionError, match="package gssapi is missing"):
        reader_of("127.0.0.1:9", sasl_mechanism="GSSAPI", security_protocol="SASL_PLAINTEXT")


def test_without_a_ticket_the_credentials_are_refused_and_nothing_of_them_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The manager tries until its time is over; a connection of its own says why."""
    from kafka.errors import KafkaTimeoutError  # type: ignore[import-untyped]  # noqa: PLC0415
    from kafka.net.manager import (  # type: ignore[import-untyped]  # noqa: PLC0415 - slow
        KafkaConnectionManager,
    )

    missing = type("MissingCredentialsError", (Exception,), {"__module__": "gssapi.raw.exceptions"})

    def bootstrap(*_: object) -> None:
        raise KafkaTimeoutError

    def connection(*_: object, **__: object) -> None:
        raise missing("no credentials in FILE:/home/hunter2/cc")

    monkeypatch.setattr(KafkaConnectionManager, "bootstrap", bootstrap)
    monkeypatch.setattr(KafkaConnectionManager, "get_connection", connection)
    reader = reader_of("127.0.0.1:9")
    with pytest.raises(AuthenticationRefusedError, match="MissingCredentialsError") as caught:
        reader.metadata(0)
    assert "hunter2" not in str(caught.value)
    assert [each.name for each in threading.enumerate() if "kafka-io" in each.name] == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param({}, "west: option bootstrap_servers is missing", id="no-servers"),
        pytest.param(
            {"bootstrap_servers": "a:1", "sasl.passwort": "hunter2"},
            "west: option sasl.passwort is not a known client property",
            id="no-such-property",
        ),
        *(
            pytest.param(
                {"bootstrap_servers": servers},
                "west: option bootstrap_servers is no list of host:port",
                id=f"servers-{servers}",
            )
            for servers in ("a:909x", "a:9092,b:", "a:70000", "http://a:9092", "[::1", ",")
        ),
        pytest.param(
            {"bootstrap_servers": "a:1", "version": "banana"}, "west: option version", id="version"
        ),
        pytest.param(
            {"bootstrap_servers": "a:1", "protocol": "2.7-X"},
            "west: option protocol",
            id="protocol",
        ),
        pytest.param(
            {"bootstrap_servers": "a:1", "mode": "kraft", "zookeeper_connect": "zk:1"},
            "west: option mode is kraft beside zookeeper_connect",
            id="two-modes",
        ),
        pytest.param(
            {"bootstrap_servers": "a:1", "agents_timeout_ms": "soon"},
            "west: option agents_timeout_ms is of no use without agents",
            id="agents-not-named",
        ),
        pytest.param(
            {"bootstrap_servers": "a:1", "request.timeout.ms": "0"},
            "west: option request.timeout.ms is no whole number",
            id="no-time",
        ),
    ],
)
def test_a_wrong_option_of_the_collector_is_told_with_the_cluster(
    options: dict[str, str], says: str
) -> None:
    source = {"type": "direct", "collector": "brokers", "options": options}
    with pytest.raises(CommandError, match=says) as caught:
        collector_of(Cluster.model_validate({"name": "west", "source": source}))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "servers", ["a:9092, b:9093,", "a", "10.0.0.1:9092", "[::1]:9092", "[fe80::1%eth0]", "::1"]
)
def test_addresses_are_taken_as_the_library_takes_them(servers: str) -> None:
    from tidestaff.connectors.kafka_python_client import servers_of  # noqa: PLC0415 - slow

    wanted = [each.strip() for each in servers.split(",") if each.strip()]
    assert servers_of(servers) == wanted


def test_a_time_to_connect_that_is_given_counts() -> None:
    from tidestaff.connectors.kafka_python_client import KafkaPythonClient  # noqa: PLC0415 - slow

    name = "socket_connection_setup_timeout_ms"
    client = KafkaPythonClient("a:1", {name: 77}, timeout_ms=200)
    assert client._config[name] == 77


def test_a_collector_of_a_cluster_that_is_not_there_goes_on_and_says_so() -> None:
    options = {
        "bootstrap_servers": f"127.0.0.1:{free_port()}",
        "timeout_ms": 200,
        "jitter_ms": 0,
        "missed_rounds": 2,
    }
    source = {"type": "direct", "collector": "brokers", "options": options}
    collector = collector_of(Cluster.model_validate({"name": "west", "source": source}))
    assert collector.round() == []
    (told,) = collector.round()
    assert "no broker of 127.0.0.1" in told.reason  # type: ignore[union-attr]


def test_a_cluster_wide_refusal_names_the_acl() -> None:
    from tidestaff.connectors.broker_decoding import refuse  # noqa: PLC0415

    with pytest.raises(NotAuthorizedError, match="ACL Describe on cluster") as caught:
        refuse(31, "Describe", "DescribeQuorum")
    assert caught.value.remedy.endswith("--operation Describe --cluster")


def test_pages_that_do_not_come_to_an_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page names where the next one begins, which is further on."""
    from kafka.protocol.admin import (  # type: ignore[import-untyped]  # noqa: PLC0415
        DescribeTopicPartitionsResponse as Page,
    )

    def pages(*cursors: tuple[str, int] | None) -> None:
        made = [
            Page(topics=[], next_cursor=at and Page.Cursor(topic_name=at[0], partition_index=at[1]))
            for at in cursors
        ]
        monkeypatch.setattr(reader, "ask_any", lambda _: made.pop(0))

    reader = reader_of("127.0.0.1:9")
    pages(("a", 2), ("a", 3), ("b", 0), None)
    assert reader.eligible() == {}
    for last in (("a", 2), ("a", 1), ("Z", 9)):
        pages(("a", 2), last, None)
        with pytest.raises(AnswerMalformedError, match="does not come to an end"):
            reader.eligible()


@pytest.mark.parametrize(("version", "told"), [(1, None), (2, "west-id"), (9, "west-id")])
def test_the_id_of_the_cluster_is_told_from_the_second_version_of_metadata_on(
    version: int, told: str | None
) -> None:
    from kafka.protocol.metadata import MetadataResponse  # type: ignore[import-untyped] # noqa: PLC0415

    given = MetadataResponse(brokers=[], topics=[], controller_id=1, cluster_id="west-id")
    answer = MetadataResponse.decode(given.encode(version=version), version=version)
    assert metadata_of(answer).cluster_id == told
