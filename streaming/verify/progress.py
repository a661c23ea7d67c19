"""A bar for terminals: share done, rate, time left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from tidestaff.streaming.verify.running import Progress

_WIDTH: Final = 24
_EVERY_S: Final = 0.2


class Bar:
    """Written to a terminal only; elsewhere it is silent."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._on = stream.isatty()
        self._next = 0.0

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if self._on and now >= self._next:
            self._next = now + _EVERY_S
            self._stream.write(f"\r\x1b[K{line(progress)}")
            self._stream.flush()

    def end(self) -> None:
        if self._on:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def line(progress: Progress) -> str:
    filled = int(progress.share * _WIDTH)
    bar = "#" * filled + "-" * (_WIDTH - filled)
    if progress.stopping:
        return f"[{bar}] {progress.share:4.0%}  ends after this; Ctrl-C again: at once"
    parts = [f"[{bar}] {progress.share:4.0%}", f"{progress.done}/{progress.partitions} partitions"]
    if progress.bytes_done and progress.seconds:
        parts.append(f"{progress.bytes_done / progress.seconds / 1e6:,.0f} MB/s")
    elif progress.offsets_done and progress.seconds:
        parts.append(f"{progress.offsets_done / progress.seconds:,.0f} offsets/s")
    if 0.01 < progress.share < 1:
        parts.append(f"{_time(progress.seconds * (1 / progress.share - 1))} left")
    return "  ".join(parts)


def _time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
