"""File sinks hold every transition once, whatever happened in between."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tidestaff.connectors import wire
from tidestaff.streaming.sinks import jsonl
from tidestaff.streaming.sinks.jsonl import JsonLinesSink
from tidestaff.streaming.sinks.parquet import ParquetSink
from tidestaff.streaming.sinks.record import record_of
from tidestaff.streaming.sinks.sink import TAIL, SinkError

from tests.streaming.sinks.parcels import ESCAPES, life_of_a_group, loss, many, parcels

if TYPE_CHECKING:
    from pathlib import Path

    from tidestaff.streaming.alerts.outbox import Outgoing


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def write(path: Path, told: list[Outgoing]) -> None:
    """As a process does that then ends."""
    with closing(JsonLinesSink(path)) as sink:
        sink.deliver(told)


# --- JSON lines ---------------------------------------------------------------------------------


def test_a_line_is_the_transition_itself(tmp_path: Path) -> None:
    told = parcels(loss(topic=ESCAPES))
    write(tmp_path / "alerts.jsonl", told)
    assert lines(tmp_path / "alerts.jsonl") == [told[0].transition.text]


def test_what_is_delivered_again_by_another_process_is_there_once(tmp_path: Path) -> None:
    told = many(50)
    for upto in (10, 30, 50, 50):
        write(tmp_path / "alerts.jsonl", told[:upto])
    assert lines(tmp_path / "alerts.jsonl") == [each.transition.text for each in told]


@pytest.mark.parametrize("keep", [0, 1, 100, 5_000])
def test_a_torn_last_line_is_cut_and_written_again(tmp_path: Path, keep: int) -> None:
    told = many(3)
    path = tmp_path / "alerts.jsonl"
    write(path, told)
    whole = path.read_bytes()
    torn = whole[: len(whole) - 1 - keep] if keep < len(whole) else b""
    path.write_bytes(torn)
    write(path, told)
    assert path.read_bytes() == whole


def test_a_torn_line_longer_than_a_block_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "alerts.jsonl"
    path.write_bytes(b'{"a": 1}\n' + b"x" * 200_000)
    write(path, many(1))
    assert lines(path)[0] == '{"a": 1}'
    assert len(lines(path)) == 2


def test_rotated_files_are_part_of_what_is_known(tmp_path: Path) -> None:
    told = many(40)
    path = tmp_path / "alerts.jsonl"
    size = len(told[0].transition.text) * 5
    for end in range(4, 41, 4):
        sink = JsonLinesSink(path, rotate_bytes=size, keep_files=20)
        sink.deliver(told[max(0, end - 10) : end])
        sink.close()
    found = sorted(line for each in tmp_path.iterdir() for line in lines(each))
    assert found == sorted(each.transition.text for each in told)
    assert len(list(tmp_path.iterdir())) > 3


def test_only_so_many_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "alerts.jsonl"
    sink = JsonLinesSink(path, rotate_bytes=10, keep_files=2)
    for each in many(6):
        sink.deliver([each])
    sink.close()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["alerts.jsonl", "alerts.jsonl.1", "alerts.jsonl.2"]


def test_the_end_of_the_file_is_read_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "_BLOCK", 700)
    path = tmp_path / "alerts.jsonl"
    told = many(30)
    write(path, told)
    write(path, told)
    assert len(lines(path)) == 30


def test_more_than_is_remembered_is_never_given_twice_at_once() -> None:
    assert TAIL >= 2 * 500


def test_a_directory_that_cannot_be_written_is_a_failure_of_the_sink(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot be written"):
        JsonLinesSink(tmp_path / "file" / "alerts.jsonl").deliver(many(1))
    with pytest.raises(SinkError, match="cannot be written"):
        ParquetSink(tmp_path / "file" / "alerts").deliver(many(1))


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "alerts.jsonl"
    told = many(3)
    with closing(JsonLinesSink(path)) as sink:
        sink.deliver(told[:2])
        path.rename(tmp_path / "elsewhere")
        sink.deliver(told[2:])
    assert lines(path) == [told[2].transition.text]


def test_after_a_failed_write_the_file_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "alerts.jsonl"
    told = many(4)
    path.symlink_to("/dev/full")
    with closing(JsonLinesSink(path)) as sink:
        with pytest.raises(SinkError, match="No space left"):
            sink.deliver(told[:2])
        path.unlink()
        sink.deliver(told)
    assert lines(path) == [each.transition.text for each in told]


# --- Parquet ------------------------------------------------------------------------------------


def ids(directory: Path) -> list[str]:
    files = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    return [value for path in files for value in pq.read_table(path)["id"].to_pylist()]


def test_a_file_is_named_by_its_range(tmp_path: Path) -> None:
    ParquetSink(tmp_path / "alerts").deliver(many(3))
    (path,) = (tmp_path / "alerts").iterdir()
    assert path.name == "alerts-5eed-000000000001-000000000003.parquet"


def test_a_delivery_that_overlaps_adds_only_what_is_new(tmp_path: Path) -> None:
    told = many(30)
    for start, end in ((0, 10), (0, 10), (5, 20), (20, 30), (0, 30)):
        ParquetSink(tmp_path).deliver(told[start:end])
    assert ids(tmp_path) == [each.transition.id for each in told]


def test_a_file_half_written_is_not_seen_and_written_again(tmp_path: Path) -> None:
    (tmp_path / ".alerts-5eed-000000000001-000000000009.parquet.tmp").write_bytes(b"PAR1half")
    ParquetSink(tmp_path).deliver(many(3))
    assert len(ids(tmp_path)) == 3
    assert [path.name[0] for path in tmp_path.iterdir()] == ["a"]


def test_a_new_store_counts_from_one_and_loses_nothing(tmp_path: Path) -> None:
    told = many(3)
    ParquetSink(tmp_path).deliver(told)
    ParquetSink(tmp_path).deliver([each._replace(store_id="beef") for each in told])
    assert len(ids(tmp_path)) == 6


def test_a_store_that_was_put_back_from_a_copy_loses_nothing_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    told = many(8)
    ParquetSink(tmp_path).deliver(told[:2])
    ParquetSink(tmp_path).deliver(told[2:5])
    # The copy was taken after the first two: their places come again, with other transitions.
    after = [told[3], *told[5:]]
    after = [each._replace(seq=seq) for seq, each in enumerate(after, 3)]
    sink = ParquetSink(tmp_path)
    sink.deliver(after[:3])
    sink.deliver(after[1:])
    ParquetSink(tmp_path).deliver(after)
    assert sorted(ids(tmp_path)) == sorted(each.transition.id for each in told)


def test_a_range_that_comes_again_with_other_transitions_does_not_replace_its_file(
    tmp_path: Path,
) -> None:
    told = many(6)
    ParquetSink(tmp_path).deliver(told[:3])
    ParquetSink(tmp_path).deliver([e._replace(seq=n) for n, e in enumerate(told[3:], 1)])
    assert sorted(ids(tmp_path)) == sorted(each.transition.id for each in told)


def test_parquet_holds_all_that_the_transition_holds(tmp_path: Path) -> None:
    told = [*parcels(loss()), *life_of_a_group()]
    told = [each._replace(seq=seq) for seq, each in enumerate(told, 1)]
    ParquetSink(tmp_path).deliver(told)
    (path,) = tmp_path.iterdir()
    found = pq.read_table(path).to_pylist()
    assert found == [record_of(each.transition.fields) for each in told]
    assert json.loads(found[0]["evidence"])["round"] == 7


def test_avro_and_parquet_have_the_same_columns(tmp_path: Path) -> None:
    schema = json.loads(wire.schema_text("alert"))
    record = record_of(parcels(loss())[0].transition.fields)
    assert [field["name"] for field in schema["fields"]] == list(record)
    assert all(field["doc"] for field in schema["fields"])
