"""Values: documented, used, and refused with a sentence where they are wrong."""

from __future__ import annotations

import copy
import functools
import json
import re
from typing import Any

import pytest
import yaml

from tests.helm import readme
from tests.helm.chart import CHART, template, values_of

VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
TEMPLATES = "\n".join(path.read_text() for path in sorted(CHART.glob("templates/**/*.*")))
DOCUMENTED = readme.documented(VALUES)


def dotted(value: readme.Value) -> str:
    return ".".join(value.path)


def leaves(content: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(content, dict) and content:
        return [leaf for key, each in content.items() for leaf in leaves(each, (*path, key))]
    return [path]


def test_every_value_is_documented() -> None:
    covered = [value.path for value in DOCUMENTED if value.leaf]
    for leaf in leaves(yaml.safe_load(VALUES)):
        assert any(leaf[: len(path)] == path for path in covered), f"no '# --' above {leaf}"


def test_the_readme_tells_what_the_comments_tell() -> None:
    text = readme.README.read_text(encoding="utf-8")
    assert readme.written(text, VALUES) == text, "run 'make chart'"


def test_the_chart_carries_the_rules_and_dashboards_of_conf() -> None:
    wanted = {target: source.read_bytes() for source, target in readme.carried()}
    found = {
        path: path.read_bytes()
        for target, pattern in readme.CARRIED.values()
        for path in target.glob(pattern)
    }
    assert found == wanted, "run 'make chart'"


def schema_leaves(schema: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if "properties" in schema and path not in OPEN:
        assert schema["additionalProperties"] is False, f"{path}: unknown keys would be taken"
        found = schema["properties"].items()
        return [leaf for key, each in found for leaf in schema_leaves(each, (*path, key))]
    return [path]


OPEN = {("sinks",), *(("job", f"{probe}Probe") for probe in ("startup", "liveness", "readiness"))}


def test_the_schema_knows_the_keys_and_no_others() -> None:
    known = set(schema_leaves(SCHEMA)) - {("global",)}
    covered = {value.path for value in DOCUMENTED if value.leaf}
    assert known == covered


@pytest.mark.parametrize("value", [v for v in DOCUMENTED if v.leaf], ids=dotted)
def test_every_value_is_read_by_a_template(value: readme.Value) -> None:
    """By its whole name, or by its own where the section it is in was taken up first."""
    last = value.path[-1]
    assert re.search(rf"\.{last}\b", TEMPLATES), f"{dotted(value)} is read nowhere"


# What changes each value, on top of the value set that switches everything on. Values that have an
# effect in one mode only are tried on the value set of that mode.
BASES = {
    "operator": "operator",
    "podMonitor": "operator",
    "job.cores": "operator",
    "encryption.enabled": "client",
    "web.userHeader": "openshift",
    "web.trustedProxies": "openshift",
    "persistence.existingClaim": "local",
    "web.enabled": "local",
}
OTHER: dict[str, Any] = {
    "image.tag": "9.9.9",
    "image.digest": f"sha256:{'1' * 64}",
    "image.pullPolicy": "Always",
    "image.pullSecrets": [{"name": "other"}],
    "serviceAccount.create": False,
    "clusters": [{"name": "other", "options": {"bootstrap_servers": "other:9092"}}],
    "config": {"log_level": "info"},
    "sinks": [{"type": "jsonl", "name": "other", "path": "/var/lib/tidestaff/other"}],
    "secretMounts": ["other"],
    "job.mode": "operator",
    **{f"{part}.affinity": {"podAffinity": {}} for part in ("job", "executor", "collectors")},
    "job.driverMemory": "9g",
    "executor.memory": "9g",
    "executor.memoryOverhead": "9g",
    "persistence.accessMode": "ReadWriteOnce",
    "persistence.size": "9Gi",
    "persistence.scratchSize": "9Gi",
    "collectors.bufferSize": "9Gi",
    "checkpoint": "s3a://other/path",
    "agent.broker": 9,
    "agent.logDirs": ["/other"],
    "agent.supplementalGroups": [9],
    "web.service.type": "NodePort",
    "web.ingress.hosts": [{"host": "other"}],
    "web.ingress.tls": [{"secretName": "other"}],
    "web.trustedProxies": ["10.9.0.0/16"],
    "web.allowedHosts": ["other"],
    "web.httpRoute.hostnames": ["other"],
    "web.httpRoute.parentRefs": [{"name": "other"}],
    "podDisruptionBudget.maxUnavailable": 9,
    "networkPolicy.kafkaPorts": [9],
    "networkPolicy.zookeeperPorts": [9],
    "networkPolicy.apiServerPorts": [9],
    "serviceMonitor.interval": "9s",
    "serviceMonitor.scrapeTimeout": "9s",
    "podMonitor.interval": "9s",
    "podMonitor.scrapeTimeout": "9s",
    "prometheusRule.extraGroups": [{"name": "other", "rules": []}],
    "transport.secretKeys": {"sasl.jaas.config": "other"},
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}],
}
# A release whose values are as they stand renders these only with files of another part.
WITHOUT_EFFECT_YET = {
    f"grafana.dashboards.{key}"
    for key in ("enabled", "namespace", "label", "labelValue", "folderAnnotation", "folder")
    if not list(readme.CARRIED[readme.ROOT / "conf" / "grafana"][0].glob("*.json"))
}


