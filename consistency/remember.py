"""What is kept of an observation once it is judged: bounded, and only from coherent readings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.checks.isr import FLAPPING_WINDOW_MS
from tidestaff.consistency.checks.losses import leads_by_its_own_word
from tidestaff.consistency.kept_tails import kept_tails, settled_watermarks
from tidestaff.consistency.lag import CaughtUp, caught_up
from tidestaff.consistency.ledger import ledger
from tidestaff.consistency.memory import (
    MAX_ERAS,
    MAX_ISR_EXITS,
    MAX_LINEAGE_ENTRIES,
    ClusterMemory,
    Era,
    PartitionMemory,
    ReplicaMemory,
)
from tidestaff.consistency.model import UNKNOWN_BROKER_EPOCH, ControllerClaim
from tidestaff.consistency.verified import verified
from tidestaff.consistency.versions import Truncation

if TYPE_CHECKING:
    from tidestaff.consistency.checks.sight import Sight
    from tidestaff.consistency.judge import Judgement
    from tidestaff.consistency.memory import Suspicion
    from tidestaff.consistency.model import (
        BrokerId,
        ClusterObservation,
        Lineage,
        ReplicaReading,
    )
    from tidestaff.consistency.origins import Origins
    from tidestaff.consistency.verdict import Verdicts


def remember_partition(sight: Sight, judgement: Judgement, verdicts: Verdicts) -> PartitionMemory:
    """The memory after this observation. Offsets are taken over from a coherent bracket only."""
    before, observation = sight.memory, sight.observation
    controller_changed = before is None or (
        before.controller != observation.controller
        or before.controller_epoch != observation.cluster_controller_epoch
    )
    kept, eras = ledger(sight), _eras(sight)
    memory = PartitionMemory(
        topic_id=observation.topic_id
        if observation.topic_id is not None or before is None
        else before.topic_id,
        state_czxid=observation.state_czxid,
        observed_at_ms=observation.observed_at_ms,
        interval_ms=sight.now_ms - before.observed_at_ms if before is not None else 0,
        rules=observation.rules,
        state=observation.state,
        assignment=observation.assignment,
        live=observation.live,
        settings=observation.settings,
        controller=observation.controller,
        controller_epoch=observation.cluster_controller_epoch,
        controller_epoch_before_state=before.controller_epoch if before is not None else None,
        controller_since_ms=sight.now_ms
        if controller_changed or before is None
        else before.controller_since_ms,
        committed_start=kept.start,
        committed_end=kept.end,
        ledger=kept.epochs,
        ledger_end=kept.epochs_end,
        eras=eras,
        replicas=_replicas(sight),
        joined_isr=_joined(sight),
        suspicions=judgement.suspicions,
        lost=tuple(lost.offsets for lost in kept.lost),
        was_compacted=sight.compacted,
        settled_watermarks=settled_watermarks(sight),
        kept_tails=kept_tails(sight),
        calm=None,
        last_isr=_last_isr(sight),
        origins=_origins(sight),
        lost_epochs=tuple(lost.epoch for lost in kept.lost),
        verified=verified(sight, eras, kept.lost),
        beside=kept.beside,
    )
    return memory._replace(calm=verdicts) if _is_calm(sight, judgement) else memory


def _is_calm(sight: Sight, judgement: Judgement) -> bool:
    """Nothing is wrong, pending or unusual: the next observation like this one may be waved
    through."""
    replicas = sight.observation.assignment.replicas
    return (
        not judgement.violated
        and not judgement.suspicions
        and sight.coherent
        and sight.leader is not None
        and not sight.changed
        and not sight.observation.deleting
        and not sight.observation.assignment.being_reassigned
        and sight.state.leader == (replicas[0] if replicas else None)
        and set(sight.state.isr) == set(replicas) <= sight.active
        and len(sight.replicas) == len(replicas)
        and all(None not in reading[1:4] for reading in sight.replicas)
        and not sight.observation.digests
        and sight.rules.truncation is not Truncation.HIGH_WATERMARK
        and sight.origins is None
        and (sight.rules.leader_writes_epoch_at_once or _lists_its_epoch(sight))
        and (sight.memory is None or not any(r.isr_exits_ms for r in sight.memory.replicas))
    )


def _lists_its_epoch(sight: Sight) -> bool:
    """Before 2.0.1 a leader that has not written yet will begin its epoch with its next record."""
    return sight.leader is None or not sight.leader.lineage or sight.epoch_start is not None


def _origins(sight: Sight) -> Origins | None:
    """Losses wait for an observation in which they can be reported."""
    known = sight.origins
    reportable = sight.coherent and sight.leader is not None and not sight.observation.deleting
    return known._replace(pending=()) if known is not None and reportable else known


def _last_isr(sight: Sight) -> tuple[BrokerId, ...] | None:
    """Not known if somebody may have joined it unseen. An unclean election in between makes another
    ISR: whoever leads then without having been in this one was elected uncleanly, then or now."""
    memory, state = sight.memory, sight.state
    if state.leader >= 0 or memory is None:
        return state.isr if state.leader >= 0 else None
    known = memory.state.isr if memory.state.leader >= 0 else memory.last_isr
    unchanged = state.leader_epoch == memory.state.leader_epoch and memory.state.leader < 0
    return known if unchanged or sight.only_new_epochs else None


def _eras(sight: Sight) -> tuple[Era, ...]:
    """An era first seen in a torn sample begins, for us, with the first coherent one."""
    state = sight.state
    known = sight.memory.eras if sight.memory is not None else ()
    begun = next((era for era in known if era.epoch == state.leader_epoch), None)
    if state.leader < 0 or (begun is not None and begun.start_offset >= 0):
        return known
    start = sight.epoch_start
    end = sight.leader_end if sight.coherent else None
    if begun is not None:
        if start is None and end is None:
            return known
        known = tuple(era for era in known if era is not begun)
    exact = start is not None
    offset = start if start is not None else end if end is not None else -1
    return (*known, Era(state.leader_epoch, state.leader, offset, exact))[-MAX_ERAS:]


def _joined(sight: Sight) -> tuple[BrokerId, ...]:
    """Who joined the ISR within the current leader epoch.

    Where joining needs the epoch's start (ISR010): and has not restarted since. A power loss may
    have taken the end of its log, and until the controller notices, it stays a member.
    """
    memory, isr = sight.memory, sight.state.isr
    if memory is None or memory.state.leader_epoch != sight.state.leader_epoch:
        return ()
    before = memory.state.isr
    joined = (b for b in isr if b in memory.joined_isr or b not in before)
    if not sight.rules.isr_join_needs_epoch_start:
        return tuple(joined)
    return tuple(b for b in joined if not _restarted(sight, b))


def _restarted(sight: Sight, broker: BrokerId) -> bool:
    remembered = sight.remembered(broker)
    known = remembered is not None and remembered.broker_epoch != UNKNOWN_BROKER_EPOCH
    return known and not sight.same_incarnation(broker)


def _replicas(sight: Sight) -> tuple[ReplicaMemory, ...]:
    """One entry for each assigned replica that was ever read whole, in assignment order."""
    kept: list[ReplicaMemory] = []
    lineages: dict[Lineage, Lineage] = {}
    for broker in sight.observation.assignment.replicas:
        reading, remembered = sight.readings.get(broker), sight.remembered(broker)
        replica = _remember_reading(sight, reading, remembered) if reading is not None else None
        replica = replica or _led_on(sight, reading, remembered)
        if replica is None:
            continue
        if replica.lineage is not None:
            # In-sync replicas have equal lineages most of the time: one object serves them all.
            replica = replica._replace(
                lineage=lineages.setdefault(replica.lineage, replica.lineage)
            )
        kept.append(_with_isr_exit(sight, replica))
    return tuple(kept)


def _led_on(
    sight: Sight, reading: ReplicaReading | None, remembered: ReplicaMemory | None
) -> ReplicaMemory | None:
    """What a leader has is its own word in any round; the ledger takes its commits from it, and
    must know them again in the next."""
    if reading is None or remembered is None or not sight.same_incarnation(reading.broker):
        return remembered
    end = reading.log_end_offset
    if end is None or end <= remembered.led_to or not leads_by_its_own_word(sight, reading):
        return remembered
    return remembered._replace(led_to=end)


def _remember_reading(
    sight: Sight, reading: ReplicaReading, remembered: ReplicaMemory | None
) -> ReplicaMemory | None:
    if not sight.coherent or reading.log_end_offset is None or reading.high_watermark is None:
        return None
    broker = reading.broker
    same_epoch = remembered is not None and remembered.leader_epoch == sight.state.leader_epoch
    caught_up_now = _caught_up(sight, reading, remembered)
    lineage = reading.lineage
    if lineage is not None and len(lineage) > MAX_LINEAGE_ENTRIES:
        lineage = lineage[-MAX_LINEAGE_ENTRIES:]
    if lineage is not None and remembered is not None and lineage == remembered.lineage:
        lineage = remembered.lineage
    return ReplicaMemory(
        broker=broker,
        broker_epoch=sight.broker_epoch(broker),
        log_start_offset=reading.log_start_offset or 0,
        high_watermark=reading.high_watermark,
        log_end_offset=reading.log_end_offset,
        lineage=lineage,
        leader_epoch=sight.state.leader_epoch,
        partition_epoch=sight.state.partition_epoch,
        caught_up_at_ms=caught_up_now.at_ms,
        mark_at_ms=caught_up_now.mark_at_ms,
        mark_offset=caught_up_now.mark_offset,
        following=sight.is_following(reading),
        fetched_in_epoch=broker != sight.state.leader
        and (
            (same_epoch and remembered is not None and remembered.fetched_in_epoch)
            or sight.has_fetched(broker)
        ),
        cut=sight.cuts.get(broker),
        isr_exits_ms=_recent_exits(sight, remembered),
    )


def _recent_exits(sight: Sight, remembered: ReplicaMemory | None) -> tuple[int, ...]:
    """Exits of this process within the window; a restart explains an exit."""
    if remembered is None or not sight.same_incarnation(remembered.broker):
        return ()
    return tuple(t for t in remembered.isr_exits_ms if sight.now_ms - t <= FLAPPING_WINDOW_MS)


def _caught_up(sight: Sight, reading: ReplicaReading, remembered: ReplicaMemory | None) -> CaughtUp:
    memory = sight.memory
    leader_end = sight.leader.log_end_offset if sight.leader is not None else None
    own_end = reading.log_end_offset or 0
    fresh = CaughtUp(sight.now_ms, sight.now_ms, leader_end or own_end)
    if memory is None or remembered is None or leader_end is None:
        return fresh
    if remembered.leader_epoch != sight.state.leader_epoch:
        return fresh
    lag_time_ms = sight.observation.settings.replica_lag_time_max_ms
    gap = sight.now_ms - memory.observed_at_ms > lag_time_ms
    return CaughtUp(*caught_up(remembered, own_end, leader_end, sight.now_ms, after_gap=gap))


def _with_isr_exit(sight: Sight, replica: ReplicaMemory) -> ReplicaMemory:
    memory = sight.memory
    if memory is None or replica.broker not in memory.state.isr:
        return replica
    if replica.broker in sight.state.isr or replica.broker not in sight.present:
        return replica
    exits = (*replica.isr_exits_ms, sight.now_ms)[-MAX_ISR_EXITS:]
    return replica._replace(isr_exits_ms=exits)


def remember_cluster(
    before: ClusterMemory | None,
    observation: ClusterObservation,
    suspicions: tuple[Suspicion, ...],
) -> ClusterMemory:
    """Registrations of brokers that are gone are kept: their epoch must not fall when they
    return."""
    registrations = {r.broker: r for r in observation.registrations}
    for known in before.registrations if before is not None else ():
        current = registrations.get(known.broker)
        if current is None or current.broker_epoch < known.broker_epoch:
            registrations[known.broker] = known
    owner = before.epoch_owner if before is not None else None
    epoch, controller = observation.controller_epoch, observation.controller
    coherent = epoch == observation.controller_epoch_before
    if (
        coherent
        and epoch is not None
        and controller is not None
        and controller >= 0
        and (owner is None or epoch > owner.controller_epoch)
    ):
        owner = ControllerClaim(controller, epoch)
    known_epoch = before.controller_epoch if before is not None else None
    highest = max((e for e in (epoch, known_epoch) if e is not None), default=None)
    return ClusterMemory(
        observed_at_ms=observation.observed_at_ms,
        mode=observation.rules.mode,
        controller=controller,
        controller_epoch=highest,
        registrations=tuple(sorted(registrations.values())),
        epoch_owner=owner,
        suspicions=suspicions,
    )
