"""What the operator says: findings as they begin, change and end, with the evidence.

A finding is known by its code and broker. It begins pending (the condition is met but has not
lasted its grace) or raised, and is cleared only when its rule holds again: a rule that cannot be
judged leaves it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidestaff.consistency.memory import NOBODY
from tidestaff.consistency.model import ClusterObservation, PartitionObservation
from tidestaff.consistency.verdict import Holds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.consistency.memory import Memory, PartitionMemory
    from tidestaff.consistency.model import Observation, PartitionState, ReplicaReading
    from tidestaff.consistency.verdict import Unknown, Verdicts, Violated

PENDING, RAISED, CHANGED, CLEARED = "pending", "raised", "changed", "cleared"


class Active(NamedTuple):
    """A finding that has begun: `raised` or only pending, and the offsets last named; `more` where
    it was found in several places at once."""

    raised: bool
    start: int | None = None
    end: int | None = None
    more: tuple[tuple[int, int], ...] = ()


Findings = dict[tuple[str, int], Active]
"""By code and broker (-1: none)."""

Event = dict[str, Any]


def changes(
    active: Findings, verdicts: Verdicts, observation: Observation, before: Memory | None
) -> tuple[Findings, list[Event]]:
    """The findings after these verdicts, and what is to be said about the difference."""
    if not active and not verdicts.violated and not _suspected(verdicts):
        return active, []
    kept: Findings = {}
    events: list[Event] = []
    for violated in verdicts.violated:
        key = _key(violated)
        start, end = violated.offsets or (None, None)
        known = active.get(key)
        if key in kept:
            if violated.offsets is not None:
                kept[key] = kept[key]._replace(more=(*kept[key].more, violated.offsets))
                if known is None or violated.offsets not in known.more:
                    events.append(_told(RAISED, violated, observation, before))
            continue
        kept[key] = Active(raised=True, start=start, end=end)
        if known is not None and known[:3] == kept[key][:3]:
            continue
        event = CHANGED if known is not None and known.raised else RAISED
        events.append(_told(event, violated, observation, before))
    for unknown in _suspected(verdicts):
        key = _key(unknown)
        if key in kept:
            continue
        if key not in active:
            events.append(_suspicion(unknown, observation))
        kept[key] = active.get(key, Active(raised=False))
    events += _ended(active, kept, verdicts, observation)
    return kept, events


def _ended(
    active: Findings, kept: Findings, verdicts: Verdicts, observation: Observation
) -> Iterator[Event]:
    for (code, broker), known in active.items():
        if (code, broker) in kept:
            continue
        if isinstance(verdicts.of(code, None if broker == NOBODY else broker), Holds):
            yield cleared(code, broker, observation)
        else:
            kept[code, broker] = known


def _suspected(verdicts: Verdicts) -> list[Unknown]:
    return [each for each in verdicts.unknown if each.suspected_since_ms is not None]


def _key(found: Violated | Unknown) -> tuple[str, int]:
    return found.code, NOBODY if found.broker is None else found.broker


def _event(event: str, code: str, broker: int | None, observation: Observation) -> Event:
    topic_id = leader_epoch = None
    if isinstance(observation, PartitionObservation):
        topic_id, leader_epoch = observation.topic_id, observation.state.leader_epoch
    return {
        "event": event,
        "cluster": observation.cluster,
        "code": code,
        "topic": getattr(observation, "topic", None),
        "partition": getattr(observation, "partition", None),
        "topic_id": topic_id,
        "place": getattr(observation, "place", None),
        "source": observation.source,
        "broker": broker,
        "leader_epoch": leader_epoch,
        "at_ms": observation.observed_at_ms,
        "since_ms": None,
        "expected": "",
        "observed": "",
        "because": "",
        "offsets": None,
        "evidence": None,
    }


def _told(event: str, violated: Violated, observation: Observation, before: Memory | None) -> Event:
    told = _event(event, violated.code, violated.broker, observation)
    told["since_ms"] = violated.since_ms
    told["expected"], told["observed"] = violated.expected, violated.observed
    told["because"] = violated.because
    told["offsets"] = None if violated.offsets is None else list(violated.offsets)
    told["evidence"] = evidence(observation, before)
    return told


def _suspicion(unknown: Unknown, observation: Observation) -> Event:
    told = _event(PENDING, unknown.code, unknown.broker, observation)
    told["since_ms"], told["because"] = unknown.suspected_since_ms, unknown.missing
    return told


def cleared(code: str, broker: int, observation: Observation) -> Event:
    return _event(CLEARED, code, None if broker == NOBODY else broker, observation)


def evidence(observation: Observation, before: Memory | None) -> dict[str, Any]:
    """The inputs of a verdict with their times, so that it can be checked by hand."""
    known: dict[str, Any] = {
        "source": observation.source,
        "round": observation.round,
        "observed_at_ms": observation.observed_at_ms,
    }
    if isinstance(observation, PartitionObservation):
        known |= {
            "rules": str(observation.rules),
            "bracket": observation.bracket.value,
            "state": _state(observation.state),
            "assignment": {k: list(v) for k, v in observation.assignment._asdict().items() if v},
            "live": [[each.broker, each.broker_epoch] for each in observation.live],
            "replicas": [_reading(each) for each in observation.replicas],
            "controller": observation.controller,
        }
        if before is not None:
            known["before"] = _before(before)  # type: ignore[arg-type]
    elif isinstance(observation, ClusterObservation):
        known |= {
            "rules": str(observation.rules),
            "controller": observation.controller,
            "controller_epoch": observation.controller_epoch,
            "registrations": [[r.broker, r.broker_epoch] for r in observation.registrations],
            "answering": observation.answering,
            "leading": observation.leading,
        }
    else:
        known |= {"place": observation.place, "reason": observation.reason}
    return known


def _state(state: PartitionState) -> dict[str, Any]:
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "partition_epoch": state.partition_epoch,
        "recovery": state.recovery.name.lower(),
        **({"elr": list(state.elr)} if state.elr else {}),
    }


def _reading(reading: ReplicaReading) -> dict[str, Any]:
    return {
        "broker": reading.broker,
        "log_start": reading.log_start_offset,
        "high_watermark": reading.high_watermark,
        "log_end": reading.log_end_offset,
        "leader_epoch": reading.leader_epoch,
        "leads": reading.leads,
        "epochs": None if reading.lineage is None else [list(e) for e in reading.lineage[-8:]],
        "read_at_ms": reading.read_at_ms,
    }


def _before(memory: PartitionMemory) -> dict[str, Any]:
    cuts = [
        {"broker": r.broker, "epoch": r.cut.leader_epoch, "offset": r.cut.offset}
        for r in memory.replicas
        if r.cut is not None
    ]
    return {
        "observed_at_ms": memory.observed_at_ms,
        "state": _state(memory.state),
        "live": [[each.broker, each.broker_epoch] for each in memory.live],
        "committed": [memory.committed_start, memory.committed_end],
        "replicas": [
            {
                "broker": r.broker,
                "high_watermark": r.high_watermark,
                "log_end": r.log_end_offset,
                "epochs": None if r.lineage is None else [list(e) for e in r.lineage[-8:]],
            }
            for r in memory.replicas
        ],
        **({"predicted_cuts": cuts} if cuts else {}),
    }
