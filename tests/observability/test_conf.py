"""Rules, dashboards and the Alertmanager example: valid, complete, and about metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidestaff.consistency.catalogue import BY_CODE, CATALOGUE
from tidestaff.streaming.metrics import Metrics
from tidestaff.streaming.metrics_table import HISTOGRAM, METRICS, metrics_page

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
DASHBOARDS = sorted((CONF / "grafana").glob("*.json"))
GROUPS = yaml.safe_load((CONF / "prometheus" / "rules.yaml").read_text())["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
NAME = re.compile(r"\btidestaff_[a-z_]+")
SEVERITIES = {"critical", "warning", "info"}


def known_names() -> set[str]:
    found = {each.sample for each in METRICS.values()}
    for each in METRICS.values():
        if each.kind == HISTOGRAM:
            found |= {f"{each.sample}_{part}" for part in ("bucket", "sum", "count")}
    return found


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        package = {"promtool": "prometheus", "amtool": "prometheus-alertmanager"}[name]
        pytest.skip(f"{name} is not installed (Debian: {package})")
    return found


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_page_of_metrics_is_what_the_code_says() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == metrics_page(), "run `make docs`"


def test_names_follow_the_practice() -> None:
    for each in METRICS.values():
        assert re.fullmatch(r"tidestaff(_[a-z]+)+", each.sample)
        assert not set(each.labels) & {"offset", "epoch", "le", "job", "instance"}
        assert each.words.endswith(".")


def test_the_table_is_what_is_scraped(tmp_path: Path) -> None:
    from tests.streaming.test_metrics import Watched  # noqa: PLC0415 - a store with metrics

    shop = Watched(tmp_path)
    shop.fed()
    families = {family.name: family for family in shop.metrics.registry.collect()}
    shop.store.close()
    for each in METRICS.values():
        family = families.pop(f"tidestaff_{each.name}")
        assert (family.documentation, family.type) == (each.words, each.kind)
    assert families == {}
    assert Metrics(tmp_path / "none").registry is not None


def test_there_is_a_rule_for_every_family() -> None:
    families = {rule["labels"]["family"] for rule in RULES if "family" in rule["labels"]}
    assert families == {rule.family for rule in CATALOGUE}


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in RULES])
def test_a_rule_says_what_is_wrong_how_bad_it_is_and_where_to_read_on(rule: Any) -> None:
    assert set(NAME.findall(rule["expr"])) <= known_names()
    assert rule["labels"].get("severity") in SEVERITIES or "severity" in rule["expr"]
    assert {"summary", "description", "runbook_url"} <= set(rule["annotations"])
    code = rule["annotations"]["runbook_url"].rpartition("/")[2]
    assert code in BY_CODE or code == "{{ $labels.code }}"
    assert rule["for"]


def test_absence_and_staleness_are_alerts() -> None:
    found = {rule["alert"] for rule in RULES}
    assert {"TidestaffAbsent", "TidestaffBatchesStalled", "TidestaffSourceStale"} <= found


def test_promtool_finds_nothing_wrong() -> None:
    program = tool("promtool")
    run(program, "check", "rules", "rules.yaml", cwd=CONF / "prometheus")
    run(program, "check", "config", "prometheus.yaml", cwd=CONF / "prometheus")


def test_every_rule_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    program = tool("promtool")
    tests = ROOT / "tests" / "observability" / "rules.test.yaml"
    shutil.copy(tests, tmp_path)
    shutil.copy(CONF / "prometheus" / "rules.yaml", tmp_path)
    assert "SUCCESS" in run(program, "test", "rules", tests.name, cwd=tmp_path)
    tested = set(re.findall(r"alertname: (\w+)", tests.read_text()))
    assert tested == {rule["alert"] for rule in RULES}


def test_amtool_finds_nothing_wrong() -> None:
    run(tool("amtool"), "check-config", "alertmanager.yaml", cwd=CONF / "alertmanager")


def test_inhibitions_name_alerts_and_codes_that_exist() -> None:
    config = yaml.safe_load((CONF / "alertmanager" / "alertmanager.yaml").read_text())
    text = json.dumps(config["inhibit_rules"]) + json.dumps(config["route"])
    assert set(re.findall(r"[A-Z]{3}[0-9]{3}", text)) <= set(BY_CODE)
    assert set(re.findall(r"Tidestaff\w+", text)) <= {rule["alert"] for rule in RULES}


def panels(dashboard: Any) -> list[Any]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in DASHBOARDS])
def test_a_dashboard_has_the_form_grafana_takes(path: Path) -> None:
    found = json.loads(path.read_text())
    assert found["uid"].startswith("tidestaff-")
    assert found["schemaVersion"] >= 39
    assert found["templating"]["list"][0]["type"] == "datasource"
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} covers another panel"
        taken |= cells
    for panel in panels(found):
        assert panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["expr"].count("(") == target["expr"].count(")")
            assert set(NAME.findall(target["expr"])) <= known_names()


def test_there_is_a_dashboard_for_each_look() -> None:
    assert {path.stem for path in DASHBOARDS} == {"fleet", "cluster", "partition", "self-health"}
    cluster = json.loads((CONF / "grafana" / "cluster.json").read_text())
    titles = [panel["title"] for panel in panels(cluster)]
    ladder = ["Behind", "Under-replicated", "At min ISR", "Under min ISR", "Offline", "Unclean"]
    assert titles[:8] == [*ladder, "Diverged", "Lost"]
    names = {each["name"] for each in cluster["templating"]["list"]}
    partition = json.loads((CONF / "grafana" / "partition.json").read_text())
    names |= {each["name"] for each in partition["templating"]["list"]}
    assert names == {"datasource", "cluster", "topic"}
