"""The two stores as the page reads them, and whether anything in them has changed."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.alerts.reading import AlertReader
from tidestaff.streaming.checkpoint import running
from tidestaff.streaming.view.reading import StateReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidestaff.streaming.settings import Settings

_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Places:
    """Where a job keeps what it knows, and the clusters it was told to watch."""

    work: Path
    alerts: Path
    state: Path
    silence_ms: int = 60_000
    clusters: tuple[str, ...] = ()

    @staticmethod
    def of(settings: Settings) -> Places:
        return Places(
            settings.work,
            settings.store_path,
            settings.state_path,
            settings.operator.silence_ms,
            tuple(cluster.name for cluster in settings.clusters),
        )


class Stores:
    """Opens a reader for each request: that costs a fraction of a millisecond, and a store that was
    replaced meanwhile is noticed."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._pulse = Pulse((places.alerts, places.state))

    @contextmanager
    def alerts(self) -> Iterator[AlertReader]:
        reader = AlertReader(self.places.alerts)
        try:
            yield reader
        finally:
            reader.close()

    @contextmanager
    def state(self) -> Iterator[StateReader]:
        reader = StateReader(self.places.state)
        try:
            yield reader
        finally:
            reader.close()

    def job(self) -> str | None:
        """Who runs the job; None if nobody does."""
        return running(self.places.work)

    def version(self) -> str:
        """Another text whenever a store has changed."""
        return self._pulse.now()


class Pulse:
    """Looks at the stores at most twice a second, however many pages are open."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[int, sqlite3.Connection]] = {}
        self._looked = 0.0
        self._text = ""

    def now(self) -> str:
        with self._lock:
            if time.monotonic() - self._looked >= _LOOK_S:
                self._text = "-".join(self._version(path) for path in self._paths)
                self._looked = time.monotonic()
            return self._text

    def _version(self, path: Path) -> str:
        try:
            inode = path.stat().st_ino
            known = self._known.get(path)
            if known is None or known[0] != inode:
                if known is not None:
                    known[1].close()
                connection = sqlite3.connect(
                    f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False
                )
                known = self._known[path] = inode, connection
            return f"{inode}.{known[1].execute('PRAGMA data_version').fetchone()[0]}"
        except (OSError, sqlite3.Error):
            return "none"

    def close(self) -> None:
        with self._lock:
            for _, connection in self._known.values():
                connection.close()
            self._known = {}
