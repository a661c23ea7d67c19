"""A real API server with its etcd, on loopback: kinds, admission and rights as a cluster has them.
Nothing is scheduled, and no controller runs: there are no nodes.

etcd is looked for on the path (Debian: etcd-server), kube-apiserver where `make api-server` puts
it, then on the path; TIDESTAFF_ETCD and TIDESTAFF_KUBE_APISERVER name others.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import yaml
from tidestaff.streaming.lab.plan import LOOPBACK, free_ports

from tests.helm.chart import HERE, NAMESPACE, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN: Final = "of-a-server-that-lives-for-a-test"  # noqa: S105 - opens nothing else
WITHIN_S: Final = 120.0
SCHEMAS: Final = [json.loads(path.read_text()) for path in sorted((HERE / "schemas").glob("*"))]


class Answer(NamedTuple):
    """What the server says: its status, the object, and what it warns of."""

    status: int
    body: Any
    warned: str

    def __str__(self) -> str:
        return f"{self.status} {(self.body or {}).get('message', '')} {self.warned}".strip()


@dataclass(frozen=True)
class ApiServer:
    """Where it listens, and how it is asked."""

    port: int
    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "certs" / "apiserver.crt"

    def ask(
        self, method: str, path: str, body: Manifest | None = None, token: str = TOKEN
    ) -> Answer:
        request = urllib.request.Request(
            f"https://{LOOPBACK}:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        context = ssl.create_default_context(cafile=str(self.certificate))
        # It signs its certificate by itself, for names this machine may not have.
        context.check_hostname = False
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310
                warned = "; ".join(answer.headers.get_all("Warning") or ())
                return Answer(answer.status, json.loads(answer.read() or b"null"), warned)
        except urllib.error.HTTPError as error:
            return Answer(error.code, json.loads(error.read() or b"null"), "")

    def make(self, path: str, body: Manifest) -> Any:
        said = self.ask("POST", path, body)
        assert said.status == 201, said
        return said.body

    def make_namespace(self, name: str, profile: str) -> None:
        """As a security team has it: one profile of pod security for all that comes."""
        labels = {
            f"pod-security.kubernetes.io/{what}": profile for what in ("enforce", "warn", "audit")
        }
        body = {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.make("/api/v1/namespaces", {"apiVersion": "v1", **body})

    def kubeconfig(self) -> str:
        path = self.folder / "kubeconfig"
        server = {
            "server": f"https://{LOOPBACK}:{self.port}",
            "certificate-authority": str(self.certificate),
            "tls-server-name": "kubernetes.default.svc",
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return str(path)

    def kinds(self) -> dict[tuple[str, str], tuple[str, str, bool]]:
        """Of every kind: the path of its group, its plural, whether it lives in a namespace."""
        paths = ["/api/v1"]
        for group in self.ask("GET", "/apis").body["groups"]:
            paths += [f"/apis/{each['groupVersion']}" for each in group["versions"]]
        return {
            (listed["groupVersion"], each["kind"]): (path, each["name"], each["namespaced"])
            for path in paths
            for listed in [self.ask("GET", path).body]
            for each in listed.get("resources", ())
            if "/" not in each["name"]
        }

    @functools.cached_property
    def _known(self) -> dict[tuple[str, str], tuple[str, str, bool]]:
        return self.kinds()

    def path_of(self, manifest: Manifest, namespace: str = NAMESPACE) -> str:
        """Where objects like this one are made."""
        path, plural, inside = self._known[manifest["apiVersion"], manifest["kind"]]
        there = manifest["metadata"].get("namespace", namespace)
        return f"{path}/namespaces/{there}/{plural}" if inside else f"{path}/{plural}"


def kube_apiserver() -> Path:
    """Where `make api-server` puts it."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tidestaff" / "api-server" / "kube-apiserver"


def _program(setting: str, name: str, hint: str) -> str:
    built = kube_apiserver()
    beside = str(built) if name == built.name and built.is_file() else None
    found = os.environ.get(setting) or beside or shutil.which(name)
    if not found:
        pytest.skip(
            f"there is no {name} ({hint}, or name it by {setting}): the chart is checked against "
            "the schemas of Kubernetes only, not by an API server"
        )
    return found


