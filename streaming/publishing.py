"""From a collector's journal to the transport topic.

The collector writes every round to its journal and never waits; another thread publishes the files
in their order. So the buffer is on disk and bounded, a restart goes on where it was, and a
transport that is away delays nobody.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.publishing import Publisher
from tidestaff.streaming.sources.collecting import Collecting, number_of
from tidestaff.streaming.sources.row_files import RowFileError, batches, listed, to_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidestaff.connectors.publishing import Transport
    from tidestaff.connectors.wire import Row
    from tidestaff.streaming.settings import Cluster

MARK: Final = "published"
KEPT_FILES: Final = 20
"""Of what is published already, for the links of the next start."""
_LOOK_EVERY_S: Final = 0.2
_LAST_TRY_S: Final = 10.0


def now_ms() -> int:
    return int(time.time() * 1_000)


class Publishing(threading.Thread):
    """One cluster: its collector, its journal, and what is published of it."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        transport: Transport,
        *,
        buffer_rounds: int,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(name=f"publishing-{cluster.name}", daemon=True)
        self.cluster, self._say = cluster, say
        folder.mkdir(parents=True, exist_ok=True)
        self._mark = folder / MARK
        self._sent = self._read_mark()
        self.collecting = Collecting(cluster, folder, self._sent)
        self.publisher = Publisher(
            transport,
            cluster.name,
            now_ms=now_ms,
            chance=random.Random(),  # noqa: S311 - spreads load, keeps no secret
        )
        self.rounds = 0
        self.error: BaseException | None = None
        self._buffer_rounds = buffer_rounds
        self._stopped = threading.Event()
        self._said: str | None = None

    @property
    def waiting(self) -> int:
        """Rounds that are not published yet."""
        return sum(number_of(name) > self._sent for name in listed(self.collecting.journal.folder))

    def stop(self) -> None:
        self.collecting.stop()
        self._stopped.set()

    def run(self) -> None:
        self.collecting.start()
        try:
            while not self._stopped.wait(0 if self._step() else _LOOK_EVERY_S):
                if self.collecting.error is not None or self._is_done():
                    break
            self._last_words()
            self.error = self.collecting.error
        except BaseException as error:  # noqa: BLE001 - told by whoever joins the thread
            self.error = error
        finally:
            self.collecting.stop()
            self.publisher.close()

    def _is_done(self) -> bool:
        return self.collecting.ended and not self.waiting

    def _last_words(self) -> None:
        """What was collected before the end is published, if the transport takes it now."""
        self.collecting.join(_LAST_TRY_S)
        until = time.monotonic() + _LAST_TRY_S
        while self.waiting and self._step() and time.monotonic() < until:
            pass

    def _step(self) -> bool:
        """Publish the next round; False where there is none, or where it has to wait."""
        folder = self.collecting.journal.folder
        waiting = [name for name in listed(folder) if number_of(name) > self._sent]
        for name in waiting[: max(0, len(waiting) - self._buffer_rounds)]:
            self.publisher.lose(len(_rows(folder / name)))
            self._go_on_after(name)
        waiting = waiting[-self._buffer_rounds :]
        if not waiting:
            return False
        if not self.publisher.publish(_rows(folder / waiting[0])):
            self._tell(self.publisher.problem)
            return False
        self._tell(None)
        self._go_on_after(waiting[0])
        self.rounds += 1
        return True

    def _go_on_after(self, name: str) -> None:
        self._sent = number_of(name)
        partial = self._mark.with_name(f".{MARK}.part")
        partial.write_text(f"{self._sent}\n", encoding="ascii")
        partial.replace(self._mark)
        self.collecting.journal.forget(self._sent - KEPT_FILES)

    def _read_mark(self) -> int:
        try:
            text = self._mark.read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return 0
        # What is published twice does no harm.
        return int(text) if text.isdigit() else 0

    def _tell(self, problem: str | None) -> None:
        """On the terminal: when it begins, and when it is over."""
        if problem is not None and self._said is None:
            self._say(f"{self.cluster.name}: {problem}; what is seen meanwhile is kept")
        if problem is None and self._said is not None:
            self._say(f"{self.cluster.name}: published again")
        self._said = problem


def _rows(path: Path) -> list[Row]:
    try:
        return [row for batch in batches(path) for row in to_rows(batch)]
    except (RowFileError, FileNotFoundError):
        # A file that was torn by a crash: the links between rows show what is missing.
        return []
