"""LOG: what the logs hold, byte by byte, and what the log directories say."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidestaff.consistency.model import OffsetRange, ProblemKind
from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Finding, Sight
    from tidestaff.consistency.model import BatchDigest, HealthObservation


def batches_equal(sight: Sight) -> Iterator[Finding]:
    """LOG001: replicas hold the same batches wherever both have committed ones.

    Compared only below every replica's HW and above every log start, and never on a compacted
    topic, whose replicas are cleaned at different times.
    """
    by_range: dict[OffsetRange, list[BatchDigest]] = {}
    for digest in sight.observation.digests:
        if digest.crc is not None:
            by_range.setdefault(digest.offsets, []).append(digest)
    for offsets, digests in sorted(by_range.items()):
        crcs = Counter(digest.crc for digest in digests)
        if len(crcs) < 2:
            continue
        if sight.compacted:
            yield Unknown("LOG001", "replicas cleaned alike: the topic is compacted")
            continue
        if not comparable(sight, digests, offsets):
            yield Unknown("LOG001", f"log start and HW that enclose {offsets} on every replica")
            continue
        yield _minority(digests, offsets, crcs, leader=sight.state.leader)


def comparable(sight: Sight, digests: list[BatchDigest], offsets: OffsetRange) -> bool:
    for digest in digests:
        reading = sight.readings.get(digest.broker)
        if reading is None or reading.log_start_offset is None or reading.high_watermark is None:
            return False
        if offsets.start < reading.log_start_offset or offsets.end > reading.high_watermark:
            return False
    return True


def _minority(
    digests: list[BatchDigest], offsets: OffsetRange, crcs: Counter[int | None], *, leader: int
) -> Violated:
    """Name the odd one out: by majority, and where there is none, against the leader."""
    leading = next((d.crc for d in digests if d.broker == leader), None)
    most, votes = crcs.most_common(1)[0]
    right = most if votes * 2 > len(digests) else leading if leading is not None else most
    wrong = next(d for d in digests if d.crc != right)
    return Violated(
        "LOG001",
        expected=f"checksum {right:#010x} over {offsets}" if right is not None else "one checksum",
        observed=", ".join(
            f"broker {d.broker} {d.crc:#010x}" for d in digests if d.crc is not None
        ),
        because=f"broker {wrong.broker} differs from "
        + ("the majority" if votes * 2 > len(digests) else "the leader"),
        broker=wrong.broker,
        offsets=offsets,
    )


def batches_intact(sight: Sight) -> Iterator[Finding]:
    """LOG002: every batch matches its own checksum.

    Replicas copy bytes unchanged, so a batch can be wrong on all of them alike: comparing them with
    each other does not show it.
    """
    for digest in sight.observation.digests:
        if digest.invalid_at is not None:
            yield Violated(
                "LOG002",
                expected=f"a valid batch at offset {digest.invalid_at}",
                observed=f"its checksum does not match its bytes on broker {digest.broker}",
                because="the bytes changed after they were written",
                broker=digest.broker,
                offsets=OffsetRange(digest.invalid_at, digest.invalid_at + 1),
            )


def offsets_without_gap(sight: Sight) -> Iterator[Finding]:
    """LOG003: offsets of a topic that is not compacted follow each other without a gap.

    Replicas copy batches as they are and leaders number them in a row; only the cleaner of a
    compacted topic takes some out.
    """
    for digest in sight.observation.digests:
        if digest.gap_at is None:
            continue
        if sight.compacted:
            continue
        yield Violated(
            "LOG003",
            expected=f"a batch that starts at offset {digest.gap_at}",
            observed=f"no batch there on broker {digest.broker}",
            because="only compaction leaves gaps, and the topic is not compacted",
            broker=digest.broker,
            offsets=OffsetRange(digest.gap_at, digest.offsets.end),
        )


def topic_ids_agree(sight: Sight) -> Iterator[Finding]:
    """LOG004: partition.metadata names the topic id that the cluster's metadata has.

    From 2.8 brokers refuse requests for another topic id: replication of such a replica stops at
    the next change of controller.
    """
    known = sight.observation.topic_id
    remembered = sight.memory.topic_id if sight.memory is not None else None
    source_tells = sight.observation.authoritative and sight.rules.topic_id_in_topic_znode
    if known is None and remembered is not None and source_tells:
        yield Violated(
            "LOG004",
            expected=f"topic id {remembered}",
            observed="no topic id in the topic's metadata any more",
            because="the next controller gives the topic a new id, and every replica refuses it",
        )
    for reading in sight.observation.replicas:
        if known is not None and reading.topic_id is not None and reading.topic_id != known:
            yield Violated(
                "LOG004",
                expected=f"topic id {known}",
                observed=f"topic id {reading.topic_id} in partition.metadata on broker "
                f"{reading.broker}",
                because="the directory belongs to another topic of the same name",
                broker=reading.broker,
            )


def log_dirs_online(sight: Sight) -> Iterator[Finding]:
    """LOG005: the log directory of every replica is online.

    The broker goes on with its other directories, so the replica is silently missing.
    """
    for reading in sight.replicas:
        if not reading.log_dir_online:
            yield Violated(
                "LOG005",
                expected=f"an online log directory on broker {reading.broker}",
                observed="the log directory of this replica is offline",
                because="the broker stopped using the disk after an I/O error",
                broker=reading.broker,
            )


def checkpoint_lists_every_partition(health: HealthObservation) -> Iterator[Finding]:
    """LOG006: replication-offset-checkpoint lists every partition of its log directory.

    The broker starts such a replica's HW at its log start; before 0.11 it then cuts everything
    above.
    """
    if health.problem is ProblemKind.CHECKPOINT_ENTRY_MISSING:
        yield Violated(
            "LOG006",
            expected="an entry for every partition directory",
            observed=f"none in {health.place}",
            because=health.reason or "a restart would start this replica's HW at its log start",
            broker=health.broker,
        )


def directories_are_assigned(health: HealthObservation) -> Iterator[Finding]:
    """LOG007: a partition directory belongs to a replica that is assigned to the broker.

    Left over from a deletion or a move that the broker was never told of. Names that end in
    -delete, -future or -stray are lawful.
    """
    if health.problem is ProblemKind.STRAY_DIRECTORY:
        yield Violated(
            "LOG007",
            expected="only directories of assigned replicas",
            observed=health.place,
            because=health.reason or "it was left behind when the replica was moved or deleted",
            broker=health.broker,
        )
