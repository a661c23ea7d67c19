"""A broker's log directories for tests, written as Kafka writes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidestaff.consistency.checkpoint_files import (
    encode_leader_epochs,
    encode_offsets,
    encode_partition_metadata,
)
from tidestaff.consistency.model import EpochEntry, TopicPartition

from tests.connectors.segment_bytes import v2

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOPIC_ID = "vx4ohhIER6aDpDZgTy10tQ"
LONG_AGO = 1_600_000_000


def write_replica(
    log_dir: Path,
    name: str,
    *,
    records: int = 10,
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
    topic_id: str | None = TOPIC_ID,
) -> Path:
    folder = log_dir / name
    folder.mkdir(parents=True)
    data = b"".join(v2(offset, epoch=epochs[-1][0]) for offset in range(records))
    (folder / f"{0:020d}.log").write_bytes(data)
    lineage = [EpochEntry(*entry) for entry in epochs]
    (folder / "leader-epoch-checkpoint").write_text(encode_leader_epochs(lineage))
    if topic_id is not None:
        (folder / "partition.metadata").write_text(encode_partition_metadata(topic_id))
    for path in folder.iterdir():
        os.utime(path, (LONG_AGO, LONG_AGO))
    return folder


def write_offsets(log_dir: Path, name: str, **offsets: int) -> None:
    """`t_0=5` is offset 5 for t-0."""
    found = {
        TopicPartition(key.rpartition("_")[0], int(key.rpartition("_")[2])): offset
        for key, offset in offsets.items()
    }
    (log_dir / name).write_text(encode_offsets(found))


def write_log_dir(log_dir: Path, *, broker: int = 1, **high_watermarks: int) -> Path:
    """With the replicas of the given watermarks, `t_0=5`, ten records each."""
    log_dir.mkdir(parents=True, exist_ok=True)
    (log_dir / "meta.properties").write_text(
        f"#\n#Tue Nov 17 00:00:00 UTC 2026\ncluster.id=abc\nversion=1\nnode.id={broker}\n"
    )
    for key in high_watermarks:
        topic, _, number = key.rpartition("_")
        write_replica(log_dir, f"{topic}-{number}")
    write_offsets(log_dir, "replication-offset-checkpoint", **high_watermarks)
    write_offsets(log_dir, "recovery-point-offset-checkpoint", **high_watermarks)
    write_offsets(log_dir, "log-start-offset-checkpoint")
    return log_dir
