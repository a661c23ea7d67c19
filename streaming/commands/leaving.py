"""Told to stop while everything is still starting: it ends as told, between two steps."""

from __future__ import annotations

import signal
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

    A signal raises nothing: what comes up in the middle of an import, of a class that is being
    made, of a destructor or of a call from C is dropped, or turned into something else, or ends
    the program with a code of its own. `start` looks into the list where nothing is half done
    (`leave_if`); what fails after the signal, because others were told, too, is an end all the
    same. A second signal ends the program at once.
    """
    told: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if told:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        told.append(number)

    before = {number: signal.signal(number, note) for number in _TOLD_BY}
    try:
        return start(told)
    except BaseException:
        if told:
            return code_of(told)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_if(told: Sequence[int]) -> None:
    """Nothing is half done here: who was told to stop does."""
    if told:
        raise SystemExit(code_of(told))
