"""Delivery: every sink at its own pace, and a dead one is an alert, not a stop."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.alerts.alert import Alert, Status
from tidestaff.streaming.alerts.outbox import Outbox, Outgoing, Retention
from tidestaff.streaming.alerts.reading import AlertReader
from tidestaff.streaming.delivery import Dispatcher, Housekeeping, Patience, Route, Surroundings
from tidestaff.streaming.sinks.sink import FOR_PEOPLE, SinkError
from tidestaff.streaming.sinks.worker import POLL_S, SinkWorker

from tests.streaming.alerts.lives import event
from tests.streaming.alerts.shop import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SECRET = "s3cr3t"  # noqa: S105 - made up


class Box:
    """A sink that keeps what it is given, or raises what it is told to."""

    def __init__(self, name: str = "box") -> None:
        self.name = name
        self.taken: list[str] = []
        self.trouble: Exception | None = None
        self.blocked: threading.Event | None = None
        self.closed = False

    def deliver(self, outgoing: Sequence[Outgoing]) -> None:
        if self.blocked is not None:
            self.blocked.wait()
        if self.trouble is not None:
            raise self.trouble
        self.taken += [
            f"{each.transition.code} {each.transition.status.value}" for each in outgoing
        ]

    def close(self) -> None:
        self.closed = True


class Forgetful(Box):
    """A sink that has to be told again."""

    refresh_every_s = 60.0

    def __init__(self) -> None:
        super().__init__()
        self.refreshed: list[int] = []

    def refresh(self, firing: Sequence[Alert]) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.refreshed.append(len(firing))


REFUSED = SinkError("box", "connection refused", "start it")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.store.close()


def around(shop: Shop, chance: float = 0.5) -> Surroundings:
    return Surroundings(shop.clock, shop.clock.monotonic_s, lambda: chance)


def worker_of(shop: Shop, sink: Box, statuses: frozenset[Status] = frozenset(Status)) -> SinkWorker:
    outbox = Outbox(shop.path)
    outbox.register({sink.name: True})
    return SinkWorker(Route(sink, statuses), outbox, shop.store, Patience(), around(shop))


def told(shop: Shop) -> list[str]:
    reader = AlertReader(shop.path)
    return [f"{each.code} {each.status.value}" for _, each in reader.transitions()]


def test_what_waits_is_taken_once(shop: Shop) -> None:
    box = Box()
    worker = worker_of(shop, box)
    shop.batch(event("raised", 1_000))
    assert worker.attempt() == (POLL_S, False)
    assert worker.attempt() == (POLL_S, False)
    assert box.taken == ["TRN004 firing"]


def test_people_are_spared_suspicions_and_the_cursor_moves_on(shop: Shop) -> None:
    box = Box()
    worker = worker_of(shop, box, FOR_PEOPLE)
    shop.batch(event("pending", 1_000), event("cleared", 2_000), event("pending", 3_000))
    shop.batch(event("raised", 4_000))
    worker.attempt()
    assert box.taken == ["TRN004 firing"]
    assert Outbox(shop.path).sinks()[0].backlog == 0


def test_many_are_taken_in_portions_without_a_pause(shop: Shop) -> None:
    box = Box()
    worker = worker_of(shop, box)
    shop.batch(*(event("raised", 1_000, partition=number) for number in range(700)))
    assert worker.attempt().seconds == 0
    assert len(box.taken) == 500
    assert worker.attempt().seconds == POLL_S
    assert len(box.taken) == 700


@pytest.mark.parametrize(
    ("chance", "pauses"),
    [
        pytest.param(0.5, [1, 2, 4, 8, 16, 32, 60, 60], id="they-double-up-to-a-minute"),
        pytest.param(0.0, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 48, 48], id="a-fifth-less"),
        pytest.param(1.0, [1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 72, 72], id="a-fifth-more"),
    ],
)
def test_pauses_grow(shop: Shop, chance: float, pauses: list[float]) -> None:
    box = Box()
    box.trouble = REFUSED
    worker = worker_of(shop, box)
    worker._around = around(shop, chance)
    shop.batch(event("raised", 1_000))
    found = [worker.attempt() for _ in pauses]
    assert [pause.seconds for pause in found] == pytest.approx(pauses)
    assert all(pause.failed for pause in found)


def test_a_sink_that_fails_for_long_is_an_alert_that_resolves_when_it_is_back(shop: Shop) -> None:
    box = Box()
    box.trouble = REFUSED
    worker = worker_of(shop, box)
    shop.batch(event("raised", 1_000))
    for _ in range(4):
        worker.attempt()
        shop.clock.at_ms += 9_000
    assert told(shop) == ["TRN004 firing"]
    worker.attempt()
    assert told(shop) == ["TRN004 firing", "SRC005 firing"]
    fields = AlertReader(shop.path).transitions()[-1][1].fields
    assert (fields["cluster"], fields["place"], fields["since_ms"]) == (
        "tidestaff",
        "box",
        1_000_000,
    )
    assert "connection refused" in fields["observed"]
    box.trouble = None
    worker.attempt()
    shop.clock.at_ms += 60_000
    shop.store.tick()
    worker.attempt()
    assert box.taken == ["TRN004 firing", "SRC005 firing", "SRC005 resolved"]


def test_a_failure_of_a_moment_is_no_alert(shop: Shop) -> None:
    box = Box()
    worker = worker_of(shop, box)
    shop.batch(event("raised", 1_000))
    for trouble in (REFUSED, REFUSED, None):
        box.trouble = trouble
        worker.attempt()
    assert told(shop) == ["TRN004 firing"]
    (state,) = Outbox(shop.path).sinks()
    assert (state.failures, state.failing_since_ms, state.last_error) == (2, None, None)


def test_what_a_stranger_raises_is_told_by_its_name_only(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    box = Box()
    box.trouble = RuntimeError(f"http://me:{SECRET}@host")
    worker = worker_of(shop, box)
    shop.batch(event("raised", 1_000))
    with caplog.at_level(logging.DEBUG):
        worker.attempt()
    (state,) = Outbox(shop.path).sinks()
    assert state.last_error == "sink box: RuntimeError"
    assert SECRET not in caplog.text


class Stumbling(Box):
    """A sink that cannot put one kind of alert into words."""

    def deliver(self, outgoing: Sequence[Outgoing]) -> None:
        if any(each.transition.code == "TRN001" for each in outgoing):
            raise OverflowError("year is out of range")
        super().deliver(outgoing)


def test_what_a_sink_can_never_take_does_not_keep_the_others_back(shop: Shop) -> None:
    box = Stumbling()
    worker = worker_of(shop, box)
    shop.batch(event("raised", 1_000), event("raised", 1_000, "TRN001", offsets=(1, 2)))
    for _ in range(Patience().alert_after_failures):
        assert worker.attempt().failed
    assert box.taken == []
    assert not worker.attempt().failed
    assert box.taken == ["TRN004 firing"]
    (state,) = Outbox(shop.path).sinks()
    assert (state.backlog, state.delivered, state.dropped) == (0, 1, 1)


def test_a_sink_that_takes_nothing_at_all_loses_nothing(shop: Shop) -> None:
    box = Box()
    box.trouble = RuntimeError("broken")
    worker = worker_of(shop, box)
    shop.batch(event("raised", 1_000), event("raised", 1_000, partition=1))
    for _ in range(9):
        assert worker.attempt().failed
    box.trouble = None
    worker.attempt()
    assert box.taken == ["TRN004 firing", "TRN004 firing"]


def test_an_alert_left_over_from_before_a_restart_resolves(shop: Shop) -> None:
    box = Box()
    box.trouble = REFUSED
    worker = worker_of(shop, box)
    shop.batch(event("raised", 1_000))
    for _ in range(5):
        worker.attempt()
        shop.clock.at_ms += 20_000
    shop.reopen()
    box.trouble = None
    worker_of(shop, box).attempt()
    shop.clock.at_ms += 60_000
    shop.store.tick()
    assert told(shop)[-1] == "SRC005 resolved"


def test_a_forgetful_sink_is_told_again_what_fires(shop: Shop) -> None:
    sink = Forgetful()
    worker = worker_of(shop, sink)
    shop.batch(event("raised", 1_000), event("pending", 1_000, partition=1))
    worker.attempt()
    worker.attempt()
    shop.clock.at_ms += 60_000
    worker.attempt()
    assert sink.refreshed == [1, 1]


def test_a_full_spool_drops_the_oldest_and_says_so(shop: Shop) -> None:
    outbox = Outbox(shop.path)
    outbox.register({"dead": True})
    shop.batch(*(event("raised", 1_000, partition=number) for number in range(30)))
    outbox.failed("dead", 999_000, "sink dead: connection refused")
    house = Housekeeping(shop.store, Retention(spool_rows=10), around(shop), [])
    house.attempt()
    fields = AlertReader(shop.path).transitions()[-1][1].fields
    assert fields["code"] == "SRC005"
    assert "20 transitions were dropped for sink dead" in fields["observed"]
    assert "connection refused" in fields["observed"]
    house.close()


def test_what_a_full_spool_dropped_is_over_when_the_sink_is_well(shop: Shop) -> None:
    """An outage too short for an alert of its own, or a burst at a sink that is well."""
    box = Box()
    worker = worker_of(shop, box)
    worker.attempt()
    shop.batch(*(event("raised", 1_000, partition=number) for number in range(30)))
    house = Housekeeping(shop.store, Retention(spool_rows=10), around(shop), [worker])
    house.attempt()
    assert told(shop)[-1] == "SRC005 firing"
    worker.attempt()
    shop.clock.at_ms += 60_000
    house.attempt()
    assert told(shop)[-1] == "SRC005 resolved"
    house.close()


def test_a_sink_that_hangs_is_an_alert_although_it_never_failed(shop: Shop) -> None:
    box = Box()
    worker = worker_of(shop, box)
    house = Housekeeping(shop.store, Retention(), around(shop), [worker])
    worker.busy_since_s = shop.clock.monotonic_s()
    shop.clock.at_ms += 29_000
    house.attempt()
    assert told(shop) == []
    shop.clock.at_ms += 2_000
    house.attempt()
    assert told(shop) == ["SRC005 firing"]
    worker.attempt()
    shop.clock.at_ms += 60_000
    house.attempt()
    assert told(shop) == ["SRC005 firing", "SRC005 resolved"]
    house.close()


# --- threads ------------------------------------------------------------------------------------


def test_a_dead_and_a_hanging_sink_do_not_hold_up_the_others_nor_the_batch(shop: Shop) -> None:
    well, dead, hung = Box("well"), Box("dead"), Box("hung")
    dead.trouble = REFUSED
    hung.blocked = threading.Event()
    dispatcher = Dispatcher(shop.store, [Route(box, from_start=True) for box in (dead, hung, well)])
    dispatcher.start()
    try:
        for number in range(20):
            # A batch that waited for the hanging sink would wait for ever.
            shop.batch(event("raised", 1_000, partition=number))
            dispatcher.notify()
        ends = time.monotonic() + 60
        while len(well.taken) < 20 and time.monotonic() < ends:
            time.sleep(0.01)
        assert len(well.taken) == 20
        assert dispatcher.stop(timeout_s=1.0) is False
        assert (well.closed, dead.closed) == (True, True)
    finally:
        hung.blocked.set()
        for thread in dispatcher._threads:
            thread.join(5)


def test_a_dispatcher_drains_and_stops(shop: Shop) -> None:
    box = Box()
    dispatcher = Dispatcher(shop.store, [Route(box, from_start=True)])
    dispatcher.start()
    shop.batch(*(event("raised", 1_000, partition=number) for number in range(1_200)))
    assert dispatcher.drain(60)
    assert len(box.taken) == 1_200
    assert dispatcher.stop()
    assert box.closed


def test_draining_gives_up_in_time(shop: Shop) -> None:
    box = Box()
    box.trouble = REFUSED
    dispatcher = Dispatcher(shop.store, [Route(box, from_start=True)])
    dispatcher.start()
    shop.batch(event("raised", 1_000))
    assert not dispatcher.drain(0.2)
    assert dispatcher.stop()


def test_an_alert_about_a_sink_that_was_taken_out_resolves(shop: Shop) -> None:
    box = Box("old")
    box.trouble = REFUSED
    worker = worker_of(shop, box)
    shop.batch(event("raised", 1_000))
    for _ in range(5):
        worker.attempt()
        shop.clock.at_ms += 20_000
    assert told(shop)[-1] == "SRC005 firing"
    dispatcher = Dispatcher(shop.store, [Route(Box("new"))], around=around(shop))
    dispatcher.start()
    assert dispatcher.stop()
    shop.clock.at_ms += 60_000
    shop.store.tick()
    assert told(shop)[-1] == "SRC005 resolved"


def test_acknowledgements_of_another_process_reach_the_sinks(shop: Shop) -> None:
    box = Box()
    dispatcher = Dispatcher(shop.store, [Route(box, from_start=True)])
    dispatcher.start()
    (raised,) = shop.batch(event("raised", 1_000)).transitions
    AlertReader(shop.path).acknowledge(raised.fingerprint, who="ann", why="", now_ms=5)
    assert dispatcher.drain(5)
    assert dispatcher.stop()
    assert box.taken == ["TRN004 firing", "TRN004 acknowledged"]
