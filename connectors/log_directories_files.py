"""Files of a log directory, opened to be read and for nothing else.

No symbolic link is followed below a log directory, nothing that is not a plain file is opened to
the end (a pipe would never answer), and no file is read beyond a size Kafka never writes.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from tidestaff.connectors.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_TEXT: Final = 1 << 26
_NO_TRACE: Final = getattr(os, "O_NOATIME", 0)
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GONE: Final = frozenset({errno.ENOENT, errno.ESTALE})
_LINK: Final = frozenset({errno.ELOOP, errno.EMLINK})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM})


class FileGoneError(ConnectorError):
    """There is no such file: never was, or it was removed meanwhile."""

    retriable = True

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} is not there", "look whether the broker has moved or removed it")
        self.place = place


class FileUnreadableError(ConnectorError):
    """The file is there and cannot be read. `failing`: it is the disk's fault, not ours."""

    def __init__(self, place: str, cause: str, remedy: str, *, failing: bool = False) -> None:
        super().__init__(f"{place} cannot be read ({cause})", remedy)
        self.place, self.cause, self.failing = place, cause, failing


def refuse(place: str, error: OSError) -> NoReturn:
    """The named error for what the system said."""
    cause = error.strerror or type(error).__name__
    if error.errno in _GONE:
        raise FileGoneError(place) from None
    if error.errno in _LINK:
        raise a_link(place) from None
    if error.errno == errno.ENOTDIR:
        raise _strange(place, "not a directory") from None
    if error.errno in _DENIED:
        remedy = "run the agent as the broker's user, or let its user read the log directories"
        raise FileUnreadableError(place, cause, remedy) from None
    if error.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "let the agent open more files (ulimit -n)"
        raise FileUnreadableError(place, cause, remedy) from None
    remedy = "look at the disk and at the system's log"
    raise FileUnreadableError(place, cause, remedy, failing=True) from None


def a_link(place: str) -> FileUnreadableError:
    return _strange(place, "a symbolic link")


def _strange(place: str, found: str) -> FileUnreadableError:
    return FileUnreadableError(
        place, found, "Kafka makes no such thing: see who did, the agent does not follow it"
    )


@contextmanager
def opened(name: str, directory: int | None, place: str) -> Iterator[int]:
    """A plain file of an open directory. Where the system lets us, reading leaves no trace in its
    time of access, which also makes many small reads cheaper."""
    try:
        try:
            descriptor = os.open(name, _FLAGS | _NO_TRACE, dir_fd=directory)
        except PermissionError:  # the file is somebody else's; or not to be read at all
            descriptor = os.open(name, _FLAGS, dir_fd=directory)
    except OSError as error:
        refuse(place, error)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _strange(place, "not a plain file")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_directory(name: str, parent: int | None, place: str) -> Iterator[int]:
    """A directory, held open: what is read through it stays its own, whatever it is renamed to.

    Without a parent the name is the operator's, who may well have given a link.
    """
    flags = _FLAGS | os.O_DIRECTORY
    try:
        descriptor = os.open(
            name, flags if parent is not None else flags & ~os.O_NOFOLLOW, dir_fd=parent
        )
    except OSError as error:
        if error.errno == errno.ENOTDIR and parent is not None and _is_link(name, parent):
            raise a_link(place) from None
        refuse(place, error)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_link(name: str, parent: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def read_text(name: str, directory: int, place: str, *, largest: int = LARGEST_TEXT) -> str:
    """The whole file. Bytes that are no UTF-8 become marks, as they do where Java reads them."""
    with opened(name, directory, place) as descriptor:
        parts, size = [], 0
        try:
            while chunk := os.read(descriptor, 1 << 16):
                parts.append(chunk)
                size += len(chunk)
                if size > largest:
                    raise FileUnreadableError(
                        place, f"more than {largest} bytes", "Kafka writes no such file: look at it"
                    )
        except OSError as error:
            refuse(place, error)
    return b"".join(parts).decode("utf-8", errors="replace")


def names_in(directory: int, place: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError as error:
        refuse(place, error)
