"""The collector's side of the agents: asks them over HTTP, and decodes what they answer.

Every command that asks an agent waits for this module: what is slow to import is not imported here.
"""

from __future__ import annotations

import re
import socket
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidestaff.connectors.agent_answers import (
    LARGEST_ANSWER,
    AgentAnswer,
    AgentFormatError,
    decode_answer,
    encode_question,
)
from tidestaff.connectors.agent_digests import (
    DIGESTS_PATH,
    DigestsAnswer,
    decode_digest_answer,
    encode_digest_question,
)
from tidestaff.connectors.errors import ConnectorError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from ssl import SSLContext

    from tidestaff.connectors.agent_digests import DigestAnswer, DigestQuestion
    from tidestaff.consistency.model import TopicPartition

PORT: Final = 8471
REPLICAS_PATH: Final = "/v1/replicas"
Answering = TypeVar("Answering", AgentAnswer, DigestsAnswer)
_HOST: Final = "{host}"
_CHUNK: Final = 1 << 16
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r\n]")
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,12})[ \t]*\r\n", re.IGNORECASE)
_URL: Final = re.compile(
    r"(https?)://((\[[0-9a-f:.%a-z_-]+\]|[^][/?#@:\\\s]+)(?::([0-9]{0,5}))?)/?", re.IGNORECASE
)
_OF_BROKER: Final = re.compile(r"\s*([0-9]{1,10})\s*=\s*(\S+)\s*")


class AgentSilentError(ConnectorError):
    """The agent of one broker cannot be reached, or is too slow."""

    retriable = True

    def __init__(self, broker: int, url: str, cause: str) -> None:
        super().__init__(
            f"the agent of broker {broker} at {url} does not answer ({cause})",
            "see that 'tidestaff agent' runs on the broker's host and can be reached from here",
        )
        self.broker, self.url, self.cause = broker, url, cause


class AgentRefusesError(ConnectorError):
    """The agent answers, and not what was asked for."""

    def __init__(self, broker: int, url: str, cause: str, remedy: str) -> None:
        super().__init__(f"the agent of broker {broker} at {url} {cause}", remedy)
        self.broker, self.url, self.cause = broker, url, cause


class AgentUrls(NamedTuple):
    """Where the agents are: by broker, or one pattern that has the broker's host in it."""

    by_broker: Mapping[int, str]
    pattern: str | None = None

    def of(self, broker: int, host: str | None) -> str | None:
        """None: no agent is known for this broker."""
        if broker in self.by_broker:
            return self.by_broker[broker]
        if self.pattern is None or (_HOST in self.pattern and host is None):
            return None
        plain = f"[{host}]" if host is not None and ":" in host else host
        return self.pattern.replace(_HOST, plain or "")


def parse_agents(text: str) -> AgentUrls:
    """`http://{host}:8471` for all, or `1=http://a:8471, 2=http://b:8471`."""
    if "=" not in text.partition("://")[0]:
        _checked(text.replace(_HOST, "host"))
        return AgentUrls({}, text.strip())
    found: dict[int, str] = {}
    for each in text.split(","):
        match = _OF_BROKER.fullmatch(each)
        if match is None:
            raise OptionError(
                "agents", "is not understood", f"give 1=URL,2=URL or a URL with {_HOST}"
            )
        _checked(match[2])
        found[int(match[1])] = match[2]
    return AgentUrls(found)


def _checked(url: str) -> None:
    try:
        usable = _address(url.strip()).port != 0
    except ValueError:
        usable = False
    if not usable:
        raise OptionError("agents", "holds no http(s) URL of an agent", f"http://{_HOST}:{PORT}")


class _Address(NamedTuple):
    """`place` is host and port as the URL has them."""

    tls: bool
    place: str
    host: str
    port: int


def _address(url: str) -> _Address:
    """Our own few lines: the library's look-up takes longer to import than it takes to ask."""
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError("no URL of an agent")
    scheme, place, host, port = match.groups()
    tls = scheme.lower() == "https"
    number = int(port) if port else 443 if tls else 80
    if number >= 1 << 16:
        raise ValueError("no port")
    return _Address(tls, place, host.strip("[]").lower(), number)


