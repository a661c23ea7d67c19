"""Fetches over a socket of our own: what is asked, what is read, and when the library is asked."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tidestaff.connectors.broker_answers import ListedOffset
from tidestaff.connectors.digest_wire import FetchedRecords
from tidestaff.connectors.errors import BrokerSilentError
from tidestaff.connectors.fetch_sockets import Address, SocketRecords
from tidestaff.consistency.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
FETCH, API_VERSIONS = 1, 18
LIBRARY = {T0: FetchedRecords(0, b"by the library")}


class Library:
    """The other way."""

    timeout_ms = 500

    def __init__(self, at: Address | None) -> None:
        self._at = at

    def address(self, broker: int) -> Address | None:
        del broker
        return self._at

    def records(
        self,
        broker: int,
        positions: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str | None],
        *,
        whole_bytes: int,
        partition_bytes: int,
    ) -> Mapping[TopicPartition, FetchedRecords]:
        del broker, positions, topic_ids, whole_bytes, partition_bytes
        return LIBRARY

    def list_offsets(
        self, broker: int, partitions: Sequence[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, ListedOffset]:
        return {each: ListedOffset(0, broker + timestamp) for each in partitions}


def versions(least: int = 4, most: int = 17) -> bytes:
    return struct.pack(">hihhhhhh", 0, 2, FETCH, least, most, API_VERSIONS, 0, 4)


def one_partition(number: int, records: bytes, code: int = 0, start: int = 3) -> bytes:
    begin = struct.pack(">ihqqqi", number, code, 90, 90, start, 1) + struct.pack(">qq", 7, 8)
    return begin + struct.pack(">ii", -1, len(records)) + records


def fetched(*topics: tuple[bytes, list[bytes]], error: int = 0) -> bytes:
    answer = struct.pack(">ihii", 0, error, 0, len(topics))
    for name, partitions in topics:
        answer += struct.pack(">h", len(name)) + name + struct.pack(">i", len(partitions))
        answer += b"".join(partitions)
    return answer


@contextmanager
def broker(answer: Callable[[int, bytes], bytes | None]) -> Iterator[Address]:
    """Answers by the key and the rest of a question; None hangs up."""

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as stream:
            while head := stream.read(4):
                question = stream.read(struct.unpack(">i", head)[0])
                key, _, correlation, length = struct.unpack_from(">hhih", question)
                body = answer(key, question[10 + length :])
                if body is None:
                    return
                whole = struct.pack(">i", correlation) + body
                stream.write(struct.pack(">i", len(whole)) + whole)
                stream.flush()

    def listen() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=listen, daemon=True).start()
        yield Address(*listener.getsockname())
        listener.shutdown(socket.SHUT_RDWR)


def ask(
    reader: SocketRecords, positions: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, tuple[int, bytes]]:
    wanted = {T0: 5} if positions is None else positions
    found = reader.records(1, wanted, {}, whole_bytes=1 << 20, partition_bytes=1 << 16)
    return {p: (each.error, bytes(each.records)) for p, each in found.items()}


def test_partitions_are_asked_for_by_name_as_replica_minus_two_and_read() -> None:
    asked: list[bytes] = []

    def answer(key: int, body: bytes) -> bytes:
        if key == API_VERSIONS:
            return versions()
        asked.append(body)
        return fetched(
            (b"t", [one_partition(0, b"zero"), one_partition(1, b"", code=1)]),
            (b"u", [one_partition(0, b"x" * 2_000_000)]),
        )

    with broker(answer) as at:
        reader = SocketRecords(Library(at), Library(at))
        for _ in range(2):
            found = ask(reader, {T0: 5, T1: 6, U0: 7})
            assert found[T0] == (0, b"zero")
            assert found[T1] == (1, b"")
            assert found[U0] == (0, b"x" * 2_000_000)
        reader.close()
    replica, wait, _, most = struct.unpack_from(">iiii", asked[0])
    assert (replica, wait, most) == (-2, 0, 1 << 20)
    (topics,) = struct.unpack_from(">i", asked[0], 25)
    assert topics == 2
    assert struct.pack(">iiqqi", 1, -1, 6, -1, 1 << 16) in asked[0]


@pytest.mark.parametrize(
    ("at_an_address", "most"),
    [pytest.param(False, 17, id="tls-or-sasl"), pytest.param(True, 10, id="before-2.3")],
)
def test_the_library_is_asked_where_a_plain_socket_would_not_do(
    at_an_address: bool, most: int
) -> None:
    with broker(lambda key, _: versions(most=most) if key == API_VERSIONS else None) as at:
        library = Library(at if at_an_address else None)
        reader = SocketRecords(library, library)
        assert ask(reader)[T0][1] == ask(reader)[T0][1] == b"by the library"
        assert reader.list_offsets(1, [T0], 20) == {T0: ListedOffset(0, 21)}
        reader.close()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="it-hangs-up"),
        pytest.param(fetched(error=76), id="it-refuses"),
        pytest.param(fetched((b"t", [one_partition(0, b"zero")]))[:-2], id="it-cuts-its-answer"),
    ],
)
def test_a_broker_that_gives_no_answer_is_silent_and_asked_anew(answer: bytes | None) -> None:
    answers = [answer, fetched((b"t", [one_partition(0, b"zero")]))]
    with broker(lambda key, _: versions() if key == API_VERSIONS else answers.pop(0)) as at:
        reader = SocketRecords(Library(at), Library(at))
        with pytest.raises(BrokerSilentError):
            ask(reader)
        assert ask(reader)[T0][1] == b"zero"
        reader.close()


def test_nobody_listens() -> None:
    with broker(lambda *_: None) as at:
        pass
    library = Library(at)
    with pytest.raises(BrokerSilentError):
        ask(SocketRecords(library, library))


@pytest.mark.parametrize("answer", [struct.pack(">h", 35), b"", struct.pack(">hi", 0, 9)])
def test_a_connection_that_comes_to_nothing_is_closed(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        ended: list[bytes] = []

        def serve() -> None:
            connection = listener.accept()[0]
            connection.settimeout(10)
            with connection, suppress(TimeoutError):
                connection.recv(1_000)
                whole = struct.pack(">i", 1) + answer
                connection.sendall(struct.pack(">i", len(whole)) + whole)
                ended.append(connection.recv(1))

        thread = threading.Thread(target=serve)
        thread.start()
        library = Library(Address(*listener.getsockname()))
        reader = SocketRecords(library, library)
        with pytest.raises(BrokerSilentError) as caught:
            ask(reader)
        thread.join()
    assert (ended, caught.value.broker) == ([b""], 1)
