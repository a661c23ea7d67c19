"""What a seeded fault is: one exact replacement in one file, and why it is wrong."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class FaultDoesNotApplyError(Exception):
    """The text a fault replaces is not there exactly once: the rule was rewritten."""

    def __init__(self, fault: Fault, count: int) -> None:
        super().__init__(
            f"{fault.id}: its text occurs {count} times in {fault.file}, not once: "
            "adapt the fault to the rule as it is now"
        )
        self.fault, self.count = fault, count


class Fault(NamedTuple):
    """`tests` are those that have to see it, for speed; none named means the whole suite."""

    id: str
    file: str
    before: str
    after: str
    why: str
    tests: tuple[str, ...] = ()

    def applied(self, text: str) -> str:
        count = text.count(self.before)
        if count != 1:
            raise FaultDoesNotApplyError(self, count)
        return text.replace(self.before, self.after)

    def apply(self, root: Path) -> None:
        path = root / self.file
        path.write_text(self.applied(path.read_text(encoding="utf-8")), encoding="utf-8")

    def diff(self, root: Path) -> str:
        before = (root / self.file).read_text(encoding="utf-8")
        lines = difflib.unified_diff(
            before.splitlines(),
            self.applied(before).splitlines(),
            f"a/{self.file}",
            f"b/{self.file}",
            lineterm="",
        )
        return "\n".join(lines)


def faults_in(
    file: str, tests: tuple[str, ...], *rows: tuple[str, str, str, str]
) -> tuple[Fault, ...]:
    """Faults of one file of consistency/, each as (id, before, after, why)."""
    paths = tuple(f"tests/{test}" for test in tests)
    return tuple(Fault(row[0], f"consistency/{file}", *row[1:], paths) for row in rows)
