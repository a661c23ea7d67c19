"""Kafka's own tools beside the monitor: asked from the moment of a fault on, over and over, so that
it is known when they would have said something, and not only whether.

kafka-topics is asked anew after a pause. ReplicaVerificationTool stays and reports; but it reads
every record once only, so that it is ended and started anew, too. Each start is a process that
takes a core for seconds: pauses are long, and the number of starts is bounded.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.field.field_tools import verification_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from types import TracebackType

    from tests.field.lab import Lab

UNDER_REPLICATED: Final = "kafka-topics --under-replicated-partitions"
UNAVAILABLE: Final = "kafka-topics --unavailable-partitions"
VERIFICATION: Final = "ReplicaVerificationTool"
TOOLS: Final = (UNDER_REPLICATED, UNAVAILABLE, VERIFICATION)

AT_LEAST_S: Final = 25.0
"""So long every tool is asked, though the monitor may have found the fault in a second."""
MOST_STARTS: Final = 12
_TOPICS_EVERY_S, _TOPICS_FOR_S = 10.0, 45.0
_VERIFIES_EVERY_S, _VERIFIES_FOR_S = 20.0, 15.0
_DIFFERS: Final = re.compile(r"unmatched|doesn't match")
_LAGS: Final = re.compile(r"max lag is [1-9]")
_PARTITION: Final = re.compile(r"Topic: (\S+)\s+Partition: (\d+)")


class Asked(NamedTuple):
    """What came of asking one tool. `failed` times it ended with an error, or did not end; one that
    was `unanswered` had not ended when nobody waited for it any more."""

    tool: str
    first_s: float | None
    said: str
    asked: int
    failed: int
    for_s: float
    unanswered: int = 0

    @property
    def when(self) -> str:
        """Seconds to the first finding, or for how long there was none."""
        if self.first_s is not None:
            return f"{self.first_s:.1f} s"
        failed = f", {self.failed} failed" if self.failed else ""
        if self.asked and self.failed + self.unanswered == self.asked:
            return f"no answer in {self.for_s:.0f} s ({self.asked} asked{failed})"
        return f"nothing in {self.for_s:.0f} s ({self.asked} asked{failed})"


class _Question(NamedTuple):
    """`stays`: it never ends by itself, and that it was ended is no failure."""

    tool: str
    command: Sequence[str]
    finds: Callable[[str], bool]
    for_s: float
    stays: bool = False


class _Asking(threading.Thread):
    """Asks its questions one after the other, then waits until it is time to do so again."""

    def __init__(self, questions: Sequence[_Question], every_s: float, folder: str) -> None:
        super().__init__(name=f"asks {questions[0].tool}", daemon=True)
        self._questions, self._every_s, self._folder = questions, every_s, folder
        self._lock, self._ends = threading.Lock(), threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._counts = {each.tool: [0, 0, 0] for each in questions}
        self._found: dict[str, tuple[float, str]] = {}
        self._last: dict[str, str] = {}
        self._over: set[str] = set()
        self._began = time.monotonic()

    def run(self) -> None:
        self._began = time.monotonic()
        for _ in range(MOST_STARTS):
            at = time.monotonic()
            for question in self._questions:
                self._ask(question)
            if self._ends.wait(max(0.0, at + self._every_s - time.monotonic())):
                return

    def _ask(self, question: _Question) -> None:
        with self._lock:
            if self._ends.is_set():
                return
            self._process = process = subprocess.Popen(
                question.command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                cwd=self._folder,
            )
        counts = self._counts[question.tool]
        counts[0] += 1
        too_long = threading.Timer(question.for_s, process.kill)
        too_long.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                self._hear(question, line.strip())
            code = process.wait()
        finally:
            too_long.cancel()
            process.stdout.close()  # type: ignore[union-attr]
        # One that was ended because nobody waits for it any more has neither failed nor answered.
        ended = self._ends.is_set()
        if code and not question.stays:
            counts[2 if ended else 1] += 1
        elif question.stays and ended and question.tool not in self._last:
            counts[2] += 1
        self._over.add(question.tool)

    def _hear(self, question: _Question, line: str) -> None:
        if not line:
            return
        self._last[question.tool] = line
        if question.tool not in self._found and question.finds(line):
            self._found[question.tool] = time.monotonic() - self._began, line

    @property
    def all_found(self) -> bool:
        return len(self._found) == len(self._questions)

    @property
    def all_heard(self) -> bool:
        """Each has said all that it has to say, or has had its time, once at least."""
        return len(self._over) == len(self._questions)

    def end(self) -> list[Asked]:
        self._ends.set()
        with self._lock:
            if self._process is not None:
                self._process.kill()
        self.join(30)
        for_s = time.monotonic() - self._began
        return [self._told(each.tool, for_s) for each in self._questions]

    def _told(self, tool: str, for_s: float) -> Asked:
        first_s, said = self._found.get(tool, (None, self._last.get(tool, "")))
        asked, failed, unanswered = self._counts[tool]
        return Asked(tool, first_s, said[:220], asked, failed, for_s, unanswered)


class Beside:
    """`with Beside(lab, topics)` before the fault, `begin` when it is put in, `end` to hear.

    What was short of replicas before the fault is no finding. With `lag_counts` it is one that
    ReplicaVerificationTool reports a lag: true where nobody writes. With `any_topic` kafka-topics
    may name whichever partition it likes, else it must name one of the topics.
    """

    def __init__(
        self, lab: Lab, topics: Sequence[str], *, lag_counts: bool = True, any_topic: bool = False
    ) -> None:
        wanted = None if any_topic else topics
        seen = lab.clients.describe()
        short = {(p.topic, p.partition) for p in seen if len(p.isr) < len(p.replicas)}
        offline = {(p.topic, p.partition) for p in seen if p.leader < 0}
        places = ((UNDER_REPLICATED, short), (UNAVAILABLE, offline))
        asked = [
            _Question(
                tool,
                lab.tool_command(*lab.topics_arguments("--describe", tool.split()[1])),
                new_partition(known, wanted),
                _TOPICS_FOR_S,
            )
            for tool, known in places
        ]
        folder = str(lab.plan.folder)
        # Each by itself: one that gets no answer does not keep the other from asking.
        self._threads = [_Asking([each], _TOPICS_EVERY_S, folder) for each in asked]
        for topic in topics:
            name = VERIFICATION if len(topics) == 1 else f"{VERIFICATION} on {topic}"
            command = lab.tool_command(*verification_arguments(lab, topic))
            finds = verified(lag_counts=lag_counts)
            question = _Question(name, command, finds, _VERIFIES_FOR_S, stays=True)
            self._threads.append(_Asking([question], _VERIFIES_EVERY_S, folder))
        self._began = 0.0
        self._answers: list[Asked] | None = None

    def __enter__(self) -> Beside:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def begin(self) -> None:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def end(self, at_least_s: float = 0.0) -> list[Asked]:
        """When so many seconds are over and everybody has had the time of one answer, or everybody
        has found something."""
        if self._answers is None and self._began:
            until = self._began + at_least_s
            while at_least_s and not all(t.all_found for t in self._threads):
                if time.monotonic() >= until and all(t.all_heard for t in self._threads):
                    break
                time.sleep(0.1)
            self._answers = [told for thread in self._threads for told in thread.end()]
        return self._answers or []


def new_partition(
    known: Collection[tuple[str, int]], topics: Collection[str] | None
) -> Callable[[str], bool]:
    """A line of kafka-topics names a partition that was whole before: one of these topics."""

    def finds(line: str) -> bool:
        found = _PARTITION.search(line)
        if found is None:
            return False
        place = found[1], int(found[2])
        return place not in known and (topics is None or place[0] in topics)

    return finds


def verified(*, lag_counts: bool) -> Callable[[str], bool]:
    """A line of ReplicaVerificationTool is about replicas that differ, or that lag behind."""
    return lambda line: bool(_DIFFERS.search(line) or (lag_counts and _LAGS.search(line)))


def figures(tidestaff: str, answers: Iterable[Asked]) -> dict[str, str]:
    """The columns of the table: when who said something first."""
    found = {"Tidestaff": tidestaff}
    for told in answers:
        tool, _, where = told.tool.partition(" on ")
        text = f"{where}: {told.when}" if where else told.when
        found[tool] = f"{found[tool]}; {text}" if tool in found else text
    return found


def words(answers: Iterable[Asked]) -> str:
    """What the tools said: their first finding, else the last line of all they said."""
    return "<br>".join(f"{told.tool}: {told.said or '(nothing)'}" for told in answers)
