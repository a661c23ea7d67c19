"""Exit codes, as kafka-utils and Nagios have them, and the errors a user sees instead of a
traceback."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

INTERRUPTED: Final = 130
"""After Ctrl-C, as shells have it."""


class Exit(IntEnum):
    """What a command found."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class CommandError(Exception):
    """The command could not tell: each of `problems` says what was found and what was expected."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class UsageError(CommandError):
    """The command line itself is not understood."""
