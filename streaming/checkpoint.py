"""The checkpoint directory of the job: one job at a time, and how far it has come."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, Self

from tidestaff.streaming.commands.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

LOCK: Final = "job.lock"


class Folder(Protocol):
    """What is asked of a checkpoint: a pathlib.Path has it, and so has a folder of an object
    store."""

    @property
    def name(self) -> str: ...
    def __truediv__(self, name: str) -> Self: ...
    def is_dir(self) -> bool: ...
    def iterdir(self) -> Iterable[Self]: ...
    def read_text(self, encoding: str) -> str: ...
    def with_name(self, name: str) -> Self: ...
    def rename(self, target: Self) -> object: ...


class CheckpointLock:
    """Held while a job runs; the system frees it when the process ends, however it ends."""

    def __init__(self, work: Path) -> None:
        self.path = work / LOCK
        self._file: IO[str] | None = None

    def __enter__(self) -> CheckpointLock:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            who = file.read().strip() or "another process"
            file.close()
            raise CommandError(
                f"{self.path.parent}: {who} runs on this work directory already, and two jobs on "
                "one checkpoint would spoil it",
                "end it first, or give this job a directory of its own (key work_dir)",
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"tidestaff, process {os.getpid()} on {socket.gethostname()},")
        file.flush()
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._file is not None
        self._file.truncate(0)
        self._file.close()


def running(work: Path) -> str | None:
    """Who holds the lock of a work directory, None if nobody does."""
    try:
        with (work / LOCK).open("r", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return file.read().strip().rstrip(",") or "a process"
    except FileNotFoundError:
        pass
    return None


def planned(checkpoint: Folder) -> dict[str, Any]:
    """Up to where the job's own source was read at last.

    A batch that was planned is run before anything else, so it counts as read.
    """
    return _offset(checkpoint, _numbers(checkpoint / "offsets"))


def done(checkpoint: Folder) -> dict[str, Any]:
    """Up to where the job's own source has been through a complete batch."""
    return _offset(checkpoint, _numbers(checkpoint / "commits")[:1])


def _offset(checkpoint: Folder, numbers: list[int]) -> dict[str, Any]:
    """The first source of the newest entry that is whole."""
    for number in numbers:
        try:
            text = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        lines = text.splitlines()
        # The version, the batch's own data, then a line a source.
        if len(lines) >= 3 and lines[2].startswith("{"):
            found: dict[str, Any] = json.loads(lines[2])
            return found
    return {}


def _numbers(folder: Folder) -> list[int]:
    """Batches with an entry, newest first."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted((int(path.name) for path in found if path.name.isdigit()), reverse=True)


def newest(checkpoint: Folder, entries: str) -> int:
    """The newest batch that is planned (`offsets`) or done (`commits`), -1 where none is."""
    return max(_numbers(checkpoint / entries), default=-1)


def name_of(checkpoint: Folder) -> str | None:
    """The name of its query; None of a checkpoint that is not there, or has lost it."""
    try:
        return query_id(checkpoint)
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None


def put_aside(checkpoint: Folder, at_ms: int) -> str:
    """Under another name, which is returned: somebody may want to look at it."""
    name = f"{checkpoint.name}.aside-{at_ms}"
    checkpoint.rename(checkpoint.with_name(name))
    return name


def query_id(checkpoint: Folder) -> str:
    """The name that Spark gave the query when the checkpoint was made."""
    found = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))
    return str(found["id"])
