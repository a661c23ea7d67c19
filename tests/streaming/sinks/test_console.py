"""Alerts on a terminal are readable, coloured only there, and harmless."""

from __future__ import annotations

import io

import pytest
from tidestaff.streaming.sinks.console import ConsoleSink
from tidestaff.streaming.sinks.sink import FOR_PEOPLE, SinkError, is_for
from tidestaff.streaming.sinks.words import harmless, how_long, when

from tests.streaming.alerts.lives import event
from tests.streaming.sinks.parcels import ESCAPES, life_of_a_group, loss, parcels


def shown(outgoing: list, *, colour: bool = False) -> str:  # type: ignore[type-arg]
    stream = io.StringIO()
    ConsoleSink(stream=stream, colour=colour).deliver(outgoing)
    return stream.getvalue()


def test_an_alert_says_what_when_where_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    told = parcels(loss(since_ms=900))
    assert shown(told) == (
        "1970-01-01 00:00:01Z  FIRING        TRN001 committed-offsets-lost (critical, loss)"
        f"  c orders-0  id {told[0].transition.fingerprint[:8]}\n"
        "  expected  leader LEO >= 10\n"
        "  observed  leader 2 LEO 8\n"
        "  because   offsets [8,10) were committed and are gone\n"
        "  where     broker 2, offsets [8,10)\n"
        "  since     1970-01-01 00:00:00Z\n"
        "  next      Leave brokers that are down DOWN, and copy the partition directory aside on"
        " every broker\n"
        "            that may still have the range.\n"
        "  runbook   docs/runbooks/TRN001.md\n"
    )


def test_a_group_names_its_cause_its_count_and_its_first_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    firing, resolved = shown(life_of_a_group()).split("\n1970")
    assert "ELE012 partition-offline (critical, availability)  c broker 3 25 partitions" in firing
    assert "t-0, t-1, t-2" in firing
    assert "and 5 more" in firing
    assert resolved.count("\n") == 1
    assert "RESOLVED" in resolved
    assert "after 1.3 min: the condition is over" in resolved


def test_colour_is_for_terminals_and_no_color_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = parcels(loss())
    assert "\x1b[31m" in shown(told, colour=True)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    for no_color, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        assert ConsoleSink()._paint.colour is coloured


@pytest.mark.parametrize("field", ["topic", "observed", "because", "expected", "cluster"])
def test_outside_text_cannot_touch_the_terminal(field: str) -> None:
    text = shown(parcels(loss(**{field: ESCAPES})))
    assert not any(ord(char) < 32 and char != "\n" for char in text)
    assert "\u202e" not in text
    assert "\\x1b" in text


def test_a_member_of_a_group_cannot_either() -> None:
    raised = event("raised", 1_000, "ELE012", topic=ESCAPES)
    assert "\x1b" not in shown(parcels(raised, clock=50_000))


def test_a_closed_stream_is_a_failure_of_the_sink() -> None:
    stream = io.StringIO()
    stream.close()
    with pytest.raises(SinkError, match="takes nothing"):
        ConsoleSink(stream=stream).deliver(parcels(loss()))


def test_people_do_not_hear_of_suspicions_that_came_to_nothing() -> None:
    told = parcels(
        event("pending", 1, partition=1),
        event("cleared", 2, partition=1),
        event("raised", 3),
        event("cleared", 4),
        clock=100_000,
    )
    wanted = [each.transition.status.value for each in told if is_for(FOR_PEOPLE, each.transition)]
    assert wanted == ["firing", "resolved"]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("orders-0", "orders-0"),
        ("Bestellung-\u00e4", "Bestellung-\u00e4"),
        ("a\x1b[31m", "a\\x1b[31m"),
        ("a\nb", "a\\nb"),
        ("\u202eabc", "\\u202eabc"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
    ],
)
def test_harmless(text: str, escaped: str) -> None:
    assert harmless(text) == escaped


def test_times_that_no_calendar_has_are_shown_as_numbers() -> None:
    assert when(10**18) == "1000000000000000000 ms"
    assert when(None) == "unknown"


@pytest.mark.parametrize(
    ("ms", "words"),
    [(0, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (5_400_000, "1.5 h"), (10**9, "11.6 d")],
)
def test_durations(ms: int, words: str) -> None:
    assert how_long(ms) == words
