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


def draw(logs: Sequence[DrawnLog], paint: Paint, *, indent: int = 4) -> list[str]:
    """Short logs have a column for every offset, long ones for those where something changes."""
    marks = _marks([drawn.log for drawn in logs])
    runs = marks[-1] - marks[0] >= len(marks)
    cell = max(10 if runs else 6, *(len(str(mark)) + 2 for mark in marks))
    margin = max(len("offset"), *(len(drawn.name) for drawn in logs)) + 2
    axis = "".join(f"{mark:<{cell}}" for mark in marks).rstrip()
    lines = [" " * indent + paint(f"{'offset':<{margin}}{axis}", "dim")]
    room = cell * len(marks)
    for drawn in logs:
        body, plain = _row(drawn.log, marks, cell, paint)
        remark = f"{' ' * (room - plain)}{drawn.remark}" if drawn.remark else ""
        lines.append(f"{' ' * indent}{drawn.name:<{margin}}{body}{remark}".rstrip())
    return lines


def _marks(logs: Sequence[ReplicaLog]) -> list[int]:
    end = max(log.log_end_offset for log in logs)
    start = min(log.log_start_offset for log in logs)
    if end - start <= _EVERY_OFFSET_UP_TO:
        return list(range(start, end + 1))
    marks = {start}
    for log in logs:
        marks |= {log.log_start_offset, log.high_watermark, log.log_end_offset}
        marks |= {entry.start_offset for entry in log.lineage}
    return sorted(marks)


def _row(log: ReplicaLog, marks: Sequence[int], cell: int, paint: Paint) -> tuple[str, int]:
    """The row and its width without colour."""
    text, width = "", 0
    for number, mark in enumerate(marks):
        if mark >= log.log_end_offset or mark < log.log_start_offset:
            break
        edge = "H" if mark == log.high_watermark else "|"
        epoch = epoch_for_offset(log.lineage, mark)
        label = "" if epoch is None else f"e{epoch}"
        following = marks[number + 1] if number + 1 < len(marks) else log.log_end_offset
        # A run of records is drawn as a line, one record as itself.
        filler = "-" if following - mark > 1 else " "
        body = f"{edge} {label} ".ljust(cell - 1, filler) + " "
        text += paint(body, "green" if mark < log.high_watermark else "yellow")
        width += cell
    end = "H>" if log.high_watermark == log.log_end_offset else ">"
    return text + end, width + len(end)
