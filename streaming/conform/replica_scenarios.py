"""Runs the recorded facts about two replicas, told in sentences, through our rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidestaff.consistency.versions import rules_for
from tidestaff.streaming.conform.replica_fields import pairs, rules_of, steps_of, understanding_all
from tidestaff.streaming.conform.two_replicas import TwoReplicas
from tidestaff.streaming.conform.vectors import CannotRunError, Difference, Vector, differences


def _replay(vector: Vector) -> TwoReplicas:
    rules = rules_of(vector)
    if vector.input.get("version"):
        rules = rules_for(str(vector.input["version"]))
    return TwoReplicas(
        vector.input["assignment"],
        rules=rules,
        unclean_allowed=bool(vector.input.get("unclean", False)),
    )


def _scenario_epoch_files(vector: Vector) -> list[Difference]:
    replay = _replay(vector)
    found: list[Difference] = []
    for number, step in enumerate(steps_of(vector)):
        replay.run(str(step["do"]))
        if replay.leader is None:
            raise CannotRunError(f"{vector.id}: no leader after {step['do']!r}")
        leader, follower = replay.replicas[replay.leader], replay.replicas[replay.follower]
        got: dict[str, object] = {
            "leader_entries": pairs(leader.lineage),
            "follower_entries": pairs(follower.lineage),
            "leader": replay.leader,
            "leader_epoch": replay.leader_epoch,
        }
        expected = {name: value for name, value in step.items() if name != "do"}
        found += differences(expected, got, f"steps[{number}]")
    return found


def _scenario_final(vector: Vector) -> list[Difference]:
    replay = _replay(vector)
    for step in steps_of(vector):
        replay.run(str(step["do"] if isinstance(step, Mapping) else step))
    logs = [replica.records for replica in replay.replicas.values()]
    leader = replay.replicas[replay.assignment[0] if replay.leader is None else replay.leader]
    lost = replay.written - len({number for _, number in leader.records})
    numbers = [[number for _, number in log] for log in logs]
    got: dict[str, object] = {
        "logs_equal": all(log == logs[0] for log in logs),
        "log_end_offset": len(leader.records),
        "leo": len(leader.records),
        "log_end_offsets": [len(log) for log in logs],
        "records_lost": lost,
        "lost": lost,
        "no_data_lost": lost == 0,
        "data_lost": lost > 0,
        "offsets_monotonic": all(log == sorted(set(log)) for log in numbers),
        "messages_written": replay.written,
    }
    return differences(vector.expected, got)


HANDLERS: Final = understanding_all(
    {
        "scenario.epoch_files": _scenario_epoch_files,
        "scenario.final": _scenario_final,
    }
)
