"""The chart renders, for each kind of user, what Kubernetes and the operators take."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.helm.chart import (
    CHART,
    HERE,
    VALUE_SETS,
    Manifest,
    helm,
    manifests,
    parsed,
    pod_specs,
    rendered,
    template,
    title,
    values_of,
)

KUBERNETES = ("1.28", "1.31", "1.34")
CUSTOM: dict[tuple[str, str], dict[str, Any]] = {
    (f"{found['group']}/{found['version']}", found["kind"]): found["schema"]
    for found in (json.loads(path.read_text()) for path in (HERE / "schemas").glob("*.json"))
}
GOLDEN = HERE / "golden"
pytestmark = pytest.mark.slow


def test_lint_finds_nothing() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("name", VALUE_SETS)
def test_what_is_rendered_is_what_was_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{name}.yaml"
    if request.config.getoption("--rewrite"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(rendered(name), encoding="utf-8")
    assert rendered(name) == path.read_text(encoding="utf-8"), (
        f"{path.name} differs: if that is meant, pytest tests/helm --rewrite, and read the diff"
    )


def test_no_golden_manifest_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(VALUE_SETS)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", VALUE_SETS)
def test_kubernetes_takes_every_object(name: str, version: str) -> None:
    for manifest in manifests(name):
        if (manifest["apiVersion"], manifest["kind"]) in CUSTOM or manifest["kind"] == "Policy":
            continue
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("name", VALUE_SETS)
def test_operators_take_their_own_objects(name: str) -> None:
    for manifest in manifests(name):
        schema = CUSTOM.get((manifest["apiVersion"], manifest["kind"]))
        if schema is not None:
            jsonschema.validate(manifest, schema)


@pytest.mark.parametrize("name", VALUE_SETS)
def test_pods_that_others_make_of_templates_are_pods(name: str) -> None:
    for where, spec in pod_specs(name):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        try:
            kubernetes_validate.validate(pod, KUBERNETES[0], strict=True)
        except kubernetes_validate.ValidationError as error:
            raise AssertionError(f"{where}: {error.message}") from None


def kinds(*names: str) -> set[str]:
    return {manifest["kind"] for name in names for manifest in manifests(name)}


def test_value_sets_show_every_kind_of_object() -> None:
    """And the schemas above have therefore been asked."""
    assert {kind for _, kind in CUSTOM} <= kinds(*VALUE_SETS)
    assert kinds(*VALUE_SETS) >= {
        *("StatefulSet", "Deployment", "DaemonSet", "Pod", "Service", "Ingress", "ConfigMap"),
        *("PersistentVolumeClaim", "Role", "RoleBinding", "ServiceAccount", "NetworkPolicy"),
        *("PodDisruptionBudget", "Policy"),
    }


@pytest.mark.parametrize("name", VALUE_SETS)
def test_no_object_is_there_twice(name: str) -> None:
    found = [(title(each), each["metadata"].get("namespace")) for each in manifests(name)]
    assert len(set(found)) == len(found)


def volumes_and_mounts(spec: Manifest) -> tuple[set[str], set[str]]:
    mounts = {m["name"] for c in spec["containers"] for m in c.get("volumeMounts", ())}
    return {volume["name"] for volume in spec.get("volumes", ())}, mounts


@pytest.mark.parametrize("name", VALUE_SETS)
def test_what_is_mounted_is_there_and_what_is_there_is_mounted(name: str) -> None:
    for where, spec in pod_specs(name):
        volumes, mounts = volumes_and_mounts(spec)
        # Strimzi's own volume is in the pod that the agent is put into.
        assert volumes == mounts - ({"data-0"} if where.startswith("Policy") else set()), where


@pytest.mark.parametrize("name", VALUE_SETS)
def test_selectors_find_pods(name: str) -> None:
    """A Service, budget, monitor or policy that selects nothing would be silent about it."""
    labels = [
        manifest["spec"]["template"]["metadata"]["labels"]
        for manifest in manifests(name)
        if manifest["kind"] in ("StatefulSet", "Deployment", "DaemonSet")
    ]
    labels += [m["metadata"]["labels"] for m in manifests(name) if m["kind"] == "Pod"]
    for manifest in manifests(name):
        if manifest["kind"] == "SparkApplication":
            parts = (manifest["spec"]["driver"], manifest["spec"]["executor"])
            labels += [part["template"]["metadata"]["labels"] for part in parts]
        if manifest["kind"] == "ConfigMap" and "pod.yaml" in manifest["data"]:
            labels.append(yaml.safe_load(manifest["data"]["pod.yaml"])["metadata"]["labels"])
    for manifest in manifests(name):
        spec = manifest.get("spec", {})
        wanted = {
            "Service": lambda s: s["selector"],
            "NetworkPolicy": lambda s: s["podSelector"]["matchLabels"],
            "PodDisruptionBudget": lambda s: s["selector"]["matchLabels"],
            "PodMonitor": lambda s: s["selector"]["matchLabels"],
        }.get(manifest["kind"])
        # Strimzi's pods are not of this release.
        if wanted is not None and "strimzi.io/cluster" not in wanted(spec):
            selector = wanted(spec).items()
            assert any(selector <= each.items() for each in labels), title(manifest)


def test_the_claim_outlives_the_release() -> None:
    (claim,) = [m for m in manifests("minimal") if m["kind"] == "PersistentVolumeClaim"]
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert "PersistentVolumeClaim" not in kinds("air-gapped"), "an existing one is used as it is"


def test_a_topic_is_made_only_where_that_was_asked_for() -> None:
    assert "--create-topic" in rendered("everything")
    for name in set(VALUE_SETS) - {"everything"}:
        assert "--create-topic" not in rendered(name)


@pytest.mark.parametrize(
    ("interval_ms", "seconds"),
    [
        pytest.param(5_000, 300, id="as-the-values-say"),
        pytest.param(600_000, 1_800, id="three-rounds-where-they-are-far-apart"),
    ],
)
def test_a_collector_that_waits_for_its_next_round_is_left_alone(
    interval_ms: int, seconds: int
) -> None:
    values = values_of("client")
    values["clusters"] = [{"name": "slow", "roundIntervalMs": interval_ms}]
    values["clusters"][0]["options"] = {"bootstrap_servers": "slow:9092"}
    done = template(values)
    assert done.returncode == 0, done.stderr
    (found,) = [each for each in parsed(done.stdout) if each["kind"] == "Deployment"]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    probe = container["livenessProbe"]
    assert probe["initialDelaySeconds"] == seconds
    assert f"-newermt '-{seconds} seconds'" in probe["exec"]["command"][-1]
