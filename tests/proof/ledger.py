"""The monitor's alarms beside the simulator's ledger: confirmed, false, missed and why.

Nothing here believes the monitor: a loss is confirmed by the ledger of committed records, different
records by the logs themselves at the moment of the alarm.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from tidestaff.connectors.simulator.log import Run, shared, unshared
from tidestaff.connectors.simulator.places import METADATA, WELL
from tidestaff.consistency.model import OffsetRange, TopicPartition

from tests.proof.epoch_files import tell_apart, tell_nothing
from tests.proof.histories import EVERY_STEP
from tests.proof.watching import DIFFERENT_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidestaff.connectors.simulator.entries import (
        Divergence,
        Loss,
        StaleWrite,
        Stranded,
        TornTail,
        UncleanElection,
    )
    from tidestaff.consistency.model import BrokerId

    from tests.proof.histories import Watched
    from tests.proof.watching import Alarm, Glimpse

Entry = TypeVar(
    "Entry", "Loss", "Divergence", "UncleanElection", "StaleWrite", "Stranded", "TornTail"
)
NOT_COMMITTED: Final = "no sample showed the commit"
DOUBTFUL: Final = "shown in a later epoch than the metadata's, without a topic id"
LOST_TWICE: Final = "reported as lost before, and nobody in office was seen with them since"
BESIDE: Final = "shown out of office beside another's commit, without a topic id"
NOT_AFTER: Final = "no coherent sample of a leader after it"
REGAINED: Final = "the next leader that was seen has them again"
RETENTION: Final = "the next leader that was seen had removed the offsets"
NO_LINEAGE: Final = "written again before the next sample, no lineage before 0.11"
SAME_EPOCH: Final = "written again in the same leader epoch"
NO_EPOCHS: Final = "logs without epochs, and not every step was seen"
REASSIGNED: Final = "states skipped between two samples, and another assignment"
SKIPPED: Final = "states skipped between two samples"
DELETING: Final = "the topic was being deleted by the first sample after it"
STRAY: Final = "committed by a deposed leader that is no longer assigned, which nobody asks"
REPLACED_DISK: Final = "the disk was replaced while the broker was away, no lineage before 0.11"
TORN_TAIL: Final = "a power loss took what was not flushed, no lineage before 0.11"
TOO_WIDE: Final = "its range goes below a log start that no sample had shown"
FELL_BACK: Final = "all of it removed since the last sample, and the log fell back below it"
OLD_FILES: Final = "epoch files of before 2.0.1 leave out what a log went back to"
NOT_BOTH: Final = "no coherent sample of both in the ISR after it"
UNEXPLAINED: Final = "unexplained"
# From an event to the next that it brings about: a message or two.
A_STEP_MS: Final = 50


@dataclass(slots=True)
class Outcome:
    """What one history, or many, came to. `samples` are observations of partitions and cluster."""

    histories: int = 0
    actions: int = 0
    events: int = 0
    samples: int = 0
    confirmed: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    exact: Counter[str] = field(default_factory=Counter)
    partly: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, other: Outcome) -> None:
        self.histories += other.histories
        self.actions += other.actions
        self.events += other.events
        self.samples += other.samples
        for name in ("confirmed", "false", "exact", "partly", "missed", "reasons"):
            getattr(self, name).update(getattr(other, name))

    @property
    def disagreements(self) -> int:
        return sum(self.false.values()) + sum(
            count for reason, count in self.reasons.items() if reason.endswith(UNEXPLAINED)
        )


def judge(watched: Watched) -> Outcome:
    """Compare what was raised with what is true."""
    cluster, watcher = watched.cluster, watched.watcher
    found = Outcome(1, len(cluster.actions), cluster.loop.events, watcher.observations)
    for alarm in watcher.alarms:
        kind = found.confirmed if is_true(watched, alarm) else found.false
        kind[alarm.violated.code] += 1
        if is_too_wide(watched, alarm):
            whole = _claimed_beyond(watched, alarm) == [alarm.violated.offsets]
            found.reasons[f"loss raised: {FELL_BACK if whole else TOO_WIDE}"] += 1
        if alarm.violated.code == "TRN006" and not _differs(watched, alarm):
            if is_replaced_disk(watched, alarm):
                found.reasons[f"TRN006 raised: {REPLACED_DISK}"] += 1
            elif is_torn_tail(watched, alarm):
                found.reasons[f"TRN006 raised: {TORN_TAIL}"] += 1
    for loss in cluster.truth.losses:
        _count(found, "loss", *_loss_found(watched, loss))
    for divergence in cluster.truth.divergences:
        _count(found, "divergence", *_divergence_found(watched, divergence))
    for election in cluster.truth.unclean_elections:
        _count(found, "unclean election", *_election_found(watched, election))
    return found


def _count(outcome: Outcome, what: str, how: str, why: str) -> None:
    getattr(outcome, how)[what] += 1
    if why:
        outcome.reasons[f"{what} {how}: {why}"] += 1


def false_alarms(watched: Watched) -> list[Alarm]:
    return [alarm for alarm in watched.watcher.alarms if not is_true(watched, alarm)]


def is_true(watched: Watched, alarm: Alarm) -> bool:
    truth, code, offsets = watched.cluster.truth, alarm.violated.code, alarm.violated.offsets
    if code == "ELE009":
        # One that no sample had shown before: told once, however long its leader stays.
        return any(
            e.leader == alarm.violated.broker
            and alarm.before_epoch < e.leader_epoch <= alarm.leader_epoch
            for e in _by(truth.unclean_elections, alarm)
        )
    if code == "TRN001":
        return not _claimed_beyond(watched, alarm) or is_too_wide(watched, alarm)
    if code in DIFFERENT_RECORDS and offsets is not None:
        return (
            _differs(watched, alarm)
            or is_replaced_disk(watched, alarm)
            or is_torn_tail(watched, alarm)
        )
    if code == "ISR001":
        return any(s.broker == alarm.violated.broker for s in _by(truth.stranded, alarm))
    return code == "CTL004" and _written_by_a_stale_controller(watched, alarm)


def _written_by_a_stale_controller(watched: Watched, alarm: Alarm) -> bool:
    """Before 2.1 nothing fences the writes of a controller that was replaced: they do happen.

    Where every step is seen, several writes of one event are seen one after the other, after it:
    there must be one for every alarm.
    """
    writes = _by(watched.cluster.truth.stale_writes, alarm)
    if watched.plan.every_ms == EVERY_STEP:
        at = watched.watcher.alarms.index(alarm)
        raised = [
            each
            for each in watched.watcher.alarms[: at + 1]
            if (each.violated.code, each.partition) == ("CTL004", alarm.partition)
        ]
        return len(raised) <= len(writes)
    return any(alarm.before_ms - age_ms(watched) <= write.at_ms for write in writes)


def age_ms(watched: Watched) -> int:
    """How old the metadata of every sample is."""
    return dict(watched.plan.places).get(METADATA, WELL).delay_ms


def _claimed_beyond(watched: Watched, alarm: Alarm) -> list[OffsetRange]:
    """What an alarm of loss names without a loss that was not reported before.

    Where every step is seen, it comes in the very step of the loss, or with the first sample of the
    leader in office: until then nobody can tell what that one holds. Or later, where no sample had
    shown the commit: the last thing a process did before it ended shows when it is back.
    """
    offsets, at = alarm.violated.offsets, watched.watcher.alarms.index(alarm)
    if offsets is None:
        return [OffsetRange(0, 1)]
    every_step = watched.plan.every_ms == EVERY_STEP
    left = [offsets]
    for loss in _by(watched.cluster.truth.losses, alarm):
        if every_step and loss.at_ms != alarm.until_ms:
            shown_ms = _commit_seen(watched, loss, alarm, offsets)
            if shown_ms is not None and _leader_seen(watched, loss, alarm, shown_ms):
                continue
        fresh = [loss.offsets]
        for earlier in watched.watcher.alarms[:at]:
            told = earlier.violated.offsets
            if (
                (earlier.violated.code, earlier.partition) == ("TRN001", alarm.partition)
                and told is not None
                and loss.at_ms <= earlier.until_ms < alarm.until_ms
            ):
                fresh = minus(fresh, minus([told], _first_shown(watched, loss, earlier, alarm)))
        left = minus(left, fresh)
    return left


def _first_shown(watched: Watched, loss: Loss, earlier: Alarm, alarm: Alarm) -> list[OffsetRange]:
    """Which of the lost records samples showed only after the earlier alarm, up to this one: what
    that one named at their offsets were others. Who never showed does not count, nor does who was
    shown before: either is told once."""
    seen = [g for g in watched.watcher.glimpses.get(loss.partition, []) if g.topic == loss.topic_id]

    def shown(until_ms: int) -> list[OffsetRange]:
        samples = [(*g.shown, *g.doubtful) for g in seen if g.at_ms <= until_ms]
        return [OffsetRange(run.start, run.end) for run in _those_in(loss.records, samples)]

    return minus(shown(alarm.at_ms), shown(earlier.at_ms))


def _leader_seen(watched: Watched, loss: Loss, alarm: Alarm, shown_ms: int) -> bool:
    """Whether a sample showed the leader's log after the loss, with the commit known, and before
    the alarm."""
    return any(
        max(loss.at_ms, shown_ms) <= g.at_ms < alarm.at_ms and g.coherent and g.log_end >= 0
        for g in watched.watcher.glimpses.get(loss.partition, [])
    )


def _commit_seen(watched: Watched, loss: Loss, alarm: Alarm, offsets: OffsetRange) -> int | None:
    """When a sample before the alarm first showed some of these records below a watermark."""
    records = clip(loss.records, offsets)
    for g in watched.watcher.glimpses.get(loss.partition, []):
        told = g.topic == loss.topic_id and g.at_ms < alarm.at_ms
        if told and _those_in(records, [g.shown]):
            return g.at_ms
    return None


def _differs(watched: Watched, alarm: Alarm) -> bool:
    offsets = alarm.violated.offsets
    return offsets is not None and covers(_differing(watched, alarm), offsets)


def _differing(watched: Watched, alarm: Alarm) -> Sequence[OffsetRange]:
    """Where the logs differ at the moment of the alarm: what differed before is told while it does,
    and not again when it is mended."""
    return alarm.differing


def is_replaced_disk(watched: Watched, alarm: Alarm) -> bool:
    """TRN006 is an inference from what a replica had before it went, which is why it is a warning:
    a disk that was replaced while the broker was away, and filled again before the next sample,
    looks the same without epochs. Its own ground is checked: there was such a disk, before the
    first alarm, and no sample has told it from the old one since. Whoever sees every step has no
    excuse."""
    if alarm.violated.code != "TRN006" or alarm.violated.broker is None:
        return False
    if watched.plan.every_ms == EVERY_STEP:
        return False
    first = _first_raised(watched, alarm)
    return any(
        action["do"] == "wipe_disk"
        and action["applied"]
        and action.get("broker") == alarm.violated.broker
        and action["at_ms"] <= first.until_ms
        and _looks_as_before(watched, first, since_ms=action["at_ms"])
        for action in watched.cluster.actions
    )


def is_torn_tail(watched: Watched, alarm: Alarm) -> bool:
    """The same of a power loss, which takes the end of a log that was not flushed: the replica kept
    what was left and has its leader's records from there on. All of the claim that does not differ
    must be what it took."""
    if alarm.violated.code != "TRN006" or alarm.violated.offsets is None:
        return False
    if watched.plan.every_ms == EVERY_STEP:
        return False
    first = _first_raised(watched, alarm)
    torn = [
        tail.offsets
        for tail in _by(watched.cluster.truth.torn_tails, first)
        if tail.broker == alarm.violated.broker
        and _looks_as_before(watched, first, since_ms=tail.at_ms)
    ]
    return bool(torn) and not minus(
        minus([alarm.violated.offsets], _differing(watched, alarm)), torn
    )


def _first_raised(watched: Watched, alarm: Alarm) -> Alarm:
    """TRN006 is raised again in every round; what counts is when it was raised first."""
    return min(
        (
            each
            for each in watched.watcher.alarms
            if (each.violated.code, each.violated.broker) == ("TRN006", alarm.violated.broker)
            and (each.partition, each.leader_epoch) == (alarm.partition, alarm.leader_epoch)
        ),
        key=lambda each: each.at_ms,
    )


def _looks_as_before(watched: Watched, alarm: Alarm, *, since_ms: int) -> bool:
    """Whether every sample from then up to the alarm that showed the replica showed it no shorter
    than the tail it is said to have kept, as it would be if it had; and none showed it away again
    after that: whatever was inferred then came from the sight of the new disk."""
    broker, offsets = alarm.violated.broker, alarm.violated.offsets
    assert broker is not None
    assert alarm.partition is not None
    if offsets is None:
        return False
    seen = False
    for g in watched.watcher.glimpses.get(alarm.partition, []):
        if not g.coherent or not since_ms < g.at_ms <= alarm.at_ms:
            continue
        end = g.ends.get(broker)
        if end is None and seen and broker not in g.registered:
            return False
        if end is not None and end < offsets.end:
            return False
        seen = seen or end is not None
    return True


def is_too_wide(watched: Watched, alarm: Alarm) -> bool:
    """A true loss, named together with offsets that retention had removed since the last sample; or
    a log that fell back below them, with which nothing else was lost that a sample had shown.

    Its own ground is checked: no coherent sample up to then had shown so high a log start, and what
    a torn one shows is no evidence. The alarm's own sample is no excuse: what lies below the log
    start that it shows is claimed in spite of it, and so are records that it shows the leader with.
    """
    if alarm.violated.code != "TRN001" or alarm.violated.offsets is None:
        return False
    if watched.plan.every_ms == EVERY_STEP:
        return False
    beyond = _claimed_beyond(watched, alarm)
    if not beyond:
        return False
    if beyond == [alarm.violated.offsets] and not _fell_back(watched, alarm, beyond[0]):
        return False
    seen = watched.watcher.glimpses.get(alarm.partition or TopicPartition("", 0), [])
    glimpses = [g for g in seen if g.at_ms <= alarm.at_ms]
    known = (
        g.log_start
        for g in glimpses
        if g.at_ms < alarm.at_ms and g.coherent and g.topic == glimpses[-1].topic
    )
    own = [g for g in glimpses[-1:] if g.at_ms == alarm.at_ms]
    shown = max((g.log_start for g in own), default=-1)
    shown = max(shown, *known, 0)
    there = [
        OffsetRange(run.start, run.end)
        for g in own
        for part in beyond
        for run in clip(g.held, part)
    ]
    return all(shown <= part.start and part.end <= alarm.floor for part in beyond) and all(
        _gone_from_sight(watched, alarm, offsets) for offsets in there
    )


def _fell_back(watched: Watched, alarm: Alarm, offsets: OffsetRange) -> bool:
    """Whether the leader's log begins below what retention had removed, without the records that
    samples had shown there as committed: offsets are given out twice, which no clean leader does.
    """
    assert alarm.partition is not None
    seen = watched.watcher.glimpses[alarm.partition]
    now = [g for g in seen if g.at_ms <= alarm.at_ms][-1]
    if now.at_ms != alarm.at_ms or not 0 <= now.log_start < alarm.floor:
        return False
    return _gone_from_sight(watched, alarm, offsets)


def _gone_from_sight(watched: Watched, alarm: Alarm, offsets: OffsetRange) -> bool:
    """Whether samples had shown other records at all of these offsets than the leader in office has
    in the alarm's own.

    Samples since the last alarm of these offsets, of its own sample what the leader in office held:
    it is raised once, and again only if it was committed again.
    """
    assert alarm.partition is not None
    *before, now = (g for g in watched.watcher.glimpses[alarm.partition] if g.at_ms <= alarm.at_ms)
    told_ms = max(
        (
            each.at_ms
            for each in watched.watcher.alarms[: watched.watcher.alarms.index(alarm)]
            if (each.violated.code, each.partition) == ("TRN001", alarm.partition)
            and each.violated.offsets is not None
            and minus([offsets], [each.violated.offsets]) != [offsets]
        ),
        default=-1,
    )
    runs = [run for g in before if g.topic == now.topic and g.at_ms > told_ms for run in g.shown]
    for g in before:
        if g.topic == now.topic and g.at_ms == told_ms:
            runs += _those_in(g.shown, [g.held])
    # Others that were shown there since, written anew where the log fell back to, may be held.
    spans = clip(_whole(runs), offsets)
    gone = (r for r in spans if not shared([r], sorted_runs(now.held, r)))
    return covers((OffsetRange(r.start, r.end) for r in gone), offsets)


def _whole(runs: Iterable[Run]) -> list[Run]:
    """What one leader wrote in one epoch is one stretch: who shows its beginning and its end shows
    what lies between, also where retention has removed it since."""
    found: dict[tuple[int, int], Run] = {}
    for run in runs:
        known = found.get((run.epoch, run.writer), run)
        start, end = min(known.start, run.start), max(known.end, run.end)
        found[run.epoch, run.writer] = run._replace(start=start, end=end)
    return list(found.values())


def _by(entries: Iterable[Entry], alarm: Alarm) -> list[Entry]:
    return [e for e in entries if _same_topic(e, alarm) and e.at_ms <= alarm.until_ms]


def _same_topic(entry: Entry, alarm: Alarm) -> bool:
    """The same partition of the same incarnation of the topic, where that is told."""
    topic = getattr(entry, "topic_id", alarm.topic)
    return entry.partition == alarm.partition and alarm.topic in ("", topic)


def covers(ranges: Iterable[OffsetRange], wanted: OffsetRange) -> bool:
    """Every offset of `wanted` is in one of the ranges."""
    position = wanted.start
    for start, end in sorted(ranges):
        if start <= position < end:
            position = end
    return position >= wanted.end


def minus(ranges: Iterable[OffsetRange], taken: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The offsets of the first that are in none of the second."""
    left = list(ranges)
    for start, end in taken:
        cut = [
            piece
            for r in left
            for piece in (
                OffsetRange(r.start, min(r.end, start)),
                OffsetRange(max(r.start, end), r.end),
            )
        ]
        left = [r for r in cut if r.start < r.end]
    return left


