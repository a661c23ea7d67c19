"""Small files and directory names of a log directory: text to values, and back.

Kafka reads these files with Java's rules for lines, blanks and numbers, so we do: what a broker
accepts is accepted, what takes its log directory offline is refused with a `FormatError`. One
exception: an offset entry that starts with a blank, which Kafka takes for the topic "", is refused.
Every file is written beside its name and renamed, so a text is whole: old or new, never half.
"""

from __future__ import annotations

import json
import re
import unicodedata
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.partitions import EpochEntry, Lineage, TopicPartition
from tidestaff.consistency.topic_ids import parse_topic_id, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"

# Directories that Kafka keeps beside the partitions and does not load as one (tiered storage).
OTHER_DIRECTORIES: Final = frozenset({"remote-log-index-cache"})

INT32: Final = 32
INT64: Final = 64
_VERSION: Final = 0

# Java's \s and BufferedReader.readLine; Python's own ideas of blanks and line ends are wider.
_BLANKS = re.compile(r"[ \t\n\x0b\f\r]+")
_BLANK = frozenset(" \t\n\x0b\f\r")
_LINE_END = re.compile(r"\r\n|\n|\r")
_LABEL_END = re.compile(r":[ \t\n\x0b\f\r]+")
_NUMBER = re.compile(r"([+-]?)(\d+)")
_MARKED_DIRECTORY = re.compile(r"[^ \t\n\x0b\f\r]+-[^ \t\n\x0b\f\r]+\.[^ \t\n\x0b\f\r]+")
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_OFFLINE = "a broker takes the log directory offline over it"


class PartitionMetadata(NamedTuple):
    """What partition.metadata (2.8+) says: whose records this directory holds."""

    version: int
    topic_id: str


class MetaProperties(NamedTuple):
    """What meta.properties says: whose log directory this is. Version 1 is KRaft's."""

    version: int
    broker: int
    cluster_id: str | None = None
    directory_id: str | None = None


class DirectoryKind(Enum):
    """What a partition directory is for; only LOG holds a replica that counts."""

    LOG = "log"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionDirectory(NamedTuple):
    """A directory name taken apart."""

    topic: str
    partition: int
    kind: DirectoryKind = DirectoryKind.LOG


def java_lines(text: str) -> list[str]:
    """The lines Java reads: ended by LF, CR or CRLF, the last end optional."""
    lines = _LINE_END.split(text)
    return lines[:-1] if lines[-1] == "" else lines


def java_int(text: str, bits: int = INT32) -> int | None:
    """The number Integer.parseInt or Long.parseLong reads, or None where they throw.

    A sign is allowed, blanks and underscores are not; any decimal digits of the basic plane count.
    """
    if len(text) < 10 and text.isascii() and text.isdigit():
        return int(text)  # as Kafka writes nearly all of them
    match = _NUMBER.fullmatch(text)
    if match is None or any(ord(digit) > 0xFFFF for digit in match[2]):
        return None
    digits = "".join(str(unicodedata.decimal(digit)) for digit in match[2]).lstrip("0") or "0"
    # Compared by length first: Python refuses to convert very long digit strings.
    if len(digits) > 19:
        return None
    number = -int(digits) if match[1] == "-" else int(digits)
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Python would read NaN and Infinity, Jackson does not.
_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def first_json_value(text: str) -> object:
    """The first JSON value of a text, or ValueError; like Jackson, what follows is ignored.

    Unlike Jackson we refuse half a character, an escaped surrogate alone: nothing can carry it on.
    """
    try:
        found: object = _JSON.raw_decode(text.lstrip(" \t\r\n"))[0]
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return found


def parse_leader_epochs(text: str, place: str = LEADER_EPOCHS) -> Lineage:
    """leader-epoch-checkpoint: every entry in file order, as Kafka's reader hands them on.

    The reader checks neither order nor sign nor repetition; the epoch cache does (rules in epochs).
    """
    entries = []
    for number, fields in _entries(text, place, names=("epoch", "start offset")):
        epoch = _number(fields[0], INT32, place, "epoch", number)
        entries.append(EpochEntry(epoch, _number(fields[1], INT64, place, "start offset", number)))
    return tuple(entries)


def encode_leader_epochs(lineage: Iterable[EpochEntry]) -> str:
    """The text Kafka writes for these entries."""
    return _encode([f"{entry.epoch} {entry.start_offset}" for entry in lineage])


