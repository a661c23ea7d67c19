"""What a source could not read, since when, and that it can again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.broker_answers import KAFKA_STORAGE_ERROR, error_name
from tidestaff.connectors.broker_lineage import LONGEST
from tidestaff.connectors.errors import (
    AuthenticationRefusedError,
    ConnectorError,
    MetadataNotOursError,
    NotAuthorizedError,
)
from tidestaff.consistency.model import HealthObservation, ProblemKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidestaff.connectors.broker_answers import Quorum
    from tidestaff.connectors.broker_reading import Told
    from tidestaff.consistency.model import BrokerId

VOTER_SILENT_MS: Final = 10_000
"""Five times controller.quorum.fetch.timeout.ms: whoever is up has fetched since."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read in a round. `at_once` tells it in the first round."""

    place: str
    kind: ProblemKind
    reason: str
    remedy: str
    broker: BrokerId | None = None
    topic: str | None = None
    at_once: bool = False
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    problem: Problem
    since_ms: int
    rounds: int = 0
    told: bool = False


class HealthBook:
    """A problem is told once it has lasted `missed_rounds`, in every round, and when it is over."""

    def __init__(self, cluster: str, source: str, missed_rounds: int) -> None:
        self._cluster, self._source, self._missed_rounds = cluster, source, missed_rounds
        self._kept: dict[str, _Kept] = {}

    def resume(self, told: Iterable[HealthObservation]) -> None:
        """Go on after a restart: what was told in the last round before it may be over by now."""
        for each in told:
            if each.problem is not ProblemKind.OK:
                problem = Problem(
                    *(each.place, each.problem, each.reason, each.remedy, each.broker, each.topic),
                    partition=each.partition,
                )
                since_ms = each.observed_at_ms if each.since_ms is None else each.since_ms
                self._kept[each.place] = _Kept(problem, since_ms, self._missed_rounds, told=True)

    def close_round(
        self, problems: Iterable[Problem], at_ms: int, number: int, *, blind: bool = False
    ) -> list[HealthObservation]:
        """What this round has to tell. A `blind` round saw nothing, so nothing is over by it."""
        found = {problem.place: problem for problem in problems}
        told = []
        for place, problem in found.items():
            kept = self._kept.get(place, _Kept(problem, at_ms))
            kept = replace(kept, problem=problem, rounds=kept.rounds + 1)
            if kept.told or problem.at_once or kept.rounds >= self._missed_rounds:
                kept = replace(kept, told=True)
                told.append(self._observation(kept, problem.kind, at_ms, number))
            self._kept[place] = kept
        if not blind:
            for place in [place for place in self._kept if place not in found]:
                kept = self._kept.pop(place)
                if kept.told:
                    told.append(self._observation(kept, ProblemKind.OK, at_ms, number))
        return told

    @property
    def untold(self) -> list[Problem]:
        """What has not lasted long enough to be told: all there is to say of a short run."""
        return [kept.problem for kept in self._kept.values() if not kept.told]

    def _observation(
        self, kept: _Kept, kind: ProblemKind, at_ms: int, number: int
    ) -> HealthObservation:
        problem, well = kept.problem, kind is ProblemKind.OK
        return HealthObservation(
            cluster=self._cluster,
            observed_at_ms=at_ms,
            source=self._source,
            problem=kind,
            place=problem.place,
            reason="" if well else problem.reason,
            remedy="" if well else problem.remedy,
            broker=problem.broker,
            topic=problem.topic,
            partition=problem.partition,
            since_ms=kept.since_ms,
            round=number,
        )


def problem_of(place: str, error: ConnectorError, kind: ProblemKind) -> Problem:
    """What is refused will be refused again: it is told at once, as not readable."""
    refused = isinstance(
        error, NotAuthorizedError | AuthenticationRefusedError | MetadataNotOursError
    )
    return Problem(
        place,
        ProblemKind.UNREADABLE if refused else kind,
        error.reason,
        error.remedy,
        at_once=refused,
    )


def broker_problem(broker: BrokerId, error: ConnectorError) -> Problem:
    return replace(problem_of(f"broker {broker}", error, ProblemKind.SILENT), broker=broker)


def voter_problems(quorum: Quorum) -> Iterator[Problem]:
    """Voters that have not fetched the metadata log for long, by the clock of the quorum's leader.
    Before 3.3 it does not tell when they did. A leader knows only of its own time in office: who
    was away before (the leader it followed, say) it has never heard."""
    now_ms = max(
        (v.last_caught_up_ms for v in quorum.voters if v.node == quorum.leader), default=-1
    )
    for voter in quorum.voters:
        silent_ms = now_ms - voter.last_fetch_ms
        if voter.node == quorum.leader or now_ms < 0 or silent_ms <= VOTER_SILENT_MS:
            continue
        since = f"since controller {quorum.leader} leads the quorum"
        if voter.last_fetch_ms >= 0:
            behind = max(0, quorum.high_watermark - voter.log_end_offset)
            since = f"for {silent_ms // 1_000} s and is {behind} records behind"
        yield Problem(
            f"controller {voter.node}",
            ProblemKind.SILENT,
            f"controller {voter.node} has not fetched from the leader of the quorum {since}",
            f"see that controller {voter.node} is up and reaches controller {quorum.leader}",
        )


def replica_problems(broker: BrokerId, told: Told) -> Iterator[Problem]:
    """One for each topic and reason: a topic may have thousands of partitions."""
    for topic in sorted(told.refused):
        error = NotAuthorizedError("Read", "topic", topic)
        yield replace(problem_of(f"topic {topic}", error, ProblemKind.UNREADABLE), topic=topic)
    for partition, code in told.errors.items():
        offline = code == KAFKA_STORAGE_ERROR
        yield Problem(
            f"topic {partition.topic} on broker {broker}",
            ProblemKind.LOG_DIR_OFFLINE if offline else ProblemKind.UNREADABLE,
            f"broker {broker} answers {error_name(code)} for {partition}",
            "look for failed log directories in the broker's log"
            if offline
            else "compare the topic's assignment with what the broker holds",
            broker=broker,
            topic=partition.topic,
        )
    for partition in told.too_long:
        reading = told.readings.get(partition)
        if reading is None or reading.lineage is not None:
            continue  # its agent has read it from the file
        yield Problem(
            f"lineage of topic {partition.topic} on broker {broker}",
            ProblemKind.UNREADABLE,
            f"broker {broker} leads {partition} with more than {LONGEST} leader epochs in its log: "
            "its lineage is not read, so that rules on epochs are blind there",
            "run 'tidestaff agent' beside the broker, which reads the lineage from its file; or "
            "let retention remove the oldest records",
            broker=broker,
            topic=partition.topic,
            at_once=True,
        )
