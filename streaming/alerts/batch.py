"""The output rows of one micro-batch, sorted out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.consistency.checks.sources import records_are_taken
from tidestaff.consistency.model import HealthObservation, ProblemKind
from tidestaff.consistency.verdict import Violated
from tidestaff.streaming.alerts.event import (
    UNKNOWN_CLUSTER,
    Event,
    EventKind,
    event_of,
    raised_by,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class OutputRow(NamedTuple):
    """What the operator puts out."""

    kind: str
    at_ms: int
    payload: str


# What adds up over batches, and what the last word of each bucket counts.
COUNTED: Final = ("rows", "quiet", "stepped", "late", "quarantined", "state_rebuilt")
STANDING: Final = ("partitions", "replicas_behind", "unknown", "held", "state_bytes")


@dataclass(slots=True)
class BatchStats:
    """What the operator's buckets counted in one batch."""

    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    buckets: dict[int, dict[str, int]] = field(default_factory=dict)
    clocks: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    rebuilt: set[int] = field(default_factory=set)
    max_at_ms: int | None = None

    def add(self, stats: Mapping[str, Any]) -> None:
        for name in COUNTED:
            found = stats.get(name) or 0
            # State that is not read is told in words, for the log; here it is one more.
            self.counted[name] += 1 if isinstance(found, str) else found
        if stats.get("state_rebuilt"):
            self.rebuilt.add(stats["bucket"])
        self.buckets[stats["bucket"]] = {name: stats.get(name) or 0 for name in STANDING}
        for ours, theirs in ((self.clocks, "clocks"), (self.sources, "sources")):
            for name, at_ms in (stats.get(theirs) or {}).items():
                ours[name] = max(at_ms, ours.get(name, at_ms))
        newest = stats.get("max_at_ms")
        if newest is not None and newest >= 0:
            self.max_at_ms = max(newest, self.max_at_ms or newest)


@dataclass(slots=True)
class Batch:
    """Findings, statistics and refused records."""

    events: list[Event] = field(default_factory=list)
    stats: BatchStats = field(default_factory=BatchStats)
    refused: list[dict[str, Any]] = field(default_factory=list)


def batch_of(rows: Iterable[OutputRow]) -> Batch:
    batch = Batch()
    for kind, _, payload in rows:
        if kind == "finding":
            batch.events.append(event_of(payload))
        elif kind == "stats":
            batch.stats.add(json.loads(payload))
        elif kind == "quarantine":
            batch.refused.append(json.loads(payload))
        elif kind == "state":
            # For people to look at; the state store takes it.
            continue
        else:
            raise AssertionError(f"the operator has no output rows of kind {kind!r}")
    return batch


def refusals(refused: Iterable[Mapping[str, Any]], newest_ms: int | None) -> list[Event]:
    """A refused record is a breach of a moment: raised and over at once, kept by the hold-down.

    Its time may be as damaged as the rest of it, so it is not believed beyond the newest clock.
    """
    events = []
    for record in refused:
        at_ms = max(0, record["at_ms"])
        health = HealthObservation(
            record["cluster"] or UNKNOWN_CLUSTER,
            at_ms if newest_ms is None else min(at_ms, newest_ms),
            record["source"],
            ProblemKind.RECORDS_REFUSED,
            place=record["source"],
            reason=f"{record['reason']} ({record['subject']})"
            if record["subject"]
            else record["reason"],
            remedy=record["remedy"],
        )
        for found in records_are_taken(health):
            if isinstance(found, Violated):
                raised = raised_by(health, found)
                events += [raised, raised._replace(kind=EventKind.CLEARED)]
    return events
