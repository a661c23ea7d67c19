"""The collector's side of the agents: what a broker's files say, put to what the broker said.

An agent is asked right after its broker told its log end, inside the same bracket. An agent that
does not answer, or answers for somebody else, is a problem of its own; the broker's words stand
without it.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import threading
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

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
from tidestaff.connectors.broker_health import Problem
from tidestaff.connectors.errors import ConnectorError, OptionError
from tidestaff.consistency.model import LineageSource, ProblemKind, ReplicaReading, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tidestaff.connectors.agent_digests import DigestAnswer, DigestQuestion
    from tidestaff.connectors.broker_reading import Told
    from tidestaff.connectors.log_directories import DiskReplica
    from tidestaff.connectors.pacing import Rest
    from tidestaff.consistency.model import BrokerId

PORT: Final = 8471
REPLICAS_PATH: Final = "/v1/replicas"
Answering = TypeVar("Answering", AgentAnswer, DigestsAnswer)
_HOST: Final = "{host}"
_CHUNK: Final = 1 << 16
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
        parts = urlsplit(url.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    else:
        usable = usable and not (parts.username or parts.query or parts.fragment)
        usable = usable and parts.path in ("", "/")
    if not usable:
        raise OptionError("agents", "holds no http(s) URL of an agent", f"http://{_HOST}:{PORT}")


class AgentClient:
    """Asks agents over HTTP: one connection a question, no redirects, bounded time and size."""

    def __init__(self, *, token: str | None, timeout_ms: int, ca_file: str | None = None) -> None:
        self._token, self._timeout_s = token, timeout_ms / 1_000
        self.bytes_moved = 0
        """Bodies of questions and answers, so far."""
        self._tls: ssl.SSLContext | None = None
        if ca_file is not None:
            try:
                self._tls = ssl.create_default_context(cafile=ca_file)
            except (OSError, ssl.SSLError):
                raise OptionError("agents_ca", "cannot be read", "give a PEM file") from None

    def ask(
        self,
        broker: int,
        url: str,
        wanted: Collection[TopicPartition],
        *,
        log_ends: bool = False,
    ) -> AgentAnswer:
        question = encode_question(wanted, log_ends=log_ends)
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
        except (OSError, http.client.HTTPException, ValueError) as error:
            # ValueError: a host as brokers advertise it need not be one.
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
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        with closing(connection), _Deadline(self._timeout_s) as deadline:
            connection.connect()
            if parts.scheme == "https":
                # Not before: reading the system's certificates costs more than most questions.
                self._tls = self._tls or ssl.create_default_context()
                connection.sock = self._tls.wrap_socket(
                    connection.sock, server_hostname=host, do_handshake_on_connect=False
                )
            deadline.cuts(connection.sock)
            if isinstance(connection.sock, ssl.SSLSocket):
                connection.sock.do_handshake()
            headers = {"Content-Type": "application/json"}
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token}"
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            parts_read, size = [], 0
            while chunk := response.read1(_CHUNK):
                size += len(chunk)
                if size > LARGEST_ANSWER:
                    raise http.client.HTTPException
                parts_read.append(chunk)
            self.bytes_moved += len(body) + size
            return response.status, b"".join(parts_read)


class _Deadline:
    """The time for a whole exchange. A socket's own timeout is for each piece of it, and whoever
    sends a byte now and then would be listened to for ever."""

    def __init__(self, seconds: float) -> None:
        self._socket: socket.socket | None = None
        self._over = threading.Event()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def cuts(self, connected: socket.socket) -> None:
        self._socket = connected
        if self._over.is_set():
            raise TimeoutError

    def _cut(self) -> None:
        self._over.set()
        if self._socket is not None:
            with suppress(OSError):
                # Not TLS's own, which waits for the other side.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __exit__(self, *_: object) -> None:
        """What looks like the end of an answer, or like an error, is the end of our patience."""
        self._timer.cancel()
        if self._over.is_set():
            raise TimeoutError from None


class Agents:
    """Puts what agents say to what brokers said. An agent that fails is left alone for the round,
    and with time for longer."""

    def __init__(
        self,
        urls: AgentUrls,
        client: AgentClient,
        hosts: Callable[[], Mapping[BrokerId, str]],
        rest: Rest[BrokerId],
        now_ms: Callable[[], int],
    ) -> None:
        self._urls, self._client, self._locate = urls, client, hosts
        self._rest, self._now_ms = rest, now_ms
        self._hosts: Mapping[BrokerId, str] = {}
        self._assigned: Mapping[TopicPartition, Collection[BrokerId]] = {}
        self._failed: dict[BrokerId, ConnectorError] = {}
        self._asked_in_vain: set[BrokerId] = set()
        self._problems: dict[BrokerId, dict[str, Problem]] = {}

    def begin_round(self, assigned: Mapping[TopicPartition, Collection[BrokerId]]) -> None:
        """`assigned`: the brokers of every partition that is watched."""
        self._assigned = assigned
        self._problems, self._asked_in_vain = {}, set()
        if self._urls.pattern is not None:
            with suppress(ConnectorError):
                self._hosts = self._locate()

    @property
    def problems(self) -> dict[str, Problem]:
        """What this round has met, by its place."""
        return {place: each for found in self._problems.values() for place, each in found.items()}

    def add_to(self, broker: BrokerId, told: Told) -> Told:
        """Called after the broker was asked: a lineage is read after the log end it belongs to."""
        url = self._urls.of(broker, self._hosts.get(broker))
        if url is None or not told.readings:
            return told
        answer = self._answer(broker, url, told.readings)
        if answer is None:
            return told
        readings = {
            partition: with_files(reading, answer.replicas.get(partition))
            for partition, reading in told.readings.items()
        }
        return told._replace(readings=readings)

    def _answer(
        self, broker: BrokerId, url: str, wanted: Collection[TopicPartition]
    ) -> AgentAnswer | None:
        mine = self._problems.setdefault(broker, {})
        now_ms = self._now_ms()
        if broker not in self._asked_in_vain and not self._rest.resting(broker, now_ms):
            try:
                answer = self._client.ask(broker, url, wanted)
            except ConnectorError as error:
                self._failed[broker] = error
                self._asked_in_vain.add(broker)
                self._rest.failed(broker, now_ms)
            else:
                self._failed.pop(broker, None)
                self._rest.succeeded(broker)
                for problem in (*_passed_on(broker, answer), *self._strays(broker, answer)):
                    mine[problem.place] = problem
                return answer
        problem = _agent_problem(broker, self._failed[broker])
        mine[problem.place] = problem
        return None

    def _strays(self, broker: BrokerId, answer: AgentAnswer) -> Iterator[Problem]:
        """Replicas on disk that the metadata gives to others. A topic that is not listed at all may
        only be one that is not watched, or that we are not allowed to see."""
        topics = {partition.topic for partition in self._assigned}
        for partition in answer.others:
            if partition.topic in topics and broker not in self._assigned.get(partition, ()):
                yield Problem(
                    f"broker {broker}: {partition}",
                    ProblemKind.STRAY_DIRECTORY,
                    f"broker {broker} holds {partition}, which is not assigned to it",
                    "see that no reassignment or deletion is under way, then remove the directory",
                    broker=broker,
                    topic=partition.topic,
                )


def with_files(reading: ReplicaReading, replica: DiskReplica | None) -> ReplicaReading:
    """The reading with the lineage of its file. Where there is none the broker's words stand.

    The topic id of the file counts also where the broker named one: that a directory belongs to
    another topic is seen nowhere else.
    """
    if replica is None:
        return reading
    if not replica.online:
        return reading._replace(log_dir_online=False)
    if replica.topic_id is not None:
        reading = reading._replace(topic_id=replica.topic_id)
    if replica.lineage is None:
        return reading
    return reading._replace(lineage=replica.lineage, lineage_source=LineageSource.CHECKPOINT_FILE)


def _agent_problem(broker: BrokerId, error: ConnectorError) -> Problem:
    silent = isinstance(error, AgentSilentError)
    kind = ProblemKind.SILENT if silent else ProblemKind.UNREADABLE
    place = f"agent of broker {broker}"
    return Problem(place, kind, error.reason, error.remedy, broker=broker, at_once=not silent)


def _passed_on(broker: BrokerId, answer: AgentAnswer) -> Iterator[Problem]:
    for problem in answer.problems:
        yield replace(problem, place=f"broker {broker}: {problem.place}", broker=broker)
