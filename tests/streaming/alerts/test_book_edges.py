"""Where an adversary found the book of alerts wrong."""

from __future__ import annotations

import json

from tidestaff.streaming.alerts.batch import batch_of

from tests.streaming.alerts.lives import LATCHED, Diary, event


def test_a_bucket_that_began_anew_is_counted() -> None:
    """The operator tells why its state could not be read, in words."""
    stats = {"bucket": 1, "rows": 3, "state_rebuilt": "the state has version 2", "max_at_ms": 5}
    quiet = {"bucket": 2, "rows": 4, "state_rebuilt": "", "max_at_ms": 5}
    batch = batch_of([("stats", 5, json.dumps(each)) for each in (stats, quiet)])
    assert batch.stats.counted["state_rebuilt"] == 1
    assert batch.stats.counted["rows"] == 7


def test_a_second_loss_is_a_fact_of_its_own_though_the_first_is_not_over() -> None:
    diary = Diary()
    diary.batch(event("raised", 1_000, LATCHED, offsets=(5, 10)), clock=1_000)
    diary.batch(event("changed", 2_000, LATCHED, offsets=(40, 50)), clock=2_000)
    assert diary.steps == [("firing", 1_000), ("firing", 2_000)]
    assert sorted(a.offsets or (0, 0) for a in diary.book.alerts.values()) == [(5, 10), (40, 50)]


def test_a_loss_that_grows_stays_one() -> None:
    diary = Diary()
    diary.batch(event("raised", 1_000, LATCHED, offsets=(5, 10)), clock=1_000)
    diary.batch(event("changed", 2_000, LATCHED, offsets=(5, 12)), clock=2_000)
    diary.batch(event("changed", 3_000, LATCHED, offsets=None), clock=3_000)
    assert diary.steps == [("firing", 1_000)]
