"""What the chart renders is what the program takes: its configuration, its command lines."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tidestaff.streaming import session
from tidestaff.streaming.cli import COMMANDS, command_line
from tidestaff.streaming.settings import DirectSource, KafkaSource, Settings
from tidestaff.streaming.settings_loading import load
from tidestaff.streaming.sources.collecting import check
from tidestaff.streaming.web.security import Access, Guard

from tests.helm.chart import VALUE_SETS, configurations, of_kind, pod_specs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

MOUNTED = "/etc/tidestaff/"
PAGE = "web" in COMMANDS
"""Whether this program serves the page: without it, the page's section and command are unknown."""


def with_files_in(folder: Path, text: str) -> str:
    """Secrets stand in files that the pods mount: here they are made, below another folder."""
    for path in re.findall(r"\$\{file:(/[^}]+)\}", text):
        (folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (folder / path.lstrip("/")).write_text("a-secret-of-sixteen-and-more")
    return text.replace("${file:/", f"${{file:{folder}/")


def loaded(folder: Path, text: str) -> Settings:
    path = folder / "tidestaff.yaml"
    content = yaml.safe_load(with_files_in(folder, text))
    if not PAGE:
        content.pop("web", None)
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return load(path, {"POD_NAME": "demo-tidestaff-0"})


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_program_takes_every_configuration(name: str, tmp_path: Path) -> None:
    found = configurations(name)
    assert found
    for where, text in found.items():
        settings = loaded(tmp_path, text)
        assert settings.work_dir == "/var/lib/tidestaff", where
        assert settings.metrics.enabled


@pytest.mark.parametrize("name", VALUE_SETS)
def test_secrets_are_mounted_where_the_configuration_looks_for_them(name: str) -> None:
    for where, text in configurations(name).items():
        kind, _, file = where.partition(" ")
        for path in re.findall(rf"{MOUNTED}(?:clusters|transport|secrets|web)/[^\s}}]+", text):
            folders = {
                mount["mountPath"]
                for _, spec in pod_specs(name)
                if _mounts_config(spec, kind)
                for container in spec["containers"]
                if (container["name"] == "web") == (file == "web.yaml")
                for mount in container["volumeMounts"]
            }
            assert path.rpartition("/")[0] in folders, f"{where}: {path}"


def _mounts_config(spec: dict[str, Any], config_map: str) -> bool:
    name = config_map.partition("/")[2]
    return any(v.get("configMap", {}).get("name") == name for v in spec.get("volumes", ()))


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_program_takes_every_command_line(name: str) -> None:
    lines = [
        container["args"]
        for _, spec in pod_specs(name)
        for container in spec["containers"]
        if "args" in container and "command" not in container
    ]
    lines += [each["spec"]["arguments"] for each in of_kind(name, "SparkApplication")]
    assert lines
    for line in lines:
        if line[0] != "web" or PAGE:
            assert command_line(line), line


@pytest.mark.parametrize("name", VALUE_SETS)
def test_every_cluster_is_watched_once(name: str, tmp_path: Path) -> None:
    values = yaml.safe_load(VALUE_SETS[name].read_text()) or {}
    texts = configurations(name)
    job = loaded(tmp_path, next(t for w, t in texts.items() if w.endswith("tidestaff.yaml")))
    inside = [c for c in job.clusters if isinstance(c.source, DirectSource)]
    outside = []
    for where, text in texts.items():
        if where.endswith("collect.yaml"):
            (cluster,) = loaded(tmp_path, text).clusters
            outside.append(cluster)
    if values.get("clusters"):
        wanted = sorted(cluster["name"] for cluster in values["clusters"])
        assert sorted(c.name for c in (*inside, *outside)) == wanted
    assert any(isinstance(c.source, KafkaSource) for c in job.clusters) == bool(outside)
    for cluster in inside:
        check(cluster)


def test_executors_are_started_as_the_values_say(tmp_path: Path) -> None:
    (text,) = [t for w, t in configurations("client").items() if w.endswith("tidestaff.yaml")]
    conf = session.configuration(loaded(tmp_path, text))
    assert conf["spark.master"] == "k8s://https://kubernetes.default.svc"
    assert conf["spark.executor.instances"] == "3"
    assert conf["spark.executor.cores"] == conf["spark.kubernetes.executor.limit.cores"] == "4"
    assert conf["spark.driver.host"] == "demo-tidestaff-0.demo-tidestaff-driver.monitoring.svc"
    assert conf["spark.kubernetes.driver.pod.name"] == "demo-tidestaff-0"
    assert not session.is_local(conf["spark.master"])


def test_a_checkpoint_on_an_object_store_reaches_the_program(tmp_path: Path) -> None:
    (text,) = [t for w, t in configurations("operator").items() if w.endswith("tidestaff.yaml")]
    assert loaded(tmp_path, text).checkpoint_dir == "s3a://monitoring/tidestaff"


def status(access: Access, path: str, host: str) -> int:
    """What whoever asks for a path by a name gets of the page's guard; 200 is what is behind it."""
    sent: list[Any] = []

    async def behind(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", host.encode())]}
    asyncio.run(Guard(behind, access)(scope, send, send))
    return int(sent[0]["status"])


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_page_answers_probes_routes_and_the_test_of_the_release(
    name: str, tmp_path: Path
) -> None:
    for text in (t for where, t in configurations(name).items() if where.endswith("web.yaml")):
        access = Access.of(loaded(tmp_path, text).web)
        assert access.hosts is None or status(access, "/healthz", "10.9.8.7:8470") == 421
        containers = [c for _, spec in pod_specs(name) for c in spec["containers"]]
        (web,) = [c for c in containers if c["name"] == "web"]
        for probe in (web[key]["httpGet"] for key in web if "httpGet" in (web[key] or ())):
            # Where no name is given, the kubelet asks by the address of the pod.
            given = {each["name"]: each["value"] for each in probe.get("httpHeaders", ())}
            assert status(access, probe["path"], given.get("Host", "10.9.8.7:8470")) == 200
        hosts = [r["host"] for each in of_kind(name, "Ingress") for r in each["spec"]["rules"]]
        for each in of_kind(name, "HTTPRoute"):
            hosts += each["spec"].get("hostnames", ())
        (test,) = [c for c in containers if c["name"] == "test"]
        asked = [url for url in test["args"] if url.endswith("/healthz")]
        hosts += [url.split("/")[2] for url in asked]
        for service in (m["metadata"] for m in of_kind(name, "Service")):
            if service["name"].endswith("-web"):
                # As a resolver of the cluster takes them, from the same namespace and from others.
                whole = f"{service['name']}.{service['namespace']}.svc.cluster.local"
                parts = whole.split(".")
                hosts += [".".join(parts[:length]) for length in (1, 2, 3, 5)]
        for host in hosts:
            assert status(access, "/healthz", host) == 200, host
