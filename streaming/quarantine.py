"""Records that could not be read, as JSON lines in a few files that take turns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidestaff.streaming.alerts.batch import OutputRow


class Quarantine:
    """`path` is the newest file, `path.1` the one before. A batch that Spark repeats after a crash
    is written once."""

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self.path, self.max_bytes, self.files = path, max_bytes, files
        self._written: tuple[str, int] = ("", -1)

    def process_batch(self, query_id: str, batch_id: int, rows: Sequence[OutputRow]) -> None:
        records = [json.loads(payload) for kind, _, payload in rows if kind == "quarantine"]
        if records:
            self.write(query_id, batch_id, records)

    def last_batch(self, query_id: str) -> int | None:
        """The newest batch of this query that had something to be put aside."""
        last = self._written[1] if self._written[0] == query_id else self._last_batch(query_id)
        return None if last < 0 else last

    def set_back(self, query_id: str, batch_id: int) -> None:
        """Batches beyond this one are other ones when they come again."""
        self._written = query_id, batch_id

    def write(self, query_id: str, batch: int, records: Sequence[dict[str, Any]]) -> None:
        if self._written[0] != query_id:
            self._written = query_id, self._last_batch(query_id)
        if batch <= self._written[1]:
            return
        head = {"query": query_id, "batch": batch}
        lines = [json.dumps({**head, **record}) + "\n" for record in records]
        self._rotate()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        left = self.max_bytes
        with self.path.open("a", encoding="utf-8") as out:
            for line in lines:
                left -= len(line)
                if left < 0:
                    break
                out.write(line)
        self._written = query_id, batch

    def _rotate(self) -> None:
        if not self.path.is_file() or self.path.stat().st_size < self.max_bytes:
            return
        for number in range(self.files - 1, 0, -1):
            older = self._numbered(number)
            if older.is_file():
                older.replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))
        self._numbered(self.files).unlink(missing_ok=True)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _last_batch(self, query_id: str) -> int:
        for path in (self.path, self._numbered(1)):
            if path.is_file():
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                for line in reversed(lines[-1:]):
                    found = _parsed(line)
                    if found.get("query") == query_id:
                        return int(found.get("batch", -1))
        return -1


def _parsed(line: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return found