def _alarms(
    watched: Watched, codes: Iterable[str], entry: Loss | Divergence, before_ms: int | None = None
) -> list[OffsetRange]:
    """The ranges of these codes that were truly raised from the entry on, up to that time."""
    return [
        alarm.violated.offsets
        for alarm in watched.watcher.alarms
        if alarm.violated.code in codes
        and _same_topic(entry, alarm)
        and alarm.until_ms >= entry.at_ms
        and (before_ms is None or alarm.until_ms < before_ms)
        and alarm.violated.offsets is not None
        and is_true(watched, alarm)
    ]


def _loss_found(watched: Watched, loss: Loss) -> tuple[str, str]:
    """Exact: raised over its whole range, by alarms that claim nothing beyond the ledger.

    Where every step is seen, before anything is lost there again: what is raised then is another
    loss.
    """
    every_step = watched.plan.every_ms == EVERY_STEP
    next_ms = _lost_again(watched, loss) if every_step else None
    missing = minus([loss.offsets], _alarms(watched, ["TRN001"], loss, next_ms))
    if not missing:
        return "exact", ""
    how = "missed" if missing == [loss.offsets] else "partly"
    if every_step:
        return how, STRAY if _committed_by_strays(watched, loss, missing) else UNEXPLAINED
    return how, _why_unseen(watched, loss, missing)


