"""Processes that outlive the command that started them, each known by its id and start time."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence

PIDS: Final = "pids"
_LOOK_EVERY_S: Final = 0.05
# They may outlive the object that started them, and be ended by another one: whoever looks after a
# process of ours collects it, so that none is left as a zombie or as a warning.
_STARTED: Final[dict[int, subprocess.Popen[bytes]]] = {}


class Engine(Protocol):
    """Where nodes run: as processes, or in containers."""

    def start(self, name: str, command: Sequence[str], log: Path) -> None: ...

    def running(self, name: str) -> bool: ...

    def signal(self, name: str, number: signal.Signals) -> None: ...

    def wait(self, name: str, within_s: float) -> bool:
        """Whether it has ended by then."""
        ...


class Processes:
    """The processes of one lab. An id is used only while it still belongs to the same process:
    ids are given out again, start times of the same id are not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / PIDS
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], log: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            child = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=log.parent,
                start_new_session=True,
            )
        self._children[name] = child
        _STARTED[child.pid] = child
        started = start_time(child.pid)
        text = json.dumps({"pid": child.pid, "started": started})
        # Read by other processes: whole or not at all.
        partial = self._file(name).with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(self._file(name))

    def running(self, name: str) -> bool:
        return self.pid(name) is not None

    def pid(self, name: str) -> int | None:
        child = self._children.get(name)
        if child is not None:
            return child.pid if _running(child) else None
        return live_pid(self._file(name))

    def signal(self, name: str, number: signal.Signals) -> None:
        pid = self.pid(name)
        if pid is not None:
            os.kill(pid, number)

    def wait(self, name: str, within_s: float) -> bool:
        until = time.monotonic() + within_s
        while self.running(name):
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _running(child: subprocess.Popen[bytes]) -> bool:
    if child.poll() is None:
        return True
    _STARTED.pop(child.pid, None)
    return False


def live_pid(file: Path) -> int | None:
    """The id that was written down there, if that very process still runs."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        pid, started = int(found["pid"]), found["started"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    now = start_time(pid)
    # Asked after the look at its state: one that ended before the look is collected by this.
    child = _STARTED.get(pid)
    if child is not None and not _running(child):
        return None
    return pid if now is not None and now == started else None


def start_time(pid: int) -> str | None:
    """In ticks since the machine started; None for a process that is not, or is only left to be
    collected by its parent."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is a name in brackets that may itself hold blanks and brackets.
    fields = text.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in "ZX" else started