def another(value: Any, name: str) -> Any:
    if name in OTHER:
        return OTHER[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return "other"
    if isinstance(value, list):
        return [{"name": "other", "key": "other", "operator": "Exists"}]
    return {**value, "other": "other"} if all(isinstance(v, str) for v in value.values()) else None


def changed(name: str, path: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A value set without and with the change."""
    dotted_name = ".".join(path)
    base = next((b for k, b in BASES.items() if dotted_name.startswith(k)), name)
    before = values_of(base)
    if dotted_name == "image.digest":
        before.setdefault("image", {})
    after = copy.deepcopy(before)
    place = after
    for key in path[:-1]:
        place = place.setdefault(key, {})
    default = readme.value_at(yaml.safe_load(VALUES), path)
    given = place.get(path[-1], default)
    found = another(given, dotted_name)
    if found is None:
        found = _deeper(default)
    place[path[-1]] = found
    if dotted_name == "persistence.accessMode":
        before["checkpoint"] = after["checkpoint"] = "s3a://bucket/path"
    if dotted_name in ("serviceMonitor.enabled", "podMonitor.enabled"):
        for each in (before, after):
            each[dotted_name.partition(".")[0]] = {"enabled": each is not after}
    if dotted_name == "serviceAccount.create":
        for each in (before, after):
            each.setdefault("serviceAccount", {})["name"] = "given"
    if dotted_name in ("agent.tokenSecret", "web.tokenSecret"):
        place[path[-1]] = "another-one"
    return before, after


def _deeper(default: dict[str, Any]) -> dict[str, Any]:
    """A number or text somewhere below, changed."""
    found = copy.deepcopy(default)
    place: Any = found
    *above, last = leaves(default)[0]
    for key in above:
        place = place[key]
    value = place[last]
    place[last] = (not value) if isinstance(value, bool) else 9 if isinstance(value, int) else "9"
    return found


@functools.cache
def rendered(values: str) -> str:
    done = template(json.loads(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [v for v in DOCUMENTED if v.leaf and dotted(v) not in WITHOUT_EFFECT_YET],
    ids=dotted,
)
def test_a_change_of_the_value_changes_the_manifests(value: readme.Value) -> None:
    before, after = (json.dumps(each) for each in changed("everything", value.path))
    assert rendered(before) != rendered(after)


WRONG = [
    pytest.param({"job": {"mod": "local"}}, "job: Additional property mod", id="misspelt"),
    pytest.param({"clutsers": []}, "Additional property clutsers", id="misspelt-section"),
    pytest.param({"job": {"mode": "yarn"}}, "job.mode", id="no-such-mode"),
    pytest.param({"image": {"tag": "latest"}}, "'latest' is not a version", id="latest"),
    pytest.param({"metrics": {"port": 70000}}, "metrics.port", id="no-such-port"),
    pytest.param({"job": {"resources": {"limits": None}}}, "limits is required", id="no-limits"),
    pytest.param({"clusters": [{"name": "a"}]}, "options is required", id="nothing-to-connect-to"),
    pytest.param({"checkpoint": "/var/x"}, "checkpoint: Does not match", id="not-a-uri"),
    pytest.param(
        {"clusters": [{"name": "a", "options": {"bootstrap_servers": "b:1"}}]},
        "transport.bootstrapServers: collectors publish to a topic",
        id="collectors-without-a-transport",
    ),
    pytest.param(
        {
            "clusters": [
                {"name": "a", "collect": "job", "options": {"sasl.password": "x"}},
            ]
        },
        "is a secret and would stand in a ConfigMap",
        id="a-password-in-the-options",
    ),
    pytest.param(
        {"clusters": [{"name": "a", "collect": "job", "options": {"b": 1}}] * 2},
        "a stands there twice",
        id="one-name-twice",
    ),
    pytest.param(
        {"job": {"mode": "client"}},
        "driver and executors share the checkpoint, and a ReadWriteOnce claim",
        id="executors-without-a-shared-checkpoint",
    ),
    pytest.param(
        {"web": {"ingress": {"enabled": True}}}, "must know its people", id="an-open-page"
    ),
    pytest.param({"agent": {"enabled": True}}, "agent.tokenSecret", id="an-open-agent"),
    pytest.param(
        {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
        "scraped twice",
        id="scraped-twice",
    ),
    pytest.param(
        {"config": {"work_dir": "/x"}}, "the chart writes this section", id="the-charts-own-section"
    ),
    pytest.param(
        {"transport": {"properties": {"sasl.jaas.config": "x"}}},
        "transport.secretKeys",
        id="a-password-in-the-transport",
    ),
    pytest.param(
        {"job": {"sparkConf": {"spark.authenticate.secret": "x"}}},
        "job.sparkConf: spark.authenticate.secret is a secret",
        id="a-secret-among-spark-s-settings",
    ),
    pytest.param(
        {"job": {"sparkConf": {"spark.hadoop.fs.s3a.secret.key": "x"}}},
        "spark.hadoop.fs.s3a.secret.key is a secret",
        id="an-object-store-s-key-among-spark-s-settings",
    ),
    pytest.param(
        {"encryption": {"enabled": False, "existingSecret": "x"}},
        "encryption.enabled is false",
        id="a-secret-that-nothing-is-encrypted-with",
    ),
]


@pytest.mark.slow
def test_a_secret_of_spark_s_may_stand_in_a_file() -> None:
    key = "spark.hadoop.fs.s3a.secret.key"
    done = template({"job": {"sparkConf": {key: "${file:/etc/tidestaff/secrets/store/key}"}}})
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("values", "said"), WRONG)
def test_a_wrong_value_is_refused_with_a_sentence(values: dict[str, Any], said: str) -> None:
    done = template(values)
    assert done.returncode != 0
    assert said in done.stderr, done.stderr
