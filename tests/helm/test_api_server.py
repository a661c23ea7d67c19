"""The chart on a real API server, where its program is at hand: what helm's dry run on the server
says, and what admission says of every object. Nothing is scheduled: there are no nodes.

etcd and kube-apiserver are looked for on the path, or named by TIDESTAFF_ETCD and
TIDESTAFF_KUBE_APISERVER.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from tidestaff.streaming.lab.plan import LOOPBACK, free_ports

from tests.helm.chart import CHART, NAMESPACE, RELEASE, VALUE_SETS, Manifest, helm, manifests, title

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

TOKEN: Final = "of-a-server-that-lives-for-a-test"  # noqa: S105 - opens nothing else
WITHIN_S: Final = 120.0
CUSTOM: Final = (
    ("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    ("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    ("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"),
    ("kyverno.io", "v1", "Policy", "policies"),
)


@dataclass
class ApiServer:
    """Where it listens, and how it is asked."""

    port: int
    folder: Path

    def ask(self, method: str, path: str, body: Manifest | None = None) -> tuple[int, Any, str]:
        """Status, answer, and what the server warns of."""
        request = urllib.request.Request(
            f"https://{LOOPBACK}:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        context = ssl.create_default_context(cafile=str(self.folder / "certs" / "apiserver.crt"))
        context.check_hostname = False
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310
                warned = "; ".join(answer.headers.get_all("Warning") or ())
                return answer.status, json.loads(answer.read() or b"null"), warned
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null"), ""

    @property
    def kubeconfig(self) -> str:
        path = self.folder / "kubeconfig"
        server = {"server": f"https://{LOOPBACK}:{self.port}", "insecure-skip-tls-verify": True}
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

    def paths(self) -> dict[tuple[str, str], tuple[str, bool]]:
        """Of every kind: its plural, and whether it lives in a namespace."""
        found = {}
        groups = ["/api/v1"]
        for group in self.ask("GET", "/apis")[1]["groups"]:
            groups += [f"/apis/{each['groupVersion']}" for each in group["versions"]]
        for path in groups:
            listed = self.ask("GET", path)[1]
            for each in listed.get("resources", ()):
                if "/" not in each["name"]:
                    key = (listed["groupVersion"], each["kind"])
                    found[key] = (f"{path}/", each["name"], each["namespaced"])
        return {
            key: (f"{path}namespaces/{NAMESPACE}/{name}" if inside else f"{path}{name}", inside)
            for key, (path, name, inside) in found.items()
        }


def _program(setting: str, name: str) -> str:
    found = os.environ.get(setting) or shutil.which(name)
    if not found:
        pytest.skip(
            f"no {name} on the path (or named by {setting}): the chart is checked against the "
            "schemas of Kubernetes only, not by an API server"
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    etcd = _program("TIDESTAFF_ETCD", "etcd")
    program = _program("TIDESTAFF_KUBE_APISERVER", "kube-apiserver")
    folder = tmp_path_factory.mktemp("api-server")
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
            f"--advertise-address={LOOPBACK}",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--service-account-issuer=https://{LOOPBACK}:{port}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            *(f"--token-auth-file={tokens}", "--authorization-mode=RBAC"),
        ),
    ):
        found = ApiServer(port, folder)
        _until_ready(found)
        _prepare(found)
        yield found


def _until_ready(server: ApiServer) -> None:
    until = time.monotonic() + WITHIN_S
    while True:
        with contextlib.suppress(OSError, ValueError):
            if server.ask("GET", "/api/v1/namespaces/default")[0] == 200:
                return
        if time.monotonic() > until:
            log = (server.folder / "apiserver.log").read_text(encoding="utf-8")
            raise AssertionError(f"the API server does not come up: {log[-2_000:]}")
        time.sleep(0.5)


def _prepare(server: ApiServer) -> None:
    """The namespace, restricted as a security team has it, and the kinds of the operators."""
    labels = {
        f"pod-security.kubernetes.io/{what}": "restricted" for what in ("enforce", "warn", "audit")
    }
    metadata = {"name": NAMESPACE, "labels": labels}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    assert server.ask("POST", "/api/v1/namespaces", body)[0] == 201
    for group, version, kind, plural in CUSTOM:
        whole = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        definition = {
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
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": whole},
                    }
                ],
            },
        }
        status, said, _ = server.ask(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
        )
        assert status == 201, said
    until = time.monotonic() + WITHIN_S
    wanted = {(f"{group}/{version}", kind) for group, version, kind, _ in CUSTOM}
    while not wanted <= set(server.paths()):
        assert time.monotonic() < until, "the kinds of the operators do not come up"
        time.sleep(0.5)


@pytest.mark.parametrize("name", VALUE_SETS)
def test_helm_installs_it_on_a_server(server: ApiServer, name: str) -> None:
    done = helm(
        *("install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--dry-run=server"),
        *("--values", str(VALUE_SETS[name]), "--kubeconfig", server.kubeconfig),
    )
    assert done.returncode == 0, done.stderr
    assert "MANIFEST:" in done.stdout


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_server_admits_every_object(server: ApiServer, name: str) -> None:
    """Not one field is unknown, and nothing is warned of in a namespace of the restricted
    profile."""
    paths, refused = server.paths(), []
    for manifest in manifests(name):
        path, inside = paths[manifest["apiVersion"], manifest["kind"]]
        there = manifest["metadata"].get("namespace", NAMESPACE)
        if inside and there != NAMESPACE:
            path = path.replace(f"/namespaces/{NAMESPACE}/", f"/namespaces/{there}/")
        asked = f"{path}?dryRun=All&fieldValidation=Strict"
        status, said, warned = server.ask("POST", asked, manifest)
        if status != 201 or warned:
            refused.append(f"{title(manifest)}: {status} {said.get('message', '')} {warned}")
    assert not refused, "\n".join(refused)
