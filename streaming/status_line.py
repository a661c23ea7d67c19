"""What the job is doing, in one line: kept in place on a terminal, else said once a minute."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

SAID_EVERY_S: Final = 60.0
_WIDTH: Final = 100


class StatusLine:
    """Writes to `out`, which is standard error. `below` wraps a stream that shares the terminal:
    the line makes way for whatever is written there."""

    def __init__(self, out: TextIO, *, now: Callable[[], float] = time.monotonic) -> None:
        self.out, self._now = out, now
        self.terminal = out.isatty()
        self._shown = ""
        self._said_at = -SAID_EVERY_S
        self._lock = threading.RLock()

    def say(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            self._clear()
            self.out.write(f"tidestaff: {text}\n")
            self.out.flush()

    def show(self, text: str) -> None:
        """The state of things; only the newest matters."""
        with self._lock:
            if self.terminal:
                self._clear()
                self._shown = text[:_WIDTH]
                self.out.write(self._shown)
                self.out.flush()
            elif self._now() - self._said_at >= SAID_EVERY_S:
                self._said_at = self._now()
                self.out.write(f"tidestaff: {text}\n")
                self.out.flush()

    def clear(self) -> None:
        with self._lock:
            self._clear()
            self.out.flush()

    def _clear(self) -> None:
        if self._shown:
            self.out.write("\r\x1b[K")
            self._shown = ""

    def below(self, stream: TextIO) -> Making:
        return Making(stream, self)


class Making:
    """A stream in front of which the status line gives way."""

    def __init__(self, stream: TextIO, status: StatusLine) -> None:
        self._stream, self._status = stream, status

    def write(self, text: str) -> int:
        self._status.clear()
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    @property
    def encoding(self) -> str:
        return self._stream.encoding
