"""Log directories as brokers tell of them: which are offline, and which topics lie there that we
are not shown.

A topic that may not be described is left out of the metadata without a word. Its replicas stand in
the log directories all the same, so what is hidden can be named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.connectors.broker_answers import NO_ERROR, error_name
from tidestaff.connectors.broker_health import Problem, problem_of
from tidestaff.connectors.errors import (
    ConnectorError,
    NotAuthorizedError,
    UnsupportedRequestError,
)
from tidestaff.consistency.model import ProblemKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tidestaff.connectors.broker_answers import BrokerReader, LogDir
    from tidestaff.connectors.broker_options import BrokerOptions
    from tidestaff.consistency.model import BrokerId

NAMED: Final = 5
"""So many topics that are hidden are told one by one; more of them together."""
_PLACE: Final = "log directories"


class LogDirectories:
    """Asks every broker now and then; what it found stays said until it is asked again."""

    def __init__(self, reader: BrokerReader, options: BrokerOptions) -> None:
        self._reader, self._options = reader, options
        self._due_ms: int | None = None
        self._events = 0
        self._known: dict[BrokerId, Sequence[LogDir]] = {}
        self._problems: dict[str, Problem] = {}

    @property
    def problems(self) -> Mapping[str, Problem]:
        return self._problems

    def refresh(
        self, brokers: Collection[BrokerId], shown: Collection[str], now_ms: int, events: int = 0
    ) -> None:
        """`shown` are the topics of the metadata. Who does not answer is told by whoever reads its
        replicas. Another number of `events` than before: a directory was lost, ask at once."""
        if self._due_ms is not None and now_ms < self._due_ms and events == self._events:
            return
        self._events = events
        self._due_ms = now_ms + self._options.log_dirs_refresh_ms
        self._problems = {}
        self._known = {b: found for b, found in self._known.items() if b in brokers}
        for broker in sorted(brokers):
            try:
                self._known[broker] = self._reader.log_dirs(broker)
            except UnsupportedRequestError:
                return
            except NotAuthorizedError as error:
                self._note(problem_of(_PLACE, error, ProblemKind.UNREADABLE))
                return
            except ConnectorError:
                continue
        for problem in self._offline():
            self._note(problem)
        try:
            for problem in self._hidden(shown):
                self._note(problem)
        except ConnectorError as error:
            self._note(problem_of(_PLACE, error, ProblemKind.UNREADABLE))

    def _note(self, problem: Problem) -> None:
        self._problems[problem.place] = problem

    def _offline(self) -> Iterator[Problem]:
        for broker, found in self._known.items():
            for each in found:
                if each.error != NO_ERROR:
                    yield Problem(
                        f"log directory {each.path} of broker {broker}",
                        ProblemKind.LOG_DIR_OFFLINE,
                        f"broker {broker} says {error_name(each.error)} of {each.path}",
                        "mend the disk, then restart the broker",
                        broker=broker,
                        at_once=True,
                    )

    def _hidden(self, shown: Collection[str]) -> Iterator[Problem]:
        """A topic that was just deleted is not refused, only unknown."""
        there = {
            each.partition.topic
            for found in self._known.values()
            for directory in found
            for each in directory.replicas
            if self._options.wants(each.partition.topic)
        }
        asked = sorted(there - set(shown))
        refused = sorted(self._reader.refused_topics(asked)) if asked else []
        if len(refused) > NAMED:
            names = ", ".join(refused[:NAMED]) + f" and {len(refused) - NAMED} more"
            error = NotAuthorizedError("Read", "topic", names)
            yield problem_of("topics that are hidden", error, ProblemKind.UNREADABLE)
            return
        for topic in refused:
            error = NotAuthorizedError("Read", "topic", topic)
            yield problem_of(f"topic {topic}", error, ProblemKind.UNREADABLE)
