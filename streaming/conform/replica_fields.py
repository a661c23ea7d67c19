"""How facts about replicas write versions, lineages, errors and offsets.

The rule set is that of the Kafka version whose test (or jar) the fact was read from.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency import truncation
from tidestaff.consistency.errors import ConsistencyError
from tidestaff.consistency.model import EpochEntry, Lineage
from tidestaff.consistency.versions import Mode, RuleSet, rules_for
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Handler,
    Vector,
    differences,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidestaff.consistency.watermark import LocalLog

NEWEST: Final = "4.3"
_OLD_NAMES: Final = {"NOT_LEADER_FOR_PARTITION": truncation.NOT_LEADER_OR_FOLLOWER}


def rules_of(vector: Vector) -> RuleSet:
    found = re.search(r"\b\d+\.\d+(?:\.\d+)*\b", vector.source)
    version = found[0] if found else NEWEST
    kraft = int(version.split(".")[0]) >= 4 or "kraft" in vector.versions.lower()
    return rules_for(version, Mode.KRAFT if kraft else Mode.ZOOKEEPER)


def lineage_of(entries: Iterable[Iterable[int]]) -> Lineage:
    return tuple(EpochEntry(*entry) for entry in entries)


def pairs(lineage: Lineage) -> list[list[int]]:
    return [list(entry) for entry in lineage]


def error_name(name: object) -> str:
    """OffsetOutOfRangeException, OFFSET_OUT_OF_RANGE and old names are one error."""
    text = re.sub(r"Exception$", "", str(name or truncation.NONE))
    if not text.isupper():
        text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).upper()
    return _OLD_NAMES.get(text, text)


def compare(vector: Vector, got: Mapping[str, object]) -> list[Difference]:
    expected = dict(vector.expected)
    if "error" in expected:
        expected["error"] = error_name(expected["error"])
    return differences(expected, got)


def steps_of(vector: Vector) -> list[Mapping[str, Any]]:
    steps = vector.input.get("steps")
    if not isinstance(steps, list):
        raise CannotRunError(f"{vector.id}: no list of steps")
    return steps


def offsets(log: LocalLog) -> dict[str, object]:
    return {
        "log_start": log.log_start_offset,
        "log_start_offset": log.log_start_offset,
        "hw": log.high_watermark,
        "high_watermark": log.high_watermark,
        "leo": log.log_end_offset,
        "log_end_offset": log.log_end_offset,
    }


def understanding(handler: Handler) -> Handler:
    """An input of another form than the handler reads is "cannot run", no crash of the runner."""

    @wraps(handler)
    def run(vector: Vector) -> list[Difference]:
        try:
            return handler(vector)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise CannotRunError(f"{vector.id}: {type(error).__name__}: {error}") from error
        except ConsistencyError as error:
            raise CannotRunError(f"{vector.id}: {error}") from error

    return run


def understanding_all(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """A table of handlers, each of which says "cannot run" of what it does not understand."""
    return {rule: understanding(handler) for rule, handler in handlers.items()}
