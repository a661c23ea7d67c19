"""Batches fetched over a plain socket of our own, looked at in the buffer they arrive in.

The client library reads four kilobytes at a time and copies each of them several times, which is
most of what a comparison of contents would cost. Whatever is not plain (TLS, SASL, a proxy, brokers
before 2.3) goes by the library as before.
"""

from __future__ import annotations

import socket
import struct
import threading
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidestaff.connectors.broker_answers import NO_ERROR
from tidestaff.connectors.digest_wire import FetchedRecords
from tidestaff.connectors.errors import BrokerSilentError
from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.connectors.broker_answers import ListedOffset
    from tidestaff.connectors.digest_wire import RecordsReader
    from tidestaff.consistency.model import BrokerId

_FETCH: Final = 1
_API_VERSIONS: Final = 18
_VERSION: Final = 11
"""The last one without compact fields, 2.3 and later. It goes by names of topics."""
_CLIENT: Final = b"tidestaff"
_DEBUGGING_REPLICA: Final = -2
_SMALLEST_BUFFER: Final = 1 << 20
_LARGEST_ANSWER: Final = 1 << 28

_HEAD: Final = Struct(">hhih")  # key, version, correlation, length of the client's name
_SIZE: Final = Struct(">i")
_ABOUT: Final = Struct(">iiiibii")  # replica, wait, least, most, isolation, session id and epoch
_ASKED: Final = Struct(">iiqqi")  # partition, leader epoch, offset, log start, most
_NAME: Final = Struct(">h")
_ANSWER: Final = Struct(">iihi")  # correlation, throttle, error, session id
# partition, error, watermark, last stable offset, log start, aborted transactions
_PARTITION: Final = Struct(">ihqqqi")
_ABORTED: Final = Struct(">qq")
_RECORDS: Final = Struct(">ii")  # preferred replica, size
_KNOWN: Final = Struct(">hhh")
_TIMEOUT: Final = Struct("@ll")


class Address(NamedTuple):
    host: str
    port: int


class PlainReader(Protocol):
    """The library's reader: the other way, and who is where."""

    timeout_ms: int

    def address(self, broker: BrokerId) -> Address | None:
        """None where a plain socket would not do."""


class SocketRecords:
    """Implements RecordsReader. What is returned stands in a buffer that the next call of the same
    thread overwrites: memory goes by threads, neither by brokers nor by what is read."""

    def __init__(self, library: RecordsReader, addresses: PlainReader) -> None:
        self._library, self._addresses = library, addresses
        self._lock = threading.Lock()
        self._free: dict[BrokerId, list[_Connection]] = {}
        self._too_old: set[BrokerId] = set()
        self._mine = threading.local()

    def records(
        self,
        broker: BrokerId,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
        *,
        whole_bytes: int,
        partition_bytes: int,
    ) -> Mapping[TopicPartition, FetchedRecords]:
        connection = self._connection(broker)
        if connection is None:
            return self._library.records(
                broker,
                positions,
                topic_ids,
                whole_bytes=whole_bytes,
                partition_bytes=partition_bytes,
            )
        question = encode_fetch(positions, whole_bytes, partition_bytes)
        try:
            found = decode_fetch(connection.ask(_FETCH, _VERSION, question, self._buffer()))
        except (OSError, struct.error, ValueError) as error:
            connection.close()
            raise BrokerSilentError(broker, _cause(error)) from None
        with self._lock:
            self._free.setdefault(broker, []).append(connection)
        return found

    def list_offsets(
        self, broker: BrokerId, partitions: Sequence[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, ListedOffset]:
        """Seldom asked: the library does."""
        return self._library.list_offsets(broker, partitions, timestamp)

    def _buffer(self) -> _Buffer:
        if not hasattr(self._mine, "buffer"):
            self._mine.buffer = _Buffer()
        found: _Buffer = self._mine.buffer
        return found

    def _connection(self, broker: BrokerId) -> _Connection | None:
        """One that nobody uses, or a new one; None where the library has to do."""
        with self._lock:
            if broker in self._too_old:
                return None
            if self._free.get(broker):
                return self._free[broker].pop()
        address = self._addresses.address(broker)
        if address is None:
            return None
        connection = None
        try:
            connection = _Connection(address, self._addresses.timeout_ms)
            told = connection.ask(_API_VERSIONS, 0, b"", _Buffer())
            least, most = decode_versions(told).get(_FETCH, (0, 0))
        except (OSError, struct.error, ValueError) as error:
            if connection is not None:
                connection.close()
            raise BrokerSilentError(broker, _cause(error)) from None
        if least <= _VERSION <= most:
            return connection
        connection.close()
        with self._lock:
            self._too_old.add(broker)
        return None

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, {}
        for connections in free.values():
            for each in connections:
                each.close()


class _Buffer:
    """Room for an answer, as large as the largest so far."""

    def __init__(self) -> None:
        self._bytes = bytearray(_SMALLEST_BUFFER)

    def view(self, size: int) -> memoryview:
        if size > len(self._bytes):
            self._bytes = bytearray(size)
        return memoryview(self._bytes)[:size]


class _Connection:
    """One question at a time."""

    def __init__(self, address: Address, timeout_ms: int) -> None:
        self._socket = socket.create_connection(address, timeout_ms / 1_000)
        # With a timeout of Python's own the socket would not block, and an answer would come in
        # small pieces; the kernel's leaves it to wait for all of it.
        self._socket.settimeout(None)
        seconds, ms = divmod(timeout_ms, 1_000)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _TIMEOUT.pack(seconds, ms * 1_000))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked = 0

    def ask(self, key: int, version: int, body: bytes, into: _Buffer) -> memoryview:
        """The answer without its size, in the buffer."""
        self._asked += 1
        head = _HEAD.pack(key, version, self._asked, len(_CLIENT)) + _CLIENT
        self._socket.sendall(_SIZE.pack(len(head) + len(body)) + head + body)
        (size,) = _SIZE.unpack(self._read(into.view(_SIZE.size)))
        if not _SIZE.size <= size <= _LARGEST_ANSWER:
            raise ValueError(f"an answer of {size} bytes")
        answer = self._read(into.view(size))
        (correlation,) = _SIZE.unpack_from(answer)
        if correlation != self._asked:
            raise ValueError(f"an answer to question {correlation}, not {self._asked}")
        return answer

    def _read(self, view: memoryview) -> memoryview:
        got, size = 0, len(view)
        while got < size:
            count = self._socket.recv_into(view[got:], size - got, socket.MSG_WAITALL)
            if not count:
                raise ConnectionResetError("it hangs up")
            got += count
        return view

    def close(self) -> None:
        self._socket.close()


