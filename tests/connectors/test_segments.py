"""Batch headers of segment files, and how files end that do not end as they should."""

from __future__ import annotations

import base64
import json
import os
import struct
import tracemalloc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.log_directories_files import FileGoneError, opened_directory
from tidestaff.connectors.segments import Batch, Compression, Ending, SegmentScan
from tidestaff.connectors.segments_in_log import (
    LogScan,
    SegmentFile,
    log_end,
    segment_files,
    segments_from,
)
from tidestaff.consistency.model import OffsetRange

from tests.connectors.segment_bytes import GZIP, old, v2

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def scanning(
    path: Path, data: bytes | None = None, *, position: int = 0, check: bool = False
) -> Iterator[SegmentScan]:
    if data is not None:
        path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield SegmentScan(descriptor, position=position, check=check)
    finally:
        os.close(descriptor)


def scanned(path: Path, data: bytes, *, check: bool = False) -> tuple[list[Batch], SegmentScan]:
    with scanning(path, data, check=check) as scan:
        return list(scan), scan


def ending(scan: SegmentScan) -> Ending:
    assert scan.end is not None
    return scan.end.ending


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.log"


def test_v2_headers_are_read_as_they_were_written(path: Path) -> None:
    data = v2(5, 3, epoch=2)
    data += v2(8, epoch=4, value=b"v" * 500, compression=GZIP, transactional=True)
    batches, scan = scanned(path, data, check=True)

    first, second = batches
    assert (first.base_offset, first.last_offset, first.records) == (5, 7, 3)
    assert (first.leader_epoch, first.magic, first.compression) == (2, 2, Compression.NONE)
    assert (first.base_timestamp, first.max_timestamp) == (1_000, 1_002)
    assert not first.is_transactional
    assert not first.is_control
    assert (second.base_offset, second.leader_epoch) == (8, 4)
    assert second.compression is Compression.GZIP
    assert second.is_transactional
    assert second.producer_id == 7
    assert second.position == first.end_position == first.size
    assert all(batch.intact for batch in batches)
    assert scan.end is not None
    assert (scan.end.ending, scan.end.position) == (Ending.COMPLETE, len(data))


def test_control_batches_are_known_by_their_attributes(path: Path) -> None:
    data = bytearray(v2(0))
    struct.pack_into(">h", data, 21, 0x30)
    (batch,), _ = scanned(path, bytes(data))
    assert batch.is_control
    assert batch.is_transactional


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_batches_of_their_own(path: Path, magic: int) -> None:
    batches, scan = scanned(path, old(magic, 3, 2), check=True)
    assert [(b.magic, b.base_offset, b.last_offset, b.records) for b in batches] == [
        (magic, 3, 3, 1),
        (magic, 4, 4, 1),
    ]
    assert [b.max_timestamp for b in batches] == ([None, None] if magic == 0 else [1_000, 1_001])
    assert [b.leader_epoch for b in batches] == [None, None]
    assert [b.intact for b in batches] == [True, True]
    assert not batches[0].is_control
    assert ending(scan) is Ending.COMPLETE


@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_set_tells_its_last_offset_only(path: Path, magic: int) -> None:
    data = old(magic, 0, 5, compression=GZIP) + old(magic, 5)
    batches, scan = scanned(path, data, check=True)
    assert [(b.base_offset, b.last_offset, b.records) for b in batches] == [
        (None, 4, None),
        (5, 5, 1),
    ]
    assert batches[0].compression is Compression.GZIP
    assert batches[0].intact
    assert ending(scan) is Ending.COMPLETE


def test_formats_follow_each_other_in_one_file(path: Path) -> None:
    batches, scan = scanned(path, old(0, 0, 2) + old(1, 2, 2) + v2(4, 6), check=True)
    assert [(b.magic, b.last_offset) for b in batches] == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 9)]
    assert ending(scan) is Ending.COMPLETE


@pytest.mark.parametrize("whole", [v2(0, 4), old(1, 0, 1), old(0, 0, 1)])
def test_a_file_cut_anywhere_gives_the_whole_batches_before(path: Path, whole: bytes) -> None:
    before = v2(100) if whole[16] == 2 else b""
    after = v2(101, 4) if whole[16] == 2 else whole
    for cut in range(1, len(after)):
        batches, scan = scanned(path, before + after[:cut], check=True)
        assert len(batches) == (1 if before else 0)
        # The first bytes of an offset are zeros, and cannot be told from a preallocated tail.
        expected = Ending.TRUNCATED if any(after[:cut]) else Ending.ZERO_FILLED
        assert ending(scan) is expected, cut
        assert scan.end is not None
        assert scan.end.position == len(before)