def parse_offsets(
    text: str, place: str = HIGH_WATERMARKS, *, allow_empty_topic: bool = False
) -> dict[TopicPartition, int]:
    """The offset checkpoints (high watermark, recovery point, log start, cleaner), by partition.

    A partition named twice has the later offset. A partition that the log start file leaves out
    starts at the base offset of its first segment. With `allow_empty_topic` an entry that starts
    with a blank is read as Kafka reads it; nobody who acts on the offsets wants that.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, fields in _entries(text, place, names=("topic", "partition", "offset")):
        if not fields[0] and not allow_empty_topic:
            raise FormatError(
                place, "topic", "empty", "a topic name at the start of the line, no blank", number
            )
        partition = _number(fields[1], INT32, place, "partition", number)
        offset = _number(fields[2], INT64, place, "offset", number)
        offsets[TopicPartition(fields[0], partition)] = offset
    return offsets


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """The text Kafka writes for these offsets, in the mapping's order (Kafka's is arbitrary)."""
    for partition in offsets:
        if not partition.topic or _BLANK & set(partition.topic):
            raise FormatError(
                HIGH_WATERMARKS, "topic", shown(partition.topic), "a name without blanks"
            )
    return _encode([f"{at.topic} {at.partition} {offset}" for at, offset in offsets.items()])


def lookup_offset(
    offsets_by_directory: Mapping[str, Mapping[TopicPartition, int]],
    log_directory: str,
    partition: TopicPartition,
) -> int | None:
    """The checkpointed offset of a partition in one log directory; None where it has no entry."""
    if log_directory not in offsets_by_directory:
        known = ", ".join(sorted(offsets_by_directory)) or "none"
        raise FormatError(
            log_directory,
            "log directory",
            "unknown",
            f"one of log.dirs ({known}): compare log.dirs",
        )
    return offsets_by_directory[log_directory].get(partition)


def _entries(text: str, place: str, *, names: Sequence[str]) -> Iterable[tuple[int, Sequence[str]]]:
    """Line number and fields of each entry; the count in line 2 must be exact."""
    lines = java_lines(text)
    if lines and _number(lines[0], INT32, place, "version", 1) != _VERSION:
        raise FormatError(
            place, "version", shown(lines[0]), f"{_VERSION}, the only one there is; {_OFFLINE}", 1
        )
    if len(lines) < 2:
        return []
    count = _number(lines[1], INT32, place, "number of entries", 2)
    found = []
    for number, line in enumerate(lines[2:], start=3):
        fields = _java_split(_BLANKS, line)
        if len(fields) != len(names):
            wanted = f"{len(names)} fields ({', '.join(names)}); {_OFFLINE}"
            raise FormatError(place, "entry", shown(line), wanted, number)
        found.append((number, fields))
    if len(found) != count:
        raise FormatError(
            place,
            "number of entries",
            str(count),
            f"{len(found)}, the lines that follow; {_OFFLINE}",
            2,
        )
    return found


def _java_split(pattern: re.Pattern[str], text: str) -> list[str]:
    """Pattern.split: empty strings at the end are dropped, one at the start is kept."""
    parts = pattern.split(text)
    while len(parts) > 1 and parts[-1] == "":
        parts.pop()
    return parts


def _number(text: str, bits: int, place: str, field: str, line: int) -> int:
    number = java_int(text, bits)
    if number is None:
        wanted = f"a whole number of {bits} bits without blanks; {_OFFLINE}"
        raise FormatError(place, field, shown(text), wanted, line)
    return number


def _encode(entries: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(entries)), *entries))


def parse_partition_metadata(text: str, place: str = PARTITION_METADATA) -> PartitionMetadata:
    """partition.metadata: `version: 0` and `topic_id: <id>`; later versions are accepted.

    Like Kafka we look at what follows the colon in lines 1 and 2, not at labels or further lines.
    """
    lines = java_lines(text)
    version = java_int(_labelled(lines, 0, place, "version"))
    if version is None or version < _VERSION:
        raise FormatError(place, "version", shown(lines[0]), f"{_VERSION} or later", 1)
    topic_id = parse_topic_id(_labelled(lines, 1, place, "topic_id"), place, line=2)
    return PartitionMetadata(version, topic_id)


def encode_partition_metadata(topic_id: str, version: int = _VERSION) -> str:
    """The text Kafka writes: two lines, no line end after the second."""
    return f"version: {version}\ntopic_id: {parse_topic_id(topic_id, PARTITION_METADATA)}"


def record_topic_id(recorded: str | None, topic_id: str) -> str:
    """A partition directory takes a topic id once; another id afterwards is refused."""
    if recorded is not None and recorded != topic_id:
        raise FormatError(
            PARTITION_METADATA,
            "topic_id",
            topic_id,
            f"{recorded}, which the directory belongs to: was the topic deleted and created again?",
        )
    return topic_id


def _labelled(lines: Sequence[str], index: int, place: str, label: str) -> str:
    line = lines[index] if index < len(lines) else ""
    parts = _java_split(_LABEL_END, line)
    if len(parts) != 2:
        raise FormatError(place, label, shown(line), f"'{label}: ' and a value", index + 1)
    return parts[1]


def parse_meta_properties(text: str, place: str = META_PROPERTIES) -> MetaProperties:
    """meta.properties, in Java's format of properties: broker.id in version 0, node.id in 1."""
    found = dict(_properties(text))
    version = java_int(found.get("version", ""))
    if version not in (0, 1):
        raise FormatError(place, "version", shown(found.get("version")), "0 or 1")
    key = "node.id" if version else "broker.id"
    broker = java_int(found.get(key, ""))
    if broker is None or broker < 0:
        raise FormatError(place, key, shown(found.get(key)), "a whole number from 0 on")
    cluster_id, directory_id = found.get("cluster.id"), found.get("directory.id")
    return MetaProperties(version, broker, cluster_id or None, directory_id or None)