def _cause(error: Exception) -> str:
    if isinstance(error, BlockingIOError):
        return "no answer in time"
    return f"{type(error).__name__}: {error}"


# -- the protocol


def encode_fetch(
    positions: Mapping[TopicPartition, int], whole_bytes: int, partition_bytes: int
) -> bytes:
    """Without a session, and without waiting for anything."""
    topics: dict[str, list[tuple[int, int]]] = {}
    for (topic, partition), offset in positions.items():
        topics.setdefault(topic, []).append((partition, offset))
    parts = [
        _ABOUT.pack(_DEBUGGING_REPLICA, 0, 0, whole_bytes, 0, 0, -1),
        _SIZE.pack(len(topics)),
    ]
    for topic, asked in topics.items():
        name = topic.encode()
        parts += [_NAME.pack(len(name)), name, _SIZE.pack(len(asked))]
        parts += [_ASKED.pack(p, -1, offset, -1, partition_bytes) for p, offset in asked]
    return b"".join([*parts, _SIZE.pack(0), _NAME.pack(0)])


def decode_fetch(answer: memoryview) -> dict[TopicPartition, FetchedRecords]:
    """The records of each partition where they stand."""
    *_, error, _ = _ANSWER.unpack_from(answer)
    if error != NO_ERROR:
        raise ValueError(f"error {error}")
    at = _ANSWER.size
    found: dict[TopicPartition, FetchedRecords] = {}
    (topics,), at = _SIZE.unpack_from(answer, at), at + _SIZE.size
    for _ in range(topics):
        (length,), at = _NAME.unpack_from(answer, at), at + _NAME.size
        if length < 0:
            raise ValueError("a topic without a name")  # and it would be read for ever
        topic, at = str(answer[at : at + length], "utf-8"), at + length
        (partitions,), at = _SIZE.unpack_from(answer, at), at + _SIZE.size
        for _ in range(partitions):
            number, code, _, _, _, aborted = _PARTITION.unpack_from(answer, at)
            at += _PARTITION.size + max(aborted, 0) * _ABORTED.size
            (_, size), at = _RECORDS.unpack_from(answer, at), at + _RECORDS.size
            size = max(size, 0)
            if at + size > len(answer):
                raise ValueError("an answer that is cut off")
            records = answer[at : at + size]
            found[TopicPartition(topic, number)] = FetchedRecords(code, records)
            at += size
    return found


def decode_versions(answer: memoryview) -> dict[int, tuple[int, int]]:
    """Least and most of each question the broker understands."""
    at = _SIZE.size
    (error,), at = _NAME.unpack_from(answer, at), at + _NAME.size
    if error != NO_ERROR:
        raise ValueError(f"error {error}")
    (count,), at = _SIZE.unpack_from(answer, at), at + _SIZE.size
    listed: Sequence[tuple[int, int, int]] = [
        _KNOWN.unpack_from(answer, at + n * _KNOWN.size) for n in range(count)
    ]
    return {key: (least, most) for key, least, most in listed}
