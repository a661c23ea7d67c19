"""Who may ask, from where, and what browsers are told: around every request, before any route.

No secret is ever answered. A page of another origin can neither read (no CORS, hosts are checked
against rebinding) nor write (JSON bodies of the same origin only).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from http.cookies import SimpleCookie
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from tidestaff.streaming.settings import WebSettings

COOKIE: Final = "tidestaff_session"
SESSION_S: Final = 12 * 3600
MAX_BODY: Final = 16_384
REFUSAL_PAUSE_S: Final = 0.3
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN: Final = frozenset(
    {
        *("/", "/healthz", "/readyz", "/api/openapi.json"),
        *("/api/v1/session", "/api/v1/log-in", "/api/v1/log-out"),
    }
)
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class Access:
    """How people are known. Without a token and a header everybody who reaches us may look."""

    token: str | None = None
    user_header: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None

    @staticmethod
    def of(web: WebSettings) -> Access:
        # A name that somebody else's server gives to our address must not open the page. Where
        # people log in, the names they use are theirs to choose.
        loopback = is_loopback(web.host)
        hosts = ("127.0.0.1", "localhost", "::1", *web.allowed_hosts)
        known = loopback or bool(web.allowed_hosts)
        return Access(
            None if web.token is None else web.token.get_secret_value(),
            web.user_header,
            web.trusted_proxies,
            hosts if known else None,
        )

    @property
    def asks(self) -> bool:
        return self.token is not None or self.user_header is not None

    def session(self, now_s: float) -> str:
        """What a browser keeps: until when, and a proof that whoever made it knew the token."""
        until = str(int(now_s) + SESSION_S)
        return f"{until}.{self._proof(until)}"

    def is_session(self, text: str, now_s: float) -> bool:
        until, _, proof = text.partition(".")
        fresh = until.isascii() and until.isdigit() and len(until) < 15 and int(until) > now_s
        return fresh and self.token is not None and _same(proof, self._proof(until))

    def is_token(self, text: str) -> bool:
        return self.token is not None and _same(text, self.token)

    def _proof(self, until: str) -> str:
        key = (self.token or "").encode()
        return hmac.new(key, f"session {until}".encode(), hashlib.sha256).hexdigest()

    def user(self, headers: dict[str, str], client: str | None, now_s: float) -> str | None:
        """Who asks: a name, '' for somebody with the token, None for a stranger."""
        if self.user_header is not None and self._is_proxy(client):
            name = headers.get(self.user_header.lower(), "").strip()
            if name:
                return name[:200]
        if self.token is None:
            return None if self.asks else ""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(given.strip()):
            return ""
        cookie = SimpleCookie()
        try:
            cookie.load(headers.get("cookie", ""))
        except Exception:  # noqa: BLE001 - whatever a stranger sends as a cookie, it is none
            return None
        found = cookie.get(COOKIE)
        return "" if found is not None and self.is_session(found.value, now_s) else None

    def _is_proxy(self, client: str | None) -> bool:
        try:
            address = ip_address(client or "")
        except ValueError:
            return False
        networks = (ip_network(each) for each in self.trusted_proxies)
        return any(address in network for network in networks)


class Guard:
    """The ASGI layer in front of the routes."""

    def __init__(
        self, app: ASGIApp, access: Access, now_s: Callable[[], float] = time.time
    ) -> None:
        self._app, self._access, self._now_s = app, access, now_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = {name for name, _ in message["headers"]}
                extra = dict(HEADERS)
                if not scope["path"].startswith("/static/"):
                    extra["cache-control"] = "no-store"
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in extra.items()
                        if name.encode() not in found
                    ),
                ]
            await send(message)

        client = scope["client"][0] if scope.get("client") else None
        refusal = self._refusal(scope, headers)
        if refusal is None:
            user = self._access.user(headers, client, self._now_s())
            if user is None and not _is_open(scope["path"]):
                await asyncio.sleep(REFUSAL_PAUSE_S)
                refusal = 401, "log in first: send the token, or come through the proxy"
            scope.setdefault("state", {})["user"] = user
        if refusal is not None:
            await _refuse(dressed, *refusal)
            return
        await self._app(scope, receive, dressed)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = _name(headers.get("host", ""))
        if self._access.hosts is not None and host not in self._access.hosts:
            return 421, f"this page is not served as {host!r}: add it to web.allowed_hosts"
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > MAX_BODY:
            return 413, f"a request has {MAX_BODY} bytes at most"
        if scope["method"] in _SAFE_METHODS:
            return None
        if "transfer-encoding" in headers:
            return 411, "send the length of the body"
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site not in (None, "same-origin", "none"):
            return 403, "only this page itself may change anything"
        if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
            return 403, "only this page itself may change anything"
        return None


def _is_open(path: str) -> bool:
    """What strangers may have: the empty page, and whether the server lives."""
    return path in _OPEN or path.startswith("/static/")


def _name(host: str) -> str:
    """Without the port; [::1]:8470 is ::1."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


async def _refuse(send: Send, status: int, problem: str) -> None:
    body = json.dumps({"detail": problem}).encode()
    headers: list[Any] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
