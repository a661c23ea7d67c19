"""Runs the recorded facts about the ISR, and about followers as their leader sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency import isr
from tidestaff.consistency.isr import FollowerState
from tidestaff.consistency.model import UNDEFINED_OFFSET, UNKNOWN_BROKER_EPOCH
from tidestaff.streaming.conform.replica_fields import rules_of, steps_of, understanding_all
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Vector,
    as_set,
    differences,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidestaff.consistency.versions import RuleSet


def _follower_state(given: Mapping[str, Any]) -> FollowerState:
    return FollowerState(
        log_start_offset=given.get("log_start", UNDEFINED_OFFSET),
        log_end_offset=given.get("leo", UNDEFINED_OFFSET),
        last_caught_up_ms=given.get("last_caught_up", 0),
        last_fetch_leader_log_end_offset=given.get("last_fetch_leader_leo", 0),
        last_fetch_ms=given.get("last_fetch_time", 0),
    )


def state_fields(state: FollowerState) -> dict[str, object]:
    return {
        "log_start": state.log_start_offset,
        "leo": state.log_end_offset,
        "last_caught_up": state.last_caught_up_ms,
        "last_fetch_leader_leo": state.last_fetch_leader_log_end_offset,
        "last_fetch_time": state.last_fetch_ms,
        "broker_epoch": state.broker_epoch,
    }


def fetched(state: FollowerState, step: Mapping[str, Any], rules: RuleSet) -> FollowerState:
    return isr.record_fetch(
        state,
        fetch_offset=step["fetch_offset"],
        follower_log_start_offset=step.get("follower_start", 0),
        leader_log_end_offset=step["leader_leo"],
        now_ms=step["t"],
        rules=rules,
        broker_epoch=step.get("broker_epoch", UNKNOWN_BROKER_EPOCH),
    )


def _replica_state(vector: Vector) -> list[Difference]:
    rules = rules_of(vector)
    state = _follower_state(vector.input.get("initial", {}))
    found: list[Difference] = []
    for number, step in enumerate(steps_of(vector)):
        got: object = None
        match step["op"]:
            case "noop":
                pass
            case "fetch":
                state = fetched(state, step, rules)
            case "reset":
                state = isr.reset_follower(
                    state,
                    leader_log_end_offset=step["leader_leo"],
                    new_leader=step["new_leader"],
                    in_sync=step["in_sync"],
                    now_ms=step["t"],
                )
            case "caught_up":
                got = isr.is_caught_up(
                    state,
                    leader_log_end_offset=step["leader_leo"],
                    now_ms=step["t"],
                    max_lag_ms=step.get("max_lag_ms", vector.input.get("max_lag_ms", 30_000)),
                    rules=rules,
                )
            case other:
                raise CannotRunError(f"{vector.id}: operation {other!r}")
        if "expect" in step:
            shown = state_fields(state) if got is None else got
            found += differences(step["expect"], shown, f"steps[{number}]")
    return found


def _replica_broker_epoch(vector: Vector) -> list[Difference]:
    results = []
    for fetch in vector.input["fetches"]:
        stale = isr.is_fetch_stale(
            fetch_broker_epoch=fetch["broker_epoch"],
            known_broker_epoch=fetch.get(
                "cached_broker_epoch", vector.input.get("cached_broker_epoch")
            ),
            rules=rules_of(vector),
        )
        results.append("NotLeaderOrFollowerException" if stale else "accepted")
    return differences(vector.expected, {"results": results})


def _out_of_sync(vector: Vector) -> list[Difference]:
    given, rules = vector.input, rules_of(vector)
    members = [member for member in given["isr"] if member != given["leader"]]
    initial = _follower_state(given.get("initial_follower", {}))
    followers = dict.fromkeys(members, initial)
    leader_end = given["leader_leo"]
    found: list[Difference] = []
    for number, step in enumerate(steps_of(vector)):
        leader_end = step.get("leader_leo", leader_end)
        if step["op"] == "fetch":
            for member in [step["replica"]] if "replica" in step else members:
                followers[member] = fetched(
                    followers[member], {**step, "leader_leo": leader_end}, rules
                )
        elif step["op"] == "out_of_sync":
            out = isr.out_of_sync(
                isr=given["isr"],
                leader=given["leader"],
                followers=followers,
                leader_log_end_offset=leader_end,
                now_ms=step["t"],
                max_lag_ms=given["max_lag_ms"],
                max_lag_messages=given.get("max_lag_messages", 4000),
                rules=rules,
            )
            found += differences(as_set(step["expect"]), as_set(out), f"steps[{number}]")
        else:
            raise CannotRunError(f"{vector.id}: operation {step['op']!r}")
    return found


def _isr_sizes(vector: Vector) -> list[Difference]:
    given, rules = vector.input, rules_of(vector)
    count, size = len(given["replicas"]), len(given["isr"])
    got: dict[str, object] = {
        "under_replicated": isr.is_under_replicated(replica_count=count, isr_size=size)
    }
    if "min_isr" in given:
        for name, rule in (
            ("under_min_isr", isr.is_under_min_isr),
            ("at_min_isr", isr.is_at_min_isr),
        ):
            got[name] = rule(
                isr_size=size,
                min_insync_replicas=given["min_isr"],
                replica_count=count,
                rules=rules,
            )
    return differences(vector.expected, got)


HANDLERS: Final = understanding_all(
    {
        "replica_state": _replica_state,
        "replica_state.broker_epoch": _replica_broker_epoch,
        "isr.out_of_sync": _out_of_sync,
        "isr.under_replicated": _isr_sizes,
        "isr.under_min_isr": _isr_sizes,
        "isr.at_min_isr": _isr_sizes,
    }
)
