"""What an agent could not read, why, and since when, over all the questions it was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidestaff.connectors.broker_health import Problem
    from tidestaff.connectors.log_directories import Disk


class Since(NamedTuple):
    """A problem as it was seen last, and when it was seen first."""

    problem: Problem
    since_ms: int


class ProblemBook:
    """A problem begins when it is first seen, and is over when a look at its place finds none.

    A question looks only into the replicas it names: what is wrong with another stays as it was.
    """

    def __init__(self) -> None:
        self._open: dict[str, Since] = {}

    def note(self, disk: Disk, now_ms: int) -> None:
        found: dict[str, Since] = {}
        for problem in disk.problems:
            known = self._open.get(problem.place)
            same = known is not None and known.problem.kind is problem.kind
            began = known.since_ms if known is not None and same else now_ms
            found[problem.place] = Since(problem, began)
        missing = self._open.keys() - found.keys()
        if missing:
            paths = [f"{each.path}/" for each in disk.directories]
            not_asked = set(map(str, disk.others))
            found |= {
                place: self._open[place] for place in missing if _held(place, paths) in not_asked
            }
        self._open = found

    def told(self) -> tuple[Since, ...]:
        return tuple(self._open[place] for place in sorted(self._open))


def _held(place: str, paths: list[str]) -> str:
    """What a log directory holds the place by; empty where it is a log directory itself."""
    for path in paths:
        if place.startswith(path):
            return place.removeprefix(path).partition("/")[0]
    return ""
