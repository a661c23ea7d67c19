"""What would happen if: a whole cluster's forecast for a stop, a rolling restart, a reassignment,
or unclean election being allowed. Each partition by the rules of `forecast` and `reassignment`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.broker_events import broker_return
from tidestaff.consistency.forecast import PartitionForecast, forecast
from tidestaff.consistency.isr import effective_min_isr
from tidestaff.consistency.kraft_reassignment import complete_reassignment, start_reassignment
from tidestaff.consistency.model import NO_LEADER, OffsetRange, TopicPartition
from tidestaff.consistency.reassignment import is_complete, reassign_to, reassignment_writes
from tidestaff.consistency.versions import Mode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tidestaff.consistency.model import Assignment, BrokerId, PartitionObservation
    from tidestaff.consistency.versions import RuleSet


class Change(NamedTuple):
    """One partition before and after."""

    before: PartitionObservation
    after: PartitionForecast
    minimum: int

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.before.topic, self.before.partition)

    @property
    def newly_offline(self) -> bool:
        return self.after.offline and self.before.state.leader >= 0

    @property
    def offline_already(self) -> bool:
        """Nobody leads it, and nobody will: one replica less is there that may come to lead."""
        return self.after.offline and self.before.state.leader < 0

    @property
    def newly_under_min_isr(self) -> bool:
        """Writers that want all acknowledgements are refused from then on."""
        held = self.before.state.leader >= 0 and len(self.before.state.isr) >= self.minimum
        return self.after.under_min_isr and held and not self.after.offline

    @property
    def one_copy_left(self) -> bool:
        """One in-sync copy of several: the next failure takes it offline, or loses."""
        few = self.after.in_sync == 1 and not self.after.offline
        return few and len(self.before.assignment.target) > 1


class StopForecast(NamedTuple):
    """What a stop of these brokers does to the cluster."""

    stopping: tuple[BrokerId, ...]
    controlled: bool
    changes: tuple[Change, ...]
    leaders_before: Mapping[BrokerId, int] = {}
    leaders_after: Mapping[BrokerId, int] = {}
    controller_moves: bool = False

    @property
    def offline(self) -> tuple[Change, ...]:
        return tuple(each for each in self.changes if each.newly_offline)

    @property
    def offline_already(self) -> tuple[Change, ...]:
        return tuple(each for each in self.changes if each.offline_already)

    @property
    def under_min_isr(self) -> tuple[Change, ...]:
        return tuple(each for each in self.changes if each.newly_under_min_isr)

    @property
    def losing(self) -> tuple[Change, ...]:
        return tuple(each for each in self.changes if each.after.lost is not None)

    @property
    def one_copy_left(self) -> tuple[Change, ...]:
        return tuple(each for each in self.changes if each.one_copy_left)

    @property
    def unknown(self) -> tuple[Change, ...]:
        return tuple(each for each in self.changes if each.after.missing)

    @property
    def safe(self) -> bool:
        return not (self.offline or self.under_min_isr or self.losing)


def stop(
    observations: Sequence[PartitionObservation],
    stopping: Collection[BrokerId],
    *,
    controlled: bool,
) -> StopForecast:
    """Only partitions that one of them holds are listed as changes."""
    changes = tuple(
        Change(each, forecast(each, stopping=stopping, controlled=controlled), minimum_of(each))
        for each in observations
        if set(each.assignment.replicas) & set(stopping) and not each.deleting
    )
    after = {(c.before.topic, c.before.partition): c.after.leader for c in changes}
    before = Counter(o.state.leader for o in observations if o.state.leader >= 0)
    later = Counter(after.get((o.topic, o.partition), o.state.leader) for o in observations)
    del later[NO_LEADER]
    brokers = {b for o in observations for b in o.assignment.replicas}
    moves = any(o.controller in stopping for o in observations)
    return StopForecast(
        tuple(sorted(stopping)),
        controlled,
        changes,
        {b: before[b] for b in sorted(brokers)},
        {b: later[b] for b in sorted(brokers)},
        moves,
    )


def minimum_of(observation: PartitionObservation) -> int:
    return effective_min_isr(
        min_insync_replicas=observation.settings.min_insync_replicas,
        replica_count=len(observation.assignment.replicas),
        rules=observation.rules,
    )


# -- a rolling restart


class RestartStep(NamedTuple):
    """One broker of a rolling restart. `as_it_is`: at once; `healed`: once every replica that
    can be in sync is. `wait_for` are partitions that must be in sync again before this step.
    `down`: it is not there to be stopped, and to be started first."""

    broker: BrokerId
    as_it_is: StopForecast
    healed: StopForecast
    wait_for: tuple[TopicPartition, ...]
    down: bool = False

    @property
    def safe(self) -> bool:
        return self.healed.safe


class RestartPlan(NamedTuple):
    """In a safe order: who is down first, then whoever can go now, the controller last."""

    steps: tuple[RestartStep, ...]

    @property
    def blocked(self) -> tuple[RestartStep, ...]:
        return tuple(step for step in self.steps if not step.safe)


def restart(
    observations: Sequence[PartitionObservation],
    brokers: Sequence[BrokerId],
    live: Collection[BrokerId] = (),
) -> RestartPlan:
    """One after the other, each after the last one is back in every ISR. `live` are those that are
    registered and not fenced, with or without a partition; nobody: it is not known who is."""
    full = [healed(each) for each in observations]
    controller = next((o.controller for o in observations if o.controller is not None), None)
    steps = []
    for broker in brokers:
        now = stop(observations, {broker}, controlled=True)
        later = stop(full, {broker}, controlled=True)
        waiting = tuple(
            TopicPartition(o.topic, o.partition)
            for o, well in zip(observations, full, strict=True)
            if broker in o.assignment.replicas and set(o.state.isr) != set(well.state.isr)
        )
        steps.append(RestartStep(broker, now, later, waiting, bool(live) and broker not in live))
    steps.sort(
        key=lambda s: (
            not s.safe,
            not s.down,
            not s.as_it_is.safe,
            s.broker == controller,
            s.as_it_is.leaders_before.get(s.broker, 0),
            s.broker,
        )
    )
    return RestartPlan(tuple(steps))


def healed(observation: PartitionObservation) -> PartitionObservation:
    """The same partition once every live replica has caught up."""
    state, live = observation.state, {r.broker for r in observation.live if not r.fenced}
    back = tuple(b for b in observation.assignment.replicas if b in live and b not in state.isr)
    if not back or state.leader < 0:
        return observation
    isr = (*state.isr, *back)
    elr = tuple(b for b in state.elr if b not in isr)
    return replace(observation, state=state._replace(isr=isr, elr=elr))


# -- a reassignment


class Move(NamedTuple):
    """One partition of a reassignment: what it becomes, who copies how much, what is in the way."""

    name: TopicPartition
    replicas: tuple[BrokerId, ...] = ()
    target: tuple[BrokerId, ...] = ()
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    leader_before: BrokerId = NO_LEADER
    leader_after: BrokerId = NO_LEADER
    records_to_copy: int | None = None
    away: tuple[BrokerId, ...] = ()
    under_min_isr: bool = False
    unknown: str = ""


def reassign(
    observations: Sequence[PartitionObservation],
    wanted: Mapping[TopicPartition, Sequence[BrokerId]],
    live: Collection[BrokerId],
) -> tuple[Move, ...]:
    """As it ends, once the added replicas have caught up; `away` are targets that are not live,
    where it would wait for them for ever."""
    known = {TopicPartition(o.topic, o.partition): o for o in observations}
    found = []
    for name, target in wanted.items():
        seen = known.get(name)
        if seen is None:
            found.append(Move(name, target=tuple(target), unknown="there is no such partition"))
        elif seen.state.leader == NO_LEADER:
            why = "it has no leader to copy from"
            found.append(Move(name, seen.assignment.replicas, tuple(target), unknown=why))
        else:
            found.append(_move(name, seen, tuple(target), live))
    return tuple(found)


def _move(
    name: TopicPartition,
    seen: PartitionObservation,
    target: tuple[BrokerId, ...],
    live: Collection[BrokerId],
) -> Move:
    current = seen.assignment
    if seen.rules.mode is Mode.KRAFT:
        planned = start_reassignment(current=current.replicas, target=target)
    else:
        planned = reassign_to(current, target)
    absent = tuple(b for b in target if b not in live)
    caught_up = seen.state._replace(isr=tuple({*seen.state.isr, *(set(target) - set(absent))}))
    leader = seen.state.leader
    ends = _would_end(planned, target, caught_up.isr, seen.rules)
    if seen.rules.mode is Mode.KRAFT:
        stays = (leader in target and leader in live) or not ends
        after = leader if stays else next((b for b in target if b in live), NO_LEADER)
    else:
        writes = reassignment_writes(
            caught_up, current=current, requested=planned, live=live, rules=seen.rules
        )
        states = [write.state for write in writes if write.state is not None]
        after = states[-1].leader if states and ends else leader
    joining = {*planned.adding, *(b for b in current.adding if b in target)}
    minimum = min(seen.settings.min_insync_replicas, len(target))
    under = len(set(target) - set(absent)) < max(minimum, seen.settings.min_insync_replicas)
    return Move(
        name,
        current.replicas,
        target,
        planned.adding,
        planned.removing,
        leader,
        after,
        _to_copy(seen, leader, joining),
        () if ends else absent,
        under,
    )


def _to_copy(
    seen: PartitionObservation, leader: BrokerId, joining: Collection[BrokerId]
) -> int | None:
    """Records between the leader's log and those of who is to join, who may have a part of it."""
    read = {r.broker: r for r in seen.replicas}
    source = read.get(leader)
    if source is None or source.log_end_offset is None:
        return None
    start, end = source.log_start_offset or 0, source.log_end_offset
    ends = [
        read[b].log_end_offset if b in read and b in seen.assignment.replicas else start
        for b in joining
    ]
    return sum(end - min(max(start if each is None else each, start), end) for each in ends)


