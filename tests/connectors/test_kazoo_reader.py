"""What kazoo's threads tell, in the orders in which they may tell it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from tidestaff.connectors.kazoo_reader import KazooReader
from tidestaff.connectors.zookeeper_answers import ZookeeperRefusesError, ZookeeperSilentError
from tidestaff.connectors.zookeeper_options import ZookeeperOptions

if TYPE_CHECKING:
    from collections.abc import Callable

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
