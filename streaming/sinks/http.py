"""One HTTP POST, with errors that keep secrets to themselves."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.sinks.sink import SinkError
from tidestaff.streaming.sinks.words import harmless

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANSWER_SHOWN: Final = 200
_REMEDIES: Final = {
    401: "renew the credentials in its headers",
    403: "renew the credentials in its headers",
    404: "correct its url",
    429: "the receiver asks for fewer requests; it is tried again later",
}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the secret headers to an address nobody configured."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Poster:
    """Posts to one address. Its path and query may hold a token, so only the host is ever named."""

    def __init__(
        self, sink: str, url: str, headers: Mapping[str, str], timeout_s: float = 5.0
    ) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
        except ValueError:
            raise SinkError(sink, "its url is no address", "write http://host/path") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SinkError(sink, "its url is not http or https", "write http://host/path")
        if parts.username or parts.password:
            raise SinkError(sink, "its url holds a password", "put it into a header instead")
        for name, value in headers.items():
            if {"\r", "\n"} & {*name, *value}:
                raise SinkError(sink, f"header {name!r} has a line break", "remove it")
        self.host = parts.hostname
        self._sink, self._url, self._timeout_s = sink, url, timeout_s
        self._headers = dict(headers)
        path = urllib.parse.urlunsplit(("", "", parts.path, parts.query, ""))
        self._secrets = [value for value in (*headers.values(), path) if len(value) > 3]
        self._opener = urllib.request.build_opener(_NoRedirect())

    def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Returns when the receiver has said 2xx."""
        request = urllib.request.Request(  # noqa: S310 - http and https only, see above
            self._url, data=body, headers={**headers, **self._headers}, method="POST"
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                response.read(_ANSWER_SHOWN)
        except urllib.error.HTTPError as error:
            with error:
                answer = error.read(_ANSWER_SHOWN).decode("utf-8", "replace")
            remedy = _REMEDIES.get(error.code, "look into the receiver's log")
            raise self._error(f"{self.host} answered {error.code}: {answer}", remedy) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            problem = f"{self.host} is not reached ({type(reason).__name__}: {reason})"
            raise self._error(problem, "check its address and that it runs") from None

    def _error(self, problem: str, remedy: str) -> SinkError:
        for secret in self._secrets:
            problem = problem.replace(secret, "***")
        return SinkError(self._sink, harmless(problem), remedy)
