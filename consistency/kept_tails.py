"""Divergence of logs without epochs (up to 0.10.2): proven by the high-watermark rule itself.

Lag, LEO and HW of the two replicas end up equal, so no single state shows it. What shows it is the
history: a leader was seen to end at L, it wrote on while another replica was away, and that replica
comes back with more than L of old records, which it keeps because its own HW covers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.consistency.memory import KeptTail, SettledWatermark
from tidestaff.consistency.model import NO_LEADER, UNKNOWN_PARTITION_EPOCH
from tidestaff.consistency.versions import Truncation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Sight
    from tidestaff.consistency.model import BrokerId, ReplicaReading

# The checkpoint is written every interval; the rest is the time of writing it.
CHECKPOINT_SLACK_MS: Final = 500


def settled_watermarks(sight: Sight) -> tuple[SettledWatermark, ...]:
    """The HW each replica would start from after a crash, at the least."""
    known = _still_settled(sight)
    if sight.rules.truncation is not Truncation.HIGH_WATERMARK or not sight.coherent:
        return known
    by_broker = {settled.broker: settled for settled in known}
    for reading in sight.replicas:
        if reading.high_watermark is not None:
            watermark = min(reading.high_watermark, _uncut(sight, reading))
            by_broker[reading.broker] = _settled(
                sight, by_broker.get(reading.broker), reading.broker, watermark
            )
    assigned = sight.observation.assignment.replicas
    return tuple(by_broker[broker] for broker in assigned if broker in by_broker)


def _still_settled(sight: Sight) -> tuple[SettledWatermark, ...]:
    """What is left of the memory of replicas that may have been back since the last sample: one
    that was, and found a leader with a shorter log, was cut to its end and may be gone again."""
    known = sight.memory.settled_watermarks if sight.memory is not None else ()
    certain = _least_end(sight)
    if certain is None:
        return known
    return tuple(
        SettledWatermark(
            settled.broker,
            min(settled.offset, certain),
            tuple((at_ms, min(mark, certain)) for at_ms, mark in settled.marks),
        )
        if settled.broker not in sight.readings and _may_have_followed(sight, settled.broker)
        else settled
        for settled in known
    )


def _least_end(sight: Sight) -> int | None:
    """The least log end a leader since the last sample can have had; None where nobody led.

    Within an epoch a leader's log only grows; of one that has begun since nothing is known."""
    before, state = sight.previous, sight.state
    if before is None or before.leader_epoch != state.leader_epoch:
        return 0
    if state.leader == NO_LEADER:
        return None
    leader = sight.remembered(state.leader)
    if leader is None or leader.leader_epoch != state.leader_epoch:
        return 0
    return leader.log_end_offset


def _may_have_followed(sight: Sight, broker: BrokerId) -> bool:
    """Whether a replica that is not read can have followed somebody since the last sample.

    A registered one can, if it was not elected itself. One that was back and crashed would be
    registered still, unless the last sample is older than a session. One that was back and stopped
    has joined the ISR with its first fetch after the cut, and that is a write within an epoch. What
    is left is one that stopped before that fetch.
    """
    memory, state = sight.memory, sight.state
    assert memory is not None
    before = memory.state
    epochs = state.leader_epoch - before.leader_epoch
    if broker in sight.registrations:
        return state.leader != broker or epochs > 1
    session_ms = sight.observation.settings.session_timeout_ms
    if sight.now_ms - memory.observed_at_ms > session_ms:
        return True
    if UNKNOWN_PARTITION_EPOCH in (before.partition_epoch, state.partition_epoch):
        return False
    return state.partition_epoch - before.partition_epoch > epochs


def _uncut(sight: Sight, reading: ReplicaReading) -> int:
    """How far the leader of this epoch leaves the replica's log: a follower that is longer than its
    leader is cut to the leader's end by its next fetch, and its HW with it, before anybody looks
    again. Of a leader that does not answer the end it was first seen with is certain."""
    state, end = sight.state, reading.log_end_offset or 0
    if state.leader in (reading.broker, NO_LEADER):
        return end
    leader = sight.leader
    if leader is not None and leader.log_end_offset is not None:
        return leader.log_end_offset
    era = sight.memory.era(state.leader_epoch) if sight.memory is not None else None
    return max(era.start_offset, 0) if era is not None else 0


def _settled(
    sight: Sight, known: SettledWatermark | None, broker: BrokerId, watermark: int
) -> SettledWatermark:
    interval_ms = sight.observation.settings.replica_high_watermark_checkpoint_interval_ms
    marks = known.marks if known is not None else ()
    # An HW that fell may be in the checkpoint by now: nothing above it is certain any more.
    marks = tuple((at_ms, min(offset, watermark)) for at_ms, offset in marks)
    offset = min(known.offset, watermark) if known is not None else 0
    due_ms = sight.now_ms - interval_ms - CHECKPOINT_SLACK_MS
    offset = max([offset, *(mark for at_ms, mark in marks if at_ms <= due_ms)])
    marks = tuple(mark for mark in marks if mark[0] > due_ms)
    if not marks or sight.now_ms - marks[-1][0] >= interval_ms // 4:
        marks = (*marks, (sight.now_ms, watermark))
    return SettledWatermark(broker, offset, marks)


def kept_tails(sight: Sight) -> tuple[KeptTail, ...]:
    """The tails that are or will be kept in the current leader epoch.

    Found while the replica is away: only then is it certain that the leader's records there came
    before the replica's first fetch. Of one that is registered and not read no watermark above its
    leader's end is certain (`settled_watermarks`). Dropped when the replica is seen shorter.
    """
    if sight.rules.truncation is not Truncation.HIGH_WATERMARK:
        return ()
    known = sight.memory.kept_tails if sight.memory is not None else ()
    if not sight.coherent:
        return known
    tails = {t.broker: t for t in known if t.leader_epoch == sight.state.leader_epoch}
    for broker in sight.observation.assignment.replicas:
        reading = sight.readings.get(broker)
        if reading is not None:
            tail = tails.get(broker)
            if tail is not None and (reading.log_end_offset or 0) < tail.end:
                del tails[broker]
        else:
            tail = _kept_while_away(sight, broker)
            if tail is not None:
                tails[broker] = tail
    return tuple(tails[broker] for broker in sorted(tails))


def _kept_while_away(sight: Sight, broker: BrokerId) -> KeptTail | None:
    memory, end = sight.memory, sight.leader_end
    replica = sight.remembered(broker)
    if memory is None or replica is None or end is None:
        return None
    era = memory.era(sight.state.leader_epoch)
    if era is None or era.start_offset < 0 or replica.leader_epoch >= sight.state.leader_epoch:
        return None
    settled = next((s.offset for s in _still_settled(sight) if s.broker == broker), 0)
    kept = min(settled, replica.log_end_offset, end)
    if kept <= era.start_offset:
        return None
    return KeptTail(broker, sight.state.leader_epoch, era.start_offset, kept)


def diverged(sight: Sight) -> Iterator[KeptTail]:
    """The tails of replicas that are back in the ISR: their leader counts them as equal."""
    memory = sight.memory
    if memory is None:
        return
    joined = {*memory.joined_isr, *(set(sight.state.isr) - set(memory.state.isr))}
    for tail in kept_tails(sight):
        if tail.broker in joined and tail.broker in sight.state.isr:
            yield tail
