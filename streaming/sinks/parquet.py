"""One Parquet file for each range of the outbox that was delivered.

The name holds the store and the range, alerts-STORE-FIRST-LAST.parquet, and a file appears whole or
not at all. Names tell where to look for what was delivered already; the ids within tell what it
was: a store that was put back from a copy gives the same places to other transitions.
"""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from tidestaff.streaming.sinks.record import record_of
from tidestaff.streaming.sinks.sink import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.alerts.outbox import Outgoing

REMEDY: Final = "check that the directory exists, is writable and has room"
_NAME: Final = re.compile(r"alerts-([0-9a-f]+)-(\d+)-(\d+)(?:-\d+)?\.parquet")

_INT: Final = ("schema_version", "number", "partition", "broker", "leader_epoch")
_MEMBER: Final = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("at_ms", pa.int64()),
        ("observed", pa.string()),
        ("offsets_start", pa.int64()),
        ("offsets_end", pa.int64()),
    ]
)


def _type(name: str) -> pa.DataType:
    if name == "members":
        return pa.list_(_MEMBER)
    if name == "latched":
        return pa.bool_()
    if name in _INT or name in ("members_count", "members_affected"):
        return pa.int32()
    if name.endswith("_ms") or name.startswith("offsets_"):
        return pa.int64()
    return pa.string()


class ParquetSink:
    """Writes files into a directory."""

    def __init__(self, directory: Path | str, *, name: str = "parquet") -> None:
        self.name = name
        self.directory = Path(directory)
        self._ends: dict[str, int] = {}

    def deliver(self, outgoing: Sequence[Outgoing]) -> None:
        try:
            self._write(outgoing)
        except OSError as error:
            self._ends.clear()
            problem = f"{self.directory} cannot be written ({error.strerror or 'write failed'})"
            raise SinkError(self.name, problem, REMEDY) from error

    def close(self) -> None:
        """Nothing is kept open."""

    def _write(self, outgoing: Sequence[Outgoing]) -> None:
        store_id, first = outgoing[0].store_id, outgoing[0].seq
        new = list(outgoing)
        if first <= self._end(store_id):
            known = self._known(store_id, first)
            new = [each for each in outgoing if each.transition.id not in known]
        if not new:
            return
        path = self._free_name(f"alerts-{store_id}-{new[0].seq:012d}-{new[-1].seq:012d}")
        # Readers of a directory pass over names that begin with a dot.
        hidden = self.directory / f".{path.name}.tmp"
        pq.write_table(_table(new), hidden)
        hidden.replace(path)
        self._ends[store_id] = max(self._end(store_id), new[-1].seq)

    def _end(self, store_id: str) -> int:
        """The highest place of this store that a file is of."""
        if store_id not in self._ends:
            self.directory.mkdir(parents=True, exist_ok=True)
            for left_over in self.directory.glob(".alerts-*.parquet.tmp"):
                left_over.unlink()
            ends = [int(match[3]) for _, match in self._files(store_id)]
            self._ends[store_id] = max(ends, default=0)
        return self._ends[store_id]

    def _known(self, store_id: str, first: int) -> set[str]:
        """Ids of what the files hold that reach to this place or beyond it."""
        reaching = [path for path, match in self._files(store_id) if int(match[3]) >= first]
        return {
            each
            for path in reaching
            for each in pq.read_table(path, columns=["id"])["id"].to_pylist()
        }

    def _files(self, store_id: str) -> list[tuple[Path, re.Match[str]]]:
        named = ((path, _NAME.fullmatch(path.name)) for path in self.directory.iterdir())
        return [(path, match) for path, match in named if match and match[1] == store_id]

    def _free_name(self, stem: str) -> Path:
        names = (stem if again == 0 else f"{stem}-{again}" for again in count())
        paths = (self.directory / f"{name}.parquet" for name in names)
        return next(path for path in paths if not path.exists())


def _table(outgoing: Sequence[Outgoing]) -> pa.Table:
    records = [record_of(each.transition.fields) for each in outgoing]
    schema = pa.schema([(name, _type(name)) for name in records[0]])
    return pa.Table.from_pylist(records, schema=schema)