@contextlib.contextmanager
def started(log: Path, *command: str) -> Iterator[None]:
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            child.kill()
            child.wait(10)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ApiServer]:
    """A server that answers, with the kinds of the operators and nothing else in it."""
    etcd = _program("TIDESTAFF_ETCD", "etcd", "Debian: etcd-server")
    program = _program("TIDESTAFF_KUBE_APISERVER", "kube-apiserver", "make api-server")
    clients, peers, port = free_ports(3)
    store = f"http://{LOOPBACK}:{clients}"
    key = folder / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    tokens = folder / "tokens.csv"
    tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n', encoding="utf-8")
    with (
        started(
            folder / "etcd.log",
            *(etcd, "--data-dir", str(folder / "etcd"), "--listen-client-urls", store),
            *("--advertise-client-urls", store),
            *("--listen-peer-urls", f"http://{LOOPBACK}:{peers}"),
        ),
        started(
            folder / "apiserver.log",
            *(program, f"--etcd-servers={store}", f"--secure-port={port}"),
            *(f"--bind-address={LOOPBACK}", f"--cert-dir={folder / 'certs'}"),
            # A server refuses to advertise a loopback address; nobody looks for this one by it.
            "--advertise-address=192.0.2.1",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--service-account-issuer=https://{LOOPBACK}:{port}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            *(f"--token-auth-file={tokens}", "--authorization-mode=RBAC"),
        ),
    ):
        found = ApiServer(port, folder)
        _until_ready(found)
        _define_kinds(found)
        yield found


def _until_ready(server: ApiServer) -> None:
    until = time.monotonic() + WITHIN_S
    while True:
        with contextlib.suppress(OSError, ValueError):
            if server.ask("GET", "/api/v1/namespaces/default").status == 200:
                return
        if time.monotonic() > until:
            log = (server.folder / "apiserver.log").read_text(encoding="utf-8")
            raise AssertionError(f"the API server does not come up: {log[-2_000:]}")
        time.sleep(0.5)


def structural(schema: Manifest) -> Manifest:
    """A schema as definitions of kinds have it: what is not named is refused without being told
    so, and what may be anything says so."""
    found = {key: each for key, each in schema.items() if key not in ("additionalProperties",)}
    if isinstance(schema.get("type"), list):
        del found["type"]
        found["x-kubernetes-int-or-string"] = True
    if "properties" in schema:
        found["properties"] = {key: structural(each) for key, each in schema["properties"].items()}
    elif isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = structural(schema["additionalProperties"])
    elif schema.get("type") == "object":
        found["x-kubernetes-preserve-unknown-fields"] = True
    if "items" in schema:
        found["items"] = structural(schema["items"])
    return found


def _whole(schema: Manifest) -> Manifest:
    found = structural(schema)
    # The server knows metadata by itself and takes no other word for it.
    found["properties"] = {**found["properties"], "metadata": {"type": "object"}}
    return found


def _definition(group: str, version: str, kind: str, schema: Manifest) -> Manifest:
    plural = f"{kind.lower()}s" if not kind.endswith("y") else f"{kind.lower()[:-1]}ies"
    served = {"name": version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Else the server takes nothing below *.k8s.io.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def _define_kinds(server: ApiServer) -> None:
    """Of the operators, by their own schemas; of Kyverno any Policy, its schema is not kept."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    kinds = [(s["group"], s["version"], s["kind"], _whole(s["schema"])) for s in SCHEMAS]
    kinds.append(("kyverno.io", "v1", "Policy", anything))
    for kind in kinds:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        server.make(path, _definition(*kind))
    until = time.monotonic() + WITHIN_S
    wanted = {(f"{group}/{version}", kind) for group, version, kind, _ in kinds}
    while not wanted <= set(server.kinds()):
        assert time.monotonic() < until, "the kinds of the operators do not come up"
        time.sleep(0.5)
