"""A shorter list of actions that still shows the same: delta debugging by replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item", bound=Any)


def shrink(
    items: Sequence[Item], still_shows: Callable[[Sequence[Item]], bool], *, tries: int = 400
) -> list[Item]:
    """Leave out ever smaller pieces for as long as what is left still shows it."""
    kept, size = list(items), max(1, len(items) // 2)
    while tries > 0:
        at, left_out = 0, False
        while at < len(kept) and tries > 0:
            shorter = kept[:at] + kept[at + size :]
            tries -= 1
            if still_shows(shorter):
                kept, left_out = shorter, True
            else:
                at += size
        if size == 1 and not left_out:
            break
        size = size if left_out and size == 1 else max(1, size // 2)
    return kept
