"""A bucket as bytes for the state store, and back.

Four parts, so that a quiet round rewrites only what moved: `numbers` of the slots, `entries` (the
rest of every memory, a line each, decoded when it is needed), `bodies` of the last rows, and
`rest` (clocks, clusters, sources, shared values, layout). Numbers are written as differences, which
compress to a few bytes.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from tidestaff.connectors.wire import CLUSTER, Row
from tidestaff.consistency.errors import ConsistencyError
from tidestaff.streaming.operator.bucket import Bucket, Limits
from tidestaff.streaming.operator.entries import Hearing, Partition, Subject
from tidestaff.streaming.operator.events import Active, Findings
from tidestaff.streaming.operator.silence import Clock, Gap
from tidestaff.streaming.operator.slots import Numbers
from tidestaff.streaming.operator.state_codec import CODEC, Pool, StateCodec, StateLayoutError

if TYPE_CHECKING:
    from tidestaff.streaming.operator.sequence import Sequence

STATE_VERSION: Final = 2
MAX_SHARED: Final = 2_000
MAX_UNPACKED: Final = 2**31
_CODEC: Final = pa.Codec("zstd", compression_level=1)


class Saved(NamedTuple):
    """The columns of the state store's value."""

    version: int
    numbers: bytes
    entries: bytes
    bodies: bytes
    rest: bytes


class UnreadableStateError(Exception):
    """State that this release cannot read; the bucket starts anew and says so."""


def _packed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + bytes(_CODEC.compress(data, asbytes=True))


def _unpacked(data: bytes) -> bytes:
    size = int.from_bytes(data[:8], "little")
    if size > MAX_UNPACKED:
        raise UnreadableStateError(f"a part of the state claims to have {size} bytes")
    return bytes(_CODEC.decompress(data[8:], decompressed_size=size, asbytes=True))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("utf-8")


def _text(written: bytes) -> str:
    """A JSON string; most have nothing to unescape."""
    return str(json.loads(written)) if b"\\" in written else written[1:-1].decode("utf-8")


class Keeper:
    """Saves one bucket again and again; keeps what need not be written anew."""

    def __init__(self, bucket: Bucket, pool: Pool | None = None) -> None:
        self.bucket = bucket
        self._pool = pool or Pool()
        self._entries = b""
        self._bodies = b""
        self.told: dict[str, Any] | None = None
        """What people had been told of the bucket when it was saved, as its view has it."""

    def save(self) -> Saved:
        bucket = self.bucket
        partitions = list(bucket.partitions.values())
        if len(self._pool.values) > MAX_SHARED:
            self._pool = Pool()
            for partition in partitions:
                bucket.undecode(partition)
                partition.changed = True
        if self._entries == b"" or any(p.changed for p in partitions) or bucket.forgot:
            for partition in partitions:
                if partition.changed:
                    partition.packed = self._entry(partition)
                    partition.changed = False
            self._entries = _packed(b"\n".join(p.packed or b"" for p in partitions))
            self._bodies = _packed(self._all_bodies(partitions))
            bucket.forgot = False
        slots = np.fromiter((p.slot for p in partitions), np.int64, len(partitions))
        return Saved(
            STATE_VERSION,
            _packed(_numbers(bucket.slots.numbers, slots)),
            self._entries,
            self._bodies,
            _packed(_json(self._rest())),
        )

    def _entry(self, partition: Partition) -> bytes:
        """Cluster, name, what has to be at hand at once (nothing for most), and the memory."""
        memory, sequence = partition.memory, partition.sequence
        kept = None if memory is None else CODEC.partition_writer(memory, self._pool)
        usual = not (partition.active or sequence.held or sequence.ended)
        usual = usual and partition.silent_since is None
        urgent = b""
        if not (usual and self.bucket.slots.numbers.armed[partition.slot]):
            told = [_findings(partition.active), partition.silent_since, _sequence(sequence)]
            urgent = _json(told)
        names = (_json(partition.cluster), _json(partition.name))
        return b"\t".join((*names, urgent, _json([sequence.source, kept])))

    def _all_bodies(self, partitions: list[Partition]) -> bytes:
        """Only an armed slot is ever compared with its last body."""
        armed = self.bucket.slots.numbers.armed
        bodies = [(p.body or b"") if armed[p.slot] else b"" for p in partitions]
        lengths = np.fromiter(map(len, bodies), np.int32, len(bodies))
        return len(bodies).to_bytes(4, "little") + lengths.tobytes() + b"".join(bodies)

    def _rest(self) -> dict[str, Any]:
        bucket = self.bucket
        subjects = [self._subject(subject) for subject in bucket.subjects.values()]
        return {
            "layout": CODEC.layout,
            "buckets": bucket.limits.buckets,
            "clocks": {name: clock.reports for name, clock in bucket.clocks.items()},
            "voices": [[*names, clock.reports] for names, clock in bucket.voices.items()],
            "gaps": bucket.gaps,
            "tick": bucket.tick_ms,
            "subjects": subjects,
            "shared": self._pool.encoded(),
            "view": bucket.view.saved(bucket) if bucket.view is not None else None,
        }

    def _subject(self, subject: Subject) -> list[Any]:
        write: Any = CODEC.cluster_writer if subject.kind == CLUSTER else CODEC.health_writer
        memory = None if subject.memory is None else write(subject.memory, self._pool)
        return [
            subject.kind,
            subject.cluster,
            subject.name,
            memory,
            _findings(subject.active),
            _sequence(subject.sequence),
            subject.waited_ms,
            [[name, h.last_ms, h.silent, h.waiting] for name, h in subject.sources.items()],
            subject.about,
        ]


