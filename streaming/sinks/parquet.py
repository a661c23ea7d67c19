"""One Parquet file for each range of the outbox that was delivered.

The name holds the store and the range, alerts-STORE-FIRST-LAST.parquet, and a file appears whole or
not at all, so the names alone tell what has been delivered.
"""

from __future__ import annotations

import re
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
_NAME: Final = re.compile(r"alerts-([0-9a-f]+)-(\d+)-(\d+)\.parquet")

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
        self._last: dict[str, int] = {}

    def deliver(self, outgoing: Sequence[Outgoing]) -> None:
        try:
            self._write(outgoing)
        except OSError as error:
            self._last.clear()
            problem = f"{self.directory} cannot be written ({error.strerror or 'write failed'})"
            raise SinkError(self.name, problem, REMEDY) from error

    def close(self) -> None:
        """Nothing is kept open."""

    def _write(self, outgoing: Sequence[Outgoing]) -> None:
        store_id = outgoing[0].store_id
        last = self._last_seq(store_id)
        new = [each for each in outgoing if each.seq > last]
        if not new:
            return
        name = f"alerts-{store_id}-{new[0].seq:012d}-{new[-1].seq:012d}.parquet"
        # Readers of a directory pass over names that begin with a dot.
        hidden = self.directory / f".{name}.tmp"
        pq.write_table(_table(new), hidden)
        hidden.replace(self.directory / name)
        self._last[store_id] = new[-1].seq

    def _last_seq(self, store_id: str) -> int:
        if store_id not in self._last:
            self.directory.mkdir(parents=True, exist_ok=True)
            for left_over in self.directory.glob(".alerts-*.parquet.tmp"):
                left_over.unlink()
            found = [_NAME.fullmatch(path.name) for path in self.directory.iterdir()]
            ends = [int(match[3]) for match in found if match and match[1] == store_id]
            self._last[store_id] = max(ends, default=0)
        return self._last[store_id]


def _table(outgoing: Sequence[Outgoing]) -> pa.Table:
    records = [record_of(each.transition.fields) for each in outgoing]
    schema = pa.schema([(name, _type(name)) for name in records[0]])
    return pa.Table.from_pylist(records, schema=schema)
