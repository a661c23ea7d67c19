"""EPO: the lineage of leader epochs that every replica keeps in leader-epoch-checkpoint."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidestaff.consistency.checks.lineages import ConflictKind, is_rising
from tidestaff.consistency.model import Bracket, LineageSource, OffsetRange
from tidestaff.consistency.verdict import Unknown, Violated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.checks.sight import Finding, Sight
    from tidestaff.consistency.model import Lineage


def lineage_rises(sight: Sight) -> Iterator[Finding]:
    """EPO002: epochs rise from entry to entry, start offsets never fall, and none is negative.

    The list is searched from its end. Equal start offsets are lawful: up to 2.0.0 they are written,
    and a later version keeps such a file until it has something to write.
    """
    for reading in sight.replicas:
        lineage = reading.lineage
        if lineage and not is_rising(lineage):
            yield Violated(
                "EPO002",
                expected="epochs that rise, start offsets that do not fall",
                observed=_text(lineage),
                because="a follower looks up its truncation point in this list: out of order it "
                "finds a wrong one",
                broker=reading.broker,
            )


def _text(lineage: Lineage) -> str:
    return " ".join(f"{entry.epoch}@{entry.start_offset}" for entry in lineage)


def no_epoch_from_the_future(sight: Sight) -> Iterator[Finding]:
    """EPO003: no replica knows a leader epoch that the metadata, read after it, has not reached.

    Judged with metadata that was read again after the replica, and that stands still for longer
    than a ZooKeeper server or a broker may lag: until then it may just be old.
    """
    if sight.observation.bracket is not Bracket.COHERENT:
        yield Unknown("EPO003", "metadata that was read again after the replicas")
        return
    if sight.changed:
        return
    for reading in sight.replicas:
        if reading.lineage and reading.lineage[-1].epoch > sight.state.leader_epoch:
            yield Violated(
                "EPO003",
                expected=f"epochs up to {sight.state.leader_epoch}",
                observed=f"epoch {reading.lineage[-1].epoch}",
                because="only the controller gives out epochs: the file is of another topic, or "
                "the metadata went back in time",
                broker=reading.broker,
            )


def committed_lineages_agree(sight: Sight) -> Iterator[Finding]:
    """EPO004: in-sync replicas hold the same epochs in the committed range both have.

    Normalised first: what retention cut, and what is not yet committed, lawfully differs. Named is
    the replica that disagrees with most others; of two, the one that does not lead.
    """
    if not any(reading.lineage for reading in sight.replicas):
        yield Unknown("EPO004", "an epoch lineage of at least two replicas")
        return
    found = [each for each in sight.conflicts if each.kind is ConflictKind.COMMITTED]
    times = Counter(broker for each in found for broker in (each.one, each.other))
    for conflict in found:
        one, other = conflict.one, conflict.other
        leads = one == sight.state.leader
        wrong = other if (times[other], leads) > (times[one], False) else one
        yield Violated(
            "EPO004",
            expected=f"brokers {one} and {other} agree up to {conflict.end}",
            observed=f"they disagree from offset {conflict.offset} on",
            because="the records there were written by different leaders",
            broker=wrong,
            offsets=OffsetRange(conflict.offset, conflict.end),
        )


def epochs_start_once(sight: Sight) -> Iterator[Finding]:
    """EPO005: an epoch starts at the same offset on every replica that holds records of it.

    Needs neither HW nor ISR: whoever holds records of an epoch has them from its one leader.
    Entries moved by the log start, and epochs without records, are left out.
    """
    for conflict in sight.conflicts:
        if conflict.kind is ConflictKind.START:
            yield Violated(
                "EPO005",
                expected="one start offset for each epoch",
                observed=f"brokers {conflict.one} and {conflict.other} start one epoch at "
                f"{conflict.offset} and {conflict.end}",
                because="a leader starts its epoch once: the two logs are not of one history",
                broker=conflict.other,
                offsets=OffsetRange(conflict.offset, conflict.end),
            )


def leader_recorded_its_epoch(sight: Sight) -> Iterator[Finding]:
    """EPO006: a leader has its own epoch in its file (2.0.1+): followers truncate by it.

    Without the entry the leader answers a follower's question with the end of an older epoch, and
    the follower keeps or cuts the wrong records.
    """
    leader = sight.leader
    if leader is None or not leader.lineage or not sight.rules.leader_writes_epoch_at_once:
        return
    if leader.lineage_source is not LineageSource.CHECKPOINT_FILE:
        return
    if leader.leader_epoch != sight.state.leader_epoch:
        return
    if leader.lineage[-1].epoch < sight.state.leader_epoch:
        yield Violated(
            "EPO006",
            expected=f"an entry for epoch {sight.state.leader_epoch}",
            observed=f"last entry {leader.lineage[-1].epoch}@{leader.lineage[-1].start_offset}",
            because="a follower that asks for the end of an older epoch is told a wrong offset",
            broker=leader.broker,
        )