def _findings(active: Findings) -> list[Any]:
    return [[code, broker, *known] for (code, broker), known in active.items()]


def _findings_of(kept: list[Any]) -> Findings:
    return {
        (code, broker): Active(raised, start, end, tuple((a, b) for each in more for a, b in each))
        for code, broker, raised, start, end, *more in kept
    }


def _sequence(sequence: Sequence) -> list[Any]:
    held = [[*row[:-1], base64.b64encode(row.body).decode("ascii")] for row in sequence.held]
    return [sequence.source, sequence.at_ms, sequence.ended, held]


def _restore_sequence(sequence: Sequence, kept: list[Any]) -> None:
    sequence.source, sequence.at_ms, sequence.ended = kept[:3]
    sequence.held = [Row._make([*row[:-1], base64.b64decode(row[-1])]) for row in kept[3]]


def _numbers(numbers: Numbers, slots: Any) -> bytes:
    """Times against the slot's, offsets against the leader's end, both against the row above."""
    taken = {name: getattr(numbers, name)[slots] for name in Numbers._fields}
    width = int(taken["replicas"].max()) if len(slots) else 0
    _relate(taken, -1)
    parts = [np.array([len(slots), width], np.int64).tobytes()]
    for name in Numbers._fields:
        column = taken[name][:, :width] if taken[name].ndim == 2 else taken[name]
        parts.append(np.ascontiguousarray(column).tobytes())
    return b"".join(parts)


def _relate(taken: dict[str, Any], sign: int) -> None:
    """Make the columns differences (-1), or whole again (+1)."""
    each = np.arange(len(taken["at"]))
    for name in ("caught_up", "mark_at"):
        if sign < 0:
            taken[name] = taken[name] - taken["at"][:, None]
    ends = taken["end"]
    if sign > 0:
        first = ends[each, taken["leader"]] if len(ends) else ends[:, 0]
        taken["end"] = ends + first[:, None]
        taken["end"][each, taken["leader"]] = first
    leader_end = taken["end"][each, taken["leader"]] if len(ends) else ends[:, 0]
    for name in ("watermark", "mark"):
        taken[name] = taken[name] + sign * leader_end[:, None]
    for name in ("committed", "ledger"):
        taken[name] = taken[name] + sign * leader_end
    if sign < 0:
        taken["end"] = ends - leader_end[:, None]
        taken["end"][each, taken["leader"]] = leader_end
    else:
        for name in ("caught_up", "mark_at"):
            taken[name] = taken[name] + taken["at"][:, None]


def _restore_numbers(data: bytes, numbers: Numbers, count: int) -> None:
    found, width = (int(n) for n in np.frombuffer(data, np.int64, 2))
    if found != count:
        raise UnreadableStateError(f"{found} rows of numbers for {count} partitions")
    at = 16
    taken: dict[str, Any] = {}
    for name in Numbers._fields:
        column = getattr(numbers, name)
        columns = (count, width) if column.ndim == 2 else (count,)
        size = int(np.prod(columns)) * column.dtype.itemsize
        values = np.frombuffer(data[at : at + size], column.dtype).reshape(columns)
        taken[name] = values.copy()
        at += size
    if width:
        _relate(taken, +1)
    for name, values in taken.items():
        target = getattr(numbers, name)
        if target.ndim == 2:
            target[:count, :width] = values
        else:
            target[:count] = values


