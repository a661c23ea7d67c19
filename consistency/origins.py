"""Logs whose epochs do not tell their records: who wrote which offset, by having seen all of it.

Up to 0.10.2 there are no epochs; with ZooKeeper a leader that restarts unnoticed may write an
offset twice in one epoch; and before 2.0.1 epoch files leave out what logs go back to. LEO, HW,
log start and epochs of two replicas can be equal while their records differ, and no single sample
shows it. An observer who is told of every change (`PartitionObservation.continuous`) can reckon it:
what a leader's log grows by it wrote itself, in its epoch; what a follower's log grows by it copied
from the leader it follows; a log that shrinks has lost its end. With samples further apart a log
may shrink and grow again unseen, so nothing is inferred from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.model import UNKNOWN_BROKER_EPOCH, OffsetRange
from tidestaff.consistency.ranges import merged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Sight
    from tidestaff.consistency.model import BrokerId, ReplicaReading

MAX_SEGMENTS: Final = 32
MAX_LED: Final = 8
UNKNOWN: Final = -1


class Segment(NamedTuple):
    """Records [start, end) that one process wrote while it led in one epoch; epoch -1: unknown."""

    start: int
    end: int
    epoch: int
    writer: int


Segments = tuple[Segment, ...]


class Role(NamedTuple):
    """What a process believed to be: whose records it gets follows from it."""

    leads: bool
    epoch: int
    process: int


class KnownLog(NamedTuple):
    """One replica's log as far as it was seen to grow, and the last role it was seen in."""

    broker: BrokerId
    end: int
    segments: Segments
    role: Role | None = None


class LedLog(NamedTuple):
    """The log of a broker as it last was while it led, in whatever epoch: what its followers copy,
    even if the answer arrives when the leader is gone. `epoch` is the last in which it led; nothing
    keeps a follower of an older one from fetching (before 2.1)."""

    broker: BrokerId
    epoch: int
    segments: Segments


class Origins(NamedTuple):
    """All that is reckoned of one partition. `pending`: lost, and not yet reported, for want of a
    leader in office."""

    logs: tuple[KnownLog, ...] = ()
    led: tuple[LedLog, ...] = ()
    leaders: tuple[tuple[int, BrokerId], ...] = ()
    committed: Segments = ()
    lost: Segments = ()
    pending: tuple[OffsetRange, ...] = ()

    def log(self, broker: BrokerId) -> KnownLog | None:
        return next((log for log in self.logs if log.broker == broker), None)


def origins(sight: Sight) -> Origins | None:
    """What is known after this observation; None where something may have happened unseen."""
    if sight.rules.epochs_name_records or not sight.observation.continuous:
        return None
    memory = sight.memory
    known = memory.origins if memory is not None else None
    if known is None or not sight.identified:
        known = Origins()
    led = {log.broker: log for log in known.led}
    leaders = {**dict(known.leaders), sight.state.leader_epoch: sight.state.leader}
    logs = {log.broker: log for log in known.logs}
    found: dict[BrokerId, KnownLog] = {}
    readings = [r for r in sight.replicas if r.log_end_offset is not None]
    for reading in sorted(readings, key=lambda r: not r.leads):
        before = logs.get(reading.broker) or _first_seen(reading)
        # The last thing a process did before it ended may show only when it is back, without a
        # role: it was still done in the old one.
        role = _role(reading) or before.role
        leader = led.get(leaders.get(role.epoch, -1)) if role is not None else None
        log = _grown(before, reading, role, leader)
        found[reading.broker] = log
        if role is not None and reading.leads:
            led[reading.broker] = LedLog(reading.broker, role.epoch, log.segments)
            leaders[role.epoch] = reading.broker
    assigned = sight.observation.assignment.replicas
    kept = [found.get(b) or logs[b] for b in assigned if b in found or b in logs]
    after = Origins(
        tuple(kept),
        tuple(sorted(led.values(), key=lambda log: log.epoch)[-MAX_LED:]),
        tuple(sorted(leaders.items())[-MAX_LED:]),
        known.committed,
        known.lost,
    )
    return _committed(sight, after)


def _first_seen(reading: ReplicaReading) -> KnownLog:
    start, end = reading.log_start_offset or 0, reading.log_end_offset or 0
    unknown = (Segment(start, end, UNKNOWN, UNKNOWN),) if start < end else ()
    return KnownLog(reading.broker, end, unknown)


def _role(reading: ReplicaReading) -> Role | None:
    if reading.leader_epoch is None or reading.leads is None or reading.broker_epoch is None:
        return None
    return Role(reading.leads, reading.leader_epoch, reading.broker_epoch)


def _grown(
    log: KnownLog, reading: ReplicaReading, role: Role | None, leader: LedLog | None
) -> KnownLog:
    start, end = reading.log_start_offset or 0, reading.log_end_offset or 0
    # Shorter than before: cut. Starting beyond its old end: begun anew.
    segments = clipped(log.segments, start, end)
    position = min(max(log.end, start), end)
    if position < end:
        segments = _joined((*segments, *_new(position, end, role, leader)))
    return KnownLog(reading.broker, end, _bounded(segments), role)


def _new(start: int, end: int, role: Role | None, leader: LedLog | None) -> Segments:
    """The origin of the records [start, end) that a replica in this role has just got."""
    unknown = Segment(start, end, UNKNOWN, UNKNOWN)
    if role is None:
        return (unknown,)
    if role.leads:
        known = role.process != UNKNOWN_BROKER_EPOCH
        return (Segment(start, end, role.epoch, role.process) if known else unknown,)
    return _overlaid((unknown,), clipped(leader.segments, start, end) if leader else ())


