"""What the KRaft controller does when something happens: events over a small image of the cluster.

Mirrors ReplicationControlManager. Every event is a function from an image to a `Step`: the image
after it, the changes it made, in order, and the controller's answer. A refused event changes
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.kraft import (
    KraftElection,
    KraftPartition,
    PartitionChange,
    Targets,
    apply_change,
    build_change,
)
from tidestaff.consistency.kraft_alter_partition import AlterPartitionRequest, check_alter_partition
from tidestaff.consistency.kraft_reassignment import (
    RevertedReassignment,
    start_reassignment,
)
from tidestaff.consistency.kraft_reassignment import cancel_reassignment as reassignment_to_cancel
from tidestaff.consistency.model import NO_LEADER, BrokerId, Registration, TopicPartition
from tidestaff.consistency.registration import ControllerError, is_active

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidestaff.consistency.kraft_image import ClusterImage

MAX_ELECTIONS_PER_IMBALANCE: Final = 1000


class Step(NamedTuple):
    """The outcome of one event."""

    image: ClusterImage
    changes: tuple[tuple[TopicPartition, PartitionChange], ...] = ()
    error: ControllerError = ControllerError.NONE


class _Going(NamedTuple):
    """Who is leaving or coming while the image still shows it as before."""

    removed: BrokerId | None = None
    added: BrokerId | None = None
    unclean: bool = False


def _propose(
    image: ClusterImage,
    tp: TopicPartition,
    targets: Targets,
    *,
    election: KraftElection | None = None,
    going: _Going = _Going(),  # noqa: B008 - an immutable value
) -> PartitionChange | None:
    def acceptable(broker: BrokerId) -> bool:
        if broker == going.removed or not (
            broker == going.added or is_active(image.brokers.get(broker))
        ):
            return False
        dirs_known = image.rules.log_dir_failures_reach_kraft_controller
        return not (dirs_known and (broker, tp) in image.offline_replicas)

    if election is None:
        unclean = image.unclean_allowed(tp.topic)
        election = KraftElection.UNCLEAN if unclean else KraftElection.ONLINE
    crashed = (going.removed,) if going.unclean and going.removed is not None else ()
    return build_change(
        image.partitions[tp],
        acceptable=acceptable,
        rules=image.rules,
        min_isr=image.min_isr(tp),
        election=election,
        targets=targets,
        unclean_shutdown=crashed,
    )


def _commit(
    image: ClusterImage, changes: Iterable[tuple[TopicPartition, PartitionChange | None]]
) -> Step:
    made = tuple((tp, change) for tp, change in changes if change is not None)
    partitions = dict(image.partitions)
    for tp, change in made:
        partitions[tp] = apply_change(partitions[tp], change)
    return Step(replace(image, partitions=partitions), made)


def _take_out(
    image: ClusterImage,
    broker: BrokerId,
    concerned: Iterable[TopicPartition],
    *,
    unclean: bool = False,
) -> Step:
    """The broker leaves the ISR and may not lead; all is decided on the image before the event."""
    going = _Going(removed=broker, unclean=unclean)
    changes = []
    for tp in concerned:
        isr = tuple(b for b in image.partitions[tp].isr if b != broker)
        changes.append((tp, _propose(image, tp, Targets(isr=isr), going=going)))
    return _commit(image, changes)


def _with_in_isr(image: ClusterImage, broker: BrokerId) -> list[TopicPartition]:
    return [tp for tp, p in image.partitions.items() if broker in p.isr]


def _with_in_isr_or_elr(image: ClusterImage, broker: BrokerId) -> list[TopicPartition]:
    in_isr = _with_in_isr(image, broker)
    in_elr = [tp for tp, p in image.partitions.items() if broker in p.elr and broker not in p.isr]
    return in_isr + in_elr


def _refused(image: ClusterImage, error: ControllerError) -> Step:
    return Step(image, (), error)


def fence(image: ClusterImage, broker: BrokerId) -> Step:
    """A fenced broker leaves every ISR it is in, except where it is the last one and ELR is off."""
    registration = image.brokers.get(broker)
    if registration is None:
        return _refused(image, ControllerError.BROKER_ID_NOT_REGISTERED)
    step = _take_out(image, broker, _with_in_isr(image, broker))
    return step._replace(image=step.image.with_broker(registration._replace(fenced=True)))


def unfence(image: ClusterImage, broker: BrokerId) -> Step:
    """An unfenced broker may lead what has no leader; it joins no ISR by itself."""
    registration = image.brokers.get(broker)
    if registration is None:
        return _refused(image, ControllerError.BROKER_ID_NOT_REGISTERED)
    going = _Going(added=broker)
    step = _commit(
        image, [(tp, _propose(image, tp, Targets(), going=going)) for tp in image.leaderless]
    )
    return step._replace(image=step.image.with_broker(registration._replace(fenced=False)))


def controlled_shutdown(image: ClusterImage, broker: BrokerId) -> Step:
    """A broker that asks to go loses its leaderships and its ISR places at once."""
    registration = image.brokers.get(broker)
    if registration is None:
        return _refused(image, ControllerError.BROKER_ID_NOT_REGISTERED)
    step = _take_out(image, broker, _with_in_isr(image, broker))
    return step._replace(image=step.image.with_broker(registration._replace(shutting_down=True)))


def restarted(
    image: ClusterImage, broker: BrokerId, *, clean: bool, new_broker_epoch: int | None = None
) -> Step:
    """A new process of the broker has registered: it starts fenced, out of every ISR.

    After an unclean shutdown, with ELR on, it leaves the ELR as well: it may have lost records.
    """
    if image.rules.elr and not clean:
        step = _take_out(image, broker, _with_in_isr_or_elr(image, broker), unclean=True)
    else:
        step = _take_out(image, broker, _with_in_isr(image, broker))
    known = image.brokers.get(broker, Registration(broker))
    epoch = known.broker_epoch if new_broker_epoch is None else new_broker_epoch
    fresh = known._replace(broker_epoch=epoch, fenced=True, shutting_down=False)
    return step._replace(image=step.image.with_broker(fresh))


def unregister(image: ClusterImage, broker: BrokerId) -> Step:
    """A broker that is unregistered leaves like a fenced one, and is known no more."""
    if broker not in image.brokers:
        return _refused(image, ControllerError.BROKER_ID_NOT_REGISTERED)
    step = _take_out(image, broker, _with_in_isr_or_elr(image, broker))
    rest = {b: r for b, r in step.image.brokers.items() if b != broker}
    return step._replace(image=replace(step.image, brokers=rest))


def log_dir_offline(
    image: ClusterImage, broker: BrokerId, partitions: Iterable[TopicPartition]
) -> Step:
    """A failed log directory takes the broker out of the partitions in it, and of no others."""
    if not image.rules.log_dir_failures_reach_kraft_controller:
        # The controller is not told: before JBOD support a broker with a failed dir goes on.
        return Step(image)
    named = frozenset(partitions)
    held = [tp for tp, p in image.partitions.items() if tp in named and broker in p.replicas]
    step = _take_out(image, broker, held)
    offline = image.offline_replicas | {(broker, tp) for tp in held}
    return step._replace(image=replace(step.image, offline_replicas=offline))


def alter_partition(
    image: ClusterImage, tp: TopicPartition, request: AlterPartitionRequest
) -> Step:
    """A lawful new ISR is taken; if it ends a reassignment and the leadership, both are told.

    NEW_LEADER_ELECTED is the one error that comes with a change.
    """
    error = check_alter_partition(
        image.partitions.get(tp),
        request,
        registrations=image.brokers,
        rules=image.rules,
        topic_known=any(known.topic == tp.topic for known in image.partitions),
    )
    if error is not ControllerError.NONE:
        return _refused(image, error)
    isr = tuple(member.broker for member in request.isr)
    change = _propose(image, tp, Targets(isr=isr, recovery=request.recovery))
    step = _commit(image, [(tp, change)])
    if change is not None and change.leader not in (None, request.broker):
        return step._replace(error=ControllerError.NEW_LEADER_ELECTED)
    return step


def elect_leader(image: ClusterImage, tp: TopicPartition, election: KraftElection) -> Step:
    """ElectLeaders on one partition: refused where not needed, an error where nobody can lead."""
    partition = image.partitions.get(tp)
    if partition is None:
        return _refused(image, ControllerError.UNKNOWN_TOPIC_OR_PARTITION)
    preferred = election is KraftElection.PREFERRED
    if (tp not in image.imbalanced) if preferred else (partition.leader != NO_LEADER):
        return _refused(image, ControllerError.ELECTION_NOT_NEEDED)
    change = _propose(image, tp, Targets(), election=election)
    if change is None:
        none = ControllerError.PREFERRED_LEADER_NOT_AVAILABLE
        return _refused(
            image, none if preferred else ControllerError.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    return _commit(image, [(tp, change)])


def balance(image: ClusterImage, *, at_most: int = MAX_ELECTIONS_PER_IMBALANCE) -> Step:
    """The balance timer holds a PREFERRED election on imbalanced partitions, up to a maximum."""
    return _elections(image, image.imbalanced, KraftElection.PREFERRED, at_most)


def elect_unclean(image: ClusterImage, *, at_most: int = MAX_ELECTIONS_PER_IMBALANCE) -> Step:
    """The unclean timer (3.9+) gives a leader to what has none, where the topic allows it."""
    allowed = [tp for tp in image.leaderless if image.unclean_allowed(tp.topic)]
    return _elections(image, allowed, KraftElection.UNCLEAN, at_most)


def _elections(
    image: ClusterImage,
    concerned: Iterable[TopicPartition],
    election: KraftElection,
    at_most: int,
) -> Step:
    changes: list[tuple[TopicPartition, PartitionChange]] = []
    for tp in concerned:
        if len(changes) >= at_most:
            break
        change = _propose(image, tp, Targets(), election=election)
        if change is not None:
            changes.append((tp, change))
    return _commit(image, changes)


def create_partition(image: ClusterImage, tp: TopicPartition, replicas: Sequence[BrokerId]) -> Step:
    """A new partition's ISR is its active replicas, the first of them leads; none is refused."""
    isr = tuple(b for b in replicas if is_active(image.brokers.get(b)))
    if not isr or not _assignable(image, replicas):
        return _refused(image, ControllerError.INVALID_REPLICA_ASSIGNMENT)
    return Step(image.with_partition(tp, KraftPartition(tuple(replicas), isr, leader=isr[0])))


