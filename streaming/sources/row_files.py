"""Rows in files, Parquet or Avro: what `tidestaff record` writes, and what the job's own collectors
leave for Spark to read.

A file's name begins with its first event time, so that the order of the names is the order of the
events whatever a copy did to the files' own times.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq
from tidestaff.connectors.wire import Row, schema_text
from tidestaff.consistency.errors import ConsistencyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PARQUET, AVRO = "parquet", "avro"
FORMATS: Final = (PARQUET, AVRO)
ROWS_A_BATCH: Final = 20_000
_PARQUET_DAMAGE: Final = (
    *(pa.ArrowException, OSError),
    *(ValueError, TypeError, LookupError, ArithmeticError),
)
_WRITER: Final = re.compile(r"[0-9]{15}-[0-9]{8}-(.+)\.(?:parquet|avro)")
_NAME: Final = re.compile(r"([0-9]{15})-[0-9]{8}(?:-.+)?\.(?:parquet|avro)")


class RowFileError(ConsistencyError):
    """A file that does not hold rows."""

    def __init__(self, path: str, found: str, remedy: str) -> None:
        super().__init__(f"{path}: {found}: {remedy}")
        self.path, self.found, self.remedy = path, found, remedy


class UnreadFileError(RowFileError):
    """A file that the system did not let us read: what it holds is not known."""


def _arrow_type(name: str) -> pa.DataType:
    if name == "schema_version":
        return pa.int32()
    if name in {"kind", "cluster", "source", "subject"}:
        return pa.string()
    if name == "body":
        return pa.binary()
    single = name in {"observed_at_ms", "previous_at_ms", "round"}
    return pa.int64() if single else pa.list_(pa.field("element", pa.int64(), nullable=False))


ARROW_SCHEMA: Final = pa.schema(
    [pa.field(name, _arrow_type(name), nullable=False) for name in Row._fields]
)


def to_arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([] for _ in Row._fields)
    arrays = [
        pa.array(list(column), type=field.type)
        for column, field in zip(columns, ARROW_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def to_rows(batch: pa.RecordBatch) -> list[Row]:
    return [Row(*values) for values in zip(*(c.to_pylist() for c in batch.columns), strict=True)]


def file_name(first_ms: int, counter: int, suffix: str) -> str:
    return f"{first_ms:015d}-{counter:08d}.{suffix}"


def writer_of(name: str) -> str:
    """Who wrote it, as the name says: a recorder puts its cluster's name there."""
    found = _WRITER.fullmatch(name)
    return found[1] if found else ""


def first_ms(name: str) -> int:
    """What the name says, 0 where it is none of ours."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else 0


def write(path: Path, rows: Sequence[Row]) -> None:
    """The whole file or none, also after a power loss: it appears under its name when it is
    complete and on the disk."""
    partial = path.with_name(f".{path.name}.part")
    if path.suffix == f".{AVRO}":
        _write_avro(partial, rows)
    else:
        table = pa.Table.from_batches([to_arrow(rows)])
        pq.write_table(table, partial, compression="zstd", compression_level=1)
    with partial.open("rb") as written:
        os.fsync(written.fileno())
    partial.replace(path)


def listed(folder: Path) -> list[str]:
    """The names of the row files of a folder, in the order of their events."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    endings = tuple(f".{each}" for each in FORMATS)
    return sorted(name for name in names if name.endswith(endings) and not name.startswith("."))


def batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of one file as Arrow batches: whatever is damaged in it, what comes is rows that can
    be used, or a RowFileError."""
    yield from _avro_batches(path) if path.suffix == f".{AVRO}" else _parquet_batches(path)


def _parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=ROWS_A_BATCH, columns=list(Row._fields)):
                yield _conformed(path, batch)
    except (FileNotFoundError, MemoryError):
        raise
    except _PARQUET_DAMAGE as error:
        _check_readable(path, error)
        raise RowFileError(
            str(path),
            f"not a Parquet file of rows ({_said(error)})",
            "remove it or record it again",
        ) from error


def _check_readable(path: Path, error: Exception) -> None:
    """Arrow tells what the system refuses and what is broken with the same error. What the system
    refuses has its number, and may be over a moment later. That a path is no file Arrow finds by
    itself, so what it calls broken is read once more."""
    refused = error
    if not _of_the_system(error):
        try:
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass
        except OSError as again:
            refused = again
        else:
            return
    assert isinstance(refused, OSError)
    assert refused.errno is not None
    raise UnreadFileError(str(path), os.strerror(refused.errno), "make it readable") from refused


def _of_the_system(error: Exception) -> bool:
    """What Arrow and decompressors find in a file is an OSError, too, but one without a number."""
    return isinstance(error, OSError) and error.errno is not None


def _said(error: Exception) -> str:
    """The first line of the message, as text that can be written anywhere."""
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    return first.encode("utf-8", "backslashreplace").decode("utf-8")


def _conformed(path: Path, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The very columns, in their order and types, whatever wrote them."""
    # A reader of Parquet takes any bytes for text.
    batch.validate(full=True)
    ordered = [batch.column(field.name).cast(field.type) for field in ARROW_SCHEMA]
    items = [column.flatten() for column in ordered if pa.types.is_list(column.type)]
    if any(column.null_count for column in (*ordered, *items)):
        raise RowFileError(str(path), "a column has a missing value", "record it again")
    return pa.RecordBatch.from_arrays(ordered, schema=ARROW_SCHEMA)


def _check_columns(path: Path, names: Sequence[str]) -> None:
    missing = [name for name in Row._fields if name not in names]
    if missing:
        raise RowFileError(
            str(path),
            f"the column {missing[0]} is missing",
            "read it with the release that recorded it, or record it again",
        )


def _write_avro(path: Path, rows: Sequence[Row]) -> None:
    import fastavro  # noqa: PLC0415 - only for Avro

    with path.open("wb") as out:
        fastavro.writer(out, _avro_schema(), [row._asdict() for row in rows], codec="deflate")


def _avro_schema() -> Any:
    import json  # noqa: PLC0415 - only for Avro

    import fastavro  # noqa: PLC0415

    return fastavro.parse_schema(json.loads(schema_text("observation")))


class _Sized:
    """A file that is asked for no more at once than it holds: a damaged length would be taken for a
    need of memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size

    def read(self, wanted: int) -> bytes:
        return self._file.read(min(wanted, self._size))


def _avro_batches(path: Path) -> Iterator[pa.RecordBatch]:
    import fastavro  # noqa: PLC0415 - only for Avro

    with path.open("rb") as source:
        try:
            found = iter(fastavro.reader(_Sized(source)))  # type: ignore[arg-type]
            while True:
                rows = [Row(**record) for record in islice(found, ROWS_A_BATCH)]  # type: ignore[arg-type]
                if not rows:
                    return
                yield _conformed(path, to_arrow(rows))
        except (MemoryError, RowFileError):
            raise
        except Exception as error:
            # The schema is the file's own, so there is no end of what can go wrong with it.
            if _of_the_system(error):
                raise
            raise RowFileError(
                str(path),
                f"not an Avro file of rows ({type(error).__name__}: {_said(error)})",
                "remove it or record it again",
            ) from error
