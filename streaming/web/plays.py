"""Scenarios for learning: played under one version or another, step by step."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from tidestaff.connectors.simulator.presets import PRESETS
from tidestaff.connectors.simulator.scenario import preset_like, read, shipped
from tidestaff.streaming.simulation.performance import Performance
from tidestaff.streaming.simulation.values import drawn_logs


def scenarios() -> list[dict[str, Any]]:
    """What there is; those of the console's story are left out, they are played by the clock."""
    found = []
    for name, path in shipped().items():
        scenario = read(path)
        found.append({"name": name, "title": scenario.title, "version": scenario.preset})
    return found


def versions() -> list[str]:
    return list(PRESETS)


def known(name: str, version: str | None) -> bool:
    return name in shipped() and (version is None or preset_like(version) is not None)


@lru_cache(maxsize=64)
def play(name: str, version: str | None) -> dict[str, Any]:
    """Every step: what was done, the logs after it, the alerts. Always the same for one name."""
    scenario = read(shipped()[name])
    if version is not None:
        scenario = replace(scenario, preset=preset_like(version) or scenario.preset)
    performance = Performance(scenario)
    steps = []
    for played in performance.blocks():
        cluster = performance.cluster
        steps.append(
            {
                "at_ms": played.at_ms,
                "comment": " ".join(played.block.comment.split()),
                "commands": played.block.commands,
                "partitions": [
                    {
                        "partition": str(partition),
                        "leader": _state(cluster, partition).leader,
                        "leader_epoch": _state(cluster, partition).leader_epoch,
                        "isr": list(_state(cluster, partition).isr),
                        "replicas": [
                            {
                                "name": drawn.name,
                                "broker": int(drawn.name.split()[0]),
                                "role": drawn.name.split()[1],
                                "log_start": drawn.log.log_start_offset,
                                "high_watermark": drawn.log.high_watermark,
                                "log_end": drawn.log.log_end_offset,
                                "lineage": [list(each) for each in drawn.log.lineage],
                                "log": drawn.remark.strip(),
                            }
                            for drawn in drawn_logs(cluster, partition)
                        ],
                    }
                    for partition in cluster.mode.partitions()
                ],
                "alerts": [alert.as_value() for alert in played.alerts],
            }
        )
    return {
        "name": name,
        "title": scenario.title,
        "story": scenario.head.comment,
        "version": scenario.preset,
        "steps": steps,
    }


def _state(cluster: Any, partition: Any) -> Any:
    return cluster.mode.partition(partition).state
