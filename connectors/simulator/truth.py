"""The simulator's own ledger, computed from the true state after every event.

Committed is what was ever below the high watermark of a broker that led in some leader epoch, by
record identity. It is lost when a leader that has taken office in the metadata's current epoch does
not hold it. Replicas diverge when two live members of the ISR hold different records at an offset
below both their high watermarks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidestaff.connectors.simulator.entries import (
    Divergence,
    Loss,
    StaleWrite,
    Stranded,
    StrayCommit,
    TornTail,
    UncleanElection,
)
from tidestaff.connectors.simulator.log import Run, shared, unshared
from tidestaff.consistency.model import OffsetRange, RecoveryState, TopicPartition

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.coordination import PartitionMetadata
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import BrokerId, PartitionState


_REMEMBERED = 64


@dataclass(slots=True)
class _Book:
    topic_id: str
    committed: list[Run] = field(default_factory=list)
    floor: int = 0
    office: tuple[BrokerId, int, int] | None = None
    interrupted: bool = False
    seen: dict[tuple[BrokerId, int, int], int] = field(default_factory=dict)
    alike: dict[tuple[BrokerId, BrokerId], tuple[int, int, int]] = field(default_factory=dict)
    unlike: set[tuple[BrokerId, BrokerId, tuple[Run, ...], tuple[Run, ...]]] = field(
        default_factory=set
    )
    electable: tuple[BrokerId, ...] = ()
    last_isr: tuple[BrokerId, ...] = ()
    leader_epoch: int = -1
    unclean_epoch: int = -1
    lost: list[Run] = field(default_factory=list)
    # Committed while nobody is in office, where an earlier commit has something else.
    claims: list[Run] = field(default_factory=list)


class Truth:
    """`losses` and `divergences`, with their times and exact offset ranges, `unclean_elections`,
    `stale_writes`, `stranded`, `stray_commits` and `torn_tails`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._books: dict[TopicPartition, _Book] = {}
        self._wiped: set[tuple[BrokerId, TopicPartition]] = set()
        self.losses: list[Loss] = []
        self.divergences: list[Divergence] = []
        self.unclean_elections: list[UncleanElection] = []
        self.stale_writes: list[StaleWrite] = []
        self.stranded: list[Stranded] = []
        self.stray_commits: list[StrayCommit] = []
        self.torn_tails: list[TornTail] = []

    def wiped(self, broker: BrokerId, partitions: list[TopicPartition]) -> None:
        self._wiped.update((broker, partition) for partition in partitions)

    def torn(self, replica: Replica, end: int) -> None:
        """A power loss has shortened this log, which ended at `end`."""
        offsets = OffsetRange(replica.log.end, end)
        self.torn_tails.append(
            TornTail(
                self._cluster.now_ms, replica.partition, replica.topic_id, replica.broker, offsets
            )
        )

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
            self._note_electable(book, metadata.state)
        replicas = self._live_replicas(partition, metadata)
        in_office = self._in_office(metadata, replicas)
        self._check_office(partition, book, in_office)
        self._commit(partition, book, in_office, replicas)
        self._compare(partition, metadata, book, replicas)

    def written(self, partition: TopicPartition, state: PartitionState) -> None:
        """One write of a partition's state: a controller may do several in one event, and who was
        electable is known only from the write just before.

        A write may take a replica into the ISR and elect it; versions that keep a recovery state
        say which elections were unclean.
        """
        metadata, book = self._cluster.mode.partition(partition), self._books.get(partition)
        if metadata is None or book is None or book.topic_id != metadata.topic_id:
            return
        elected = state.leader_epoch != book.leader_epoch and state.leader >= 0
        recovered = state.recovery is RecoveryState.RECOVERED
        clean = self._cluster.preset.recovery_state and recovered
        if elected and state.leader not in book.electable and not clean:
            book.unclean_epoch = state.leader_epoch
            self.unclean_elections.append(
                UncleanElection(
                    self._cluster.now_ms,
                    partition,
                    state.leader,
                    state.leader_epoch,
                    book.topic_id,
                )
            )
        self._note_electable(book, state)

    def written_by_controller(self, partition: TopicPartition, epoch: int) -> None:
        """A ZooKeeper controller of that epoch writes a state."""
        current = self._cluster.mode.controller_epoch()
        if epoch < current:
            now_ms = self._cluster.now_ms
            self.stale_writes.append(StaleWrite(now_ms, partition, epoch, current))

    def dropped(self, partition: TopicPartition, broker: BrokerId, state: PartitionState) -> None:
        """A replaced reassignment takes a replica away; `state` is what is written then. The last
        member of an ISR stays in it by name, though its log is deleted."""
        if broker in state.isr:
            self.stranded.append(Stranded(self._cluster.now_ms, partition, broker))

    def _note_electable(self, book: _Book, state: PartitionState) -> None:
        """Before 1.1 a dying ISR may leave none: then its last members, with their leader, are the
        ones that hold everything."""
        book.leader_epoch = state.leader_epoch
        if state.leader >= 0:
            book.last_isr = state.isr
        emptied = not state.isr and self._cluster.preset.last_isr_member_may_go
        book.electable = book.last_isr if emptied else (*state.isr, *state.elr)

    def _live_replicas(
        self, partition: TopicPartition, metadata: PartitionMetadata
    ) -> dict[BrokerId, Replica]:
        found = {}
        for broker in self._cluster.sorted_brokers():
            replica = broker.replicas.get(partition)
            if broker.up and replica is not None and replica.topic_id == metadata.topic_id:
                found[broker.id] = replica
        return found

    def _in_office(
        self, metadata: PartitionMetadata, replicas: dict[BrokerId, Replica]
    ) -> Replica | None:
        """The leader of the metadata's current epoch, once it knows and while it is scheduled."""
        leader = replicas.get(metadata.state.leader)
        if leader is None or not leader.leads or leader.leader_epoch != metadata.state.leader_epoch:
            return None
        return leader if self._cluster.brokers[leader.broker].answers else None

    def _check_office(self, partition: TopicPartition, book: _Book, leader: Replica | None) -> None:
        """A leader that has just taken office, or goes on in it, must hold everything committed."""
        if leader is None:
            book.interrupted = True
            return
        incarnation = self._cluster.brokers[leader.broker].incarnation
        office = (leader.broker, incarnation, leader.leader_epoch)
        book.floor = max(book.floor, leader.log.start)
        if office == book.office and not book.interrupted:
            return
        before, book.office, book.interrupted = book.office, office, False
        self._forget_below(book, book.floor)
        held = leader.log.runs
        kept = []
        for run in (*book.committed, *book.claims):
            for missing in unshared([run], held, OffsetRange(run.start, run.end)):
                lost = run._replace(start=missing.start, end=missing.end)
                self._lose(partition, book, lost, leader, since=before[2] if before else -1)
            kept += _clipped([run], shared([run], held))
        # Of two claims to an offset at most one is held.
        book.committed, book.claims = _overlaid([], kept), []

    def _lose(
        self, partition: TopicPartition, book: _Book, lost: Run, leader: Replica, *, since: int
    ) -> None:
        """Enter it; what touches a loss of the same moment makes one with it."""
        book.lost = [*book.lost, lost][-_REMEMBERED:]
        damaged = leader.damaged or (leader.broker, partition) in self._wiped
        entry = Loss(
            self._cluster.now_ms,
            partition,
            book.topic_id,
            OffsetRange(lost.start, lost.end),
            leader.broker,
            leader.leader_epoch,
            book.unclean_epoch > since,
            damaged,
            (lost,),
        )
        last = self.losses[-1] if self.losses else None
        adjacent = last is not None and last.offsets.end == lost.start
        if last is not None and adjacent and last[:3] == entry[:3] and last[4:8] == entry[4:8]:
            whole = OffsetRange(last.offsets.start, lost.end)
            entry = entry._replace(offsets=whole, records=(*last.records, lost))
            self.losses.pop()
        self.losses.append(entry)

    def _commit(
        self,
        partition: TopicPartition,
        book: _Book,
        in_office: Replica | None,
        replicas: dict[BrokerId, Replica],
    ) -> None:
        """Enter what leaders of any epoch have committed since the last look."""
        leaders = [r for r in replicas.values() if r.leads]
        for leader in sorted(leaders, key=lambda r: -r.leader_epoch):
            incarnation = self._cluster.brokers[leader.broker].incarnation
            key = (leader.broker, incarnation, leader.leader_epoch)
            seen = max(book.seen.get(key, 0), leader.log.start, book.floor)
            if leader.high_watermark <= seen:
                continue
            book.seen[key] = leader.high_watermark
            new = leader.log.slice(seen, leader.high_watermark)
            self._note_stray(partition, book, leader, new)
            if leader is not in_office:
                new = self._kept(partition, book, new, leader, in_office)
            book.committed = _overlaid(book.committed, new)
        if len(book.seen) > len(leaders):
            current = {(r.broker, r.leader_epoch) for r in leaders}
            book.seen = {k: v for k, v in book.seen.items() if (k[0], k[2]) in current}

    def _note_stray(
        self, partition: TopicPartition, book: _Book, leader: Replica, new: list[Run]
    ) -> None:
        metadata = self._cluster.mode.partition(partition)
        if metadata is not None and leader.broker not in metadata.assignment.replicas:
            commit = (self._cluster.now_ms, partition, book.topic_id, leader.broker, tuple(new))
            self.stray_commits.append(StrayCommit(*commit))

    def _kept(
        self,
        partition: TopicPartition,
        book: _Book,
        new: list[Run],
        leader: Replica,
        in_office: Replica | None,
    ) -> list[Run]:
        """What a leader out of office commits is lost at once where the one in office has something
        else. While there is none, it stands beside an earlier commit of something else: the next to
        take office, which may be this very leader, has to hold both, and loses one.

        What is lost already it cannot bring back, by holding it still: only a leader in office can.
        """
        if in_office is None:
            known = [*book.lost, *book.committed, *book.claims]
            fresh = [part for run in new for part in _not_among(known, run)]
            taken = [OffsetRange(run.start, run.end) for run in book.committed]
            book.claims += [part for run in fresh for part in _clipped([run], taken)]
            return [part for run in fresh for part in _without(run, taken)]
        kept = []
        for run in new:
            for missing in unshared([run], in_office.log.runs, OffsetRange(run.start, run.end)):
                # A leader that was told late commits more of the very run of which some is lost.
                gone = run._replace(start=missing.start, end=missing.end)
                for lost in _not_among(book.lost, gone):
                    self._lose(partition, book, lost, leader, since=leader.leader_epoch)
            kept += _clipped([run], shared([run], in_office.log.runs))
        return kept

    def _forget_below(self, book: _Book, floor: int) -> None:
        book.claims = [
            run._replace(start=max(run.start, floor)) for run in book.claims if run.end > floor
        ]
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
        # A process that is not scheduled serves nobody; it is compared when it goes on.
        answering = [b for b in sorted(metadata.state.isr) if self._cluster.brokers[b].answers]
        members = [replicas[b] for b in answering if b in replicas]
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
            records = (tuple(left.log.slice(*differing)), tuple(right.log.slice(*differing)))
            told = (*pair, *records)
            if told in book.unlike:
                # A cut somewhere above makes them be compared anew; it is the same divergence.
                continue
            book.unlike.add(told)
            damaged = left.damaged or right.damaged
            found = Divergence(
                self._cluster.now_ms, partition, book.topic_id, differing, pair, damaged, records
            )
            self.divergences.append(found)


