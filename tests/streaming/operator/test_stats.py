"""What a bucket says of itself in every batch: clocks, sources, who is behind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidestaff.connectors.wire import MISSING, Row, observation_of, row_of, signal
from tidestaff.consistency.model import PartitionObservation
from tidestaff.streaming.alerts.alert import Status
from tidestaff.streaming.alerts.batch import OutputRow
from tidestaff.streaming.alerts.reading import AlertReader
from tidestaff.streaming.operator.bucket import Bucket, Limits
from tidestaff.streaming.operator.judging import _output
from tidestaff.streaming.operator.rows import block_of

from tests.streaming.alerts.lives import GROUPED, POLICY, event
from tests.streaming.alerts.shop import Shop, finding, refused
from tests.streaming.operator.histories import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SHORT = Limits(lateness_ms=2_000, silence_ms=5_000)


def _said(bucket: Bucket, rows: Sequence[Row]) -> list[OutputRow]:
    found = _output(0, bucket, bucket.process(block_of(rows)), 0, "")
    return [OutputRow(kind, at_ms, json.dumps(payload)) for kind, at_ms, payload in found]


def _stats(bucket: Bucket, rows: Sequence[Row]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_said(bucket, rows)[-1].payload)
    return found


def _clusters(*, source: str = "simulator", lasting_ms: int = 10_000) -> list[Row]:
    rows = rows_of("3.9.1", 5, faults=False, lasting_ms=lasting_ms)
    seen = [observation_of(row) for row in rows if row.kind == "cluster"]
    times = [MISSING, *(each.observed_at_ms for each in seen)]
    return [
        row_of(replace(each, source=source), None if at == MISSING else at)
        for each, at in zip(seen, times, strict=False)
    ]


def _tick(at_ms: int) -> Row:
    return signal("tick", cluster="", source="job", subject="", at_ms=at_ms)


def test_a_row_counts_where_it_is_at_home_and_a_tick_nowhere() -> None:
    rows = [*_clusters(), _tick(1_000)]
    home, elsewhere = Bucket(SHORT), Bucket(SHORT)
    assert home.process(block_of(rows)).counts["rows"] == len(rows) - 1
    assert elsewhere.process(block_of(rows, home=False)).counts["rows"] == 0


def test_a_first_row_that_still_waits_is_no_clock(tmp_path: Path) -> None:
    """Its sequence is before all times: an alert of that time no sink could take."""
    bucket, shop = Bucket(SHORT), Shop(tmp_path)
    middle = _clusters()[5:]
    said = _said(bucket, middle[:1])
    assert json.loads(said[-1].payload)["clocks"] == {}
    shop.rows(*said, refused(middle[0].observed_at_ms, cluster="simulated"))
    for row in middle[1:]:
        shop.rows(*_said(bucket, [row]))
    told = [transition for _, transition in AlertReader(shop.path).transitions()]
    assert all(each.at_ms > 0 for each in told)
    assert _stats(bucket, [])["clocks"]["simulated"] > 0


def test_a_group_fires_though_its_cluster_falls_silent(tmp_path: Path) -> None:
    """The members are found in the last round that anybody saw."""
    policy = replace(POLICY, lateness_ms=SHORT.lateness_ms, group_wait_ms=1_000)
    bucket, shop = Bucket(SHORT), Shop(tmp_path, policy)
    rows = _clusters()
    last_ms = rows[-1].observed_at_ms
    shop.rows(*_said(bucket, rows))
    members = [event("raised", last_ms, GROUPED, partition=n, cluster="simulated") for n in (1, 2)]
    shop.rows(*map(finding, members))
    for at_ms in range(last_ms, last_ms + 60_000, 1_000):
        shop.rows(*_said(bucket, [_tick(at_ms)]))
    fired = {a.code for a in AlertReader(shop.path).alerts() if a.status is Status.FIRING}
    assert fired == {"SRC001", GROUPED}


def test_a_cluster_that_is_heard_has_the_clock_of_its_rows() -> None:
    bucket, rows = Bucket(SHORT), _clusters()
    assert _stats(bucket, rows)["clocks"] == {"simulated": rows[-1].observed_at_ms}


def test_each_source_of_a_cluster_has_its_own_age() -> None:
    first, second = _clusters(), _clusters(source="b", lasting_ms=5_000)
    assert _stats(Bucket(SHORT), [*first, *second])["sources"] == {
        "simulated/simulator": first[-1].observed_at_ms,
        "simulated/b": second[-1].observed_at_ms,
    }


def test_replicas_behind_their_leaders_watermark_are_counted() -> None:
    bucket = Bucket(SHORT)
    assert (
        _stats(bucket, rows_of("3.9.1", 5, faults=False, lasting_ms=10_000))["replicas_behind"] == 0
    )
    last = {entry.name: entry for entry in bucket.partitions.values()}["a-0"]
    rows = rows_of("3.9.1", 5, faults=False, lasting_ms=11_000)
    row = next(r for r in rows if r.subject == "a-0" and r.previous_at_ms == last.sequence.at_ms)
    seen = observation_of(row)
    assert isinstance(seen, PartitionObservation)
    behind = [
        each if each.broker == seen.state.leader else each._replace(log_end_offset=0)
        for each in seen.replicas
    ]
    torn = row_of(replace(seen, replicas=tuple(behind)), row.previous_at_ms)
    assert _stats(bucket, [torn])["replicas_behind"] == len(behind) - 1
    gone = signal(
        "gone",
        cluster=row.cluster,
        source=row.source,
        subject="a-0",
        at_ms=row.observed_at_ms + 500,
        previous_ms=row.observed_at_ms,
    )
    assert _stats(bucket, [gone])["replicas_behind"] == 0
