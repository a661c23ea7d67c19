"""Told to stop while everything is still starting: it ends as told, whatever is under way."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.commands.exits import INTERRUPTED, Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

_TOLD_BY: Final = (signal.SIGINT, signal.SIGTERM)


def code_of(told: Sequence[int]) -> int:
    return INTERRUPTED if told[:1] == [signal.SIGINT] else Exit.OK


def set_when_told(stopping: threading.Event) -> None:
    """SIGTERM and Ctrl-C set it. In a thread of its own: whom the signal interrupts may hold the
    lock of the event, and would wait for itself for ever."""

    def tell(_: int, __: FrameType | None) -> None:
        threading.Thread(target=stopping.set, daemon=True).start()

    for number in _TOLD_BY:
        signal.signal(number, tell)


def ending_as_told(
    start: Callable[[list[int]], int], code_of: Callable[[Sequence[int]], int] = code_of
) -> int:
    """Run `start` with the list that signals are written into, and end with their code.

    A signal raises SystemExit wherever the program is, so that what is half started is ended in
    good order. What comes up here may be something else: a class that is being made turns it into
    a RuntimeError, a destructor drops it. The first is an end all the same; for the second, `start`
    looks into the list when it is done starting.
    """
    told: list[int] = []

    def leave(number: int, _: FrameType | None) -> None:
        told.append(number)
        raise SystemExit(code_of(told))

    def unless_told(dropped: sys.UnraisableHookArgs) -> None:
        if not told:
            sys.__unraisablehook__(dropped)

    before = {number: signal.signal(number, leave) for number in _TOLD_BY}
    sys.unraisablehook = unless_told
    try:
        return start(told)
    except BaseException:
        if told:
            return code_of(told)
        raise
    finally:
        sys.unraisablehook = sys.__unraisablehook__
        for number, handler in before.items():
            signal.signal(number, handler)
