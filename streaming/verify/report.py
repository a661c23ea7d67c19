"""What a verification found, for people and for machines."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.comparison_verdict import Outcome
from tidestaff.streaming.commands.exits import Exit
from tidestaff.streaming.commands.layout import Paint, counted, labelled, paragraph, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.consistency.batches import BatchMark
    from tidestaff.consistency.comparison_verdict import Difference, Verdict
    from tidestaff.streaming.verify.copies import Traffic
    from tidestaff.streaming.verify.running import Result

_STYLES: Final = {
    Outcome.EQUAL: "green",
    Outcome.BEHIND: "yellow",
    Outcome.DIVERGED: "red",
    Outcome.CORRUPT: "red",
    Outcome.NOT_COMPARABLE: "yellow",
}
_MOST_ROWS: Final = 60
_MOST_DIFFERENCES: Final = 5


def exit_code(results: Sequence[Result]) -> Exit:
    """Critical where copies differ; could not tell where some could not be compared."""
    outcomes = {each.verdict.outcome for each in results}
    if outcomes & {Outcome.DIVERGED, Outcome.CORRUPT}:
        return Exit.CRITICAL
    unread = any(each.unread or each.verdict.unread for each in results)
    if not results or unread or Outcome.NOT_COMPARABLE in outcomes:
        return Exit.UNKNOWN
    return Exit.WARNING if Outcome.BEHIND in outcomes else Exit.OK


def headline(results: Sequence[Result], *, interrupted: bool = False) -> str:
    """The verdict in one line: what was found, and that nothing was found where it was not."""
    counts = Counter(each.verdict.outcome for each in results)
    told = [f"{counts[o]} {o.value}" for o in Outcome if counts[o]]
    unread = sum(bool(each.unread or each.verdict.unread) for each in results)
    more = f"; of {unread} a copy could not be read" if unread else ""
    none = sum(map(_nothing_committed, results))
    more += f"; of {none} nothing is committed, so nothing was compared" if none else ""
    began = "interrupted: " if interrupted else ""
    how = " by lineage" if results and all(each.quick for each in results) else ""
    partitions = counted(len(results), "partition")
    return f"{began}{partitions}{how}: {', '.join(told) or 'none'}{more}"


def text(results: Sequence[Result], paint: Paint, *, everything: bool = False) -> list[str]:
    """What is wrong first; equal partitions are counted unless everything is asked for."""
    shown = sorted(
        (r for r in results if everything or _is_told(r)),
        key=lambda r: (list(_STYLES).index(r.verdict.outcome) in (0,), r.partition),
    )
    lines: list[str] = []
    if shown:
        rows = [
            (str(r.partition), _copies(r), r.verdict.outcome.value, _short(r))
            for r in shown[:_MOST_ROWS]
        ]
        lines += table(("PARTITION", "COPIES", "VERDICT", "WHERE"), rows)
        if len(shown) > _MOST_ROWS:
            lines.append(f"... and {len(shown) - _MOST_ROWS} more; --json has them all")
    for result in shown[:_MOST_ROWS]:
        if result.verdict.differences:
            lines += ["", *_details(result, paint)]
    return lines


def _is_told(result: Result) -> bool:
    odd = result.verdict.outcome is not Outcome.EQUAL or bool(result.unread)
    return odd or _nothing_committed(result)


def _nothing_committed(result: Result) -> bool:
    """Records are there, and nobody has promised any of them."""
    return not result.verdict.compared and not result.verdict.why and bool(result.verdict.above)


def _copies(result: Result) -> str:
    return ",".join(f"{b}*" if b == result.leader else str(b) for b in result.brokers) or "none"


def _short(result: Result) -> str:
    verdict = result.verdict
    away = _away({**dict(result.unread), **dict(verdict.unread)})
    rotten = [f"broker {c.broker} at offset {c.offset}: {c.why}" for c in sorted(verdict.corrupt)]
    if verdict.why:
        return "; ".join([verdict.why, *rotten, *away])
    epoch = "" if verdict.epoch is None else f" (epoch {verdict.epoch})"
    parts = []
    if verdict.differences:
        first = verdict.differences[0]
        wrong = ", ".join(map(str, first.minority))
        who = f"broker {wrong} is wrong: {first.why}" if wrong else first.why
        parts.append(f"at offset {first.offsets.start}: {who}")
    parts += rotten
    if not parts:
        parts.append(f"equal up to offset {verdict.equal_up_to}{epoch}")
    parts += [
        f"broker {b.broker} ends at {b.end}, {b.committed - b.end} behind" for b in verdict.behind
    ]
    parts += [f"{u.offsets} not compared: {u.why}" for u in verdict.uncompared]
    parts += [
        f"broker {a.broker} not compared: it has no committed offset in common, only {a.offsets}"
        for a in verdict.apart
    ]
    return "; ".join([*parts, *_above(verdict), *away])


def _above(verdict: Verdict) -> list[str]:
    count = sum(each.offsets.end - each.offsets.start for each in verdict.above)
    brokers = ", ".join(str(each.broker) for each in sorted(verdict.above))
    who = f"broker{'s' * (len(verdict.above) > 1)} {brokers}"
    told = f"{counted(count, 'offset')} above the high watermark not compared ({who})"
    return [told] if count else []


def _away(unread: Mapping[int, str]) -> list[str]:
    """Brokers that could not be read for one reason together."""
    brokers: dict[str, list[int]] = {}
    for broker, why in sorted(unread.items()):
        brokers.setdefault(why, []).append(broker)
    return [
        f"broker{'s' * (len(each) > 1)} {', '.join(map(str, each))} not read: {why}"
        for why, each in brokers.items()
    ]


def _details(result: Result, paint: Paint) -> list[str]:
    verdict = result.verdict
    lines = [paint(f"{result.partition}: {verdict.outcome.value}", _STYLES[verdict.outcome])]
    for difference in verdict.differences[:_MOST_DIFFERENCES]:
        how = "" if verdict.complete else "at least "
        records, batches = difference.records, difference.batches
        size = f"{how}{counted(records, 'record')} in {counted(batches, 'batch', 'batches')}"
        if not difference.batches:
            size = "by lineage; without --quick the batches are compared"
        lines += paragraph(f"offsets {difference.offsets}: {size}", indent=2)
        lines += labelled(
            [(f"broker {b}", _held(mark, difference)) for b, mark in _in_order(difference)],
            indent=4,
        )
        wrong = ", ".join(map(str, difference.minority)) or "nobody can tell"
        lines += labelled([("wrong", f"{wrong} ({difference.why})")], indent=4)
    if len(verdict.differences) > _MOST_DIFFERENCES:
        lines.append(f"  ... and {len(verdict.differences) - _MOST_DIFFERENCES} more ranges")
    return lines


def _in_order(difference: Difference) -> list[tuple[int, BatchMark | None]]:
    return sorted(difference.held.items(), key=lambda each: each[0])


def _held(mark: BatchMark | None, difference: Difference) -> str:
    if mark is None:
        # Of the first of the batches: further ones may be there.
        last = max((m.last_offset for m in difference.held.values() if m is not None), default=None)
        return f"no batch that ends at offset {last}"
    if mark.crc == 0 and mark.records is None:
        return f"epoch {mark.leader_epoch}"
    epoch = "" if mark.leader_epoch is None else f"epoch {mark.leader_epoch}, "
    rotten = ", DOES NOT MATCH ITS BYTES" if mark.intact is False else ""
    time = "" if mark.max_timestamp is None else f", newest record at {_time(mark.max_timestamp)}"
    count = "a compressed set" if mark.records is None else counted(mark.records, "record")
    return (
        f"offsets {mark.first_offset} to {mark.last_offset}, {epoch}{count}, "
        f"checksum {mark.crc:08x}{rotten}{time}"
    )


def _time(ms: int) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415 - only where there is something to show

    try:
        return datetime.fromtimestamp(ms / 1_000, tz=UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def value_of(result: Result) -> dict[str, Any]:
    """One partition as JSON."""
    verdict = result.verdict
    return {
        "topic": result.partition.topic,
        "partition": result.partition.partition,
        "verdict": verdict.outcome.value,
        "by": "lineage" if result.quick else "contents",
        "copies": list(result.brokers),
        "leader": result.leader,
        "equal_up_to": verdict.equal_up_to,
        "epoch": verdict.epoch,
        "differences": [_difference_value(each) for each in verdict.differences],
        "corrupt": [each._asdict() for each in verdict.corrupt],
        "behind": [
            {"broker": each.broker, "ends_at": each.end, "committed": each.committed}
            for each in verdict.behind
        ],
        "not_compared": [
            {"start": u.offsets.start, "end": u.offsets.end, "why": u.why, "batches": u.batches}
            for u in verdict.uncompared
        ],
        "apart": [
            {"broker": a.broker, "start": a.offsets.start, "end": a.offsets.end}
            for a in verdict.apart
        ],
        "above_watermark": [
            {"broker": a.broker, "start": a.offsets.start, "end": a.offsets.end}
            for a in verdict.above
        ],
        "unread": {str(b): why for b, why in (*result.unread, *verdict.unread)},
        "why": verdict.why,
        "complete": verdict.complete,
    }


def _difference_value(difference: Difference) -> dict[str, Any]:
    return {
        "start": difference.offsets.start,
        "end": difference.offsets.end,
        "wrong": list(difference.minority),
        "known_by": difference.why,
        "batches": difference.batches,
        "records": difference.records,
        "held": {
            str(broker): None if mark is None else mark._asdict()
            for broker, mark in difference.held.items()
        },
    }


def document(
    results: Sequence[dict[str, Any]],
    *,
    source: str,
    code: int,
    seconds: float,
    traffic: Traffic,
    interrupted: bool,
    told: str,
) -> dict[str, Any]:
    return {
        "source": source,
        "verdict": told,
        "partitions": list(results),
        "seconds": round(seconds, 3),
        "bytes_moved": traffic.bytes,
        "requests": traffic.requests,
        "interrupted": interrupted,
        "exit_code": code,
    }


def as_json(found: dict[str, Any]) -> str:
    """A document, each partition on a line of its own: indented throughout it would be written by
    slow code, which for thousands of partitions takes longer than comparing them."""
    lines = []
    for name, value in found.items():
        if name == "partitions" and value:
            told = "[\n" + ",\n".join(f"    {json.dumps(each)}" for each in value) + "\n  ]"
        else:
            told = json.dumps(value)
        lines.append(f"  {json.dumps(name)}: {told}")
    return "{\n" + ",\n".join(lines) + "\n}"
