"""Options of the broker connector, and client properties by Kafka's own names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.client_properties import client_options, load_properties
from tidestaff.connectors.errors import OptionError
from tidestaff.consistency.errors import UnknownVersionError
from tidestaff.consistency.versions import KafkaVersion, Mode, ProtocolVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAY_BE_NOUGHT: Final = (
    *("jitter_ms", "header_fetches", "burst_rounds"),
    *("verify_bytes_per_round", "verify_again_after_ms"),
)


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How a cluster is read. Times are in ms; `properties` may hold secrets and are not shown.

    `header_fetches` are requests for batch headers to one broker in a round, for the lineages of
    followers. After a leader epoch has changed, `burst_rounds` more samples are taken of at most
    `burst_partitions` partitions. With `verify_bytes_per_round` contents of replicas are compared
    as well, on average so many bytes of each; `verify_state` is the file that keeps how far. A pass
    over a partition begins anew `verify_again_after_ms` after it began.
    """

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
    header_fetches: int = 8
    log_dirs_refresh_ms: int = 60_000
    burst_rounds: int = 2
    burst_interval_ms: int = 500
    burst_partitions: int = 500
    verify_bytes_per_round: int = 0
    verify_state: str = ""
    verify_again_after_ms: int = 24 * 3_600_000
    properties: Mapping[str, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise OptionError(name, f"is no regular expression: {error}", "mend it") from None
        if self.mode is not None and self.mode not in {mode.value for mode in Mode}:
            raise OptionError("mode", "is neither zookeeper nor kraft", "take one, or leave it out")
        for name, parse in (("version", KafkaVersion.parse), ("protocol", ProtocolVersion.parse)):
            try:
                if getattr(self, name) is not None:
                    parse(getattr(self, name))
            except UnknownVersionError as error:
                raise OptionError(name, "is none that is known", error.remedy) from None

    def wants(self, topic: str) -> bool:
        """Whole names: `include` is everything where it is empty, `exclude` nothing."""
        if self.include and not re.fullmatch(self.include, topic):
            return False
        return not (self.exclude and re.fullmatch(self.exclude, topic))


def options_of(options: Mapping[str, object], secrets: Mapping[str, str]) -> BrokerOptions:
    """From a source's options and secrets; a name with a dot is a property of the client.

    `command_config` names a file of such properties; what is said beside it has the last word.
    """
    own = {each.name: each for each in fields(BrokerOptions) if each.name != "properties"}
    taken: dict[str, object] = {}
    said: dict[str, object] = {}
    given = {**options, **secrets}
    path = given.pop("command_config", None)
    for name, value in given.items():
        if "." in name:
            said[name] = value
        elif name in own:
            taken[name] = _checked(name, value, is_number=own[name].type == "int")
        else:
            known = ", ".join((*own, "command_config"))
            raise OptionError(name, "is not known", f"take one of {known}, or a client property")
    if not taken.get("bootstrap_servers"):
        raise OptionError("bootstrap_servers", "is missing", "name host:port of some brokers")
    properties = client_options(said) if path is None else _with_file(Path(str(path)), said)
    if "request_timeout_ms" in properties:
        asked = _checked("request.timeout.ms", properties["request_timeout_ms"], is_number=True)
        taken.setdefault("timeout_ms", asked)
    return BrokerOptions(properties=properties, **taken)  # type: ignore[arg-type]


def _with_file(path: Path, said: Mapping[str, object]) -> dict[str, object]:
    return client_options({**load_properties(path), **said}, str(path))


def _checked(name: str, value: object, *, is_number: bool) -> object:
    if not is_number:
        return str(value)
    least = 0 if name in _MAY_BE_NOUGHT else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(name, "is no whole number", f"give {least} or more")
    return value
