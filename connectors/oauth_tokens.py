"""Tokens for SASL/OAUTHBEARER, got as Kafka's own login callback handlers get them: from an
endpoint with a client's credentials, from a file, or unsecured for a test cluster."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tidestaff.connectors.errors import OptionError, TokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

URL: Final = "sasl.oauthbearer.token.endpoint.url"
_JAAS: Final = "sasl.jaas.config"
_SUBJECT: Final = "unsecuredLoginStringClaim_sub"
_TIMEOUT_S: Final = 10.0
_USED_FOR: Final = 0.8
"""Of a token's life; Kafka's clients refresh at the same part of it."""
_LIFE_S: Final = 3_600
_LONGEST_LIFE_S: Final = 365 * 86_400
_LARGEST_ANSWER: Final = 1_000_000


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The credentials are for the endpoint that was named; what it points to is somebody else."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


class TokenSource(Protocol):
    """Gives a token that is valid now."""

    def token(self) -> str: ...


def token_source(
    jaas: Mapping[str, str], values: Mapping[str, str], named: Callable[[str], str]
) -> TokenSource:
    """The one that the properties describe."""
    url = values.get(URL, "")
    if url.startswith("file:"):
        return FileToken(Path(urllib.parse.urlparse(url).path))
    if url:
        return _from_endpoint(url, jaas, values, named)
    if _SUBJECT in jaas:
        return UnsecuredToken(jaas[_SUBJECT])
    raise OptionError(
        named(URL),
        "is missing",
        "give the endpoint that hands out tokens, or file:///path of a token",
    )


def _from_endpoint(
    url: str,
    jaas: Mapping[str, str],
    values: Mapping[str, str],
    named: Callable[[str], str],
) -> TokenSource:
    if urllib.parse.urlparse(url).scheme not in ("http", "https"):
        raise OptionError(named(URL), "is neither http, https nor file", "correct it")
    client, secret = jaas.get("clientId"), jaas.get("clientSecret")
    if not client or not secret:
        raise OptionError(named(_JAAS), "has no clientId and clientSecret", "give both there")
    scope = jaas.get("scope") or values.get("sasl.oauthbearer.scope")
    return EndpointToken(url, client, secret, scope)


class FileToken:
    """Read anew each time: whoever renews it writes it there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def token(self) -> str:
        try:
            return self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenError(str(self._path), type(error).__name__) from None


class UnsecuredToken:
    """A token nobody has signed, as Kafka makes it for clusters that are not in production."""

    def __init__(self, subject: str, now_s: Callable[[], float] = time.time) -> None:
        self._subject, self._now_s = subject, now_s

    def token(self) -> str:
        now_s = int(self._now_s())
        claims = {"sub": self._subject, "iat": now_s, "exp": now_s + _LIFE_S}
        return f"{_part({'alg': 'none'})}.{_part(claims)}."


class EndpointToken:
    """The client-credentials grant; a token is used for most of its life."""

    def __init__(
        self,
        url: str,
        client: str,
        secret: str,
        scope: str | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._client, self._secret, self._scope = url, client, secret, scope
        # A URL may hold a secret; the host says enough.
        self._place = urllib.parse.urlparse(url).hostname or "the endpoint"
        self._now_s = now_s
        self._held = ""
        self._until_s = 0.0

    def token(self) -> str:
        now_s = self._now_s()
        if not self._held or now_s >= self._until_s:
            answer = self._asked()
            token, life_s = answer.get("access_token"), answer.get("expires_in", _LIFE_S)
            if not isinstance(token, str) or not isinstance(life_s, int | float):
                raise TokenError(self._place, "the answer has no access_token")
            if not life_s >= 0:  # not a number is not less, either
                raise TokenError(self._place, "its token lives for less than nothing")
            self._held, self._until_s = token, now_s + _USED_FOR * min(life_s, _LONGEST_LIFE_S)
        return self._held

    def _asked(self) -> dict[str, object]:
        form = {"grant_type": "client_credentials"}
        if self._scope:
            form["scope"] = self._scope
        credentials = base64.b64encode(f"{self._client}:{self._secret}".encode()).decode("ascii")
        request = urllib.request.Request(  # noqa: S310 - http and https only, see above
            self._url,
            data=urllib.parse.urlencode(form).encode("ascii"),
            headers={"Authorization": f"Basic {credentials}", "Accept": "application/json"},
        )
        try:
            with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
                content = answer.read(_LARGEST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise TokenError(self._place, f"HTTP {error.code}") from None
        except (OSError, ValueError, HTTPException) as error:
            raise TokenError(self._place, type(error).__name__) from None
        if len(content) > _LARGEST_ANSWER:
            raise TokenError(self._place, f"an answer of more than {_LARGEST_ANSWER} bytes")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            raise TokenError(self._place, "the answer is no JSON") from None
        return found if isinstance(found, dict) else {}


def _part(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode("ascii")