def _lost_again(watched: Watched, loss: Loss) -> int | None:
    """When some of these offsets are lost next, others' records by then or the same anew."""
    return min(
        (
            later.at_ms
            for later in watched.cluster.truth.losses
            if later[1:3] == loss[1:3]
            and later.at_ms > loss.at_ms
            and minus([loss.offsets], [later.offsets]) != [loss.offsets]
        ),
        default=None,
    )


def _committed_by_strays(watched: Watched, loss: Loss, missing: list[OffsetRange]) -> bool:
    """Whoever sees every step has one excuse: all of it was committed by leaders that had left the
    assignment, whom no collector asks, and nobody else ever showed any of it as committed."""
    gone = [run for part in missing for run in clip(loss.records, part)]
    glimpses = watched.watcher.glimpses.get(loss.partition, [])
    shown = [(*g.shown, *g.doubtful) for g in glimpses if g.topic == loss.topic_id]
    commits = [
        commit.records
        for commit in watched.cluster.truth.stray_commits
        if commit[1:3] == loss[1:3] and commit.at_ms <= loss.at_ms
    ]
    by_strays = (OffsetRange(run.start, run.end) for run in _those_in(gone, commits))
    wanted = union(OffsetRange(run.start, run.end) for run in gone)
    return not _those_in(gone, shown) and union(by_strays) == wanted


