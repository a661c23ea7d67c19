"""A real ZooKeeper that asks who one is: digest, SASL and TLS, what is refused, and that our own
session can only read."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tidestaff.connectors.zookeeper import ZookeeperConnector
from tidestaff.consistency.model import (
    Bracket,
    HealthObservation,
    PartitionObservation,
    ProblemKind,
)
from tidestaff.streaming.jars import JarError, jars
from tidestaff.streaming.lab.plan import LOOPBACK, free_ports
from tidestaff.streaming.lab.releases import ZOOKEEPER_LOCK
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.collecting import collector_of

from tests.connectors.fake_zookeeper import FakeZookeeper
from tests.connectors.test_zookeeper import znodes_of_the_page
from tests.field.secured_settings import make_certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidestaff.consistency.model import Observation

pytestmark = [
    pytest.mark.slow,
    # The library leaves sockets of connections that failed to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed .ssl.SSLSocket:ResourceWarning"),
]

USER, PASSWORD = "monitor", "s3cret-word"
CHROOT = "/clusters/west"
_JAAS = f"""\
Server {{
  org.apache.zookeeper.server.auth.DigestLoginModule required user_{USER}="{PASSWORD}";
}};
"""


class Secured(NamedTuple):
    """`plain` takes SASL and digests, `tls` wants a certificate of the client."""

    plain: str
    tls: str
    folder: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    try:
        class_path = ":".join(map(str, jars(ZOOKEEPER_LOCK)))
    except JarError as error:
        pytest.skip(f"the jars of ZooKeeper cannot be had: {error}")
    folder = tmp_path_factory.mktemp("zookeeper")
    make_certificates(folder)
    (folder / "jaas.conf").write_text(_JAAS)
    plain, tls = free_ports(2)
    properties = {
        "dataDir": folder / "data",
        "clientPortAddress": LOOPBACK,
        "clientPort": plain,
        "secureClientPortAddress": LOOPBACK,
        "secureClientPort": tls,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "ssl.keyStore.location": folder / "broker.pem",
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": folder / "ca.pem",
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
        "tickTime": 500,
        "admin.enableServer": "false",
    }
    file = folder / "zookeeper.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = ["nice", "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"-Djava.security.auth.login.config={folder / 'jaas.conf'}", "-cp", class_path]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(file)]
    with (folder / "zookeeper.log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        for port in (plain, tls):
            _wait(port, process, folder / "zookeeper.log")
        found = Secured(f"{LOOPBACK}:{plain}", f"{LOOPBACK}:{tls}", folder)
        with _filled(found):
            yield found
    finally:
        process.kill()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 150
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection((LOOPBACK, port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(log.read_text()[-2_000:])


@contextmanager
def _filled(secured: Secured) -> Iterator[None]:
    """A cluster's tree, as Kafka leaves it with zookeeper.set.acl: everybody may read. One topic
    is for a digest's eyes only, another for those of a SASL identity. Registrations are there as
    long as the session that made them."""
    from kazoo.client import KazooClient  # noqa: PLC0415 - slow
    from kazoo.security import ACL, Id, make_digest_acl  # noqa: PLC0415

    tree = FakeZookeeper.with_topic()
    tree.topic("for-digest", {0: [1, 2, 3]})
    tree.topic("for-sasl", {0: [1, 2, 3]})
    mine = {
        "for-digest": [make_digest_acl(USER, PASSWORD, read=True)],
        "for-sasl": [ACL(1, Id("sasl", USER))],
    }
    client = KazooClient(secured.plain, timeout=60)
    client.start(60)
    try:
        for path, node in tree.nodes.items():
            client.create(
                CHROOT + path, node.data, ephemeral=bool(node.ephemeral_owner), makepath=True
            )
        for topic, acl in mine.items():
            for path in (p for p in tree.nodes if p.startswith(f"/brokers/topics/{topic}")):
                client.set_acls(CHROOT + path, acl)
        client.set_acls(f"{CHROOT}/brokers/ids", [ACL(1, Id("world", "anyone"))])
        yield
    finally:
        client.stop()
        client.close()


@contextmanager
def connector(
    connect: str, secrets: dict[str, str] | None = None, chroot: str = CHROOT, **more: Any
) -> Iterator[Any]:
    options = {
        "zookeeper_connect": connect + chroot,
        "zookeeper_timeout_ms": 40_000,
        "version": "3.9.1",
        "jitter_ms": 0,
        "missed_rounds": 1,
        **more,
    }
    source = {
        "type": "direct",
        "collector": "zookeeper",
        "options": options,
        "secrets": secrets or {},
    }
    made = collector_of(Cluster.model_validate({"name": "field", "source": source}))
    assert isinstance(made, ZookeeperConnector)
    try:
        yield made
    finally:
        made.close()


def topics(seen: list[Observation]) -> set[str]:
    found = [each for each in seen if isinstance(each, PartitionObservation)]
    assert {each.bracket for each in found} <= {Bracket.COHERENT}
    return {each.topic for each in found}


def places(seen: list[Observation]) -> set[str]:
    return {each.place for each in seen if isinstance(each, HealthObservation)}


def test_without_credentials_what_may_not_be_read_is_named_and_the_rest_goes_on(
    secured: Secured,
) -> None:
    with connector(secured.plain) as made:
        seen = made.round()
    assert topics(seen) == {"orders"}
    assert places(seen) == {"/brokers/topics/for-digest", "/brokers/topics/for-sasl"}


def test_a_digest_opens_what_is_meant_for_it(secured: Secured) -> None:
    with connector(secured.plain, {"zookeeper_digest": f"{USER}:{PASSWORD}"}) as made:
        seen = made.round()
    assert topics(seen) == {"orders", "for-digest"}
    assert places(seen) == {"/brokers/topics/for-sasl"}


def test_a_sasl_identity_opens_what_is_meant_for_it(secured: Secured) -> None:
    with connector(
        secured.plain,
        {"zookeeper_sasl_password": PASSWORD},
        zookeeper_sasl_mechanism="DIGEST-MD5",
        zookeeper_sasl_username=USER,
    ) as made:
        seen = made.round()
    assert topics(seen) == {"orders", "for-sasl"}
    assert places(seen) == {"/brokers/topics/for-digest"}


def test_a_wrong_sasl_password_is_told_in_every_round_and_never_shown(secured: Secured) -> None:
    with connector(
        secured.plain,
        {"zookeeper_sasl_password": "hunter2"},
        zookeeper_sasl_mechanism="DIGEST-MD5",
        zookeeper_sasl_username=USER,
    ) as made:
        for _ in range(2):
            (told,) = made.round()
            assert "refuses the credentials" in told.reason
            assert told.problem is ProblemKind.UNREADABLE
            assert "hunter2" not in told.reason + told.remedy


def test_tls_with_a_certificate_of_our_own(secured: Secured) -> None:
    folder = secured.folder
    with connector(
        secured.tls,
        zookeeper_tls=True,
        zookeeper_tls_ca=str(folder / "ca.pem"),
        zookeeper_tls_certificate=str(folder / "client.crt"),
        zookeeper_tls_key=str(folder / "client.key"),
    ) as made:
        seen = made.round()
    assert topics(seen) == {"orders"}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="no-tls-at-all"),
        pytest.param({"zookeeper_tls": True}, id="an-authority-nobody-knows"),
    ],
)
def test_a_tls_port_that_cannot_be_entered_is_told(
    secured: Secured, options: dict[str, Any]
) -> None:
    with connector(secured.tls, zookeeper_timeout_ms=2_000, **options) as made:
        (told,) = made.round()
    assert "does not answer" in told.reason
    assert "zookeeper_tls" in told.remedy


def test_a_chroot_where_no_cluster_is_told_with_the_place(secured: Secured) -> None:
    with connector(secured.plain) as made:
        reader = made._metadata._reader
        reader._options = type(reader._options)(connect=f"{secured.plain}/nowhere")
        (told,) = made.round()
    assert f"{secured.plain}/nowhere" in told.reason
    assert "chroot" in told.remedy


def test_the_right_to_read_is_all_that_is_needed(secured: Secured) -> None:
    """/brokers/ids may be read by everybody and nothing else, as after zookeeper.set.acl."""
    from kazoo.client import KazooClient  # noqa: PLC0415 - slow
    from kazoo.exceptions import NoAuthError  # noqa: PLC0415

    client = KazooClient(secured.plain + CHROOT)
    client.start(60)
    try:
        with pytest.raises(NoAuthError):
            client.create("/brokers/ids/9", b"")
        assert json.loads(client.get("/brokers/ids/1")[0])["version"] == 4
    finally:
        client.stop()
        client.close()
    with connector(secured.plain) as made:
        (cluster, *_) = made.round()
    assert [each.broker for each in cluster.registrations] == [1, 2, 3]


def test_the_znodes_on_the_page_are_all_that_must_be_readable(secured: Secured) -> None:
    """Everything is closed but those, which a digest may read. Without it all of them are named."""
    from kazoo.client import KazooClient  # noqa: PLC0415 - slow
    from kazoo.security import make_digest_acl  # noqa: PLC0415

    chroot = "/clusters/closed"
    listed, below = znodes_of_the_page()
    tree = FakeZookeeper.with_topic()
    tree.put("/cluster/id", {"version": "1", "id": "west-id"})
    tree.put("/feature", {"version": 2, "status": 1, "features": {}})
    for path in ("/latest_producer_id_block", "/log_dir_event_notification", "/config/users/me"):
        tree.put(path, None)
    client = KazooClient(secured.plain, timeout=60)
    client.start(60)
    try:
        for path, node in tree.nodes.items():
            ephemeral = bool(node.ephemeral_owner)
            client.create(chroot + path, node.data, ephemeral=ephemeral, makepath=True)
        made = {path.rsplit("/", up)[0] for path in tree.nodes for up in range(path.count("/"))}
        for path in sorted(made, reverse=True):
            mine = path in listed or any(path.startswith(f"{each}/") for each in below)
            reader = (USER, PASSWORD) if mine else ("somebody", "else")
            client.set_acls(chroot + path, [make_digest_acl(*reader, read=True)])
        client.set_acls(chroot, [make_digest_acl("somebody", "else", read=True)])
        digest = {"zookeeper_digest": f"{USER}:{PASSWORD}"}
        with connector(secured.plain, digest, chroot=chroot) as made_with:
            seen = made_with.round()
            about = made_with._metadata._tree._last.about
        assert (topics(seen), places(seen)) == ({"orders"}, set())
        assert (about.cluster_id, about.features) == ("west-id", {})
        with connector(secured.plain, chroot=chroot) as made_without:
            refused = places(made_without.round())
        assert refused == listed & made
    finally:
        client.stop()
        client.close()