def restore(saved: Saved, limits: Limits) -> Keeper:
    """The bucket as it was saved; an UnreadableStateError says why it cannot be."""
    if saved.version != STATE_VERSION:
        raise UnreadableStateError(
            f"the state has version {saved.version}, this release reads {STATE_VERSION}"
        )
    try:
        rest = json.loads(_unpacked(saved.rest))
        _same_buckets(rest, limits)
        codec = CODEC if rest["layout"] == CODEC.layout else StateCodec(rest["layout"])
        pool = Pool.decoded(rest["shared"], codec)
        bucket = Bucket(limits)
        keeper = Keeper(bucket, pool)
        _restore_partitions(saved, bucket, codec, pool)
        _restore_rest(rest, bucket, codec, pool)
    except (StateLayoutError, ConsistencyError) as error:
        raise UnreadableStateError(str(error)) from error
    except (ValueError, LookupError, TypeError, OSError, MemoryError, pa.ArrowException) as error:
        raise UnreadableStateError(f"{type(error).__name__}: {error}") from error
    if codec is not CODEC:
        # All is written anew, what is shared as well.
        for partition in bucket.partitions.values():
            bucket.undecode(partition)
            partition.changed = True
        return Keeper(bucket)
    keeper.told = rest.get("view")
    return keeper


def _same_buckets(rest: dict[str, Any], limits: Limits) -> None:
    """With another number of buckets partitions live elsewhere; here they would all seem silent."""
    kept = rest.get("buckets", limits.buckets)
    if kept != limits.buckets:
        raise UnreadableStateError(f"the state is that of {kept} buckets, not of {limits.buckets}")


def _restore_partitions(saved: Saved, bucket: Bucket, codec: StateCodec, pool: Pool) -> None:
    def undecoded(partition: Partition) -> None:
        assert partition.packed is not None
        source, kept = json.loads(partition.packed.rsplit(b"\t", 1)[1])
        if kept is not None:
            partition.memory = codec.partition_reader(kept, pool)
            partition.sequence.source = source

    bucket.undecoded = undecoded
    lines = [line for line in _unpacked(saved.entries).split(b"\n") if line]
    bodies = _unpacked(saved.bodies)
    count = int.from_bytes(bodies[:4], "little")
    lengths = np.frombuffer(bodies, np.int32, count, 4)
    ends = np.cumsum(lengths) + 4 + 4 * count
    for line, length, end in zip(lines, lengths.tolist(), ends.tolist(), strict=True):
        cluster, name, urgent, _ = line.split(b"\t", 3)
        slot = bucket.slots.add()
        partition = Partition(_text(cluster), _text(name), slot)
        partition.packed, partition.changed = line, False
        if urgent:
            active, partition.silent_since, sequence = json.loads(urgent)
            partition.active = _findings_of(active)
            _restore_sequence(partition.sequence, sequence)
        partition.body = bodies[end - length : end] or None
        bucket.by_slot.append(partition)
        bucket.partitions[partition.cluster, partition.name] = partition
    _restore_numbers(_unpacked(saved.numbers), bucket.slots.numbers, len(lines))


def _restore_rest(rest: dict[str, Any], bucket: Bucket, codec: StateCodec, pool: Pool) -> None:
    bucket.clocks = {name: Clock(reports) for name, reports in rest["clocks"].items()}
    bucket.gaps = [Gap(*gap) for gap in rest["gaps"]]
    bucket.tick_ms = rest["tick"]
    for cluster, source, reports in rest.get("voices", ()):
        bucket.voices[cluster, source] = Clock(reports)
    for kind, cluster, name, memory, active, sequence, waited_ms, sources, *more in rest[
        "subjects"
    ]:
        subject = Subject(kind, cluster, name)
        read: Any = codec.cluster_reader if kind == CLUSTER else codec.health_reader
        subject.memory = None if memory is None else read(memory, pool)
        subject.active, subject.waited_ms = _findings_of(active), waited_ms
        _restore_sequence(subject.sequence, sequence)
        for source, last_ms, silent, waiting in sources:
            subject.sources[source] = Hearing(last_ms, waiting, silent=silent)
        for topic, partition in more:
            subject.about = (topic, partition)
        bucket.subjects[kind, cluster, name] = subject
