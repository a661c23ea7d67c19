"""What kazoo's threads tell, in the orders in which they may tell it."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from tidestaff.connectors.kazoo_reader import LARGEST_ANSWER, KazooReader
from tidestaff.connectors.zookeeper_answers import ZookeeperRefusesError, ZookeeperSilentError
from tidestaff.connectors.zookeeper_options import ZookeeperOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPTIONS = ZookeeperOptions(connect="zk-1:2181", timeout_ms=50)


class Answer:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def get(self, timeout: float) -> Any:
        assert timeout > 0
        raise self._error


class Client:
    """Goes through the states of `life` when it is started, as kazoo does: the listener hears
    LOST while the client's own state is the reason, and then the client is closed."""

    def __init__(self, life: list[str], answered: Exception, **_: Any) -> None:
        self._life, self._answered = life, answered
        self.client_state = KeeperState.CLOSED
        self._tell: Callable[[str], None] | None = None
        self.stopped = False
        self._started = threading.Event()

    def add_listener(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def remove_listener(self, _: object) -> None:
        self._tell = None

    def start_async(self) -> threading.Event:
        assert self._tell is not None
        for state in self._life:
            self.client_state = state
            connected = state == KeeperState.CONNECTED
            self._tell(KazooState.CONNECTED if connected else KazooState.LOST)
        if self._life:
            self.client_state = KeeperState.CLOSED
            self._started.set()
        return self._started

    def get_async(self, _: str, **__: object) -> Answer:
        return Answer(self._answered)

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        assert self.stopped


def reader(life: list[str], answered: Exception) -> KazooReader:
    return KazooReader(OPTIONS, make_client=lambda **given: Client(life, answered, **given))


@pytest.mark.parametrize(
    "answered",
    [
        pytest.param(AuthFailedError(), id="waiting-when-it-is-refused"),
        pytest.param(ConnectionClosedError(), id="asked-when-its-socket-is-closed"),
        pytest.param(ConnectionLoss(), id="asked-while-it-is-lost"),
        pytest.param(KazooTimeoutError(), id="queued-behind-the-refusal-and-never-answered"),
    ],
)
def test_refused_credentials_are_told_as_such_whenever_one_asks(answered: Exception) -> None:
    made = reader([KeeperState.CONNECTED, KeeperState.AUTH_FAILED], answered)
    for _ in range(2):
        with pytest.raises(ZookeeperRefusesError):
            made.get(["/brokers/ids"])


@pytest.mark.parametrize("answered", [ConnectionClosedError(), ConnectionLoss()])
def test_a_connection_that_is_lost_is_not_told_as_refused(answered: Exception) -> None:
    made = reader([KeeperState.CONNECTED, KeeperState.EXPIRED_SESSION], answered)
    with pytest.raises(ZookeeperSilentError, match=type(answered).__name__):
        made.get(["/brokers/ids"])


def test_a_server_that_never_answers_is_silent() -> None:
    with pytest.raises(ZookeeperSilentError, match="no connection"):
        reader([], KazooTimeoutError()).get(["/brokers/ids"])


# -- peers that are no ZooKeeper, on sockets


CONNECTED = struct.pack(">iiiq", 36, 0, 18_000, 1) + struct.pack(">i", 16) + bytes(16)


def silent(connection: socket.socket, over: threading.Event) -> None:
    del connection
    over.wait()


def dripping(connection: socket.socket, over: threading.Event) -> None:
    """A byte now and then of an answer that is never complete."""
    connection.sendall(struct.pack(">i", 1_000))
    while not over.wait(0.05):
        connection.sendall(b"\0")


def dripping_after_the_session(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(CONNECTED)
    dripping(connection, over)


def endless(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(struct.pack(">i", (1 << 31) - 1))
    while not over.is_set():
        connection.sendall(bytes(1 << 16))


@contextmanager
def peer(behave: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1_000)
            behave(connection, over)

    def listen() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.parametrize("behave", [silent, dripping, dripping_after_the_session, endless])
def test_a_peer_that_does_not_end_its_answers_holds_nobody_up(
    behave: Callable[[socket.socket, threading.Event], None],
) -> None:
    before = {each.ident for each in threading.enumerate()}
    with peer(behave) as place:
        options = ZookeeperOptions(connect=place, timeout_ms=300)
        began = time.monotonic()
        with closing(KazooReader(options)) as made, pytest.raises(ZookeeperSilentError):
            made.get(["/brokers/ids"])
        assert time.monotonic() - began < 5
        assert [
            each.name
            for each in threading.enumerate()
            if each.ident not in before and "zk_loop" in each.name
        ] == []


def test_an_answer_longer_than_any_there_is_is_not_read() -> None:
    """Its bytes are left where they are: who announces so many would fill the memory with them."""
    sent = 0

    def counting(connection: socket.socket, over: threading.Event) -> None:
        nonlocal sent
        connection.sendall(struct.pack(">i", LARGEST_ANSWER + 1))
        while not over.is_set():
            connection.sendall(bytes(1 << 16))
            sent += 1 << 16

    with (
        peer(counting) as place,
        closing(KazooReader(ZookeeperOptions(connect=place, timeout_ms=300))) as made,
        pytest.raises(ZookeeperSilentError),
    ):
        made.get(["/brokers/ids"])
    assert sent < LARGEST_ANSWER
