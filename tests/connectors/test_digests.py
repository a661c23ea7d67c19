"""Digests of ranges from segments on disk and from fetched bytes: the same, in every format."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
from tidestaff.connectors.broker_answers import (
    EARLIEST,
    EARLIEST_LOCAL,
    NO_ERROR,
    OFFSET_OUT_OF_RANGE,
    ListedOffset,
)
from tidestaff.connectors.digest_files import RangeReader
from tidestaff.connectors.digest_wire import FetchedRecords, WireRanges
from tidestaff.connectors.errors import UnsupportedRequestError
from tidestaff.consistency.batches import Extent
from tidestaff.consistency.comparison import Comparison
from tidestaff.consistency.comparison_verdict import Outcome
from tidestaff.consistency.model import OffsetRange, TopicPartition

from tests.connectors.segment_bytes import GZIP, old, v2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def write_segments(
    folder: Path, *segments: Sequence[bytes], starts: Sequence[int] | None = None
) -> Path:
    """Each named after its first batch's offset, which a compressed set does not tell."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, batches in enumerate(segments):
        first = int.from_bytes(batches[0][:8]) if starts is None else starts[number]
        (folder / f"{first:020d}.log").write_bytes(b"".join(batches))
    return folder


def mixed(count: int = 40, *, big: bool = False) -> list[bytes]:
    """Batches of one to three records; with `big` payloads that are worth skipping."""
    found, offset = [], 0
    for number in range(count):
        records = number % 3 + 1
        value = b"x" * (20_000 if big and number % 4 else 10)
        found.append(v2(offset, records, epoch=number // 10, value=value))
        offset += records
    return found


def end_of(batches: Sequence[bytes]) -> int:
    return int.from_bytes(batches[-1][:8]) + int.from_bytes(batches[-1][23:27]) + 1


@pytest.mark.parametrize("big", [False, True], ids=["small", "large-and-small"])
def test_a_digest_does_not_depend_on_where_segments_are_cut(tmp_path: Path, big: bool) -> None:
    batches = mixed(big=big)
    whole = RangeReader(str(write_segments(tmp_path / "a", batches)))
    cut = RangeReader(str(write_segments(tmp_path / "b", batches[:7], batches[7:30], batches[30:])))
    end = end_of(batches)
    chance = random.Random(1)  # noqa: S311 - tests
    ranges = [OffsetRange(0, end)]
    ranges += [
        OffsetRange(start, chance.randint(start + 1, end))
        for start in (chance.randrange(end) for _ in range(40))
    ]
    for offsets in ranges:
        one, other = whole.digest(offsets), cut.digest(offsets)
        assert one == other
        marks = cut.marks(offsets)
        assert one.batches == len(marks)
        assert one.records == sum(mark.records or 0 for mark in marks)
        assert all(offsets.start <= mark.last_offset < offsets.end for mark in marks)
    assert whole.digest(ranges[0]).batches == len(batches)


@pytest.mark.parametrize("count", [20, 300], ids=["folded-one-by-one", "folded-as-a-table"])
def test_headers_of_large_batches_are_folded_as_each_batch_alone_would_be(
    tmp_path: Path, count: int
) -> None:
    batches = [v2(3 * n, 3, epoch=n // 50, value=b"x" * 3_000) for n in range(count)]
    reader = RangeReader(str(write_segments(tmp_path, batches)))
    wire = WireRanges(Broker({T0: batches}))
    chance = random.Random(2)  # noqa: S311 - tests
    ends = [chance.randint(1, 3 * count) for _ in range(10)]
    for offsets in [OffsetRange(0, 3 * count), *(OffsetRange(end // 3, end) for end in ends)]:
        assert reader.digest(offsets) == wire.digests(1, [(T0, offsets)])[T0]
        assert reader.digest(offsets).batches == len(reader.marks(offsets))


@pytest.mark.parametrize("count", [20, 300], ids=["folded-one-by-one", "folded-as-a-table"])
@pytest.mark.parametrize("fault", [8, 16, 23, 57], ids=["size", "format", "delta", "records"])
def test_a_large_batch_that_is_none_is_named_with_its_place(
    tmp_path: Path, count: int, fault: int
) -> None:
    batches = [v2(3 * n, 3, value=b"x" * 3_000) for n in range(count)]
    broken = count * 3 // 4
    spoilt = bytearray(batches[broken])
    spoilt[fault] = 0xFF
    batches[broken] = bytes(spoilt)
    found = RangeReader(str(write_segments(tmp_path, batches))).digest(OffsetRange(0, 3 * count))
    assert found.unreadable_at == 3 * broken
    assert found.batches == broken
    assert str(len(b"".join(batches[:broken]))) in found.reason


def test_an_index_leads_to_the_range_and_a_wrong_one_does_not_mislead(tmp_path: Path) -> None:
    batches = mixed(big=True)
    folder = write_segments(tmp_path, batches)
    offsets = OffsetRange(30, 50)
    plain = RangeReader(str(folder)).digest(offsets)
    positions, at = [], 0
    for batch in batches:
        positions.append((int.from_bytes(batch[:8]), at))
        at += len(batch)
    index = folder / f"{0:020d}.index"
    index.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in positions[1:]) + bytes(80))
    assert RangeReader(str(folder)).digest(offsets) == plain
    index.write_bytes(struct.pack(">ii", 20, positions[9][1] + 5))
    assert RangeReader(str(folder)).digest(offsets) == plain


def index_of(positions: Sequence[int]) -> list[tuple[int, int]]:
    """An entry for every batch of three records but the first, as brokers write it."""
    return [(3 * number + 2, at) for number, at in enumerate(positions)][1:]


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda entries: entries, id="every-batch"),
        pytest.param(lambda entries: [*entries, *[(0, 0)] * 5_000], id="zeros-behind-it"),
        pytest.param(lambda entries: entries[::3], id="every-third-batch"),
        pytest.param(lambda entries: entries[:40], id="ends-early"),
        pytest.param(lambda entries: entries[:40] + entries[90:], id="a-gap"),
        pytest.param(lambda entries: [(o, at + 7) for o, at in entries], id="into-payloads"),
        pytest.param(
            lambda entries: entries[:60] + [(o, at + 7) for o, at in entries[60:]],
            id="into-payloads-from-some-byte-on",
        ),
        pytest.param(lambda entries: [(o + 400, at) for o, at in entries], id="other-offsets"),
        pytest.param(
            lambda entries: [(o, at + 1_000_000) for o, at in entries], id="of-a-longer-segment"
        ),
        pytest.param(lambda entries: entries[::-1], id="backwards"),
    ],
)
@pytest.mark.parametrize("small", [False, True], ids=["large", "small-ones-between"])
def test_whatever_an_index_says_a_digest_is_that_of_all_batches(
    tmp_path: Path,
    written: Callable[[list[tuple[int, int]]], list[tuple[int, int]]],
    small: bool,
) -> None:
    batches = [
        v2(3 * n, 3, epoch=n // 50, value=b"x" * (10 if small and n % 37 > 33 else 3_000 + n))
        for n in range(300)
    ]
    folder = write_segments(tmp_path, batches)
    chance = random.Random(3)  # noqa: S311 - tests
    ends = [chance.randint(2, 900) for _ in range(10)]
    asked = [OffsetRange(0, 900), *(OffsetRange(end // 4, end) for end in ends)]
    plain = [RangeReader(str(folder)).digest(offsets) for offsets in asked]
    assert plain[0].batches == 300
    starts = [len(b"".join(batches[:number])) for number in range(300)]
    entries = written(index_of(starts))
    (folder / f"{0:020d}.index").write_bytes(
        b"".join(struct.pack(">ii", *entry) for entry in entries)
    )
    assert [RangeReader(str(folder)).digest(offsets) for offsets in asked] == plain


def test_a_batch_within_a_payload_is_none_though_an_index_leads_to_it(tmp_path: Path) -> None:
    inner = v2(75, 3, value=b"y" * 3_000)
    batches = [v2(3 * n, 3, value=b"x" * 4_000) for n in range(100)]
    batches[24] = v2(72, 3, value=b"x" * 9_000 + inner + b"x" * 4_000)
    folder = write_segments(tmp_path, batches)
    plain = RangeReader(str(folder)).digest(OffsetRange(0, 300))
    starts = [len(b"".join(batches[:number])) for number in range(100)]
    entries = index_of(starts)
    entries[24] = (77, starts[24] + batches[24].index(inner))
    (folder / f"{0:020d}.index").write_bytes(
        b"".join(struct.pack(">ii", *entry) for entry in entries)
    )
    assert RangeReader(str(folder)).digest(OffsetRange(0, 300)) == plain
    assert plain.batches == 100


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda o: old(0, o, 3), id="v0"),
        pytest.param(lambda o: old(1, o, 3), id="v1"),
        pytest.param(lambda o: old(1, o, 3, compression=GZIP), id="v1-compressed-set"),
        pytest.param(lambda o: v2(o, 3, compression=GZIP), id="v2-compressed"),
        pytest.param(lambda o: v2(o, 3, transactional=True), id="v2-transactional"),
    ],
)
def test_every_message_format_is_compared(tmp_path: Path, make: object) -> None:
    assert callable(make)
    batches = [make(offset) for offset in range(0, 30, 3)]
    one = RangeReader(str(write_segments(tmp_path / "a", batches, starts=[0])))
    cut = write_segments(tmp_path / "b", batches[:4], batches[4:], starts=[0, 12])
    same = RangeReader(str(cut))
    offsets = OffsetRange(0, 30)
    assert one.digest(offsets) == same.digest(offsets)
    assert one.digest(offsets, check=True).invalid_at is None
    changed = [*batches[:5], make(15)[:-1] + b"!", *batches[6:]]
    other = RangeReader(str(write_segments(tmp_path / "c", changed, starts=[0])))
    # The payload alone changed: only reading it shows it.
    assert other.digest(offsets, check=True).invalid_at in range(15, 18)


def test_a_range_below_the_first_segment_says_where_the_log_begins(tmp_path: Path) -> None:
    reader = RangeReader(str(write_segments(tmp_path, [v2(100), v2(101)])))
    assert reader.digest(OffsetRange(90, 102)).starts_at == 100
    assert reader.digest(OffsetRange(100, 102)).batches == 2


def test_what_is_no_batch_is_named_with_its_place(tmp_path: Path) -> None:
    batches = mixed(10)
    folder = write_segments(tmp_path, batches)
    log = folder / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    at = len(b"".join(batches[:4]))
    data[at + 16] = 77  # the message format
    log.write_bytes(data)
    found = RangeReader(str(folder)).digest(OffsetRange(0, end_of(batches)))
    assert found.unreadable_at == int.from_bytes(batches[4][:8])
    assert str(at) in found.reason


def test_where_segments_overlap_each_offset_is_read_from_the_last_that_begins_below_it(
    tmp_path: Path,
) -> None:
    """As a broker reads it."""
    below, above = [v2(n) for n in range(10)], [v2(n, value=b"other") for n in range(5, 10)]
    reader = RangeReader(str(write_segments(tmp_path, below, above, [v2(10)])))
    assert reader.digest(OffsetRange(0, 11)).unreadable_at == 5
    assert reader.digest(OffsetRange(0, 5)).unreadable_at is None
    rest = reader.digest(OffsetRange(5, 11))
    assert (rest.unreadable_at, rest.batches) == (None, 6)
    assert (
        rest.digest
        != RangeReader(str(write_segments(tmp_path / "alone", below, [v2(10)])))
        .digest(OffsetRange(5, 11))
        .digest
    )


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda data: data[:-3], id="part-of-a-batch"),
        pytest.param(lambda data: data[:-20] + bytes(20), id="rotten-and-whole"),
        pytest.param(lambda data: data[: len(data) // 5 * 4] + bytes(500), id="zeros"),
    ],
)
def test_an_older_segment_that_breaks_off_lacks_what_comes_before_the_next(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    folder = write_segments(tmp_path, [v2(n) for n in range(5)], [v2(n) for n in range(5, 10)])
    log = folder / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(spoil(whole))
    found = RangeReader(str(folder)).digest(OffsetRange(0, 10))
    broken = len(log.read_bytes()) != len(whole)
    assert found.unreadable_at == (4 if broken else None)
    log.write_bytes(whole + bytes(500))  # made larger than it was filled: nothing is missing
    found = RangeReader(str(folder)).digest(OffsetRange(0, 10))
    assert (found.unreadable_at, found.batches) == (None, 10)


def test_a_newest_segment_may_break_off_above_the_range_and_not_within(tmp_path: Path) -> None:
    folder = write_segments(tmp_path, [*(v2(n) for n in range(5)), v2(5)[:-3]])
    reader = RangeReader(str(folder))
    assert reader.digest(OffsetRange(0, 5)).unreadable_at is None
    assert reader.digest(OffsetRange(0, 6)).unreadable_at == 5


def test_a_directory_that_is_gone_is_unreadable_and_no_crash(tmp_path: Path) -> None:
    found = RangeReader(str(tmp_path / "no")).digest(OffsetRange(0, 5))
    assert found.unreadable_at == 0


def test_payloads_are_paced_and_headers_are_not(tmp_path: Path) -> None:
    asked: list[int] = []
    batches = mixed(5)
    reader = RangeReader(str(write_segments(tmp_path, batches)), asked.append)
    reader.digest(OffsetRange(0, end_of(batches)))
    assert asked == []
    reader.digest(OffsetRange(0, end_of(batches)), check=True)
    assert sum(asked) == len(b"".join(batches))


# -- over the wire


class Broker:
    """Hands out batches as a broker does: from the batch that holds the position on, as many bytes
    as are allowed, the last batch perhaps cut; the first partition's first batch always whole.

    Below `log_start` and above the log end an offset is out of range, and that is all it says.
    Where `tells_local_start`, its release knows tiered storage, and `log_start` is the local one.
    """

    def __init__(
        self,
        logs: Mapping[TopicPartition, Sequence[bytes]],
        log_start: int = 0,
        *,
        in_one_buffer: bool = False,
        tells_local_start: bool = True,
    ) -> None:
        self._logs, self._log_start, self._in_one_buffer = logs, log_start, in_one_buffer
        self._tells_local_start = tells_local_start
        self._given: list[bytearray] = []
        self.requests = 0
        self.refuses: dict[TopicPartition, int] = {}

    def records(
        self,
        broker: int,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
        *,
        whole_bytes: int,
        partition_bytes: int,
    ) -> Mapping[TopicPartition, FetchedRecords]:
        del broker, topic_ids
        self.requests += 1
        for old_answer in self._given:
            old_answer[:] = b"\xff" * len(old_answer)
        found, left = {}, whole_bytes
        for partition, position in positions.items():
            if partition in self.refuses:
                found[partition] = FetchedRecords(self.refuses[partition])
                continue
            if not self._log_start <= position <= end_of(self._logs[partition]):
                found[partition] = FetchedRecords(OFFSET_OUT_OF_RANGE)
                continue
            after = [b for b in self._logs[partition] if end_of([b]) > position]
            data = b"".join(after)[: min(partition_bytes, left)]
            if after and len(data) < len(after[0]):
                data = after[0] if left == whole_bytes else b""
            left -= len(data)
            self._given.append(bytearray(data))
            view = memoryview(self._given[-1])
            found[partition] = FetchedRecords(NO_ERROR, view if self._in_one_buffer else data)
        return found

    def list_offsets(
        self, broker: int, partitions: Sequence[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, ListedOffset]:
        del broker
        self.requests += 1
        if timestamp == EARLIEST_LOCAL and not self._tells_local_start:
            raise UnsupportedRequestError("ListOffsets")
        remote = timestamp == EARLIEST and self._tells_local_start
        start = 0 if remote else self._log_start
        return {partition: ListedOffset(NO_ERROR, start) for partition in partitions}


@pytest.mark.parametrize("in_one_buffer", [False, True], ids=["bytes", "views-overwritten"])
@pytest.mark.parametrize("at_once", [300, 5_000, 1 << 20])
def test_over_the_wire_digests_are_those_of_the_disk(
    tmp_path: Path, at_once: int, in_one_buffer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidestaff.connectors.digest_wire.PARTITION_BYTES", at_once)
    batches = mixed(big=True)
    disk = RangeReader(str(write_segments(tmp_path, batches)))
    wire = WireRanges(Broker({T0: batches, T1: batches[:5]}, in_one_buffer=in_one_buffer))
    end = end_of(batches)
    for offsets in (OffsetRange(0, end), OffsetRange(3, 40), OffsetRange(17, 18)):
        asked = [(T0, offsets), (T1, OffsetRange(0, end_of(batches[:5])))]
        found = wire.digests(1, asked)
        assert found[T0] == disk.digest(offsets)
        assert found[T1] == disk.digest(OffsetRange(0, end_of(batches[:5])))
        assert wire.marks(1, asked)[T0] == disk.marks(offsets)


def test_over_the_wire_rot_is_found_by_reading_payloads() -> None:
    batches = mixed(10)
    batches[3] = batches[3][:-1] + b"!"
    wire = WireRanges(Broker({T0: batches}))
    offsets = OffsetRange(0, end_of(batches))
    assert wire.digests(1, [(T0, offsets)])[T0].invalid_at is None
    assert wire.digests(1, [(T0, offsets)], check=True)[T0].invalid_at == int.from_bytes(
        batches[3][:8]
    )


@pytest.mark.parametrize("tiered", [True, False], ids=["local-part-of-a-tiered-log", "before-3.4"])
def test_over_the_wire_a_log_start_that_has_moved_is_asked_for(tiered: bool) -> None:
    """A broker that says 'out of range' does not say what is in range."""
    broker = Broker({T0: mixed(10)}, log_start=7, tells_local_start=tiered)
    assert WireRanges(broker).digests(1, [(T0, OffsetRange(2, 12))])[T0].starts_at == 7
    assert broker.requests <= 3


def test_retention_of_many_records_costs_a_comparison_few_questions() -> None:
    """Not one for each record that is gone."""
    log = [v2(1_000 * n, 1_000) for n in range(10)]
    brokers = {number: Broker({T0: log}) for number in (1, 2)}
    comparison = Comparison([Extent(number, 0, 10_000, 10_000) for number in brokers], span=2_000)
    asked = 0
    while (question := comparison.question()) is not None:
        asked += 1
        if asked == 2:  # in the middle of the run
            brokers[2] = Broker({T0: log}, log_start=9_000)
        comparison.digests(
            question,
            {
                b: WireRanges(each).digests(b, [(T0, question.offsets)])[T0]
                for b, each in brokers.items()
            },
        )
    verdict = comparison.verdict()
    assert (verdict.outcome, verdict.equal_up_to) == (Outcome.EQUAL, 10_000)
    assert asked < 10


def test_over_the_wire_a_log_that_was_cut_meanwhile_holds_less_and_is_not_skipped() -> None:
    log = [v2(number) for number in range(10)]
    offsets = [(T0, OffsetRange(6, 9))]
    found = WireRanges(Broker({T0: log[:4]})).digests(1, offsets)[T0]
    assert (found.batches, found.starts_at) == (0, None)
    assert found.digest != WireRanges(Broker({T0: log})).digests(1, offsets)[T0].digest


def test_a_partition_that_is_refused_is_left_out_and_the_others_go_on() -> None:
    broker = Broker({T0: mixed(10), T1: mixed(10)})
    broker.refuses[T0] = 3
    offsets = OffsetRange(0, end_of(mixed(10)))
    assert set(WireRanges(broker).digests(1, [(T0, offsets), (T1, offsets)])) == {T1}


def test_a_range_that_ends_in_a_hole_ends() -> None:
    """The cleaner may leave nothing at the end of what is visible."""
    wire = WireRanges(Broker({T0: [v2(0), v2(1)]}))
    assert wire.digests(1, [(T0, OffsetRange(0, 9))])[T0].batches == 2
