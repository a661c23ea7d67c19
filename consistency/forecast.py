"""What happens if a broker, or a set of brokers, stops now: who leads, what is lost, who cuts
where."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.broker_events import broker_failure, controller_failover
from tidestaff.consistency.controlled_shutdown import shutdown_of_replica
from tidestaff.consistency.epochs import assign, first_disagreement, truncate_from_end
from tidestaff.consistency.isr import effective_min_isr
from tidestaff.consistency.kraft import KraftPartition
from tidestaff.consistency.kraft_events import controlled_shutdown, fence
from tidestaff.consistency.kraft_image import ClusterImage, TopicSettings
from tidestaff.consistency.model import NO_LEADER, OffsetRange, PartitionState, TopicPartition
from tidestaff.consistency.truncation import ReplicaLog, predict_truncation
from tidestaff.consistency.versions import Mode

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidestaff.consistency.model import (
        BrokerId,
        Lineage,
        PartitionObservation,
        ReplicaReading,
    )


class ForecastCut(NamedTuple):
    """A replica that will cut its log under the next leader; `on_return` if it is one that
    stops."""

    broker: BrokerId
    offsets: OffsetRange
    on_return: bool
    because: str


class PartitionForecast(NamedTuple):
    """The state a stop leads to, and what it costs. `in_sync` are those of the ISR that go on: one
    that died with the controller stays listed before 2.4. `missing` names what could not be
    told."""

    topic: str
    partition: int
    leader: BrokerId
    leader_epoch: int
    isr: tuple[BrokerId, ...]
    in_sync: int
    leader_changes: bool
    unclean: bool
    offline: bool
    under_min_isr: bool
    lost: OffsetRange | None
    cuts: tuple[ForecastCut, ...]
    missing: tuple[str, ...]


def forecast(
    observation: PartitionObservation,
    *,
    stopping: Collection[BrokerId],
    controlled: bool = False,
) -> PartitionForecast:
    """The next state of one partition if `stopping` stop now, all of them as one event.

    `controlled` is a clean stop, where leaderships are moved before the process ends; otherwise the
    brokers die. Where the whole ISR dies at once in ZooKeeper mode the member that stays listed is
    not predictable; the last one in assignment order is shown.
    """
    before = observation.state
    after = next_state(observation, stopping=stopping, controlled=controlled)
    minimum = effective_min_isr(
        min_insync_replicas=observation.settings.min_insync_replicas,
        replica_count=len(observation.assignment.replicas),
        rules=observation.rules,
    )
    leader_changes = after.leader != before.leader
    in_sync = sum(broker not in stopping for broker in after.isr)
    readings = {reading.broker: reading for reading in observation.replicas}
    missing: list[str] = []
    lost, cuts = None, tuple[ForecastCut, ...]()
    if leader_changes and after.leader >= 0:
        lost, cuts = _consequences(observation, after, readings, frozenset(stopping), missing)
    return PartitionForecast(
        topic=observation.topic,
        partition=observation.partition,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        in_sync=in_sync,
        leader_changes=leader_changes,
        unclean=leader_changes
        and after.leader >= 0
        and after.leader not in {*before.isr, *before.elr},
        offline=after.leader == NO_LEADER,
        under_min_isr=after.leader == NO_LEADER or in_sync < minimum,
        lost=lost,
        cuts=cuts,
        missing=tuple(missing),
    )


def next_state(
    observation: PartitionObservation, *, stopping: Collection[BrokerId], controlled: bool = False
) -> PartitionState:
    """What the controller writes when these brokers stop, by the rules of the cluster's version."""
    if observation.rules.mode is Mode.KRAFT:
        return _next_kraft_state(observation, stopping, controlled=controlled)
    state, replicas = observation.state, observation.assignment.replicas
    going = [broker for broker in replicas if broker in stopping]
    registered = {registration.broker for registration in observation.live}
    unclean = observation.settings.unclean_leader_election_enable
    if controlled:
        for broker in going:
            written = shutdown_of_replica(
                state,
                assignment=replicas,
                broker=broker,
                registered=registered,
                shutting_down=going,
                rules=observation.rules,
                unclean_allowed=unclean,
            )
            state = written or state
    if observation.controller in stopping:
        # Whoever takes over finds them gone; that it is another order is one epoch more.
        writes = controller_failover(
            state,
            assignment=replicas,
            live={r.broker for r in observation.live} - frozenset(going),
            unclean_allowed=unclean,
            rules=observation.rules,
        )
    else:
        writes = broker_failure(
            state,
            assignment=replicas,
            dead=going,
            live={r.broker for r in observation.live if not r.shutting_down},
            unclean_allowed=unclean,
            rules=observation.rules,
        )
    return writes[-1] if writes else state


