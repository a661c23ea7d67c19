"""The agent over HTTP: what it answers, and whom it refuses."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors import agent_server
from tidestaff.connectors.agent_client import AgentClient, AgentSilentError
from tidestaff.connectors.agent_digests import (
    DigestQuestion,
    Range,
    decode_digest_answer,
    encode_digest_question,
)
from tidestaff.connectors.agent_server import (
    Agent,
    AgentServer,
    Listen,
    parse_listen,
    tls_context,
)
from tidestaff.connectors.errors import OptionError
from tidestaff.connectors.log_directories import LogDirectories
from tidestaff.consistency.model import EpochEntry, OffsetRange, TopicPartition

from tests.connectors.disk import TOPIC_ID, write_log_dir, write_replica

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOKEN = "a-token-of-enough-letters"  # noqa: S105 - of this test alone
LOCAL = Listen("127.0.0.1", 0)


@contextmanager
def serving(log_dir: Path, **options: Any) -> Iterator[AgentServer]:
    directories = LogDirectories([str(log_dir)], lambda: 1_700_000_000_000)
    server = AgentServer(LOCAL, Agent(1, directories, lambda: 1_700_000_000_000), **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "data", t_0=7, t_1=9)


@pytest.fixture
def server(log_dir: Path) -> Iterator[AgentServer]:
    with serving(log_dir) as found:
        yield found


def url(server: AgentServer, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{server.server_port}"


def client(token: str | None = None, timeout_ms: int = 5_000, ca: str | None = None) -> AgentClient:
    return AgentClient(token=token, timeout_ms=timeout_ms, ca_file=ca)


def raw(server: AgentServer, data: bytes, *, wait_s: float = 10) -> bytes:
    """Everything the server says to these bytes until it hangs up."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=wait_s) as connection:
        connection.sendall(data)
        parts = []
        try:
            while part := connection.recv(65_536):
                parts.append(part)
        except ConnectionResetError:
            pass
        return b"".join(parts)


def request(
    method: str = "GET", path: str = "/v1/health", body: bytes = b"", **headers: str
) -> bytes:
    given = {"Host": "127.0.0.1:8471", **{k.replace("_", "-"): v for k, v in headers.items()}}
    if method == "POST":
        given.setdefault("Content-Length", str(len(body)))
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in given.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def body_of(answer: bytes) -> Any:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def ask(body: object) -> bytes:
    return request("POST", "/v1/replicas", json.dumps(body).encode())


def test_wanted_replicas_are_told_and_others_named(server: AgentServer) -> None:
    answer = client().ask(1, url(server), [T0, TopicPartition("none", 0)])
    assert set(answer.replicas) == {T0}
    replica = answer.replicas[T0]
    assert replica.lineage == (EpochEntry(0, 0),)
    assert replica.topic_id == TOPIC_ID
    assert replica.high_watermark == 7
    assert answer.others == (T1,)
    assert answer.problems == ()


def test_ends_of_logs_are_read_where_they_are_asked_for(server: AgentServer) -> None:
    body = {"version": 1, "partitions": {"t": [0, 1]}, "log_ends": True}
    found = body_of(raw(server, ask(body)))
    assert [each["log_end_offset"] for each in found["replicas"]] == [10, 10]
    assert found["at_ms"] == found["replicas"][0]["read_at_ms"] == 1_700_000_000_000


@pytest.mark.parametrize("moved", [False, True], ids=["made-since", "moved-since"])
def test_contents_are_digested_also_of_a_replica_nobody_has_listed(
    tmp_path: Path, log_dir: Path, moved: bool
) -> None:
    """A replica that is there is never said to be missing, whoever asked for the list last."""
    other = write_log_dir(tmp_path / "other")
    directories = LogDirectories([str(log_dir), str(other)], lambda: 0)
    agent = Agent(1, directories, lambda: 0)
    asked = [T0, T1] if moved else [T0]
    if moved:
        directories.read(asked, log_ends=False)
        (log_dir / "t-1").rename(other / "t-1")
    else:
        write_replica(other, "u-0")
        asked.append(TopicPartition("u", 0))
    question = DigestQuestion(tuple(Range(each, OffsetRange(0, 10)) for each in asked))
    data = agent.digests(encode_digest_question(question))
    assert data is not None
    assert [each.digest.batches for each in decode_digest_answer(data).answers] == [10, 10]


