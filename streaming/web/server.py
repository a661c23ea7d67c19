"""The server in a thread of its own: it must never keep the monitor from watching."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Final

import uvicorn
from tidestaff.streaming.web.app import Application
from tidestaff.streaming.web.security import Access
from tidestaff.streaming.web.stores import Places

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.streaming.settings import Settings

_STARTS_WITHIN_S: Final = 20.0
_ENDS_WITHIN_S: Final = 5.0


class WebServer:
    """Listens from the moment it is made; `close` ends it."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._socket = listening(settings.web.host, settings.web.port, say)
        self.port: int = self._socket.getsockname()[1]
        self.application = Application(Places.of(settings), Access.of(settings.web))
        config = uvicorn.Config(
            self.application.asgi,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            limit_concurrency=200,
            h11_max_incomplete_event_size=32_768,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        self._thread.start()
        host = settings.web.host
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}/"

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self) -> None:
        """Until it ends by itself, or is closed."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def close(self) -> None:
        self.application.listeners.ending = True
        self._server.should_exit = True
        self._thread.join(_ENDS_WITHIN_S)
        self._socket.close()


def listening(host: str, port: int, say: Callable[[str], None]) -> socket.socket:
    """A socket on that port; on a free one, and that is said, where it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last: OSError | None = None
    for tried in (port, 0):
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, tried))
            found.listen(128)
        except OSError as error:
            found.close()
            last = error
            continue
        if tried != port:
            reason = last.strerror if last is not None else "it is taken"
            say(
                f"port {port} cannot be used for the web page ({reason}); "
                f"it is on port {found.getsockname()[1]} instead (key web.port)"
            )
        return found
    assert last is not None
    raise last
