"""Options of ZooKeeper as a source; all of them begin with zookeeper_."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.errors import OptionError
from tidestaff.connectors.setting_values import NUMBERS, understood

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "zookeeper_"
GIVEN: Final = "settings."
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:,/\[\]]+):\d{1,5}")
_MECHANISMS: Final = ("DIGEST-MD5", "GSSAPI")
_FLAGS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ZookeeperOptions:
    """How ZooKeeper is reached. Times are in ms; secrets are not shown.

    After `reread_rounds` everything is read anew, whether a watch told of a change or not.
    """

    connect: str
    session_timeout_ms: int = 18_000
    timeout_ms: int = 10_000
    reread_rounds: int = 60
    reads_at_once: int = 500
    reads_per_second: int = 10_000
    digest: str = field(default="", repr=False)
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    sasl_service: str = "zookeeper"
    sasl_principal: str = ""
    tls: bool = False
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_key_password: str = field(default="", repr=False)
    tls_check_hostname: bool = True

    def __post_init__(self) -> None:
        servers, _, chroot = self.connect.partition("/")
        if not all(_SERVER.fullmatch(each.strip()) for each in servers.split(",")):
            raise _wrong("connect", "is no list of host:port", "write host:port,host:port/chroot")
        if chroot and (chroot.endswith("/") or "//" in chroot):
            raise _wrong("connect", "has an empty name in its chroot", "write /kafka, or none")
        if self.digest and ":" not in self.digest:
            raise _wrong("digest", "has no colon", "write user:password")
        if self.sasl_mechanism and self.sasl_mechanism not in _MECHANISMS:
            raise _wrong("sasl_mechanism", "is not known", f"take {' or '.join(_MECHANISMS)}")
        if self.sasl_mechanism == "DIGEST-MD5" and not (self.sasl_username and self.sasl_password):
            raise _wrong("sasl_mechanism", "needs a name", "give sasl_username and sasl_password")
        if (self.tls_certificate or self.tls_key or self.tls_ca) and not self.tls:
            raise _wrong("tls", "is off, but there are files for it", "set it to true")
        if not self.sasl_mechanism and (self.sasl_username or self.sasl_password):
            raise _wrong("sasl_mechanism", "is missing", f"take {' or '.join(_MECHANISMS)}")
        if not self.tls and (self.tls_key_password or not self.tls_check_hostname):
            raise _wrong("tls", "is off, but there are options for it", "set it to true")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise _wrong("tls_key", "and tls_certificate go together", "give both or none")
        for name in ("tls_ca", "tls_certificate", "tls_key"):
            path = getattr(self, name)
            if path and not os.access(path, os.R_OK):
                raise _wrong(name, f"names {path}, which cannot be read", "mend path or rights")

    @property
    def servers(self) -> str:
        return ",".join(each.strip() for each in self.connect.partition("/")[0].split(","))

    @property
    def chroot(self) -> str:
        """With a slash before it; empty where there is none."""
        name = self.connect.partition("/")[2]
        return f"/{name}" if name else ""


def _wrong(name: str, found: str, remedy: str) -> OptionError:
    return OptionError(PREFIX + name, found, remedy)


def zookeeper_options(
    options: Mapping[str, object], secrets: Mapping[str, str]
) -> tuple[ZookeeperOptions | None, dict[str, str], dict[str, object], dict[str, str]]:
    """ZooKeeper's options if there are any, settings that are given, and what is left of both."""
    own = {each.name: each for each in fields(ZookeeperOptions)}
    taken: dict[str, object] = {}
    for name, value in {**options, **secrets}.items():
        if not name.startswith(PREFIX):
            continue
        plain = name.removeprefix(PREFIX)
        if plain not in own:
            known = ", ".join(PREFIX + each for each in own)
            raise OptionError(name, "is not known", f"take one of {known}")
        taken[plain] = _checked(plain, value, str(own[plain].type))
    given = {
        name.removeprefix(GIVEN): _as_kafka_writes(value)
        for name, value in options.items()
        if name.startswith(GIVEN)
    }
    for name, value in given.items():
        counts = understood(name, value)
        if name.endswith(NUMBERS) and (counts is None or counts.startswith("-")):
            raise OptionError(GIVEN + name, "is no whole number", "give 0 or more")
        if counts is None:
            raise OptionError(
                GIVEN + name, "is nothing that Kafka takes", "write it as server.properties has it"
            )
        given[name] = counts
    if taken and not taken.get("connect"):
        raise _wrong("connect", "is missing", "write host:port,host:port/chroot")
    made = ZookeeperOptions(**taken) if taken else None  # type: ignore[arg-type]
    return (
        made,
        given,
        {n: v for n, v in options.items() if not n.startswith((PREFIX, GIVEN))},
        {n: v for n, v in secrets.items() if not n.startswith(PREFIX)},
    )


def _checked(name: str, value: object, kind: str) -> object:
    if kind == "int":
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise _wrong(name, "is no whole number", "give 1 or more")
        return value
    if kind == "bool":
        flag = value if isinstance(value, bool) else _FLAGS.get(str(value).lower())
        if flag is None:
            raise _wrong(name, "is neither true nor false", "give one of them")
        return flag
    return str(value)


def _as_kafka_writes(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
