"""The operator lost its memory: what it does not find again ends, what it does find goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.alerts.alert import Status, alert_of, text_of
from tidestaff.streaming.alerts.reading import AlertReader

from tests.streaming.alerts.lives import GROUPED, LATCHED, PLAIN, POLICY, event
from tests.streaming.alerts.shop import QUERY, Shop, clock_row, finding, stats

if TYPE_CHECKING:
    from pathlib import Path

    from tidestaff.streaming.alerts.batch import OutputRow

LOST_AT_MS = 100_000
OVER_MS = LOST_AT_MS + POLICY.doubt_ms


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.batch(
        event("raised", 1_000),
        event("raised", 1_000, GROUPED, partition=1),
        event("raised", 1_000, GROUPED, partition=2),
        event("raised", 1_000, LATCHED, offsets=(3, 5)),
        clock=50_000,
    )
    return shop


def _lose(shop: Shop, *rows: OutputRow) -> None:
    shop.rows(stats(clocks={"c": LOST_AT_MS}, state_rebuilt="version 1 is not read"), *rows)


def _status(shop: Shop) -> dict[str, Status]:
    return {alert.code: alert.status for alert in AlertReader(shop.path).alerts()}


def test_what_is_not_found_again_is_resolved_and_a_loss_waits_for_somebody(shop: Shop) -> None:
    _lose(shop)
    shop.batch(clock=OVER_MS)
    assert set(_status(shop).values()) == {Status.FIRING}
    shop.batch(clock=OVER_MS + 60_000 + POLICY.lateness_ms)
    resolved = {PLAIN: Status.RESOLVED, GROUPED: Status.RESOLVED, LATCHED: Status.FIRING}
    assert _status(shop) == resolved
    loss = next(a for a in AlertReader(shop.path).alerts() if a.code == LATCHED)
    AlertReader(shop.path).acknowledge(loss.fingerprint, who="a", why="restored", now_ms=1)
    assert _status(shop)[LATCHED] is Status.RESOLVED


def test_what_is_found_again_goes_on_with_the_members_that_were(shop: Shop) -> None:
    again = [event("raised", 110_000), event("raised", 110_000, GROUPED, partition=2)]
    _lose(shop, *map(finding, again))
    shop.batch(clock=OVER_MS + 600_000)
    assert _status(shop)[PLAIN] is Status.FIRING
    group = next(a for a in shop.store.open_alerts() if a.code == GROUPED)
    assert {key for key, member in group.members.items() if member.active} == {"t-2"}
    assert [each.started_at_ms for each in shop.store.open_alerts()] == [1_000] * 3


def test_a_checkpoint_made_anew_is_a_lost_memory_too(shop: Shop) -> None:
    shop.store.process_batch("another", 0, [clock_row(LOST_AT_MS)])
    shop.store.process_batch("another", 1, [clock_row(OVER_MS + 70_000)])
    assert _status(shop)[PLAIN] is Status.RESOLVED


def test_without_a_loss_of_memory_nothing_is_doubted(shop: Shop) -> None:
    shop.batch(clock=LOST_AT_MS)
    shop.batch(clock=OVER_MS + 600_000)
    assert set(_status(shop).values()) == {Status.FIRING}


def test_doubt_survives_a_restart_of_the_job(shop: Shop) -> None:
    _lose(shop)
    shop.reopen()
    shop.batch(clock=OVER_MS + 70_000)
    assert _status(shop)[PLAIN] is Status.RESOLVED


def test_a_doubted_member_is_written_and_read_back(shop: Shop) -> None:
    _lose(shop)
    for alert in shop.store.open_alerts():
        assert alert_of(text_of(alert)) == alert
        assert all(member.doubted for member in alert.members.values())


def test_batches_of_the_same_query_do_not_doubt_again(shop: Shop) -> None:
    _lose(shop)
    shop.store.process_batch(QUERY, shop.number, [finding(event("raised", 110_000))])
    shop.number += 1
    shop.batch(clock=OVER_MS + 70_000)
    assert _status(shop)[PLAIN] is Status.FIRING


def test_a_bucket_that_kept_its_memory_is_not_doubted(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.batch(
        event("raised", 1_000, bucket=0),
        event("raised", 1_000, partition=1, bucket=3),
        event("raised", 1_000, GROUPED, partition=2, bucket=0),
        event("raised", 1_000, GROUPED, partition=3, bucket=3),
        clock=50_000,
    )
    shop.reopen()
    lost = stats(3, clocks={"c": LOST_AT_MS}, state_rebuilt="version 1 is not read")
    shop.rows(lost, stats(0, clocks={"c": LOST_AT_MS}))
    shop.batch(clock=OVER_MS + 600_000)
    plain = {a.partition: a.status for a in AlertReader(shop.path).alerts() if a.code == PLAIN}
    assert plain == {0: Status.FIRING, 1: Status.RESOLVED}
    group = next(a for a in shop.store.open_alerts() if a.code == GROUPED)
    assert {key for key, member in group.members.items() if member.active} == {"t-2"}
