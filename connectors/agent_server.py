"""The agent's side of HTTP: answers what is on its broker's disks, and nothing else.

A request names topics and partitions. They select among directories that were listed; no text from
outside becomes part of a path. One request a connection, bounded in size, time and number.
"""

from __future__ import annotations

import hmac
import json
import logging
import socket
import ssl
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.agent_answers import (
    LARGEST_QUESTION,
    AgentFormatError,
    decode_question,
    encode_answer,
    problem_value,
)
from tidestaff.connectors.agent_digester import Digester
from tidestaff.connectors.agent_digests import (
    DIGESTS_PATH,
    decode_digest_question,
    encode_digest_answer,
)
from tidestaff.connectors.agent_health import ProblemBook
from tidestaff.connectors.errors import OptionError
from tidestaff.connectors.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from tidestaff.connectors.log_directories import Disk, LogDirectories

_LOGGER: Final = logging.getLogger(__name__)
CONNECTIONS: Final = 8
_SILENCE_S: Final = 10.0
_WHOLE_S: Final = 60.0
_DISK_S: Final = 30.0
SHORTEST_TOKEN: Final = 16


class Listen(NamedTuple):
    """Where an agent listens."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)


def parse_listen(text: str) -> Listen:
    """HOST:PORT, with an IPv6 address in brackets."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    plain = host[1:-1] if bracketed else host
    if not colon or not plain or (":" in plain and not bracketed):
        raise OptionError("listen", "is not HOST:PORT", "give for example 127.0.0.1:8471")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):
        raise OptionError("listen", "has no port from 0 to 65535", "give for example 8471")
    return Listen(plain, int(port))


class Agent:
    """What the server serves: one broker's disks, read by one request at a time."""

    def __init__(
        self,
        broker: int,
        directories: LogDirectories,
        now_ms: Callable[[], int],
        digester: Digester | None = None,
    ) -> None:
        self.broker, self._directories, self._now_ms = broker, directories, now_ms
        self._digester = digester or Digester(directories.place_of, self._relist)
        self._problems = ProblemBook()
        self._lock = threading.Lock()
        self._digesting = threading.Lock()

    def digests(self, data: bytes) -> bytes | None:
        """Digests of ranges, as many as there is time for; None while another asks for too long.

        They are read beside the other questions: a log is long, and a round must not wait for it.
        """
        question = decode_digest_question(data)
        if not self._digesting.acquire(timeout=_DISK_S):
            return None
        try:
            answers = self._digester.answer(question)
        finally:
            self._digesting.release()
        return encode_digest_answer(self.broker, answers)

    def _relist(self) -> None:
        self._read(frozenset(), log_ends=False)

    def replicas(self, data: bytes) -> bytes | None:
        """The answer to a question; None while the disks are busy with another for too long."""
        question = decode_question(data)
        at_ms = self._now_ms()
        disk = self._read(question.wanted, log_ends=question.log_ends)
        return None if disk is None else encode_answer(self.broker, at_ms, disk)

    def health(self) -> bytes | None:
        disk = self._read(frozenset(), log_ends=False)
        if disk is None:
            return None
        body = {
            "broker": self.broker,
            "at_ms": self._now_ms(),
            "log_dirs": [
                {
                    "path": each.path,
                    "online": each.online,
                    "partitions": each.partitions,
                    "clean_shutdown": each.clean_shutdown,
                    **{kind.value: count for kind, count in each.marked.items()},
                }
                for each in disk.directories
            ],
            "problems": [
                {**problem_value(each.problem), "since_ms": each.since_ms}
                for each in self._problems.told()
            ],
        }
        return json.dumps(body).encode("ascii")

    def _read(self, wanted: Container[Any] | None, *, log_ends: bool) -> Disk | None:
        if not self._lock.acquire(timeout=_DISK_S):
            return None
        try:
            disk = self._directories.read(wanted, log_ends=log_ends)
            self._problems.note(disk, self._now_ms())
            return disk
        finally:
            self._lock.release()