def _committed(sight: Sight, now: Origins) -> Origins:
    """What leaders have committed, and what of it the leader in office does not hold."""
    leader = sight.leader if sight.coherent else None
    office = now.log(leader.broker) if leader is not None else None
    known = sight.memory.origins if sight.memory is not None else None
    committed, lost = now.committed, now.lost
    gone = list(known.pending) if known is not None else []
    floor = sight.memory.committed_start if sight.memory is not None else 0
    if leader is not None and office is not None:
        floor = max(floor, leader.log_start_offset or 0)
        committed = clipped(committed, floor, _end(committed))
        lacking = list(_lacking(committed, office.segments))
        gone += [OffsetRange(part.start, part.end) for part in lacking]
        lost = (*lost, *lacking)
        below = clipped(office.segments, floor, leader.high_watermark or 0)
        committed = _overlaid(tuple(_held(committed, office.segments)), below)
    for reading in sight.replicas:
        log = now.log(reading.broker)
        if not reading.leads or log is None or (leader is not None and reading is leader):
            continue
        below = clipped(log.segments, floor, reading.high_watermark or 0)
        against = office.segments if office is not None else _overlaid(below, committed)
        lacking = [p for part in _lacking(below, against) for p in _unreported(part, lost)]
        gone += [OffsetRange(part.start, part.end) for part in lacking]
        lost = (*lost, *lacking)
        agreed = tuple(_agreed(below, against))
        if office is None:
            # Nobody is there to have it again: what was lost once is not committed anew.
            agreed = tuple(p for part in agreed for p in _unreported(part, lost))
        committed = _overlaid(committed, agreed)
    return now._replace(
        committed=_bounded(committed), lost=lost[-MAX_SEGMENTS:], pending=merged(gone)
    )


def differing(sight: Sight) -> Iterator[tuple[BrokerId, BrokerId, OffsetRange]]:
    """Pairs of in-sync replicas with different records below both their high watermarks."""
    known = sight.origins
    if known is None:
        return
    members = [r for r in sight.replicas if r.broker in sight.state.isr and r.leads is not None]
    for index, one in enumerate(members):
        for other in members[index + 1 :]:
            end = min(one.high_watermark or 0, other.high_watermark or 0)
            left, right = known.log(one.broker), known.log(other.broker)
            if left is None or right is None:
                continue
            mine = clipped(left.segments, other.log_start_offset or 0, end)
            theirs = clipped(right.segments, one.log_start_offset or 0, end)
            for offsets in merged(_conflicts(mine, theirs)):
                yield one.broker, other.broker, offsets


# -- segments


def clipped(segments: Segments, start: int, end: int) -> Segments:
    return tuple(
        s._replace(start=max(s.start, start), end=min(s.end, end))
        for s in segments
        if max(s.start, start) < min(s.end, end)
    )


def _end(segments: Segments) -> int:
    return segments[-1].end if segments else 0


def _joined(segments: Segments) -> Segments:
    found: list[Segment] = []
    for segment in segments:
        last = found[-1] if found else None
        if last is not None and last.end == segment.start and last[2:] == segment[2:]:
            found[-1] = last._replace(end=segment.end)
        else:
            found.append(segment)
    return tuple(found)


def _bounded(segments: Segments) -> Segments:
    """The newest in full; what is older is of unknown origin."""
    if len(segments) <= MAX_SEGMENTS:
        return segments
    old, new = segments[:-MAX_SEGMENTS], segments[-MAX_SEGMENTS:]
    return (Segment(old[0].start, old[-1].end, UNKNOWN, UNKNOWN), *new)


def _without(segments: Segments, ranges: list[OffsetRange]) -> Segments:
    for start, end in ranges:
        segments = (*clipped(segments, 0, start), *clipped(segments, end, _end(segments)))
    return segments


def _overlaid(below: Segments, above: Segments) -> Segments:
    """Both, in order; where they overlap the second counts."""
    rest = _without(below, [OffsetRange(s.start, s.end) for s in above])
    return _joined(tuple(sorted((*rest, *above))))


def _pairs(one: Segments, other: Segments) -> Iterator[tuple[Segment, Segment]]:
    """Every stretch that both have, with its two origins."""
    for left in one:
        for right in clipped(other, left.start, left.end):
            yield left._replace(start=right.start, end=right.end), right


def _conflicts(one: Segments, other: Segments) -> list[OffsetRange]:
    return [
        OffsetRange(left.start, left.end)
        for left, right in _pairs(one, other)
        if UNKNOWN not in (left.epoch, right.epoch) and left[2:] != right[2:]
    ]


def _held(wanted: Segments, held: Segments) -> Iterator[Segment]:
    """What of the first may be in the second."""
    for left, right in _pairs(wanted, held):
        if UNKNOWN in (left.epoch, right.epoch) or left[2:] == right[2:]:
            yield left


def _agreed(one: Segments, other: Segments) -> Iterator[Segment]:
    return (left for left, right in _pairs(one, other) if left[2:] == right[2:])


def _lacking(wanted: Segments, held: Segments) -> Iterator[Segment]:
    """What of the first is not in the second: nothing there, or certainly something else."""
    there = [OffsetRange(s.start, s.end) for s in held]
    other = _conflicts(wanted, held)
    for segment in wanted:
        absent = _without((segment,), there)
        replaced = (p for o in other for p in clipped((segment,), *o))
        yield from sorted((*absent, *replaced))


def _unreported(part: Segment, lost: Segments) -> Segments:
    """What of it was not lost before: a leader out of office shows its commits again and again."""
    return _without((part,), [OffsetRange(s.start, s.end) for s in lost if s[2:] == part[2:]])