def test_health_tells_directories_and_problems(server: AgentServer, log_dir: Path) -> None:
    (log_dir / "lost+found").mkdir()
    found = body_of(raw(server, request()))
    assert found["broker"] == 1
    assert found["log_dirs"][0]["partitions"] == 2
    assert [each["kind"] for each in found["problems"]] == ["stray-directory"]


class Asked:
    """An agent without its server, and a clock that goes on by a second with every question."""

    def __init__(self, log_dir: Path) -> None:
        self.now_ms = 0
        directories = LogDirectories([str(log_dir)], lambda: self.now_ms)
        self._agent = Agent(1, directories, lambda: self.now_ms)

    def replicas(self, *numbers: int) -> None:
        self.now_ms += 1_000
        body = {"version": 1, "partitions": {"t": list(numbers)}, "log_ends": False}
        assert self._agent.replicas(json.dumps(body).encode()) is not None

    def problems(self) -> dict[str, tuple[str, int]]:
        """By the end of their place: what and since when."""
        self.now_ms += 1_000
        found = self._agent.health()
        assert found is not None
        return {
            each["place"].rpartition("/data/")[2]: (each["kind"], each["since_ms"])
            for each in json.loads(found)["problems"]
        }


def test_health_tells_since_when_something_could_not_be_read(log_dir: Path) -> None:
    asked = Asked(log_dir)
    assert asked.problems() == {}
    (log_dir / "lost+found").mkdir()
    assert asked.problems() == {"lost+found": ("stray-directory", 2_000)}
    asked.replicas(0)
    assert asked.problems() == {"lost+found": ("stray-directory", 2_000)}
    (log_dir / "lost+found").rmdir()
    assert asked.problems() == {}
    (log_dir / "lost+found").mkdir()
    assert asked.problems() == {"lost+found": ("stray-directory", 6_000)}


def test_what_is_wrong_with_a_replica_stays_until_a_question_finds_it_mended(log_dir: Path) -> None:
    asked = Asked(log_dir)
    file = log_dir / "t-0" / "leader-epoch-checkpoint"
    good = file.read_bytes()
    file.write_bytes(b"nonsense")
    asked.replicas(0, 1)
    torn = {"t-0/leader-epoch-checkpoint": ("malformed", 1_000)}
    assert asked.problems() == torn
    asked.replicas(1)
    assert asked.problems() == torn
    asked.replicas(0)
    assert asked.problems() == torn
    file.write_bytes(good)
    assert asked.problems() == torn
    asked.replicas(0)
    assert asked.problems() == {}


def test_what_was_wrong_with_a_replica_that_is_gone_is_over(log_dir: Path) -> None:
    asked = Asked(log_dir)
    (log_dir / "t-0" / "leader-epoch-checkpoint").write_bytes(b"nonsense")
    asked.replicas(0)
    assert asked.problems()
    shutil.rmtree(log_dir / "t-0")
    assert asked.problems() == {}


def test_healthz_says_nothing_but_that_it_is_there(log_dir: Path) -> None:
    with serving(log_dir, token=TOKEN) as server:
        answer = raw(server, request(path="/healthz"))
    assert status(answer) == 200
    assert body_of(answer) == {"status": "ok"}


# -- who may ask


