"""What a security review asks of the manifests, for every value set and every pod."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.helm.chart import (
    NAMESPACE,
    VALUE_SETS,
    configurations,
    manifests,
    of_kind,
    pod_specs,
    rendered,
    title,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helm.chart import Manifest

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", VALUE_SETS)]


def containers(name: str) -> Iterator[tuple[str, Manifest, Manifest]]:
    for where, spec in pod_specs(name):
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            yield f"{where} {container['name']}", container, spec


def test_nobody_is_root_or_can_become_it(name: str) -> None:
    for where, container, _ in containers(name):
        context = container["securityContext"]
        assert context["runAsNonRoot"] is True, where
        assert context["allowPrivilegeEscalation"] is False, where
        assert context["capabilities"] == {"drop": ["ALL"]}, where
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, where
        assert "privileged" not in context, where
    for where, spec in pod_specs(name):
        assert spec.get("securityContext", {}).get("runAsUser") != 0, where


def test_root_file_systems_are_read_only(name: str) -> None:
    for where, container, _ in containers(name):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, where
        assert any(m["mountPath"] == "/tmp" for m in container["volumeMounts"]), where  # noqa: S108


def test_images_have_a_version(name: str) -> None:
    for where, container, _ in containers(name):
        assert re.search(r"(:\d[\w.+-]*|@sha256:[0-9a-f]{64})$", container["image"]), where
    assert ":latest" not in rendered(name)


def test_what_a_container_may_use_is_limited(name: str) -> None:
    for where, container, _ in containers(name):
        if where.startswith("ConfigMap"):
            # Spark writes the resources of executors, from these two settings.
            assert "spark.kubernetes.executor.limit.cores" in rendered(name)
            assert "spark.executor.memoryOverhead" in rendered(name)
            continue
        for kind in ("requests", "limits"):
            assert {"cpu", "memory"} <= set(container["resources"][kind]), where


def test_long_running_containers_have_probes(name: str) -> None:
    for where, container, _ in containers(name):
        if "executor" not in where and not where.startswith("Pod/"):
            assert "livenessProbe" in container, where


def test_nothing_of_the_host_is_reached_but_by_the_agent_on_nodes(name: str) -> None:
    for where, spec in pod_specs(name):
        agent = where.startswith("DaemonSet/")
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            assert not spec.get(key) or (agent and key == "hostNetwork"), where
        hosts = [volume["name"] for volume in spec.get("volumes", ()) if "hostPath" in volume]
        assert not hosts or agent, where
        for container in spec["containers"]:
            mounts = {m["name"]: m.get("readOnly") for m in container.get("volumeMounts", ())}
            assert all(mounts[volume] is True for volume in hosts), where


def test_no_secret_stands_in_a_config_map(name: str) -> None:
    assert not of_kind(name, "Secret"), "Secrets are the user's own: the chart makes none"
    for where, text in configurations(name).items():
        for line in text.splitlines():
            word = re.search(r"(?i)(password|jaas\S*|token|secret\S*|url): *(\S+)", line)
            if word is not None and not word[2].startswith("http://alertmanager"):
                # The name of a file that holds it is no secret.
                named = ".file: /etc/tidestaff/" in line
                assert named or word[2].startswith("${file:"), f"{where}: {line}"


def test_the_page_sees_no_secret_of_a_cluster(name: str) -> None:
    for where, container, _ in containers(name):
        if where.endswith(" web"):
            mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
            allowed = {"/etc/tidestaff/config", "/var/lib/tidestaff", "/tmp", "/etc/tidestaff/web"}  # noqa: S108
            assert mounts <= allowed, where


def test_rights_are_few_and_of_the_namespace(name: str) -> None:
    assert not [m for m in manifests(name) if m["kind"].startswith("ClusterRole")]
    for role in of_kind(name, "Role"):
        (rule,) = role["rules"]
        assert rule["apiGroups"] == [""]
        assert rule["resources"] == ["pods"]
        assert "*" not in rule["verbs"]
        assert {"update", "patch"}.isdisjoint(rule["verbs"])
    distributed = "k8s://" in rendered(name)
    assert bool(of_kind(name, "Role")) == distributed, "local needs no rights at all"


def test_only_drivers_get_a_token_of_the_api_server(name: str) -> None:
    """And of their pods only the job's container: the page answers the world beside it."""
    holders = set()
    for where, container, spec in containers(name):
        if where.startswith("Policy"):
            continue
        assert spec["automountServiceAccountToken"] is False, where
        tokens = {v["name"] for v in spec.get("volumes", ()) if "serviceAccountToken" in str(v)}
        if tokens & {mount["name"] for mount in container.get("volumeMounts", ())}:
            holders.add(container["name"])
    driver = "spark-kubernetes-driver" if of_kind(name, "SparkApplication") else "job"
    assert holders == ({driver} if "k8s://" in rendered(name) else set())


