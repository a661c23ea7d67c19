"""Row files: what is written is read, in the order of the events, and a wrong file is named."""

from __future__ import annotations

import errno
import json
import os
import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tidestaff.connectors.wire import MISSING, Row, WireError, observation_of, schema_text, to_bytes
from tidestaff.streaming.codec import ROW_SCHEMA
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.recording import Recorder, record_all
from tidestaff.streaming.settings import Cluster, Settings
from tidestaff.streaming.sources.reader import readable
from tidestaff.streaming.sources.row_files import (
    ARROW_SCHEMA,
    RowFileError,
    UnreadFileError,
    batches,
    file_name,
    listed,
    to_rows,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def row(at_ms: int, subject: str = "t-0") -> Row:
    offsets = [1, MISSING, 2**62]
    return Row(
        1, "partition", "c", "s", subject, at_ms, MISSING, 3, *([offsets] * 4), [], b"\x00\xff"
    )


def read(path: Path) -> list[Row]:
    return [each for batch in batches(path) for each in to_rows(batch)]


@pytest.mark.parametrize("suffix", ["parquet", "avro"])
def test_what_is_written_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    rows = [row(1), row(2, "ü-1")]
    write(path, rows)
    assert read(path) == rows
    assert [p.name for p in tmp_path.iterdir()] == [path.name], "no partial file is left"


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss leaves an empty file under a name that counts as complete."""
    flushed: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda _: flushed.append(listed(tmp_path)))
    write(tmp_path / "000000000000001-00000000.parquet", [row(1)])
    assert flushed == [[]]
    assert len(listed(tmp_path)) == 1


def test_the_columns_are_those_of_the_operator() -> None:
    assert [field.name for field in ROW_SCHEMA] == ARROW_SCHEMA.names == list(Row._fields)


def test_names_are_in_the_order_of_the_events(tmp_path: Path) -> None:
    names = [file_name(at, n, "parquet") for at, n in [(5, 9), (40, 1), (40, 2), (10**12, 0)]]
    for name in reversed(names):
        (tmp_path / name).touch()
    (tmp_path / ".5.parquet.part").touch()
    (tmp_path / "notes.txt").touch()
    assert listed(tmp_path) == names


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert listed(tmp_path / "none") == []


@pytest.mark.parametrize("suffix", ["parquet", "avro"])
def test_garbage_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"garbage that is no file of rows")
    with pytest.raises(RowFileError, match=r"a\.\w+: not an? \w+ file of rows"):
        read(path)


def test_a_file_without_a_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"kind": ["tick"]}), path)
    with pytest.raises(RowFileError, match="the column schema_version is missing"):
        read(path)


def put(path: Path, column: str, values: pa.Array) -> None:
    """A file of rows with another column in place of one of them."""
    write(path, [row(1), row(2)])
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, values), path)


NO_TEXT = pa.array([b"t-0", b"t\xff-0"], pa.binary()).view(pa.string())


@pytest.mark.parametrize(
    ("column", "values"),
    [
        pytest.param("subject", NO_TEXT, id="text-that-is-no-utf-8"),
        pytest.param("round", pa.array([{"a": 1}] * 2), id="a-struct-for-a-number"),
        pytest.param("round", pa.array([1, None]), id="a-number-is-missing"),
        pytest.param("read_at_ms", pa.array([[1], [2, None]]), id="a-number-of-a-list-is-missing"),
    ],
)
def test_a_column_that_holds_something_else_is_told(
    tmp_path: Path, column: str, values: pa.Array
) -> None:
    path = tmp_path / "a.parquet"
    put(path, column, values)
    with pytest.raises(RowFileError, match=r"not a Parquet file of rows|a missing value") as told:
        read(path)
    assert not isinstance(told.value, UnreadFileError)


def longer(data: bytes) -> bytes:
    """The first block says that it has 2**40 bytes, which is no reason to ask for them."""
    at = data.index(data[-16:]) + 17
    after = at + 1 + (data[at] > 0x7F)
    return data[:at] + b"\x80\x80\x80\x80\x80\x40" + data[after:]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda d: d.replace(b'"type": "long"', b'"tipe": "long"'), id="no-type"),
        pytest.param(lambda d: d.replace(b'"name": "kind"', b'"nama": "kind"'), id="no-name"),
        pytest.param(lambda d: d.replace(b'"long"', b'"lung"'), id="a-type-that-is-none"),
        pytest.param(longer, id="a-length-beyond-all-memory"),
    ],
)
def test_a_damaged_avro_file_is_told(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "a.avro"
    write(path, [row(1)])
    good = path.read_bytes()
    path.write_bytes(damage(good))
    assert path.read_bytes() != good
    with pytest.raises(RowFileError, match="not an Avro file of rows"):
        read(path)


def test_an_avro_file_with_a_missing_value_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    schema = json.loads(schema_text("observation"))
    for field in schema["fields"]:
        if field["name"] == "round":
            field["type"] = ["null", "long"]
    with path.open("wb") as out:
        fastavro.writer(out, schema, [{**row(1)._asdict(), "round": None}])
    with pytest.raises(RowFileError, match="a column has a missing value"):
        read(path)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param(errno.EIO, UnreadFileError, id="the-system-cannot-read-it-now"),
        pytest.param(None, RowFileError, id="arrow-finds-it-broken"),
    ],
)
def test_what_the_system_refuses_once_is_read_the_next_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int | None,
    expected: type[RowFileError],
) -> None:
    """A moment later the file can be read, which does not make it a broken one."""
    path = tmp_path / "a.parquet"
    write(path, [row(1)])
    text = "Error reading bytes from file. Detail: [errno 5] Input/output error"
    trouble = [OSError(text) if number is None else OSError(number, text)]

    class Once(pq.ParquetFile):  # type: ignore[misc]
        def iter_batches(self, **asked: Any) -> Iterator[pa.RecordBatch]:
            if trouble:
                raise trouble.pop()
            return super().iter_batches(**asked)

    monkeypatch.setattr(pq, "ParquetFile", Once)
    with pytest.raises(RowFileError) as told:
        read(path)
    assert type(told.value) is expected
    assert read(path) == [row(1)]


def test_arrow_numbers_what_the_system_refuses_and_not_what_is_broken(tmp_path: Path) -> None:
    """What the telling apart rests on."""
    path = tmp_path / "a.parquet"
    write(path, [row(1)])
    path.write_bytes(path.read_bytes().replace(b"\x28\xb5\x2f\xfd", b"zstd"))
    with pytest.raises(OSError, match="ZSTD") as broken, pq.ParquetFile(path) as file:
        list(file.iter_batches())
    assert broken.value.errno is None
    with pytest.raises(FileNotFoundError) as missing:
        pq.ParquetFile(tmp_path / "none.parquet")
    assert missing.value.errno == errno.ENOENT


def damaged(good: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return good[: chance.randrange(len(good))]
    data = bytearray(good)
    for _ in range(chance.choice((1, 1, 2, 5))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("suffix", ["parquet", "avro"])
def test_whatever_bytes_are_damaged_what_comes_can_be_used_or_is_refused(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    write(path, [row(at_ms, f"t-{at_ms}") for at_ms in range(20)])
    good, chance, told = path.read_bytes(), random.Random(5), 0  # noqa: S311 - no secret
    for _ in range(1_500):
        path.write_bytes(damaged(good, chance))
        # With the row that says what was refused: its text can be as odd as the file.
        for batch in readable(path, "c"):
            assert batch.schema == ARROW_SCHEMA
            batch.validate(full=True)
            for each in to_rows(batch):
                to_bytes(each)
                told += each.kind == "refused"
                with suppress(WireError):
                    observation_of(each)
    assert 700 < told < 1_500


def test_columns_in_another_order_or_of_smaller_types_are_put_right(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, [row(1)])
    table = pq.read_table(path)
    table = table.select(list(reversed(table.schema.names)))
    place = table.schema.get_field_index("round")
    table = table.set_column(place, "round", table["round"].cast(pa.int16()))
    pq.write_table(table, path)
    assert read(path) == [row(1)]


def simulated(**more: object) -> Cluster:
    return Cluster.model_validate({"name": "c", "source": {"type": "simulator", **more}})


def recorded(folder: Path, cluster: Cluster, rounds: int, suffix: str = "parquet") -> list[Row]:
    recorder = Recorder(cluster, folder, suffix, 3)
    recorder.run(rounds, True, threading.Event())  # noqa: FBT003
    assert recorder.error is None, recorder.error
    assert recorder.written.rounds == rounds
    return [each for name in listed(folder) for each in read(folder / name)]


def test_a_recording_holds_every_round_linked_to_the_one_before(tmp_path: Path) -> None:
    rows = recorded(tmp_path, simulated(faults="none"), 8)
    assert len(listed(tmp_path)) == 3
    one = [each for each in rows if each.subject == "topic-0-0"]
    assert [each.round for each in one] == list(range(1, 9))
    assert [each.previous_at_ms for each in one[1:]] == [each.observed_at_ms for each in one[:-1]]
    assert one[0].previous_at_ms == MISSING


def test_two_recorders_share_a_folder_in_the_order_of_time(tmp_path: Path) -> None:
    for cluster in Settings().clusters:
        recorded(tmp_path, cluster, 6)
    assert len(listed(tmp_path)) == 4


def test_a_recording_cannot_be_recorded(tmp_path: Path) -> None:
    source = {"type": "recording", "path": str(tmp_path)}
    cluster = Cluster.model_validate({"name": "c", "source": source})
    recorder = Recorder(cluster, tmp_path / "out", "parquet", 3)
    recorder.run(1, True, threading.Event())  # noqa: FBT003
    assert "expected a source that lives" in str(recorder.error)


def test_a_recorder_that_fails_ends_those_beside_it_and_their_rounds_are_kept(
    tmp_path: Path,
) -> None:
    source = {"type": "recording", "path": str(tmp_path)}
    broken = Cluster.model_validate({"name": "broken", "source": source})
    recorders = [
        Recorder(cluster, tmp_path / "out", "parquet", 1_000)
        for cluster in (simulated(round_interval_ms=50), broken)
    ]
    with pytest.raises(CommandError, match="expected a source that lives"):
        record_all(recorders, None, False, threading.Event())  # noqa: FBT003
    assert recorders[0].written.rows > 0


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        pytest.param(
            {"type": "kafka", "bootstrap_servers": "127.0.0.1:1", "topics": ["t"]},
            "127.0.0.1:1: not reached",
            id="a-topic-that-cannot-be-reached",
        ),
        pytest.param(
            {
                "type": "direct",
                "collector": "brokers",
                "options": {"bootstrap_servers": "127.0.0.1:1", "timeout_ms": 500},
            },
            "nothing was seen in 1 rounds, so nothing was written: "
            "no broker of 127.0.0.1:1 answers",
            id="a-cluster-that-cannot-be-reached",
        ),
    ],
)
def test_a_recording_of_nothing_is_said_to_be_one(
    tmp_path: Path, source: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka import KafkaConsumer  # noqa: PLC0415 - slow

    monkeypatch.setitem(KafkaConsumer.DEFAULT_CONFIG, "bootstrap_timeout_ms", 500)
    cluster = Cluster.model_validate({"name": "c", "source": source})
    recorder = Recorder(cluster, tmp_path, "parquet", 1)
    with pytest.raises(CommandError, match=problem):
        record_all([recorder], 1, True, threading.Event())  # noqa: FBT003
    assert listed(tmp_path) == []
