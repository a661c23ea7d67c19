"""Who is behind, and when it will be back in sync: from two looks at the same logs.

A speed is seen, never assumed: of a replica that was seen once nobody can say when it is back.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidestaff.consistency.model import BrokerId, PartitionObservation


class Pace(Enum):
    """What is known of how a replica comes nearer to its leader."""

    NEARING = "nearing"
    NOT_NEARING = "not nearing"
    UNKNOWN = "unknown"  # it was not seen twice


class CatchUp(NamedTuple):
    """A replica outside the ISR: how far it is behind, and how long it takes at its present speed
    (None unless it is nearing)."""

    name: TopicPartition
    broker: BrokerId
    behind: int
    seconds: float | None
    pace: Pace = Pace.NEARING


class Return(NamedTuple):
    """All of a broker's replicas outside the ISR: the slowest of them decides."""

    broker: BrokerId
    partitions: int
    behind: int
    seconds: float | None
    pace: Pace


def catching_up(
    earlier: Sequence[PartitionObservation], later: Sequence[PartitionObservation]
) -> tuple[CatchUp, ...]:
    """From two rounds: what the follower gained on its leader between them."""
    before = {(o.topic, o.partition): o for o in earlier}
    found = []
    for seen in later:
        then = before.get((seen.topic, seen.partition))
        ends = _ends(seen)
        old = {} if then is None or then.state.leader != seen.state.leader else _ends(then)
        leader_end = ends.get(seen.state.leader)
        for broker in seen.assignment.replicas:
            end = ends.get(broker)
            if broker in seen.state.isr or end is None or leader_end is None:
                continue
            gap = max(leader_end - end, 0)
            seconds, pace = None, Pace.UNKNOWN
            if gap == 0:
                seconds, pace = 0.0, Pace.NEARING
            elif then is not None and broker in old and seen.state.leader in old:
                passed_s = (seen.observed_at_ms - then.observed_at_ms) / 1_000
                gained = (old[seen.state.leader] - old[broker]) - gap
                if passed_s > 0:
                    pace = Pace.NEARING if gained > 0 else Pace.NOT_NEARING
                    seconds = gap * passed_s / gained if gained > 0 else None
            name = TopicPartition(seen.topic, seen.partition)
            found.append(CatchUp(name, broker, gap, seconds, pace))
    return tuple(found)


def returns(behind: Iterable[CatchUp]) -> tuple[Return, ...]:
    """By broker; who is not nearing, or not known, somewhere is so as a whole."""
    by_broker: dict[BrokerId, list[CatchUp]] = {}
    for each in behind:
        by_broker.setdefault(each.broker, []).append(each)
    found = []
    for broker, mine in sorted(by_broker.items()):
        paces = {each.pace for each in mine}
        worst = next(p for p in (Pace.NOT_NEARING, Pace.UNKNOWN, Pace.NEARING) if p in paces)
        seconds = max(each.seconds or 0.0 for each in mine) if worst is Pace.NEARING else None
        found.append(Return(broker, len(mine), sum(e.behind for e in mine), seconds, worst))
    return tuple(found)


def written_a_second(
    earlier: Sequence[PartitionObservation], later: Sequence[PartitionObservation]
) -> Mapping[BrokerId, float] | None:
    """Records a second that each broker has to hold: so many more it misses with every second it
    is away. None where nothing was seen twice."""
    before = {(o.topic, o.partition): o for o in earlier}
    found: dict[BrokerId, float] = {}
    twice = False
    for seen in later:
        then = before.get((seen.topic, seen.partition))
        if then is None or then.state.leader != seen.state.leader:
            continue
        old, new = _ends(then).get(seen.state.leader), _ends(seen).get(seen.state.leader)
        passed_s = (seen.observed_at_ms - then.observed_at_ms) / 1_000
        if old is None or new is None or passed_s <= 0:
            continue
        twice = True
        for broker in seen.assignment.replicas:
            found[broker] = found.get(broker, 0.0) + max(new - old, 0) / passed_s
    return found if twice else None


def _ends(seen: PartitionObservation) -> dict[BrokerId, int]:
    """Where each log ends; a negative end is what a source says that does not know it."""
    return {
        r.broker: r.log_end_offset
        for r in seen.replicas
        if r.log_end_offset is not None and r.log_end_offset >= 0
    }