def test_services_of_the_namespace_do_not_become_settings(name: str) -> None:
    """A Service named tidestaff-web would be TIDESTAFF_WEB_PORT in every pod, which the program
    takes for a setting it does not know."""
    for where, spec in pod_specs(name):
        assert where.startswith("Policy") or spec["enableServiceLinks"] is False, where


def test_network_policies_deny_what_they_do_not_name(name: str) -> None:
    deny, *rest = of_kind(name, "NetworkPolicy")
    assert deny["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in deny["spec"]
    assert "egress" not in deny["spec"]
    for policy in rest:
        for rule in (*policy["spec"].get("ingress", ()), *policy["spec"].get("egress", ())):
            assert rule, f"{title(policy)}: an empty rule allows everything"
            assert rule.get("ports") or rule.get("from") or rule.get("to"), title(policy)


def agents(name: str) -> list[Manifest]:
    """The policies about the agent's port: on nodes, and beside Strimzi's brokers."""
    port = values_of(name).get("agent", {}).get("port", 8471)
    return [
        policy
        for policy in of_kind(name, "NetworkPolicy")
        for rule in policy["spec"].get("ingress", ())
        if {"port": port, "protocol": "TCP"} in rule.get("ports", ())
    ]


def test_whoever_may_ask_the_agent_is_who_the_values_name(name: str) -> None:
    given = values_of(name).get("networkPolicy", {}).get("agentFrom")
    for policy in agents(name):
        for rule in policy["spec"]["ingress"]:
            if given:
                assert rule["from"] == given, title(policy)
            else:
                assert len(rule["from"]) == 2, f"{title(policy)}: job and collectors"
    if name == "everything":
        assert given
        assert {p["metadata"]["namespace"] for p in agents(name)} == {NAMESPACE, "kafka"}


def spark_settings(name: str) -> Iterator[dict[str, str]]:
    """Of the JVMs that have executors elsewhere."""
    for manifest in of_kind(name, "SparkApplication"):
        yield manifest["spec"]["sparkConf"]
    for where, text in configurations(name).items():
        spark = yaml.safe_load(text).get("spark", {})
        if where.endswith("tidestaff.yaml") and "spark.driver.host" in spark.get("conf", {}):
            yield spark["conf"]


def test_driver_and_executors_encrypt_what_they_send_each_other(name: str) -> None:
    found = list(spark_settings(name))
    assert len(found) == ("k8s://" in rendered(name))
    for conf in found:
        for key in ("spark.authenticate", "spark.network.crypto.enabled"):
            assert conf[key] == "true"
        file = conf.get("spark.authenticate.secret.file")
        given = values_of(name).get("encryption", {}).get("existingSecret")
        assert bool(file) == bool(given)
        holders = {
            where
            for where, container, _ in containers(name)
            for mount in container["volumeMounts"]
            if file and mount["mountPath"] == file.rpartition("/")[0] and mount["readOnly"]
        }
        # Both know it by the same file: the driver's container and the executors'.
        assert len(holders) == (2 if file else 0), holders


def test_objects_carry_the_usual_labels(name: str) -> None:
    for manifest in manifests(name):
        if manifest["metadata"]["name"] == "demo-extra":
            continue
        labels = manifest["metadata"]["labels"]
        for label in ("name", "instance", "component", "version", "managed-by"):
            assert labels[f"app.kubernetes.io/{label}"], title(manifest)
