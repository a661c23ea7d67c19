"""The job's own Spark source: files of rows, be they a recording or the journal of a collector, and
the tick of the job's clock.

One source for all clusters: Spark refuses a checkpoint when the number of sources has changed, and
a cluster more or less must not cost the state of the others. Offsets are file names, so a repeated
batch reads the very same rows. Spark 4.0 asks a Python source for its latest offset without telling
where it is; so the job passes what the checkpoint says as an option, and this reader counts on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from tidestaff.connectors.wire import TICK, refused, signal
from tidestaff.streaming.codec import ROW_SCHEMA
from tidestaff.streaming.settings import Cluster, RecordingSource
from tidestaff.streaming.sources.collecting import KEPT_FILES, Collecting, number_of
from tidestaff.streaming.sources.row_files import (
    RowFileError,
    UnreadFileError,
    batches,
    first_ms,
    listed,
    to_arrow,
    writer_of,
)
from tidestaff.streaming.sources.steady_clock import SteadyClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME: Final = "tidestaff"
TICK_KEY: Final = "/tick"
TICK_SOURCE: Final = "tidestaff"
# The word makes Spark hide the value wherever it prints a plan.
CLUSTERS_OPTION: Final = "secret_clusters"
FOLDER_OPTION, AFTER_OPTION, TICK_OPTION = "journals", "after", "tick_ms"
SINCE_OPTION: Final = "since_ms"
ROUNDS_A_BATCH: Final = 20
TASKS: Final = 4
# No name of a cluster has it, and it comes after all that a name has.
_BETWEEN: Final = "|"

Offset = dict[str, Any]


class Files(InputPartition):
    """Files that one task reads, in this order, each with its cluster, and ticks."""

    def __init__(self, paths: Sequence[tuple[str, str]], ticks: Sequence[int] = ()) -> None:
        super().__init__(None)
        self.paths, self.ticks = tuple(paths), tuple(ticks)


class RowSource(DataSource):
    """`spark.readStream.format("tidestaff")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return ROW_SCHEMA

    def streamReader(self, schema: StructType) -> RowReader:  # noqa: N802 - Spark's name
        return RowReader(dict(self.options))


def readable(path: Path, cluster: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file. What is broken in it is put aside and said, and the rest goes on; a file
    that the system does not let us read is tried again."""
    try:
        yield from batches(path)
    except UnreadFileError:
        raise
    except RowFileError as error:
        row = refused(
            error.found,
            error.remedy,
            cluster=cluster,
            source=str(path.parent),
            subject=path.name,
            at_ms=first_ms(path.name),
        )
        yield to_arrow([row])


class RowReader(DataSourceStreamReader):
    """Nothing starts before the first offset is asked for: Spark also makes a reader where rows are
    read, and pickles it."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._feeds: dict[str, Feed] | None = None
        self._clock: SteadyClock | None = None
        self._after: Offset = json.loads(options.get(AFTER_OPTION, "{}"))
        self._tick_ms = int(options.get(TICK_OPTION, "0"))

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {}

    def latestOffset(self) -> Offset:  # noqa: N802
        feeds = self._started()
        found = dict(self._after)
        for name, feed in feeds.items():
            name_of_last = feed.next_after(str(found.get(name, "")))
            if name_of_last:
                found[name] = name_of_last
        if self._tick_ms:
            if self._clock is None:
                self._clock = SteadyClock()
                self._clock.go_on_from(int(found.get(TICK_KEY, 0)))
            now_ms = self._clock()
            found[TICK_KEY] = max(found.get(TICK_KEY, 0), now_ms - now_ms % self._tick_ms)
        self._after = dict(sorted(found.items()))
        return self._after

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        paths: list[tuple[str, str]] = []
        for name, feed in self._started().items():
            found_here = feed.paths(str(start.get(name, "")), str(end.get(name, "")))
            paths += [(name, path) for path in found_here]
        each = -(-len(paths) // TASKS) or 1
        found: list[InputPartition] = [
            Files(paths[at : at + each]) for at in range(0, len(paths), each)
        ]
        tick = end.get(TICK_KEY)
        if tick is not None and tick != start.get(TICK_KEY):
            found.append(Files((), [tick]))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Files)
        for cluster, path in partition.paths:
            yield from readable(Path(path), cluster)
        if partition.ticks:
            yield to_arrow(
                [
                    signal(TICK, cluster="", source=TICK_SOURCE, subject="", at_ms=at_ms)
                    for at_ms in partition.ticks
                ]
            )

    def commit(self, end: Offset) -> None:
        for name, feed in self._started().items():
            feed.forget(str(end.get(name, "")))

    def stop(self) -> None:
        for feed in (self._feeds or {}).values():
            feed.stop()

    def _started(self) -> dict[str, Feed]:
        if self._feeds is None:
            journals = Path(self._options[FOLDER_OPTION])
            clusters = [
                Cluster.model_validate(value)
                for value in json.loads(self._options[CLUSTERS_OPTION])
            ]
            since = self._options.get(SINCE_OPTION)
            since_ms = int(since) if since else None
            self._feeds = {
                cluster.name: feed_of(
                    cluster, journals, str(self._after.get(cluster.name, "")), since_ms
                )
                for cluster in clusters
            }
        return self._feeds


class Feed:
    """A folder of row files that is read in the order of its names.

    Several recorders may go on writing it, one for each cluster: each writes its own files in
    order, but one may end a file after another has ended a later one. So an offset is the newest
    file of each that was read, the newest of all first.
    """

    def __init__(self, folder: Path, files_a_batch: int) -> None:
        self.folder, self.files_a_batch = folder, files_a_batch

    def next_after(self, last: str) -> str:
        """Up to where the next batch reads; `last` itself where nothing is new."""
        read = _newest_by_writer(last)
        new = [name for name in self.names() if name > read.get(writer_of(name), "")]
        if not new:
            return last
        read |= {writer_of(name): name for name in new[: self.files_a_batch]}
        return _BETWEEN.join(sorted(read.values(), reverse=True))

    def names(self) -> list[str]:
        return listed(self.folder)

    def paths(self, start: str, end: str) -> list[str]:
        after, to = _newest_by_writer(start), _newest_by_writer(end)
        return [
            str(self.folder / name)
            for name in self.names()
            if after.get(writer_of(name), "") < name <= to.get(writer_of(name), "")
        ]

    def forget(self, last: str) -> None:
        """A recording is kept."""

    def stop(self) -> None:
        """A folder needs no end."""


class CollectedFeed(Feed):
    """A journal that a collector goes on writing."""

    def __init__(self, collecting: Collecting) -> None:
        super().__init__(collecting.journal.folder, ROUNDS_A_BATCH)
        self.collecting = collecting
        collecting.start()

    def next_after(self, last: str) -> str:
        if self.collecting.error is not None:
            raise self.collecting.error
        return super().next_after(last)

    def forget(self, last: str) -> None:
        if last:
            self.collecting.journal.forget(number_of(last) - KEPT_FILES)

    def stop(self) -> None:
        self.collecting.stop()


def _newest_by_writer(offset: str) -> dict[str, str]:
    return {writer_of(name): name for name in offset.split(_BETWEEN) if name}


def feed_of(cluster: Cluster, journals: Path, after: str, since_ms: int | None = None) -> Feed:
    if isinstance(cluster.source, RecordingSource):
        return Feed(Path(cluster.source.path), cluster.source.files_per_batch)
    folder = journals / cluster.name
    number = number_of(after) if after else 0
    return CollectedFeed(Collecting(cluster, folder, number, since_ms=since_ms))
