"""The chart on a real API server, where its program is at hand (`make api-server`): what helm's dry
run says, what admission says of every object and pod, and what an install leaves behind."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.helm.api_server import ApiServer, running
from tests.helm.chart import (
    CHART,
    NAMESPACE,
    RELEASE,
    ROOT,
    VALUE_SETS,
    Manifest,
    helm,
    manifests,
    pod_specs,
    title,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

STRICT: Final = "?dryRun=All&fieldValidation=Strict"
# Beyond the restricted profile, for the agent on nodes alone: docs/kubernetes.md says so.
OF_THE_HOST: Final = {"host namespaces", "hostPort", "restricted volume types"}
EMPTY: Final = "to-install-into"
HOST_PATHS: Final = "privileged-for-agents"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("api-server")) as found:
        for name in (NAMESPACE, "kafka", EMPTY):
            found.make_namespace(name, "restricted")
        found.make_namespace(HOST_PATHS, "privileged")
        # What the value sets name as being there already.
        for namespace in (NAMESPACE, HOST_PATHS):
            for name in ("demo-tidestaff", "staff", "shared", "default"):
                account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
                found.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        for name in ("high", "low"):
            body = {"kind": "PriorityClass", "metadata": {"name": name}, "value": 1}
            path = "/apis/scheduling.k8s.io/v1/priorityclasses"
            found.make(path, {"apiVersion": "scheduling.k8s.io/v1", **body})
        yield found


@pytest.mark.parametrize("name", VALUE_SETS)
def test_helm_installs_it_on_a_server(server: ApiServer, name: str) -> None:
    words = (str(CHART), "--dry-run=server", "--values", str(VALUE_SETS[name]))
    done = on(server, "install", *words, namespace=EMPTY)
    assert "MANIFEST:" in done.stdout


def on(
    server: ApiServer, command: str, *words: str, namespace: str
) -> subprocess.CompletedProcess[str]:
    where = ("--namespace", namespace, "--kubeconfig", server.kubeconfig())
    done = helm(command, RELEASE, *words, *where)
    assert done.returncode == 0, done.stderr
    return done


def breaches(warned: str) -> set[str]:
    """What pod security warns of, by its own words for each check."""
    found = re.search(r'would violate PodSecurity \\?"[^"]+": (.*)', warned)
    return set(re.findall(r"(?:^|\), )([A-Za-z][A-Za-z !=.]*?) \(", found[1])) if found else set()


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_server_admits_every_object(server: ApiServer, name: str) -> None:
    """Not one field is unknown, and nothing is warned of in a namespace of the restricted
    profile but what the agent on nodes is made for."""
    refused = []
    for manifest in manifests(name):
        asked = copy.deepcopy(manifest)
        if manifest["kind"] == "ServiceAccount":
            # One of that name was made above, for the pods to have it.
            asked["metadata"]["name"] += "-too"
        said = server.ask("POST", server.path_of(manifest) + STRICT, asked)
        of_host = manifest["kind"] == "DaemonSet" and breaches(said.warned) <= OF_THE_HOST
        if said.status != 201 or (said.warned and not of_host):
            refused.append(f"{title(manifest)}: {said}")
    assert not refused, "\n".join(refused)


def as_pod(spec: Manifest) -> Manifest:
    """Spark fills these in where its templates leave them out."""
    filled = copy.deepcopy(spec)
    for container in filled["containers"]:
        container.setdefault("image", "unknown:0")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": filled}


@pytest.mark.parametrize("name", VALUE_SETS)
def test_every_pod_that_comes_of_it_is_admitted(server: ApiServer, name: str) -> None:
    """Also those that Spark and Kyverno make of templates, which admission of the template's owner
    does not look at."""
    refused = []
    for where, spec in pod_specs(name):
        namespace = HOST_PATHS if where.startswith("DaemonSet") else NAMESPACE
        pod = as_pod(spec)
        if where.startswith("Policy"):
            pod["spec"]["volumes"].append({"name": "data-0", "emptyDir": {}})
            # Strimzi's pods say this of themselves for all of their containers.
            pod["spec"]["securityContext"] = {"runAsNonRoot": True}
        said = server.ask("POST", f"/api/v1/namespaces/{namespace}/pods{STRICT}", pod)
        if said.status != 201 or said.warned:
            refused.append(f"{where}: {said}")
    assert not refused, "\n".join(refused)


def pod_of(name: str) -> Manifest:
    (spec,) = [spec for where, spec in pod_specs(name) if where.startswith("StatefulSet")]
    return as_pod(spec)


def writable_root_and_root_user(pod: Manifest) -> None:
    pod["spec"]["containers"][0]["securityContext"]["runAsUser"] = 0


def privilege_escalation(pod: Manifest) -> None:
    del pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"]


def misspelt_field(pod: Manifest) -> None:
    pod["spec"]["terminationGracePeriod"] = 3


def host_path(pod: Manifest) -> None:
    pod["spec"]["volumes"].append({"name": "h", "hostPath": {"path": "/"}})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(writable_root_and_root_user, "runAsUser=0", id="root"),
        pytest.param(privilege_escalation, "allowPrivilegeEscalation", id="escalation"),
        pytest.param(misspelt_field, "unknown field", id="misspelt"),
        pytest.param(host_path, "hostPath", id="host-path"),
    ],
)
def test_the_server_refuses_what_it_should(server: ApiServer, spoil: object, said: str) -> None:
    """Else that it admits everything above would mean nothing."""
    assert callable(spoil)
    pod = pod_of("minimal")
    spoil(pod)
    answer = server.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods{STRICT}", pod)
    assert answer.status in (400, 403, 422), answer
    assert said in str(answer)


@pytest.mark.parametrize("kind", ["SparkApplication", "ServiceMonitor", "HTTPRoute"])
def test_the_server_knows_the_fields_of_operators(server: ApiServer, kind: str) -> None:
    (manifest, *_) = [m for n in VALUE_SETS for m in manifests(n) if m["kind"] == kind]
    spoilt = copy.deepcopy(manifest)
    spoilt["spec"]["misspelt"] = 1
    said = server.ask("POST", server.path_of(manifest) + STRICT, spoilt)
    assert said.status == 400, said
    assert "misspelt" in str(said)


def names_left(server: ApiServer, namespace: str) -> set[str]:
    """Everything that is labelled as of the release."""
    found = set()
    for (_, kind), (path, plural, inside) in server.kinds().items():
        if inside and "events" not in plural:
            where = f"{path}/namespaces/{namespace}/{plural}"
            said = server.ask("GET", f"{where}?labelSelector=app.kubernetes.io/instance={RELEASE}")
            items = said.body.get("items", ()) if said.status == 200 else ()
            found |= {f"{kind}/{each['metadata']['name']}" for each in items}
    return found


def test_it_is_installed_upgraded_rolled_back_and_leaves_its_claim(server: ApiServer) -> None:
    """For real, not as a dry run: no upgrade asks for a change of what cannot be changed."""
    namespace = "released"
    server.make_namespace(namespace, "restricted")
    values = ("--values", str(VALUE_SETS["many-clusters"]))
    on(server, "install", str(CHART), *values, namespace=namespace)
    first = names_left(server, namespace)
    assert {"StatefulSet/demo-tidestaff", "PersistentVolumeClaim/demo-tidestaff-work"} <= first
    wider = ("--set", "image.tag=9.9.9,job.cores=4,web.tokenSecret=page")
    on(server, "upgrade", str(CHART), *values, *wider, namespace=namespace)
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/demo-tidestaff"
    now = server.ask("GET", path).body["spec"]["template"]["spec"]["containers"]
    assert {each["image"].rpartition(":")[2] for each in now} == {"9.9.9"}
    assert names_left(server, namespace) == first | {"Service/demo-tidestaff-web"}
    on(server, "rollback", "1", namespace=namespace)
    assert names_left(server, namespace) == first
    on(server, "uninstall", namespace=namespace)
    assert names_left(server, namespace) == {"PersistentVolumeClaim/demo-tidestaff-work"}


def documented(name: str) -> list[str]:
    """What docs/operations.md and docs/kubernetes.md tell people to do with a program, each in one
    line, but for what needs a kubelet."""
    text = "".join(
        (ROOT / "docs" / f"{each}.md").read_text() for each in ("kubernetes", "operations")
    )
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [re.sub(r"\s+#.*$", "", line) for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith(f"{name} ") and " exec " not in line]


def test_what_operators_are_told_to_do_can_be_done(server: ApiServer, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl (Debian: kubernetes-client): its commands are not tried")
    # By the names the documents use.
    release, namespace = "tidestaff", "documented"
    server.make_namespace(namespace, "restricted")
    where = ("--namespace", namespace, "--kubeconfig", server.kubeconfig())
    values = {
        "transport": {"bootstrapServers": "transport:9092"},
        "clusters": [
            {
                "name": "east",
                "options": {"bootstrap_servers": "e:9092"},
                "existingSecret": "east-client",
            }
        ],
    }
    given = json.dumps(values)
    done = helm("install", release, str(CHART), *where, "--values", "-", given=given)
    assert done.returncode == 0, done.stderr
    for file in ("client.properties", "ca.pem"):
        (tmp_path / file).write_text("of this test")
    programs = {"kubectl": kubectl, "helm": f"{Path(sys.executable).parent / 'helm'}"}
    tried = [*documented("helm"), *documented("kubectl")]
    assert len(tried) >= 6
    for line in tried:
        words = line.replace("-n monitoring", f"-n {namespace}").replace(
            "helm/tidestaff", str(CHART)
        )
        for name, program in programs.items():
            words = re.sub(rf"(^|[|] ){name} ", rf"\g<1>{program} ", words)
        ran = subprocess.run(
            ["bash", "-o", "pipefail", "-c", words],
            cwd=tmp_path,
            env={**os.environ, "KUBECONFIG": server.kubeconfig()},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ran.returncode == 0, f"{line}: {ran.stderr}"
    collector = f"/apis/apps/v1/namespaces/{namespace}/deployments/tidestaff-collect-east"
    template = server.ask("GET", collector).body["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]
    secret = server.ask("GET", f"/api/v1/namespaces/{namespace}/secrets/east-client").body
    assert set(secret["data"]) == {"client.properties", "ca.pem"}
