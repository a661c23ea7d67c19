"""Runs the recorded facts about the leader epoch cache through our rules.

A handler reads the input, calls the rule, and compares. It decides nothing itself: what is not in
`tidestaff.consistency` is not tested here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency import epochs
from tidestaff.consistency.epochs import EMPTY
from tidestaff.streaming.conform.replica_fields import (
    lineage_of,
    pairs,
    rules_of,
    understanding_all,
)
from tidestaff.streaming.conform.vectors import CannotRunError, Difference, Vector, differences

if TYPE_CHECKING:
    from tidestaff.consistency.model import EpochEntry, Lineage
    from tidestaff.consistency.versions import RuleSet


def _pair(entry: EpochEntry | None) -> list[int] | None:
    return None if entry is None else list(entry)


def _epoch_cache(vector: Vector) -> list[Difference]:
    rules = rules_of(vector)
    lineage = lineage_of(vector.input.get("entries", ()))
    for op in vector.input.get("ops", ()):
        lineage = _cache_op(lineage, op, rules)
    with_epoch = rules.end_offset_answer_has_epoch
    results = [
        _cache_check(lineage, check, rules, with_epoch=with_epoch)
        for check in vector.input.get("checks", ())
    ]
    got = {
        "results": results,
        "file_text": _checkpoint_text(lineage),
        "entries": pairs(lineage),
        "entry_count": len(lineage),
    }
    return differences(vector.expected, got)


def _cache_op(lineage: Lineage, op: list[Any], rules: RuleSet) -> Lineage:
    match op:
        case ["assign", int(epoch), int(start)]:
            return epochs.assign(lineage, epoch, start, generation=rules.epoch_cache)
        case ["truncate_from_end" | "clear_and_flush_latest" | "clear_latest", int(offset)]:
            return epochs.truncate_from_end(lineage, offset)
        case ["truncate_from_start" | "clear_and_flush_earliest" | "clear_earliest", int(offset)]:
            return epochs.truncate_from_start(lineage, offset, generation=rules.epoch_cache)
        case ["clear" | "clear_and_flush"]:
            return EMPTY
        case ["flush" | "reload" | "reopen" | "restart"]:
            return lineage
    raise CannotRunError(f"epoch cache operation {op!r}")


def _cache_check(lineage: Lineage, check: list[Any], rules: RuleSet, *, with_epoch: bool) -> object:
    match check:
        case ["entries"]:
            return pairs(lineage)
        case ["entry_count" | "size"]:
            return len(lineage)
        case ["non_empty"]:
            return bool(lineage)
        case ["latest_epoch"]:
            return epochs.latest_epoch(lineage)
        case ["latest_entry"]:
            return _pair(epochs.latest_entry(lineage))
        case ["earliest_entry"]:
            return _pair(epochs.earliest_entry(lineage))
        case ["previous_epoch"]:
            return epochs.previous_epoch(lineage)
        case ["end_offset_for", int(epoch), int(log_end)]:
            end = epochs.end_offset_for(lineage, epoch, log_end_offset=log_end, rules=rules)
            return [end.epoch if with_epoch else None, end.end_offset]
        case [str(name), int(argument)]:
            return _cache_lookup(lineage, name, argument)
    raise CannotRunError(f"epoch cache check {check!r}")


def _cache_lookup(lineage: Lineage, name: str, argument: int) -> object:
    match name:
        case "previous_epoch":
            before = epochs.previous_entry(lineage, argument)
            return None if before is None else before.epoch
        case "previous_entry":
            return _pair(epochs.previous_entry(lineage, argument))
        case "next_epoch":
            return epochs.next_epoch(lineage, argument)
        case "epoch_entry" | "entry":
            return _pair(epochs.entry_of(lineage, argument))
        case "epoch_for_offset":
            return epochs.epoch_for_offset(lineage, argument)
    raise CannotRunError(f"epoch cache check {name!r}")


def _checkpoint_text(lineage: Lineage) -> str:
    lines = ["0", str(len(lineage)), *(f"{epoch} {start}" for epoch, start in lineage)]
    return "\n".join(lines) + "\n"


def _epoch_cache_of_log(vector: Vector) -> list[Difference]:
    given = vector.input
    lineage = lineage_of(given["entries"])
    end = given.get("log_end_offset")
    known = False
    for name in ("truncate_to", "recovered_log_end_offset"):
        if name in given:
            cut = given[name] if end is None else min(given[name], end)
            lineage, known = epochs.truncate_from_end(lineage, cut), True
    for name in ("new_log_start_offset", "log_start_offset"):
        if name in given:
            lineage, known = epochs.truncate_from_start(lineage, given[name]), True
    if "truncate_fully_and_start_at" in given:
        lineage, known = EMPTY, True
    if not known:
        raise CannotRunError(f"{vector.id}: nothing is done to the log")
    got = {"entries": pairs(lineage), "entry_count": len(lineage)}
    return differences(vector.expected, got)


HANDLERS: Final = understanding_all(
    {
        "epoch_cache": _epoch_cache,
        "epoch_cache_v0_11": _epoch_cache,
        "epoch_cache.log": _epoch_cache_of_log,
    }
)
