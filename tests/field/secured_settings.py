"""What makes a broker ask who one is, and what one may: settings of brokers and of ZooKeeper, and
certificates."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.lab.plan import LOOPBACK, ZOOKEEPER_NODE, node_name
from tidestaff.streaming.lab.processes import Processes
from tidestaff.streaming.lab.releases import KRAFT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.lab.plan import Plan

USER: Final = "monitor"
BROKER: Final = "CN=broker"
SECURITY: Final = "org.apache.kafka.common.security"
_STORES: Final = "a-password"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def authorizer(version: str, mode: str) -> str:
    """Kafka's own; that of ZooKeeper clusters had another name before 2.4."""
    if mode == KRAFT:
        return "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    if numbers(version) >= (2, 4):
        return "kafka.security.authorizer.AclAuthorizer"
    return "kafka.security.auth.SimpleAclAuthorizer"


def listening(plan: Plan, number: int, ports: dict[str, int]) -> dict[str, str]:
    found = f"PLAINTEXT://{LOOPBACK}:{plan.clients[number]}"
    found += f",INNER://{LOOPBACK}:{plan.inner[number]}"
    found += "".join(f",{name}://{LOOPBACK}:{port}" for name, port in ports.items())
    protocols = {"SASL": "SASL_PLAINTEXT", "TLS": "SSL", "MTLS": "SSL", "BOTH": "SASL_SSL"}
    return {
        "listeners": found,
        "advertised.listeners": found,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT"
        + "".join(f",{name}:{protocols[name]}" for name in ports),
        "authorizer.class.name": authorizer(plan.version, plan.mode),
        "super.users": "User:ANONYMOUS",
        "listener.name.mtls.ssl.client.auth": "required",
    }


def with_sasl() -> dict[str, str]:
    of_users = f"{SECURITY}.scram.ScramLoginModule required;"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": f"{SECURITY}.plain.PlainLoginModule "
        f'required user_{USER}="simple";',
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": of_users,
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{SECURITY}.oauthbearer."
        'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
        "listener.name.both.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.both.scram-sha-512.sasl.jaas.config": of_users,
    }


def pem_stores(folder: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }


def java_stores(folder: Path) -> dict[str, str]:
    """For releases that read no plain PEM. 0.10.2 knows no setting of one listener: without a
    certificate everybody would be ANONYMOUS there, and no ACL looked at."""
    return {
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / "broker.p12"),
        "ssl.keystore.password": _STORES,
        "ssl.key.password": _STORES,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(folder / "ca.p12"),
        "ssl.truststore.password": _STORES,
    }


def by_certificate(folder: Path, port: int) -> dict[str, str]:
    """Brokers that come to ZooKeeper with a name, and keep what they write there for it."""
    return {
        "zookeeper.connect": f"{LOOPBACK}:{port}",
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        **{f"zookeeper.{name}": value for name, value in pem_stores(folder).items()},
    }


class ClosedZookeeper(Processes):
    """ZooKeeper with one more port, for those who have a certificate."""

    def __init__(self, certificates: Path, lab: Path, port: int) -> None:
        super().__init__(lab)
        self._more = {
            "secureClientPortAddress": LOOPBACK,
            "secureClientPort": str(port),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(certificates / "broker.pem"),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(certificates / "ca.pem"),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
        }

    def start(self, name: str, command: Sequence[str], log: Path) -> None:
        if name == node_name(ZOOKEEPER_NODE):
            with Path(command[-1]).open("a", encoding="utf-8") as file:
                file.writelines(f"{key}={value}\n" for key, value in self._more.items())
        super().start(name, command, log)


def make_certificates(folder: Path) -> None:
    """ca.pem, and broker.pem and client.pem with their keys."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "names").write_text(f"subjectAltName=IP:{LOOPBACK},DNS:localhost\n")
    key = ["-newkey", "rsa:2048", "-nodes", "-keyout"]
    _run(folder, "openssl", "req", "-x509", *key, "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name, subject in (("broker", f"/{BROKER}"), ("client", f"/CN={USER}")):
        request = ["req", *key, f"{name}.key", "-out", f"{name}.csr", "-subj", subject]
        _run(folder, "openssl", *request)
        signing = ["-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
        signing += ["-extfile", "names", "-out", f"{name}.crt"]
        _run(folder, "openssl", "x509", "-req", *signing)
        both = (folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text()
        (folder / f"{name}.pem").write_text(both)


def make_java_stores(folder: Path) -> None:
    """broker.p12 and ca.p12, for releases that read no PEM."""
    key = ["-inkey", "broker.key", "-in", "broker.crt", "-passout", f"pass:{_STORES}"]
    _run(folder, "openssl", "pkcs12", "-export", *key, "-out", "broker.p12")
    store = ["-storetype", "PKCS12", "-keystore", "ca.p12", "-storepass", _STORES]
    _run(folder, "keytool", "-importcert", "-noprompt", "-alias", "ca", *store, "-file", "ca.pem")


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
