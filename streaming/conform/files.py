"""Conformance of the decoders: files of a log directory, and znodes.

Where Kafka throws, a vector gives the text of its exception. Ours differ in wording on purpose, so
any `FormatError` is that error; what counts is whether the content is refused or read, and as what.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidestaff.consistency import checkpoint_files as files
from tidestaff.consistency import znodes
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import Assignment, EpochEntry, TopicPartition
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Handler,
    Vector,
    differences,
)

_SAMPLE_ID: Final = "DNNw-hXqQCOW61shM7zZ2Q"


def _compared(vector: Vector, answer: Callable[[], Mapping[str, Any]]) -> list[Difference]:
    """Compare an answer, or its refusal, with the expectation; every expected key must be known."""
    wanted = vector.expected.get("error")
    try:
        got = {**answer(), "error": None}
    except FormatError as refusal:
        return [] if wanted else [Difference("error", wanted, str(refusal))]
    if wanted:
        return [Difference("error", wanted, got)]
    if unknown := sorted(set(vector.expected) - set(got)):
        raise CannotRunError(f"expectation {', '.join(unknown)} is not understood")
    return differences(vector.expected, got)


def _file_text(vector: Vector, encode: Callable[[Any], str]) -> str:
    """The content given, or what our encoder writes for the entries given."""
    for name in ("file_text", "text"):
        if isinstance(vector.input.get(name), str):
            return str(vector.input[name])
    if isinstance(vector.input.get("lines"), Sequence):
        return "".join(f"{line}\n" for line in vector.input["lines"])
    for name in ("entries", "write", "written"):
        if name in vector.input:
            return encode(vector.input[name])
    raise CannotRunError("no file_text, lines or entries in the input")


def _leader_epoch(vector: Vector) -> list[Difference]:
    def encode(entries: Any) -> str:
        return files.encode_leader_epochs(EpochEntry(*entry) for entry in entries)

    def answer() -> Mapping[str, Any]:
        lineage = files.parse_leader_epochs(_file_text(vector, encode))
        text = files.encode_leader_epochs(lineage)
        return {"entries": lineage, "lines": files.java_lines(text), "file_text": text}

    return _compared(vector, answer)


def _offsets(entries: Any) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for topic, partition, offset in entries}


def _offset(vector: Vector) -> list[Difference]:
    def answer() -> Mapping[str, Any]:
        text = _file_text(vector, lambda entries: files.encode_offsets(_offsets(entries)))
        # Kafka's reading to the letter, topic "" included; the product itself refuses that one.
        offsets = files.parse_offsets(text, allow_empty_topic=True)
        return {"entries": sorted([*partition, offset] for partition, offset in offsets.items())}

    expected = dict(vector.expected)
    if isinstance(expected.get("entries"), list):
        expected["entries"] = sorted(expected["entries"])
    return _compared(_expecting(vector, expected), answer)


def _expecting(vector: Vector, expected: Mapping[str, Any]) -> Vector:
    return Vector(vector.id, vector.rule, vector.input, expected, vector.source)


def _lookup(vector: Vector) -> list[Difference]:
    def answer() -> Mapping[str, Any]:
        by_directory = {"log dir": _offsets(_given(vector, "entries"))}
        asked = [TopicPartition(*partition) for partition in _given(vector, "lookup")]
        return {"results": [files.lookup_offset(by_directory, "log dir", at) for at in asked]}

    return _compared(vector, answer)


def _lookup_dir(vector: Vector) -> list[Difference]:
    def answer() -> Mapping[str, Any]:
        offsets = _offsets(vector.input.get("entries", ()))
        by_directory = dict.fromkeys(_given(vector, "log_dirs"), offsets)
        partition = TopicPartition(*vector.input.get("lookup", ("foo", 0)))
        found = files.lookup_offset(by_directory, _given(vector, "lookup_dir"), partition)
        return {"result": found}

    return _compared(vector, answer)


def _clean_shutdown(vector: Vector) -> list[Difference]:
    given = vector.input
    text = given.get("file_text", given.get("text"))
    if isinstance(text, Mapping):
        text = json.dumps(text)
    if "write_broker_epoch" in given and not given.get("delete"):
        version = given.get("write_version", given.get("version", 0))
        text = files.encode_clean_shutdown(given["write_broker_epoch"], version)
    elif not {"file_text", "text", "delete"} & set(given):
        raise CannotRunError("no write_broker_epoch and no file_text in the input")
    read = files.parse_clean_shutdown(text)
    return _compared(vector, lambda: {"read": read, "broker_epoch": read, "text": text})


def _partition_metadata(vector: Vector) -> list[Difference]:
    """A symbol such as <id> stands for any topic id: ours takes its place, there and back."""
    given = vector.input
    symbol = re.search("<[a-z_ ]+>", json.dumps(given))
    name = symbol[0] if symbol else _SAMPLE_ID

    def answer() -> Mapping[str, Any]:
        if "file_text" in given or "lines" in given:
            text = _file_text(vector, str).replace(name, _SAMPLE_ID)
        elif "topic_id" not in given:
            raise CannotRunError("no topic_id and no file_text in the input")
        elif given["topic_id"] is None:
            # Without a recorded id Kafka writes nothing, and has nothing to read.
            return _metadata_facts("", None, None)
        else:
            text = files.encode_partition_metadata(given["topic_id"].replace(name, _SAMPLE_ID))
        read = files.parse_partition_metadata(text)
        topic_id = read.topic_id.replace(_SAMPLE_ID, name)
        return _metadata_facts(text.replace(_SAMPLE_ID, name), read.version, topic_id)

    return _compared(vector, answer)


def _metadata_facts(text: str, version: int | None, topic_id: object) -> Mapping[str, Any]:
    length = dict.fromkeys(("file_length", "length", "file_size", "size"), len(text.encode()))
    facts = {"version": version, "topic_id": topic_id}
    lines = files.java_lines(text)
    written = dict.fromkeys(("exists", "file_exists", "written"), bool(text))
    return {"file_text": text, "text": text, "lines": lines, **facts, **length, **written}


def _partition_metadata_record(vector: Vector) -> list[Difference]:
    def answer() -> Mapping[str, Any]:
        recorded = vector.input.get("recorded")
        then = _given(vector, "then")
        for topic_id in then if isinstance(then, list) else [then]:
            recorded = files.record_topic_id(recorded, topic_id)
        return {"recorded": recorded, "topic_id": recorded}

    return _compared(vector, answer)


def _given(vector: Vector, name: str) -> Any:
    if name not in vector.input:
        raise CannotRunError(f"no {name} in the input")
    return vector.input[name]


def _node_text(vector: Vector) -> str:
    for name in ("text", "json", "file_text"):
        if name in vector.input:
            value = vector.input[name]
            return value if isinstance(value, str) else json.dumps(value)
    raise CannotRunError("no text and no json in the input")


def _broker_id(vector: Vector) -> list[Difference]:
    def answer() -> Mapping[str, Any]:
        node = znodes.decode_broker(_given(vector, "id"), _node_text(vector))
        facts: dict[str, Any] = {"id": node.broker, "rack": node.rack, "version": node.version}
        facts["features"] = {name: list(levels) for name, levels in node.features.items()}
        facts["endpoints"] = [f"{e.listener}://{e.host}:{e.port}" for e in node.endpoints]
        listener = vector.expected.get("listener")
        endpoint = node.endpoint(listener) if listener else next(iter(node.endpoints), None)
        if endpoint is not None:
            facts |= {"listener": endpoint.listener, "host": endpoint.host, "port": endpoint.port}
            facts["security_protocol"] = endpoint.security_protocol
        return facts

    wanted = vector.expected.get("features")
    found = _compared(vector, answer)
    # A mapping is compared by the keys expected; features that nobody expected are an error too.
    if not found and wanted is not None and set(answer()["features"]) != set(wanted):
        found = [Difference("features", wanted, answer()["features"])]
    return found


def _replicas_by_partition(value: Any) -> dict[TopicPartition, list[int]]:
    """Replicas by partition, however a vector writes them: by name, or as a list of entries."""
    if isinstance(value, Mapping):
        if len(value) == 1 and next(iter(value)) in _WRAPPERS:
            return _replicas_by_partition(next(iter(value.values())))
        pairs = {files.parse_partition_directory(name): value[name] for name in value}
        return {TopicPartition(at.topic, at.partition): list(r) for at, r in pairs.items()}
    if not isinstance(value, list):
        raise CannotRunError(f"{value!r} is no assignment")
    entries = [_entry(item) for item in value]
    return {
        TopicPartition(topic, partition): list(brokers) for topic, partition, brokers in entries
    }


_WRAPPERS: Final = frozenset(
    {"partitions", "entries", "assignment", "assignments", "reassignment", "decoded", "result"}
)


def _entry(item: Any) -> tuple[str, int, list[int]]:
    if isinstance(item, Mapping):
        return item["topic"], item["partition"], item["replicas"]
    topic, partition, replicas = item
    return topic, partition, replicas


def _reassign_partitions(vector: Vector) -> list[Difference]:
    expected = vector.expected
    if "error" in expected:
        return _compared(
            vector, lambda: {"decoded": znodes.decode_reassign_partitions(_node_text(vector))}
        )
    decoded = znodes.decode_reassign_partitions(_node_text(vector))
    got = {partition: list(replicas) for partition, replicas in decoded.items()}
    if set(expected) == {"replicas"}:
        return differences([expected["replicas"]], list(got.values()), "replicas")
    wanted = _replicas_by_partition(expected)
    return [] if wanted == got else [Difference("partitions", wanted, got)]


def _reassign_partitions_encode(vector: Vector) -> list[Difference]:
    def answer() -> Mapping[str, Any]:
        text = znodes.encode_reassign_partitions(_replicas_by_partition(vector.input))
        return {"text": text, "json": json.loads(text)}

    return _compared(vector, answer)


def _topic_round_trip(vector: Vector) -> list[Difference]:
    def answer() -> Mapping[str, Any]:
        lists = (vector.input.get(name, ()) for name in ("replicas", "adding", "removing"))
        written = Assignment(*map(tuple, lists))
        topic_id = vector.input.get("topic_id")
        sent = _SAMPLE_ID if isinstance(topic_id, str) and topic_id.startswith("<") else topic_id
        node = znodes.decode_topic("t", znodes.encode_topic({0: written}, sent))
        read = node.assignment[0]
        back = topic_id if node.topic_id == sent else node.topic_id
        return {**read._asdict(), "topic_id": back, "target": read.target, "origin": read.origin}

    return _compared(vector, answer)


def _partition_state(vector: Vector) -> list[Difference]:
    def answer() -> Mapping[str, Any]:
        version = vector.input.get("zk_version", 0)
        state = znodes.decode_partition_state(_node_text(vector), zk_version=version)
        return {**state._asdict(), "recovery": state.recovery.name}

    return _compared(vector, answer)


def _controller(vector: Vector) -> list[Difference]:
    def answer() -> Mapping[str, Any]:
        node = znodes.decode_controller(_node_text(vector))
        return {**node._asdict(), "brokerid": node.broker, "id": node.broker}

    return _compared(vector, answer)


HANDLERS: Final[dict[str, Handler]] = {
    "checkpoint.leader_epoch": _leader_epoch,
    "checkpoint.offset": _offset,
    "checkpoint.lookup": _lookup,
    "checkpoint.lookup_dir": _lookup_dir,
    "checkpoint.clean_shutdown": _clean_shutdown,
    "checkpoint.partition_metadata": _partition_metadata,
    "checkpoint.partition_metadata_record": _partition_metadata_record,
    "znode.broker_id": _broker_id,
    "znode.controller": _controller,
    "znode.partition_state": _partition_state,
    "znode.reassign_partitions": _reassign_partitions,
    "znode.reassign_partitions_encode": _reassign_partitions_encode,
    "znode.topic_round_trip": _topic_round_trip,
}
