"""A real broker with an authorizer, and a listener for every way to prove who one is."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.streaming.lab.cluster import Lab
from tidestaff.streaming.lab.plan import LOOPBACK, free_ports, make_plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION: Final = "3.9.1"
USER: Final = "monitor"
PASSWORD: Final = 's3cret;"=word'  # noqa: S105 - of a broker that lives for seconds
_SECURITY: Final = "org.apache.kafka.common.security"


class Acl(NamedTuple):
    """An operation on a topic ('*' is every one) or on the cluster."""

    operation: str
    resource: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}"


class SecuredLab(NamedTuple):
    """Without credentials one is a super user, by the listener PLAINTEXT."""

    lab: Lab
    listeners: dict[str, str]
    folder: Path

    @contextmanager
    def admin(self) -> Iterator[Any]:
        from kafka import KafkaAdminClient  # noqa: PLC0415 - slow

        admin = KafkaAdminClient(bootstrap_servers=self.lab.bootstrap, request_timeout_ms=10_000)
        try:
            yield admin
        finally:
            admin.close()

    def allow(self, *acls: Acl, user: str = USER) -> None:
        with self.admin() as admin:
            admin.create_acls([_acl(each, user) for each in acls])

    def take_away(self, *acls: Acl, user: str = USER) -> None:
        from kafka.admin import ACLFilter  # noqa: PLC0415

        with self.admin() as admin:
            for each in acls:
                found = _acl(each, user)
                where = (found.principal, found.host, found.operation, found.permission_type)
                admin.delete_acls([ACLFilter(*where, found.resource_pattern)])

    def denied(self, user: str = USER) -> list[str]:
        """What the authorizer has refused, from the broker's log."""
        lines = self.lab.log(1).splitlines()
        return [line for line in lines if f"User:{user} is Denied" in line]


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
def secured(folder: Path, version: str = VERSION, *, brokers: int = 1) -> Iterator[SecuredLab]:
    """Nodes of KRaft; SASL with three mechanisms, TLS, TLS with a client's certificate, and SASL
    over TLS. `listeners` are those of the first."""
    names = ("SASL", "TLS", "MTLS", "BOTH")
    make_certificates(folder)
    plan = make_plan(folder / "lab", version=version, brokers=brokers)
    ports: dict[str, int] = {}
    for number in reversed(plan.brokers):
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        plain = f"PLAINTEXT://{LOOPBACK}:{plan.clients[number]}"
        mine = f"{plain},INNER://{LOOPBACK}:{plan.inner[number]}"
        mine += "".join(f",{name}://{LOOPBACK}:{port}" for name, port in ports.items())
        plan.settings[number] = _settings(folder, mine)
    with Lab(plan) as lab:
        listeners = {name: f"{LOOPBACK}:{port}" for name, port in ports.items()}
        found = SecuredLab(lab, listeners, folder)
        _make_user(found)
        yield found


def _settings(folder: Path, listeners: str) -> dict[str, str]:
    of_users = f"{_SECURITY}.scram.ScramLoginModule required;"
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT,"
        "SASL:SASL_PLAINTEXT,TLS:SSL,MTLS:SSL,BOTH:SASL_SSL",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": f"{_SECURITY}.plain.PlainLoginModule "
        f'required user_{USER}="simple";',
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": of_users,
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{_SECURITY}.oauthbearer."
        'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
        "listener.name.both.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.both.scram-sha-512.sasl.jaas.config": of_users,
        "listener.name.mtls.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }


def _make_user(lab: SecuredLab) -> None:
    from kafka.admin import ScramMechanism, UserScramCredentialUpsertion  # noqa: PLC0415

    with lab.admin() as admin:
        credentials = UserScramCredentialUpsertion(USER, ScramMechanism.SCRAM_SHA_512, PASSWORD)
        assert admin.alter_user_scram_credentials([credentials]) == {USER: None}


def make_certificates(folder: Path) -> None:
    """ca.pem, and broker.pem and client.pem with their keys."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "names").write_text(f"subjectAltName=IP:{LOOPBACK},DNS:localhost\n")
    key = ["-newkey", "rsa:2048", "-nodes", "-keyout"]
    _openssl(folder, "req", "-x509", *key, "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name, subject in (("broker", "/CN=broker"), ("client", f"/CN={USER}")):
        _openssl(folder, "req", *key, f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        signing = ["-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
        _openssl(folder, "x509", "-req", *signing, "-extfile", "names", "-out", f"{name}.crt")
        both = (folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text()
        (folder / f"{name}.pem").write_text(both)


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
