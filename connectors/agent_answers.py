"""What the collector asks an agent and what it answers: JSON, taken apart with suspicion.

Both sides may be of another release or somebody else altogether: what is not as agreed is refused
with its place, nothing is guessed at.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from tidestaff.connectors.disk_replica import DiskReplica
from tidestaff.connectors.errors import ConnectorError
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.partitions import EpochEntry, TopicPartition
from tidestaff.consistency.topic_ids import parse_topic_id, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable

    from tidestaff.connectors.broker_health import Problem
    from tidestaff.connectors.log_directories import Disk
    from tidestaff.consistency.partitions import Lineage

VERSION: Final = 1
MOST_PARTITIONS: Final = 200_000
LARGEST_QUESTION: Final = 1 << 23
LARGEST_ANSWER: Final = 1 << 27
MOST_OTHERS: Final = 10_000
"""Replicas that were not asked for are listed up to this number."""
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LONGEST_TEXT: Final = 4_096
# As ProblemKind has them.
_OWN_KINDS: Final = frozenset(
    {
        "log-dir-offline",
        "checkpoint-entry-missing",
        "stray-directory",
        "unreadable",
        "malformed",
    }
)


class AgentFormatError(ConnectorError):
    """A question or an answer that is not as agreed."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        super().__init__(
            f"{field} is {found}, expected {expected}",
            "run the agent and the collector in the same release",
        )
        self.field, self.found, self.expected = field, found, expected


class Question(NamedTuple):
    """Which replicas (those of whole topics with them; `topics` None: all there are), and whether
    the ends of their logs are to be read from the segments."""

    partitions: frozenset[TopicPartition]
    log_ends: bool = True
    topics: frozenset[str] | None = frozenset()

    @property
    def wanted(self) -> Container[TopicPartition] | None:
        """None: all."""
        return None if self.topics is None else _Wanted(self.partitions, self.topics)


class _Wanted:
    """Replicas, and those of whole topics."""

    def __init__(self, partitions: frozenset[TopicPartition], topics: frozenset[str]) -> None:
        self._partitions, self._topics = partitions, topics

    def __contains__(self, found: object) -> bool:
        if found in self._partitions:
            return True
        return isinstance(found, TopicPartition) and found.topic in self._topics


class AgentAnswer(NamedTuple):
    """What an agent says of its broker's disks. `others` are replicas that were not asked for."""

    broker: int
    at_ms: int
    replicas: dict[TopicPartition, DiskReplica]
    others: tuple[TopicPartition, ...]
    problems: tuple[Problem, ...]


def encode_question(
    partitions: Collection[TopicPartition],
    *,
    log_ends: bool,
    topics: Collection[str] | None = (),
) -> bytes:
    """Agents of earlier releases know no topics: they list those replicas among the others."""
    body: dict[str, Any] = {"version": VERSION, "partitions": _by_topic(partitions)}
    body["log_ends"] = log_ends
    if topics is None:
        body["all"] = True
    elif topics:
        body["topics"] = sorted(topics)
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def decode_question(data: bytes) -> Question:
    body = read_object(data, "question")
    check_version(body)
    log_ends = read_flag(body.get("log_ends", True), "log_ends")
    topics = None
    if not read_flag(body.get("all", False), "all"):
        listed = read_list(body.get("topics", []), "topics")
        topics = frozenset(read_text(each, "topics") for each in listed)
    partitions = frozenset(_partitions(body.get("partitions"), "partitions"))
    return Question(partitions, log_ends, topics)


def encode_answer(broker: int, at_ms: int, disk: Disk) -> bytes:
    body = {
        "version": VERSION,
        "broker": broker,
        "at_ms": at_ms,
        "replicas": [replica_value(each) for each in disk.replicas.values()],
        "others": _by_topic(disk.others[:MOST_OTHERS]),
        "problems": [problem_value(each) for each in disk.problems],
    }
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def replica_value(replica: DiskReplica) -> dict[str, Any]:
    sometimes = {
        "broken_at": replica.broken_at,
        "size": replica.size,
        "cleaner_known": None if replica.cleaner_known else False,
    }
    return {key: value for key, value in sometimes.items() if value is not None} | {
        "topic": replica.partition.topic,
        "partition": replica.partition.partition,
        "log_dir": replica.log_dir,
        "online": replica.online,
        "topic_id": replica.topic_id,
        "log_start_offset": replica.log_start_offset,
        "high_watermark": replica.high_watermark,
        "recovery_point": replica.recovery_point,
        "log_end_offset": replica.log_end_offset,
        "lineage": None if replica.lineage is None else [list(each) for each in replica.lineage],
        "read_at_ms": replica.read_at_ms,
        "cleaner_offset": replica.cleaner_offset,
    }


def problem_value(problem: Problem) -> dict[str, Any]:
    return {
        "place": problem.place,
        "kind": problem.kind.value,
        "reason": problem.reason,
        "remedy": problem.remedy,
        "topic": problem.topic,
        "partition": problem.partition,
        "at_once": problem.at_once,
    }


