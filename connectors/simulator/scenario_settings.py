"""The settings a scenario may change, by Kafka's names, and the values that each of them takes."""

from __future__ import annotations

import re
from typing import Final

from tidestaff.connectors.simulator.settings import Settings

ALIASES: Final = {
    "replica.high.watermark.checkpoint.interval.ms": "high_watermark_checkpoint_interval_ms",
    "zookeeper.session.timeout.ms": "session_timeout_ms",
    "broker.session.timeout.ms": "session_timeout_ms",
}
SETTINGS: Final = {
    **{name.replace("_", "."): name for name in Settings.__slots__ if name != "delay_ms"},
    **ALIASES,
}
TOPIC_SETTINGS: Final = ("min.insync.replicas", "unclean.leader.election.enable")
MOST_DIGITS: Final = 18
_MOST: Final = 999_999_999
# After every command time passes until these are over; more is a slip, and would seem to hang.
_LONGEST: Final = {"controller_pause_ms": 10_000, "start_ms": 10_000}
# With more the brokers may never come up. A block of the story may lose every message.
MOST_LOST_AT_THE_START: Final = 0.5
_FROM_ZERO: Final = frozenset(
    {
        *("replica_lag_max_messages", "leader_imbalance_per_broker_percentage"),
        *("controller_pause_ms", "start_ms"),
    }
)
_FRACTION: Final = re.compile(r"[0-9]*\.?[0-9]{1,18}\Z")


def whole_number(word: str) -> int | None:
    """ASCII digits and not too many: `²` is a digit for Python, too, and no number."""
    digits = word.isascii() and word.isdigit() and len(word) <= MOST_DIGITS
    return int(word) if digits else None


def is_switch(name: str) -> bool:
    return SETTINGS[name].endswith("_enable")


def expected_value(name: str) -> str:
    """In the words of an error."""
    if SETTINGS[name] == "loss":
        return f"{name} as a fraction from 0 to 1, like 0.1"
    return f"{name} as a number from {_least(name)} to {_most(name)}"


def value_of(name: str, word: str) -> int | float | None:
    """What the word means for this setting, which is no switch; None where it is out of range."""
    if SETTINGS[name] == "loss":
        fraction = float(word) if _FRACTION.match(word) else -1.0
        return fraction if 0 <= fraction <= 1 else None
    number = whole_number(word)
    return number if number is not None and _least(name) <= number <= _most(name) else None


def _least(name: str) -> int:
    return 0 if SETTINGS[name] in _FROM_ZERO else 1


def _most(name: str) -> int:
    return _LONGEST.get(SETTINGS[name], _MOST)
