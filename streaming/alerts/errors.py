"""What can go wrong with the store: what failed, where, and what to do next."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class StoreError(Exception):
    """The alert store could not be used; `remedy` says what helps."""

    retriable = False

    def __init__(self, path: Path | str, problem: str, remedy: str) -> None:
        super().__init__(f"alert store {path}: {problem}; {remedy}")
        self.path, self.problem, self.remedy = str(path), problem, remedy


class StoreBusyError(StoreError):
    """Another process holds the store for longer than we wait."""

    retriable = True


class StoreFullError(StoreError):
    """No room on the disk."""

    retriable = True


class StoreCorruptError(StoreError):
    """The file is no store, or is damaged."""


class StoreUnreachableError(StoreError):
    """The file cannot be opened, read or written."""


class StoreVersionError(StoreError):
    """The store was written by a release that this one does not know."""


class StoreTakenError(StoreError):
    """Another job has taken the store over."""


class NoSuchAlertError(StoreError):
    """The alert a person named is not there, not the only one, or over."""


_BUSY: Final = "another process has it locked"
_FULL: Final = "the disk is full"
_CORRUPT: Final = "it is damaged or not an alert store"
_UNREACHABLE: Final = "it cannot be opened or written"
_REMEDIES: Final = {
    _BUSY: "end the command or backup that holds it, then try again",
    _FULL: "free some space on that file system; nothing of the batch was kept, it is repeated",
    _CORRUPT: (
        "move it aside together with its -wal and -shm files and start again (open alerts are "
        "raised anew; acknowledgements are lost), or restore a backup"
    ),
    _UNREACHABLE: "check that its directory exists, is writable by this user and not read-only",
}
_KINDS: Final[dict[str, tuple[type[StoreError], str]]] = {
    "SQLITE_BUSY": (StoreBusyError, _BUSY),
    "SQLITE_LOCKED": (StoreBusyError, _BUSY),
    "SQLITE_FULL": (StoreFullError, _FULL),
    "SQLITE_CORRUPT": (StoreCorruptError, _CORRUPT),
    "SQLITE_NOTADB": (StoreCorruptError, _CORRUPT),
}


def store_error(path: Path | str, error: sqlite3.Error) -> StoreError:
    """SQLite's error in words a person can act on."""
    name = getattr(error, "sqlite_errorname", "") or ""
    primary = "_".join(name.split("_")[:2])
    kind, problem = _KINDS.get(primary, (StoreUnreachableError, _UNREACHABLE))
    return kind(path, f"{problem} ({error})", _REMEDIES[problem])


@contextmanager
def told_as_store_errors(path: Path | str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(path, error) from error
