"""Observations on the wire: one flat row each, in Avro, read back as the very same observation.

A row carries what changes every round as plain columns (times and offsets) and everything else as
`body`, Avro of its own. Whoever receives two rows of a partition sees by comparing bytes whether
anything but offsets moved. Schemas are data in conf/avro/; a record of a version that is not known
here is refused, never guessed at.
"""

from __future__ import annotations

import io
import json
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form
from tidestaff.connectors import bodies
from tidestaff.consistency.errors import ConsistencyError, FormatError
from tidestaff.consistency.model import (
    ClusterObservation,
    HealthObservation,
    PartitionObservation,
    ReplicaReading,
    TopicPartition,
)

if TYPE_CHECKING:
    from tidestaff.consistency.model import Observation

SCHEMA_VERSION: Final = 2
OLDEST_VERSION: Final = 1
_CHANGED_IN: Final = {"partition": 2}
"""Of every other schema the first version is still the one in use."""
MISSING: Final = -(2**63)
PARTITION, CLUSTER, HEALTH, GONE, TICK = "partition", "cluster", "health", "gone", "tick"
REFUSED: Final = "refused"
KINDS: Final = (PARTITION, CLUSTER, HEALTH, GONE, TICK)
SINGLE_OBJECT_MARK: Final = b"\xc3\x01"
HEADER_LENGTH: Final = len(SINGLE_OBJECT_MARK) + 8


class Row(NamedTuple):
    """One observation as it travels. The fields are the columns everywhere: Avro, Parquet, Spark.

    `previous_at_ms` names the row of the same source and subject before this one, so that a row
    that is missing or late is noticed where it is missing. MISSING stands for a number that was not
    read.
    """

    schema_version: int
    kind: str
    cluster: str
    source: str
    subject: str
    observed_at_ms: int
    previous_at_ms: int
    round: int
    log_start_offsets: list[int]
    high_watermarks: list[int]
    log_end_offsets: list[int]
    read_at_ms: list[int]
    leader_again: list[int]
    body: bytes


class WireError(ConsistencyError):
    """A record that cannot be read, with the reason and what to do about it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}")
        self.reason, self.remedy = reason, remedy


@cache
def schema_text(name: str, version: int = SCHEMA_VERSION) -> str:
    """The Avro schema as JSON; read through the module's loader, so that a zip will do."""
    changed = _CHANGED_IN.get(name, OLDEST_VERSION)
    folder = f"v{changed if version >= changed else OLDEST_VERSION}"
    path = Path(__file__).resolve().parent.parent / "conf" / "avro" / folder / f"{name}.avsc"
    loader = __spec__.loader if __spec__ is not None else None
    assert loader is not None
    data: bytes = loader.get_data(str(path))  # type: ignore[attr-defined]
    return data.decode("utf-8")


@cache
def _schema(name: str, version: int = SCHEMA_VERSION) -> Any:
    return fastavro.parse_schema(json.loads(schema_text(name, version)))


@cache
def header(name: str = "observation", version: int = SCHEMA_VERSION) -> bytes:
    """The ten bytes before a single-object encoded record: mark and fingerprint of its schema."""
    canonical = to_parsing_canonical_form(_schema(name, version))
    return SINGLE_OBJECT_MARK + bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))


def encode(name: str, record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _schema(name), record)
    return out.getvalue()


def decode(name: str, data: bytes, version: int = SCHEMA_VERSION) -> dict[str, Any]:
    """One record that fills its bytes; anything else is not the record it claims to be."""
    stream = io.BytesIO(data)
    wanted = None if version == SCHEMA_VERSION else _schema(name)
    try:
        record = fastavro.schemaless_reader(stream, _schema(name, version), wanted)
    except (
        ValueError,
        IndexError,
        EOFError,
        KeyError,
        TypeError,
        OverflowError,
        struct.error,
    ) as e:
        raise WireError(
            f"the {name} record cannot be decoded ({type(e).__name__})",
            "look at what wrote it; it is kept in quarantine",
        ) from e
    except (MemoryError, UnicodeDecodeError) as e:  # pragma: no cover - depends on the bytes
        raise WireError(f"the {name} record is garbage", "look at what wrote it") from e
    if stream.tell() != len(data):
        raise WireError(
            f"the {name} record has {len(data) - stream.tell()} bytes too many",
            "it was written with another schema: upgrade the reader or the writer",
        )
    return record  # type: ignore[return-value]


def to_bytes(row: Row) -> bytes:
    """The row as one Kafka value: single-object encoded Avro."""
    return header() + encode("observation", row._asdict())


def from_bytes(data: bytes) -> Row:
    found = bytes(data[:HEADER_LENGTH])
    if found != header():
        if found[:2] != SINGLE_OBJECT_MARK:
            raise WireError(
                "the record is not single-object encoded Avro", "is it the topic of observations?"
            )
        raise WireError(
            f"the record has schema fingerprint {found[2:].hex()}, which this release does not "
            "know",
            "run the monitor and the collectors in the same release, the monitor upgraded first",
        )
    return Row(**decode("observation", data[HEADER_LENGTH:]))


