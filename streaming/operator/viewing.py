"""What people are shown of a bucket: not part of any verdict, and nothing here changes one.

A partition is told in full when something notable happened to it (leader, ISR, epochs, cuts,
findings), before and after, which is what the time slider of the page goes through. Offsets that
merely grow are told as one compressed table of all slots of the bucket. How far contents have been
compared is told with the partition whenever that changes, and is no event of its past. After a
start nobody knows what has been told before: then every partition is told once, some hundred in
each batch.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from tidestaff.connectors.bodies import rules_body
from tidestaff.consistency.isr import effective_min_isr
from tidestaff.streaming.operator.slots import WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidestaff.consistency.memory import PartitionMemory, ReplicaMemory
    from tidestaff.consistency.model import ClusterObservation
    from tidestaff.consistency.versions import RuleSet
    from tidestaff.streaming.operator.bucket import Bucket
    from tidestaff.streaming.operator.entries import Partition
    from tidestaff.streaming.operator.slots import Flags, Numbers

INTRODUCED_A_BATCH: Final = 500
LINEAGE_SHOWN: Final = 12
_CODEC: Final = pa.Codec("zstd", compression_level=1)

UNDER_REPLICATED, AT_MIN_ISR, UNDER_MIN_ISR, OFFLINE, VIOLATING = 1, 2, 4, 8, 16
LADDER: Final = {
    "under_replicated": UNDER_REPLICATED,
    "at_min_isr": AT_MIN_ISR,
    "under_min_isr": UNDER_MIN_ISR,
    "offline": OFFLINE,
}
VERIFIED_MS: Final = "verified_ms"
"""When the partition was compared that was compared longest ago; NEVER_MS if none was."""
NEVER_MS: Final = 2**62


class View:
    """What is to be told of one bucket. `generation` names this life of the bucket in memory: slot
    numbers of another one mean other partitions."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
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
        raised = _raised(partition)
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
                    self._moments.append(_doc(partition, before, shown or ()))
                self._moments.append(_doc(partition, after, raised, before))
        self._tell(partition, after, raised)

    def gone(self, partition: Partition) -> None:
        key = (partition.cluster, partition.name)
        self._docs.pop(key, None)
        self._gone.append(key)
        partition.shown = None
        self._room(partition.slot)
        self._cluster_of[partition.slot] = -1

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
                self._tell(partition, partition.memory, _raised(partition))
                if waits:
                    # It waited undecoded, which takes less room, and may go on waiting.
                    partition.memory = None

    def _tell(self, partition: Partition, memory: PartitionMemory, raised: tuple[Any, ...]) -> None:
        slot = partition.slot
        self._room(slot)
        doc = _doc(partition, memory, raised)
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


def notable(before: PartitionMemory, after: PartitionMemory) -> bool:
    """Whether more happened than that logs grew."""
    if before is after:
        return False
    same = (
        before.state == after.state
        and before.assignment == after.assignment
        and before.live == after.live
        and before.settings == after.settings
        and before.topic_id == after.topic_id
        and before.rules is after.rules
        and before.lost == after.lost
        and before.kept_tails == after.kept_tails
        and len(before.replicas) == len(after.replicas)
    )
    if not same:
        return True
    return any(map(_replica_changed, before.replicas, after.replicas))


def _replica_changed(before: ReplicaMemory, after: ReplicaMemory) -> bool:
    return (
        after.log_end_offset < before.log_end_offset
        or before.broker != after.broker
        # In some rounds a lineage is not read.
        or (
            before.lineage is not after.lineage
            and before.lineage is not None
            and after.lineage is not None
            and before.lineage != after.lineage
        )
        or _cut(before) != _cut(after)
    )


def _cut(replica: ReplicaMemory) -> tuple[int, int] | None:
    return None if replica.cut is None else (replica.cut.leader_epoch, replica.cut.offset)


def _raised(partition: Partition) -> tuple[Any, ...]:
    """The findings that stand: code, broker, offsets."""
    return tuple(
        (code, broker, known.start, known.end)
        for (code, broker), known in partition.active.items()
        if known.raised
    )


def _flags(memory: PartitionMemory, raised: tuple[Any, ...]) -> int:
    isr, wanted = len(memory.state.isr), memory.assignment.target
    least = effective_min_isr(
        min_insync_replicas=memory.settings.min_insync_replicas,
        replica_count=len(memory.assignment.replicas),
        rules=memory.rules,
    )
    led = memory.state.leader >= 0
    return (
        (UNDER_REPLICATED if not set(wanted) <= set(memory.state.isr) else 0)
        | (AT_MIN_ISR if led and isr == least else 0)
        | (UNDER_MIN_ISR if not led or isr < least else 0)
        | (OFFLINE if not led else 0)
        | (VIOLATING if raised else 0)
    )


@lru_cache(maxsize=512)
def _rules(rules: RuleSet) -> dict[str, Any]:
    return rules_body(rules)


def _doc(
    partition: Partition,
    memory: PartitionMemory,
    raised: tuple[Any, ...],
    before: PartitionMemory | None = None,
) -> dict[str, Any]:
    """A partition at one moment. What many partitions have in common stands in `shape`."""
    state, settings = memory.state, memory.settings
    found: dict[str, Any] = {
        "cluster": partition.cluster,
        "name": partition.name,
        "at_ms": memory.observed_at_ms,
        "flags": _flags(memory, raised),
        "shape": {
            "rules": _rules(memory.rules),
            "leader": state.leader,
            "isr": list(state.isr),
            "assignment": [list(each) for each in memory.assignment],
            "live": [[r.broker, r.fenced, r.shutting_down] for r in memory.live],
            "elr": [list(state.elr), list(state.last_known_elr)],
            "min_isr": settings.min_insync_replicas,
            "unclean": settings.unclean_leader_election_enable,
        },
        "topic_id": memory.topic_id,
        "epochs": [state.leader_epoch, state.partition_epoch, state.controller_epoch],
        "recovering": state.recovery.value,
        "committed": [memory.committed_start, memory.committed_end],
        "replicas": [
            [
                *(r.broker, r.log_start_offset, r.high_watermark, r.log_end_offset),
                None if r.lineage is None else [list(e) for e in r.lineage[-LINEAGE_SHOWN:]],
                None if r.cut is None else [r.cut.leader_epoch, r.cut.offset, r.cut.because],
            ]
            for r in memory.replicas
        ],
    }
    extra = {
        "findings": [list(each) for each in raised],
        "lost": [list(each) for each in memory.lost],
        "kept": [[tail.broker, tail.start, tail.end] for tail in memory.kept_tails],
        "eras": [[e.epoch, e.leader, e.start_offset] for e in memory.eras],
        "verified": None if memory.verified is None else list(memory.verified),
        "truncated": _truncated(before, memory),
    }
    return found | {name: value for name, value in extra.items() if value}


def _truncated(before: PartitionMemory | None, after: PartitionMemory) -> list[list[int]]:
    """Logs that are shorter than they were: broker, from, to."""
    if before is None:
        return []
    ends = {r.broker: r.log_end_offset for r in before.replicas}
    return [
        [r.broker, ends[r.broker], r.log_end_offset]
        for r in after.replicas
        if r.log_end_offset < ends.get(r.broker, 0)
    ]
