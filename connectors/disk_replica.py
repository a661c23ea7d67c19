"""What an agent tells of a replica, and what whoever asked for it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidestaff.consistency.model import Lineage, TopicPartition


class DiskReplica(NamedTuple):
    """One replica by its files. None: not there, not asked for, or not readable (a problem says
    so). `broken_at`: the log does not end as one may, whole batches come up to there (told
    with `log_end_offset` where it is the end of what a crash might have left). `size`: bytes
    of its segments, read with the log's end. `online` is False for one that was last seen in a
    directory that is offline now. `cleaner_known` is False where the file that says how far a
    cleaner came is there and cannot be used: then one may have been everywhere."""

    partition: TopicPartition
    log_dir: str
    online: bool = True
    topic_id: str | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    log_end_offset: int | None = None
    lineage: Lineage | None = None
    read_at_ms: int | None = None
    cleaner_offset: int | None = None
    broken_at: int | None = None
    size: int | None = None
    cleaner_known: bool = True
