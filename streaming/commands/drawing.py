"""Small drawings of replicas' logs: an offset axis, epochs, high watermark and log end.

    offset      0     1     2
    1           | e0  H e0  >
    2           | e0  | e1  H>

`|` starts a record (or a run of records), `H` is the high watermark, `>` the log end offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.epochs import epoch_for_offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.consistency.truncation import ReplicaLog
    from tidestaff.streaming.commands.layout import Paint

LEGEND: Final = (
    "H = high watermark: what lies left of it is committed.  > = log end offset (LEO), the offset "
    "of the next record.  e0, e1 = leader epoch a record was written in."
)
_EVERY_OFFSET_UP_TO: Final = 12


class DrawnLog(NamedTuple):
    """One row: who it is, what its log holds, and a remark at the end of the line."""

    name: str
    log: ReplicaLog
    remark: str = ""


def draw(
    logs: Sequence[DrawnLog], paint: Paint, *, indent: int = 4, width: int | None = None
) -> list[str]:
    """Short logs have a column for every offset, long ones for those where something changes. Where
    they do not fit the width, remarks are left out, then the columns where the oldest epochs
    start."""
    margin = max(len("offset"), *(len(drawn.name) for drawn in logs)) + 2
    marks = _marks([drawn.log for drawn in logs])
    room = (width or 0) - indent - margin - len("H>")
    if width and room < _cell(marks) * len(marks) + max(len(drawn.remark) for drawn in logs):
        logs = [drawn._replace(remark="") for drawn in logs]
        marks = _fewer(marks, [drawn.log for drawn in logs], room // _cell(marks))
    cell = _cell(marks)
    axis = "".join(f"{mark:<{cell}}" for mark in marks).rstrip()
    lines = [" " * indent + paint(f"{'offset':<{margin}}{axis}", "dim")]
    for drawn in logs:
        body, plain = _row(drawn.log, marks, cell, paint)
        remark = f"{' ' * (cell * len(marks) - plain)}{drawn.remark}" if drawn.remark else ""
        lines.append(f"{' ' * indent}{drawn.name:<{margin}}{body}{remark}".rstrip())
    return lines


def _cell(marks: Sequence[int]) -> int:
    runs = marks[-1] - marks[0] >= len(marks)
    return max(10 if runs else 6, *(len(str(mark)) + 2 for mark in marks))


def _marks(logs: Sequence[ReplicaLog]) -> list[int]:
    end = max(log.log_end_offset for log in logs)
    start = min(log.log_start_offset for log in logs)
    if end - start <= _EVERY_OFFSET_UP_TO:
        return list(range(start, end + 1))
    marks = {start} | _edges(logs)
    for log in logs:
        marks |= {entry.start_offset for entry in log.lineage}
    return sorted(marks)


def _edges(logs: Sequence[ReplicaLog]) -> set[int]:
    return {
        edge
        for log in logs
        for edge in (log.log_start_offset, log.high_watermark, log.log_end_offset)
    }


def _fewer(marks: Sequence[int], logs: Sequence[ReplicaLog], most: int) -> list[int]:
    """Where a log starts, is committed to and ends is always kept."""
    kept = _edges(logs)
    others = [mark for mark in marks if mark not in kept]
    spare = max(0, most - len(kept))
    return sorted({*kept, *others[len(others) - spare :]}) if spare < len(others) else list(marks)


def _row(log: ReplicaLog, marks: Sequence[int], cell: int, paint: Paint) -> tuple[str, int]:
    """The row and its width without colour."""
    text, width = "", 0
    for number, mark in enumerate(marks):
        if mark < log.log_start_offset:
            text, width = text + " " * cell, width + cell
            continue
        if mark >= log.log_end_offset:
            break
        edge = "H" if mark == log.high_watermark else "|"
        following = marks[number + 1] if number + 1 < len(marks) else log.log_end_offset
        # A run of records is drawn as a line, one record as itself.
        filler = "-" if following - mark > 1 else " "
        body = f"{edge} {_epochs(log, mark, following)} ".ljust(cell - 1, filler) + " "
        text += paint(body, "green" if mark < log.high_watermark else "yellow")
        width += cell
    end = "H>" if log.high_watermark == log.log_end_offset else ">"
    return text + end, width + len(end)


def _epochs(log: ReplicaLog, start: int, end: int) -> str:
    first, last = epoch_for_offset(log.lineage, start), epoch_for_offset(log.lineage, end - 1)
    if first is None:
        return ""
    return f"e{first}" if first == last else f"e{first}-{last}"
