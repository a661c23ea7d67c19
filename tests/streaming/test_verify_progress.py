"""The bar of `tidestaff verify` moves while ranges are read, and Ctrl-C keeps what was read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pytest
from tidestaff.consistency.batches import Extent, RangeDigest
from tidestaff.consistency.comparison_verdict import Outcome
from tidestaff.consistency.model import TopicPartition
from tidestaff.streaming.verify.copies import PartitionCopies, Traffic, bytes_a_round
from tidestaff.streaming.verify.progress import line
from tidestaff.streaming.verify.running import Progress, Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tidestaff.streaming.verify.copies import Asked

SIZE: Final = 1_000
PARTITION: Final = TopicPartition("t", 0)
WITHIN_S: Final = 5.0
MB: Final = 1_000_000
MANY: Final = 50
OFFSETS: Final = 10_000


class SlowSource:
    """Two copies of ten offsets, read in one question; in its middle `half_way` is called."""

    kind, live, at_once, bytes_at_once, marks_at_once = "slow", False, 1, SIZE, 64
    bytes_a_round = float("inf")
    traffic = Traffic(0, 0)

    def __init__(self, half_way: Callable[[], None]) -> None:
        self._half_way, self.bytes_read = half_way, 0

    def partitions(self, wanted: Callable[[str], bool]) -> list[PartitionCopies]:
        copies = PartitionCopies(PARTITION, [Extent(b, 0, 10, 10, (), 0) for b in (1, 2)])
        copies.bytes = 2 * SIZE
        return [copies] if wanted("t") else []

    def again(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, object]:
        raise AssertionError(f"nothing differs of {partitions}")

    def digests(
        self, broker: int, asked: Asked, *, check: bool
    ) -> Mapping[TopicPartition, RangeDigest]:
        assert not check
        if broker == 1:
            self.bytes_read = SIZE
            self._half_way()
        return {partition: RangeDigest(offsets) for partition, offsets in asked}

    def marks(self, broker: int, asked: Asked) -> dict[TopicPartition, object]:
        raise AssertionError(f"digests are equal of {broker}: {asked}")

    def why_silent(self, broker: int, partition: TopicPartition) -> str:
        raise AssertionError(f"{broker} answers of {partition}")

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidestaff.streaming.verify.threads._EVERY_S", 0.01)


def test_how_far_it_has_come_is_told_in_the_middle_of_a_question() -> None:
    told = threading.Event()
    shares: list[float] = []

    def tell(progress: Progress) -> None:
        shares.append(progress.share)
        if progress.share == 0.5:
            told.set()

    source = SlowSource(lambda: told.wait(WITHIN_S) and None)
    Verification(source, stop=threading.Event(), tell=tell).run(source.partitions(lambda _: True))
    assert told.is_set(), shares
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_what_was_read_to_its_end_when_ctrl_c_came_is_told() -> None:
    stop = threading.Event()
    source = SlowSource(stop.set)
    verification = Verification(source, stop=stop)
    (found,) = verification.run(source.partitions(lambda _: True))
    assert found.verdict.outcome is Outcome.EQUAL
    assert (verification.interrupted, verification.unfinished) == (False, {})


def test_that_ctrl_c_was_heard_is_told_with_what_the_next_one_does() -> None:
    told = line(Progress(3, 12, 0.25, 50e6, 10.0, stopping=True))
    assert told.endswith("25%  ends after this; Ctrl-C again: at once")
    assert len(told) < 80


class PacedSource(SlowSource):
    """Many partitions of two copies, a megabyte each."""

    at_once, bytes_at_once = 64, 1 << 26
    bytes_a_round = bytes_a_round(2 * MB)

    def partitions(self, wanted: Callable[[str], bool]) -> list[PartitionCopies]:
        found = []
        for number in range(MANY):
            copies = PartitionCopies(
                TopicPartition("t", number), [Extent(b, 0, 10, 10, (), 0) for b in (1, 2)]
            )
            copies.bytes = 2 * MB
            found.append(copies)
        return found


@pytest.mark.parametrize("size", [1, 1_000], ids=["many-small", "large"])
def test_ctrl_c_waits_for_some_seconds_of_reading_and_not_for_everything(size: int) -> None:
    stop = threading.Event()
    source = PacedSource(stop.set)
    copies = source.partitions(lambda _: True)
    for each in copies:
        each.bytes *= size
        each.extents = [
            e._replace(high_watermark=OFFSETS, log_end_offset=OFFSETS) for e in each.extents
        ]
    verification = Verification(source, stop=stop)
    results = verification.run(copies)
    read = len(results) * size + sum(
        reached.offset * size / OFFSETS for reached in verification.unfinished.values()
    )
    assert verification.interrupted
    assert 0 < read * 2 * MB <= source.bytes_a_round