class AgentClient:
    """Asks agents over HTTP: one connection a question, no redirects, bounded time and size."""

    def __init__(self, *, token: str | None, timeout_ms: int, ca_file: str | None = None) -> None:
        self._token, self._timeout_s = token, timeout_ms / 1_000
        self.bytes_moved = 0
        """Bodies of questions and answers, so far."""
        self._tls: SSLContext | None = None
        if ca_file is not None:
            try:
                self._tls = _trusting(ca_file)
            except OSError:
                raise OptionError("agents_ca", "cannot be read", "give a PEM file") from None

    def ask(
        self,
        broker: int,
        url: str,
        wanted: Collection[TopicPartition],
        *,
        log_ends: bool = False,
        topics: Collection[str] | None = (),
    ) -> AgentAnswer:
        """Of these replicas, and of all of these topics (None: all there are)."""
        question = encode_question(wanted, log_ends=log_ends, topics=topics)
        return self._asked(broker, url, REPLICAS_PATH, question, decode_answer)

    def ask_digests(
        self, broker: int, url: str, question: DigestQuestion
    ) -> Sequence[DigestAnswer]:
        """In the order of the question; fewer where the agent had no time for more."""
        body = encode_digest_question(question)
        return self._asked(broker, url, DIGESTS_PATH, body, decode_digest_answer).answers

    def _asked(
        self, broker: int, url: str, path: str, body: bytes, decode: Callable[[bytes], Answering]
    ) -> Answering:
        try:
            status, data = self._post(url, path, body)
        except (OSError, ValueError) as error:
            # ValueError: a host as brokers advertise it need not be one; or it is not HTTP.
            cause = getattr(error, "strerror", None) or type(error).__name__
            raise AgentSilentError(broker, url, str(cause)) from None
        if status in (401, 403):
            remedy = "give the agent's token as secret agents_token"
            raise AgentRefusesError(broker, url, "does not accept the token", remedy)
        if status != 200:
            remedy = "see that the URL is an agent's, of this release"
            raise AgentRefusesError(broker, url, f"answers with status {status}", remedy)
        try:
            answer = decode(data)
        except AgentFormatError as error:
            raise AgentRefusesError(broker, url, f"answers: {error.reason}", error.remedy) from None
        if answer.broker != broker:
            remedy = "correct option agents: every broker has an agent of its own"
            cause = f"speaks for broker {answer.broker}"
            raise AgentRefusesError(broker, url, cause, remedy)
        return answer

    def _post(self, url: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Our own few lines of HTTP/1.0: the library takes longer to import than to ask."""
        address = _address(url.strip())
        until = time.monotonic() + self._timeout_s
        lines = [f"POST {path} HTTP/1.0", f"Host: {address.place}", f"Content-Length: {len(body)}"]
        lines += ["Content-Type: application/json"]
        if self._token is not None:
            lines.append(f"Authorization: Bearer {self._token}")
        if not all(line.isprintable() for line in lines):
            raise ValueError("a line of the question ends before its end")
        with self._connected(address) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii") + body)
            answer = bytearray()
            while chunk := connection.recv(_CHUNK):
                answer += chunk
                if len(answer) > LARGEST_ANSWER:
                    raise ValueError("more than any answer has")
                # A socket's timeout is for each piece: whoever drips would be heard for ever.
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                connection.settimeout(left_s)
        status, found = _taken_apart(bytes(answer))
        self.bytes_moved += len(body) + len(found)
        return status, found

    def _connected(self, address: _Address) -> socket.socket:
        host, port = address.host, address.port
        # As bytes: the library would import tables of all scripts to look at a name of this one.
        name = host.encode("ascii") if host.isascii() else host
        connection = socket.create_connection((name, port), self._timeout_s)  # type: ignore[arg-type]
        if not address.tls:
            return connection
        try:
            # Not before: reading the system's certificates costs more than most questions.
            self._tls = self._tls or _trusting(None)
            return self._tls.wrap_socket(connection, server_hostname=host)
        except BaseException:
            connection.close()
            raise


def _trusting(ca_file: str | None) -> SSLContext:
    import ssl  # noqa: PLC0415 - slow, and most agents are asked over plain HTTP

    return ssl.create_default_context(cafile=ca_file)


def _taken_apart(answer: bytes) -> tuple[int, bytes]:
    """Status and body; ValueError where it is no whole answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    head += b"\r\n"
    status, length = _STATUS.match(head), _LENGTH.search(head)
    if status is None or (length is not None and int(length[1]) > len(body)):
        raise ValueError("no whole answer of HTTP")
    return int(status[1]), body if length is None else body[: int(length[1])]