class AgentServer(ThreadingMixIn, HTTPServer):
    """Listens. Without a token only on loopback, and only for who calls it by a loopback name."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(
        self,
        listen: Listen,
        agent: Agent,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        connections: int = CONNECTIONS,
        whole_s: float = _WHOLE_S,
    ) -> None:
        if token is None and not listen.loopback:
            raise OptionError(
                "listen",
                "is an address others can reach, and there is no token",
                "give --token-file, or listen on 127.0.0.1",
            )
        if token is not None and len(token) < SHORTEST_TOKEN:
            raise OptionError(
                "token-file",
                f"holds fewer than {SHORTEST_TOKEN} characters",
                "make one, for example with 'openssl rand -hex 32'",
            )
        self.agent, self.token, self._tls = agent, token, tls
        self._free = threading.BoundedSemaphore(connections)
        self._whole_s = whole_s
        if ":" in listen.host:
            self.address_family = socket.AF_INET6
        super().__init__((listen.host, listen.port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer would look up a name for the address, which may take minutes.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Nobody keeps a connection longer than it takes, however slowly he speaks."""
        request.settimeout(_SILENCE_S)
        if self._tls is not None:
            # Taking over the socket is all that happens here; the handshake is under the watch.
            request = self._tls.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
        watch = threading.Timer(self._whole_s, _cut, (request,))
        watch.daemon = True
        watch.start()
        try:
            if isinstance(request, ssl.SSLSocket):
                request.do_handshake()
            super().finish_request(request, client_address)
        finally:
            watch.cancel()
            if isinstance(request, ssl.SSLSocket):
                request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is its caller's affair; anything else is a bug of ours."""
        if not isinstance(sys.exception(), OSError):
            _LOGGER.exception("a question was not answered")


def _cut(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Four paths; everything else is refused without a word of what was asked."""

    server: AgentServer
    server_version = "tidestaff-agent"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._answer(200, b'{"status": "ok"}')
        elif self.path != "/v1/health":
            self.send_error(404)
        elif self._may():
            found = self.server.agent.health()
            self._answer(200, found) if found is not None else self.send_error(503)

    def do_POST(self) -> None:
        answers = {
            "/v1/replicas": self.server.agent.replicas,
            DIGESTS_PATH: self.server.agent.digests,
        }
        if self.path not in answers:
            self.send_error(404)
        elif self._may() and (body := self._body()) is not None:
            try:
                found = answers[self.path](body)
            except AgentFormatError as error:
                self._refuse(400, error.reason)
                return
            self._answer(200, found) if found is not None else self.send_error(503)

    def _may(self) -> bool:
        token = self.server.token
        if token is None:
            # A page in a browser on this host must not reach us under a name of its own.
            host = self.headers.get("Host", "")
            name = host.rpartition(":")[0] if not host.endswith("]") else host
            if is_loopback((name or host).strip("[]")):
                return True
            self.send_error(403)
            return False
        given = self.headers.get("Authorization", "")
        if hmac.compare_digest(
            given.encode("utf-8", "surrogateescape"), f"Bearer {token}".encode()
        ):
            return True
        self.send_error(401)
        return False

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            self.send_error(411)
            return None
        if len(length) > 12 or int(length) > LARGEST_QUESTION:
            self.send_error(413)
            return None
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            self.send_error(400)
            return None
        return body

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, code: int, reason: str) -> None:
        self._answer(code, json.dumps({"error": reason}).encode("ascii"))

    def send_error(self, code: int, *_: object) -> None:
        """Also what the library refuses by itself; it would repeat what it was sent."""
        self.close_connection = True
        # What is not understood passes for HTTP/0.9, whose answers have no status.
        self.request_version = "HTTP/1.0"
        self._refuse(code, self.responses.get(code, ("refused", ""))[0])

    def log_message(self, *_: object) -> None:
        """Requests are not logged: what strangers send does not belong into a terminal."""


def tls_context(certificate: str, key: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        cause = getattr(error, "strerror", None) or type(error).__name__
        raise OptionError(
            "tls-cert",
            f"and tls-key cannot be used ({cause})",
            "give PEM files that belong together",
        ) from None
    return context
