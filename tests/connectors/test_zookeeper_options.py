"""Options of ZooKeeper, what is told of wrong ones, and the adapter to the client library as far as
it can be shown without a server. The field tests have the rest."""

from __future__ import annotations

import ast
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tidestaff.connectors.errors import OptionError
from tidestaff.connectors.zookeeper_options import ZookeeperOptions, zookeeper_options
from tidestaff.consistency.model import HealthObservation
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

# The library reads its schemas in a way that Python 3.11 calls old.
pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")

CONNECTORS = Path(__file__).resolve().parents[2] / "connectors"
ADAPTER = CONNECTORS / "kazoo_reader.py"
READING = {"get_async", "exists_async", "get_children_async"}
KEEPING = {
    *("add_listener", "remove_listener", "start_async", "stop", "close"),
    *("client_state", "handler", "last_zxid"),
}


@pytest.mark.parametrize(
    ("connect", "servers", "chroot"),
    [
        ("zk:2181", "zk:2181", ""),
        ("a:2181, b:2182/kafka/west", "a:2181,b:2182", "/kafka/west"),
        ("[::1]:2181/kafka", "[::1]:2181", "/kafka"),
    ],
)
def test_servers_and_chroot_are_written_as_brokers_have_them(
    connect: str, servers: str, chroot: str
) -> None:
    options = ZookeeperOptions(connect)
    assert (options.servers, options.chroot) == (servers, chroot)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param({"zookeeper_connect": "zk"}, "connect is no list", id="no-port"),
        pytest.param({"zookeeper_connect": "zk:2181/a//b"}, "empty name", id="chroot"),
        pytest.param({"zookeeper_tls": True}, "connect is missing", id="no-connect"),
        pytest.param({"zookeeper_conect": "zk:1"}, "conect is not known", id="mistyped"),
        pytest.param({"zookeeper_digest": "hunter2"}, "digest has no colon", id="digest"),
        pytest.param({"zookeeper_sasl_mechanism": "PLAIN"}, "is not known", id="mechanism"),
        pytest.param({"zookeeper_sasl_mechanism": "DIGEST-MD5"}, "needs a name", id="no-name"),
        pytest.param({"zookeeper_tls_ca": "ca.pem"}, "tls is off", id="files-without-tls"),
        pytest.param(
            {"zookeeper_tls": "true", "zookeeper_tls_key": "k"}, "go together", id="half-a-pair"
        ),
        pytest.param(
            {"zookeeper_tls": "true", "zookeeper_tls_ca": "/no/ca.pem"},
            "tls_ca names /no/ca.pem, which cannot be read",
            id="no-such-file",
        ),
        pytest.param({"zookeeper_tls_check_hostname": "false"}, "tls is off", id="hostname-no-tls"),
        pytest.param({"zookeeper_sasl_username": "u"}, "mechanism is missing", id="name-alone"),
        pytest.param({"zookeeper_tls": "maybe"}, "neither true nor false", id="flag"),
        pytest.param({"zookeeper_timeout_ms": "soon"}, "no whole number", id="number"),
        pytest.param({"settings.min.insync.replicas": "two"}, "no whole number", id="given"),
        pytest.param({"settings.replica.lag.time.max.ms": "\u00b2"}, "no whole number", id="power"),
        pytest.param(
            {"settings.inter.broker.protocol.version": "new"}, "nothing that Kafka", id="protocol"
        ),
    ],
)
def test_a_wrong_option_is_named_with_a_remedy_and_without_its_value(
    options: dict[str, object], says: str
) -> None:
    if "connect is missing" not in says and "zookeeper_connect" not in options:
        options = {"zookeeper_connect": "zk:2181", **options}
    with pytest.raises(OptionError, match=says) as caught:
        zookeeper_options(options, {})
    assert caught.value.remedy
    assert "hunter2" not in str(caught.value)


def test_what_is_not_zookeepers_is_left_to_others() -> None:
    found, given, plain, secrets = zookeeper_options(
        {
            "zookeeper_connect": "zk:2181",
            "settings.unclean.leader.election.enable": True,
            "bootstrap_servers": "b:9092",
            "sasl.mechanism": "PLAIN",
        },
        {"zookeeper_digest": "a:b", "sasl.password": "c"},
    )
    assert found == ZookeeperOptions("zk:2181", digest="a:b")
    assert given == {"unclean.leader.election.enable": "true"}
    assert plain == {"bootstrap_servers": "b:9092", "sasl.mechanism": "PLAIN"}
    assert secrets == {"sasl.password": "c"}
    assert zookeeper_options({"include": "x"}, {})[0] is None


def test_secrets_are_not_shown() -> None:
    hidden = dict.fromkeys(("digest", "sasl_password", "tls_key_password"), "u:hunter2")
    options = ZookeeperOptions("zk:2181", tls=True, sasl_mechanism="GSSAPI", **hidden)
    assert "hunter2" not in repr(options)


def test_of_the_client_only_what_reads_is_used() -> None:
    """Whatever the adapter takes from the client, by name or by getattr, is one of these."""
    tree = ast.parse(ADAPTER.read_text(encoding="utf-8"))
    taken = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) in ("client", "self._client", "self._connected()")
    }
    named = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and str(node.value).endswith("_async")
    }
    assert taken - KEEPING == set()
    assert named == READING


def test_only_one_file_touches_the_client_library() -> None:
    touching = [
        path.name
        for path in CONNECTORS.rglob("*.py")
        if any(
            (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kazoo")
            or (isinstance(node, ast.Import) and any(a.name == "kazoo" for a in node.names))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    ]
    assert touching == [ADAPTER.name]


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def collector(name: str, **options: Any) -> Any:
    source = {"type": "direct", "collector": name, "options": options}
    return collector_of(Cluster.model_validate({"name": "west", "source": source}))


def test_a_zookeeper_that_is_not_there_is_named_and_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    place = f"127.0.0.1:{free_port()}"
    made = collector(
        "zookeeper",
        zookeeper_connect=f"{place}/kafka",
        zookeeper_timeout_ms=200,
        version="3.9.1",
        missed_rounds=2,
        jitter_ms=0,
    )
    assert made.round() == []
    (told,) = made.round()
    assert isinstance(told, HealthObservation)
    assert f"ZooKeeper at {place}/kafka does not answer" in told.reason
    made.close()
    assert set(threading.enumerate()) - before == set()


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("zookeeper", {"version": "3.9.1"}, "west: option zookeeper_connect is missing"),
        ("zookeeper", {"zookeeper_connect": "zk:1"}, "west: option version is missing"),
        ("zookeeper", {"zookeeper_connect": "z:1", "timeout_ms": 5}, "timeout_ms is not known"),
        ("brokers", {"zookeeper_connect": "zk:1"}, "bootstrap_servers is missing"),
        ("brokers", {"zookeeper_connect": "zk"}, "zookeeper_connect is no list"),
    ],
)
def test_a_wrong_option_of_a_collector_is_told_with_the_cluster(
    name: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(CommandError, match=says):
        collector(name, **options)
