"""Text for terminals: columns that wrap within a width, and colour only where it is wanted."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_WIDTH: Final = 100
NARROWEST: Final = 60
LEAST_ROOM: Final = 30
GAP: Final = "  "

_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def terminal_width() -> int:
    """The terminal's columns ($COLUMNS wins); 100 where the output is no terminal."""
    import shutil  # noqa: PLC0415 - slow: it imports compression libraries

    return max(NARROWEST, shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns)


def wants_colour() -> bool:
    """Colour is for terminals, and NO_COLOR (set to anything) forbids it."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


class Paint:
    """Puts colour on text, or leaves it as it is."""

    def __init__(self, *, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.colour and text else text


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; a single word may be longer, never cut."""
    import textwrap  # noqa: PLC0415 - slow, and what goes to machines is not wrapped

    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return lines or [""]


def paragraph(text: str, *, indent: int = 0, width: int | None = None) -> list[str]:
    room = (width or terminal_width()) - indent
    return [" " * indent + line for line in wrapped(text, room)]


def counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def labelled(rows: Sequence[tuple[str, str]], *, indent: int = 0) -> list[str]:
    """`label  value` lines whose values hang under each other; beside a long label they keep some
    room, beyond the terminal's width if need be."""
    label_width = max((len(label) for label, _ in rows), default=0)
    room = max(LEAST_ROOM, terminal_width() - indent - label_width - len(GAP))
    lines: list[str] = []
    for label, value in rows:
        first, *more = wrapped(value, room)
        lines.append(f"{' ' * indent}{label:<{label_width}}{GAP}{first}".rstrip())
        lines += [" " * (indent + label_width + len(GAP)) + line for line in more]
    return lines


def column_widths(rows: Sequence[Sequence[str]], *, total: int) -> list[int]:
    """Natural widths; where they do not fit the widest column gives way, down to its longest word.

    What still does not fit is wider than the terminal, but stays aligned.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    words = [
        max(len(word) for cell in column for word in [*cell.split(), ""]) for column in columns
    ]
    room = total - len(GAP) * (len(widths) - 1)
    while sum(widths) > room:
        spare = [number for number, width in enumerate(widths) if width > words[number]]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, indent: int = 0, rule: bool = False
) -> list[str]:
    """An aligned table whose cells wrap inside their columns."""
    widths = column_widths([head, *rows], total=terminal_width() - indent)
    lines = _row(head, widths, indent)
    if rule:
        lines += _row(["-" * width for width in widths], widths, indent)
    for row in rows:
        lines += _row(row, widths, indent)
    return lines


def _row(cells: Sequence[str], widths: Sequence[int], indent: int) -> list[str]:
    columns = [wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    height = max(map(len, columns))
    lines = []
    for number in range(height):
        parts = [
            f"{column[number] if number < len(column) else '':<{width}}"
            for column, width in zip(columns, widths, strict=True)
        ]
        lines.append((" " * indent + GAP.join(parts)).rstrip())
    return lines