def _would_end(
    planned: Assignment, target: Sequence[BrokerId], isr: Sequence[BrokerId], rules: RuleSet
) -> bool:
    """With this ISR, by the rule of its version. A new order alone waits for nobody, but before 2.4
    every target had to be in the ISR for that, too."""
    if rules.mode is Mode.KRAFT:
        completion = rules.reassignment_completion
        ended = complete_reassignment(planned, isr=isr, completion=completion)
        return not planned.being_reassigned or ended is not None
    if not rules.reassignment_in_topic_znode:
        return set(target) <= set(isr)
    return is_complete(planned, isr)


# -- unclean election


class UncleanElection(NamedTuple):
    """A partition that unclean election would bring back now, and what that costs."""

    name: TopicPartition
    leader: BrokerId
    lost: OffsetRange | None
    lost_at_least: bool


def unclean_on(observations: Sequence[PartitionObservation]) -> tuple[UncleanElection, ...]:
    """Partitions without a leader that would get one from outside the ISR.

    What is lost is reckoned from the highest watermark any replica that answers knows: those that
    are down may know a higher one.
    """
    found = []
    for seen in observations:
        if seen.state.leader != NO_LEADER or seen.deleting:
            continue
        live = {r.broker for r in seen.live if not r.fenced and not r.shutting_down}
        elected = broker_return(
            seen.state,
            assignment=seen.assignment.replicas,
            live=live,
            unclean_allowed=True,
            rules=seen.rules,
        )
        if elected is None:
            continue
        readings = {r.broker: r for r in seen.replicas}
        end = getattr(readings.get(elected.leader), "log_end_offset", None)
        known = max((r.high_watermark or 0 for r in seen.replicas), default=0)
        lost = OffsetRange(end, known) if end is not None and end < known else None
        down = any(b not in live for b in seen.assignment.replicas)
        name = TopicPartition(seen.topic, seen.partition)
        found.append(UncleanElection(name, elected.leader, lost, down or end is None))
    return tuple(found)


def unclean_risk(observations: Sequence[PartitionObservation]) -> StopForecast:
    """What the death of its leader would do to each partition, were unclean election allowed."""
    allowed = [
        replace(o, settings=replace(o.settings, unclean_leader_election_enable=True))
        for o in observations
        if o.state.leader >= 0 and not o.deleting
    ]
    changes = tuple(
        Change(o, forecast(o, stopping={o.state.leader}), minimum_of(o)) for o in allowed
    )
    return StopForecast((), controlled=False, changes=changes)
