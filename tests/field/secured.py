"""A real broker with an authorizer, and a listener for every way to prove who one is."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.streaming.lab.cluster import Lab
from tidestaff.streaming.lab.plan import LOOPBACK, free_ports, make_plan
from tidestaff.streaming.lab.releases import ZOOKEEPER

from tests.field.secured_settings import (
    BROKER,
    SECURITY,
    USER,
    ClosedZookeeper,
    by_certificate,
    java_stores,
    listening,
    make_certificates,
    make_java_stores,
    numbers,
    pem_stores,
    with_sasl,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

VERSION: Final = "3.9.1"
PASSWORD: Final = 's3cret;"=word'  # noqa: S105 - of a broker that lives for seconds
SCRAM: Final = (
    f"{SECURITY}.scram.ScramLoginModule required "
    f'username="{USER}" password="{PASSWORD.replace(chr(34), chr(92) + chr(34))}";'
)


class Acl(NamedTuple):
    """An operation on a topic ('*' is every one) or on the cluster."""

    operation: str
    resource: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}"


def needed(version: str) -> tuple[Acl, ...]:
    """The ACLs of docs/permissions.md, as far as a release has the requests that ask for them."""
    release = numbers(version)
    cluster, topics = ("cluster", "kafka-cluster"), ("topic", "*")
    return (
        *([Acl("Describe", *cluster)] if release >= (1, 0) else []),
        *([Acl("DescribeConfigs", *cluster)] if release >= (0, 11) else []),
        Acl("Read", *topics),
        *([Acl("DescribeConfigs", *topics)] if release >= (0, 11) else []),
    )


class SecuredLab(NamedTuple):
    """Without credentials one is a super user, by the listener PLAINTEXT. `zookeeper_tls` is the
    port of ZooKeeper by which the brokers come, who alone may write there; others read."""

    lab: Lab
    listeners: dict[str, str]
    folder: Path
    zookeeper_tls: str = ""

    @property
    def way(self) -> str:
        """How the monitor logs in: releases that take no PEM know it by its certificate."""
        return "scram" if "SASL" in self.listeners else "mtls"

    @property
    def user(self) -> str:
        return USER if self.way == "scram" else f"CN={USER}"

    @contextmanager
    def admin(self) -> Iterator[Any]:
        from kafka import KafkaAdminClient  # noqa: PLC0415 - slow

        admin = KafkaAdminClient(bootstrap_servers=self.lab.bootstrap, request_timeout_ms=10_000)
        try:
            yield admin
        finally:
            admin.close()

    def allow(self, *acls: Acl, user: str = "") -> None:
        if self._only_by_tool:
            self._tool("--add", acls, user or self.user)
            return
        with self.admin() as admin:
            admin.create_acls([_acl(each, user or self.user) for each in acls])

    def take_away(self, *acls: Acl, user: str = "") -> None:
        from kafka.admin import ACLFilter  # noqa: PLC0415

        if self._only_by_tool:
            self._tool("--remove", acls, user or self.user)
            return
        with self.admin() as admin:
            for each in acls:
                found = _acl(each, user or self.user)
                where = (found.principal, found.host, found.operation, found.permission_type)
                admin.delete_acls([ACLFilter(*where, found.resource_pattern)])

    @property
    def _only_by_tool(self) -> bool:
        """Before 0.11 brokers take no ACLs from clients."""
        return numbers(self.lab.plan.version) < (0, 11)

    def _tool(self, what: str, acls: Sequence[Acl], user: str) -> None:
        where = ("--authorizer-properties", f"zookeeper.connect={self.lab.zookeeper_connect}")
        for each in acls:
            place = ("--cluster",) if each.resource == "cluster" else ("--topic", each.name)
            whom = ("--allow-principal", f"User:{user}", "--operation", each.operation)
            force = ("--force",) if what == "--remove" else ()
            self.lab.tool("kafka.admin.AclCommand", *where, what, *force, *whom, *place)

    def denied(self) -> list[str]:
        """What the authorizer has refused to the monitor, from the broker's log."""
        lines = self.lab.log(1).splitlines()
        return [line for line in lines if f"User:{self.user} is Denied" in line]

    def login(self, way: str = "") -> tuple[str, dict[str, str]]:
        """The listener, and what to say to it as client properties."""
        sasl = {"security.protocol": "SASL_PLAINTEXT"}
        tls = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
        }
        plain = f'{SECURITY}.plain.PlainLoginModule required username="{USER}" password="simple";'
        oauth = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required"
        oauth += f' unsecuredLoginStringClaim_sub="{USER}";'
        jaas = {"SCRAM-SHA-512": SCRAM, "PLAIN": plain, "OAUTHBEARER": oauth}
        with_sasl = {
            mechanism: {**sasl, "sasl.mechanism": mechanism, "sasl.jaas.config": config}
            for mechanism, config in jaas.items()
        }
        return {
            "scram": ("SASL", with_sasl["SCRAM-SHA-512"]),
            "plain": ("SASL", with_sasl["PLAIN"]),
            "oauth": ("SASL", with_sasl["OAUTHBEARER"]),
            "tls": ("TLS", tls),
            "mtls": ("MTLS", {**tls, "ssl.keystore.location": str(self.folder / "client.pem")}),
        }[way or self.way]

    @contextmanager
    def zookeeper_as_broker(self) -> Iterator[Any]:
        """A client with the brokers' identity, which may do all that they may."""
        from kazoo.client import KazooClient  # noqa: PLC0415 - slow

        client = KazooClient(
            self.zookeeper_tls,
            use_ssl=True,
            ca=str(self.folder / "ca.pem"),
            certfile=str(self.folder / "broker.crt"),
            keyfile=str(self.folder / "broker.key"),
        )
        client.start(60)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def znodes(self) -> dict[str, bool]:
        """All of Kafka's, and whether everybody may read them."""
        found: dict[str, bool] = {}
        with self.zookeeper_as_broker() as client:
            left = ["/"]
            while left:
                path = left.pop()
                names = client.get_children(path)
                left += [f"{path.rstrip('/')}/{name}" for name in names if name != "zookeeper"]
                found[path] = any(acl.id.scheme == "world" for acl in client.get_acls(path)[0])
        return found

    def let_read(self, everybody: Mapping[str, bool]) -> None:
        """Whether each of these znodes is for everybody to read, or for brokers alone."""
        from kazoo.security import make_acl  # noqa: PLC0415 - slow

        mine, theirs = make_acl("x509", BROKER, all=True), make_acl("world", "anyone", read=True)
        with self.zookeeper_as_broker() as client:
            for path, opened in everybody.items():
                client.set_acls(path, [mine, theirs] if opened else [mine])