def _why_unseen(watched: Watched, loss: Loss, missing: list[OffsetRange]) -> str:
    """Why no observer of these samples could tell: each reason takes away what it explains, and
    whatever is left is not explained."""
    glimpses = [
        g for g in watched.watcher.glimpses.get(loss.partition, []) if g.topic == loss.topic_id
    ]
    gone = [run for part in missing for run in clip(loss.records, part)]
    # Records that were lost before, and came back with their holder, were committed anew since.
    since_ms = max(
        (
            earlier.at_ms
            for earlier in watched.cluster.truth.losses
            if earlier.partition == loss.partition
            and earlier.at_ms < loss.at_ms
            and shared(earlier.records, loss.records)
        ),
        default=-1,
    )
    before = [g for g in glimpses if since_ms <= g.at_ms < loss.at_ms]
    # Where a leader of a later epoch speaks, too, the metadata is old: nobody in office was seen.
    after = [
        g
        for g in glimpses
        if g.at_ms >= loss.at_ms and g.coherent and g.log_end >= 0 and not g.doubtful
    ]
    doubtful = _those_in(gone, [g.doubtful for g in before])
    # The very sample that shows the leader without them may show a follower's HW above them.
    gone = _those_in(gone, [g.shown for g in (*before, *after[:1])])
    if not gone:
        return DOUBTFUL if doubtful else NOT_COMMITTED
    gone = _not_reported(watched, loss, gone, [g.held for g in before])
    if not gone:
        return LOST_TWICE
    if not after:
        return NOT_AFTER
    leader = after[0]
    if leader.deleting:
        return DELETING
    gone = [run for run in gone if run.end > _removed_to(leader)]
    if not gone:
        return RETENTION
    gone = [run for run in gone if unshared([run], leader.held, OffsetRange(run.start, run.end))]
    if not gone:
        return REGAINED
    if not watched.cluster.preset.epoch_file:
        return NO_LINEAGE if all(run.end <= leader.log_end for run in gone) else UNEXPLAINED
    same = [
        {r.epoch for r in clip(leader.held, OffsetRange(*run[2:]))} == {run.epoch} for run in gone
    ]
    if all(same):
        return SAME_EPOCH
    gone = [run for run, alike in zip(gone, same, strict=True) if not alike]
    gone = [run for run in gone if not _beside_another(run, before)]
    if not gone:
        return BESIDE
    return OLD_FILES if _untold_by_files(watched, loss, gone, before, leader) else UNEXPLAINED


