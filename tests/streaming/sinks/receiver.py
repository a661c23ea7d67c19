"""A real HTTP server on loopback that keeps what it is sent and answers as it is told."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Request(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """`answers` are given one after the other; then it is 200."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.requests: list[Request] = []
        self.answers: list[tuple[int, str]] = []
        self.judge: Callable[[Request], tuple[int, str]] = lambda _: (200, "ok")

    def answer(self, request: Request) -> tuple[int, str]:
        self.requests.append(request)
        return self.answers.pop(0) if self.answers else self.judge(request)


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(length)
            if len(body) < length:
                return  # the sender was killed while it wrote: this is no request
            status, text = receiver.answer(Request("POST", self.path, headers, body))
            self.send_response(status)
            if status in (301, 302, 307):
                self.send_header("Location", text)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(server)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
