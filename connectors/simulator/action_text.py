"""An action of the simulator in the words of a scenario: what `scenario_commands.py` reads back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    Action = dict[str, Any]

_VERBS: Final = {
    "power_loss": "power-loss",
    "clean_stop": "stop",
    "session_expiry": "expire-session",
    "controller_failover": "fail-controller",
    "preferred_election": "elect preferred",
    "unclean_election": "elect unclean",
    "change_settings": "set",
    "slow_follower": "slow-fetches",
}


def as_text(action: Action) -> str:
    """An action in the words of a scenario."""
    verb = _VERBS.get(action["do"], action["do"].replace("_", "-"))
    words: list[object] = []
    if verb == "slow-fetches":
        slow = action.get("records")
        return (
            f"usual-fetches {action['broker']}"
            if slow is None
            else _joined(verb, action["broker"], slow)
        )
    if verb == "slow-fetcher-removal":
        removal_ms = action.get("removal_ms", 0)
        return (
            _joined(verb, action["broker"], f"{removal_ms}ms")
            if removal_ms
            else f"usual-fetcher-removal {action['broker']}"
        )
    if "broker" in action and verb != "produce":
        words.append(action["broker"])
    if "partition" in action:
        words.append(TopicPartition(action["topic"], action["partition"]))
    elif "topic" in action:
        words.append(action["topic"])
    words += [action[key] for key in ("source", "target", "offset") if key in action]
    if verb == "produce":
        words += action.get("names") or [action["records"], "records"]
        words += ["to", action["broker"]] if "broker" in action else []
    for name, value in action.get("settings", {}).items():
        words += [name.replace("_", "."), str(value).lower()]
    if "replicas" in action:
        words.append(",".join(map(str, action["replicas"])))
    if "partitions" in action:
        words += ["replicas", *(",".join(map(str, each)) for each in action["partitions"])]
    return _joined(verb, *words)


def _joined(*words: object) -> str:
    return " ".join(map(str, words))
