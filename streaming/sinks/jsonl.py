"""One JSON object a line, exactly the transition's own text.

What was written last is learnt from the file itself: a line that was cut short by a crash is
removed, and lines that stand at the end of the file already are not written again.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.sinks.sink import TAIL, SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from tidestaff.streaming.alerts.outbox import Outgoing

REMEDY: Final = "check that the directory exists, is writable and has room"
_BLOCK: Final = 1 << 16


class JsonLinesSink:
    """Appends to a file, which is rotated by size: FILE, FILE.1 (the one before), FILE.2 ..."""

    def __init__(
        self,
        path: Path | str,
        *,
        name: str = "jsonl",
        rotate_bytes: int = 100_000_000,
        keep_files: int = 5,
    ) -> None:
        self.name = name
        self.path = Path(path)
        self._rotate_bytes, self._keep_files = rotate_bytes, keep_files
        self._file: BinaryIO | None = None
        self._tail: OrderedDict[bytes, None] = OrderedDict()

    def deliver(self, outgoing: Sequence[Outgoing]) -> None:
        try:
            self._append([each.transition.text.encode() for each in outgoing])
        except OSError as error:
            # How much was written is not known: look again before the next attempt.
            self.close()
            problem = f"{self.path} cannot be written ({error.strerror or error})"
            raise SinkError(self.name, problem, REMEDY) from error

    def close(self) -> None:
        if self._file is not None:
            opened, self._file = self._file, None
            try:
                opened.close()
            except OSError as error:
                raise SinkError(self.name, f"{self.path}: {error.strerror}", REMEDY) from error

    def _append(self, lines: list[bytes]) -> None:
        opened = self._opened()
        new = [line for line in dict.fromkeys(lines) if line not in self._tail]
        if not new:
            return
        if opened.tell() >= self._rotate_bytes:
            opened = self._rotated()
        opened.write(b"".join(line + b"\n" for line in new))
        opened.flush()
        os.fsync(opened.fileno())
        self._remember(new)

    def _remember(self, lines: list[bytes]) -> None:
        for line in lines:
            self._tail[line] = None
        while len(self._tail) > TAIL:
            self._tail.popitem(last=False)

    def _opened(self) -> BinaryIO:
        if self._file is not None and not self._is_current(self._file):
            self.close()
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
            _cut_torn_line(self.path)
            self._file.seek(0, os.SEEK_END)
            self._tail.clear()
            self._remember(self._last_lines())
        return self._file

    def _is_current(self, opened: BinaryIO) -> bool:
        """Whether the name still means the file: somebody may have moved it away."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(opened.fileno()))
        except OSError:
            return False

    def _last_lines(self) -> list[bytes]:
        """The last TAIL lines, oldest first, of this file and those before it."""
        found: list[bytes] = []
        for number in range(self._keep_files + 1):
            path = self._older(number)
            if path.exists() and len(found) < TAIL:
                for line in _backwards(path):
                    found.append(line)
                    if len(found) >= TAIL:
                        break
        return found[::-1]

    def _older(self, number: int) -> Path:
        return self.path if number == 0 else self.path.with_name(f"{self.path.name}.{number}")

    def _rotated(self) -> BinaryIO:
        self.close()
        for number in range(self._keep_files - 1, -1, -1):
            if self._older(number).exists():
                self._older(number).replace(self._older(number + 1))
        return self._opened()


def _cut_torn_line(path: Path) -> None:
    """Drop what stands after the last line end: a crash came in between."""
    size = path.stat().st_size
    with path.open("rb+") as opened:
        end = size
        while end > 0:
            start = max(0, end - _BLOCK)
            opened.seek(start)
            newline = opened.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            opened.truncate(end)


def _backwards(path: Path) -> Iterator[bytes]:
    """Whole lines from the last to the first."""
    with path.open("rb") as opened:
        end = opened.seek(0, os.SEEK_END)
        rest = b""
        while end > 0:
            start = max(0, end - _BLOCK)
            opened.seek(start)
            first, *lines = (opened.read(end - start) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line)
            rest, end = first, start
        if rest:
            yield rest
