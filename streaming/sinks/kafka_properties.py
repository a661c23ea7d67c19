"""Kafka's client properties, as kafka-python takes them.

People have a client.properties file; its names and values are taken as they are, the names of
kafka-python's own options too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.sinks.sink import SinkError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_RENAMED: Final = {
    "ssl.truststore.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.keystore.password": "ssl_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
_JAAS: Final = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
_PAIR: Final = re.compile(r"""(\w+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_IGNORED: Final = {"ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password"}


def options_of(sink: str, properties: Mapping[str, str], known: Collection[str]) -> dict[str, Any]:
    """Options for a client that knows these; what it does not know is an error, not ignored."""
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _IGNORED:
            _check_store_type(sink, name, value)
        elif name == "sasl.jaas.config":
            found |= _from_jaas(sink, value)
        elif name == "ssl.endpoint.identification.algorithm":
            found["ssl_check_hostname"] = bool(value.strip())
        else:
            option = _RENAMED.get(name, name.replace(".", "_"))
            if option not in known:
                remedy = "remove it, or use the name in Kafka's or kafka-python's documentation"
                raise SinkError(sink, f"client property {name!r} is not known", remedy)
            found[option] = _value(value)
    return found


def _check_store_type(sink: str, name: str, value: str) -> None:
    if name.endswith(".type") and value.upper() != "PEM":
        remedy = "export it with `keytool` and `openssl` as PEM files"
        raise SinkError(sink, f"{name} is {value}, and Python reads PEM only", remedy)


def _from_jaas(sink: str, value: str) -> dict[str, Any]:
    pairs = {name: double or single for name, double, single in _PAIR.findall(value)}
    found = {option: pairs[name] for name, option in _JAAS.items() if name in pairs}
    if len(found) != len(_JAAS):
        remedy = "give username and password there, or as sasl.username and sasl.password"
        raise SinkError(sink, "sasl.jaas.config has no username and password", remedy)
    return found


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text