def decode_answer(data: bytes) -> AgentAnswer:
    body = read_object(data, "answer")
    check_version(body)
    replicas = [_replica(each) for each in read_list(body.get("replicas"), "replicas")]
    return AgentAnswer(
        read_number(body.get("broker"), "broker", bits=32),
        read_number(body.get("at_ms"), "at_ms"),
        {each.partition: each for each in replicas},
        tuple(_partitions(body.get("others"), "others")),
        tuple(_problem(each) for each in read_list(body.get("problems"), "problems")),
    )


def _replica(found: object) -> DiskReplica:
    body = read_dict(found, "replica")
    partition = read_partition(body.get("topic"), body.get("partition"))
    topic_id, lineage = body.get("topic_id"), body.get("lineage")
    if topic_id is not None:
        try:
            topic_id = parse_topic_id(read_text(topic_id, "topic_id"), str(partition))
        except FormatError as error:
            raise AgentFormatError("topic_id", error.found, error.expected) from None
    return DiskReplica(
        partition,
        read_text(body.get("log_dir"), "log_dir"),
        online=read_flag(body.get("online"), "online"),
        topic_id=topic_id,
        log_start_offset=_optional(body, "log_start_offset"),
        high_watermark=_optional(body, "high_watermark"),
        recovery_point=_optional(body, "recovery_point"),
        log_end_offset=_optional(body, "log_end_offset"),
        lineage=None if lineage is None else _lineage(lineage),
        read_at_ms=_optional(body, "read_at_ms"),
        cleaner_offset=_optional(body, "cleaner_offset"),
        broken_at=_optional(body, "broken_at"),
        size=_optional(body, "size"),
        # Agents of earlier releases do not tell it.
        cleaner_known=read_flag(body.get("cleaner_known", True), "cleaner_known"),
    )


def _lineage(found: object) -> Lineage:
    entries = []
    for each in read_list(found, "lineage"):
        pair = read_list(each, "lineage entry")
        if len(pair) != 2:
            raise AgentFormatError("lineage entry", shown(pair), "an epoch and a start offset")
        # Any sign: what the file says is judged by the rules, not here.
        epoch = read_number(pair[0], "epoch", bits=32, least=-(1 << 31))
        entries.append(EpochEntry(epoch, read_number(pair[1], "start offset", least=-(1 << 63))))
    return tuple(entries)


def _problem(found: object) -> Problem:
    from tidestaff.connectors.broker_health import Problem  # noqa: PLC0415 - slow, and rare
    from tidestaff.consistency.model import ProblemKind  # noqa: PLC0415

    body = read_dict(found, "problem")
    kind = read_text(body.get("kind"), "kind")
    if kind not in _OWN_KINDS:
        raise AgentFormatError("kind", shown(kind), f"one of {', '.join(sorted(_OWN_KINDS))}")
    topic, partition = body.get("topic"), body.get("partition")
    return Problem(
        read_text(body.get("place"), "place"),
        ProblemKind(kind),
        read_text(body.get("reason"), "reason"),
        read_text(body.get("remedy"), "remedy"),
        topic=None if topic is None else _topic(topic),
        at_once=read_flag(body.get("at_once"), "at_once"),
        partition=None if partition is None else read_number(partition, "partition", bits=32),
    )


# -- JSON


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def read_object(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AgentFormatError(
            what, f"not JSON ({type(error).__name__})", "a JSON object"
        ) from None
    return read_dict(found, what)


def check_version(body: dict[str, Any], version: int = VERSION) -> None:
    if body.get("version") != version or body.get("version") is True:
        raise AgentFormatError("version", shown(body.get("version")), str(version))


def read_dict(found: object, field: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise AgentFormatError(field, shown(found), "a JSON object")
    return found


def read_list(found: object, field: str) -> list[Any]:
    if not isinstance(found, list):
        raise AgentFormatError(field, shown(found), "a list")
    return found


def read_flag(found: object, field: str) -> bool:
    if not isinstance(found, bool):
        raise AgentFormatError(field, shown(found), "true or false")
    return found


def read_text(found: object, field: str) -> str:
    """Text that can be written down again: JSON may hold half a character."""
    if not isinstance(found, str) or len(found) > _LONGEST_TEXT:
        raise AgentFormatError(field, shown(found), f"a text of up to {_LONGEST_TEXT} characters")
    return found.encode("utf-8", errors="backslashreplace").decode("utf-8")


def read_number(found: object, field: str, *, bits: int = 64, least: int = 0) -> int:
    if type(found) is not int or not least <= found < 1 << (bits - 1):
        raise AgentFormatError(field, shown(found), f"a whole number of {bits} bits")
    return found


def _optional(body: dict[str, Any], field: str) -> int | None:
    found = body.get(field)
    return None if found is None else read_number(found, field, least=-1)


def _topic(found: object) -> str:
    if not isinstance(found, str) or not _TOPIC.fullmatch(found):
        raise AgentFormatError("topic", shown(found), "the name of a topic")
    return found


def read_partition(topic: object, number: object) -> TopicPartition:
    return TopicPartition(_topic(topic), read_number(number, "partition", bits=32))


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def _partitions(found: object, field: str) -> list[TopicPartition]:
    listed = [
        read_partition(topic, number)
        for topic, numbers in read_dict(found, field).items()
        for number in read_list(numbers, field)
    ]
    if len(listed) > MOST_PARTITIONS:
        raise AgentFormatError(field, f"{len(listed)} partitions", f"up to {MOST_PARTITIONS}")
    return listed