def _removed_to(shown: Glimpse) -> int:
    """The log start of the leader, or the higher one of who was read after it in the same round: it
    was removed in between, and nobody tells from when on the leader had others there."""
    read = {r.broker: r.read_at_ms or 0 for r in shown.readings}
    later = (
        r.log_start_offset or 0
        for r in shown.readings
        if read[r.broker] > read.get(shown.leader, 0) > 0
    )
    return max(shown.log_start, *later, 0)


def _beside_another(run: Run, before: Sequence[Glimpse]) -> bool:
    """Whether every sample that showed these records showed nobody in office, and others' at the
    same offsets by then: before topic ids, either may have been a deleted topic's."""
    showed = [at for at, g in enumerate(before) if _those_in([run], [g.shown])]
    named = [r.topic_id for at in showed for r in before[at].readings]
    if not showed or any(named) or any(before[at].log_end >= 0 for at in showed):
        return False
    others = [
        OffsetRange(other.start, other.end)
        for g in before[: showed[0] + 1]
        for other in clip(g.shown, OffsetRange(run.start, run.end))
        if other[:2] != run[:2]
    ]
    return covers(others, OffsetRange(run.start, run.end))


def _untold_by_files(
    watched: Watched, loss: Loss, gone: list[Run], before: Sequence[Glimpse], after: Glimpse
) -> bool:
    """Whether the file of the leader that has others there differs from no file that was shown for
    these records in any way that proves it. All of them are below that leader's log end.

    Shown by the last leader in office that had committed them, whose file is what is known of them
    since; and beside the one in office by replicas out of the ISR, with their HW. That a leader
    wrote them itself is known until another answers: its list takes the place of the older one.
    """
    if watched.cluster.preset.epoch_cache_generation != 1:
        return False
    leads = [r for r in after.readings if r.broker == after.leader]
    outside = [r for r in after.readings if r.broker not in after.electable]
    in_office = [
        r for g, leader in _led_by(before) if g.coherent for r in g.readings if r.broker == leader
    ]
    answered = max(
        (
            g.leader_epoch
            for g in watched.watcher.glimpses[loss.partition]
            if g.topic == after.topic and g.at_ms < after.at_ms and g.log_end >= 0
        ),
        default=-1,
    )

    def proved(offset: int) -> bool:
        shown = [
            r._replace(leader_epoch=max(answered, r.leader_epoch or 0))
            for r in in_office
            if r.leads and (r.high_watermark or 0) > offset
        ][-1:]
        shown += [r for r in outside if (r.high_watermark or 0) > offset]
        return any(tell_apart(each, leader, offset) for each in shown for leader in leads)

    return all(
        run.end <= after.log_end and not any(proved(o) for o in range(run.start, run.end))
        for run in gone
    )


