"""What a bucket need not keep: partitions that are gone, and what could never be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from tidestaff.connectors.wire import CLUSTER

if TYPE_CHECKING:
    from tidestaff.streaming.operator.bucket import Bucket
    from tidestaff.streaming.operator.entries import Subject

REMEMBER_GONE_MS: Final = 600_000


def forget_partitions(bucket: Bucket, cluster: str, until_ms: int) -> None:
    """What is gone is remembered for a while, or a late row would bring it back."""
    before_ms = until_ms - REMEMBER_GONE_MS
    at = bucket.slots.numbers.at[: bucket.slots.count]
    for slot in np.flatnonzero(at < before_ms).tolist():
        partition = bucket.by_slot[slot]
        if partition is None or partition.cluster != cluster or partition.sequence.held:
            continue
        bucket.catch_up(partition)
        over = partition.sequence.ended or partition.memory is None
        if over and partition.sequence.at_ms < before_ms:
            bucket.by_slot[slot] = None
            bucket.slots.free.append(slot)
            bucket.forgot = True
            del bucket.partitions[partition.cluster, partition.name]


def forget_subjects(bucket: Bucket, subject: Subject, until_ms: int) -> None:
    """A place that is well, or a row that was none: only what is open has to be kept."""
    kept = subject.active or subject.sequence.held
    if subject.kind == CLUSTER or kept or subject.sequence.at_ms >= until_ms - REMEMBER_GONE_MS:
        return
    del bucket.subjects[subject.kind, subject.cluster, subject.name]
