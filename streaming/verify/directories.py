"""Copies in log directories: of brokers on this host, copied, or mounted. Nothing is written."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.digest_files import RangeReader
from tidestaff.connectors.log_directories import LogDirectories
from tidestaff.connectors.pacing import ByteRate
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.verify.copies import (
    NO_ANSWER,
    PartitionCopies,
    Traffic,
    bytes_a_round,
    extent_of_files,
    is_compacted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidestaff.connectors.disk_replica import DiskReplica
    from tidestaff.consistency.batches import BatchMark, RangeDigest
    from tidestaff.consistency.model import BrokerId, TopicPartition
    from tidestaff.streaming.verify.copies import Asked

_BYTES_AT_ONCE: Final = 1 << 30
_CHECKED_AT_ONCE: Final = 1 << 26


def _now_ms() -> int:
    return int(time.time() * 1_000)


class DirectorySource:
    """Directories by broker: those with the same node.id belong to one, others have a number."""

    kind = "log directories"
    live = True
    at_once = 64
    marks_at_once = 64

    def __init__(
        self,
        paths: Sequence[str],
        *,
        bytes_a_second: float,
        compacted: Callable[[str], bool] = lambda _: False,
        check: bool = False,
    ) -> None:
        self.bytes_at_once = _CHECKED_AT_ONCE if check else _BYTES_AT_ONCE
        self.bytes_a_round = bytes_a_round(bytes_a_second if check else 0)
        self._compacted = compacted
        self._rate = ByteRate(bytes_a_second, time.monotonic, time.sleep)
        self.by_broker = _by_broker(paths)
        self._directories = {
            broker: LogDirectories(own, _now_ms) for broker, own in self.by_broker.items()
        }
        self._readers: dict[tuple[BrokerId, TopicPartition], RangeReader] = {}

    def partitions(self, wanted: Callable[[str], bool]) -> list[PartitionCopies]:
        found: dict[TopicPartition, PartitionCopies] = {}
        for broker, directories in self._directories.items():
            disk = directories.read(None, log_ends=True)
            for replica in disk.replicas.values():
                if wanted(replica.partition.topic):
                    self._add(broker, replica, found)
            for partition, why in disk.unread.items():
                if wanted(partition.topic):
                    _of(partition, found).unread.setdefault(broker, why)
        return [found[partition] for partition in sorted(found)]

    def again(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionCopies]:
        found: dict[TopicPartition, PartitionCopies] = {}
        for broker, directories in self._directories.items():
            disk = directories.read(partitions, log_ends=True)
            for replica in disk.replicas.values():
                self._add(broker, replica, found)
            for partition in partitions:
                if (broker, partition) in self._readers and partition not in disk.replicas:
                    why = disk.unread.get(partition, "its directory is not there any more")
                    _of(partition, found).unread.setdefault(broker, why)
        return found

    def _add(
        self,
        broker: BrokerId,
        replica: DiskReplica,
        found: dict[TopicPartition, PartitionCopies],
    ) -> None:
        partition = replica.partition
        mine = _of(partition, found)
        compacted = is_compacted(partition.topic, self._compacted)
        extent = extent_of_files(broker, replica, compacted=compacted)
        if isinstance(extent, str):
            mine.unread[broker] = extent
        else:
            mine.extents.append(extent)
            mine.bytes += replica.size or 0

    def digests(
        self, broker: BrokerId, asked: Asked, *, check: bool
    ) -> Mapping[TopicPartition, RangeDigest]:
        return {p: self._reader(broker, p).digest(offsets, check=check) for p, offsets in asked}

    def marks(self, broker: BrokerId, asked: Asked) -> Mapping[TopicPartition, Sequence[BatchMark]]:
        return {p: self._reader(broker, p).marks(offsets) for p, offsets in asked}

    def _reader(self, broker: BrokerId, partition: TopicPartition) -> RangeReader:
        place = self._directories[broker].place_of(partition)
        assert place is not None
        key = (broker, partition)
        return self._readers.setdefault(key, RangeReader(place, self._rate.wait))

    @property
    def traffic(self) -> Traffic:
        return Traffic(0, 0)

    def why_silent(self, broker: BrokerId, partition: TopicPartition) -> str:
        return NO_ANSWER

    @property
    def bytes_read(self) -> int:
        return self._rate.passed

    def close(self) -> None:
        """Nothing is held open."""


def _of(partition: TopicPartition, found: dict[TopicPartition, PartitionCopies]) -> PartitionCopies:
    return found.setdefault(partition, PartitionCopies(partition, []))


def _by_broker(paths: Sequence[str]) -> dict[BrokerId, list[str]]:
    found: dict[BrokerId, list[str]] = {}
    nameless: list[str] = []
    by_place: dict[str, str] = {}
    clusters: dict[str, str] = {}
    for path in paths:
        by_place.setdefault(os.path.realpath(path), path)
    for path in by_place.values():
        disk = LogDirectories([path], _now_ms).read(frozenset(), log_ends=False)
        (directory,) = disk.directories
        unread = [each for each in disk.problems if each.place == path]
        if not directory.online or unread:
            raise CommandError(
                f"{path}: {disk.problems[0].reason if disk.problems else 'cannot be read'}",
                "give log directories of brokers, as in log.dirs, one --log-dir for each",
            )
        broker = None if directory.meta is None else directory.meta.broker
        if directory.meta is None and not directory.partitions:
            raise CommandError(
                f"{path}: neither meta.properties nor a partition is there",
                "give log directories of brokers, as in log.dirs, one --log-dir for each",
            )
        if directory.meta is not None and directory.meta.cluster_id is not None:
            clusters.setdefault(directory.meta.cluster_id, path)
        nameless += [path] if broker is None else []
        if broker is not None:
            found.setdefault(broker, []).append(path)
    if len(clusters) > 1:
        named = ", ".join(f"{path} ({each})" for each, path in clusters.items())
        raise CommandError(
            f"these are of different clusters, by their meta.properties: {named}",
            "give log directories of one cluster",
        )
    for path in nameless:
        number = next(n for n in range(1, len(paths) + 1) if n not in found)
        found[number] = [path]
    return dict(sorted(found.items()))
