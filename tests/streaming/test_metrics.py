"""Metrics tell the truth, also when no batch comes, and stay few."""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tidestaff.streaming.alerts.batch import COUNTED, STANDING
from tidestaff.streaming.alerts.outbox import Outbox
from tidestaff.streaming.metrics import _COUNTED, _STANDING, Metrics

from tests.streaming.alerts.lives import GROUPED, LATCHED, event
from tests.streaming.alerts.shop import QUERY, Shop, clock_row, finding, stats

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Watched(Shop):
    """A store whose batches feed metrics."""

    def __init__(self, directory: Path, series: int = 200) -> None:
        super().__init__(directory)
        self.metrics = Metrics(self.path, now_ms=self.clock, partition_series=series)

    def fed(self, *rows: object, duration_s: float = 0.2) -> None:
        report = self.rows(*rows)  # type: ignore[arg-type]
        self.metrics.after_batch(report, duration_s, self.store)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"tidestaff_{name}", labels)

    def series(self, name: str) -> list[dict[str, str]]:
        return [
            sample.labels
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == f"tidestaff_{name}"
        ]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Watched]:
    shop = Watched(tmp_path)
    yield shop
    shop.store.close()


def test_alerts_findings_and_transitions_are_counted_by_code_and_severity(shop: Watched) -> None:
    shop.fed(finding(event("raised", 1_000)), finding(event("pending", 1_000, "ISR008")))
    shop.fed(finding(event("cleared", 2_000)), clock_row(100_000))
    critical = {"code": "TRN004", "severity": "critical"}
    assert shop.value("findings_total", **critical, event="raised") == 1
    assert shop.value("findings_total", **critical, event="cleared") == 1
    assert shop.value("transitions_total", **critical, status="resolved") == 1
    assert shop.value("alerts", cluster="c", **critical, status="firing") is None
    behind = {"cluster": "c", "code": "ISR008", "severity": "warning"}
    assert shop.value("alerts", **behind, status="pending") == 1


def test_a_repeated_batch_is_a_batch_but_counts_nothing(shop: Watched) -> None:
    rows = [finding(event("raised", 1_000)), stats(rows=7)]
    for _ in range(2):
        report = shop.store.process_batch(QUERY, 0, rows)
        shop.metrics.after_batch(report, 0.1, shop.store)
    assert shop.value("batches_total") == 2
    assert shop.value("rows_total") == 7
    labels = {"code": "TRN004", "severity": "critical"}
    assert shop.value("transitions_total", **labels, status="firing") == 1


def test_what_the_buckets_count_is_added_up(shop: Watched) -> None:
    shop.fed(
        stats(0, rows=5, quiet=4, stepped=1, partitions=10, replicas_behind=2, state_bytes=100),
        stats(1, rows=7, quarantined=2, late=1, partitions=20, held=3),
    )
    shop.fed(stats(0, rows=1, partitions=11))
    expected = {
        "rows_total": 13,
        "rows_quiet_total": 4,
        "rows_judged_total": 1,
        "rows_quarantined_total": 2,
        "rows_late_total": 1,
        "partitions": 31,
        "replicas_behind": 0,
        "rows_held": 3,
    }
    assert {name: shop.value(name) for name in expected} == expected


def test_lag_and_staleness_grow_although_no_batch_comes(shop: Watched) -> None:
    shop.fed(stats(clocks={"c": 990_000}, sources={"c/zk/1": 985_000}))
    assert shop.value("pipeline_lag_seconds", cluster="c") == 10
    shop.clock.at_ms += 60_000
    assert shop.value("pipeline_lag_seconds", cluster="c") == 70
    assert shop.value("source_staleness_seconds", cluster="c", source="zk/1") == 75
    assert shop.value("source_last_timestamp_seconds", cluster="c", source="zk/1") == 985


