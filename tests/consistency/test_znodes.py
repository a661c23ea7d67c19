"""Znodes of every version are read as Kafka reads them."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency import znodes
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import Assignment, PartitionState, RecoveryState, TopicPartition
from tidestaff.consistency.znodes import Controller, Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

ID = "DNNw-hXqQCOW61shM7zZ2Q"
SECOND_TOPIC = {0: (1, 0, 2), 1: (0, 2, 1), 2: (2, 1, 0), 3: (1, 2, 0)}
TREE_3_8 = [
    "/admin",
    "/admin/delete_topics",
    "/brokers/ids/0",
    "/brokers/seqid",
    "/brokers/topics/__consumer_offsets/partitions",
    "/brokers/topics/disTopic",
    "/brokers/topics/disTopic/partitions/0/state",
    "/brokers/topics/test",
    "/cluster/id",
    "/config/topics/other",
    "/consumers",
    "/controller",
    "/controller_epoch",
    "/feature",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/zookeeper/quota/brokers/topics/no",
]
V5: dict[str, Any] = {
    "features": {},
    "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
    "endpoints": ["PLAINTEXT://host1:9092"],
    "jmx_port": -1,
    "host": "host1",
    "port": 9092,
    "version": 5,
    "timestamp": "1723447688000",
}
STATE = {"controller_epoch": 20, "leader": 1, "version": 1, "leader_epoch": 2, "isr": [1, 0]}
MIGRATION = {
    "version": 0,
    "kraft_controller_id": 3000,
    "kraft_controller_epoch": 2,
    "kraft_metadata_offset": 2**40,
    "kraft_metadata_epoch": 2,
}


@pytest.mark.parametrize(
    ("text", "controller"),
    [
        pytest.param(
            '{"version":2,"brokerid":2,"timestamp":"1723447688383","kraftControllerEpoch":-1}',
            Controller(2, 1723447688383, -1),
            id="S-03: format 2",
        ),
        pytest.param(
            '{"version":1,"brokerid":0,"timestamp":"1661492503848"}',
            Controller(0, 1661492503848, -1),
            id="S-03: format 1 has no KRaft epoch, which means a ZooKeeper controller",
        ),
        pytest.param(
            '{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":5}',
            Controller(3000, 1, 5),
            id="a KRaft controller during migration",
        ),
        pytest.param(
            '{"version":9,"brokerid":1,"timestamp":7,"x":{}}',
            Controller(1),
            id="later versions, unknown keys and an odd timestamp do not matter",
        ),
    ],
)
def test_controller(text: str, controller: Controller) -> None:
    assert znodes.decode_controller(text) == znodes.decode_controller(text.encode()) == controller


@pytest.mark.parametrize(("text", "epoch"), [("20", 20), ("+1", 1), ("0", 0)])
def test_controller_epoch_is_plain_text(text: str, epoch: int) -> None:
    assert znodes.decode_controller_epoch(text.encode()) == epoch


@pytest.mark.parametrize("text", ["", "20\n", " 20", "{}", "2147483648", "1.0"])
def test_controller_epoch_that_kafka_refuses(text: str) -> None:
    with pytest.raises(FormatError, match="/controller_epoch"):
        znodes.decode_controller_epoch(text)


def test_a_broker_of_version_5() -> None:
    node = znodes.decode_broker(1, json.dumps(V5))
    assert node == (1, (Endpoint("PLAINTEXT", "host1", 9092),), None, {}, 5, -1, 1723447688000)


def test_a_broker_of_version_1_has_one_plaintext_endpoint() -> None:
    old = {"version": 1, "host": "h", "port": 9091, "jmx_port": -1, "timestamp": "1"}
    assert znodes.decode_broker(7, json.dumps(old)).endpoints == (Endpoint("PLAINTEXT", "h", 9091),)


@pytest.mark.parametrize(
    ("endpoints", "found"),
    [
        pytest.param([], [], id="none"),
        pytest.param(["plaintext://:9092"], [("PLAINTEXT", None, 9092)], id="any interface"),
        pytest.param(["PLAINTEXT://[::1]:1"], [("PLAINTEXT", "::1", 1)], id="an IPv6 address"),
        pytest.param(
            ["PLAINTEXT://a:1, SSL://b:2"], [("PLAINTEXT", "a", 1), ("SSL", "b", 2)], id="one text"
        ),
    ],
)
def test_endpoints(endpoints: list[str], found: list[tuple[str, str | None, int]]) -> None:
    node = {"version": 2, "jmx_port": 1, "endpoints": endpoints, "host": None, "port": -1}
    read = znodes.decode_broker(1, json.dumps(node)).endpoints
    assert [tuple(endpoint[:3]) for endpoint in read] == found


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"version": 0}, "version", id="a version below 1"),
        pytest.param({"version": "5"}, "version", id="a version that is a text"),
        pytest.param({"jmx_port": None}, "jmx_port", id="a missing number"),
        pytest.param({"endpoints": "PLAINTEXT://h:1"}, "endpoints", id="endpoints as a text"),
        pytest.param({"endpoints": [1]}, "endpoints", id="an endpoint that is a number"),
        pytest.param({"endpoints": ["h:1"]}, "endpoints", id="an endpoint without listener"),
        pytest.param({"endpoints": ["PLAINTEXT://h:9999999999"]}, "endpoints", id="a huge port"),
        pytest.param({"endpoints": ["SSL://h:1"]}, "endpoints", id="a listener without protocol"),
        pytest.param(
            {"endpoints": ["PLAINTEXT://h:1", "plaintext://h:2"]},
            "endpoints",
            id="one listener twice",
        ),
        pytest.param(
            {"listener_security_protocol_map": {"PLAINTEXT": "TLS"}},
            "security protocol",
            id="a protocol that is none",
        ),
        pytest.param({"rack": 3}, "rack", id="a rack that is a number"),
        pytest.param({"features": {"f": {"min_version": 1}}}, "max_version", id="half a range"),
        pytest.param(
            {"features": {"f": {"min_version": 2, "max_version": 1}}}, "feature f", id="no range"
        ),
    ],
)
def test_a_broker_that_kafka_refuses(change: dict[str, object], field: str) -> None:
    with pytest.raises(FormatError) as caught:
        znodes.decode_broker(1, json.dumps({**V5, **change}))
    assert (caught.value.place, caught.value.field) == ("/brokers/ids/1", field)


@pytest.mark.parametrize("topic_id", [ID, "W3mXDtj1RSWmsEhQrZjN5g"], ids=["S-12", "S-16"])
def test_the_topic_node_of_second_topic(topic_id: str) -> None:
    text = (
        '{"partitions":{"0": [1,0,2], "1": [0,2,1], "2": [2,1,0], "3": [1,2,0]}, "topic_id": '
        f'"{topic_id}", "adding_replicas": {{}}, "removing_replicas": {{}}, "version": 3}}'
    )
    node = znodes.decode_topic("secondTopic", text)
    assert node.topic_id == topic_id
    assert node.assignment == {p: Assignment(replicas) for p, replicas in SECOND_TOPIC.items()}


@pytest.mark.parametrize(
    ("node", "assignment"),
    [
        pytest.param({"version": 1, "partitions": {"0": [1, 2]}}, {0: ((1, 2), (), ())}, id="v1"),
        pytest.param(
            {
                "version": 2,
                "partitions": {"0": [3, 1, 2], "1": [1]},
                "adding_replicas": {"0": [3], "9": [5]},
                "removing_replicas": {"0": [2]},
            },
            {0: ((3, 1, 2), (3,), (2,)), 1: ((1,), (), ())},
            id="v2 with a reassignment",
        ),
        pytest.param({"version": 3, "partitions": {}}, {}, id="v3 without partitions or id"),
        pytest.param({}, {}, id="an empty object is a topic without partitions"),
        pytest.param({"partitions": {"0": [1, 1]}}, {0: ((1, 1), (), ())}, id="a replica twice"),
    ],
)
def test_topics_by_version(node: dict[str, object], assignment: dict[int, object]) -> None:
    assert znodes.decode_topic("t", json.dumps(node)).assignment == assignment


@pytest.mark.parametrize(
    "node",
    [
        pytest.param({"partitions": {"-1": [1]}}, id="a negative partition"),
        pytest.param({"partitions": {"x": [1]}}, id="a partition that is no number"),
        pytest.param({"partitions": {"0": [True]}}, id="a boolean is no broker"),
        pytest.param({"partitions": {"0": [1.0]}}, id="a fraction is no broker"),
        pytest.param({"partitions": {"0": [2**31]}}, id="a broker id of more than 32 bits"),
        pytest.param({"partitions": {"0": 1}}, id="replicas that are no list"),
        pytest.param({"partitions": [[1]]}, id="partitions as a list"),
        pytest.param({"partitions": None}, id="partitions of null"),
        pytest.param({"topic_id": None}, id="a topic id of null"),
        pytest.param({"topic_id": "CNrWfmEgSBqc9gLClmrXw"}, id="S-06: an id of 21 characters"),
        pytest.param([], id="a list"),
    ],
)
def test_topics_that_are_refused(node: object) -> None:
    with pytest.raises(FormatError, match="/brokers/topics/t: "):
        znodes.decode_topic("t", json.dumps(node))


@pytest.mark.parametrize(
    ("change", "recovery"),
    [
        pytest.param({}, RecoveryState.RECOVERED, id="S-16: partition 0"),
        pytest.param({"leader_recovery_state": 0}, RecoveryState.RECOVERED, id="recovered"),
        pytest.param({"leader_recovery_state": 1}, RecoveryState.RECOVERING, id="3.2+, unclean"),
        pytest.param({"version": 2, "later": []}, RecoveryState.RECOVERED, id="a later version"),
    ],
)
def test_partition_states(change: dict[str, object], recovery: RecoveryState) -> None:
    state = znodes.decode_partition_state(json.dumps({**STATE, **change}), zk_version=3)
    assert state == PartitionState(1, 2, (1, 0), 3, 20, recovery)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"leader": "1"}, "leader", id="a leader that is a text"),
        pytest.param({"leader": True}, "leader", id="a leader that is a boolean"),
        pytest.param({"leader_epoch": 2**31}, "leader_epoch", id="an epoch beyond 32 bits"),
        pytest.param({"isr": {}}, "isr", id="an ISR that is no list"),
        pytest.param({"isr": [None]}, "isr", id="an ISR with null"),
        pytest.param({"controller_epoch": None}, "controller_epoch", id="no controller epoch"),
        pytest.param(
            {"leader_recovery_state": 2}, "leader_recovery_state", id="a recovery state unknown"
        ),
    ],
)
def test_partition_states_that_kafka_refuses(change: dict[str, object], field: str) -> None:
    with pytest.raises(FormatError) as caught:
        znodes.decode_partition_state(json.dumps({**STATE, **change}), place="/x/state")
    assert (caught.value.place, caught.value.field) == ("/x/state", field)


def test_reassignments_are_read_and_written_to_the_letter() -> None:
    text = '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}'
    decoded = znodes.decode_reassign_partitions(text)
    assert decoded == {TopicPartition("foo", 0): (1, 2)}
    assert znodes.encode_reassign_partitions(decoded) == text


@pytest.mark.parametrize(
    "text",
    [
        "invalid json",
        "",
        "{}",
        '{"partitions":{}}',
        '{"partitions":[1]}',
        '{"partitions":[{"topic":"t","partition":0}]}',
        '{"partitions":[{"topic":"t","partition":-1,"replicas":[]}]}',
        '{"partitions":[{"topic":1,"partition":0,"replicas":[]}]}',
    ],
)
def test_reassignments_that_are_refused(text: str) -> None:
    with pytest.raises(FormatError, match="/admin/reassign_partitions"):
        znodes.decode_reassign_partitions(text)


def test_the_smaller_nodes() -> None:
    asked = '{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}'
    assert znodes.decode_partition_set(asked) == {TopicPartition("t", 0)}
    assert znodes.decode_log_dir_event('{"version":1,"broker":1,"event":1}') == 1
    assert znodes.decode_cluster_id(f'{{"version":"1","id":"{ID}"}}') == ID
    block = '{"version":1,"broker":0,"block_start":"0","block_end":"999"}'
    assert znodes.decode_producer_id_block(block) == range(1000)
    assert znodes.decode_feature('{"features":{},"version":2,"status":1}') == {}
    levels = (
        '{"features":{"f":{"max_version_level":3,"min_version_level":1}},"version":1,"status":1}'
    )
    assert znodes.decode_feature(levels) == {"f": 3}
    assert znodes.decode_migration(json.dumps(MIGRATION)) == (3000, 2, 2**40, 2)


@pytest.mark.parametrize(
    ("paths", "chroot", "topics"),
    [
        pytest.param(TREE_3_8, "", {"__consumer_offsets", "disTopic", "test"}, id="S-01"),
        pytest.param(
            [path for path in TREE_3_8 if not path.endswith("/test")],
            "/",
            {"__consumer_offsets", "disTopic"},
            id="S-02",
        ),
        pytest.param([f"/kafka/a{p}" for p in TREE_3_8], "", set(), id="another chroot's topics"),
        pytest.param(
            [f"/kafka/a{path}" for path in TREE_3_8] + ["/brokers/topics/other"],
            "/kafka/a",
            {"__consumer_offsets", "disTopic", "test"},
            id="a chroot",
        ),
        pytest.param(["/brokers/topics", "/brokers/topics/"], "", set(), id="no topics"),
    ],
)
def test_topics_of_a_tree(paths: list[str], chroot: str, topics: set[str]) -> None:
    assert znodes.topics_of(paths, chroot) == topics


def test_topics_being_deleted() -> None:
    paths = ["/admin/delete_topics", "/admin/delete_topics/gone", "/brokers/topics/gone"]
    assert znodes.topics_being_deleted(paths) == {"gone"}


def test_text_after_the_value_is_ignored_as_jackson_does() -> None:
    assert znodes.decode_controller(' {"brokerid":1} x').broker == 1


@pytest.mark.parametrize("data", [None, b"", b"\xff", "[" * 100_000, '{"brokerid":NaN}'])
def test_nodes_that_are_no_json_are_refused(data: bytes | str | None) -> None:
    with pytest.raises(FormatError, match="/controller: content"):
        znodes.decode_controller(data)


BROKERS = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)
ASSIGNMENTS = st.dictionaries(
    st.integers(0, 2**31 - 1), st.builds(Assignment, BROKERS, BROKERS, BROKERS), max_size=5
)


@given(ASSIGNMENTS, st.sampled_from([None, ID]))
def test_topics_come_back_as_written(
    assignment: dict[int, Assignment], topic_id: str | None
) -> None:
    text = znodes.encode_topic(assignment, topic_id)
    assert znodes.decode_topic("t", text.encode()) == ("t", topic_id, assignment)


@given(st.dictionaries(st.builds(TopicPartition, st.text(), st.integers(0, 2**31 - 1)), BROKERS))
def test_reassignments_come_back_as_written(
    asked: dict[TopicPartition, tuple[int, ...]],
) -> None:
    text = znodes.encode_reassign_partitions(asked)
    assert znodes.decode_reassign_partitions(text.encode()) == asked


NAMES = st.sampled_from(
    [*V5, *STATE, *MIGRATION, "brokerid", "partitions", "topic", "topic_id", "partition", "rack"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(), inner, max_size=6)
    ),
    max_leaves=12,
)
DECODERS: list[Callable[[bytes | str], object]] = [
    znodes.decode_controller,
    znodes.decode_controller_epoch,
    lambda data: znodes.decode_broker(1, data),
    lambda data: znodes.decode_topic("t", data),
    znodes.decode_partition_state,
    znodes.decode_reassign_partitions,
    znodes.decode_partition_set,
    znodes.decode_log_dir_event,
    znodes.decode_cluster_id,
    znodes.decode_producer_id_block,
    znodes.decode_feature,
    znodes.decode_migration,
]


@given(JSON.map(json.dumps) | st.text() | st.binary())
def test_no_content_raises_anything_but_a_format_error(data: bytes | str) -> None:
    for decode in DECODERS:
        with contextlib.suppress(FormatError):
            decode(data)


@given(JSON)
def test_a_broker_with_any_wrong_value_is_read_or_refused(value: object) -> None:
    for name in V5:
        with contextlib.suppress(FormatError):
            znodes.decode_broker(1, json.dumps({**V5, name: value}))