def _assignable(image: ClusterImage, replicas: Sequence[BrokerId]) -> bool:
    distinct = set(replicas)
    return 0 < len(distinct) == len(replicas) and distinct <= image.brokers.keys()


def reassign(
    image: ClusterImage,
    tp: TopicPartition,
    target: Sequence[BrokerId],
    *,
    replication_factor_may_change: bool = True,
) -> Step:
    """A reassignment starts, or is replaced; where the ISR is good enough it ends at once."""
    partition = image.partitions.get(tp)
    if partition is None:
        return _refused(image, ControllerError.UNKNOWN_TOPIC_OR_PARTITION)
    if not _assignable(image, target):
        return _refused(image, ControllerError.INVALID_REPLICA_ASSIGNMENT)
    if not replication_factor_may_change and len(partition.assignment.target) != len(target):
        return _refused(image, ControllerError.INVALID_REPLICATION_FACTOR)
    wanted = start_reassignment(current=partition.replicas, target=target)
    # An empty set does not replace the one of a reassignment that is under way, as in Kafka.
    targets = Targets(
        replicas=wanted.replicas, removing=wanted.removing or None, adding=wanted.adding or None
    )
    # Kafka holds this election as ONLINE whatever the topic allows.
    change = _propose(image, tp, targets, election=KraftElection.ONLINE)
    return _commit(image, [(tp, change)])