@pytest.mark.parametrize("zeros", [1, 11, 17, 61, 70_000])
def test_a_preallocated_tail_is_no_batch(path: Path, zeros: int) -> None:
    batches, scan = scanned(path, v2(0, 2) + bytes(zeros), check=True)
    assert [batch.last_offset for batch in batches] == [1]
    assert ending(scan) is Ending.ZERO_FILLED


def test_zeros_with_data_behind_them_are_corrupt_where_checks_are_asked_for(path: Path) -> None:
    data = v2(0, 2) + bytes(5_000) + v2(2)
    assert ending(scanned(path, data)[1]) is Ending.ZERO_FILLED
    assert ending(scanned(path, data, check=True)[1]) is Ending.CORRUPT


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        pytest.param(0, ">q", -1, id="negative-offset"),
        pytest.param(8, ">i", -5, id="negative-size"),
        pytest.param(8, ">i", 48, id="size-below-the-header"),
        pytest.param(8, ">i", 0, id="no-size"),
        pytest.param(16, ">b", 3, id="unknown-format"),
        pytest.param(16, ">b", -1, id="negative-format"),
        pytest.param(23, ">i", -1, id="negative-delta"),
        pytest.param(57, ">i", -1, id="negative-count"),
    ],
)
def test_what_is_no_header_is_corrupt(path: Path, at: int, form: str, value: int) -> None:
    broken = bytearray(v2(2))
    struct.pack_into(form, broken, at, value)
    batches, scan = scanned(path, v2(0, 2) + bytes(broken) + v2(3))
    assert len(batches) == 1
    assert scan.end is not None
    assert (scan.end.ending, scan.end.position) == (Ending.CORRUPT, batches[0].size)
    assert scan.end.reason


def test_offsets_that_go_back_are_corrupt(path: Path) -> None:
    batches, scan = scanned(path, v2(0, 5) + v2(4))
    assert len(batches) == 1
    assert scan.end is not None
    assert scan.end.ending is Ending.CORRUPT
    assert scan.end.reason == "offset 4 after offset 4"


def test_offsets_that_leave_a_gap_are_a_matter_of_compaction(path: Path) -> None:
    batches, scan = scanned(path, v2(0, 5) + v2(50))
    assert [batch.last_offset for batch in batches] == [4, 50]
    assert ending(scan) is Ending.COMPLETE


@pytest.mark.parametrize("value", [b"value", b"v" * 100_000, b"v" * 1_500_000])
def test_one_altered_bit_is_found_and_the_rest_is_read(path: Path, value: bytes) -> None:
    batches = [v2(0, value=value), v2(1, value=value), v2(2, value=value)]
    altered = bytearray(batches[1])
    altered[-3] ^= 1
    found, scan = scanned(path, batches[0] + bytes(altered) + batches[2], check=True)
    assert [batch.intact for batch in found] == [True, False, True]
    assert ending(scan) is Ending.COMPLETE


@pytest.mark.parametrize("magic", [0, 1])
def test_an_altered_bit_of_an_old_message_is_found(path: Path, magic: int) -> None:
    data = bytearray(old(magic, 0) + old(magic, 1))
    data[-1] ^= 1
    found, _ = scanned(path, bytes(data), check=True)
    assert [batch.intact for batch in found] == [True, False]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("left", [0, 10, 30_000])
def test_a_file_that_is_cut_while_it_is_read(path: Path, left: int, check: bool) -> None:
    data = b"".join(v2(offset, value=b"v" * 20_000) for offset in range(20))
    with scanning(path, data, check=check) as scan:
        batches = iter(scan)
        for _ in range(5):
            next(batches)
        os.truncate(path, left)
        rest = list(batches)
        assert len(rest) <= 3  # what was read ahead
        assert ending(scan) is Ending.SHRUNK


def test_a_file_that_grows_while_it_is_read_is_read_on(path: Path) -> None:
    with scanning(path, v2(0)) as scan:
        batches = iter(scan)
        next(batches)
        with path.open("ab") as out:
            out.write(v2(1) + v2(2))
        assert [batch.base_offset for batch in batches] == [1, 2]
        assert ending(scan) is Ending.COMPLETE


