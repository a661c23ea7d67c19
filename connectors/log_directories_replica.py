"""One replica by the files of its directory, and files that are read as what they should hold."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from tidestaff.connectors.log_directories_files import (
    LARGEST_TEXT,
    FileGoneError,
    FileUnreadableError,
    opened_directory,
    read_text,
)
from tidestaff.connectors.segments import Ending
from tidestaff.connectors.segments_in_log import log_end
from tidestaff.consistency.checkpoint_files import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    parse_leader_epochs,
    parse_partition_metadata,
)
from tidestaff.consistency.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from tidestaff.connectors.log_directories_problems import Problems
    from tidestaff.connectors.segments_in_log import LogEnd
    from tidestaff.consistency.model import Lineage, TopicPartition

    Identity = tuple[int, ...] | None

T = TypeVar("T")

SMALL_TEXT: Final = 1 << 16
_EPOCHS_TEXT: Final = 1 << 22
_AGAIN_AFTER_S: Final = 0.02
_TIMES: Final = 2


@dataclass(frozen=True, slots=True)
class Said(Generic[T]):
    """A file's content; None where there is no such file. `readable`: it was not refused."""

    value: T | None
    readable: bool = True


class FileReader:
    """Reads a file and takes it apart; what is wrong with it becomes a problem."""

    def __init__(self, problems: Problems, sleep: Callable[[float], None] = time.sleep) -> None:
        self.problems, self._sleep = problems, sleep

    def parsed(
        self,
        name: str,
        directory: int,
        folder: str,
        parse: Callable[[str, str], T],
        *,
        largest: int = LARGEST_TEXT,
        of: TopicPartition | None = None,
    ) -> Said[T]:
        """A file that makes no sense is read once more: a copy may be under way."""
        place = f"{folder}/{name}"
        for turn in range(_TIMES):
            try:
                return Said(parse(read_text(name, directory, place, largest=largest), place))
            except FileGoneError:
                return Said(None)
            except FileUnreadableError as error:
                self.problems.unreadable(place, error, of)
                return Said(None, readable=False)
            except FormatError as error:
                if turn + 1 == _TIMES:
                    self.problems.malformed(place, error, of)
                    return Said(None, readable=False)
                self._sleep(_AGAIN_AFTER_S)
        raise AssertionError("the last turn returns")


class ReplicaFiles(NamedTuple):
    """What the small files of one replica say, and where its log ends (None: not asked for, or not
    as one may: `broken`)."""

    topic_id: str | None
    lineage: Lineage | None
    end: LogEnd | None = None
    broken: LogEnd | None = None


class _Kept(NamedTuple):
    """What was read of two files, and which files they were: Kafka writes beside and renames, so
    another content is another file."""

    identities: tuple[Identity, Identity]
    files: ReplicaFiles


class ReplicaReader:
    """Reads replicas as often as asked, and files that have not changed only once."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, TopicPartition], _Kept] = {}
        self._ends: dict[TopicPartition, LogEnd] = {}

    def forget_all_but(self, present: Container[TopicPartition]) -> None:
        self._kept = {key: kept for key, kept in self._kept.items() if key[1] in present}
        self._ends = {
            partition: end for partition, end in self._ends.items() if partition in present
        }

    def read(
        self,
        parent: int,
        path: str,
        partition: TopicPartition,
        files: FileReader,
        *,
        log_ends: bool,
    ) -> ReplicaFiles:
        """Checkpoints were read before: now the log's end, then the lineage. May raise that the
        directory is gone or cannot be read."""
        kept = self._kept.get((path, partition))
        if kept is not None and not log_ends and kept.identities == _identities(parent, partition):
            return kept.files
        place = f"{path}/{partition}"
        with opened_directory(str(partition), parent, place) as directory:
            end = broken = None
            if log_ends:
                end, broken = self._log_end(directory, partition, place, files.problems)
            identities = _identities_in(directory)
            if kept is not None and kept.identities == identities:
                return kept.files._replace(end=end, broken=broken)
            said = files.parsed(
                *(PARTITION_METADATA, directory, place, parse_partition_metadata),
                largest=SMALL_TEXT,
                of=partition,
            )
            epochs = files.parsed(
                *(LEADER_EPOCHS, directory, place, parse_leader_epochs),
                largest=_EPOCHS_TEXT,
                of=partition,
            )
        found = ReplicaFiles(None if said.value is None else said.value.topic_id, epochs.value)
        self._kept.pop((path, partition), None)
        if said.readable and epochs.readable:
            self._kept[path, partition] = _Kept(identities, found)
        return found._replace(end=end, broken=broken)

    def _log_end(
        self, directory: int, partition: TopicPartition, place: str, problems: Problems
    ) -> tuple[LogEnd | None, LogEnd | None]:
        """Where the log ends; or else where it breaks off."""
        try:
            end = log_end(directory, place, self._ends.get(partition))
        except FileGoneError:
            return None, None
        except FileUnreadableError as error:
            problems.unreadable(error.place, error, partition)
            return None, None
        if end is None:
            self._ends.pop(partition, None)
            return None, None
        self._ends[partition] = end
        if problems.log_tail(place, end, partition):
            return end, None
        return None, end if end.end.ending is Ending.CORRUPT else None


def _identities(parent: int, partition: TopicPartition) -> tuple[Identity, Identity]:
    """Looked up by name; both being the files that were read through one open directory, they
    belong together still."""
    return (
        _identity(f"{partition}/{PARTITION_METADATA}", parent),
        _identity(f"{partition}/{LEADER_EPOCHS}", parent),
    )


def _identities_in(directory: int) -> tuple[Identity, Identity]:
    return _identity(PARTITION_METADATA, directory), _identity(LEADER_EPOCHS, directory)


def _identity(name: str, directory: int) -> Identity:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
