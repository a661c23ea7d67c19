"""Mode `client` on a real API server: the chart is installed, the driver runs by the configuration
and with the rights the chart gave it, and the executors it asks for run as processes."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from tidestaff.streaming.lab.plan import LOOPBACK, free_ports

from tests.helm.api_server import ApiServer, running
from tests.helm.chart import CHART, RELEASE, Manifest, helm
from tests.helm.kubelet import Kubelet
from tests.streaming.job.processes import Monitor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.spark]

NAME: Final = f"{RELEASE}-tidestaff"
BATCHES: Final = 3
MADE, GIVEN = "made-by-spark", "of-an-existing-secret"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("api-server")) as found:
        for name in (MADE, GIVEN):
            found.make_namespace(name, "restricted")
        yield found


def values(server: ApiServer, folder: Path, secret: str) -> dict[str, Any]:
    """What only differs because everything is on one machine."""
    driver, blocks, others, metrics = free_ports(4)
    here = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.port": driver,
        "spark.driver.blockManager.port": blocks,
        "spark.blockManager.port": others,
        # In a pod these two are found where Kubernetes mounts them.
        "spark.kubernetes.authenticate.oauthTokenFile": str(folder / "token"),
        "spark.kubernetes.authenticate.caCertFile": str(server.certificate),
    }
    if secret == GIVEN:
        # Both would find it where it is mounted.
        here["spark.authenticate.secret.file"] = str(folder / "secret")
        (folder / "secret").write_text("of-this-test-alone-and-long-enough")
    return {
        "encryption": {"existingSecret": "known-to-both" if secret == GIVEN else ""},
        "job": {"mode": "client", "driverMemory": "1g", "shufflePartitions": 2, "sparkConf": here},
        "executor": {"instances": 1, "cores": 2, "memory": "600m", "memoryOverhead": "600m"},
        "persistence": {"accessMode": "ReadWriteMany"},
        "config": {"operator": {"buckets": 2}},
        "metrics": {"port": metrics},
        "web": {"enabled": False},
    }


def install(server: ApiServer, namespace: str, given: dict[str, Any]) -> None:
    where = ("--namespace", namespace, "--kubeconfig", server.kubeconfig())
    done = helm(
        "install", RELEASE, str(CHART), *where, "--values", "-", given=yaml.safe_dump(given)
    )
    assert done.returncode == 0, done.stderr


def start_driver_s_pod(server: ApiServer, namespace: str, folder: Path) -> None:
    """What the controllers of StatefulSets and the kubelet would do: a pod, and its token."""
    apps = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{NAME}"
    template = server.ask("GET", apps).body["spec"]["template"]
    labels = template["metadata"]["labels"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{NAME}-0", "labels": labels}}
    core = f"/api/v1/namespaces/{namespace}"
    server.make(f"{core}/pods", {**pod, "spec": template["spec"]})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    said = server.make(f"{core}/serviceaccounts/{NAME}/token", asked)
    (folder / "token").write_text(said["status"]["token"])


def configuration(server: ApiServer, namespace: str, folder: Path) -> dict[str, Any]:
    """The job's, out of the ConfigMaps that were installed, with its places below a folder."""
    core = f"/api/v1/namespaces/{namespace}/configmaps"
    (folder / "pod.yaml").write_text(
        server.ask("GET", f"{core}/{NAME}-executor").body["data"]["pod.yaml"]
    )
    text = server.ask("GET", f"{core}/{NAME}-config").body["data"]["tidestaff.yaml"]
    for written, here in {
        "k8s://https://kubernetes.default.svc": f"k8s://https://{LOOPBACK}:{server.port}",
        "/etc/tidestaff/executor": str(folder),
        "/var/lib/tidestaff": str(folder / "work"),
        "/var/tmp/tidestaff": str(folder / "scratch"),  # noqa: S108 - the pod's
        "${env:POD_NAME}": f"{NAME}-0",
    }.items():
        assert written in text
        text = text.replace(written, here)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def variables(pod: Manifest) -> dict[str, str]:
    (container,) = pod["spec"]["containers"]
    return {each["name"]: str(each.get("value")) for each in container["env"]}


def stranger_s(pod: Manifest, folder: Path) -> dict[str, str]:
    """The variables of somebody who knows all of a pod's but the secret."""
    (folder / "guessed").write_text("guessed-by-somebody-of-the-network")
    known, guessed = str(folder / "secret"), str(folder / "guessed")
    changed = {
        name: value.replace(known, guessed)
        for name, value in variables(pod).items()
        if known in value
    }
    return {"SPARK_EXECUTOR_ID": "99", "_SPARK_AUTH_SECRET": "guessed", **changed}


@pytest.mark.parametrize("secret", [MADE, GIVEN])
def test_a_driver_with_the_chart_s_rights_starts_executors_that_know_its_secret(
    server: ApiServer, tmp_path: Path, secret: str
) -> None:
    install(server, secret, values(server, tmp_path, secret))
    start_driver_s_pod(server, secret, tmp_path)
    (tmp_path / "node").mkdir()
    kubelet = Kubelet(server, secret, tmp_path / "node")
    settings = configuration(server, secret, tmp_path)
    with kubelet.at_work():
        job = Monitor(tmp_path / "driver", settings, "--max-batches", str(BATCHES))
        try:
            job.until(lambda: bool(kubelet.made))
            (pod, *_) = kubelet.made.values()
            refused = kubelet.start(pod, **stranger_s(pod, tmp_path)).wait(120)
            code = job.wait()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise AssertionError(f"{error}\n{job.err[-2_000:]}\n{kubelet.logs()}") from None
        finally:
            job.kill()
    assert code == 0, job.err
    assert refused != 0, "an executor that does not know the secret is not let in"
    given = variables(pod)
    assert ("_SPARK_AUTH_SECRET" in given) == (secret == MADE), "a file's is in no pod's manifest"
    options = [value for name, value in given.items() if name.startswith("SPARK_JAVA_OPT_")]
    for setting in ("spark.authenticate=true", "spark.network.crypto.enabled=true"):
        assert f"-D{setting}" in options
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    entries = (tmp_path / "work/checkpoint/commits").glob("[0-9]*")
    assert max(int(path.name) + 1 for path in entries) >= BATCHES
    told = "".join(path.read_text() for path in (tmp_path / "work/logs").glob("*.log"))
    assert "is forbidden" not in told, "the Role is enough"
