"""Kafka's client properties: the file people have for Kafka's own tools, and what it means here.

Names and values are those of the Java clients. What this client cannot do is an error with a
remedy, never ignored; values are never shown, because any of them may be a secret.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.errors import OptionError, PropertiesFileError
from tidestaff.connectors.oauth_tokens import token_source
from tidestaff.connectors.tls import TLS_PROPERTIES, tls_context

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

_NUMBERS: Final = {
    "request.timeout.ms": "request_timeout_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "socket.connection.setup.timeout.ms": "socket_connection_setup_timeout_ms",
    "socket.connection.setup.timeout.max.ms": "socket_connection_setup_timeout_max_ms",
}
_TEXTS: Final = {
    "client.id": "client_id",
    "client.dns.lookup": "client_dns_lookup",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "sasl.kerberos.domain.name": "sasl_kerberos_domain_name",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "proxy.url": "proxy_url",
}
_SASL: Final = (
    *("sasl.mechanism", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url"),
    *("sasl.login.callback.handler.class", "sasl.oauthbearer.scope"),
)
# Of a consumer, a producer or an admin client; a file may serve several. A reader has no use for
# them, and leaving them out changes nothing that was asked of it.
_WITHOUT_MEANING: Final = re.compile(
    r"bootstrap\.servers|retries|retry\.backoff(\.max)?\.ms|default\.api\.timeout\.ms"
    r"|group\.(id|instance\.id|protocol)|acks|linger\.ms|batch\.size|buffer\.memory"
    r"|compression\.type|enable\.idempotence|max\.in\.flight\.requests\.per\.connection"
    r"|delivery\.timeout\.ms|max\.block\.ms|max\.request\.size|enable\.auto\.commit"
    r"|auto\.(offset\.reset|include\.jmx\.reporter|commit\.interval\.ms)|isolation\.level"
    r"|(key|value)\.(de)?serializer|fetch\.[a-z.]+|max\.p[a-z.]+|session\.timeout\.ms"
    r"|heartbeat\.interval\.ms|(send|receive)\.buffer\.bytes|metrics?\.[a-z.]+"
    r"|enable\.metrics\.push|client\.rack|interceptor\.classes|allow\.auto\.create\.topics"
    r"|exclude\.internal\.topics|partition[a-z.]+|security\.providers|sasl\.login\.[a-z.]+"
    r"|sasl\.kerberos\.(kinit\.cmd|min\.time\.before\.relogin|ticket\.renew\.[a-z.]+)"
)
KNOWN: Final = ("security.protocol", *_SASL, *TLS_PROPERTIES, *_NUMBERS, *_TEXTS)

_SEPARATOR: Final = re.compile(r"(?<!\\)(?:\\\\)*(\s*[=:]\s*|\s+)")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SHOWN: Final = 200
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_JAAS: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s;\"']+))")


def load_properties(path: Path) -> dict[str, str]:
    """The properties of a file, as `--command-config` of Kafka's tools takes it."""
    try:
        content = path.expanduser().read_bytes()
    except OSError as error:
        raise PropertiesFileError(
            str(path), error.strerror or type(error).__name__, "name a file that can be read here"
        ) from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        # What Java itself reads such a file as.
        text = content.decode("iso-8859-1")
    return parse_properties(text, str(path))


