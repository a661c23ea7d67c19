"""How facts about the KRaft controller (`kraft.*`) write partitions, records and clusters.

Vectors say which fields they mean; what they leave out is a default of Kafka's own tests: broker
epochs are 100 + id, every broker named is registered and active, the software is 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from tidestaff.consistency.kraft import (
    Brokers,
    KraftElection,
    KraftPartition,
    PartitionChange,
    apply_change,
)
from tidestaff.consistency.kraft_alter_partition import IsrMember
from tidestaff.consistency.kraft_image import ClusterImage, TopicSettings
from tidestaff.consistency.model import (
    NO_LEADER,
    UNKNOWN_BROKER_EPOCH,
    BrokerId,
    RecoveryState,
    Registration,
)
from tidestaff.consistency.versions import Mode, ProtocolVersion, RuleSet, rules_for
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Vector,
    as_set,
    differences,
)

_NEWEST: Final = "4.3"
_UNORDERED: Final = ("elr", "last_known_elr")
_UNTIL: Final = re.compile(r"(?:-|<=|up to|until)\s*(\d+\.\d+(?:\.\d+)?)")
TOPIC: Final = "topic"


def _software(vector: Vector) -> str:
    """The newest version the expectation holds for: 4.3 unless the range ends before it."""
    ends = _UNTIL.findall(vector.versions)
    return ends[-1] if ends else _NEWEST


def rules_of(vector: Vector) -> RuleSet:
    """A vector sets metadata.version and ELR freely: they go into the rule set one by one."""
    given = vector.input
    rules = rules_for(_software(vector), Mode.KRAFT, elr=False)
    rules = replace(rules, elr=bool(given.get("elr_enabled", False)))
    if given.get("metadata_version") is None:
        return rules
    speaks = ProtocolVersion.parse(given["metadata_version"])
    shrink_bumps = speaks < ProtocolVersion.parse("3.6-IV0")
    return replace(rules, protocol=speaks, isr_shrink_bumps_epoch=shrink_bumps)


def need(given: Mapping[str, Any], key: str) -> Any:
    if key not in given:
        raise CannotRunError(f"the vector has no {key}; it has {sorted(given)}")
    return given[key]


def brokers_of(value: Iterable[int] | None) -> Brokers | None:
    return None if value is None else tuple(value)


def recovery_of(value: str | int | None) -> RecoveryState | None:
    if value is None:
        return None
    return RecoveryState(value) if isinstance(value, int) else RecoveryState[value]


def partition_of(given: Mapping[str, Any]) -> KraftPartition:
    unknown = set(given) - set(KraftPartition._fields) - {"directories"}
    if unknown:
        raise CannotRunError(f"a partition with {sorted(unknown)} is not understood")
    return KraftPartition(
        replicas=tuple(need(given, "replicas")),
        isr=tuple(need(given, "isr")),
        elr=tuple(given.get("elr") or ()),
        last_known_elr=tuple(given.get("last_known_elr") or ()),
        leader=given.get("leader", NO_LEADER),
        removing=tuple(given.get("removing") or ()),
        adding=tuple(given.get("adding") or ()),
        recovery=recovery_of(given.get("recovery")) or RecoveryState.RECOVERED,
        leader_epoch=given.get("leader_epoch", 0),
        partition_epoch=given.get("partition_epoch", 0),
    )


def election_of(name: str | None) -> KraftElection:
    try:
        return KraftElection[name or "ONLINE"]
    except KeyError as unknown:
        raise CannotRunError(f"election {name} is not understood") from unknown


def isr_member(member: int | Mapping[str, Any]) -> IsrMember:
    if isinstance(member, Mapping):
        return IsrMember(need(member, "id"), member.get("epoch", UNKNOWN_BROKER_EPOCH))
    return IsrMember(member)


def registration_of(broker: BrokerId, given: Mapping[str, Any]) -> Registration:
    return Registration(
        broker,
        given.get("epoch", 100 + broker),
        fenced=bool(given.get("fenced", False)),
        shutting_down=bool(given.get("in_controlled_shutdown", False)),
    )


def image_of(vector: Vector, brokers: Iterable[BrokerId]) -> ClusterImage:
    """A cluster of the brokers the vector describes, or else of those it names, all active."""
    given = vector.input
    described = given.get("brokers")
    if isinstance(described, Mapping):
        known = {int(b): registration_of(int(b), about) for b, about in described.items()}
    else:
        known = {b: registration_of(b, {}) for b in (*brokers, *(described or ()))}
    out, going = given.get("fenced") or (), given.get("in_controlled_shutdown") or ()
    for broker in (*out, *going):
        known[broker] = known.get(broker, registration_of(broker, {}))._replace(
            fenced=broker in out, shutting_down=broker in going
        )
    settings = TopicSettings(given.get("min_isr", 1), bool(given.get("unclean_enabled", False)))
    return ClusterImage(rules_of(vector), known, defaults=settings)


def plain(value: KraftPartition | PartitionChange) -> dict[str, Any]:
    """Fields that are set, as a vector writes them."""
    shown = {key: item for key, item in value._asdict().items() if item is not None}
    for key, item in shown.items():
        if isinstance(item, RecoveryState):
            shown[key] = item.name
        elif isinstance(item, tuple):
            shown[key] = list(item)
    return shown


def loose(state: Mapping[str, Any] | None, *names: str) -> dict[str, Any] | None:
    """The same state with the lists whose order does not count put in order."""
    if state is None:
        return None
    return {k: as_set(v) if k in (*_UNORDERED, *names) else v for k, v in state.items()}


def error_name(text: str) -> str:
    """`STALE_BROKER_EPOCH (exception)` says how the error is raised; the name is what counts."""
    return text.split(maxsplit=1)[0]


def compare(vector: Vector, got: Mapping[str, Any]) -> list[Difference]:
    missing = [key for key in vector.expected if key not in got]
    if missing:
        raise CannotRunError(f"{vector.rule} does not know what {missing} would be")
    return differences(vector.expected, got)


def _compare_record(
    expected: Mapping[str, Any] | None, got: PartitionChange | None
) -> list[Difference]:
    """A record that sets one field more than it should is as wrong as one that sets one less."""
    wanted = loose(expected)
    if wanted is not None:
        wanted.pop("directories", None)
    made = None if got is None else loose(plain(got))
    return [] if wanted == made else [Difference("record", wanted, made)]


def compare_change(
    vector: Vector, before: KraftPartition, change: PartitionChange | None
) -> list[Difference]:
    expected = vector.expected
    if not {"record", "partition_after"} & set(expected):
        raise CannotRunError(f"expected {sorted(expected)} is not understood")
    found: list[Difference] = []
    if "record" in expected:
        found += _compare_record(expected["record"], change)
    if "partition_after" in expected:
        after = before if change is None else apply_change(before, change)
        found += differences(loose(expected["partition_after"]), loose(plain(after)), "after")
    return found
