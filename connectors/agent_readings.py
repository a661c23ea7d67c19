"""What the agents say, put to what the brokers said.

An agent is asked right after its broker told its log end, inside the same bracket. An agent that
does not answer, or answers for somebody else, is a problem of its own; the broker's words stand
without it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tidestaff.connectors.agent_client import AgentSilentError
from tidestaff.connectors.broker_health import Problem
from tidestaff.connectors.errors import ConnectorError
from tidestaff.consistency.model import LineageSource, ProblemKind, ReplicaReading, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from tidestaff.connectors.agent_answers import AgentAnswer
    from tidestaff.connectors.agent_client import AgentClient, AgentUrls
    from tidestaff.connectors.broker_reading import Told
    from tidestaff.connectors.disk_replica import DiskReplica
    from tidestaff.connectors.pacing import Rest
    from tidestaff.consistency.model import BrokerId


class Agents:
    """Puts what agents say to what brokers said. An agent that fails is left alone for the round,
    and with time for longer."""

    def __init__(
        self,
        urls: AgentUrls,
        client: AgentClient,
        hosts: Callable[[], Mapping[BrokerId, str]],
        rest: Rest[BrokerId],
        now_ms: Callable[[], int],
    ) -> None:
        self._urls, self._client, self._locate = urls, client, hosts
        self._rest, self._now_ms = rest, now_ms
        self._hosts: Mapping[BrokerId, str] = {}
        self._assigned: Mapping[TopicPartition, Collection[BrokerId]] = {}
        self._failed: dict[BrokerId, ConnectorError] = {}
        self._asked_in_vain: set[BrokerId] = set()
        self._problems: dict[BrokerId, dict[str, Problem]] = {}

    def begin_round(self, assigned: Mapping[TopicPartition, Collection[BrokerId]]) -> None:
        """`assigned`: the brokers of every partition that is watched."""
        self._assigned = assigned
        self._problems, self._asked_in_vain = {}, set()
        if self._urls.pattern is not None:
            with suppress(ConnectorError):
                self._hosts = self._locate()

    @property
    def problems(self) -> dict[str, Problem]:
        """What this round has met, by its place."""
        return {place: each for found in self._problems.values() for place, each in found.items()}

    def add_to(self, broker: BrokerId, told: Told) -> Told:
        """Called after the broker was asked: a lineage is read after the log end it belongs to."""
        url = self._urls.of(broker, self._hosts.get(broker))
        if url is None or not told.readings:
            return told
        answer = self._answer(broker, url, told.readings)
        if answer is None:
            return told
        readings = {
            partition: with_files(reading, answer.replicas.get(partition))
            for partition, reading in told.readings.items()
        }
        return told._replace(readings=readings)

    def _answer(
        self, broker: BrokerId, url: str, wanted: Collection[TopicPartition]
    ) -> AgentAnswer | None:
        mine = self._problems.setdefault(broker, {})
        now_ms = self._now_ms()
        if broker not in self._asked_in_vain and not self._rest.resting(broker, now_ms):
            try:
                answer = self._client.ask(broker, url, wanted)
            except ConnectorError as error:
                self._failed[broker] = error
                self._asked_in_vain.add(broker)
                self._rest.failed(broker, now_ms)
            else:
                self._failed.pop(broker, None)
                self._rest.succeeded(broker)
                for problem in (*_passed_on(broker, answer), *self._strays(broker, answer)):
                    mine[problem.place] = problem
                return answer
        problem = _agent_problem(broker, self._failed[broker])
        mine[problem.place] = problem
        return None

    def _strays(self, broker: BrokerId, answer: AgentAnswer) -> Iterator[Problem]:
        """Replicas on disk that the metadata gives to others. A topic that is not listed at all may
        only be one that is not watched, or that we are not allowed to see."""
        topics = {partition.topic for partition in self._assigned}
        for partition in answer.others:
            if partition.topic in topics and broker not in self._assigned.get(partition, ()):
                yield Problem(
                    f"broker {broker}: {partition}",
                    ProblemKind.STRAY_DIRECTORY,
                    f"broker {broker} holds {partition}, which is not assigned to it",
                    "see that no reassignment or deletion is under way, then remove the directory",
                    broker=broker,
                    topic=partition.topic,
                    partition=partition.partition,
                )


def with_files(reading: ReplicaReading, replica: DiskReplica | None) -> ReplicaReading:
    """The reading with the lineage of its file. Where there is none the broker's words stand.

    The topic id of the file counts also where the broker named one: that a directory belongs to
    another topic is seen nowhere else.
    """
    if replica is None:
        return reading
    if not replica.online:
        return reading._replace(log_dir_online=False)
    if replica.topic_id is not None:
        reading = reading._replace(topic_id=replica.topic_id)
    if replica.lineage is None:
        return reading
    return reading._replace(lineage=replica.lineage, lineage_source=LineageSource.CHECKPOINT_FILE)


def _agent_problem(broker: BrokerId, error: ConnectorError) -> Problem:
    silent = isinstance(error, AgentSilentError)
    kind = ProblemKind.SILENT if silent else ProblemKind.UNREADABLE
    place = f"agent of broker {broker}"
    return Problem(place, kind, error.reason, error.remedy, broker=broker, at_once=not silent)


def _passed_on(broker: BrokerId, answer: AgentAnswer) -> Iterator[Problem]:
    for problem in answer.problems:
        yield replace(problem, place=f"broker {broker}: {problem.place}", broker=broker)
