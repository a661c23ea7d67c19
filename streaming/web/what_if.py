"""What a stop of brokers would do, for every partition of a cluster.

Partitions in the same constellation (leader, ISR, assignment, who is up, settings) get the same
next leader: so one of each is asked, and the logs are looked at one by one only where they matter:
where the next leader is not in sync, or something is found already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.bodies import rules_of
from tidestaff.consistency.forecast import forecast
from tidestaff.consistency.model import (
    Assignment,
    EpochEntry,
    PartitionObservation,
    PartitionSettings,
    PartitionState,
    RecoveryState,
    Registration,
    ReplicaReading,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidestaff.consistency.forecast import PartitionForecast
    from tidestaff.streaming.view.reading import StateReader

LOOKED_AT_A_SHAPE: Final = 50
LOOKED_AT: Final = 2_000
SHOWN: Final = 100
_OUTCOMES: Final = ("loses", "offline", "unclean", "under_min_isr", "cuts", "moves", "unchanged")


def what_if(
    reader: StateReader, cluster: str, stopping: Collection[int], *, controlled: bool
) -> dict[str, Any]:
    """Counts by outcome, and the partitions that fare worst."""
    counts = dict.fromkeys(_OUTCOMES, 0)
    rows: list[dict[str, Any]] = []
    looked_at = asked = 0
    controller = next((d["controller"] for d in reader.clusters() if d["cluster"] == cluster), None)
    for number, shape, count in reader.shapes(cluster):
        if not set(stopping) & set(shape["assignment"][0]):
            counts["unchanged"] += count
            continue
        asked += count
        some = list(reader.of_shape(cluster, number, LOOKED_AT_A_SHAPE))
        some = [{**each, "controller": controller} for each in some]
        first = told(some[0], stopping, controlled=controlled)
        matters = first["unclean"] or any("violating" in each["flags"] for each in some)
        if matters and looked_at < LOOKED_AT:
            found = [told(each, stopping, controlled=controlled) for each in some]
            looked_at += len(found)
        else:
            found = [first]
        for each in found:
            counts[each["outcome"]] += 1
        # What was not looked at one by one fares as the first of its kind.
        counts[first["outcome"]] += count - len(found)
        rows += [each for each in found if each["outcome"] != "moves"]
    rows.sort(key=lambda each: (_OUTCOMES.index(each["outcome"]), each["topic"], each["partition"]))
    return {
        "cluster": cluster,
        "stopping": sorted(stopping),
        "controlled": controlled,
        "partitions": asked + counts["unchanged"],
        "asked": asked,
        "counts": counts,
        "safe": not any(counts[name] for name in ("loses", "offline", "unclean")),
        "rows": rows[:SHOWN],
        "rows_left_out": max(0, len(rows) - SHOWN),
    }


def told(shown: dict[str, Any], stopping: Collection[int], *, controlled: bool) -> dict[str, Any]:
    found = forecast(observation_of(shown), stopping=stopping, controlled=controlled)
    return {
        "topic": found.topic,
        "partition": found.partition,
        "outcome": outcome_of(found),
        "leader_before": shown["leader"],
        "leader": found.leader,
        "isr": list(found.isr),
        "unclean": found.unclean,
        "offline": found.offline,
        "under_min_isr": found.under_min_isr,
        "lost": None if found.lost is None else list(found.lost),
        "cuts": [
            {
                "broker": cut.broker,
                "offsets": list(cut.offsets),
                "on_return": cut.on_return,
                "because": cut.because,
            }
            for cut in found.cuts
        ],
        "missing": list(found.missing),
    }


def outcome_of(found: PartitionForecast) -> str:
    """The worst that happens, in one word."""
    tests = {
        "loses": found.lost is not None,
        "offline": found.offline,
        "unclean": found.unclean,
        "under_min_isr": found.under_min_isr,
        "cuts": bool(found.cuts),
    }
    return next((name for name, is_so in tests.items() if is_so), "moves")


def observation_of(shown: dict[str, Any]) -> PartitionObservation:
    """The partition of the state store in the words of the rules."""
    return PartitionObservation(
        cluster=shown["cluster"],
        topic=shown["topic"],
        partition=shown["partition"],
        observed_at_ms=shown["at_ms"],
        rules=rules_of(shown["rules"]),
        state=PartitionState(
            shown["leader"],
            shown["leader_epoch"],
            tuple(shown["isr"]),
            partition_epoch=shown["partition_epoch"],
            controller_epoch=shown["controller_epoch"],
            recovery=RecoveryState(int(shown["recovering"])),
            elr=tuple(shown["elr"]),
            last_known_elr=tuple(shown["last_known_elr"]),
        ),
        assignment=Assignment(
            tuple(shown["assignment"]), tuple(shown["adding"]), tuple(shown["removing"])
        ),
        live=tuple(
            Registration(broker, fenced=fenced, shutting_down=shutting_down)
            for broker, fenced, shutting_down in shown["registrations"]
        ),
        settings=PartitionSettings(
            unclean_leader_election_enable=shown["unclean_election_allowed"],
            min_insync_replicas=shown["min_insync_replicas"],
        ),
        replicas=tuple(
            ReplicaReading(
                each["broker"],
                each["log_start"],
                each["high_watermark"],
                each["log_end"],
                lineage=None
                if each["lineage"] is None
                else tuple(EpochEntry(epoch, start) for epoch, start in each["lineage"]),
            )
            for each in shown["replicas"]
        ),
        topic_id=shown["topic_id"],
        controller=shown["controller"],
    )
