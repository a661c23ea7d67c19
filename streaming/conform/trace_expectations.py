"""What the monitor owes on a run of a formal model: which broken invariant it must raise, and when.

The oracle sees records and every replica's beliefs; the monitor sees epochs, and judges only what
its documented guards allow (docs/architecture.md, "What keeps it from crying wolf"). Here those
guards are conditions on the model's state, so that an exception follows from the state, never from
the name of a trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.simulator.kernel.rules import KIP320_FIRST_TRY, PRESETS
from tidestaff.connectors.simulator.kernel.state import follows_in_epoch
from tidestaff.consistency.catalogue import BY_CODE, PARTITION_RULES
from tidestaff.consistency.model import OffsetRange
from tidestaff.consistency.rules import Timing
from tidestaff.consistency.verdict import FindingClass, Severity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidestaff.connectors.simulator.kernel.invariants import Ledger
    from tidestaff.connectors.simulator.kernel.rules import RuleSet
    from tidestaff.connectors.simulator.kernel.state import Record, Replica
    from tidestaff.consistency.model import BrokerId
    from tidestaff.consistency.verdict import Violated
    from tidestaff.streaming.conform.trace_samples import Sample

_GONE: Final = frozenset({"TRN001"})
_EXPOSED: Final = frozenset({"HWM004", "EPO004", "TRN001"})
_DIVERGED: Final = frozenset({"EPO004", "EPO005", "TRN001", "TRN003", "TRN004"})
_TAIL: Final = frozenset({"EPO004", "EPO005", "TRN003", "TRN004"})
NOTHING: Final[frozenset[str]] = frozenset()

RAISED_BY: Final[Mapping[str, frozenset[str]]] = {
    "leader_in_isr_or_none": frozenset({"ELE002"}),
    "hw_le_leo": frozenset({"HWM001"}),
    "one_leader_per_epoch": frozenset({"ELE006"}),
    "log_epochs_monotone": frozenset({"EPO002"}),
    "below_hw_agree": _DIVERGED,
    "follower_matches_leader": _TAIL,
    "follower_leo_le_leader": _TAIL,
    "weak_isr": _EXPOSED,
    "strong_isr": _EXPOSED,
    "isr_has_committed": _EXPOSED,
    "leader_candidate_completeness": _EXPOSED,
    "true_leader_has_committed": _GONE,
    "some_replica_has_committed": _GONE,
    "no_conflicting_commit": _GONE,
    "leader_completeness": _GONE,
    "some_replica_has_acked": _GONE,
    "consistent_reads": _DIVERGED,
    # Not errors, or not in what a monitor can read: contents need checksums, and whom the leader
    # replicates to it keeps to itself.
    "follower_hw_le_leader": NOTHING,
    "replica_epoch_le_quorum": NOTHING,
    "same_epoch_same_record": NOTHING,
    "replication_quorum_superset": NOTHING,
}
AT_ONCE: Final = frozenset(
    {"leader_in_isr_or_none", "hw_le_leo", "one_leader_per_epoch", "log_epochs_monotone"}
)

_COMPARED_CLASSES: Final = frozenset(
    {FindingClass.LOSS, FindingClass.DIVERGENCE, FindingClass.EXPOSURE, FindingClass.PROTOCOL}
)
# The models elect any member of the ISR, and have no minutes in which an ISR could flap.
_NOT_MODELLED: Final = frozenset({"ELE001", "ISR005"})
COMPARED: Final = frozenset(
    rule.code
    for rule in PARTITION_RULES
    if rule.finding in _COMPARED_CLASSES
    and rule.severity is not Severity.INFO
    and rule.grace.ms(Timing()) == 0
    and rule.code not in _NOT_MODELLED
)
assert set().union(*RAISED_BY.values()) <= COMPARED <= set(BY_CODE)

NOT_COHERENT: Final = "no coherent sample while it lasts"
NO_FETCH: Final = "no fetch of the follower is proven in this leader epoch"
FALLING: Final = "epochs fall along a log (EPO002): its lineage cannot be compared"
OTHER_LEADER: Final = "only a leader of another epoch than the metadata's shows it"
BY_THE_FILE_ALONE: Final = "stated, and no state shows anything of it"
NOT_COMMITTED: Final = "the metadata's leader, or the ISR member, has a HW below it"


@dataclass(slots=True)
class History:
    """What coherent samples have proven so far: commits, fetches, and which losses were raised."""

    proven: set[tuple[int, Record]] = field(default_factory=set)
    reported: list[OffsetRange] = field(default_factory=list)
    epoch: int = -1
    isr: tuple[BrokerId, ...] = ()
    fetched: set[BrokerId] = field(default_factory=set)
    joined: set[BrokerId] = field(default_factory=set)

    def see(self, sample: Sample) -> None:
        """Take in who is proven to have fetched: it holds records of the epoch, or had joined the
        ISR in it."""
        quorum = sample.state.quorum
        if quorum.leader_epoch != self.epoch:
            self.fetched, self.joined = set(), set()
            self.epoch, self.isr = quorum.leader_epoch, quorum.isr
        joined_before = self.joined & set(quorum.isr)
        self.joined = joined_before | (set(quorum.isr) - set(self.isr))
        self.isr = quorum.isr
        leader = sample.leader
        if leader is None:
            self._see_out_of_office(sample)
            return
        for replica in sample.read:
            if replica is leader or not follows_in_epoch(replica, leader):
                continue
            holds = bool(replica.log) and replica.log[-1].epoch == self.epoch
            if holds or replica.broker in joined_before:
                self.fetched.add(replica.broker)

    def _see_out_of_office(self, sample: Sample) -> None:
        """A leader that was replaced still commits, beyond what is known to be committed."""
        for replica in sample.read:
            if replica.believes_it_leads:
                known = max((o for o, _ in self.proven), default=-1)
                below = enumerate(replica.log[: replica.high_watermark])
                self.proven = self.proven | {(o, r) for o, r in below if o > known}

    def lost(self, sample: Sample) -> OffsetRange | None:
        """What was proven committed and the leader lacks, if that range was not reported before."""
        gone = self.gone(sample)
        if gone and any(r.start <= gone.start and gone.end <= r.end for r in self.reported):
            return None
        return gone

    def gone(self, sample: Sample) -> OffsetRange | None:
        """What was proven committed and the leader lacks.

        Another replica proves by its HW what some leader committed, itself or whom it followed; in
        the ISR only if the leader is too short, since other records there are a divergence.
        """
        leader = sample.leader
        assert leader is not None
        comparable = rises(leader)
        committed = [(o, r, comparable) for o, r in self.proven]
        for replica in sample.read:
            if replica is not leader:
                inside = replica.broker in sample.state.quorum.isr
                usable = comparable and not inside and rises(replica)
                known = replica.log[: replica.high_watermark]
                committed += [(o, r, usable) for o, r in enumerate(known)]
        gone = [
            offset
            for offset, record, usable in committed
            if offset >= leader.log_end_offset or (usable and leader.log[offset] != record)
        ]
        return OffsetRange(min(gone), max(gone) + 1) if gone else None

    def remember(self, sample: Sample, raised: Iterable[Violated]) -> None:
        """What is reported lost leaves the ledger, which then follows the leader that is."""
        leader = sample.leader
        assert leader is not None
        for violated in raised:
            if violated.code == "TRN001" and violated.offsets is not None:
                self.reported.append(violated.offsets)
                start = violated.offsets.start
                self.proven = {entry for entry in self.proven if entry[0] < start}
        if leader.high_watermark > max((o for o, _ in self.proven), default=-1):
            self.proven = set(enumerate(leader.log[: leader.high_watermark]))


def compared_codes(rules: RuleSet) -> frozenset[str]:
    """TRN002 predicts the cut of a released Kafka: a rule set that truncates as none did is rightly
    told that it cuts too far, whether or not an invariant breaks."""
    released = rules in PRESETS.values() and rules != KIP320_FIRST_TRY
    return COMPARED if released else COMPARED - {"TRN002"}


def holds_again(violated: Violated, sample: Sample, ledger: Ledger) -> bool:
    """The range of a loss runs past committed records that the leader does hold: where no prefix
    matches (before KIP-320) logs that differ may agree again further up."""
    leader = sample.leader
    if violated.code != "TRN001" or violated.offsets is None or leader is None:
        return False
    start, end = violated.offsets
    return any((o, r) in ledger for o, r in list(enumerate(leader.log))[start:end])


def rises(replica: Replica) -> bool:
    """Only a lineage that rises can be compared; another one is EPO002."""
    return all(low.epoch <= high.epoch for low, high in pairwise(replica.log))


def owed(sample: Sample, broken: Collection[str], history: History) -> frozenset[str]:
    """Which of the broken invariants must be raised on this very sample."""
    due = {name for name in broken if name in AT_ONCE}
    leader = sample.leader
    if leader is None:
        return frozenset(due)
    groups: set[frozenset[str]] = set()
    if history.lost(sample) is not None:
        groups |= {_GONE, _EXPOSED, _DIVERGED}
    if _committed_disagree(sample):
        groups |= {_EXPOSED, _DIVERGED}
    if any(
        r.log_end_offset < leader.high_watermark
        for r in sample.read
        if r.broker in sample.state.quorum.isr
    ):
        groups.add(_EXPOSED)
    due |= {name for name in broken if RAISED_BY.get(name) in groups}
    return frozenset(due | _owed_tails(sample, leader, broken, history))


def _committed_disagree(sample: Sample) -> bool:
    inside = [r for r in sample.read if r.broker in sample.state.quorum.isr and rises(r)]
    for one, other in combinations(inside, 2):
        end = min(one.high_watermark, other.high_watermark)
        if one.log[:end] != other.log[:end]:
            return True
    return False


def _owed_tails(
    sample: Sample, leader: Replica, broken: Collection[str], history: History
) -> set[str]:
    due = set()
    for replica in sample.read:
        if replica is leader or replica.broker not in history.fetched:
            continue
        if not follows_in_epoch(replica, leader):
            continue
        if replica.log_end_offset > leader.log_end_offset:
            due.add("follower_leo_le_leader")
        differs = first_difference(replica, leader) is not None
        if differs and rises(replica) and rises(leader):
            due.add("follower_matches_leader")
    return due & set(broken)


def first_difference(one: Replica, other: Replica) -> int | None:
    pairs = enumerate(zip(one.log, other.log, strict=False))
    return next((offset for offset, (left, right) in pairs if left != right), None)


def reported(sample: Sample, ledger: Ledger, losses: Collection[OffsetRange]) -> bool:
    """All that the leader lacks of what was committed was raised as lost before, which is once."""
    leader = sample.leader
    if leader is None:
        return False
    gone = {offset for offset, record in ledger if leader.log[offset : offset + 1] != (record,)}
    return bool(gone) and all(any(r.start <= o < r.end for r in losses) for o in gone)


def why_not_visible(name: str, samples: Iterable[Sample]) -> str:
    """The guard that keeps the monitor from judging this invariant in the samples that break it."""
    coherent = [(sample, leader) for sample in samples if (leader := sample.leader) is not None]
    if not coherent:
        return NOT_COHERENT
    if all(not all(map(rises, sample.read)) for sample, _ in coherent):
        return FALLING
    if RAISED_BY[name] is _TAIL:
        ours = any(_has_other_tail(r, leader) for sample, leader in coherent for r in sample.read)
        return NO_FETCH if ours else OTHER_LEADER
    return NOT_COMMITTED if RAISED_BY[name] is _EXPOSED else OTHER_LEADER


def _has_other_tail(replica: Replica, leader: Replica) -> bool:
    return follows_in_epoch(replica, leader) and (
        replica.log_end_offset > leader.log_end_offset
        or first_difference(replica, leader) is not None
    )


def offsets_wrong(
    violated: Violated, sample: Sample, lost: OffsetRange | None, ledger: Ledger
) -> str | None:
    """What the records say of the offsets that were raised, where they say something else."""
    leader = sample.leader
    replica = sample.state.replica(-1 if violated.broker is None else violated.broker)
    if violated.offsets is None or leader is None or replica is None:
        return None
    start, end = violated.offsets
    if violated.code == "TRN001":
        gone = [o for o, r in ledger if leader.log[o : o + 1] != (r,)]
        if violated.offsets != lost or start not in gone or end - 1 not in gone:
            return f"{lost} of what was seen, {sorted(set(gone))} of what was ever committed"
    elif violated.code == "HWM004":
        if replica.log_end_offset != start or not start < end:
            return f"LEO {replica.log_end_offset}, leader HW {leader.high_watermark}"
    elif violated.code in {"EPO004", "TRN003", "TRN004"}:
        firsts = {
            first_difference(replica, other)
            for other in (sample.read if violated.code == "EPO004" else [leader])
            if other is not replica
        }
        if start not in firsts and start != leader.log_end_offset:
            return f"first differences {sorted(o for o in firsts if o is not None)}"
    return None