def _led_by(glimpses: Sequence[Glimpse]) -> Iterable[tuple[Glimpse, BrokerId]]:
    """Each with its leader, or where it names none, with the one before: that one may still answer,
    and nobody else can have committed anything since."""
    leader = -1
    for g in glimpses:
        leader = g.leader if g.leader >= 0 else leader
        yield g, leader


def _told(watched: Watched, loss: Loss) -> list[OffsetRange]:
    """Losses of this partition that were reported before."""
    return [
        alarm.violated.offsets
        for alarm in watched.watcher.alarms
        if (alarm.violated.code, alarm.partition) == ("TRN001", loss.partition)
        and alarm.until_ms < loss.at_ms
        and alarm.violated.offsets is not None
    ]


def _not_reported(
    watched: Watched, loss: Loss, gone: list[Run], in_office: Sequence[Iterable[Run]]
) -> list[Run]:
    """Without the records that were reported as lost before and that no leader in office was seen
    with since: that whoever still has them came back to office for a moment is not to be seen."""
    told = _told(watched, loss)
    seen_again = _those_in(gone, in_office)
    parts = (
        run._replace(start=part.start, end=part.end)
        for run in gone
        for part in minus([OffsetRange(run.start, run.end)], told)
    )
    return [*parts, *seen_again]


