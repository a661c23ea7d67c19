"""Copies read by the agents beside the brokers: digests travel, payloads stay where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.connectors.agent_answers import MOST_OTHERS
from tidestaff.connectors.agent_digests import MOST_RANGES, DigestQuestion, Range
from tidestaff.connectors.errors import ConnectorError
from tidestaff.consistency.partitions import TopicPartition
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.verify.copies import (
    BYTES_AT_ONCE,
    NO_ANSWER,
    PartitionCopies,
    Traffic,
    extent_of_files,
    is_compacted,
)
from tidestaff.streaming.verify.threads import in_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidestaff.connectors.agent_answers import AgentAnswer
    from tidestaff.connectors.agent_client import AgentClient
    from tidestaff.connectors.agent_digests import DigestAnswer
    from tidestaff.consistency.batches import BatchMark, RangeDigest
    from tidestaff.consistency.model import BrokerId
    from tidestaff.streaming.verify.copies import Asked

_MARKED_AT_ONCE: Final = 200
CHECKED_AT_ONCE: Final = 8
"""Partitions whose payloads are asked for together: Ctrl-C waits for all of them."""
CHECKED_BYTES: Final = 1 << 28
"""An agent reads payloads at its own rate, and has a minute for a range."""


class AgentDigests:
    """Questions about ranges, to the agent of a broker."""

    def __init__(self, client: AgentClient, urls: Mapping[BrokerId, str]) -> None:
        self._client, self.urls = client, urls
        self.requests = 0

    def digests(
        self, broker: BrokerId, asked: Asked, *, check: bool
    ) -> Mapping[TopicPartition, RangeDigest]:
        answers = self._all(broker, asked, MOST_RANGES, check=check, marks=False)
        return {p: a.digest for (p, _), a in zip(asked, answers, strict=True)}

    def marks(self, broker: BrokerId, asked: Asked) -> Mapping[TopicPartition, Sequence[BatchMark]]:
        answers = self._all(broker, asked, _MARKED_AT_ONCE, check=False, marks=True)
        return {p: a.marks for (p, _), a in zip(asked, answers, strict=True)}

    def _all(
        self, broker: BrokerId, asked: Asked, at_once: int, *, check: bool, marks: bool
    ) -> list[DigestAnswer]:
        """An agent answers as much as it has time for, and is asked for the rest."""
        ranges = [Range(partition, offsets) for partition, offsets in asked]
        found: list[DigestAnswer] = []
        while len(found) < len(ranges):
            some = tuple(ranges[len(found) : len(found) + at_once])
            self.requests += 1
            answers = self._client.ask_digests(
                broker, self.urls[broker], DigestQuestion(some, check, marks)
            )
            if not 0 < len(answers) <= len(some):
                raise ConnectorError(
                    f"the agent of broker {broker} answers {len(answers)} of {len(some)} ranges",
                    "run the agent and this command in the same release",
                )
            found += answers
        return found

    @property
    def traffic(self) -> Traffic:
        return Traffic(self._client.bytes_moved, self.requests)


class AgentSource:
    """Agents alone, without a word of the brokers: watermarks are those of the checkpoint files,
    some seconds old, and nobody says who leads. Works while brokers are down."""

    kind = "agents"
    live = True
    at_once = 2_000
    bytes_at_once = BYTES_AT_ONCE
    marks_at_once = 64
    bytes_a_round = float("inf")

    def __init__(
        self,
        client: AgentClient,
        urls: Mapping[BrokerId, str],
        compacted: Callable[[str], bool] = lambda _: False,
        topics: Collection[str] | None = (),
        *,
        check: bool = False,
    ) -> None:
        """`topics` are those that may be wanted, as far as their names are known; None: all.
        `check`: payloads are to be read."""
        if check:
            self.at_once, self.bytes_at_once = CHECKED_AT_ONCE, CHECKED_BYTES
        self._client, self._urls, self._topics = client, urls, topics
        self._digests = AgentDigests(client, urls)
        self._compacted = compacted
        self._silent: dict[BrokerId, str] = {}
        self._sizes: dict[TopicPartition, dict[BrokerId, int]] = {}
        self.digests, self.marks = self._digests.digests, self._digests.marks

    def partitions(self, wanted: Callable[[str], bool]) -> list[PartitionCopies]:
        def ask(broker: BrokerId) -> tuple[BrokerId, AgentAnswer | ConnectorError]:
            try:
                return broker, self._asked(broker, wanted)
            except ConnectorError as error:
                return broker, error

        found: dict[TopicPartition, PartitionCopies] = {}
        failed: list[ConnectorError] = []
        for broker, answer in in_threads(ask, self._urls, len(self._urls)):
            if isinstance(answer, ConnectorError):
                failed.append(answer)
                self._silent[broker] = answer.reason
            else:
                self._add(broker, answer, found)
                self._add_unread(broker, answer, wanted, found)
        if len(failed) == len(self._urls):
            raise CommandError(failed[0].reason, failed[0].remedy)
        for copies in found.values():
            copies.unread |= self._silent
        return [found[partition] for partition in sorted(found)]

    def _asked(self, broker: BrokerId, wanted: Callable[[str], bool]) -> AgentAnswer:
        """Where no name is known the agent lists what there is, and is asked for what is wanted of
        it. Agents of earlier releases know no topics and only list."""
        client, url, topics = self._client, self._urls[broker], self._topics
        answer = client.ask(broker, url, (), log_ends=True, topics=topics)
        if topics is not None and not topics and len(answer.others) >= MOST_OTHERS:
            # The list is cut there.
            answer = client.ask(broker, url, (), log_ends=True, topics=None)
        replicas = {p: each for p, each in answer.replicas.items() if wanted(p.topic)}
        listed = [partition for partition in answer.others if wanted(partition.topic)]
        if listed and len(answer.others) >= MOST_OTHERS:
            raise ConnectorError(
                f"the agent of broker {broker} lists {MOST_OTHERS} of its replicas and no more",
                "run the agent and this command in the same release",
            )
        if listed:
            replicas |= client.ask(broker, url, listed, log_ends=True).replicas
        return answer._replace(replicas=replicas)

    def _add(
        self,
        broker: BrokerId,
        answer: AgentAnswer,
        found: dict[TopicPartition, PartitionCopies],
    ) -> None:
        for partition, replica in answer.replicas.items():
            mine = found.setdefault(partition, PartitionCopies(partition, []))
            extent = extent_of_files(
                broker, replica, compacted=is_compacted(partition.topic, self._compacted)
            )
            if isinstance(extent, str):
                mine.unread[broker] = extent
            else:
                mine.extents.append(extent)
                if replica.size is not None:
                    # Agents of an earlier release tell none: theirs are taken for alike.
                    sizes = self._sizes.setdefault(partition, {})
                    sizes[broker] = replica.size
                told = self._sizes.get(partition, {})
                mine.bytes = sum(told.values()) * len(mine.extents) // max(len(told), 1)

    def _add_unread(
        self,
        broker: BrokerId,
        answer: AgentAnswer,
        wanted: Callable[[str], bool],
        found: dict[TopicPartition, PartitionCopies],
    ) -> None:
        """Copies that are there and that the agent cannot look into."""
        for problem in answer.problems:
            if problem.topic is None or problem.partition is None or not wanted(problem.topic):
                continue
            partition = TopicPartition(problem.topic, problem.partition)
            if partition not in answer.replicas:
                mine = found.setdefault(partition, PartitionCopies(partition, []))
                mine.unread.setdefault(broker, problem.reason)

    def again(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionCopies]:
        """An agent that has gone since is named with what it does not tell."""
        found: dict[TopicPartition, PartitionCopies] = {}
        silent = dict(self._silent)
        for broker, url in self._urls.items():
            if broker in silent:
                continue
            try:
                answer = self._client.ask(broker, url, partitions, log_ends=True)
                self._add(broker, answer, found)
            except ConnectorError as error:
                silent[broker] = error.reason
        for mine in found.values():
            mine.unread |= silent
        return found

    @property
    def traffic(self) -> Traffic:
        return self._digests.traffic

    def why_silent(self, broker: BrokerId, partition: TopicPartition) -> str:
        return NO_ANSWER

    @property
    def bytes_read(self) -> int:
        return 0

    def close(self) -> None:
        """No connection outlives its question."""