def test_a_descriptor_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        scan = SegmentScan(descriptor)
        assert list(scan) == []
        assert ending(scan) is Ending.UNREADABLE
    finally:
        os.close(descriptor)


def test_an_empty_file_is_complete(path: Path) -> None:
    assert scanned(path, b"")[0] == []
    assert ending(scanned(path, b"")[1]) is Ending.COMPLETE


def test_memory_does_not_grow_with_the_file(path: Path) -> None:
    with path.open("wb") as out:
        for offset in range(30):
            out.write(v2(offset, value=b"v" * 1_500_000))
    tracemalloc.start()
    try:
        with scanning(path, check=True) as scan:
            assert sum(1 for _ in scan) == 30
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000


def test_payloads_are_not_read_where_nothing_is_checked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"".join(v2(offset, value=b"v" * 100_000) for offset in range(50))
    asked: list[int] = []
    pread = os.pread

    def counting(descriptor: int, length: int, offset: int) -> bytes:
        asked.append(length)
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", counting)
    assert len(scanned(path, data)[0]) == 50
    assert sum(asked) < len(data) / 50


@pytest.mark.parametrize(
    ("offsets", "inside"),
    [((5, 8), True), ((0, 100), True), ((6, 8), False), ((5, 7), False)],
)
def test_a_batch_lies_in_a_range_or_not(path: Path, offsets: tuple[int, int], inside: bool) -> None:
    (batch,), _ = scanned(path, v2(5, 3))
    assert batch.within(OffsetRange(*offsets)) is inside


# -- a directory of segments


def write_log(folder: Path, *segments: tuple[int, bytes]) -> None:
    for base, data in segments:
        (folder / f"{base:020d}.log").write_bytes(data)


def test_segments_are_known_by_their_names() -> None:
    names = [
        "00000000000000000100.log",
        "00000000000000000000.log",
        "00000000000000000100.index",
        "00000000000000000007.log.deleted",
        "00000000000000000008.log.cleaned",
        "99999999999999999999.log",
        "leader-epoch-checkpoint",
        "0.log",
    ]
    assert [each.base_offset for each in segment_files(names)] == [0, 100]


@pytest.mark.parametrize(
    ("offset", "first"), [(0, 10), (10, 10), (19, 10), (20, 20), (29, 20), (30, 30), (999, 30)]
)
def test_reading_begins_at_the_segment_that_holds_the_offset(offset: int, first: int) -> None:
    files = [SegmentFile(base, f"{base:020d}.log") for base in (10, 20, 30)]
    assert segments_from(files, offset)[0].base_offset == first
    assert segments_from([], offset) == []


def test_a_log_is_read_from_an_offset_over_its_segments(tmp_path: Path) -> None:
    write_log(tmp_path, (0, v2(0, 5) + v2(5, 5)), (10, v2(10, 5)), (15, b""))
    with opened_directory(str(tmp_path), None, "t-0") as directory:
        scan = LogScan(directory, "t-0", offset=7, check=True)
        assert [batch.base_offset for batch in scan] == [5, 10]
        assert scan.end is not None
        assert scan.end.ending is Ending.COMPLETE
        assert scan.segment is not None
        assert scan.segment.base_offset == 15


def test_a_broken_segment_in_the_middle_ends_the_scan_and_is_named(tmp_path: Path) -> None:
    write_log(tmp_path, (0, v2(0, 5)[:-1]), (5, v2(5)))
    with opened_directory(str(tmp_path), None, "t-0") as directory:
        scan = LogScan(directory, "t-0")
        assert list(scan) == []
        assert scan.segment is not None
        assert scan.end is not None
        assert (scan.segment.base_offset, scan.end.ending) == (0, Ending.TRUNCATED)


def test_a_segment_that_retention_removes_meanwhile_is_told(tmp_path: Path) -> None:
    write_log(tmp_path, (0, v2(0, 5)), (5, v2(5)))
    with opened_directory(str(tmp_path), None, "t-0") as directory:
        scan = LogScan(directory, "t-0")
        batches = iter(scan)
        next(batches)
        (tmp_path / f"{5:020d}.log").unlink()
        assert list(batches) == []
        assert scan.end is not None
        assert scan.end.ending is Ending.VANISHED


