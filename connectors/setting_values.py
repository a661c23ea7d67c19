"""Values of settings as Kafka takes them, whoever tells them: a znode, a broker, our own options.

Kafka checks what is changed through it. What was written past it may be anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.errors import UnknownVersionError
from tidestaff.consistency.model import SettingSource
from tidestaff.consistency.versions import ProtocolVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOCOL: Final = "inter.broker.protocol.version"
NUMBERS: Final = (".ms", ".seconds", ".percentage", ".replicas")
_FLAG: Final = ".enable"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_SECONDS: Final = ".seconds"
_LARGEST: Final = 2**63 - 1
_LARGEST_SECONDS: Final = _LARGEST // 1_000


class Told(NamedTuple):
    """A value, and where it comes from as far as whoever tells it knows."""

    value: str
    source: SettingSource = SettingSource.UNKNOWN


def from_one_place(values: Mapping[str, str], source: SettingSource) -> dict[str, Told]:
    return {name: Told(value, source) for name, value in values.items()}


def understood(name: str, value: str) -> str | None:
    """The value in Kafka's own spelling; None where Kafka would refuse it.

    Blanks around it do not count, nor does the case of true and false.
    """
    plain = value.strip()
    if name == PROTOCOL:
        return plain if _is_protocol(plain) else None
    if name.endswith(_FLAG):
        return plain.lower() if plain.lower() in ("true", "false") else None
    if name.endswith(NUMBERS):
        return _number(name, plain)
    return plain if plain.isascii() else None


def _number(name: str, text: str) -> str | None:
    if _NUMBER.fullmatch(text) is None or not -_LARGEST <= int(text) <= _LARGEST:
        return None
    # We reckon in milliseconds, and what is told of it has 64 bits.
    most = _LARGEST_SECONDS if name.endswith(_SECONDS) else _LARGEST
    return str(max(-most, min(int(text), most)))


def _is_protocol(text: str) -> bool:
    try:
        ProtocolVersion.parse(text)
    except UnknownVersionError:
        return False
    return True


def sorted_out(values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What is understood, and the names of what is not."""
    read = {name: understood(name, value) for name, value in values.items()}
    good = {name: value for name, value in read.items() if value is not None}
    return good, sorted(read.keys() - good.keys())