@pytest.mark.parametrize(
    ("given", "code"),
    [
        pytest.param({"Authorization": f"Bearer {TOKEN}"}, 200, id="the-token"),
        pytest.param({}, 401, id="none"),
        pytest.param({"Authorization": f"Bearer {TOKEN}x"}, 401, id="longer"),
        pytest.param({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401, id="shorter"),
        pytest.param({"Authorization": TOKEN}, 401, id="without-bearer"),
        pytest.param({"Authorization": "Bearer \xff\xfe"}, 401, id="no-text"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/health", "/v1/replicas"])
def test_only_who_knows_the_token_is_answered(
    log_dir: Path, given: dict[str, str], code: int, path: str
) -> None:
    body = json.dumps({"version": 1, "partitions": {}}).encode()
    method = "POST" if path == "/v1/replicas" else "GET"
    with serving(log_dir, token=TOKEN) as server:
        answer = raw(server, request(method, path, body if method == "POST" else b"", **given))
    assert status(answer) == code
    assert TOKEN.encode() not in answer


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1:8471", 200),
        ("localhost:8471", 200),
        ("localhost", 200),
        ("[::1]:8471", 200),
        ("evil.example:8471", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ],
)
def test_without_a_token_callers_know_it_by_a_loopback_name(
    server: AgentServer, host: str, code: int
) -> None:
    assert status(raw(server, request(Host=host))) == code


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "broker-1"])  # noqa: S104
def test_other_addresses_need_a_token(log_dir: Path, host: str) -> None:
    agent = Agent(1, LogDirectories([str(log_dir)], lambda: 0), lambda: 0)
    with pytest.raises(OptionError, match="token"):
        AgentServer(Listen(host, 0), agent)


def test_a_short_token_is_refused_and_not_told(log_dir: Path) -> None:
    agent = Agent(1, LogDirectories([str(log_dir)], lambda: 0), lambda: 0)
    with pytest.raises(OptionError, match="fewer than 16") as caught:
        AgentServer(LOCAL, agent, token="hunter2")  # noqa: S106
    assert "hunter2" not in str(caught.value)


# -- what strangers send


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(request(path="/"), 404, id="root"),
        pytest.param(request(path="/v1/health/../../etc/passwd"), 404, id="dots"),
        pytest.param(request("POST", "/v1/replicas/t-0", b"{}"), 404, id="a-path-of-a-partition"),
        pytest.param(request("PUT", "/v1/replicas"), 501, id="another-method"),
        pytest.param(request("POST", "/v1/replicas", b"not json"), 400, id="no-json"),
        pytest.param(request("POST", "/v1/replicas", b"[" * 100_000), 400, id="nested"),
        pytest.param(request("POST", "/v1/replicas", b'{"version": 2}'), 400, id="version"),
        pytest.param(ask({"version": 1, "partitions": {"../t": [0]}}), 400, id="no-topic"),
        pytest.param(ask({"version": 1, "partitions": {"t": ["0"]}}), 400, id="no-number"),
        pytest.param(ask({"version": 1, "partitions": {"t": [-1]}}), 400, id="negative"),
        pytest.param(ask({"version": 1, "partitions": [["t", 0]]}), 400, id="a-list"),
        pytest.param(ask({"version": 1, "partitions": {}, "log_ends": 1}), 400, id="no-flag"),
        pytest.param(request("POST", "/v1/replicas", Content_Length="x"), 411, id="no-length"),
        pytest.param(request("POST", "/v1/replicas", Content_Length="-1"), 411, id="less"),
        pytest.param(
            request("POST", "/v1/replicas", Content_Length="99999999999999999999"), 413, id="huge"
        ),
        pytest.param(request("POST", "/v1/replicas", Content_Length="8388609"), 413, id="large"),
        pytest.param(
            request("POST", "/v1/replicas", b"0\r\n\r\n", Transfer_Encoding="chunked"),
            411,
            id="chunked",
        ),
        pytest.param(b"GET " + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414, id="long-line"),
        pytest.param(
            b"GET /healthz HTTP/1.1\r\n"
            + b"".join(b"X-%d: y\r\n" % n for n in range(200))
            + b"\r\n",
            431,
            id="many-headers",
        ),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, id="tls-to-plain"),
        pytest.param(b"GET /healthz HTTP/9.9\r\n\r\n", 505, id="http-of-the-future"),
    ],
)
def test_what_is_not_a_question_is_refused_and_the_next_is_answered(
    server: AgentServer, data: bytes, code: int
) -> None:
    answer = raw(server, data)
    assert status(answer) == code
    assert b"passwd" not in answer
    assert b"Traceback" not in answer
    assert status(raw(server, request())) == 200