def _those_in(runs: Iterable[Run], shown: Sequence[Iterable[Run]]) -> list[Run]:
    """The parts of the runs that some sample showed."""
    return [
        run._replace(start=start, end=end)
        for run in runs
        for start, end in union(r for s in shown for r in shared([run], sorted_runs(s, run)))
    ]


def clip(runs: Iterable[Run], within: OffsetRange) -> list[Run]:
    found = (r._replace(start=max(r.start, within.start), end=min(r.end, within.end)) for r in runs)
    return [run for run in found if run.start < run.end]


def sorted_runs(runs: Iterable[Run], like: Run) -> list[Run]:
    """Those of the same writer and epoch, in order and without overlap."""
    mine = union(OffsetRange(r.start, r.end) for r in runs if r[:2] == like[:2])
    return [like._replace(start=start, end=end) for start, end in mine]


def union(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    found: list[OffsetRange] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1].end:
            found[-1] = OffsetRange(found[-1].start, max(found[-1].end, end))
        else:
            found.append(OffsetRange(start, end))
    return found


def _divergence_found(watched: Watched, divergence: Divergence) -> tuple[str, str]:
    """Exact: raised over its whole range. Where every step is seen, in the step itself, or in the
    next that shows the two."""
    end_ms = divergence.at_ms + A_STEP_MS + 1 if watched.plan.every_ms == EVERY_STEP else None
    raised = _alarms(watched, DIFFERENT_RECORDS | {"TRN001"}, divergence, end_ms)
    missing = minus([divergence.offsets], raised)
    if not missing:
        return "exact", ""
    how = "missed" if missing == [divergence.offsets] else "partly"
    if watched.plan.every_ms == EVERY_STEP:
        return how, UNEXPLAINED
    if not watched.cluster.preset.epoch_file:
        return how, NO_EPOCHS
    return how, _why_not_told_apart(watched, divergence, missing)


