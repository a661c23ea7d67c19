"""A fault of a simulated cluster, all the way: Spark, Prometheus, a rule, Alertmanager, a webhook.

The time of each hop is measured and printed (`-s`), and written where HOPS_FILE names a file; no
time is asserted, for it depends on the machine.
"""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tidestaff.streaming.alerts.reading import AlertReader

from tests.browser.conftest import story
from tests.observability.programs import alertmanager, asked, free_port, prometheus, until
from tests.streaming.job.processes import Monitor
from tests.streaming.sinks.receiver import receiving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.streaming.sinks.receiver import Receiver

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\btidestaff_[a-z_]+")


class Way:
    """The parts of the way, all running."""

    def __init__(
        self, monitor: Monitor, metrics: int, alertmanager: str, prometheus: str, told: Receiver
    ) -> None:
        self.monitor, self.metrics, self.told = monitor, metrics, told
        self.alertmanager, self.prometheus = alertmanager, prometheus

    def samples(self) -> list[Any]:
        url = f"http://127.0.0.1:{self.metrics}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            text = response.read().decode()
        return [s for family in text_string_to_metric_families(text) for s in family.samples]

    def query(self, expression: str) -> list[Any]:
        text = urllib.parse.urlencode({"query": expression})
        found: list[Any] = asked(f"{self.prometheus}/api/v1/query?{text}")["data"]["result"]
        return found

    def firing(self) -> list[Any]:
        alerts = asked(f"{self.prometheus}/api/v1/alerts")["data"]["alerts"]
        return [a for a in alerts if a["state"] == "firing" and _is_loss(a["labels"])]

    def held(self) -> list[Any]:
        return [a for a in asked(f"{self.alertmanager}/api/v2/alerts") if _is_loss(a["labels"])]

    def posted(self, status: str) -> list[Any]:
        bodies = [json.loads(request.body) for request in self.told.requests]
        return [
            alert
            for body in bodies
            for alert in body["alerts"]
            if _is_loss(alert["labels"]) and alert["status"] == status
        ]

    def loss(self) -> Any:
        path = self.monitor.folder / "tidestaff-data" / "alerts.sqlite"
        if not path.is_file():
            return None
        reader = AlertReader(path)
        try:
            found = [a for a in reader.alerts() if a.code == "TRN001" and a.fired_at_ms is not None]
        finally:
            reader.close()
        return found[0] if found else None


def _is_loss(labels: dict[str, str]) -> bool:
    return labels.get("code") == "TRN001"


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    folder = tmp_path_factory.mktemp("way")
    metrics = free_port()
    config = {
        "clusters": [{"name": "old", "source": story("0.10.2.2")}],
        "operator": {"buckets": 2},
        "spark": {"master": "local[2]", "driver_memory": "1g", "quick_start": True},
        "metrics": {"port": metrics},
        "web": {"port": 0},
    }
    with (
        receiving() as told,
        alertmanager(folder / "alertmanager", f"{told.url}/hook") as manager,
        prometheus(folder / "prometheus", metrics, manager) as server,
    ):
        monitor = Monitor(folder / "job", config)
        try:
            yield Way(monitor, metrics, manager, server, told)
        finally:
            if monitor.process.poll() is None:
                monitor.signal(signal.SIGTERM)
            monitor.wait()


def test_a_fault_reaches_the_webhook_and_is_over_when_it_is_taken_on(way: Way) -> None:
    alert, stored = until(way.loss, 420, "the job finds the loss")
    _, scraped = until(
        lambda: way.query('tidestaff_alerts{code="TRN001", status="firing"} > 0'),
        60,
        "Prometheus has scraped it",
    )
    (fired,), ruled = until(way.firing, 60, "the rule fires")
    assert fired["annotations"]["runbook_url"].endswith("#/rule/TRN001")
    assert fired["labels"]["severity"] == "critical"
    (held,), managed = until(way.held, 60, "Alertmanager has it")
    posted, told = until(lambda: way.posted("firing"), 60, "the webhook is called")
    assert posted[0]["annotations"]["summary"].startswith("A truncation in old")
    _tell_hops(alert.started_at_ms / 1000, stored, scraped, ruled, managed, told)

    silence = {
        "matchers": [{"name": "code", "value": "TRN001", "isRegex": False, "isEqual": True}],
        "startsAt": held["startsAt"],
        "endsAt": "2999-01-01T00:00:00Z",
        "createdBy": "test",
        "comment": "being repaired",
    }
    asked(f"{way.alertmanager}/api/v2/silences", silence)
    until(lambda: all(each["status"]["silencedBy"] for each in way.held()), 60, "it is silenced")
    (found,) = asked(f"{way.alertmanager}/api/v2/silences")
    delete = urllib.request.Request(  # noqa: S310 - loopback
        f"{way.alertmanager}/api/v2/silence/{found['id']}", method="DELETE"
    )
    urllib.request.urlopen(delete, timeout=10).close()  # noqa: S310

    reader = AlertReader(way.monitor.folder / "tidestaff-data" / "alerts.sqlite")
    reader.acknowledge(alert.fingerprint, who="Ada", why="restored", now_ms=alert.started_at_ms)
    reader.close()
    until(lambda: way.posted("resolved"), 120, "the webhook is told that it is over")


def _tell_hops(fault: float, *at: float) -> None:
    names = ("found by the job", "scraped", "rule fires", "in Alertmanager", "webhook called")
    times = (fault, *at)
    hops = {
        name: round(max(0.0, later - before), 1)
        for name, before, later in zip(names, times, at, strict=False)
    }
    hops["in all"] = round(at[-1] - fault, 1)
    print("\nseconds of each hop:", hops)
    if path := os.environ.get("HOPS_FILE"):
        Path(path).write_text(json.dumps(hops))


def test_every_metric_of_a_dashboard_is_in_the_scrape(way: Way) -> None:
    until(way.loss, 420, "the job has something to tell")
    scraped = {sample.name for sample in way.samples()}
    for path in (ROOT / "conf" / "grafana").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                missing = set(NAME.findall(target["expr"])) - scraped - _LATER
                assert missing == set(), f"{path.name}: {panel['title']}"


# Only while a partition breaks a rule at the moment of the scrape; and only where contents are
# compared, which simulated clusters do not offer (tests/streaming/web/test_verified.py has it).
_LATER = {"tidestaff_partition_violation", "tidestaff_verification_age_seconds"}


def test_the_rules_know_what_the_job_calls_its_metrics(way: Way) -> None:
    until(way.loss, 420, "the job has something to tell")
    rules = asked(f"{way.prometheus}/api/v1/rules")["data"]["groups"]
    assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}
    firing = {r["name"] for g in rules for r in g["rules"] if r["state"] == "firing"}
    assert "TidestaffAbsent" not in firing