def parse_properties(text: str, place: str) -> dict[str, str]:
    """Java's format: comments, continued lines and escapes as there. A key that stands alone or
    twice is a slip of the pen, so it is refused."""
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _SEPARATOR.search(line)
        name = _unescaped(line[: match.start(1)] if match else line)
        where = f"{place}, line {number}"
        if match is None or not name:
            raise PropertiesFileError(
                where, "found no name=value", "write the name, =, and the value (it may be empty)"
            )
        if name in found:
            raise PropertiesFileError(
                where, f"{name[:_SHOWN]} stands there twice", "keep one of the two"
            )
        found[name] = _unescaped(line[match.end(1) :])
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    kept, began = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        stripped = line.lstrip(" \t\f")
        if not kept and (not stripped or stripped[0] in "#!"):
            continue
        began = began if kept else number
        kept += stripped
        if (len(kept) - len(kept.rstrip("\\"))) % 2:
            kept = kept[:-1]
            if kept:
                continue
        found.append((began, kept))
        kept = ""
    return [*found, (began, kept)] if kept else found


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        what = match[1]
        return chr(int(what[1:], 16)) if len(what) == 5 else _LETTERS.get(what, what)

    # Java writes a character beyond 16 bits as two escapes; half of one is no character.
    return _ESCAPE.sub(plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def client_options(given: Mapping[str, object], place: str = "") -> dict[str, object]:
    """Options of the client library; the same whether they stood in a file or in our settings."""
    values = {name: _text(value) for name, value in given.items()}
    for name in values:
        if name not in KNOWN and not _WITHOUT_MEANING.fullmatch(name):
            raise OptionError(_named(name, place), "is not a known client property", _nearest(name))
    found: dict[str, object] = {_TEXTS[name]: values[name] for name in _TEXTS if name in values}
    for name, option in _NUMBERS.items():
        if name in values:
            found[option] = _number(_named(name, place), values[name])
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise OptionError(
            _named("security.protocol", place), "is none of Kafka's", f"take {_any_of(PROTOCOLS)}"
        )
    found["security_protocol"] = protocol
    if "SSL" in protocol.split("_"):
        found["ssl_context"] = tls_context(values, lambda name: _named(name, place))
    if protocol.startswith("SASL"):
        found |= _sasl(values, place)
    _refuse_what_would_not_count(values, protocol, place)
    return found


def _sasl(values: Mapping[str, str], place: str) -> dict[str, object]:
    # Kafka's own default; it is named so that nobody wonders where it comes from.
    mechanism = values.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise OptionError(
            _named("sasl.mechanism", place), "is not supported", f"take {_any_of(MECHANISMS)}"
        )
    found: dict[str, object] = {"sasl_mechanism": mechanism}
    jaas = _jaas(values.get("sasl.jaas.config", ""))
    if mechanism == "OAUTHBEARER":
        found["sasl_oauth_token_provider"] = token_source(
            jaas, values, lambda name: _named(name, place)
        )
    elif mechanism != "GSSAPI":
        user = values.get("sasl.username", jaas.get("username"))
        password = values.get("sasl.password", jaas.get("password"))
        if not user or password is None:
            raise OptionError(
                _named("sasl.jaas.config", place),
                "has no username and password",
                f"give both for {mechanism}, or sasl.username and sasl.password",
            )
        found |= {"sasl_plain_username": user, "sasl_plain_password": password}
    return found


def _refuse_what_would_not_count(values: Mapping[str, str], protocol: str, place: str) -> None:
    """Credentials under a protocol that has none: they were meant to be used."""
    for prefix, part in (("sasl.", "SASL"), ("ssl.", "SSL")):
        given = sorted(n for n in values if n.startswith(prefix) and n in KNOWN and values[n])
        if given and part not in protocol.split("_"):
            raise OptionError(
                _named(given[0], place),
                f"has no effect with security.protocol {protocol}",
                f"set security.protocol to the listener's, or leave {given[0]} out",
            )


def _jaas(text: str) -> dict[str, str]:
    """The options of a login module; JAAS keeps `\\"` inside quotation marks."""
    return {
        name: re.sub(r"\\(.)", r"\1", double) or single or bare
        for name, double, single, bare in _JAAS.findall(text)
    }


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,12}", text):
        raise OptionError(name, "is no whole number", "give milliseconds, such as 5000")
    return int(text)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip()


def _named(name: str, place: str) -> str:
    return f"{name} of {place}" if place else name


def _any_of(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + f" or {names[-1]}"


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else "leave it out, or use the Java clients' name"
