"""Agents inside the bracket: their words are put to the brokers', and their silence changes
nothing."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.agent_answers import AgentAnswer, decode_answer, encode_answer
from tidestaff.connectors.agent_client import (
    AgentClient,
    AgentRefusesError,
    AgentSilentError,
    AgentUrls,
    _taken_apart,
    parse_agents,
)
from tidestaff.connectors.agent_digests import (
    DigestAnswer,
    DigestQuestion,
    Range,
    encode_digest_answer,
)
from tidestaff.connectors.agent_options import agent_options
from tidestaff.connectors.agent_readings import Agents, with_files
from tidestaff.connectors.broker_health import Problem
from tidestaff.connectors.broker_options import BrokerOptions
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.connectors.disk_replica import DiskReplica
from tidestaff.connectors.errors import ClusterUnreachableError, ConnectorError, OptionError
from tidestaff.connectors.log_directories import Disk
from tidestaff.consistency.batches import RangeDigest
from tidestaff.consistency.model import (
    EpochEntry,
    HealthObservation,
    LineageSource,
    OffsetRange,
    PartitionObservation,
    ProblemKind,
    ReplicaReading,
    TopicPartition,
)
from tidestaff.consistency.monitor import step
from tidestaff.streaming.lab.plan import free_ports

from tests.connectors.disk import TOPIC_ID
from tests.connectors.fake_brokers import ORDERS, FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidestaff.consistency.model import Observation

LINEAGE = (EpochEntry(0, 0), EpochEntry(3, 6))
ORDERS_ID = "id-of-orders"


class Answering(HTTPServer):
    """A real server whose answer a test chooses."""

    status, answer = 200, b""
    asked: list[tuple[dict[str, str], Any]]


class _Handler(BaseHTTPRequestHandler):
    server: Answering

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((dict(self.headers.items()), json.loads(body)))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "/v1/replicas")
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(answer: bytes = b"", status: int = 200) -> Iterator[tuple[Answering, str]]:
    server = Answering(("127.0.0.1", 0), _Handler)
    server.answer, server.status, server.asked = answer, status, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def disk(*replicas: DiskReplica, others: tuple[TopicPartition, ...] = ()) -> Disk:
    return Disk((), {each.partition: each for each in replicas}, others, ())


def asked_client(token: str | None = None, timeout_ms: int = 2_000) -> AgentClient:
    return AgentClient(token=token, timeout_ms=timeout_ms)


# -- one question


def test_a_question_names_partitions_and_carries_the_token() -> None:
    replica = DiskReplica(ORDERS, "/data", topic_id=TOPIC_ID, lineage=LINEAGE)
    with answering(encode_answer(4, 99, disk(replica))) as (server, url):
        answer = asked_client("secret-token").ask(4, url, [ORDERS])
    assert answer == AgentAnswer(4, 99, {ORDERS: replica}, (), ())
    ((headers, body),) = server.asked
    assert headers["Authorization"] == "Bearer secret-token"
    assert body == {"version": 1, "partitions": {"orders": [0]}, "log_ends": False}


def test_an_agent_of_another_broker_is_refused() -> None:
    with (
        answering(encode_answer(5, 99, disk())) as (_, url),
        pytest.raises(AgentRefusesError, match="speaks for broker 5"),
    ):
        asked_client().ask(4, url, [ORDERS])


@pytest.mark.parametrize(
    ("status", "says"), [(401, "token"), (403, "token"), (404, "404"), (503, "503"), (302, "302")]
)
def test_another_status_is_told_and_no_redirect_followed(status: int, says: str) -> None:
    with answering(b"{}", status) as (server, url):
        with pytest.raises(AgentRefusesError, match=says) as caught:
            asked_client("secret-token").ask(4, url, [ORDERS])
        assert len(server.asked) == 1
    assert "secret-token" not in str(caught.value)


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"version": 7}', b'{"version": 1}'])
def test_an_answer_that_is_not_as_agreed_is_refused(answer: bytes) -> None:
    with answering(answer) as (_, url), pytest.raises(AgentRefusesError, match="expected"):
        asked_client().ask(4, url, [ORDERS])


def test_digests_of_another_version_are_never_compared() -> None:
    """An agent of an earlier release hashes otherwise: its logs would seem to be other logs."""
    question = DigestQuestion((Range(ORDERS, OffsetRange(0, 9)),))
    answer = DigestAnswer(RangeDigest(OffsetRange(0, 9), 5, 1, 9))
    told = encode_digest_answer(4, [answer])
    with answering(told) as (server, url):
        assert asked_client().ask_digests(4, url, question) == (answer,)
    assert server.asked[0][1]["version"] == 2
    with (
        answering(told.replace(b'"version":2', b'"version":1')) as (_, url),
        pytest.raises(AgentRefusesError, match=r"version is 1.*expected 2"),
    ):
        asked_client().ask_digests(4, url, question)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", (200, b"{}")),
        (b"HTTP/1.1 503 x\r\ncontent-length:2\r\nA: b\r\n\r\n{}rest", (503, b"{}")),
        (b"HTTP/1.0 200\r\n\r\n{}", (200, b"{}")),
    ],
    ids=["an-agent", "a-proxy", "no-length-is-up-to-the-end"],
)
def test_an_answer_has_a_status_and_a_body(answer: bytes, expected: tuple[int, bytes]) -> None:
    assert _taken_apart(answer) == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"220 mail.example ESMTP",
        b"HTTP/2 200\r\n\r\n{}",
        b"HTTP/1.0 2000 OK\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n{}",
    ],
)
def test_what_is_no_whole_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError, match="no whole answer"):
        _taken_apart(answer)


def test_a_token_that_ends_its_line_is_not_sent() -> None:
    with answering(b"{}") as (server, url):
        with pytest.raises(AgentSilentError):
            asked_client("secret\r\nX: y").ask(4, url, [ORDERS])
        assert not server.asked


def test_nobody_there_is_silence() -> None:
    (port,) = free_ports(1)
    with pytest.raises(AgentSilentError, match="broker 4"):
        asked_client().ask(4, f"http://127.0.0.1:{port}", [ORDERS])


def test_an_agent_that_does_not_come_to_its_end_is_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidestaff.connectors.agent_client.LARGEST_ANSWER", 1_000)
    with answering(b"x" * 5_000) as (_, url), pytest.raises(AgentSilentError):
        asked_client().ask(4, url, [ORDERS])


def test_an_agent_that_sends_a_byte_now_and_then_is_silence() -> None:
    """Its headers would be whole in the end, and its answer be refused for what it is not."""
    client, gone = asked_client(timeout_ms=300), threading.Event()

    def drip() -> None:
        connection = listener.accept()[0]
        with connection, suppress(OSError):
            connection.recv(65_536)
            for byte in b"HTTP/1.0 200 OK\r\nX-" + b"a" * 60 + b": b\r\n\r\n":
                connection.sendall(bytes([byte]))
                gone.wait(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(AgentSilentError, match=r"broker 4 .*TimeoutError"):
            client.ask(4, url, [ORDERS])
        gone.set()
        thread.join()


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "a\r\nX: y", "[", "a b", "", "\u00fc" * 80])
def test_a_host_that_is_none_is_silence(host: str) -> None:
    url = parse_agents("http://{host}:8471").of(4, host)
    assert url is not None
    with pytest.raises(AgentSilentError, match="broker 4"):
        asked_client(timeout_ms=500).ask(4, url, [ORDERS])


# -- options


@pytest.mark.parametrize(
    ("text", "host", "url"),
    [
        ("http://{host}:8471", "b1.example", "http://b1.example:8471"),
        ("https://{host}:8471/", "b1", "https://b1:8471/"),
        ("http://{host}:8471", "2001:db8::1", "http://[2001:db8::1]:8471"),
        ("http://{host}:8471", None, None),
        ("1=http://a:1, 4=https://b:2", "b1", "https://b:2"),
        ("1=http://a:1", "b1", None),
    ],
)
def test_agents_are_named_by_broker_or_by_a_pattern(
    text: str, host: str | None, url: str | None
) -> None:
    assert parse_agents(text).of(4, host) == url


@pytest.mark.parametrize(
    "text",
    ["", "host:8471", "ftp://a:1", "http://", "1=http://a,two=http://b", "1=", "http://u:p@a:1",
     "http://a:1/path", "http://a:99999", "http://a:1?x=1", "1=http://a:1;2=http://b:2"],
)  # fmt: skip
def test_what_names_no_agent_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="agents"):
        parse_agents(text)


def test_options_of_agents_are_taken_and_the_rest_left() -> None:
    found, rest, hidden = agent_options(
        {"agents": "http://{host}:8471", "agents_timeout_ms": 500, "bootstrap_servers": "b:1"},
        {"agents_token": "a-secret-token", "sasl.password": "p"},
    )
    assert found is not None
    assert found.urls == AgentUrls({}, "http://{host}:8471")
    assert (rest, hidden) == ({"bootstrap_servers": "b:1"}, {"sasl.password": "p"})
    assert "a-secret-token" not in repr(found)
    assert agent_options({"bootstrap_servers": "b:1"}, {})[0] is None


@pytest.mark.parametrize(
    ("options", "secrets", "says"),
    [
        ({"agents": "http://a:1", "agents_timeout_ms": 0}, {}, "agents_timeout_ms"),
        ({"agents": "http://a:1", "agents_timeout_ms": True}, {}, "agents_timeout_ms"),
        ({"agents": "http://a:1", "agents_ca": "/nowhere.pem"}, {}, "agents_ca"),
        ({"agents": "http://a:1", "agents_token": "x-y-z"}, {}, "under secrets"),
        ({"agents": "http://a:1"}, {"agents_token": "x-y-z\r\nX: y"}, "header"),
    ],
)
def test_a_wrong_option_is_named_without_its_value(
    options: dict[str, object], secrets: dict[str, str], says: str
) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        agent_options(options, secrets)
    assert "x-y-z" not in str(caught.value)


# -- a reading and its files


def test_the_file_counts_where_there_is_one() -> None:
    reading = ReplicaReading(
        1, log_end_offset=9, lineage=(EpochEntry(0, 0),), topic_id="old",
        lineage_source=LineageSource.LEADER_ANSWERS,
    )  # fmt: skip
    found = with_files(reading, DiskReplica(ORDERS, "/d", topic_id=TOPIC_ID, lineage=LINEAGE))
    assert (found.lineage, found.lineage_source) == (LINEAGE, LineageSource.CHECKPOINT_FILE)
    assert (found.topic_id, found.log_end_offset, found.log_dir_online) == (TOPIC_ID, 9, True)
    # Nothing in the files: the broker's words stand.
    assert with_files(reading, DiskReplica(ORDERS, "/d")) == reading
    assert with_files(reading, None) == reading
    gone = with_files(reading, DiskReplica(ORDERS, "/d", online=False))
    assert gone == reading._replace(log_dir_online=False)


# -- rounds with agents


class Disks:
    """Stands where the HTTP client stands: an answer by broker, or an error. Tells when it was
    asked."""

    def __init__(self) -> None:
        self.answers: dict[int, AgentAnswer | Exception] = {}
        self.asked: list[tuple[int, str]] = []
        self.before: Callable[[str], None] = lambda _: None

    def ask(self, broker: int, url: str, wanted: Any) -> AgentAnswer:
        self.before(f"agent {broker}")
        self.asked.append((broker, url))
        found = self.answers[broker]
        if isinstance(found, Exception):
            raise found
        return found

    def hold(self, broker: int, replica: DiskReplica, **more: Any) -> None:
        answer = AgentAnswer(broker, 0, {replica.partition: replica}, (), ())
        self.answers[broker] = answer._replace(**more)


class Resting:
    """Who rests is what a test says."""

    def __init__(self) -> None:
        self.now: set[int] = set()

    def resting(self, broker: int, _: int) -> bool:
        return broker in self.now

    def failed(self, *_: object) -> None: ...
    def succeeded(self, *_: object) -> None: ...


class Watched:
    """A connector with agents, whose clock moves by one round at a time."""

    def __init__(self, *, epochs: bool = True) -> None:
        self.cluster, self.disks, self.now_ms = FakeCluster.with_topic(), Disks(), 1_000_000
        self.rest = Resting()
        self.hosts: dict[int, str] | ConnectorError = {1: "a", 2: "b", 3: "c"}
        lineage = ((0, 0),) if epochs else ()
        for broker in (1, 2, 3):
            entries = tuple(EpochEntry(*entry) for entry in lineage)
            self.disks.hold(broker, DiskReplica(ORDERS, "/data", lineage=entries))
        agents = Agents(
            AgentUrls({}, "http://{host}:1"),
            self.disks,  # type: ignore[arg-type]
            self._locate,
            self.rest,  # type: ignore[arg-type]
            lambda: self.now_ms,
        )
        self.connector = BrokerConnector(
            self.cluster,
            "west",
            BrokerOptions("somewhere:9092", jitter_ms=0),
            now_ms=lambda: self.now_ms,
            sleep=lambda _: None,
            seed=1,
            agents=agents,
        )
        self.memory: Any = None

    def _locate(self) -> dict[int, str]:
        if isinstance(self.hosts, ConnectorError):
            raise self.hosts
        return self.hosts

    def round(self) -> list[Observation]:
        self.now_ms += 5_000
        return self.connector.round()

    def partition(self) -> PartitionObservation:
        (found,) = [each for each in self.round() if isinstance(each, PartitionObservation)]
        return found

    def raised(self, rounds: int = 3) -> set[str]:
        """The codes violated in the last of so many rounds."""
        codes: set[str] = set()
        for _ in range(rounds):
            self.memory, verdicts = step(self.memory, self.partition())
            codes = {each.code for each in verdicts.violated}
        return codes

    def health(self, rounds: int = 1) -> dict[str, HealthObservation]:
        found: list[Observation] = []
        for _ in range(rounds):
            found = self.round()
        return {each.place: each for each in found if isinstance(each, HealthObservation)}


def test_every_replica_has_the_lineage_of_its_file() -> None:
    watch = Watched()
    seen = watch.partition()
    assert {(r.broker, r.lineage, r.lineage_source) for r in seen.replicas} == {
        (broker, (EpochEntry(0, 0),), LineageSource.CHECKPOINT_FILE) for broker in (1, 2, 3)
    }
    assert set(watch.disks.asked) == {(1, "http://a:1"), (2, "http://b:1"), (3, "http://c:1")}
    assert watch.raised() == set()


def test_agents_are_asked_after_the_log_end_and_inside_the_bracket() -> None:
    watch = Watched()
    asked: list[str] = []
    watch.cluster.before = watch.disks.before = asked.append
    watch.round()
    of_two = [each for each in asked if each.endswith(" 2")]
    assert of_two.index("agent 2") > max(n for n, each in enumerate(of_two) if "latest" in each)
    metadata = [number for number, each in enumerate(asked) if each == "metadata"]
    agents = [number for number, each in enumerate(asked) if each.startswith("agent")]
    assert metadata[0] < min(agents)
    assert max(agents) < metadata[-1]


@pytest.mark.parametrize(
    "error",
    [
        AgentSilentError(2, "http://b:1", "refused"),
        AgentRefusesError(2, "http://b:1", "speaks for broker 9", "mend it"),
    ],
)
def test_an_agent_that_fails_is_a_problem_and_no_verdict(error: Exception) -> None:
    watch = Watched()
    watch.disks.answers[2] = error
    seen = watch.partition()
    by_broker = {r.broker: r for r in seen.replicas}
    assert by_broker[2].lineage_source is not LineageSource.CHECKPOINT_FILE
    assert by_broker[2].log_end_offset == 10
    assert by_broker[2].log_dir_online
    assert by_broker[3].lineage_source is LineageSource.CHECKPOINT_FILE
    assert watch.raised() == set()

    told = watch.health()["agent of broker 2"]
    silent = isinstance(error, AgentSilentError)
    assert told.problem is (ProblemKind.SILENT if silent else ProblemKind.UNREADABLE)
    assert told.broker == 2
    watch.disks.hold(2, DiskReplica(ORDERS, "/data", lineage=(EpochEntry(0, 0),)))
    assert watch.health()["agent of broker 2"].problem is ProblemKind.OK


def test_an_agent_that_fails_is_asked_once_a_round_and_rests() -> None:
    watch = Watched()
    watch.disks.answers[1] = AgentSilentError(1, "http://a:1", "refused")
    watch.round()
    assert [each for each, _ in watch.disks.asked].count(
        1
    ) == 1  # leads, so it would be asked twice
    watch.rest.now = {1}
    watch.disks.asked.clear()
    told = watch.health(3)
    assert [each for each, _ in watch.disks.asked if each == 1] == []
    assert told["agent of broker 1"].problem is ProblemKind.SILENT


def test_hosts_that_cannot_be_told_now_are_those_known_before() -> None:
    watch = Watched()
    watch.round()
    known, watch.hosts = watch.hosts, ClusterUnreachableError("b:1", "gone")
    assert {r.lineage_source for r in watch.partition().replicas} == {LineageSource.CHECKPOINT_FILE}
    watch.hosts = known
    assert watch.raised() == set()


def test_problems_travel_with_their_partition() -> None:
    problem = Problem("/d/t-3/x", ProblemKind.UNREADABLE, "why", "mend", topic="t", partition=3)
    sent = encode_answer(1, 7, disk()._replace(problems=(problem,)))
    assert decode_answer(sent).problems == (problem,)
    older = sent.replace(b'"partition":3,', b"")
    assert older != sent
    assert decode_answer(older).problems == (replace(problem, partition=None),)


def test_what_agents_could_not_read_is_passed_on_with_their_broker() -> None:
    watch = Watched()
    problem = Problem(
        "/data/orders-0/leader-epoch-checkpoint",
        ProblemKind.MALFORMED,
        "version is x",
        "mend",
        topic="orders",
        at_once=True,
        partition=0,
    )
    watch.disks.hold(2, DiskReplica(ORDERS, "/data"), problems=(problem,))
    told = watch.health()["broker 2: /data/orders-0/leader-epoch-checkpoint"]
    assert (told.problem, told.broker, told.reason) == (ProblemKind.MALFORMED, 2, "version is x")
    assert (told.topic, told.partition) == ("orders", 0)


@pytest.mark.parametrize(
    ("partition", "stray"),
    [
        pytest.param(TopicPartition("orders", 7), True, id="a-partition-that-is-not"),
        pytest.param(TopicPartition("unseen", 0), False, id="a-topic-we-may-not-see"),
        pytest.param(ORDERS, False, id="assigned"),
    ],
)
def test_a_directory_that_is_assigned_to_nobody_here_is_told(
    partition: TopicPartition, stray: bool
) -> None:
    watch = Watched()
    watch.disks.hold(2, DiskReplica(ORDERS, "/data"), others=(partition,))
    told = watch.health(3)
    assert (f"broker 2: {partition}" in told) is stray
    if stray:
        assert told[f"broker 2: {partition}"].problem is ProblemKind.STRAY_DIRECTORY


def test_a_directory_of_another_topic_is_found() -> None:
    watch = Watched()
    watch.disks.hold(
        2, DiskReplica(ORDERS, "/data", topic_id=TOPIC_ID, lineage=(EpochEntry(0, 0),))
    )
    assert "LOG004" in watch.raised(15)  # a topic made again may be told late: a minute of grace


def test_a_lineage_that_disagrees_below_the_watermark_is_found() -> None:
    watch = Watched()
    for broker in (1, 3):
        watch.cluster.replicas[broker, ORDERS] = replace(
            watch.cluster.replicas[broker, ORDERS], lineage=((0, 0), (3, 6)), epoch=3
        )
        watch.disks.hold(broker, DiskReplica(ORDERS, "/data", lineage=LINEAGE))
    watch.cluster.replicas[2, ORDERS] = replace(watch.cluster.replicas[2, ORDERS], epoch=3)
    known = watch.cluster.partitions[ORDERS]
    watch.cluster.partitions[ORDERS] = known._replace(leader_epoch=3)
    other = (EpochEntry(0, 0), EpochEntry(2, 5), EpochEntry(3, 6))
    watch.disks.hold(2, DiskReplica(ORDERS, "/data", lineage=other))
    assert "EPO004" in watch.raised()
    watch.disks.hold(2, DiskReplica(ORDERS, "/data", lineage=LINEAGE))
    assert watch.raised() == set()


def test_an_offline_log_directory_is_told_with_the_replica() -> None:
    watch = Watched()
    watch.disks.hold(2, DiskReplica(ORDERS, "/data", online=False))
    assert "LOG005" in watch.raised()
