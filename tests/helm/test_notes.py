"""What NOTES.txt tells people to look at is what the chart has made."""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.cli import command_line

from tests.helm.chart import (
    CHART,
    NAMESPACE,
    RELEASE,
    VALUE_SETS,
    helm,
    manifests,
    of_kind,
    pod_specs,
    title,
    values_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helm.chart import Manifest

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", VALUE_SETS)]


@pytest.fixture
def notes(name: str, tmp_path: Path) -> str:
    """helm shows notes only where an API server answers: here they are a template as the others."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    text = (chart / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    define = f'{{{{- define "shown" -}}}}\n{text}{{{{- end -}}}}'
    (chart / "templates" / "_shown.tpl").write_text(define, encoding="utf-8")
    (chart / "templates" / "shown.yaml").write_text('shown: |\n{{ include "shown" . | indent 2 }}')
    words = ("template", RELEASE, str(chart), "--namespace", NAMESPACE)
    done = helm(*words, "--values", str(VALUE_SETS[name]), "--show-only", "templates/shown.yaml")
    assert done.returncode == 0, done.stderr
    return done.stdout


def job_containers(name: str) -> dict[str, dict[str, Manifest]]:
    """Pod of the job, by the name it will have -> its containers."""
    found = {}
    for manifest in of_kind(name, "StatefulSet", "SparkApplication"):
        driver = manifest["kind"] == "SparkApplication"
        where = f"{title(manifest)} driver" if driver else title(manifest)
        (spec,) = [spec for place, spec in pod_specs(name) if place == where]
        pod = f"{manifest['metadata']['name']}-{'driver' if driver else '0'}"
        found[pod] = {each["name"]: each for each in spec["containers"]}
    return found


def test_what_is_asked_about_is_there(name: str, notes: str) -> None:
    there = {title(manifest).lower() for manifest in manifests(name)}
    asked = re.findall(r"kubectl -n (\S+) (?:rollout status|get) (\S+)", notes)
    assert len(asked) == 1
    for namespace, what in asked:
        assert namespace == NAMESPACE
        assert what in there
    tests = [m for m in manifests(name) if "helm.sh/hook" in m["metadata"].get("annotations", {})]
    assert bool(tests) == (f"helm -n {NAMESPACE} test {RELEASE}" in notes)


def test_commands_are_ones_the_job_s_container_can_run(name: str, notes: str) -> None:
    pods = job_containers(name)
    lines = re.findall(rf"kubectl -n {NAMESPACE} exec (\S+) -c (\S+) -- tidestaff (.+)", notes)
    assert {line.split()[0] for _, _, line in lines} == {"status", "alerts"}
    for pod, container, line in lines:
        words = shlex.split(line)
        assert command_line(words)
        mounted = [each["mountPath"] for each in pods[pod][container]["volumeMounts"]]
        for path in (word for word in words if word.startswith("/")):
            assert any(f"{path}/".startswith(f"{each}/") for each in mounted), path


def test_the_page_is_where_it_is_told_to_be(name: str, notes: str) -> None:
    pods = job_containers(name)
    forwarded = re.findall(r"port-forward pod/(\S+) (\d+), then http://localhost:(\d+)/", notes)
    enabled = values_of(name).get("web", {}).get("enabled", True)
    assert len(forwarded) == enabled
    for pod, port, opened in forwarded:
        assert port == opened
        ports = [p for each in pods[pod].values() for p in each.get("ports", ())]
        service = [each for each in of_kind(name, "Service") if title(each).endswith("-web")]
        if service:
            assert int(port) in {p["containerPort"] for p in ports if p["name"] == "web"}
        # Without a Service it answers on loopback, and people are told why.
        assert ("loopback only" in notes) == (not service)
    hosts = {
        rule["host"] for each in of_kind(name, "Ingress") for rule in each["spec"]["rules"]
    } | {host for each in of_kind(name, "HTTPRoute") for host in each["spec"].get("hostnames", ())}
    told = set(re.findall(r"https?://([^/:\s]+)", notes)) - {"localhost"}
    assert told == hosts


def test_the_claim_and_the_topic_are_those_of_the_manifests(name: str, notes: str) -> None:
    claims = {each["metadata"]["name"] for each in of_kind(name, "PersistentVolumeClaim")}
    assert set(re.findall(r"The claim (\S+) holds", notes)) <= claims
    collectors = [each for each in of_kind(name, "Deployment") if "collect" in title(each)]
    creates = values_of(name).get("transport", {}).get("createTopic", False)
    assert ("kafka-topics" in notes) == (bool(collectors) and not creates)
