"""Runs the recorded facts about what a leader answers, and refuses, through our rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency import truncation
from tidestaff.consistency.truncation import ReplicaLog
from tidestaff.streaming.conform.replica_fields import (
    compare,
    lineage_of,
    rules_of,
    understanding_all,
)
from tidestaff.streaming.conform.vectors import CannotRunError, Difference, Vector

if TYPE_CHECKING:
    from collections.abc import Mapping


def _diverging_epoch(vector: Vector) -> list[Difference]:
    given = vector.input
    leader = ReplicaLog(
        given.get("log_start_offset", 0),
        given.get("high_watermark", 0),
        given["log_end_offset"],
        lineage_of(given["leader_epoch_entries"]),
    )
    answer = truncation.answer_fetch(
        leader=leader,
        fetch_offset=given["fetch_offset"],
        last_fetched_epoch=given.get("last_fetched_epoch"),
        rules=rules_of(vector),
    )
    diverging = None if answer.diverging is None else answer.diverging._asdict()
    return compare(vector, {"error": answer.error, "diverging": diverging})


def _end_offset_for_epoch(vector: Vector) -> list[Difference]:
    given = vector.input
    error = _epoch_check(given, leads=bool(given.get("is_leader", True)))
    answer = truncation.answer_end_offset(
        lineage=lineage_of(given.get("leader_epoch_entries", ())),
        log_end_offset=given.get("log_end_offset", 0),
        requested_epoch=given["requested_epoch"],
        rules=rules_of(vector),
        error=error,
    )
    return compare(vector, answer._asdict())


def _broker_epoch_check(vector: Vector) -> list[Difference]:
    role = vector.input.get("role")
    if role not in ("leader", "follower"):
        raise CannotRunError(f"{vector.id}: role {role!r}")
    return compare(vector, {"error": _epoch_check(vector.input, leads=role == "leader")})


def _epoch_check(given: Mapping[str, Any], *, leads: bool) -> str:
    return truncation.check_leader_epoch(
        local_leader_epoch=given.get("local_leader_epoch", given.get("leader_epoch", 0)),
        current_leader_epoch=given.get("request_current_leader_epoch"),
        leads=leads,
        leader_required=bool(given.get("only_leader", True)),
        partition_known=bool(given.get("partition_known", True)),
    )


def _follower_check(vector: Vector) -> list[Difference]:
    given = vector.input
    error = truncation.check_follower_fetch(
        assignment=given["replicas"],
        follower=given["fetch_from"],
        local_leader_epoch=given["local_leader_epoch"],
        current_leader_epoch=given.get("leader_epoch_in_request"),
    )
    return compare(vector, {"error": error})


HANDLERS: Final = understanding_all(
    {
        "leader.diverging_epoch": _diverging_epoch,
        "leader.end_offset_for_epoch": _end_offset_for_epoch,
        "leader.end_offset_for_epoch_error": _end_offset_for_epoch,
        "broker.epoch_check": _broker_epoch_check,
        "leader.follower_check": _follower_check,
    }
)
