"""Publishing: order by key, rest while the transport is away, and what is said afterwards."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tidestaff.connectors.errors import TopicMissingError, TransportAwayError
from tidestaff.connectors.linking import Linker
from tidestaff.connectors.publishing import Publisher, Record, record_of
from tidestaff.connectors.wire import HEALTH, from_bytes, observation_of
from tidestaff.consistency.model import HealthObservation, ProblemKind

from tests.connectors.fake_brokers import FakeCluster
from tests.connectors.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.connectors.wire import Row


@dataclass
class Topic:
    """Implements Transport: keeps what it is given, unless it is away."""

    kept: list[Record] = field(default_factory=list)
    away: bool = False
    largest: int = 1_000_000
    tries: int = 0
    closed: bool = False

    def publish(self, records: Sequence[Record]) -> int:
        self.tries += 1
        if self.away:
            raise TransportAwayError("rows", "here:1", "timed out")
        fitting = [each for each in records if len(each.value) <= self.largest]
        self.kept += fitting
        return len(records) - len(fitting)

    def close(self) -> None:
        self.closed = True

    def rows(self) -> list[Row]:
        return [from_bytes(each.value) for each in self.kept]

    def health(self) -> list[HealthObservation]:
        found = [observation_of(row) for row in self.rows() if row.kind == HEALTH]
        return [each for each in found if isinstance(each, HealthObservation)]


class Publishing:
    """Rounds of a small cluster, a publisher, and a clock."""

    def __init__(self) -> None:
        self.topic, self.now_ms = Topic(), 1_000_000
        self._watched, self._linker = Watched(FakeCluster.with_topic(partitions=2)), Linker()
        self.publisher = Publisher(
            self.topic,
            "west",
            now_ms=lambda: self.now_ms,
            chance=random.Random(1),  # noqa: S311 - the same each time
        )

    def round(self) -> list[Row]:
        self.now_ms += 5_000
        return self._linker.link(self._watched.round())


def test_every_row_is_published_as_it_is_under_the_key_of_its_subject() -> None:
    publishing = Publishing()
    rows = [*publishing.round(), *publishing.round()]
    assert publishing.publisher.publish(rows)
    assert publishing.topic.rows() == rows
    assert publishing.publisher.published == len(rows)
    keys = [each.key for each in publishing.topic.kept]
    assert set(keys) == {b"west/", b"west/orders-0", b"west/orders-1"}
    for key, row in zip(keys, rows, strict=True):
        assert key == record_of(row).key


def test_while_the_transport_is_away_it_is_tried_less_and_less_often() -> None:
    publishing = Publishing()
    publishing.topic.away = True
    rows = publishing.round()
    for _ in range(120):
        assert not publishing.publisher.publish(rows)
        publishing.now_ms += 1_000
    # Twice as long each time, up to half a minute.
    assert 5 <= publishing.topic.tries <= 10
    assert publishing.publisher.problem == "topic rows on here:1 takes no records (timed out)"


def test_that_it_was_away_is_said_afterwards_and_then_that_it_is_over() -> None:
    publishing = Publishing()
    publishing.topic.away = True
    rows = publishing.round()
    began_ms = publishing.now_ms
    assert not publishing.publisher.publish(rows)
    publishing.publisher.lose(70)
    publishing.topic.away = False
    publishing.now_ms += 60_000
    assert publishing.publisher.publish(rows)
    assert publishing.publisher.publish(publishing.round())
    assert publishing.publisher.publish(publishing.round())
    told, over = publishing.topic.health()
    assert (told.problem, told.source, told.place) == (ProblemKind.SILENT, "collect", "transport")
    assert told.since_ms == began_ms
    assert told.reason == (
        "nothing could be published for 60 s: topic rows on here:1 takes no records (timed out); "
        "70 rows were given up"
    )
    assert told.remedy
    assert over.problem is ProblemKind.OK
    first, second = [row for row in publishing.topic.rows() if row.kind == HEALTH]
    assert second.previous_at_ms == first.observed_at_ms
    assert publishing.publisher.problem is None


def test_a_round_that_failed_comes_again_before_the_next_one() -> None:
    publishing = Publishing()
    first, second = publishing.round(), publishing.round()
    publishing.topic.away = True
    assert not publishing.publisher.publish(first)
    publishing.topic.away = False
    publishing.now_ms += 60_000
    assert publishing.publisher.publish(first)
    assert publishing.publisher.publish(second)
    found = [row for row in publishing.topic.rows() if row.subject == "orders-0"]
    assert [row.observed_at_ms for row in found] == sorted(row.observed_at_ms for row in found)
    assert len(found) == 2


def test_rows_that_are_too_large_are_left_out_and_told() -> None:
    publishing = Publishing()
    rows = publishing.round()
    publishing.topic.largest = 40
    assert publishing.publisher.publish(rows)
    publishing.topic.largest = 1_000_000
    assert publishing.publisher.publish(publishing.round())
    (told,) = publishing.topic.health()
    assert told.reason == f"{len(rows)} rows were given up"


def test_a_missing_topic_is_told_with_the_command_that_makes_it() -> None:
    error = TopicMissingError("rows", "here:1")
    assert not error.retriable
    assert "kafka-topics --bootstrap-server here:1 --create --topic rows" in error.remedy


def test_closing_closes_the_transport() -> None:
    publishing = Publishing()
    publishing.publisher.close()
    assert publishing.topic.closed


@pytest.mark.parametrize("times", [1, 3])
def test_what_is_published_again_is_the_same(times: int) -> None:
    publishing = Publishing()
    rows = publishing.round()
    for _ in range(times):
        assert publishing.publisher.publish(rows)
    assert set(publishing.topic.kept) == {record_of(row) for row in rows}
