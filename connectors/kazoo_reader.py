"""The one file that touches kazoo: reads with watches, many at a time.

Only get, get_children and exists are ever called, so nothing can be written.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kazoo import exceptions  # type: ignore[import-untyped]
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.handlers.threading import (  # type: ignore[import-untyped]
    KazooTimeoutError,
    SequentialThreadingHandler,
)
from kazoo.protocol.states import (  # type: ignore[import-untyped]
    Callback,
    EventType,
    KazooState,
    KeeperState,
)
from tidestaff.connectors.zookeeper_answers import (
    Znode,
    ZnodeRefusedError,
    ZookeeperRefusesError,
    ZookeeperSilentError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidestaff.connectors.errors import ConnectorError
    from tidestaff.connectors.zookeeper_options import ZookeeperOptions

# What the library has to say of connections is reported as the health of this source.
_LOGGER: Final = logging.getLogger("kazoo")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False

_RECONNECT: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 5.0}
_NOT_THERE: Final = exceptions.NoNodeError
_REFUSED: Final = exceptions.NoAuthError
_ENDS_WITHIN_S: Final = 1.0
"""So long has a server to answer that our session is over."""
LARGEST_ANSWER: Final = 64 << 20
"""Sixteen times what ZooKeeper's own client takes (jute.maxbuffer)."""

T = TypeVar("T")


