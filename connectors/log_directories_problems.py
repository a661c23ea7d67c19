"""What is wrong with the files of log directories, in words that name the place and the remedy."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.broker_health import Problem
from tidestaff.connectors.segments_in_log import TAILS
from tidestaff.consistency.model import ProblemKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.connectors.log_directories_files import FileGoneError, FileUnreadableError
    from tidestaff.connectors.segments_in_log import LogEnd
    from tidestaff.consistency.errors import FormatError
    from tidestaff.consistency.model import TopicPartition

MOST_OF_A_KIND: Final = 50
_NAMED: Final = 5


class Problems:
    """Collects; of one kind no more than anybody would read."""

    def __init__(self) -> None:
        self._found: dict[str, Problem] = {}
        self._of_kind: Counter[ProblemKind] = Counter()

    def add(self, problem: Problem) -> None:
        if problem.place not in self._found:
            self._of_kind[problem.kind] += 1
            if self._of_kind[problem.kind] > MOST_OF_A_KIND:
                return
        self._found[problem.place] = problem

    def told(self) -> tuple[Problem, ...]:
        rest = [
            Problem(
                f"log directories ({kind.value})",
                kind,
                f"{count - MOST_OF_A_KIND} more of this kind",
                "mend those that are named; the others are named then",
            )
            for kind, count in self._of_kind.items()
            if count > MOST_OF_A_KIND
        ]
        return (*self._found.values(), *rest)

    def log_dir_offline(self, path: str, error: FileGoneError | FileUnreadableError) -> None:
        self.add(
            Problem(
                path,
                ProblemKind.LOG_DIR_OFFLINE,
                error.reason,
                "look at the disk and its mount, then at the broker's log",
            )
        )

    def log_dir_unreadable(self, path: str, error: FileUnreadableError) -> None:
        if error.failing:
            self.log_dir_offline(path, error)
        else:
            self.unreadable(path, error)

    def unreadable(
        self, place: str, error: FileUnreadableError, of: TopicPartition | None = None
    ) -> None:
        kind = ProblemKind.LOG_DIR_OFFLINE if error.failing else ProblemKind.UNREADABLE
        self.add(_about(of, Problem(place, kind, error.reason, error.remedy)))

    def malformed(self, place: str, error: FormatError, of: TopicPartition | None = None) -> None:
        problem = Problem(
            place,
            ProblemKind.MALFORMED,
            f"{error.field} is {error.found}, expected {error.expected}"
            + (f" (line {error.line})" if error.line else ""),
            "compare it with another replica's before the broker is restarted",
            at_once=True,
        )
        self.add(_about(of, problem))

    def stray(self, place: str, reason: str, of: TopicPartition | None = None) -> None:
        remedy = "move what is not Kafka's out of the log directory"
        self.add(_about(of, Problem(place, ProblemKind.STRAY_DIRECTORY, reason, remedy)))

    def entries_missing(self, place: str, missing: Sequence[TopicPartition]) -> None:
        named = ", ".join(map(str, missing[:_NAMED]))
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        self.add(
            Problem(
                place,
                ProblemKind.CHECKPOINT_ENTRY_MISSING,
                f"no entry for {named}{more}: a restart would start their HW at the log start",
                "do not restart the broker before the entries are back; look at its log",
            )
        )

    def log_tail(self, place: str, end: LogEnd, of: TopicPartition) -> bool:
        """Whether the log ends as one may; else it is told where it does not."""
        if end.end.ending in TAILS:
            return True
        problem = Problem(
            f"{place}/{end.segment.name}",
            ProblemKind.UNREADABLE,
            f"{end.end.ending.value} at byte {end.end.position}, "
            f"offset {end.log_end_offset}: {end.end.reason}",
            "compare the segment with another replica's (kafka-dump-log)",
        )
        self.add(_about(of, problem))
        return False


def _about(partition: TopicPartition | None, problem: Problem) -> Problem:
    if partition is None:
        return problem
    return replace(problem, topic=partition.topic, partition=partition.partition)