def row_of(
    observation: Observation, previous_at_ms: int | None = None, *, body: bytes | None = None
) -> Row:
    """The row of an observation; `previous_at_ms` links it to the one before. `body` is what an
    earlier row of the partition had, where nothing but offsets changed since."""
    previous = MISSING if previous_at_ms is None else previous_at_ms
    if isinstance(observation, PartitionObservation):
        readings, again = observation.replicas, observation.leader_again
        return Row(
            SCHEMA_VERSION,
            PARTITION,
            observation.cluster,
            observation.source,
            str(TopicPartition(observation.topic, observation.partition)),
            observation.observed_at_ms,
            previous,
            observation.round,
            [_number(reading.log_start_offset) for reading in readings],
            [_number(reading.high_watermark) for reading in readings],
            [_number(reading.log_end_offset) for reading in readings],
            [_number(reading.read_at_ms) for reading in readings],
            [] if again is None else _offsets(again),
            encode(PARTITION, bodies.partition_body(observation)) if body is None else body,
        )
    kind, subject, record = _small(observation)
    return Row(
        SCHEMA_VERSION,
        kind,
        observation.cluster,
        observation.source,
        subject,
        observation.observed_at_ms,
        previous,
        observation.round,
        *([], [], [], [], []),
        encode(kind, record),
    )


def _small(observation: ClusterObservation | HealthObservation) -> tuple[str, str, dict[str, Any]]:
    if isinstance(observation, ClusterObservation):
        return CLUSTER, "", bodies.cluster_body(observation)
    return HEALTH, f"{observation.source}/{observation.place}", bodies.health_body(observation)


def signal(
    kind: str, *, cluster: str, source: str, subject: str, at_ms: int, previous_ms: int = MISSING
) -> Row:
    """A row without a body: a partition is gone, or the job's clock ticks."""
    assert kind in (GONE, TICK)
    head = (SCHEMA_VERSION, kind, cluster, source, subject, at_ms, previous_ms, 0)
    return Row(*head, [], [], [], [], [], b"")


def refused(
    reason: str, remedy: str, *, cluster: str, source: str, subject: str, at_ms: int
) -> Row:
    """A row in place of what its source could not read: it goes the way of unreadable rows."""
    head = (SCHEMA_VERSION, REFUSED, cluster, source, subject, at_ms, MISSING, 0)
    return Row(*head, [], [], [], [], [], f"{reason}\n{remedy}".encode())


def observation_of(row: Row) -> Observation:
    """The observation a row was made of; a WireError says what is wrong with it."""
    if not OLDEST_VERSION <= row.schema_version <= SCHEMA_VERSION:
        raise WireError(
            f"the row has schema version {row.schema_version}, this release reads "
            f"{OLDEST_VERSION} to {SCHEMA_VERSION}",
            "run the monitor and the collectors in the same release, the monitor upgraded first",
        )
    if row.kind == REFUSED:
        reason, _, remedy = row.body.decode("utf-8", "replace").partition("\n")
        raise WireError(reason or "what its source could not read", remedy or "look at its source")
    if row.kind not in (PARTITION, CLUSTER, HEALTH):
        raise WireError(f"a row of kind {row.kind!r} holds no observation", "look at its source")
    body = decode(row.kind, row.body, row.schema_version)
    common = {
        "cluster": row.cluster,
        "observed_at_ms": row.observed_at_ms,
        "round": row.round,
    }
    try:
        if row.kind == PARTITION:
            observation = bodies.partition_observation(body, common, readings_of(row, body))
            _same_subject(row, str(TopicPartition(observation.topic, observation.partition)))
            return observation
        if row.kind == CLUSTER:
            return bodies.cluster_observation(body, common)
        return bodies.health_observation(body, common)
    except FormatError as e:
        raise WireError(str(e), "look at what wrote the record") from e
    except ConsistencyError as e:
        raise WireError(str(e), "correct the version the collector reports") from e


def _same_subject(row: Row, subject: str) -> None:
    if row.subject != subject:
        raise WireError(
            f"the row is about {row.subject!r} and its body about {subject!r}",
            "look at what wrote it: rows and bodies were mixed up",
        )


def readings_of(
    row: Row, body: dict[str, Any]
) -> tuple[tuple[ReplicaReading, ...], ReplicaReading | None]:
    """What the replicas said, with the offsets of the row put in place."""
    columns = (row.log_start_offsets, row.high_watermarks, row.log_end_offsets, row.read_at_ms)
    replicas = body["replicas"]
    if any(len(column) != len(replicas) for column in columns):
        lengths = [len(column) for column in columns]
        raise WireError(
            f"the row has {lengths} offsets for {len(replicas)} replicas",
            "look at what wrote it: rows and bodies were mixed up",
        )
    readings = tuple(
        bodies.reading(replica, *map(_optional, numbers))
        for replica, *numbers in zip(replicas, *columns, strict=True)
    )
    again = body["leader_again"]
    if (again is None) != (not row.leader_again) or len(row.leader_again) not in (0, 4):
        raise WireError("the second reading of the leader is not whole", "look at what wrote it")
    second = None if again is None else bodies.reading(again, *map(_optional, row.leader_again))
    return readings, second


def _offsets(reading: ReplicaReading) -> list[int]:
    return [
        _number(reading.log_start_offset),
        _number(reading.high_watermark),
        _number(reading.log_end_offset),
        _number(reading.read_at_ms),
    ]


def _number(value: int | None) -> int:
    return MISSING if value is None else value


def _optional(value: int) -> int | None:
    return None if value == MISSING else value