def cancel_reassignment(image: ClusterImage, tp: TopicPartition) -> Step:
    """Cancelling drops the added replicas; the replica order from before does not come back."""
    partition = image.partitions.get(tp)
    if partition is None:
        return _refused(image, ControllerError.UNKNOWN_TOPIC_OR_PARTITION)
    reverted = reassignment_to_cancel(
        partition.assignment,
        isr=partition.isr,
        unclean_allowed=image.unclean_allowed(tp.topic),
    )
    if not isinstance(reverted, RevertedReassignment):
        return _refused(image, reverted)
    targets = Targets(isr=reverted.isr, replicas=reverted.replicas, removing=(), adding=())
    return _commit(image, [(tp, _propose(image, tp, targets))])


def min_isr_changed(
    image: ClusterImage, min_insync_replicas: int, *, topic: str | None = None
) -> Step:
    """A new min.insync.replicas, of a topic or (None) the cluster, empties the ELR it was made for.

    Partitions whose ELR was empty are not touched: their epoch stays.
    """
    topics = dict(image.topics)
    if topic is None:
        defaults = image.defaults._replace(min_insync_replicas=min_insync_replicas)
        image = replace(image, defaults=defaults)
    else:
        topics[topic] = image.settings(topic)._replace(min_insync_replicas=min_insync_replicas)
        image = replace(image, topics=topics)
    if not image.rules.min_isr_change_clears_elr:
        return Step(image)
    cleared = PartitionChange(elr=(), last_known_elr=())
    return _commit(
        image,
        [
            (tp, cleared)
            for tp, p in image.partitions.items()
            if topic in (None, tp.topic) and (p.elr or p.last_known_elr)
        ],
    )
