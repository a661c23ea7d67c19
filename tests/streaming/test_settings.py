"""Configuration: the reference file is the truth about every key, and errors say what to do."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined
from tidestaff.streaming.routes import routes_of
from tidestaff.streaming.settings import Cluster, Settings, Sink, Source
from tidestaff.streaming.settings_loading import SettingsError, effective, load, plain, shown

REFERENCE = Path(__file__).resolve().parents[2] / "conf" / "tidestaff.yaml"


def all_taken_up() -> dict[str, Any]:
    """The reference file with every commented setting in force."""
    text = re.sub(r"^#(?=  )", "", REFERENCE.read_text(), flags=re.MULTILINE)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def default_of(model: type[BaseModel], name: str) -> Any:
    field = model.model_fields[name]
    value = field.get_default(call_default_factory=True)
    return PydanticUndefined if value is PydanticUndefined else plain(value)


def members(union: Any) -> dict[str, type[BaseModel]]:
    models = get_args(get_args(union)[0])
    return {model.model_fields["type"].default: model for model in models}


def agree(model: type[BaseModel], found: dict[str, Any], path: str) -> None:
    assert list(found) == list(model.model_fields), f"keys of {path}, in order"
    for name, value in found.items():
        default = default_of(model, name)
        inner = model.model_fields[name].annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            agree(inner, value, f"{path}.{name}")
        elif default is not PydanticUndefined and name not in {"clusters", "sinks"}:
            assert value == default, f"default of {path}.{name}"


def test_the_reference_file_as_it_stands_is_the_default() -> None:
    assert load(REFERENCE, {}) == Settings()


def test_without_a_file_the_story_is_told_by_a_small_job() -> None:
    small = {"operator": {"buckets": 4}, "spark": {"quick_start": True}}
    assert load(None, {}) == Settings.model_validate(small)


def test_the_reference_file_shows_every_key_with_its_default() -> None:
    found = all_taken_up()
    agree(Settings, found, "settings")


@pytest.mark.parametrize("kind", members(Source))
def test_the_reference_file_shows_every_key_of_a_source(kind: str) -> None:
    sources = [cluster["source"] for cluster in all_taken_up()["clusters"]]
    whole = [source for source in sources if source["type"] == kind][-1]
    agree(members(Source)[kind], whole, kind)


@pytest.mark.parametrize("kind", members(Sink))
def test_the_reference_file_shows_every_key_of_a_sink(kind: str) -> None:
    (shown,) = [sink for sink in all_taken_up()["sinks"] if sink["type"] == kind]
    agree(members(Sink)[kind], shown, kind)


def test_everything_the_reference_file_shows_can_be_taken_up(tmp_path: Path) -> None:
    content = all_taken_up()
    next(s for s in content["sinks"] if s["type"] == "webhook")["url"] = "http://127.0.0.1/x"
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump(content))
    assert len(load(path, {}).sinks) == len(members(Sink))


def problems(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> list[str]:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as raised:
        load(path, environment or {})
    return [problem.replace(str(path), "FILE") for problem in raised.value.problems]


KAFKA = "clusters: [{name: a, source: {type: kafka, bootstrap_servers: b, topics: [t], %s}}]"


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        pytest.param(
            "operatr: {}",
            {},
            "FILE: operatr: unknown key 'operatr'; did you mean operator?",
            id="an-unknown-section-is-told-the-nearest",
        ),
        pytest.param(
            "operator: {bukets: 3}",
            {},
            "FILE: operator.bukets: unknown key 'bukets'; did you mean buckets?",
            id="an-unknown-key-is-told-the-nearest",
        ),
        pytest.param(
            KAFKA % "strting_offsets: x",
            {},
            "FILE: clusters.0.source.strting_offsets: unknown key 'strting_offsets'; "
            "did you mean starting_offsets?",
            id="within-a-source-the-keys-of-that-source-are-meant",
        ),
        pytest.param(
            "operator: {buckets: 0}",
            {},
            "FILE: operator.buckets: found 0, expected a value that should be greater than or "
            "equal to 1",
            id="a-bound-is-told",
        ),
        pytest.param(
            "clusters: [{name: a, source: {type: kafk}}]",
            {},
            "FILE: clusters.0.source: found type 'kafk', expected type to be one of 'simulator', "
            "'recording', 'kafka', 'direct'",
            id="an-unknown-source-is-told-which-there-are",
        ),
        pytest.param(
            "clusters: [{name: a, source: {type: recording}}]",
            {},
            "FILE: clusters.0.source.path: this key is missing, expected it to be given",
            id="a-missing-key-is-named",
        ),
        pytest.param(
            "clusters: []",
            {},
            "FILE: clusters: found none, expected at least one cluster to watch",
            id="no-cluster-is-nothing-to-watch",
        ),
        pytest.param(
            "sinks: [{type: console}, {type: console}]",
            {},
            "FILE: sinks: 'console' stands there twice, expected another name (key name) for each "
            "sink",
            id="two-sinks-of-one-name",
        ),
        pytest.param(
            "alerts: {hold_down: {codes: {XXX001: 1}}}",
            {},
            "FILE: alerts.hold_down.codes: there is no code 'XXX001'; 'tidestaff rules' lists them",
            id="a-code-that-does-not-exist",
        ),
        pytest.param(
            "a: [",
            {},
            "FILE, line 1: expected the node content, but found '<stream end>': correct the YAML "
            "there",
            id="not-yaml",
        ),
        pytest.param(
            "web: {enabled: false}\nsinks: []\nweb: {port: 9000}",
            {},
            "FILE, line 3: the key 'web' stands there twice, first in line 1: correct the YAML "
            "there",
            id="of-a-key-that-stands-there-twice-the-first-would-be-lost",
        ),
        pytest.param(
            'work_dir: "a\\0b"',
            {},
            "FILE: work_dir: it holds a NUL character: remove it",
            id="no-path-has-such-a-character",
        ),
        pytest.param(
            "operator: {buckets: 2024-13-45}",
            {},
            "FILE, line 1: this looks like a number or a date and is none; quote a text: "
            "correct the YAML there",
            id="a-date-that-is-none",
        ),
        pytest.param(
            f"operator: {{buckets: {'9' * 5000}}}",
            {},
            "FILE, line 1: this looks like a number or a date and is none; quote a text: "
            "correct the YAML there",
            id="a-number-beyond-all-bounds",
        ),
        pytest.param(
            "operator: &all {buckets: *all}",
            {},
            "FILE, line 1: an alias stands within what it stands for: correct the YAML there",
            id="a-part-that-holds-itself",
        ),
        pytest.param(
            "a: " + "[" * 5000,
            {},
            "FILE: it is nested too deeply: correct the YAML there",
            id="brackets-without-end",
        ),
        pytest.param(
            "- a",
            {},
            "FILE: found a list, expected keys and values; correct it, or compare with "
            "conf/tidestaff.yaml, which shows every key",
            id="not-a-mapping",
        ),
        pytest.param(
            "{}",
            {"TIDESTAFF_OPERATOR__BUCKETS": "many"},
            "environment variable TIDESTAFF_OPERATOR__BUCKETS, key operator.buckets: found 'many', "
            "expected a value that should be a valid integer, unable to parse string as an integer",
            id="a-wrong-variable-is-named",
        ),
        pytest.param(
            "{}",
            {"TIDESTAFF_OPERATER__BUCKETS": "3"},
            "environment variable TIDESTAFF_OPERATER__BUCKETS, key operater: unknown key "
            "'operater'; did you mean operator?",
            id="a-variable-of-an-unknown-section-is-named",
        ),
        pytest.param(
            "clusters: [{name: a, source: {type: simulator}}]",
            {"TIDESTAFF_CLUSTERS__3__NAME": "x"},
            "environment variable TIDESTAFF_CLUSTERS__3__NAME: there is no clusters.3.name to set",
            id="a-variable-for-an-entry-that-is-not-there",
        ),
        pytest.param(
            "clusters: [{name: a, source: {type: simulator}}]",
            {"TIDESTAFF_CLUSTERS__EAST__NAME": "x"},
            "environment variable TIDESTAFF_CLUSTERS__EAST__NAME: there is no clusters.east.name "
            "to set",
            id="a-variable-that-names-an-entry-by-a-word",
        ),
        pytest.param(
            "{}",
            {"TIDESTAFF_WEB__TOKEN": "short"},
            "environment variable TIDESTAFF_WEB__TOKEN, key web.token: should have at least 16 "
            "items after validation, not 5",
            id="a-secret-that-is-too-short-is-not-shown",
        ),
        pytest.param(
            KAFKA % "properties: {sasl.password: '${env:PW}'}",
            {},
            "FILE: clusters.0.source.properties.sasl.password: the environment variable PW of "
            "${env:PW} is not set: set it",
            id="a-secret-that-is-not-set",
        ),
    ],
)
def test_an_error_says_where_what_and_the_remedy(
    tmp_path: Path, text: str, environment: dict[str, str], expected: str
) -> None:
    assert problems(tmp_path, text, environment)[0] == expected


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, "operator: {buckets: 0, latenes_ms: 1}\nspark: {master: 3}")
    assert len(found) == 4
    assert found[-1].startswith("correct it, or compare with conf/tidestaff.yaml")


def test_the_environment_stands_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("operator: {buckets: 3}\nclusters: [{name: a, source: {type: simulator}}]")
    environment = {
        "TIDESTAFF_OPERATOR__BUCKETS": "5",
        "TIDESTAFF_CLUSTERS__0__SOURCE__SEED": "9",
        "TIDESTAFF_SPARK__MASTER": "local[1]",
        "TIDESTAFF_JARS_DIR": "/jars",
        "TIDESTAFF_IVY_SETTINGS": "/ivy.xml",
    }
    settings = load(path, environment)
    assert settings.operator.buckets == 5
    assert settings.clusters[0].source.model_dump()["seed"] == 9
    assert settings.spark.master == "local[1]"


@pytest.mark.parametrize("service", ["TIDESTAFF", "TIDESTAFF_WEB", "TIDESTAFF_METRICS"])
def test_what_kubernetes_tells_a_pod_of_its_services_is_no_setting(service: str) -> None:
    links = {
        f"{service}_SERVICE_HOST": "10.0.0.7",
        f"{service}_SERVICE_PORT": "8470",
        f"{service}_SERVICE_PORT_HTTP": "8470",
        f"{service}_PORT": "tcp://10.0.0.7:8470",
        f"{service}_PORT_8470_TCP": "tcp://10.0.0.7:8470",
        f"{service}_PORT_8470_TCP_PROTO": "tcp",
        f"{service}_PORT_8470_TCP_PORT": "8470",
        f"{service}_PORT_8470_TCP_ADDR": "10.0.0.7",
    }
    assert load(None, links) == load(None, {})


@pytest.mark.parametrize(
    "variable", ["TIDESTAFF_WEB_PORT", "TIDESTAFF_WEB__SERVICE_PORT", "TIDESTAFF_WEB_HOST"]
)
def test_a_setting_that_only_looks_like_a_service_is_still_refused(variable: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        load(None, {variable: "8470"})


@pytest.mark.parametrize("folder", ["streaming", "connectors", "conf"])
def test_no_variable_that_the_program_reads_stands_in_the_way_of_the_settings(folder: str) -> None:
    used = set()
    for path in (REFERENCE.parents[1] / folder).rglob("*.py"):
        used |= set(re.findall(r"[\"'](TIDESTAFF_[A-Z_]*[A-Z])[\"']", path.read_text()))
    load(None, dict.fromkeys((name for name in used if "__" not in name), "x"))


def test_rounds_that_come_too_seldom_are_told_before_they_look_like_silence() -> None:
    def given(interval_ms: int) -> dict[str, Any]:
        source = {"type": "direct", "collector": "brokers", "round_interval_ms": interval_ms}
        return {"clusters": [{"name": "c", "source": source}]}

    assert Settings.model_validate(given(30_000)).operator.silence_ms == 60_000
    with pytest.raises(ValueError, match=r"c: a round every 30001 ms, half of .* is 30000"):
        Settings.model_validate(given(30_001))


def test_a_new_sink_for_people_begins_at_the_present_and_an_archive_at_the_beginning(
    tmp_path: Path,
) -> None:
    sinks = [
        {"type": "console"},
        {"type": "webhook", "url": "http://127.0.0.1:1/"},
        {"type": "alertmanager", "url": "http://127.0.0.1:1/"},
        {"type": "jsonl", "path": str(tmp_path / "a.jsonl")},
        {"type": "parquet", "path": str(tmp_path / "parquet")},
    ]
    routes = routes_of(Settings.model_validate({"sinks": sinks}), io.StringIO())
    assert [route.from_start for route in routes] == [False, False, False, True, True]


@pytest.mark.parametrize(
    "token",
    [
        "1234567890123456",
        "0123456789012345",
        "#0123456789abcdef",
        "0123456789abcdef #more",
        "@0123456789abcdef",
        "{0123456789abcdef",
        "key: 0123456789abcdef",
        "2026-11-18 00:00:00",
        "2026-13-45 00:00:00",
    ],
)
def test_a_variable_that_yaml_takes_for_something_else_is_still_a_text(token: str) -> None:
    given = load(None, {"TIDESTAFF_WEB__TOKEN": token}).web.token
    assert given is not None
    assert given.get_secret_value() == token


def test_parts_that_are_taken_over_may_be_written_again(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(
        "clusters:\n"
        "  - &a {name: a, source: &s {type: simulator, partitions: 2}}\n"
        "  - {<<: *a, name: b, source: {<<: *s, partitions: 3}}\n"
    )
    assert [each.name for each in load(path, {}).clusters] == ["a", "b"]


def test_a_variable_may_be_quoted_or_null_or_a_list() -> None:
    environment = {
        "TIDESTAFF_WEB__TOKEN": "null",
        "TIDESTAFF_LOG_LEVEL": "'error'",
        "TIDESTAFF_WEB__ALLOWED_HOSTS": "[a, b]",
    }
    found = load(None, environment)
    assert (found.web.token, found.log_level) == (None, "error")
    assert found.web.allowed_hosts == ("a", "b")


def test_a_variable_changes_a_part_of_a_list_that_is_there_by_default(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("{}")
    environment = {
        "TIDESTAFF_CLUSTERS__1__NAME": "east",
        "TIDESTAFF_SINKS__0__STATUSES": "[firing]",
    }
    for place in (None, path):
        found = load(place, environment)
        assert [cluster.name for cluster in found.clusters] == ["old-0.10.2", "east"]
        assert found.clusters[1].source == load(None, {}).clusters[1].source
        assert found.sinks[0].statuses == ("firing",)


def test_secrets_are_never_printed(tmp_path: Path) -> None:
    path, secret = tmp_path / "t.yaml", tmp_path / "secret"
    secret.write_text("gesecret\n")
    path.write_text(
        f"clusters: [{{name: a, source: {{type: kafka, bootstrap_servers: b, topics: [t], "
        f"properties: {{sasl.password: '${{env:PW}}'}}}}}}]\n"
        f"sinks: [{{type: webhook, url: '${{file:{secret}}}', headers: {{x: '${{env:PW}}'}}}}]"
    )
    settings = load(path, {"PW": "pwsecret"})
    shown = effective(settings) + repr(settings) + str(settings)
    assert "gesecret" not in shown
    assert "pwsecret" not in shown
    url = settings.sinks[0].model_dump()["url"]
    assert isinstance(url, SecretStr)
    assert url.get_secret_value() == "gesecret"


def test_a_secret_under_a_name_that_does_not_sound_like_one_is_not_printed(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(
        "sinks:\n"
        "  - {type: webhook, url: 'http://h', template: '{\"routing_key\": \"${env:PW}\"}'}\n"
        "  - {type: alertmanager, url: 'http://am:9093/?t=${env:PW}', labels: {x: '${env:PW}'}}\n"
        "  - {type: alertmanager, name: two, url: 'http://u:$PW@am:9093/?t=pwsecret'}\n"
        "clusters:\n"
        "  - name: a\n"
        "    source:\n"
        "      type: direct\n"
        "      collector: brokers\n"
        "      options: {bootstrap_servers: 'b:1', sasl.oauthbearer.client.credentials: pwsecret}\n"
        "spark:\n"
        "  conf:\n"
        "    spark.driver.extraJavaOptions: '-Dx=y -Djavax.net.ssl.trustStorePassword=pwsecret'\n"
        "    spark.any.thing: '${env:PW}'\n".replace("$PW", "pwsecret")
    )
    settings = load(path, {"PW": "pwsecret"})
    told = effective(settings)
    assert "pwsecret" not in told
    assert "pwsecret" not in json.dumps(shown(settings))
    assert '{"routing_key": "${env:PW}"}' in told
    assert "spark.any.thing: ${env:PW}" in told
    assert "-Dx=y -Djavax.net.ssl.trustStorePassword=***" in told
    assert "http://***@am:9093/?***" in told
    assert settings.spark.conf["spark.any.thing"] == "pwsecret"


def test_secrets_among_the_settings_of_spark_and_of_clients_are_not_printed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.yaml"
    kept = {
        "spark.authenticate.secret.file": "/run/kept-1",
        "spark.hadoop.fs.s3a.endpoint": "kept-2",
        "spark.hadoop.fs.azure.account.oauth.provider.type": "kept-3",
        "spark.executor.memory": "kept-4",
        "spark.io.encryption.keySizeBits": 256256,
        "spark.kerberos.access.token.renewal": True,
    }
    hidden: dict[str, str | int] = dict.fromkeys(
        (
            "spark.hadoop.fs.s3a.secret.key",
            "spark.hadoop.fs.s3a.access.key",
            "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net",
            "spark.ssl.keyPassword",
            "spark.hadoop.fs.s3a.session.token",
            "spark.hadoop.fs.s3a.encryption.key",
            "spark.hadoop.fs.azure.sas.container.a.blob.core.windows.net",
        ),
        "hunter2",
    )
    hidden["spark.hadoop.fs.ftp.password.host"] = 17654321
    names = ("sasl.password", "sasl.jaas.config", "ssl.keystore.key")
    options = {
        "bootstrap_servers": "b",
        "agents_token": 17654321,
        **dict.fromkeys(names, "hunter2"),
    }
    source = {"type": "direct", "collector": "brokers", "options": options}
    content = {"clusters": [{"name": "a", "source": source}], "spark": {"conf": {**kept, **hidden}}}
    path.write_text(yaml.safe_dump(content))
    shown = effective(load(path, {}))
    assert "hunter2" not in shown
    assert "17654321" not in shown
    assert all(f"{name}: {str(value).lower()}" in shown for name, value in kept.items())


@pytest.mark.parametrize(
    "text",
    [
        "sinks: [{type: webhook, url: 17654321}]",
        "web: {token: 17654321}",
        "web: {token: 's17654321'}",
    ],
)
def test_a_secret_of_a_wrong_kind_is_not_told_in_the_error(tmp_path: Path, text: str) -> None:
    assert "17654321" not in "".join(problems(tmp_path, text))


def test_a_password_within_an_address_is_not_printed() -> None:
    sinks = [{"type": "alertmanager", "url": "http://me:" + "hunter2@host:9093/x@y"}]
    settings = Settings.model_validate({"sinks": sinks})
    assert "url: http://***@host:9093/x@y\n" in effective(settings)
    assert plain(settings, reveal=True)["sinks"][0]["url"] == sinks[0]["url"]


def test_the_printed_configuration_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "printed.yaml"
    path.write_text(effective(load(None, {})))
    assert load(path, {}) == load(None, {})


def test_a_pattern_is_printed_as_it_was_given(tmp_path: Path) -> None:
    given, printed = tmp_path / "given.yaml", tmp_path / "printed.yaml"
    given.write_text("metrics: {coverage_topics: 'orders|pay.*'}\n")
    printed.write_text(effective(load(given, {})))
    assert load(printed, {}).metrics == load(given, {}).metrics


def test_revealed_clusters_are_the_same_clusters() -> None:
    source = {"type": "kafka", "bootstrap_servers": "b", "topics": ["t"], "properties": {"a": "s"}}
    cluster = Cluster.model_validate({"name": "a", "source": source})
    assert Cluster.model_validate(plain(cluster, reveal=True)) == cluster
