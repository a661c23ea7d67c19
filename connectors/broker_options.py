"""Options of the broker connector, and client properties by Kafka's own names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.errors import OptionError
from tidestaff.consistency.versions import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping

_JAAS: Final = re.compile(r"(username|password)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;]+))")
_PEM: Final = "PEM"
_JAVA_NAMES: Final = {
    "ssl.truststore.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.password": "ssl_password",
    "ssl.keystore.key": "ssl_keyfile",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
_FLAGS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How a cluster is read. Times are in ms; `properties` may hold secrets and are not shown."""

    bootstrap_servers: str
    version: str | None = None
    mode: str | None = None
    protocol: str | None = None
    include: str = ""
    exclude: str = ""
    timeout_ms: int = 5_000
    requests_per_second: int = 200
    partitions_per_request: int = 1_000
    concurrency: int = 8
    settings_refresh_ms: int = 300_000
    jitter_ms: int = 200
    missed_rounds: int = 3
    backoff_ms: int = 1_000
    backoff_max_ms: int = 30_000
    properties: Mapping[str, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise OptionError(name, f"is no regular expression: {error}", "mend it") from None
        if self.mode is not None and self.mode not in {mode.value for mode in Mode}:
            raise OptionError("mode", "is neither zookeeper nor kraft", "take one, or leave it out")

    def wants(self, topic: str) -> bool:
        """Whole names: `include` is everything where it is empty, `exclude` nothing."""
        if self.include and not re.fullmatch(self.include, topic):
            return False
        return not (self.exclude and re.fullmatch(self.exclude, topic))


def options_of(options: Mapping[str, object], secrets: Mapping[str, str]) -> BrokerOptions:
    """From a source's options and secrets; a name with a dot is a property of the client."""
    own = {each.name: each for each in fields(BrokerOptions) if each.name != "properties"}
    taken: dict[str, object] = {}
    properties: dict[str, object] = {}
    for name, value in {**options, **secrets}.items():
        if "." in name:
            properties[name] = value
        elif name in own:
            taken[name] = _checked(name, value, own[name].type == "int")
        else:
            raise OptionError(
                name, "is not known", f"take one of {', '.join(own)}, or a client property"
            )
    if not taken.get("bootstrap_servers"):
        raise OptionError("bootstrap_servers", "is missing", "name host:port of some brokers")
    return BrokerOptions(properties=client_properties(properties), **taken)  # type: ignore[arg-type]


def _checked(name: str, value: object, is_number: bool) -> object:
    if not is_number:
        return str(value)
    least = 0 if name == "jitter_ms" else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(name, "is no whole number", f"give {least} or more")
    return value


def client_properties(given: Mapping[str, object]) -> dict[str, object]:
    """Properties as they stand in a client's file, by the names the client library has for them.

    Stores are PEM files. Of `sasl.jaas.config` the user name and the password are taken.
    """
    found: dict[str, object] = {}
    for name, value in given.items():
        if name == "sasl.jaas.config":
            found |= _jaas(str(value))
        elif name in ("ssl.truststore.type", "ssl.keystore.type"):
            if str(value).upper() != _PEM:
                raise OptionError(name, "is not PEM", "give the store as a PEM file, type PEM")
        elif name == "ssl.endpoint.identification.algorithm":
            found["ssl_check_hostname"] = bool(value)
        else:
            plain = _JAVA_NAMES.get(name, name.replace(".", "_"))
            found[plain] = _plain(value)
    return found


def _plain(value: object) -> object:
    if not isinstance(value, str):
        return value
    return _FLAGS.get(value.lower(), value)


def _jaas(text: str) -> dict[str, object]:
    found = {name: a or b or c for name, a, b, c in _JAAS.findall(text)}
    if set(found) != {"username", "password"}:
        raise OptionError(
            "sasl.jaas.config",
            "has no username and password",
            "give both, or sasl.username and sasl.password",
        )
    return {f"sasl_plain_{name}": value for name, value in found.items()}
