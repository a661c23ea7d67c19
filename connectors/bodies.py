"""The parts of an observation that hardly ever change, as plain values for Avro and back.

Registrations, settings and assignments are shared between the partitions of a cluster; equal ones
become one object again when they are read, which the monitor's memory relies on.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import (
    Assignment,
    BatchDigest,
    Bracket,
    ClusterObservation,
    ControllerClaim,
    EpochEntry,
    HealthObservation,
    Lineage,
    LineageSource,
    OffsetRange,
    PartitionObservation,
    PartitionSettings,
    PartitionState,
    ProblemKind,
    RecoveryState,
    Registration,
    ReplicaReading,
    SettingSource,
)
from tidestaff.consistency.versions import Mode, RuleSet, rules_for

_SETTINGS: Final = tuple(each.name for each in fields(PartitionSettings))
_VALUES: Final = tuple(name for name in _SETTINGS if not name.endswith("_source"))
_SOURCES: Final = _SETTINGS[len(_VALUES) :]
_SHARED: Final = 4_096


@lru_cache(maxsize=_SHARED)
def rules_body(rules: RuleSet) -> dict[str, Any]:
    """What `rules_for` needs to give the same rule set again."""
    names: dict[str, Any] = {
        "version": str(rules.version),
        "mode": rules.mode.value,
        "protocol": str(rules.protocol),
        "elr": rules.elr,
    }
    for migrating in (False, True):
        body = {**names, "migrating": migrating}
        if rules_of(body) == rules:
            return body
    raise FormatError("rule set", "rules", str(rules), "a rule set made by rules_for")


def rules_of(body: dict[str, Any]) -> RuleSet:
    """The rule set a body names."""
    mode = _member(Mode, body["mode"], "rules.mode")
    return rules_for(
        body["version"],
        mode,
        protocol=body["protocol"],
        elr=body["elr"] if mode is Mode.KRAFT else None,
        migrating=body["migrating"],
    )


def _member(kind: Any, value: object, field: str) -> Any:
    try:
        return kind(value)
    except ValueError as e:
        known = ", ".join(str(each.value) for each in kind)
        raise FormatError("record", field, repr(value), f"one of {known}") from e


def partition_body(observation: PartitionObservation) -> dict[str, Any]:
    again = observation.leader_again
    return {
        "source": observation.source,
        "topic": observation.topic,
        "partition": observation.partition,
        "topic_id": observation.topic_id,
        "state_czxid": observation.state_czxid,
        "rules": rules_body(observation.rules),
        "state": {**observation.state._asdict(), "recovery": observation.state.recovery.value},
        "assignment": observation.assignment._asdict(),
        "live": [each._asdict() for each in observation.live],
        "settings": _settings_body(observation.settings),
        "replicas": [_replica(each) for each in observation.replicas],
        "leader_again": None if again is None else _replica(again),
        "bracket": observation.bracket.value,
        "controller": observation.controller,
        "cluster_controller_epoch": observation.cluster_controller_epoch,
        "preferred_imbalance": observation.preferred_imbalance,
        "digests": [_digest(each) for each in observation.digests],
        "deleting": observation.deleting,
        "authoritative": observation.authoritative,
        "continuous": observation.continuous,
    }


def _settings_body(settings: PartitionSettings) -> dict[str, Any]:
    return {
        **{name: getattr(settings, name) for name in _VALUES},
        **{name: getattr(settings, name).value for name in _SOURCES},
    }


def unchanging_of(observation: PartitionObservation) -> tuple[object, ...]:
    """All that a partition's body is made of, to be compared without encoding it."""
    again = observation.leader_again
    return (
        observation.source,
        observation.topic_id,
        observation.state_czxid,
        observation.rules,
        observation.state,
        observation.assignment,
        observation.live,
        observation.settings,
        [(reading[0], reading[4:12]) for reading in observation.replicas],
        None if again is None else (again[0], again[4:12]),
        observation.bracket,
        observation.controller,
        observation.cluster_controller_epoch,
        observation.preferred_imbalance,
        observation.digests,
        observation.deleting,
        observation.authoritative,
        observation.continuous,
    )


def _replica(reading: ReplicaReading) -> dict[str, Any]:
    lineage = reading.lineage
    return {
        "broker": reading.broker,
        "broker_epoch": reading.broker_epoch,
        "leader_epoch": reading.leader_epoch,
        "leads": reading.leads,
        "lineage": None if lineage is None else [each._asdict() for each in lineage],
        "lineage_source": reading.lineage_source.value,
        "local_log_start_offset": reading.local_log_start_offset,
        "topic_id": reading.topic_id,
        "log_dir_online": reading.log_dir_online,
    }


def _digest(digest: BatchDigest) -> dict[str, Any]:
    known = digest._asdict()
    start, end = known.pop("offsets")
    return {**known, "start": start, "end": end}