def _why_not_told_apart(
    watched: Watched, divergence: Divergence, missing: list[OffsetRange]
) -> str:
    """Records of one epoch; or no sample showed the two in the ISR with files that prove others."""
    missing = minus(missing, _of_one_epoch(divergence))
    if not missing:
        return SAME_EPOCH
    if watched.cluster.preset.epoch_cache_generation != 1:
        return UNEXPLAINED
    seen = False
    for g in watched.watcher.glimpses.get(divergence.partition, []):
        if g.topic != divergence.topic_id or g.at_ms < divergence.at_ms or not g.coherent:
            continue
        both = [r for r in g.readings if r.broker in divergence.brokers and r.broker in g.electable]
        if len(both) == 2 and not all(tell_nothing(*both, part) for part in missing):
            return UNEXPLAINED
        seen = seen or len(both) == 2
    return OLD_FILES if seen else NOT_BOTH


def _of_one_epoch(divergence: Divergence) -> list[OffsetRange]:
    """Where the records of either are of the same leader epoch: no epoch tells them apart."""
    one, other = divergence.records
    pairs = ((mine, theirs) for mine in one for theirs in other if mine.epoch == theirs.epoch)
    both = (OffsetRange(max(a.start, b.start), min(a.end, b.end)) for a, b in pairs)
    return [offsets for offsets in both if offsets.start < offsets.end]


def _election_found(watched: Watched, election: UncleanElection) -> tuple[str, str]:
    seen = watched.watcher.glimpses.get(election.partition, [])
    glimpses = [g for g in seen if g.topic == election.topic_id]
    for alarm in watched.watcher.alarms:
        mine = alarm.violated.code == "ELE009" and alarm.partition == election.partition
        if (
            mine
            and alarm.until_ms >= election.at_ms
            and alarm.leader_epoch == election.leader_epoch
        ):
            return "exact", ""
    # What is read after the election may show the time before it: metadata can be late.
    shows_it = (
        at
        for at, g in enumerate(glimpses)
        if g.at_ms >= election.at_ms and g.leader_epoch >= election.leader_epoch
    )
    at = next(shows_it, 0)
    if at == 0:
        return "missed", SKIPPED
    last, next_ = glimpses[at - 1], glimpses[at]
    writes = next_.partition_epoch - last.partition_epoch
    # Versions that keep a recovery state show it by that. In the others nobody can have joined the
    # ISR if there were as many writes as new epochs; and who was in it may have left unseen.
    if watched.cluster.preset.recovery_state:
        shown = next_.recovering and (not last.recovering or writes == 1)
    else:
        members = _last_members(watched, glimpses[:at])
        contiguous = writes == next_.leader_epoch - last.leader_epoch
        shown = contiguous and members is not None and election.leader not in members
    if not shown or next_.leader_epoch != election.leader_epoch:
        return "missed", SKIPPED
    if next_.deleting:
        return "missed", DELETING
    return "missed", REASSIGNED if writes > 1 and last.assigned != next_.assigned else UNEXPLAINED


def _last_members(watched: Watched, glimpses: Sequence[Glimpse]) -> frozenset[BrokerId] | None:
    """Who may have been electable, by the last of these samples; None: it cannot be told.

    Before 1.1 a dying ISR may leave none: then those who were in it last are, and a sample that
    shows it emptied does not tell who they were. They are among those of the last sample that
    showed a leader, unless somebody may have joined since; which of these, it does not tell either,
    where the leadership went from one to the other in between.
    """
    last = glimpses[-1]
    if last.electable or last.leader >= 0 or not watched.cluster.preset.last_isr_member_may_go:
        return last.electable
    led = next((g for g in reversed(glimpses) if g.leader >= 0), None)
    if led is None:
        return None
    writes = last.partition_epoch - led.partition_epoch
    return led.electable if writes == last.leader_epoch - led.leader_epoch else None
