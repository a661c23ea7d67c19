"""Runs the recorded facts about the high watermark through our rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency import truncation, watermark
from tidestaff.consistency.watermark import LocalLog, RemoteReplica
from tidestaff.streaming.conform.replica_fields import (
    error_name,
    offsets,
    rules_of,
    steps_of,
    understanding_all,
)
from tidestaff.streaming.conform.vectors import CannotRunError, Difference, Vector, differences

if TYPE_CHECKING:
    from collections.abc import Mapping


def _leader_advance(vector: Vector) -> list[Difference]:
    given, rules = vector.input, rules_of(vector)
    followers = {
        int(broker): RemoteReplica(
            state["leo"],
            caught_up=state.get("caught_up", True),
            eligible=state.get("eligible", True),
        )
        for broker, state in given["followers"].items()
    }
    maximal = given.get("maximal_isr", given["isr"])
    high_watermark = watermark.advance(
        high_watermark=given["old_hw"],
        log_end_offset=given["leader_leo"],
        followers=followers,
        committed_isr=given["isr"],
        maximal_isr=maximal,
        min_insync_replicas=given.get("min_isr", 1),
        rules=rules,
    )
    return differences(vector.expected, {"hw": high_watermark})


def _after_reelection(vector: Vector) -> list[Difference]:
    given = vector.input
    log = watermark.initial(
        checkpointed_high_watermark=given["hw_before"],
        log_start_offset=given.get("log_start", 0),
        log_end_offset=given["leo"],
    )
    available = watermark.is_latest_offset_available(
        high_watermark=log.high_watermark, leader_epoch_start_offset=log.log_end_offset
    )
    late = "OFFSET_NOT_AVAILABLE until HW >= leader epoch start"
    got = {
        "hw": log.high_watermark,
        "leader_epoch_start": log.log_end_offset,
        "client_list_offsets": "available" if available else late,
    }
    return differences(vector.expected, got)


def _checkpoint(vector: Vector) -> list[Difference]:
    written = {
        partition: watermark.initial(
            checkpointed_high_watermark=high_watermark,
            log_start_offset=0,
            log_end_offset=max(0, high_watermark),
        ).high_watermark
        for partition, high_watermark in vector.input["hws"].items()
    }
    return differences(vector.expected, {"file": written})


def _follower_diverging(vector: Vector) -> list[Difference]:
    given = vector.input
    log = LocalLog(given.get("log_start", 0), given["local_hw"], given["local_leo_before"])
    return differences(vector.expected, offsets(watermark.truncate(log, to=given["truncate_to"])))


def _initial(vector: Vector) -> list[Difference]:
    given = vector.input
    log = watermark.initial(
        checkpointed_high_watermark=given.get("checkpoint_hw"),
        log_start_offset=given.get("log_start", 0),
        log_end_offset=given["leo"],
    )
    return differences(vector.expected, offsets(log))


def _local_log(vector: Vector) -> list[Difference]:
    log = LocalLog()
    found: list[Difference] = []
    for number, step in enumerate(steps_of(vector)):
        before, error = log, truncation.NONE
        try:
            log = _local_log_step(log, step)
        except watermark.BeyondHighWatermarkError as refused:
            error = refused.code
        moved = log.high_watermark != before.high_watermark
        got = {
            **offsets(log),
            "changed_to": log.high_watermark if moved else None,
            "error": error,
        }
        expected = dict(step.get("expect", {}))
        if "error" in expected:
            expected["error"] = error_name(expected["error"])
        found += differences(expected, got, f"steps[{number}]")
    return found


def _local_log_step(log: LocalLog, step: Mapping[str, Any]) -> LocalLog:
    to = step.get("to", 0)
    match step["op"]:
        case "new_log":
            return LocalLog()
        case "append_as_leader" | "append_as_follower" | "append":
            return watermark.append(log, records=step["records"])
        case "maybe_increment":
            return watermark.increment(log, to=to)
        case "update" | "maybe_update_as_follower" | "maybe_update":
            return watermark.follow(log, leader_high_watermark=to)
        case "truncate_to" | "truncate":
            return watermark.truncate(log, to=to)
        case "truncate_fully_and_start_at":
            return watermark.truncate_fully(to=to, log_start_offset=step.get("log_start"))
        case name if "log_start" in name or name == "delete_records":
            return watermark.raise_log_start(log, to=to)
    raise CannotRunError(f"operation {step['op']!r}")


def _truncate_fully(vector: Vector) -> list[Difference]:
    given = vector.input
    log = watermark.truncate_fully(
        to=given["truncate_fully_and_start_at"], log_start_offset=given.get("log_start")
    )
    return differences(vector.expected, offsets(log))


HANDLERS: Final = understanding_all(
    {
        "hw.leader_advance": _leader_advance,
        "hw.after_reelection": _after_reelection,
        "hw.checkpoint": _checkpoint,
        "hw.follower_diverging": _follower_diverging,
        "hw.initial": _initial,
        "hw.local_log": _local_log,
        "hw.truncate_fully": _truncate_fully,
    }
)