def test_a_partition_is_named_only_while_it_violates(shop: Watched) -> None:
    shop.fed(finding(event("raised", 1_000)), finding(event("pending", 1_000, partition=1)))
    assert [labels["partition"] for labels in shop.series("partition_violation")] == ["0"]
    assert shop.value("replicas_diverged") == 1
    shop.fed(finding(event("cleared", 2_000)))
    assert shop.series("partition_violation") == []
    assert shop.value("replicas_diverged") == 0


def test_a_loss_stays_an_alert_when_the_partition_does_not_violate_any_more(shop: Watched) -> None:
    shop.fed(finding(event("raised", 1_000, LATCHED, offsets=(8, 10))))
    shop.fed(finding(event("cleared", 2_000, LATCHED)), clock_row(10**7))
    assert shop.series("partition_violation") == []
    labels = {"cluster": "c", "code": LATCHED, "severity": "critical"}
    assert shop.value("alerts", **labels, status="firing") == 1
    assert shop.value("partitions_in_state", cluster="c", state="lost") == 1
    assert shop.value("lost_offsets", cluster="c") == 2


def test_offsets_that_two_alerts_name_are_lost_once(shop: Watched) -> None:
    shop.fed(
        finding(event("raised", 1_000, "ELE009", offsets=(11, 15))),
        finding(event("raised", 1_000, "TRN001", offsets=(11, 15))),
        finding(event("raised", 2_000, "TRN001", offsets=(14, 17))),
        finding(event("raised", 1_000, "TRN001", offsets=(11, 12), partition=1)),
        clock_row(2_000),
    )
    assert shop.value("lost_offsets", cluster="c") == 6 + 1


def test_partitions_are_capped_with_the_worst_first_and_the_rest_counted(tmp_path: Path) -> None:
    shop = Watched(tmp_path, series=5)
    offline = [event("raised", 1_000, GROUPED, partition=number) for number in range(30)]
    behind = [event("raised", 1_000, "ISR008", partition=number) for number in range(30)]
    shop.fed(*map(finding, (*behind, *offline)), clock_row(50_000))
    listed = shop.series("partition_violation")
    assert [labels["code"] for labels in listed] == [GROUPED] * 5
    assert shop.value("partition_violations_left_out") == 55
    shop.store.close()


def test_sinks_are_seen(shop: Watched) -> None:
    outbox = Outbox(shop.path)
    outbox.register({"dead": True, "well": True})
    shop.fed(*(finding(event("raised", 1_000, partition=number)) for number in range(3)))
    outbox.failed("dead", 1, "refused")
    outbox.delivered("well", 3, 3)
    assert (shop.value("sink_up", sink="dead"), shop.value("sink_up", sink="well")) == (0, 1)
    assert shop.value("sink_backlog", sink="dead") == 3
    assert shop.value("sink_failures_total", sink="dead") == 1
    assert shop.value("sink_delivered_total", sink="well") == 3
    assert shop.value("sink_dropped_total", sink="dead") == 0


def test_a_store_that_is_gone_takes_only_the_sinks_metrics_with_it(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "none.db")
    names = {family.name for family in metrics.registry.collect()}
    assert "tidestaff_alerts" in names
    assert "tidestaff_sink_up" not in names


def test_they_are_served_on_loopback_and_parse(shop: Watched) -> None:
    shop.fed(finding(event("raised", 1_000, topic='odd"\n\\topic')), clock_row(990_000))
    Outbox(shop.path).register({"jsonl": True})
    server = shop.metrics.serve(port=0)
    try:
        url = f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as response:
            text = response.read().decode()
    finally:
        server.close()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (violation,) = families["tidestaff_partition_violation"].samples
    assert violation.labels["topic"] == 'odd"\n\\topic'
    assert families["tidestaff_build_info"].samples[0].labels["version"]
    for name, family in families.items():
        assert re.fullmatch(r"tidestaff_[a-z_]+", name)
        assert family.documentation.endswith(".")


def test_everything_the_operator_counts_has_a_metric() -> None:
    assert (set(_COUNTED), set(_STANDING)) == (set(COUNTED), set(STANDING))