def _next_kraft_state(
    observation: PartitionObservation, stopping: Collection[BrokerId], *, controlled: bool
) -> PartitionState:
    state, assignment = observation.state, observation.assignment
    name = TopicPartition(observation.topic, observation.partition)
    image = ClusterImage(
        rules=observation.rules,
        brokers={registration.broker: registration for registration in observation.live},
        partitions={
            name: KraftPartition(
                replicas=assignment.replicas,
                isr=state.isr,
                elr=state.elr,
                last_known_elr=state.last_known_elr,
                leader=state.leader,
                removing=assignment.removing,
                adding=assignment.adding,
                recovery=state.recovery,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
            )
        },
        defaults=TopicSettings(
            min_insync_replicas=observation.settings.min_insync_replicas,
            unclean_leader_election_enable=observation.settings.unclean_leader_election_enable,
        ),
    )
    for broker in sorted(stopping):
        if controlled:
            image = controlled_shutdown(image, broker).image
        image = fence(image, broker).image
    after = image.partitions[name]
    return state._replace(
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        partition_epoch=after.partition_epoch,
        recovery=after.recovery,
        elr=after.elr,
        last_known_elr=after.last_known_elr,
    )


def _consequences(
    observation: PartitionObservation,
    after: PartitionState,
    readings: dict[BrokerId, ReplicaReading],
    stopping: frozenset[BrokerId],
    missing: list[str],
) -> tuple[OffsetRange | None, tuple[ForecastCut, ...]]:
    new_leader = _log(observation, readings, after.leader)
    if new_leader is None:
        missing.append(f"the log of broker {after.leader}, the next leader")
        return None, ()
    led_by = readings.get(observation.state.leader)
    lost = None
    if led_by is None or led_by.high_watermark is None:
        missing.append("the leader's HW")
    else:
        lost = _lost(led_by, new_leader)
    if observation.rules.leader_writes_epoch_at_once and new_leader.lineage:
        new_leader = new_leader._replace(
            lineage=assign(
                new_leader.lineage,
                after.leader_epoch,
                new_leader.log_end_offset,
                generation=observation.rules.epoch_cache,
            )
        )
    cuts: list[ForecastCut] = []
    for broker in observation.assignment.replicas:
        if broker == after.leader:
            continue
        log = _log(observation, readings, broker)
        if log is None:
            missing.append(f"the log of broker {broker}")
            continue
        prediction = predict_truncation(
            follower=log,
            leader=new_leader,
            rules=observation.rules,
            unclean_allowed=observation.settings.unclean_leader_election_enable,
        )
        if prediction.final_offset < log.log_end_offset:
            cut = OffsetRange(prediction.final_offset, log.log_end_offset)
            cuts.append(ForecastCut(broker, cut, broker in stopping, prediction.because))
    return lost, tuple(cuts)


def _lost(led_by: ReplicaReading, new_leader: ReplicaLog) -> OffsetRange | None:
    """Committed offsets the next leader does not hold, or holds from another leader."""
    committed = led_by.high_watermark or 0
    first = new_leader.log_end_offset
    if led_by.lineage and new_leader.lineage:
        disagreement = first_disagreement(
            led_by.lineage,
            new_leader.lineage,
            start=max(led_by.log_start_offset or 0, new_leader.log_start_offset),
            end=min(committed, new_leader.log_end_offset),
        )
        first = disagreement if disagreement is not None else first
    start = max(first, led_by.log_start_offset or 0)
    return OffsetRange(start, committed) if start < committed else None


def _log(
    observation: PartitionObservation,
    readings: dict[BrokerId, ReplicaReading],
    broker: BrokerId,
) -> ReplicaLog | None:
    reading = readings.get(broker)
    # A negative end is what a source says that does not know it.
    if reading is None or reading.log_end_offset is None or reading.log_end_offset < 0:
        return None
    return ReplicaLog(
        reading.log_start_offset or 0,
        reading.high_watermark or 0,
        reading.log_end_offset,
        _copied(observation, readings, reading) if reading.lineage is None else reading.lineage,
    )


def _copied(
    observation: PartitionObservation,
    readings: dict[BrokerId, ReplicaReading],
    follower: ReplicaReading,
) -> Lineage:
    """The lineage of a member of the ISR that nobody told: its leader's, as far as its log goes. It
    follows in the same epoch, so it has cut what its leader does not hold and fetched the rest."""
    leader = readings.get(observation.state.leader)
    follows = (
        leader is not None
        and leader.leader_epoch == follower.leader_epoch == observation.state.leader_epoch
        and follower.broker in observation.state.isr
    )
    if leader is None or not follows or not leader.lineage or not follower.log_end_offset:
        return ()
    return truncate_from_end(leader.lineage, follower.log_end_offset)
