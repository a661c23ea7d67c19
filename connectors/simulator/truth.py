"""The simulator's own ledger, computed from the true state after every event.

Committed is what was ever below the high watermark of a broker that led in some leader epoch, by
record identity. It is lost when a leader that has taken office in the metadata's current epoch does
not hold it. Replicas diverge when two live members of the ISR hold different records at an offset
below both their high watermarks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.connectors.simulator.log import Run, shared, unshared
from tidestaff.consistency.model import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.coordination import PartitionMetadata
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import BrokerId


_REMEMBERED = 64


class Loss(NamedTuple):
    """Committed records [start, end) that the leader of `leader_epoch` does not hold.

    `unclean`: there was an election outside the ISR (and ELR) since the leader before it took
    office; `damaged`: its own disk had lost records. Either explains a loss; with neither the
    protocol itself lost the data.
    """

    at_ms: int
    partition: TopicPartition
    topic_id: str
    offsets: OffsetRange
    leader: BrokerId
    leader_epoch: int
    unclean: bool
    damaged: bool


class Divergence(NamedTuple):
    """Two members of the ISR that hold different records at committed offsets."""

    at_ms: int
    partition: TopicPartition
    topic_id: str
    offsets: OffsetRange
    brokers: tuple[BrokerId, BrokerId]
    damaged: bool


class UncleanElection(NamedTuple):
    """A leader that was in neither the ISR nor the ELR just before."""

    at_ms: int
    partition: TopicPartition
    leader: BrokerId
    leader_epoch: int


@dataclass(slots=True)
class _Book:
    topic_id: str
    committed: list[Run] = field(default_factory=list)
    floor: int = 0
    office: tuple[BrokerId, int, int] | None = None
    seen: dict[tuple[BrokerId, int, int], int] = field(default_factory=dict)
    alike: dict[tuple[BrokerId, BrokerId], tuple[int, int, int]] = field(default_factory=dict)
    electable: tuple[BrokerId, ...] | None = None
    leader_epoch: int = -1
    unclean_epoch: int = -1
    lost: list[Run] = field(default_factory=list)


class Truth:
    """`losses` and `divergences`, with their times and exact offset ranges, and
    `unclean_elections`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._books: dict[TopicPartition, _Book] = {}
        self._wiped: set[tuple[BrokerId, TopicPartition]] = set()
        self.losses: list[Loss] = []
        self.divergences: list[Divergence] = []
        self.unclean_elections: list[UncleanElection] = []

    def wiped(self, broker: BrokerId, partitions: list[TopicPartition]) -> None:
        self._wiped.update((broker, partition) for partition in partitions)

    def committed(self, partition: TopicPartition) -> tuple[Run, ...]:
        """What has to survive, as runs."""
        book = self._books.get(partition)
        return tuple(book.committed) if book is not None else ()

    def examine(self, partition: TopicPartition) -> None:
        """Bring the books of one partition up to date."""
        metadata = self._cluster.mode.partition(partition)
        if metadata is None or metadata.deleting:
            self._books.pop(partition, None)
            return
        book = self._books.get(partition)
        if book is None or book.topic_id != metadata.topic_id:
            book = self._books[partition] = _Book(metadata.topic_id)
        self._note_election(partition, book, metadata)
        replicas = self._live_replicas(partition, metadata)
        self._check_office(partition, metadata, book, replicas)
        self._commit(partition, metadata, book, replicas)
        self._compare(partition, metadata, book, replicas)

    def _note_election(
        self, partition: TopicPartition, book: _Book, metadata: PartitionMetadata
    ) -> None:
        state = metadata.state
        if state.leader_epoch != book.leader_epoch:
            book.leader_epoch = state.leader_epoch
            known = book.electable is not None
            if known and state.leader >= 0 and state.leader not in (book.electable or ()):
                book.unclean_epoch = state.leader_epoch
                self.unclean_elections.append(
                    UncleanElection(
                        self._cluster.now_ms, partition, state.leader, state.leader_epoch
                    )
                )
        book.electable = (*state.isr, *state.elr)

    def _live_replicas(
        self, partition: TopicPartition, metadata: PartitionMetadata
    ) -> dict[BrokerId, Replica]:
        found = {}
        for broker in self._cluster.sorted_brokers():
            replica = broker.replicas.get(partition)
            if broker.up and replica is not None and replica.topic_id == metadata.topic_id:
                found[broker.id] = replica
        return found

    def _check_office(
        self,
        partition: TopicPartition,
        metadata: PartitionMetadata,
        book: _Book,
        replicas: dict[BrokerId, Replica],
    ) -> None:
        """A leader that has just taken office must hold everything committed."""
        leader = replicas.get(metadata.state.leader)
        if leader is None or not leader.leads or leader.leader_epoch != metadata.state.leader_epoch:
            return
        incarnation = self._cluster.brokers[leader.broker].incarnation
        office = (leader.broker, incarnation, leader.leader_epoch)
        book.floor = max(book.floor, leader.log.start)
        if office == book.office:
            return
        before, book.office = book.office, office
        self._forget_below(book, book.floor)
        if not book.committed:
            return
        within = OffsetRange(book.committed[0].start, book.committed[-1].end)
        held = leader.log.runs
        book.lost = (book.lost + _clipped(book.committed, unshared(book.committed, held, within)))[
            -_REMEMBERED:
        ]
        for missing in unshared(book.committed, held, within):
            self._lose(partition, book, missing, leader, since=before[2] if before else -1)
        book.committed = _clipped(book.committed, shared(book.committed, held))

    def _lose(
        self,
        partition: TopicPartition,
        book: _Book,
        missing: OffsetRange,
        leader: Replica,
        *,
        since: int,
    ) -> None:
        damaged = leader.damaged or (leader.broker, partition) in self._wiped
        self.losses.append(
            Loss(
                self._cluster.now_ms,
                partition,
                book.topic_id,
                missing,
                leader.broker,
                leader.leader_epoch,
                book.unclean_epoch > since,
                damaged,
            )
        )

    def _commit(
        self,
        partition: TopicPartition,
        metadata: PartitionMetadata,
        book: _Book,
        replicas: dict[BrokerId, Replica],
    ) -> None:
        """Enter what leaders of any epoch have committed since the last look."""
        del metadata
        leaders = [r for r in replicas.values() if r.leads]
        for leader in sorted(leaders, key=lambda r: -r.leader_epoch):
            incarnation = self._cluster.brokers[leader.broker].incarnation
            key = (leader.broker, incarnation, leader.leader_epoch)
            seen = max(book.seen.get(key, 0), leader.log.start)
            if leader.high_watermark <= seen:
                continue
            book.seen[key] = leader.high_watermark
            self._enter(partition, book, leader, OffsetRange(seen, leader.high_watermark))
        if len(book.seen) > len(leaders):
            current = {(r.broker, r.leader_epoch) for r in leaders}
            book.seen = {k: v for k, v in book.seen.items() if (k[0], k[2]) in current}

    def _enter(
        self, partition: TopicPartition, book: _Book, leader: Replica, new: OffsetRange
    ) -> None:
        end = book.committed[-1].end if book.committed else max(book.floor, 0)
        for run in leader.log.slice(max(new.start, end), new.end):
            last = book.committed[-1] if book.committed else None
            if last is not None and last[:2] == run[:2] and last.end == run.start:
                book.committed[-1] = last._replace(end=run.end)
            else:
                book.committed.append(run)
        if new.start < end:
            # An older leader commits where a newer one already has: what differs is lost at once.
            within = OffsetRange(max(new.start, book.floor), min(new.end, end))
            mine = leader.log.slice(*within)
            for missing in unshared(mine, book.committed, within) if mine else []:
                part = leader.log.slice(*missing)
                if not any(shared(part, [gone]) for gone in book.lost):
                    self._lose(partition, book, missing, leader, since=leader.leader_epoch)

    def _forget_below(self, book: _Book, floor: int) -> None:
        if book.committed and book.committed[0].start < floor:
            above = [OffsetRange(floor, book.committed[-1].end)]
            book.committed = _clipped(book.committed, above)

    def _compare(
        self,
        partition: TopicPartition,
        metadata: PartitionMetadata,
        book: _Book,
        replicas: dict[BrokerId, Replica],
    ) -> None:
        members = [replicas[b] for b in sorted(metadata.state.isr) if b in replicas]
        for index, left in enumerate(members):
            for right in members[index + 1 :]:
                self._compare_pair(partition, book, left, right)

    def _compare_pair(
        self, partition: TopicPartition, book: _Book, left: Replica, right: Replica
    ) -> None:
        pair = (left.broker, right.broker)
        cuts = (left.log.cuts, right.log.cuts)
        upto, *cuts_then = book.alike.get(pair, (0, 0, 0))
        start = max(left.log.start, right.log.start, upto if tuple(cuts_then) == cuts else 0)
        end = min(left.high_watermark, right.high_watermark)
        if start >= end:
            return
        book.alike[pair] = (end, *cuts)
        if not left.known or not right.known:
            return
        within = OffsetRange(start, end)
        for differing in unshared(left.log.slice(*within), right.log.slice(*within), within):
            damaged = left.damaged or right.damaged
            found = Divergence(
                self._cluster.now_ms, partition, book.topic_id, differing, pair, damaged
            )
            self.divergences.append(found)


def _clipped(runs: list[Run], ranges: list[OffsetRange]) -> list[Run]:
    """Those parts of the runs that lie in the ranges."""
    found = []
    for start, end in ranges:
        for run in runs:
            low, high = max(run.start, start), min(run.end, end)
            if low < high:
                found.append(run._replace(start=low, end=high))
    return found
