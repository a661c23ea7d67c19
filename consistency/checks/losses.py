"""What was committed and is not on the leader, with the proof: what TRN001 reports, and what leaves
the ledger with the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.checks.lineages import is_rising, own_from, own_start
from tidestaff.consistency.epochs import (
    first_disagreement,
    next_agreement,
    proven_differences,
    stretches,
)
from tidestaff.consistency.memory import UNKNOWN_EPOCH, Lost
from tidestaff.consistency.model import EpochEntry, OffsetRange
from tidestaff.consistency.ranges import merged, without
from tidestaff.consistency.versions import EpochCacheGeneration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidestaff.consistency.checks.sight import Sight
    from tidestaff.consistency.memory import Beside, PartitionMemory
    from tidestaff.consistency.model import Lineage, ReplicaReading


class _Proof(NamedTuple):
    """Offsets [start, end) that were committed once, and the epochs they have as far as known.

    `leader_end`: where the leader's log ended, read after the commit was known. `comparable`:
    another epoch on the leader shows a loss. `repeats`: it stays where it is after the loss was
    reported, as a replica that is not cut does; the ledger is cut with the report. What it proves
    beyond the report is new, and so is all from `new_from` on: a deposed leader that goes on
    committing. `own_from`: from where on a leader has written it itself, in the last of the epochs.
    """

    start: int
    end: int
    epochs: Lineage
    epochs_end: int
    leader_end: int
    comparable: bool = True
    repeats: bool = False
    new_from: int = 0
    own_from: int | None = None


def losses_of_ledger(sight: Sight) -> tuple[Lost, ...]:
    """What leaves the ledger with the report.

    Proof of a commit is the ledger, and the HW of every other replica of this round, for a follower
    takes its HW from a leader. What was reported before is not reported again.
    """
    leader, end = sight.leader, sight.leader_end
    if leader is None or end is None or not sight.identified:
        return ()
    if sight.origins is not None:
        return tuple(Lost(offsets, UNKNOWN_EPOCH) for offsets in sight.origins.pending)
    return _gone(sight, leader, _proofs(sight, leader, end))


def losses_beside(sight: Sight) -> tuple[Lost, ...]:
    """What leaders committed in rounds that showed nobody in office, where the ledger has other
    records or none: sooner or later somebody in office answers, and has these or not.

    Somebody of an older epoch than the one that committed may be in office by old metadata only.
    Records of an unknown epoch are lost where the log ends before them.
    """
    memory, leader = sight.memory, sight.leader
    if memory is None or leader is None or not sight.identified or sight.origins is not None:
        return ()
    end = leader.log_end_offset
    if end is None:
        return ()
    return _gone(
        sight,
        leader,
        (
            _Proof(
                *known.offsets,
                _epoch_of(known),
                known.offsets.end,
                end,
                repeats=True,
                new_from=known.offsets.end,
                own_from=known.offsets.start if known.epoch == known.leader_epoch else None,
            )
            for known in memory.beside
            if known.leader_epoch <= sight.state.leader_epoch
            and (leader.lineage or known.epoch == UNKNOWN_EPOCH)
        ),
    )


def _epoch_of(known: Beside) -> Lineage:
    if known.epoch == UNKNOWN_EPOCH:
        return ()
    return (EpochEntry(known.epoch, known.offsets.start),)


def _gone(sight: Sight, leader: ReplicaReading, proofs: Iterable[_Proof]) -> tuple[Lost, ...]:
    memory = sight.memory
    reported = memory.losses if memory is not None else ()
    gone = [
        part
        for proof in proofs
        for missing in _missing(sight, leader, proof)
        for lost in by_epoch(missing, proof.epochs, proof.epochs_end)
        for part in (_unreported(lost, proof, reported) if proof.repeats else (lost,))
    ]
    return tuple(dict.fromkeys(gone))


def by_epoch(offsets: OffsetRange, epochs: Lineage, epochs_end: int) -> Iterator[Lost]:
    """A range of records cut where their epoch changes."""
    known = OffsetRange(offsets.start, min(offsets.end, epochs_end))
    for part, epoch in stretches(epochs, start=known.start, end=known.end):
        yield Lost(part, UNKNOWN_EPOCH if epoch is None else epoch)
    if offsets.end > epochs_end:
        yield Lost(OffsetRange(max(offsets.start, epochs_end), offsets.end), UNKNOWN_EPOCH)


def _unreported(lost: Lost, proof: _Proof, reported: tuple[Lost, ...]) -> Iterator[Lost]:
    start, end = lost.offsets
    told = [known.offsets for known in reported if known.may_be(lost)]
    for part in without(OffsetRange(start, min(end, proof.new_from)), told):
        yield lost._replace(offsets=part)
    if max(start, proof.new_from) < end:
        # What was reported with this very epoch is the same: others had shown it before.
        same = [k.offsets for k in reported if k.epoch == lost.epoch != UNKNOWN_EPOCH]
        for part in without(OffsetRange(max(start, proof.new_from), end), same):
            yield lost._replace(offsets=part)


def _proofs(sight: Sight, leader: ReplicaReading, leader_end: int) -> Iterator[_Proof]:
    memory = sight.memory
    if memory is not None:
        # Known before this round began, so the leader's first word counts: until its second it may
        # have written others there.
        first_end = leader.log_end_offset if leader.log_end_offset is not None else leader_end
        yield _Proof(
            memory.committed_start,
            memory.committed_end,
            memory.ledger,
            memory.ledger_end,
            first_end,
            own_from=_own_from(memory),
        )
    for reading in sight.followers():
        if reading.high_watermark is None or not reading.log_dir_online:
            continue
        if reading.broker not in sight.observation.assignment.replicas:
            continue
        if reading.leads and not leads_by_its_own_word(sight, reading):
            continue
        start = max(reading.log_start_offset or 0, memory.committed_start if memory else 0)
        end = min(reading.high_watermark, reading.log_end_offset or 0)
        epochs = reading.lineage if reading.lineage and is_rising(reading.lineage) else ()
        yield _Proof(
            start,
            end,
            epochs,
            end,
            leader_end,
            # In-sync replicas that hold other epochs than the leader have diverged: EPO004.
            # So has one that went on with its leader's records: its HW is of those.
            comparable=reading.broker not in sight.state.isr
            and not _went_on_differing(sight, reading, leader),
            repeats=True,
            new_from=_new_from(sight, reading, end),
            own_from=own_from(sight, reading),
        )


def _own_from(memory: PartitionMemory) -> int | None:
    """The ledger is the lineage of the last leader that answered."""
    answered = [era.epoch for era in memory.eras if era.start_offset >= 0]
    return own_start(memory.ledger, max(answered), leads=True) if answered else None


def _went_on_differing(sight: Sight, reading: ReplicaReading, leader: ReplicaReading) -> bool:
    """Before 2.0.1 a follower may keep its own records below those it has from its leader."""
    if sight.rules.epoch_cache is not EpochCacheGeneration.FIRST or reading.leads:
        return False
    return bool(reading.lineage and leader.lineage and reading.lineage[-1] == leader.lineage[-1])


def _new_from(sight: Sight, reading: ReplicaReading, end: int) -> int:
    # What it had before it was committed may have been reported by what others showed.
    seen = seen_to(sight, reading)
    return end if not reading.leads or seen is None else seen


def seen_to(sight: Sight, reading: ReplicaReading) -> int | None:
    """Where the log of this process ended when it was last seen; None if it never was."""
    remembered = sight.remembered(reading.broker)
    if remembered is None or not sight.same_incarnation(reading.broker):
        return None
    return max(remembered.log_end_offset, remembered.led_to)


def leads_by_its_own_word(sight: Sight, reading: ReplicaReading) -> bool:
    """It leads in this or an older epoch: below its HW is what it has committed, whoever else was
    elected since.

    In a newer epoch than the metadata's it may have been elected meanwhile; or, without a topic id,
    still speak of an older topic of that name.
    """
    if not reading.leads or reading.leader_epoch is None:
        return False
    return names_the_topic(sight, reading) or reading.leader_epoch <= sight.state.leader_epoch


def names_the_topic(sight: Sight, reading: ReplicaReading) -> bool:
    """It speaks of this very topic, not of a deleted one of the same name."""
    return reading.topic_id is not None and reading.topic_id == sight.observation.topic_id


def _missing(sight: Sight, leader: ReplicaReading, proof: _Proof) -> tuple[OffsetRange, ...]:
    end, log_start = proof.leader_end, leader.log_start_offset or 0
    missing = [OffsetRange(max(end, proof.start), proof.end)]
    comparable = proof.comparable and leader.lineage and proof.epochs
    if comparable and leader.lineage and is_rising(leader.lineage) and not sight.compacted:
        common = min(proof.epochs_end, proof.end, end)
        if sight.rules.epoch_cache is EpochCacheGeneration.FIRST:
            missing += proven_differences(
                *(proof.epochs, leader.lineage),
                start=max(log_start, proof.start),
                # What it has written since it was read may be the first of an epoch.
                end=min(common, leader.log_end_offset or 0),
                own_a=proof.own_from,
                own_b=own_from(sight, leader),
            )
            return merged(missing)
        start: int | None = max(log_start, proof.start)
        while start is not None:
            first = first_disagreement(proof.epochs, leader.lineage, start=start, end=common)
            if first is None:
                break
            start = next_agreement(proof.epochs, leader.lineage, start=first, end=common)
            # A difference that reaches as far as the epochs are known goes on to the end.
            missing.append(OffsetRange(first, proof.end if start is None else start))
    return merged(missing)