def _properties(text: str) -> Iterable[tuple[str, str]]:
    """Keys and values as java.util.Properties reads them: a backslash joins lines and escapes."""
    joined = ""
    for line in [*java_lines(text), ""]:
        begun, part = bool(joined), line.lstrip(" \t\f")
        if not begun and part[:1] in ("", "#", "!"):
            continue
        joined += part
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        match = _PROPERTY.fullmatch(joined)
        joined = ""
        if match is not None:
            yield _unescaped(match[1]), _unescaped(match[2])


def _unescaped(text: str) -> str:
    named = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
    return _ESCAPE.sub(
        lambda m: chr(int(m[1][1:], 16)) if len(m[1]) > 1 else named.get(m[1], m[1]), text
    )


def parse_clean_shutdown(text: str | None) -> int | None:
    """The broker epoch in .kafka_cleanshutdown (3.7+); None for no file and for any other content.

    Kafka never refuses this file: up to 3.6 it is empty, and its being there is the whole message.
    """
    if text is None:
        return None
    try:
        content: Any = first_json_value(text)
    except ValueError:
        return None
    if not isinstance(content, dict) or not _whole(content.get("version", 0), INT32):
        return None
    epoch = content.get("brokerEpoch")
    return epoch if _whole(epoch, INT64) else None


def encode_clean_shutdown(broker_epoch: int, version: int = _VERSION) -> str:
    """The text Kafka (3.7+) leaves behind when it stops cleanly."""
    return json.dumps({"version": version, "brokerEpoch": broker_epoch}, separators=(",", ":"))


def _whole(value: object, bits: int) -> bool:
    return type(value) is int and -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def parse_partition_directory(name: str) -> PartitionDirectory:
    """`T-P`, or with a mark `T-P.<id>-delete` (0.10.2+), `-future` (1.1+), `-stray` (3.6.1+).

    The topic of a delete or stray directory may be cut short: Kafka keeps those names within 255
    characters. A broker does not start over a name that is refused here, `OTHER_DIRECTORIES` apart.
    """
    kind = next(
        (k for k in DirectoryKind if k is not DirectoryKind.LOG and name.endswith(f"-{k.value}")),
        DirectoryKind.LOG,
    )
    rest = name
    if kind is not DirectoryKind.LOG:
        if not _MARKED_DIRECTORY.fullmatch(name.removesuffix(f"-{kind.value}")):
            raise FormatError(name, "directory name", shown(name), f"T-P.<id>-{kind.value}")
        rest = name[: name.rindex(".")]
    topic, dash, number = rest.rpartition("-")
    partition = java_int(number)
    if not dash or not topic or partition is None:
        raise FormatError(
            name,
            "directory name",
            shown(name),
            "<topic>-<partition>: move what is not Kafka's out of the log directory",
        )
    return PartitionDirectory(topic, partition, kind)


def partition_directory(topic: str, partition: int) -> str:
    """The name of the directory that holds a replica of this partition."""
    return f"{topic}-{partition}"
