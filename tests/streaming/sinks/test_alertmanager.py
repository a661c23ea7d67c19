"""Alertmanager has the alerts that fire, and no others. Runs on the real program where there is one
(Debian: prometheus-alertmanager), and always on a strict stand-in."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.streaming.sinks.alertmanager import AlertmanagerSink
from tidestaff.streaming.sinks.sink import RefreshedSink, SinkError

from tests.streaming.alerts.lives import GROUPED, Diary, event
from tests.streaming.sinks.alertmanagers import Alertmanager, program, real, strict
from tests.streaming.sinks.parcels import ESCAPES, loss, parcels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(
    params=[
        pytest.param(
            "real",
            id="real-alertmanager",
            marks=pytest.mark.skipif(
                program() is None, reason="no alertmanager program: the strict stand-in serves"
            ),
        ),
        pytest.param("strict", id="strict-stand-in"),
    ]
)
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Alertmanager]:
    with real(tmp_path) if request.param == "real" else strict() as manager:
        yield manager


def labels(manager: Alertmanager) -> list[dict[str, str]]:
    return [alert["labels"] for alert in manager.alerts()]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def raised_now(**fields: Any) -> Any:
    return loss(**fields)._replace(at_ms=now_ms() - 60_000)


def test_a_firing_alert_arrives_with_labels_and_annotations(manager: Alertmanager) -> None:
    sink = AlertmanagerSink(
        manager.url, labels={"env": "prod", "code": "mine"}, runbook_base="https://r.example/"
    )
    told = parcels(raised_now())
    sink.deliver(told)
    (alert,) = manager.alerts()
    assert alert["labels"] == {
        "alertname": "committed-offsets-lost",
        "code": "TRN001",
        "severity": "critical",
        "class": "loss",
        "cluster": "c",
        "topic": "orders",
        "partition": "0",
        "broker": "2",
        "fingerprint": told[0].transition.fingerprint,
        "env": "prod",
    }
    found = alert["annotations"]
    assert found["summary"].startswith("TRN001 committed-offsets-lost")
    assert "expected: leader LEO >= 10" in found["description"]
    assert found["runbook_url"] == "https://r.example/TRN001.md"
    assert found["offsets"] == "[8,10)"


@pytest.mark.parametrize(
    ("at_ms", "starts"),
    [
        pytest.param(-(2**63), "1970-01-01T00:00:00.000+00:00", id="before-all-times"),
        pytest.param(2**62, "9999-12-31T23:59:59.000+00:00", id="after-all-times"),
    ],
)
def test_a_damaged_time_does_not_keep_an_alert_back(at_ms: int, starts: str) -> None:
    (told,) = parcels(loss())
    fields = {**told.transition.fields, "started_at_ms": at_ms}
    assert AlertmanagerSink("http://127.0.0.1:1").alert_of(fields)["startsAt"] == starts


def test_a_repeated_delivery_is_the_same_alert(manager: Alertmanager) -> None:
    sink = AlertmanagerSink(manager.url)
    told = parcels(raised_now())
    sink.deliver(told)
    AlertmanagerSink(manager.url).deliver(told)
    assert len(manager.alerts()) == 1


def test_two_losses_of_one_partition_are_two_alerts(manager: Alertmanager) -> None:
    told = parcels(raised_now(), raised_now(offsets=(20, 30)))
    AlertmanagerSink(manager.url).deliver(told)
    assert len(manager.alerts()) == 2


def test_a_resolved_alert_is_gone(manager: Alertmanager) -> None:
    at_ms = now_ms() - 200_000
    diary = Diary().batch(event("raised", at_ms, GROUPED, broker=3), clock=at_ms + 30_000)
    sink = AlertmanagerSink(manager.url)
    outgoing = parcels(event("raised", at_ms, GROUPED, broker=3), clock=at_ms + 30_000)
    sink.deliver(outgoing)
    (found,) = labels(manager)
    assert (found["cause"], found["broker"]) == ("broker 3", "3")
    diary.batch(event("cleared", at_ms + 40_000, GROUPED, broker=3), clock=now_ms())
    sink.deliver([outgoing[0]._replace(seq=2, transition=diary.told[-1])])
    assert labels(manager) == []


def test_of_several_steps_of_one_alert_the_last_counts(manager: Alertmanager) -> None:
    at_ms = now_ms() - 200_000
    told = parcels(event("raised", at_ms), event("cleared", at_ms + 1), clock=now_ms())
    assert len(told) == 2
    AlertmanagerSink(manager.url).deliver(told)
    assert labels(manager) == []


def test_firing_alerts_are_sent_again(manager: Alertmanager) -> None:
    sink = AlertmanagerSink(manager.url, refresh_every_s=30)
    assert isinstance(sink, RefreshedSink)
    diary = Diary().batch(raised_now())
    sink.refresh(list(diary.book.alerts.values()))
    sink.refresh(list(diary.book.alerts.values()))
    assert len(manager.alerts()) == 1
    sink.refresh([])


def test_outside_text_arrives_as_text(manager: Alertmanager) -> None:
    AlertmanagerSink(manager.url).deliver(parcels(raised_now(topic=ESCAPES, observed=ESCAPES)))
    (alert,) = manager.alerts()
    assert alert["labels"]["topic"] == ESCAPES
    assert "\x1b" not in alert["annotations"]["description"]


def test_an_alertmanager_that_is_not_there_is_a_failure_of_the_sink(free_port: int) -> None:
    with pytest.raises(SinkError, match="not reached"):
        AlertmanagerSink(f"http://127.0.0.1:{free_port}").deliver(parcels(loss()))