class _Bounded:
    """A socket that reads no answer longer than any there is: kazoo asks it for as many bytes as
    the peer has announced, and would keep them all."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def recv(self, size: int) -> bytes:
        if size > LARGEST_ANSWER:
            raise OSError(f"an answer of {size} bytes is announced, and {LARGEST_ANSWER} are taken")
        found: bytes = self._inner.recv(size)
        return found


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Knows the socket that kazoo uses, to take it away from a thread that would wait on it."""

    def __init__(self) -> None:
        super().__init__()
        self._socket: _Bounded | None = None
        self._over = False

    def create_connection(self, *given: Any, **named: Any) -> _Bounded:
        self._socket = made = _Bounded(super().create_connection(*given, **named))
        if self._over:
            self.hang_up()
        return made

    def hang_up(self) -> None:
        self._over = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class KazooReader:
    """Implements ZnodeReader. Connects at the first question; kazoo connects again by itself."""

    def __init__(
        self,
        options: ZookeeperOptions,
        *,
        pace: Callable[[], None] = lambda: None,
        make_client: Callable[..., Any] = KazooClient,
    ) -> None:
        self._options, self._pace, self._make_client = options, pace, make_client
        self._client: Any = None
        self._session = 0
        self._refused = False
        self._settled = threading.Event()
        self._changed: set[str] = set()
        self._lock = threading.Lock()

    @property
    def servers(self) -> str:
        return self._options.servers + self._options.chroot

    @property
    def session(self) -> int:
        with self._lock:
            return self._session

    @property
    def last_zxid(self) -> int:
        return int(self._client.last_zxid) if self._client is not None else 0

    def get(self, paths: Sequence[str]) -> Mapping[str, Znode | ZnodeRefusedError | None]:
        found = self._all(paths, "get_async", _znode)
        # A read of a node that is not there leaves no watch: exists does.
        missing = [path for path, each in found.items() if each is None]
        there = [path for path, stat in self._all(missing, "exists_async", bool).items() if stat]
        return {**found, **self._all(there, "get_async", _znode)}

    def children(
        self, paths: Sequence[str]
    ) -> Mapping[str, tuple[str, ...] | ZnodeRefusedError | None]:
        found = self._all(paths, "get_children_async", tuple)
        missing = [path for path, each in found.items() if each is None]
        there = [path for path, stat in self._all(missing, "exists_async", bool).items() if stat]
        return {**found, **self._all(there, "get_children_async", tuple)}

    def changed(self) -> set[str]:
        """kazoo hands watches to a thread of its own, in order: what we put behind them comes when
        all of them have been told."""
        if self._client is not None:
            told = threading.Event()
            self._client.handler.dispatch_callback(Callback("watch", told.set, ()))
            if not told.wait(self._options.timeout_ms / 1_000):
                raise ZookeeperSilentError(self.servers, "its watches are not told")
        with self._lock:
            found, self._changed = self._changed, set()
        return found

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.remove_listener(self._state_changed)
            ending = threading.Thread(target=_end, args=(client,), daemon=True)
            ending.start()
            ending.join(_ENDS_WITHIN_S)
            if ending.is_alive():
                # kazoo would wait for as long as the peer likes.
                client.handler.hang_up()
                ending.join(_ENDS_WITHIN_S)
        with self._lock:
            self._session += 1

    # -- asking

    def _all(
        self, paths: Sequence[str], name: str, value_of: Callable[[Any], T]
    ) -> dict[str, T | ZnodeRefusedError | None]:
        """In the order of the paths, some on the way at a time; all of them within one timeout
        after the other, however many there are."""
        found: dict[str, T | ZnodeRefusedError | None] = {}
        if not paths:
            return found
        ask = getattr(self._connected(), name)
        size = self._options.reads_at_once
        for begin in range(0, len(paths), size):
            asked = []
            for path in paths[begin : begin + size]:
                self._pace()
                asked.append((path, ask(path, watch=self._told)))
            until = time.monotonic() + self._options.timeout_ms / 1_000
            for path, answer in asked:
                try:
                    left = max(0.001, until - time.monotonic())
                    found[path] = value_of(answer.get(timeout=left))
                except _NOT_THERE:
                    found[path] = None
                except _REFUSED:
                    found[path] = ZnodeRefusedError(path)
                except (exceptions.KazooException, KazooTimeoutError) as error:
                    raise self._failed(error) from None
        return found

    def _failed(self, error: Exception) -> ConnectorError:
        # What was asked between the connection and its refusal is told as closed, or as lost.
        if self._refused or isinstance(error, exceptions.AuthFailedError):
            # The client does not try again by itself after this one.
            self.close()
            return ZookeeperRefusesError(self.servers)
        if isinstance(error, exceptions.ConnectionClosedError):
            self.close()
        return ZookeeperSilentError(self.servers, type(error).__name__)

    def _connected(self) -> Any:
        if self._client is None:
            client = self._make_client(**self._arguments())
            client.add_listener(self._state_changed)
            self._client, self._refused = client, False
            self._settled.clear()
            client.start_async()
            if not self._settled.wait(self._options.timeout_ms / 1_000):
                self.close()
                raise ZookeeperSilentError(self.servers, "no connection")
        return self._client

    def _arguments(self) -> dict[str, Any]:
        options = self._options
        given: dict[str, Any] = {
            "hosts": options.servers + options.chroot,
            "timeout": options.session_timeout_ms / 1_000,
            "connection_retry": _RECONNECT,
            "command_retry": {"max_tries": 0},
            "logger": _LOGGER,
            "handler": _Handler(),
        }
        if options.digest:
            given["auth_data"] = [("digest", options.digest)]
        if options.sasl_mechanism:
            given["sasl_options"] = {
                "mechanism": options.sasl_mechanism,
                "service": options.sasl_service,
                **({"username": options.sasl_username} if options.sasl_username else {}),
                **({"password": options.sasl_password} if options.sasl_password else {}),
                **({"principal": options.sasl_principal} if options.sasl_principal else {}),
            }
        if options.tls:
            given |= {
                "use_ssl": True,
                "verify_certs": True,
                "check_hostname": options.tls_check_hostname,
                "ca": options.tls_ca or None,
                "certfile": options.tls_certificate or None,
                "keyfile": options.tls_key or None,
                "keyfile_password": options.tls_key_password or None,
            }
        return given

    # -- told by kazoo's threads

    def _told(self, event: Any) -> None:
        if event.type != EventType.NONE:
            with self._lock:
                self._changed.add(event.path)

    def _state_changed(self, state: str) -> None:
        """Watches do not outlive a connection with kazoo, so any loss of it voids them all. That
        credentials were refused can be seen only now: the client calls itself closed at once."""
        if state != KazooState.CONNECTED:
            client = self._client
            refused = client is not None and client.client_state == KeeperState.AUTH_FAILED
            with self._lock:
                self._session += 1
                self._refused |= refused
        self._settled.set()


def _end(client: Any) -> None:
    """Whatever goes wrong here, the client is not used any more."""
    try:
        client.stop()
        client.close()
    except Exception:  # kazoo's own, and nobody waits for it any more
        _LOGGER.debug("the client did not end in good order", exc_info=True)


def _znode(answer: tuple[bytes, Any]) -> Znode:
    data, stat = answer
    return Znode(data, stat.version, stat.czxid, stat.ephemeralOwner)
