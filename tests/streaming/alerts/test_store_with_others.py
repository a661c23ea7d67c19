"""The store gives what the book gives, in any batches and with restarts, while others use it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from itertools import groupby, pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.streaming.alerts.reading import AlertReader
from tidestaff.streaming.alerts.store import AlertStore

from tests.streaming.alerts.lives import PLAIN, event
from tests.streaming.alerts.shop import QUERY, Shop, finding, stats
from tests.streaming.alerts.test_book_is_deterministic import (
    LAST,
    POLICY,
    Batch,
    Step,
    batches,
    events_of,
    histories,
    told,
)

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 300.0


def told_by_a_store(run: list[Batch], reopened: list[bool]) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "alerts.db"
        store = AlertStore(path, POLICY, lambda: 0)
        for number, batch in enumerate(run):
            rows = [finding(each) for each in batch.events]
            rows.append(stats(clocks=batch.clocks))
            store.process_batch(QUERY, number, rows)
            store.process_batch(QUERY, number, rows)
            if reopened[number % len(reopened)]:
                store.close()
                store = AlertStore(path, POLICY, lambda: 0)
        store.close()
        reader = AlertReader(path)
        found = [each for _, each in reader.transitions(limit=10_000)]
        reader.close()
    return [each.text for each in sorted(found, key=lambda each: each.order)]


@given(st.data(), histories, st.lists(st.booleans(), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_a_store_with_repeated_batches_and_restarts_tells_what_the_book_tells(
    data: st.DataObject, history: list[list[Step]], reopened: list[bool]
) -> None:
    stories = [events_of(number, story) for number, story in enumerate(history)]
    everything = sorted((e for story in stories for e in story), key=lambda e: e.at_ms)
    one_by_one = [Batch([each], {each.cluster: each.at_ms}) for each in everything]
    expected = told(iter([*one_by_one, LAST]), reopened=False)
    run = data.draw(st.composite(lambda draw: list(batches(draw, stories)))())
    assert told_by_a_store(run, reopened) == expected


ACKNOWLEDGER = """
import sys
from tidestaff.streaming.alerts.alert import Status
from tidestaff.streaming.alerts.errors import NoSuchAlertError
from tidestaff.streaming.alerts.reading import AlertFilter, AlertReader
reader = AlertReader(sys.argv[1])
print("ready", flush=True)
number = 0
while number < 60:
    for alert in reader.alerts(AlertFilter(statuses={Status.FIRING})):
        try:
            reader.acknowledge(alert.fingerprint, who="ann", why=str(number), now_ms=number)
        except NoSuchAlertError:
            continue  # it resolved in between
        number += 1
print(number)
"""


def test_another_process_acknowledges_all_the_time(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    command = [sys.executable, "-c", ACKNOWLEDGER, str(shop.path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        number = 0
        give_up = time.monotonic() + PATIENCE_S
        while other.poll() is None and time.monotonic() < give_up:
            at_ms = number * 100_000
            kind = "raised" if number % 2 == 0 else "cleared"
            shop.batch(*(event(kind, at_ms, PLAIN, partition=n) for n in range(4)), clock=at_ms)
            number += 1
            # Whoever writes without a pause leaves another process no chance to do so.
            time.sleep(0.001)
        other.kill()
        acknowledged = int(other.stdout.read())
    assert other.returncode == 0
    reader = AlertReader(shop.path)
    found = [each for _, each in reader.transitions(limit=100_000)]
    assert sum(each.status.value == "acknowledged" for each in found) == acknowledged
    found.sort(key=lambda each: (each.fingerprint, each.number))
    may_follow = {
        "firing": {"acknowledged", "resolved"},
        "acknowledged": {"resolved"},
        "resolved": {"firing"},
    }
    for _, each in groupby(found, key=lambda each: each.fingerprint):
        life = list(each)
        assert [one.number for one in life] == list(range(1, len(life) + 1))
        for one, after in pairwise(life):
            assert after.status.value in may_follow[one.status.value]
    reader.close()
    shop.store.close()
