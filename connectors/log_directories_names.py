"""What the names in a log directory say: replicas, what is marked, and what is not Kafka's."""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.log_directories_files import refuse
from tidestaff.consistency.checkpoint_files import (
    OTHER_DIRECTORIES,
    DirectoryKind,
    PartitionDirectory,
    parse_partition_directory,
)
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA_LOG: Final = "__cluster_metadata-0"
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Names(NamedTuple):
    """The directories of replicas by partition; how many are marked -delete, -future or -stray;
    what should not be there, with the reason; links in the place of replicas; and plain files."""

    partitions: Mapping[TopicPartition, str]
    marked: Mapping[DirectoryKind, int]
    strange: Mapping[str, str]
    links: frozenset[str]
    files: frozenset[str]


def names_of(directory: int, place: str) -> Names:
    """KRaft's metadata log is left alone, and so is what Kafka keeps beside the partitions."""
    partitions: dict[TopicPartition, str] = {}
    marked: Counter[DirectoryKind] = Counter()
    strange: dict[str, str] = {}
    links: set[str] = set()
    files: set[str] = set()
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name == METADATA_LOG or entry.name in OTHER_DIRECTORIES:
                    continue
                if entry.is_symlink():
                    links.update({entry.name} if _partition(entry.name) else ())
                elif not entry.is_dir(follow_symlinks=False):
                    files.add(entry.name)
                elif (found := _partition(entry.name)) is None:
                    strange[shown_name(entry.name)] = (
                        "its name is not a partition's: a broker does not start over it"
                    )
                elif found.kind is DirectoryKind.LOG:
                    partitions[TopicPartition(found.topic, found.partition)] = entry.name
                else:
                    marked[found.kind] += 1
    except OSError as error:
        refuse(place, error)
    return Names(partitions, dict(marked), strange, frozenset(links), frozenset(files))


@lru_cache(maxsize=1 << 14)
def _partition(name: str) -> PartitionDirectory | None:
    """As Kafka names them itself: T-007 would be another directory than T-7."""
    try:
        found = parse_partition_directory(name)
    except FormatError:
        return None
    if found.kind is DirectoryKind.LOG:
        own = str(TopicPartition(found.topic, found.partition)) == name
        return found if own and found.partition >= 0 and _TOPIC.fullmatch(found.topic) else None
    return found


def replica_named(name: str) -> TopicPartition | None:
    """Whose directory it is by its name; None: nobody's, or a marked one."""
    found = _partition(name)
    if found is None or found.kind is not DirectoryKind.LOG:
        return None
    return TopicPartition(found.topic, found.partition)


def shown_name(name: str) -> str:
    """A file name that is no text is shown with its bytes escaped."""
    return name.encode("utf-8", errors="backslashreplace").decode("utf-8")
