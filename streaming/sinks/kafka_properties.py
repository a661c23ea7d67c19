"""Client properties of a Kafka sink: those of every other client here, and what is only a
producer's or a consumer's.

Who one is and how one connects is read by connectors.client_properties, the same for a sink and for
a collector. Besides, the sink's own clients may be tuned (linger.ms, compression.type), by Kafka's
names or by kafka-python's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidestaff.connectors.client_properties import KNOWN, client_options
from tidestaff.connectors.errors import OptionError
from tidestaff.streaming.sinks.sink import SinkError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def options_of(
    sink: str, properties: Mapping[str, str], known: Collection[str]
) -> dict[str, object]:
    """Options for a client that knows these; what it does not know is an error, not ignored."""
    tuning: dict[str, object] = {}
    common: dict[str, str] = {}
    for name, value in properties.items():
        option = name.replace(".", "_")
        if name not in KNOWN and option in known:
            tuning[option] = _value(value)
        else:
            common[name] = value
    try:
        return {**client_options(common), **tuning}
    except OptionError as error:
        problem = f"client property {error.name} {error.found}"
        raise SinkError(sink, problem, error.remedy) from None


def _value(text: str) -> bool | int | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text
