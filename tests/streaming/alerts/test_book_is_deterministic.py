"""The same events give the same transitions, byte for byte, whatever batches they come in."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.streaming.alerts.alert import alert_of, text_of
from tidestaff.streaming.alerts.book import Book, advance
from tidestaff.streaming.alerts.event import Event, event_of
from tidestaff.streaming.alerts.policy import AlertPolicy

from tests.streaming.alerts.lives import event

if TYPE_CHECKING:
    from collections.abc import Iterator

# ELE012, ISR008 and FCT001 are grouped, TRN001 and ELE009 latched, the others plain.
CODES = ("ELE012", "ISR008", "FCT001", "TRN001", "ELE009", "TRN004", "ELE001")
LATENESS_MS = 10_000
POLICY = AlertPolicy(
    lateness_ms=LATENESS_MS,
    group_wait_ms=7_000,
    hold_down_by_code_ms=dict.fromkeys(CODES, 15_000),
)
END_MS = 2_000_000


class Step(NamedTuple):
    """How one partition's next event is delayed and what it is."""

    after_ms: int
    kind: str
    code: str
    broker: int | None
    offset: int


steps = st.builds(
    Step,
    after_ms=st.sampled_from([0, 1, 1_000, 5_000, 7_000, 15_000, 22_000, 60_000]),
    kind=st.sampled_from(["pending", "raised", "raised", "changed", "cleared", "cleared"]),
    code=st.sampled_from(CODES),
    broker=st.sampled_from([None, 1, 2]),
    offset=st.integers(0, 2),
)
histories = st.lists(st.lists(steps, max_size=12), min_size=1, max_size=4)


def events_of(partition: int, story: list[Step]) -> list[Event]:
    at_ms, found = 1_000, []
    for step in story:
        at_ms += step.after_ms
        found.append(
            event(
                step.kind,
                at_ms,
                step.code,
                cluster="c" if partition < 3 else "d",
                topic="t" if partition % 2 else "u",
                partition=partition,
                broker=step.broker,
                offsets=(step.offset, 9) if step.code == "TRN001" else None,
                leader_epoch=step.offset,
                observed=f"{partition} at {at_ms}",
                evidence={"at": at_ms} if step.kind in ("raised", "changed") else None,
            )
        )
    return found


class Batch(NamedTuple):
    """Events, and the clocks at the end of the batch."""

    events: list[Event]
    clocks: dict[str, int]


LAST = Batch([], {"c": END_MS, "d": END_MS})


def batches(draw: st.DrawFn, stories: list[list[Event]]) -> Iterator[Batch]:
    """A random interleaving in random batches. A clock runs ahead of an event that is still to come
    by less than the lateness bound."""
    left = [list(story) for story in stories]
    while any(left):
        taken: list[Event] = []
        for _ in range(draw(st.integers(0, 6))):
            ready = [story for story in left if story]
            if ready:
                taken.append(draw(st.sampled_from(ready)).pop(0))
        clocks = {}
        for cluster in ("c", "d"):
            todo = [e.at_ms for story in left for e in story if e.cluster == cluster]
            newest = min(todo, default=END_MS) + LATENESS_MS - 1
            if draw(st.booleans()):
                clocks[cluster] = newest - draw(st.sampled_from([0, 1, 5_000, 20_000]))
        yield Batch(taken, clocks)
    yield LAST


def told(run: Iterator[Batch], *, reopened: bool) -> list[str]:
    book, found = Book(), []
    for batch in run:
        done = advance(book, batch.events, batch.clocks, POLICY)
        book = through_text(done.book) if reopened else done.book
        found += done.transitions
    assert not book.waiting
    return [each.text for each in sorted(found, key=lambda each: each.order)]


def through_text(book: Book) -> Book:
    """As after a restart: all of it was written down and read again."""
    return Book(
        {key: alert_of(text_of(alert)) for key, alert in book.alerts.items()},
        {key: event_of(waiting.text()) for key, waiting in book.waiting.items()},
        dict(book.clocks),
        book.next_waiting,
    )


@given(st.data(), histories)
@settings(max_examples=120, deadline=None)
def test_batches_and_interleaving_change_nothing(
    data: st.DataObject, history: list[list[Step]]
) -> None:
    stories = [events_of(number, story) for number, story in enumerate(history)]
    everything = sorted((e for story in stories for e in story), key=lambda e: e.at_ms)
    one_by_one = [Batch([each], {each.cluster: each.at_ms}) for each in everything]
    expected = told(iter([*one_by_one, LAST]), reopened=False)
    for reopened in (False, True):
        run = data.draw(st.composite(lambda draw: list(batches(draw, stories)))())
        assert told(iter(run), reopened=reopened) == expected


@given(st.data(), histories)
@settings(max_examples=60, deadline=None)
def test_a_life_is_in_order(data: st.DataObject, history: list[list[Step]]) -> None:
    stories = [events_of(number, story) for number, story in enumerate(history)]
    run = data.draw(st.composite(lambda draw: list(batches(draw, stories)))())
    book, found = Book(), []
    for batch in run:
        done = advance(book, batch.events, batch.clocks, POLICY)
        book = done.book
        found += done.transitions
    found.sort(key=lambda each: (each.fingerprint, each.number))
    may_follow = {
        "pending": {"firing", "resolved"},
        "firing": {"resolved"},
        "resolved": {"pending", "firing"},
    }
    for _, each in groupby(found, key=lambda each: each.fingerprint):
        life = list(each)
        assert [one.number for one in life] == list(range(1, len(life) + 1))
        assert [one.at_ms for one in life] == sorted(one.at_ms for one in life)
        before = "resolved"
        for one in life:
            assert one.status.value in may_follow[before]
            before = one.status.value