def test_a_body_that_does_not_come_is_not_waited_for_long(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_server, "_SILENCE_S", 0.2)
    with serving(log_dir) as server:
        # The client here waits for longer than the server does, and would say so.
        answer = raw(server, request("POST", "/v1/replicas", Content_Length="100"), wait_s=60)
        assert status(answer) != 200


def test_who_speaks_slowly_is_cut_off(log_dir: Path) -> None:
    with (
        serving(log_dir, whole_s=0.5) as server,
        socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection,
    ):
        began = time.monotonic()
        cut = False
        while not cut and time.monotonic() - began < 60:
            try:
                connection.sendall(b"X")
                time.sleep(0.05)
            except OSError:
                cut = True
        assert cut
        assert status(raw(server, request())) == 200


def test_more_connections_than_allowed_are_closed_and_room_comes_back(log_dir: Path) -> None:
    with serving(log_dir, connections=2) as server:
        held = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(2)]
        try:
            until = time.monotonic() + 60
            while raw(server, request()) and time.monotonic() < until:
                time.sleep(0.02)
            assert raw(server, request()) == b""
        finally:
            for each in held:
                each.close()
        until = time.monotonic() + 60
        while status(raw(server, request())) != 200:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_disks_that_hang_are_told_as_busy(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_server, "_DISK_S", 0.1)
    with serving(log_dir) as server, server.agent._lock:
        assert status(raw(server, request())) == 503
        assert status(raw(server, ask({"version": 1, "partitions": {}}))) == 503
        assert status(raw(server, request(path="/healthz"))) == 200


def test_a_bug_of_ours_is_logged_and_the_next_question_answered(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(log_dir, connections=1) as server:
        with monkeypatch.context() as broken:
            broken.setattr(server.agent, "health", lambda: 1 / 0)
            assert raw(server, request()) == b""
        until = time.monotonic() + 60
        while status(raw(server, request())) != 200:
            assert time.monotonic() < until
    assert "ZeroDivisionError" in caplog.text


# -- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-days", "2"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=agent"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"),
        ],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_tls_is_spoken_and_the_certificate_checked(
    log_dir: Path, certificate: tuple[str, str]
) -> None:
    with serving(log_dir, token=TOKEN, tls=tls_context(*certificate)) as server:
        answer = client(TOKEN, ca=certificate[0]).ask(1, url(server, "https"), [T0])
        assert set(answer.replicas) == {T0}
        with pytest.raises(AgentSilentError):
            client(TOKEN).ask(1, url(server, "https"), [T0])
        with pytest.raises(AgentSilentError):
            client(TOKEN).ask(1, url(server), [T0])
        # Who never begins the handshake does not keep others waiting.
        with socket.create_connection(("127.0.0.1", server.server_port)):
            assert client(TOKEN, ca=certificate[0]).ask(1, url(server, "https"), [T0]).broker == 1


def test_old_tls_is_refused(log_dir: Path, certificate: tuple[str, str]) -> None:
    assert tls_context(*certificate).minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("which", ["missing", "swapped"])
def test_a_certificate_that_cannot_be_used_is_told(
    certificate: tuple[str, str], which: str
) -> None:
    given = ("nowhere.pem", certificate[1]) if which == "missing" else certificate[::-1]
    with pytest.raises(OptionError, match="tls-cert"):
        tls_context(*given)


# -- where it listens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8471", Listen("127.0.0.1", 8471)),
        ("[::1]:0", Listen("::1", 0)),
        ("broker-1:65535", Listen("broker-1", 65_535)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: Listen) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["", "8471", ":8471", "host:", "host:65536", "::1:8471", "h:+1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="listen"):
        parse_listen(text)


def test_ipv6_loopback_is_loopback(log_dir: Path) -> None:
    directories = LogDirectories([str(log_dir)], lambda: 0)
    try:
        server = AgentServer(Listen("::1", 0), Agent(1, directories, lambda: 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    server.server_close()
    assert server.address_family is socket.AF_INET6
