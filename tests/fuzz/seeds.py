"""Valid inputs for every target: a search that starts from nothing never gets past the first
field."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors import wire
from tidestaff.connectors.agent_answers import encode_answer, encode_question
from tidestaff.connectors.agent_digests import (
    DigestAnswer,
    DigestQuestion,
    Range,
    encode_digest_answer,
    encode_digest_question,
)
from tidestaff.connectors.broker_health import Problem
from tidestaff.connectors.disk_replica import DiskReplica
from tidestaff.connectors.log_directories import Disk
from tidestaff.consistency.batches import BatchMark, RangeDigest
from tidestaff.consistency.model import (
    Assignment,
    ClusterObservation,
    EpochEntry,
    HealthObservation,
    OffsetRange,
    PartitionObservation,
    PartitionState,
    ProblemKind,
    Registration,
    ReplicaReading,
    TopicPartition,
)
from tidestaff.consistency.versions import Mode, rules_for

from tests.connectors.disk import TOPIC_ID
from tests.connectors.old_rows import version_1
from tests.connectors.segment_bytes import GZIP, old, v2
from tests.fuzz.protocol_answers import built, usual
from tests.fuzz.targets import ANSWERS

if TYPE_CHECKING:
    from tidestaff.consistency.model import Observation

_FILES: Final = (
    "0\n2\n0 0\n3 120\n",
    "0\n2\nt 0 5\norders 1 7\n",
    f"version: 0\ntopic_id: {TOPIC_ID}",
    "#\n#Tue\ncluster.id=abc\\=\nversion=1\nnode.id=3\ndirectory.id=x\n",
    '{"version":0,"brokerEpoch":5}',
    "t-0.0123456789abcdef0123456789abcdef-delete",
    TOPIC_ID,
)
_ZNODES: Final[tuple[Any, ...]] = (
    {"version": 2, "brokerid": 1, "timestamp": "15", "kraftControllerEpoch": -1},
    7,
    {
        "version": 5,
        "host": "h",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "15",
        "endpoints": ["PLAINTEXT://h:9092", "IN://[::1]:1"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "IN": "SSL"},
        "rack": "r",
        "features": {"f": {"min_version": 1, "max_version": 2}},
    },
    {
        "version": 3,
        "topic_id": TOPIC_ID,
        "partitions": {"0": [1, 2]},
        "adding_replicas": {"0": [2]},
        "removing_replicas": {},
    },
    {
        "controller_epoch": 1,
        "leader": 1,
        "version": 1,
        "leader_epoch": 3,
        "isr": [1, 2],
        "leader_recovery_state": 1,
    },
    {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]},
    {"version": 1, "partitions": [{"topic": "t", "partition": 0}]},
    {"version": 1, "broker": 1, "event": 1},
    {"version": "1", "id": "abc"},
    {"version": 1, "broker": 1, "block_start": "0", "block_end": "999"},
    {"version": 2, "status": 1, "features": {"f": 1}},
    {
        "version": 0,
        "kraft_controller_id": 1,
        "kraft_metadata_offset": 5,
        "kraft_controller_epoch": 2,
        "kraft_metadata_epoch": 2,
    },
    {"version": 1, "config": {"retention.ms": "5"}},
)


_STATE: Final = json.dumps(_ZNODES[4])
_TREES: Final = (
    # A broker that is not named as Kafka names one, a broker more, a topic and its state.
    (
        f"/brokers/ids/\u00b2 {json.dumps(_ZNODES[2])}",
        f"/brokers/ids/4 {json.dumps(_ZNODES[2])}",
        f"/brokers/topics/u {json.dumps(_ZNODES[3])}",
        f"/brokers/topics/u/partitions/0/state {_STATE}",
        "---",
        "-/brokers/ids/4",
        "-/brokers/topics/u/partitions/0/state",
        "!/controller",
    ),
    (
        f"/admin/reassign_partitions {json.dumps(_ZNODES[5])}",
        f"/admin/preferred_replica_election {json.dumps(_ZNODES[6])}",
        "/admin/delete_topics/t ",
        f"/isr_change_notification/isr_change_0000000001 {json.dumps(_ZNODES[6])}",
        f"/log_dir_event_notification/log_dir_event_0000000001 {json.dumps(_ZNODES[7])}",
        "---",
        f"/brokers/topics/t/partitions/0/state {_STATE}",
        "/controller_epoch 8",
    ),
    (
        f"/cluster/id {json.dumps(_ZNODES[8])}",
        f"/latest_producer_id_block {json.dumps(_ZNODES[9])}",
        f"/feature {json.dumps(_ZNODES[10])}",
        "/config/topics/t " + json.dumps({"version": 1, "config": {"min.insync.replicas": "2"}}),
        "/config/brokers/1 " + json.dumps({"version": 1, "config": {"log.retention.ms": "5"}}),
        "/config/brokers/<default> " + json.dumps({"version": 1, "config": {}}),
        "---",
        f"/migration {json.dumps(_ZNODES[11])}",
        "-/brokers/topics/t",
    ),
)


def _agent() -> list[bytes]:
    t0 = TopicPartition("t", 0)
    replica = DiskReplica(
        *(t0, "/d"), topic_id=TOPIC_ID, log_end_offset=9, lineage=(EpochEntry(0, 0),), read_at_ms=1
    )
    problem = Problem("/d/t-0", ProblemKind.MALFORMED, "reason", "remedy", topic="t")
    disk = Disk((), {t0: replica}, (TopicPartition("u", 1),), (problem,))
    return [
        encode_question([t0], log_ends=True),
        encode_answer(1, 5, disk),
        b"[::1]:8471",
        b"1=http://a:8471,2=https://b:1",
    ]


def _digests() -> list[bytes]:
    offsets = OffsetRange(0, 9)
    question = DigestQuestion((Range(TopicPartition("t", 0), offsets),), check=True)
    mark = BatchMark(0, 8, 3, 77, 9, 1_000, 0, intact=True)
    answers = [
        DigestAnswer(RangeDigest(offsets, 0xABC, 2, 9, 3), (mark,)),
        DigestAnswer(RangeDigest(offsets, unreadable_at=0, reason="gone")),
    ]
    return [encode_digest_question(question), encode_digest_answer(1, answers)]


def _fetches() -> list[bytes]:
    """An answer with one record batch of four bytes, an answer without topics, and versions."""
    head = struct.pack(">iihi", 1, 0, 0, 0)
    partition = struct.pack(">ihqqqi", 0, 0, 9, 9, 0, 1) + struct.pack(">qqii", 7, 8, -1, 4)
    topic = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", 1) + partition + b"abcd"
    versions = struct.pack(">ihihhhhhh", 1, 0, 2, 1, 4, 17, 18, 0, 4)
    return [b"\0" + head + topic, b"\1" + versions, b"\0" + head + struct.pack(">i", 0)]


_SETTINGS: Final = (
    {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"},
    {"cleanup.policy": "compact,delete", "remote.storage.enable": "false"},
    {"replica.lag.time.max.ms": "30000", "inter.broker.protocol.version": "2.7-IV1"},
    {
        "leader.imbalance.check.interval.seconds": "300",
        "leader.imbalance.per.broker.percentage": "10",
        "zookeeper.session.timeout.ms": "18000",
        "auto.leader.rebalance.enable": "true",
    },
)
_PROPERTIES: Final = (
    "# a comment\nsecurity.protocol=SASL_SSL\nsasl.mechanism : PLAIN\n",
    'sasl.jaas.config=a.B required \\\n  username="u" \\\n  password="p\\u00e9";\n',
    "ssl.keystore.location /a\\ b\\:c\r\nssl.key.password=\\ud83d\\ude00\r\n",
)


def _settings() -> list[bytes]:
    nodes = [json.dumps({"version": 1, "config": each}).encode() for each in _SETTINGS]
    return [bytes([number]) + node for number in range(2) for node in nodes]


def _observations() -> list[Observation]:
    reading = ReplicaReading(
        *(1, 0, 5, 9, 3, 2, True), lineage=(EpochEntry(0, 0), EpochEntry(2, 4)), topic_id=TOPIC_ID
    )
    rules = rules_for("3.9.1", Mode.KRAFT)
    registration = Registration(1, 5, rack="r")
    return [
        PartitionObservation(
            *("c", "t", 0, 1_000, rules, PartitionState(1, 2, (1,)), Assignment((1, 2), (2,))),
            live=(registration,),
            replicas=(reading,),
            leader_again=reading,
            topic_id=TOPIC_ID,
        ),
        ClusterObservation("c", 1_000, rules, 1, 2, 2, (registration,), answering=(1,)),
        HealthObservation("c", 1_000, "s", ProblemKind.SILENT, "place", "reason", broker=1),
    ]


def _wire() -> list[bytes]:
    seen = _observations()
    rows = [wire.row_of(each) for each in seen]
    whole = [wire.to_bytes(row) for row in rows]
    return [
        *(b"\0" + data for data in whole),
        *(b"\1" + data[wire.HEADER_LENGTH :] for data in whole),
        *(bytes([2 + number]) + row.body for number, row in enumerate(rows)),
        *(b"\5" + version_1(o).body for o in seen if isinstance(o, PartitionObservation)),
    ]


def _protocol() -> list[bytes]:
    return [
        bytes([number, version - kind.min_version])
        + built(kind, usual, lambda: 1).encode(version=version)
        for number, (kind, _) in enumerate(ANSWERS)
        for version in range(kind.min_version, kind.max_version + 1)
    ]


def _numbered(inputs: list[bytes]) -> list[bytes]:
    return [bytes([number]) + data for number, data in enumerate(inputs)]


def seeds() -> dict[str, list[bytes]]:
    return {
        "checkpoint-files": _numbered([text.encode() for text in _FILES]),
        "znodes": [
            *_numbered([json.dumps(each).encode() for each in _ZNODES]),
            b'\2{"version":1,"host":"h","port":1,"jmx_port":1,"rack":"\\ud800"}',
        ],
        "znode-tree": ["\n".join(lines).encode() for lines in _TREES],
        "segments": [
            v2(0, 2) + v2(2, epoch=3, transactional=True),
            old(0, 0, 2) + old(0, 2, 3, compression=GZIP),
            old(1, 0, 2) + old(1, 2, 3, compression=GZIP) + v2(5) + bytes(40),
        ],
        "agent": _numbered(_agent()),
        "digests": _numbered(_digests()),
        "fetches": _fetches(),
        "properties": [b"\0" + text.encode() for text in _PROPERTIES],
        "settings": _settings(),
        "wire": _wire(),
        "protocol": _protocol(),
        "topic-ids": [bytes(range(16))],
    }