def _not_among(known: list[Run], run: Run) -> list[Run]:
    """What is left of the run without its records that are known."""
    left = [OffsetRange(run.start, run.end)]
    for each in known:
        left = [part for within in left for part in unshared([run], [each], within)]
    return _clipped([run], left)


def _without(run: Run, taken: list[OffsetRange]) -> list[Run]:
    """What is left of the run without these offsets, which are in order."""
    like = [run._replace(start=start, end=end) for start, end in taken]
    return _clipped([run], unshared([run], like, OffsetRange(run.start, run.end)))


def _clipped(runs: list[Run], ranges: list[OffsetRange]) -> list[Run]:
    """Those parts of the runs that lie in the ranges."""
    found = []
    for start, end in ranges:
        for run in runs:
            low, high = max(run.start, start), min(run.end, end)
            if low < high:
                found.append(run._replace(start=low, end=high))
    return found


def _overlaid(below: list[Run], above: list[Run]) -> list[Run]:
    """Both, in order; where they overlap the second counts."""
    found: list[Run] = []
    for run in below:
        position = run.start
        for start, end in sorted((r.start, r.end) for r in above):
            if end <= position or start >= run.end:
                continue
            if start > position:
                found.append(run._replace(start=position, end=start))
            position = end
        if position < run.end:
            found.append(run._replace(start=position))
    joined: list[Run] = []
    for run in sorted([*found, *above], key=lambda r: r.start):
        last = joined[-1] if joined else None
        if last is not None and last[:2] == run[:2] and last.end == run.start:
            joined[-1] = last._replace(end=run.end)
        else:
            joined.append(run)
    return joined