def test_the_log_ends_after_the_last_whole_batch(tmp_path: Path) -> None:
    write_log(tmp_path, (3, v2(3, 7)), (10, v2(10, 5) + v2(15, 5)[:-2]))
    with opened_directory(str(tmp_path), None, "t-0") as directory:
        end = log_end(directory, "t-0")
    assert end is not None
    assert (end.log_start_offset, end.log_end_offset) == (3, 15)
    assert end.end.ending is Ending.TRUNCATED


def test_a_log_whose_newest_segment_is_empty_ends_at_its_name(tmp_path: Path) -> None:
    write_log(tmp_path, (0, v2(0, 7)), (7, b""))
    with opened_directory(str(tmp_path), None, "t-0") as directory:
        end = log_end(directory, "t-0")
    assert end is not None
    assert end.log_end_offset == 7


def test_a_directory_without_segments_has_no_end(tmp_path: Path) -> None:
    with opened_directory(str(tmp_path), None, "t-0") as directory:
        assert log_end(directory, "t-0") is None


def test_a_known_end_is_gone_on_from_and_forgotten_where_the_log_was_cut(tmp_path: Path) -> None:
    newest = tmp_path / f"{0:020d}.log"
    whole = v2(0, 5) + v2(5, 5)
    newest.write_bytes(whole)
    with opened_directory(str(tmp_path), None, "t-0") as directory:
        known = log_end(directory, "t-0")
        newest.write_bytes(whole + v2(10, 2))
        grown = log_end(directory, "t-0", known)
        assert grown is not None
        assert grown.log_end_offset == 12
        # Cut, and other records of the same length in another epoch written over it.
        newest.write_bytes(v2(0, 5) + v2(5, 5, epoch=3))
        cut = log_end(directory, "t-0", grown)
        assert cut is not None
        assert cut.log_end_offset == 10
        assert cut.mark is not None
        assert cut.mark.leader_epoch == 3


@pytest.mark.parametrize("padding", [0, 80_000])
@pytest.mark.parametrize("misleading", [None, 1, 13])
def test_the_offset_index_shortens_the_way_and_never_leads_astray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, padding: int, misleading: int | None
) -> None:
    batches = [v2(offset) for offset in range(2_000)]
    write_log(tmp_path, (0, b"".join(batches)))
    positions = [sum(map(len, batches[:number])) for number in (400, 1_200, 1_990)]
    if misleading is not None:
        positions = [position + misleading for position in positions]
    entries = zip((400, 1_200, 1_990), positions, strict=True)
    index = b"".join(struct.pack(">ii", *entry) for entry in entries)
    (tmp_path / f"{0:020d}.index").write_bytes(index + bytes(padding))
    begun: list[int] = []
    made = SegmentScan.__init__

    def noting(self: SegmentScan, descriptor: int, *, position: int = 0) -> None:
        begun.append(position)
        made(self, descriptor, position=position)

    monkeypatch.setattr(SegmentScan, "__init__", noting)
    with opened_directory(str(tmp_path), None, "t-0") as directory:
        end = log_end(directory, "t-0")
    assert end is not None
    assert end.log_end_offset == 2_000
    assert begun == ([positions[-1]] if misleading is None else [positions[-1], 0])


def test_a_partition_whose_files_go_all_the_time_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path, (0, v2(0)))
    monkeypatch.setattr(
        "tidestaff.connectors.segments_in_log.names_in", lambda *_: [f"{9:020d}.log"]
    )
    with (
        opened_directory(str(tmp_path), None, "t-0") as directory,
        pytest.raises(FileGoneError, match="t-0"),
    ):
        log_end(directory, "t-0")


# -- what a broker of old wrote

RECORDED = json.loads(Path(__file__).with_name("segments_0_10_2.json").read_text(encoding="utf-8"))[
    "segments"
]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: f"v{each['magic']}")
def test_segments_of_a_real_old_broker_are_read_as_its_own_tool_reads_them(
    path: Path, recorded: dict[str, Any]
) -> None:
    batches, scan = scanned(path, base64.b64decode(recorded["bytes"]), check=True)
    assert ending(scan) is Ending.COMPLETE
    assert {batch.magic for batch in batches} == {recorded["magic"]}
    assert all(batch.intact for batch in batches)
    assert [
        [batch.last_offset, batch.position, batch.compression.name, batch.crc] for batch in batches
    ] == recorded["dumped"]
