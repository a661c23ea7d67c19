"""A partition at one moment, as people are shown it, and whether something happened between two."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.bodies import rules_body
from tidestaff.consistency.isr import effective_min_isr

if TYPE_CHECKING:
    from tidestaff.consistency.memory import PartitionMemory, ReplicaMemory
    from tidestaff.consistency.versions import RuleSet
    from tidestaff.streaming.operator.entries import Partition

LINEAGE_SHOWN: Final = 12

UNDER_REPLICATED, AT_MIN_ISR, UNDER_MIN_ISR, OFFLINE, VIOLATING = 1, 2, 4, 8, 16
LADDER: Final = {
    "under_replicated": UNDER_REPLICATED,
    "at_min_isr": AT_MIN_ISR,
    "under_min_isr": UNDER_MIN_ISR,
    "offline": OFFLINE,
}


def notable(before: PartitionMemory, after: PartitionMemory) -> bool:
    """Whether more happened than that logs grew."""
    if before is after:
        return False
    same = (
        before.state == after.state
        and before.assignment == after.assignment
        and before.live == after.live
        and before.settings == after.settings
        and before.topic_id == after.topic_id
        and before.rules is after.rules
        and before.lost == after.lost
        and before.kept_tails == after.kept_tails
        and len(before.replicas) == len(after.replicas)
    )
    if not same:
        return True
    return any(map(_replica_changed, before.replicas, after.replicas))


def _replica_changed(before: ReplicaMemory, after: ReplicaMemory) -> bool:
    return (
        after.log_end_offset < before.log_end_offset
        or before.broker != after.broker
        # In some rounds a lineage is not read.
        or (
            before.lineage is not after.lineage
            and before.lineage is not None
            and after.lineage is not None
            and before.lineage != after.lineage
        )
        or _cut(before) != _cut(after)
    )


def _cut(replica: ReplicaMemory) -> tuple[int, int] | None:
    return None if replica.cut is None else (replica.cut.leader_epoch, replica.cut.offset)


def raised_of(partition: Partition) -> tuple[Any, ...]:
    """The findings that stand: code, broker, offsets."""
    if not partition.active:
        return ()
    return tuple(
        (code, broker, known.start, known.end)
        for (code, broker), known in partition.active.items()
        if known.raised
    )


def _flags(memory: PartitionMemory, raised: tuple[Any, ...]) -> int:
    isr, wanted = len(memory.state.isr), memory.assignment.target
    least = effective_min_isr(
        min_insync_replicas=memory.settings.min_insync_replicas,
        replica_count=len(memory.assignment.replicas),
        rules=memory.rules,
    )
    led = memory.state.leader >= 0
    return (
        (UNDER_REPLICATED if not set(wanted) <= set(memory.state.isr) else 0)
        | (AT_MIN_ISR if led and isr == least else 0)
        | (UNDER_MIN_ISR if not led or isr < least else 0)
        | (OFFLINE if not led else 0)
        | (VIOLATING if raised else 0)
    )


@lru_cache(maxsize=512)
def _rules(rules: RuleSet) -> dict[str, Any]:
    return rules_body(rules)


def doc_of(
    partition: Partition,
    memory: PartitionMemory,
    raised: tuple[Any, ...],
    before: PartitionMemory | None = None,
) -> dict[str, Any]:
    """A partition at one moment. What many partitions have in common stands in `shape`."""
    state, settings = memory.state, memory.settings
    found: dict[str, Any] = {
        "cluster": partition.cluster,
        "name": partition.name,
        "at_ms": memory.observed_at_ms,
        "flags": _flags(memory, raised),
        "shape": {
            "rules": _rules(memory.rules),
            "leader": state.leader,
            "isr": list(state.isr),
            "assignment": [list(each) for each in memory.assignment],
            "live": [[r.broker, r.fenced, r.shutting_down] for r in memory.live],
            "elr": [list(state.elr), list(state.last_known_elr)],
            "min_isr": settings.min_insync_replicas,
            "unclean": settings.unclean_leader_election_enable,
            "sources": [
                settings.min_insync_replicas_source.value,
                settings.unclean_leader_election_enable_source.value,
            ],
        },
        "topic_id": memory.topic_id,
        "epochs": [state.leader_epoch, state.partition_epoch, state.controller_epoch],
        "recovering": state.recovery.value,
        "committed": [memory.committed_start, memory.committed_end],
        "replicas": [
            [
                *(r.broker, r.log_start_offset, r.high_watermark, r.log_end_offset),
                None if r.lineage is None else [list(e) for e in r.lineage[-LINEAGE_SHOWN:]],
                None if r.cut is None else [r.cut.leader_epoch, r.cut.offset, r.cut.because],
            ]
            for r in memory.replicas
        ],
    }
    extra = {
        "findings": [list(each) for each in raised],
        "lost": [list(each) for each in memory.lost],
        "kept": [[tail.broker, tail.start, tail.end] for tail in memory.kept_tails],
        "eras": [[e.epoch, e.leader, e.start_offset] for e in memory.eras],
        "verified": None if memory.verified is None else list(memory.verified),
        "truncated": _truncated(before, memory),
    }
    return found | {name: value for name, value in extra.items() if value}


def _truncated(before: PartitionMemory | None, after: PartitionMemory) -> list[list[int]]:
    """Logs that are shorter than they were: broker, from, to."""
    if before is None:
        return []
    ends = {r.broker: r.log_end_offset for r in before.replicas}
    return [
        [r.broker, ends[r.broker], r.log_end_offset]
        for r in after.replicas
        if r.log_end_offset < ends.get(r.broker, 0)
    ]
