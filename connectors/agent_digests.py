"""Digests of ranges asked of an agent: what travels is a few bytes for each range, never a payload.

An answer may be shorter than its question: an agent works for some seconds, answers what it has,
and is asked again for the rest. Payloads are read (`check`) at a bounded rate.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.agent_answers import (
    AgentFormatError,
    check_version,
    read_dict,
    read_flag,
    read_list,
    read_number,
    read_object,
    read_partition,
    read_text,
)
from tidestaff.consistency.batches import BatchMark, RangeDigest
from tidestaff.consistency.partitions import OffsetRange, TopicPartition
from tidestaff.consistency.topic_ids import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

DIGESTS_PATH: Final = "/v1/digests"
VERSION: Final = 2
"""Digests of another hash are another version: two agents that hash differently would seem to hold
different logs. 1 was BLAKE2b."""
MOST_RANGES: Final = 20_000


class Range(NamedTuple):
    """A range of one replica."""

    partition: TopicPartition
    offsets: OffsetRange


class DigestQuestion(NamedTuple):
    """Digests, or with `marks` the batches one by one; `check` reads payloads."""

    ranges: tuple[Range, ...]
    check: bool = False
    marks: bool = False


class DigestAnswer(NamedTuple):
    """Of one range."""

    digest: RangeDigest
    marks: tuple[BatchMark, ...] = ()


class DigestsAnswer(NamedTuple):
    """Of the first ranges of a question, in their order."""

    broker: int
    answers: tuple[DigestAnswer, ...]


# -- JSON


def encode_digest_question(question: DigestQuestion) -> bytes:
    body = {
        "version": VERSION,
        "check": question.check,
        "marks": question.marks,
        "ranges": [[*each.partition, *each.offsets] for each in question.ranges],
    }
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def decode_digest_question(data: bytes) -> DigestQuestion:
    body = read_object(data, "question")
    check_version(body, VERSION)
    listed = read_list(body.get("ranges"), "ranges")
    if not 0 < len(listed) <= MOST_RANGES:
        raise AgentFormatError("ranges", f"{len(listed)} ranges", f"1 to {MOST_RANGES}")
    return DigestQuestion(
        tuple(_range(each) for each in listed),
        read_flag(body.get("check"), "check"),
        read_flag(body.get("marks"), "marks"),
    )


def _range(found: object) -> Range:
    parts = read_list(found, "range")
    if len(parts) != 4:
        raise AgentFormatError("range", shown(found), "topic, partition, start and end")
    topic, partition, *bounds = parts
    start, end = (read_number(each, "offset") for each in bounds)
    if end <= start:
        raise AgentFormatError("range", shown(found), "an end above the start")
    return Range(read_partition(topic, partition), OffsetRange(start, end))


def encode_digest_answer(broker: int, answers: Sequence[DigestAnswer]) -> bytes:
    body = {"version": VERSION, "broker": broker, "answers": [_value(each) for each in answers]}
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def _value(answer: DigestAnswer) -> dict[str, Any]:
    """What is not there is left out: most answers are one digest."""
    found = answer.digest
    value: dict[str, Any] = {
        "range": list(found.offsets),
        "digest": f"{found.digest:x}",
        "batches": found.batches,
        "records": found.records,
    }
    for name in ("last_epoch", "invalid_at", "starts_at", "unreadable_at"):
        if getattr(found, name) is not None:
            value[name] = getattr(found, name)
    if found.reason:
        value["reason"] = found.reason
    if answer.marks:
        value["marks"] = [list(each) for each in answer.marks]
    return value


def decode_digest_answer(data: bytes) -> DigestsAnswer:
    body = read_object(data, "answer")
    check_version(body, VERSION)
    answers = [_answer(each) for each in read_list(body.get("answers"), "answers")]
    return DigestsAnswer(read_number(body.get("broker"), "broker", bits=32), tuple(answers))


def _answer(found: object) -> DigestAnswer:
    body = read_dict(found, "answer")
    bounds = read_list(body.get("range"), "range")
    if len(bounds) != 2:
        raise AgentFormatError("range", shown(bounds), "start and end")
    start, end = (read_number(each, "offset") for each in bounds)
    try:
        digest = int(read_text(body.get("digest"), "digest"), 16)
    except ValueError:
        raise AgentFormatError("digest", shown(body.get("digest")), "a number") from None

    def optional(name: str) -> int | None:
        value = body.get(name)
        return None if value is None else read_number(value, name, least=-1)

    told = RangeDigest(
        OffsetRange(start, end),
        digest,
        read_number(body.get("batches"), "batches"),
        read_number(body.get("records"), "records"),
        optional("last_epoch"),
        optional("invalid_at"),
        optional("starts_at"),
        optional("unreadable_at"),
        read_text(body.get("reason", ""), "reason"),
    )
    marks = read_list(body.get("marks", []), "marks")
    return DigestAnswer(told, tuple(_mark(each) for each in marks))


def _mark(found: object) -> BatchMark:
    parts = read_list(found, "mark")
    if len(parts) != len(BatchMark._fields):
        raise AgentFormatError("mark", shown(parts), f"{len(BatchMark._fields)} values")
    *numbers, intact = parts
    read = [None if each is None else read_number(each, "mark", least=-1) for each in numbers]
    first, last, epoch, crc, records, time_ms, attributes = read
    if first is None or last is None or crc is None:
        raise AgentFormatError("mark", shown(parts), "offsets and a checksum")
    known = None if intact is None else read_flag(intact, "intact")
    return BatchMark(first, last, epoch, crc, records, time_ms, attributes or 0, known)
