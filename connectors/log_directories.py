"""Everything the log directories of one broker hold, read from the files and never written.

Files vanish, rotate and are replaced while they are read, and some cannot be read at all: each such
thing becomes a problem that names its place, and the rest goes on.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors import log_directories_problems as tell
from tidestaff.connectors.disk_replica import DiskReplica
from tidestaff.connectors.log_directories_files import (
    FileGoneError,
    FileUnreadableError,
    a_link,
    opened_directory,
)
from tidestaff.connectors.log_directories_names import names_of, replica_named
from tidestaff.connectors.log_directories_replica import SMALL_TEXT, FileReader, ReplicaReader
from tidestaff.connectors.torn_tails import breaks_off
from tidestaff.consistency.checkpoint_files import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    DirectoryKind,
    MetaProperties,
    parse_meta_properties,
    parse_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from tidestaff.connectors.broker_health import Problem
    from tidestaff.connectors.log_directories_names import Names
    from tidestaff.consistency.model import TopicPartition

_LISTED_WITHIN_S: Final = 60.0
"""How old a partition without a watermark entry must be: they are written every five seconds."""


class LogDirectory(NamedTuple):
    """One log directory. Offsets are the checkpointed ones, which lag; without a file there are
    none, and None is a file that could not be read."""

    path: str
    online: bool
    meta: MetaProperties | None = None
    clean_shutdown: bool = False
    high_watermarks: Mapping[TopicPartition, int] | None = None
    log_starts: Mapping[TopicPartition, int] | None = None
    recovery_points: Mapping[TopicPartition, int] | None = None
    cleaner_offsets: Mapping[TopicPartition, int] | None = None
    partitions: int = 0
    marked: Mapping[DirectoryKind, int] = {}


class Disk(NamedTuple):
    """What was found. `others` are replicas on disk that were not asked for; `unread` those that
    are there by their names, asked for or not, and cannot be looked into, why."""

    directories: tuple[LogDirectory, ...]
    replicas: dict[TopicPartition, DiskReplica]
    others: tuple[TopicPartition, ...]
    problems: tuple[Problem, ...]
    unread: Mapping[TopicPartition, str] = {}


class LogDirectories:
    """Reads the log directories of one broker, as often as asked."""

    def __init__(
        self,
        paths: Sequence[str],
        now_ms: Callable[[], int],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._paths, self._now_ms, self._sleep = tuple(paths), now_ms, sleep
        self._replica_reader = ReplicaReader()
        self._held_by: dict[TopicPartition, str] = {}

    def place_of(self, partition: TopicPartition) -> str | None:
        """The directory of a replica that was listed; no other text ever becomes a path."""
        held = self._held_by.get(partition)
        return None if held is None else f"{held}/{partition}"

    def read(self, wanted: Container[TopicPartition] | None, *, log_ends: bool) -> Disk:
        """The wanted replicas (None: all), checkpoints first, lineages last."""
        files = FileReader(tell.Problems(), self._sleep)
        problems = files.problems
        found: list[LogDirectory] = []
        names: dict[str, Names] = {}
        for path in self._paths:
            directory, held = self._directory(path, files)
            found.append(directory)
            if held is not None:
                names[path] = held
        unread = _linked(names)
        places = _places(names, problems, unread)
        replicas: dict[TopicPartition, DiskReplica] = {}
        for directory in found:
            mine = [
                partition
                for partition, path in places.items()
                if path == directory.path and (wanted is None or partition in wanted)
            ]
            if mine:
                self._replicas(directory, mine, replicas, unread, files, log_ends=log_ends)
        self._remember(found, names, places, wanted, replicas)
        others = () if wanted is None else tuple(p for p in places if p not in wanted)
        return Disk(tuple(found), replicas, others, problems.told(), unread)

    def _remember(
        self,
        found: Sequence[LogDirectory],
        names: Mapping[str, Names],
        places: Mapping[TopicPartition, str],
        wanted: Container[TopicPartition] | None,
        replicas: dict[TopicPartition, DiskReplica],
    ) -> None:
        """A directory that is offline lists nothing: what it held is known from before."""
        offline = {each.path for each in found if not each.online}
        for partition, path in self._held_by.items():
            asked = wanted is None or partition in wanted
            if path in offline and asked and partition not in places:
                at_ms = self._now_ms()
                replicas[partition] = DiskReplica(partition, path, online=False, read_at_ms=at_ms)
        self._held_by = {
            **{p: path for p, path in self._held_by.items() if path not in names},
            **places,
        }
        self._replica_reader.forget_all_but(places)

    # -- one log directory

    def _directory(self, path: str, files: FileReader) -> tuple[LogDirectory, Names | None]:
        problems = files.problems
        try:
            with opened_directory(path, None, path) as directory:
                names = names_of(directory, path)
                found = self._checkpoints(directory, path, names, files)
                if found.high_watermarks is not None:
                    self._missing_entries(directory, path, names, found, problems)
        except FileGoneError as error:
            problems.log_dir_offline(path, error)
            return LogDirectory(path, online=False), None
        except FileUnreadableError as error:
            problems.log_dir_unreadable(path, error)
            return LogDirectory(path, online=not error.failing), None
        for name in names.links:
            problems.unreadable(f"{path}/{name}", a_link(f"{path}/{name}"), replica_named(name))
        for name, reason in names.strange.items():
            problems.stray(f"{path}/{name}", reason)
        return found, names

    def _checkpoints(
        self, directory: int, path: str, names: Names, files: FileReader
    ) -> LogDirectory:
        def offsets(name: str) -> dict[TopicPartition, int] | None:
            found = files.parsed(name, directory, path, parse_offsets)
            return (found.value or {}) if found.readable else None

        said = files.parsed(
            META_PROPERTIES, directory, path, parse_meta_properties, largest=SMALL_TEXT
        )
        return LogDirectory(
            path,
            online=True,
            meta=said.value,
            clean_shutdown=CLEAN_SHUTDOWN in names.files,
            log_starts=offsets(LOG_STARTS),
            high_watermarks=offsets(HIGH_WATERMARKS),
            recovery_points=offsets(RECOVERY_POINTS),
            cleaner_offsets=offsets(CLEANER_OFFSETS),
            partitions=len(names.partitions),
            marked=names.marked,
        )

    def _missing_entries(
        self,
        directory: int,
        path: str,
        names: Names,
        found: LogDirectory,
        problems: tell.Problems,
    ) -> None:
        listed = found.high_watermarks or {}
        missing = [p for p in names.partitions if p not in listed]
        if not missing:
            return
        try:
            written = os.stat(HIGH_WATERMARKS, dir_fd=directory, follow_symlinks=False).st_mtime
        except OSError:
            written = self._now_ms() / 1_000
        old = [
            partition
            for partition in missing
            if _made_before(directory, names.partitions[partition], written - _LISTED_WITHIN_S)
        ]
        if old:
            problems.entries_missing(f"{path}/{HIGH_WATERMARKS}", sorted(old))

    # -- replicas

    def _replicas(
        self,
        held: LogDirectory,
        partitions: Sequence[TopicPartition],
        into: dict[TopicPartition, DiskReplica],
        unread: dict[TopicPartition, str],
        files: FileReader,
        *,
        log_ends: bool,
    ) -> None:
        try:
            with opened_directory(held.path, None, held.path) as parent:
                for partition in partitions:
                    place = f"{held.path}/{partition}"
                    try:
                        into[partition] = self._replica(
                            parent, held, partition, files, log_ends=log_ends
                        )
                    except FileGoneError:
                        continue  # deleted or moved away meanwhile
                    except FileUnreadableError as error:
                        files.problems.unreadable(place, error, partition)
                        unread[partition] = error.reason
        except FileGoneError as error:
            files.problems.log_dir_offline(held.path, error)
            unread.update((each, error.reason) for each in partitions if each not in into)
        except FileUnreadableError as error:
            files.problems.log_dir_unreadable(held.path, error)
            unread.update((each, error.reason) for each in partitions if each not in into)

    def _replica(
        self,
        parent: int,
        held: LogDirectory,
        partition: TopicPartition,
        files: FileReader,
        *,
        log_ends: bool,
    ) -> DiskReplica:
        found = self._replica_reader.read(parent, held.path, partition, files, log_ends=log_ends)
        start = (held.log_starts or {}).get(partition)
        end, watermark = found.broken or found.end, (held.high_watermarks or {}).get(partition)
        flushed = (held.recovery_points or {}).get(partition)
        broken = found.broken
        if found.end is not None and breaks_off(parent, partition, found.end, watermark, flushed):
            broken = found.end
        if end is not None:
            first = end.log_start_offset
            start = first if start is None else max(start, first)
        return DiskReplica(
            partition,
            held.path,
            topic_id=found.topic_id,
            log_start_offset=start,
            high_watermark=watermark,
            recovery_point=flushed,
            log_end_offset=None if found.end is None else found.end.log_end_offset,
            lineage=found.lineage,
            read_at_ms=self._now_ms(),
            cleaner_offset=(held.cleaner_offsets or {}).get(partition),
            broken_at=None if broken is None else broken.log_end_offset,
            size=None if end is None else end.size,
            cleaner_known=held.cleaner_offsets is not None,
        )


def _linked(names: Mapping[str, Names]) -> dict[TopicPartition, str]:
    """Links are not followed; what one stands for is not read."""
    return {
        partition: a_link(f"{path}/{name}").reason
        for path, held in names.items()
        for name in held.links
        if (partition := replica_named(name)) is not None
    }


def _places(
    names: Mapping[str, Names], problems: tell.Problems, unread: dict[TopicPartition, str]
) -> dict[TopicPartition, str]:
    """Which directory holds which partition. One that two hold is neither's: Kafka would not start,
    or a move between directories ended while we looked."""
    found: dict[TopicPartition, str] = {}
    twice: set[TopicPartition] = set()
    for path, held in names.items():
        for partition in held.partitions:
            if partition in found:
                twice.add(partition)
                why = f"{found[partition]} holds {partition} as well: a broker does not start so"
                problems.stray(f"{path}/{partition}", why, partition)
                unread[partition] = why
            found[partition] = path
    return {partition: path for partition, path in found.items() if partition not in twice}


def _made_before(directory: int, name: str, limit_s: float) -> bool:
    """By the oldest file inside: partition.metadata is written once, at the beginning."""
    try:
        with opened_directory(name, directory, name) as own, os.scandir(own) as entries:
            times = [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
    except (FileGoneError, FileUnreadableError, OSError):
        return False
    return bool(times) and min(times) < limit_s