def reading(
    replica: dict[str, Any],
    log_start_offset: int | None,
    high_watermark: int | None,
    log_end_offset: int | None,
    read_at_ms: int | None,
) -> ReplicaReading:
    lineage = replica["lineage"]
    return ReplicaReading(
        replica["broker"],
        log_start_offset,
        high_watermark,
        log_end_offset,
        replica["broker_epoch"],
        replica["leader_epoch"],
        replica["leads"],
        None
        if lineage is None
        else _lineage(tuple((e["epoch"], e["start_offset"]) for e in lineage)),
        _member(LineageSource, replica["lineage_source"], "replicas.lineage_source"),
        replica["local_log_start_offset"],
        replica["topic_id"],
        replica["log_dir_online"],
        read_at_ms,
    )


@lru_cache(maxsize=_SHARED)
def _lineage(entries: tuple[tuple[int, int], ...]) -> Lineage:
    return tuple(EpochEntry(*entry) for entry in entries)


@lru_cache(maxsize=_SHARED)
def _registrations(entries: tuple[Registration, ...]) -> tuple[Registration, ...]:
    """Equal ones become one object."""
    return entries


@lru_cache(maxsize=_SHARED)
def _settings(*told: Any) -> PartitionSettings:
    values, sources = told[: len(_VALUES)], told[len(_VALUES) :]
    return PartitionSettings(
        *values, *(_member(SettingSource, each, "settings.source") for each in sources)
    )


@lru_cache(maxsize=_SHARED)
def _assignment(*lists: tuple[int, ...]) -> Assignment:
    return Assignment(*lists)


def partition_observation(
    body: dict[str, Any],
    common: dict[str, Any],
    readings: tuple[tuple[ReplicaReading, ...], ReplicaReading | None],
) -> PartitionObservation:
    assigned, settings = body["assignment"], body["settings"]
    return PartitionObservation(
        **common,
        topic=body["topic"],
        partition=body["partition"],
        rules=rules_of(body["rules"]),
        state=_state(body["state"]),
        assignment=_assignment(
            tuple(assigned["replicas"]), tuple(assigned["adding"]), tuple(assigned["removing"])
        ),
        live=_registrations(tuple(Registration(**each) for each in body["live"])),
        settings=_settings(*(settings[name] for name in _SETTINGS)),
        replicas=readings[0],
        leader_again=readings[1],
        bracket=_member(Bracket, body["bracket"], "bracket"),
        topic_id=body["topic_id"],
        state_czxid=body["state_czxid"],
        controller=body["controller"],
        cluster_controller_epoch=body["cluster_controller_epoch"],
        preferred_imbalance=body["preferred_imbalance"],
        digests=tuple(_digest_of(each) for each in body["digests"]),
        deleting=body["deleting"],
        authoritative=body["authoritative"],
        continuous=body["continuous"],
        source=body["source"],
    )


def _state(body: dict[str, Any]) -> PartitionState:
    return PartitionState(
        body["leader"],
        body["leader_epoch"],
        tuple(body["isr"]),
        body["partition_epoch"],
        body["controller_epoch"],
        _member(RecoveryState, body["recovery"], "state.recovery"),
        tuple(body["elr"]),
        tuple(body["last_known_elr"]),
    )


def _digest_of(body: dict[str, Any]) -> BatchDigest:
    known = {**body, "offsets": OffsetRange(body["start"], body["end"])}
    del known["start"], known["end"]
    return BatchDigest(**known)


def cluster_body(observation: ClusterObservation) -> dict[str, Any]:
    answering = observation.answering
    return {
        "source": observation.source,
        "rules": rules_body(observation.rules),
        "controller": observation.controller,
        "controller_epoch": observation.controller_epoch,
        "controller_epoch_before": observation.controller_epoch_before,
        "registrations": [each._asdict() for each in observation.registrations],
        "answering": None if answering is None else list(answering),
        "leading": list(observation.leading),
        "claims": [each._asdict() for each in observation.claims],
        "session_timeout_ms": observation.session_timeout_ms,
    }


def cluster_observation(body: dict[str, Any], common: dict[str, Any]) -> ClusterObservation:
    answering = body["answering"]
    return ClusterObservation(
        **common,
        rules=rules_of(body["rules"]),
        controller=body["controller"],
        controller_epoch=body["controller_epoch"],
        controller_epoch_before=body["controller_epoch_before"],
        registrations=_registrations(tuple(Registration(**r) for r in body["registrations"])),
        answering=None if answering is None else tuple(answering),
        leading=tuple(body["leading"]),
        claims=tuple(ControllerClaim(**each) for each in body["claims"]),
        session_timeout_ms=body["session_timeout_ms"],
        source=body["source"],
    )


_HEALTH: Final = (
    "place",
    "reason",
    "remedy",
    "broker",
    "topic",
    "partition",
    "since_ms",
    "skew_ms",
)


def health_body(observation: HealthObservation) -> dict[str, Any]:
    return {
        "source": observation.source,
        "problem": observation.problem.value,
        **{name: getattr(observation, name) for name in _HEALTH},
    }


def health_observation(body: dict[str, Any], common: dict[str, Any]) -> HealthObservation:
    return HealthObservation(
        **common,
        source=body["source"],
        problem=_member(ProblemKind, body["problem"], "problem"),
        **{name: body[name] for name in _HEALTH},
    )