def write_properties(file: Path, lines: dict[str, str]) -> None:
    """As people have them in a file."""
    escaped = {name: value.replace("\\", "\\\\") for name, value in lines.items()}
    text = "".join(f"{name}={value}\n" for name, value in escaped.items())
    file.write_text(text, encoding="utf-8")


def _acl(acl: Acl, user: str) -> Any:
    from kafka.admin import (  # noqa: PLC0415
        ACL,
        ACLOperation,
        ACLPermissionType,
        ResourcePattern,
        ResourceType,
    )

    words = {"DescribeConfigs": "DESCRIBE_CONFIGS"}
    operation = ACLOperation[words.get(acl.operation, acl.operation.upper())]
    pattern = ResourcePattern(ResourceType[acl.resource.upper()], acl.name)
    return ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern)


@contextmanager
def secured(
    folder: Path, version: str = VERSION, mode: str | None = None, *, brokers: int = 1
) -> Iterator[SecuredLab]:
    """SASL with three mechanisms, TLS, TLS with a client's certificate, and SASL over TLS; before
    3.0 only the certificate. `listeners` are those of the first. ZooKeeper lets brokers from 3.0 on
    in by their certificate, and they close it to others as zookeeper.set.acl says."""
    # 2.7 and 2.8 read PEM, but no key without a password.
    new = numbers(version) >= (3, 0)
    names = ("SASL", "TLS", "MTLS", "BOTH") if new else ("MTLS",)
    make_certificates(folder)
    if not new:
        make_java_stores(folder)
    plan = make_plan(folder / "lab", version=version, mode=mode, brokers=brokers)
    closed = new and plan.mode == ZOOKEEPER
    (port,) = free_ports(1) if closed else (0,)
    ports: dict[str, int] = {}
    for number in reversed(plan.brokers):
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        plan.settings[number] = {
            **listening(plan, number, ports),
            **(with_sasl() if new else {}),
            **(pem_stores(folder) if new else java_stores(folder)),
            **(by_certificate(folder, port) if closed else {}),
        }
    engine = ClosedZookeeper(folder, plan.folder, port) if closed else None
    with Lab(plan, engine=engine) as lab:
        listeners = {name: f"{LOOPBACK}:{each}" for name, each in ports.items()}
        found = SecuredLab(lab, listeners, folder, f"{LOOPBACK}:{port}" if closed else "")
        if new:
            _make_user(found)
        yield found


def _make_user(lab: SecuredLab) -> None:
    from kafka.admin import ScramMechanism, UserScramCredentialUpsertion  # noqa: PLC0415

    with lab.admin() as admin:
        credentials = UserScramCredentialUpsertion(USER, ScramMechanism.SCRAM_SHA_512, PASSWORD)
        assert admin.alter_user_scram_credentials([credentials]) == {USER: None}
