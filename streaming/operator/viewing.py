"""What people are shown of a bucket: not part of any verdict, and nothing here changes one.

A partition is told in full when something notable happened to it (leader, ISR, epochs, cuts,
findings), before and after, which is what the time slider of the page goes through. Offsets that
merely grow are told as one compressed table of all slots of the bucket. How far contents have been
compared is told with the partition whenever that changes, and is no event of its past. After a
start nobody knows what has been told before: then every partition is told once, some hundred in
each batch. What has been told since is saved with the bucket: Spark may give it to another worker
with any batch, and that one need not tell it all again.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from tidestaff.streaming.operator.moments import LADDER, doc_of, notable, raised_of
from tidestaff.streaming.operator.slots import WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidestaff.consistency.memory import PartitionMemory
    from tidestaff.consistency.model import ClusterObservation
    from tidestaff.streaming.operator.bucket import Bucket
    from tidestaff.streaming.operator.entries import Partition
    from tidestaff.streaming.operator.slots import Flags, Numbers

INTRODUCED_A_BATCH: Final = 500
_CODEC: Final = pa.Codec("zstd", compression_level=1)

VERIFIED_MS: Final = "verified_ms"
"""When the partition was compared that was compared longest ago; NEVER_MS if none was."""
NEVER_MS: Final = 2**62


class View:
    """What is to be told of one bucket. `generation` names this life of the bucket in memory: slot
    numbers of another one mean other partitions. `listener` is who has been told: one start of the
    job."""

    def __init__(self, generation: str, listener: str = "") -> None:
        self.generation, self.listener = generation, listener
        self._docs: dict[tuple[str, str], dict[str, Any]] = {}
        self._moments: list[dict[str, Any]] = []
        self._gone: list[tuple[str, str]] = []
        self._clusters: dict[str, dict[str, Any]] = {}
        self._names: dict[str, int] = {}
        self._cluster_of = np.full(0, -1, np.int32)
        self._flags = np.zeros(0, np.int32)
        self._verified_to = np.zeros(0, np.int64)
        self._verified_ms = np.zeros(0, np.int64)
        self._moved = False
        self._todo: list[Partition] | None = None
        self._saved: dict[str, Any] | None = None

    def saved(self, bucket: Bucket) -> dict[str, Any] | None:
        """What has been told, for the next life of this bucket; None where slots have other numbers
        in it, because partitions were forgotten."""
        partitions, count = bucket.partitions.values(), len(bucket.partitions)
        if self._saved is None or self._saved["count"] != count:
            if any(p.slot != number for number, p in enumerate(partitions)):
                return None
            self._room(count - 1)
            shown = (p.told_ms if p.shown == raised_of(p) else NEVER_MS for p in partitions)
            columns = (self._cluster_of, self._flags, self._verified_to, self._verified_ms)
            table = (np.fromiter(shown, np.int64), *(column[:count] for column in columns))
            self._saved = {
                "generation": self.generation,
                "listener": self.listener,
                "names": list(self._names),
                "count": count,
                "told": packed(b"".join(column.tobytes() for column in table)),
            }
        return self._saved

    @classmethod
    def resumed(cls, saved: dict[str, Any] | None, bucket: Bucket, listener: str) -> View | None:
        """As it was saved with this bucket; None where somebody else was told."""
        count = len(bucket.partitions)
        if saved is None or (saved["listener"], saved["count"]) != (listener, count):
            return None
        found = cls(saved["generation"], listener)
        found._names = {name: which for which, name in enumerate(saved["names"])}
        table = unpacked(base64.b64decode(saved["told"]))
        shown = np.frombuffer(table, np.int64, count)
        at = shown.nbytes
        for name in ("_cluster_of", "_flags", "_verified_to", "_verified_ms"):
            kind = getattr(found, name).dtype
            setattr(found, name, np.frombuffer(table, kind, count, at).copy())
            at += count * kind.itemsize
        for partition, told_ms in zip(bucket.partitions.values(), shown.tolist(), strict=True):
            if told_ms != NEVER_MS:
                partition.told_ms = told_ms
                partition.shown = raised_of(partition)
        return found

    def saw_cluster(self, seen: ClusterObservation) -> None:
        self._clusters[seen.cluster] = {
            "cluster": seen.cluster,
            "at_ms": seen.observed_at_ms,
            "source": seen.source,
            "rules": str(seen.rules),
            "controller": seen.controller,
            "controller_epoch": seen.controller_epoch,
            "answering": None if seen.answering is None else list(seen.answering),
            "brokers": [
                [r.broker, r.broker_epoch, r.fenced, r.shutting_down, r.rack]
                for r in seen.registrations
            ],
        }

    def judged(self, partition: Partition, before: PartitionMemory | None, bucket: Bucket) -> None:
        """A partition went through every rule: tell it if anything notable came of that."""
        after = partition.memory
        assert after is not None
        bucket.slots.note(partition.slot, after)
        self._moved = True
        raised = raised_of(partition)
        if before is not None:
            shown = partition.shown
            changed = notable(before, after) or (shown is not None and shown != raised)
            if not changed and shown is not None:
                if before.verified != after.verified:
                    # Said as it is now; for its past nothing has happened.
                    told_ms = partition.told_ms
                    self._tell(partition, after, raised)
                    partition.told_ms = told_ms
                return
            if changed:
                if shown is None or partition.told_ms != before.observed_at_ms:
                    self._moments.append(doc_of(partition, before, shown or ()))
                self._moments.append(doc_of(partition, after, raised, before))
        self._tell(partition, after, raised)

    def gone(self, partition: Partition) -> None:
        key = (partition.cluster, partition.name)
        self._docs.pop(key, None)
        self._gone.append(key)
        partition.shown = None
        self._room(partition.slot)
        self._cluster_of[partition.slot] = -1
        self._saved = None

    def moved(self) -> None:
        """Offsets grew somewhere."""
        self._moved = True

    def take(self, bucket: Bucket, number: int) -> dict[str, Any] | None:
        """What this batch has to tell; None if it is nothing."""
        self._introduce(bucket)
        if not (self._docs or self._gone or self._clusters or self._moved):
            return None
        told: dict[str, Any] = {
            "docs": list(self._docs.values()),
            "moments": self._moments,
            "gone": self._gone,
            "clusters": list(self._clusters.values()),
        }
        count = bucket.slots.count
        message = {
            "bucket": number,
            "generation": self.generation,
            "told": packed(json.dumps(told, separators=(",", ":")).encode()),
            "numbers": numbers_text(bucket.slots.numbers, count),
            "ladder": self._ladder(bucket),
        }
        self._docs, self._moments, self._gone, self._clusters = {}, [], [], {}
        self._moved = False
        return message

    def _introduce(self, bucket: Bucket) -> None:
        if self._todo is None:
            self._todo = [p for p in bucket.partitions.values() if p.shown is None]
        some, self._todo = self._todo[:INTRODUCED_A_BATCH], self._todo[INTRODUCED_A_BATCH:]
        for partition in some:
            if partition.shown is not None or partition.sequence.ended:
                continue
            waits = partition.memory is None and not partition.changed
            bucket.catch_up(partition)
            if partition.memory is not None:
                self._tell(partition, partition.memory, raised_of(partition))
                if waits:
                    # It waited undecoded, which takes less room, and may go on waiting.
                    partition.memory = None

    def _tell(self, partition: Partition, memory: PartitionMemory, raised: tuple[Any, ...]) -> None:
        slot = partition.slot
        self._room(slot)
        self._saved = None
        doc = doc_of(partition, memory, raised)
        doc["slot"] = slot
        self._docs[partition.cluster, partition.name] = doc
        self._cluster_of[slot] = self._names.setdefault(partition.cluster, len(self._names))
        self._flags[slot] = doc["flags"]
        verified = memory.verified
        self._verified_to[slot] = 0 if verified is None else verified.end
        self._verified_ms[slot] = 0 if verified is None else verified.at_ms
        partition.shown, partition.told_ms = raised, memory.observed_at_ms

    def _room(self, slot: int) -> None:
        if slot >= len(self._flags):
            more = max(slot + 1, 2 * len(self._flags), 64) - len(self._flags)
            self._cluster_of = np.r_[self._cluster_of, np.full(more, -1, np.int32)]
            self._flags = np.r_[self._flags, np.zeros(more, np.int32)]
            self._verified_to = np.r_[self._verified_to, np.zeros(more, np.int64)]
            self._verified_ms = np.r_[self._verified_ms, np.zeros(more, np.int64)]

    def _ladder(self, bucket: Bucket) -> dict[str, dict[str, int]]:
        count = min(bucket.slots.count, len(self._flags))
        numbers, flags = bucket.slots.numbers, self._flags[:count]
        owner = self._cluster_of[:count]
        places = np.arange(WIDTH) < numbers.replicas[:count, None]
        lead = np.maximum(numbers.leader[:count], 0)
        each = np.arange(count)
        watermark, start = numbers.watermark[each, lead], numbers.start[each, lead]
        # What was compared may have been deleted since, by age or size.
        verified_ms = self._verified_ms[:count] * (self._verified_to[:count] > start)
        short = (numbers.end[:count] < watermark[:, None]) & places
        behind: Flags = np.asarray(short.any(axis=1))
        found: dict[str, dict[str, int]] = {}
        for cluster, which in self._names.items():
            here = owner == which
            rungs = {name: int((flags[here] & bit > 0).sum()) for name, bit in LADDER.items()}
            found[cluster] = {
                "partitions": int(here.sum()),
                "behind": int(behind[here].sum()),
                **rungs,
                "empty": int((watermark[here] <= start[here]).sum()),
                "verified": int((verified_ms[here] > 0).sum()),
                VERIFIED_MS: int(verified_ms[here][verified_ms[here] > 0].min(initial=NEVER_MS)),
            }
        return found


def together(ladders: Iterable[dict[str, dict[str, int]]]) -> dict[str, Counter[str]]:
    """What all buckets say of each cluster: numbers added up, of times the oldest."""
    found: dict[str, Counter[str]] = {}
    for ladder in ladders:
        for cluster, rungs in ladder.items():
            known = found.setdefault(cluster, Counter({VERIFIED_MS: NEVER_MS}))
            oldest = min(known[VERIFIED_MS], rungs.get(VERIFIED_MS, NEVER_MS))
            known.update(rungs)
            known[VERIFIED_MS] = oldest
    return found


def packed(data: bytes) -> str:
    size = len(data).to_bytes(8, "little")
    return base64.b64encode(size + bytes(_CODEC.compress(data, asbytes=True))).decode("ascii")


def unpacked(data: bytes) -> bytes:
    size = int.from_bytes(data[:8], "little")
    return bytes(_CODEC.decompress(data[8:], decompressed_size=size, asbytes=True))


def numbers_text(numbers: Numbers, count: int) -> str:
    """Times and offsets of all slots. Written as differences, for most of them are nothing: times
    to the newest, ends to the first replica's, watermarks to the ends."""
    width = int(numbers.replicas[:count].max()) if count else 0
    at = numbers.at[:count]
    newest = int(at.max()) if count else 0
    end = numbers.end[:count, :width].copy()
    watermark = numbers.watermark[:count, :width] - end
    start = numbers.start[:count, :width].copy()
    for column in (end, start):
        column[:, 1:] -= column[:, :1]
    head = np.array([count, width, newest], np.int64)
    parts = (head, at - newest, numbers.replicas[:count].astype(np.int64), end, watermark, start)
    return packed(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))
