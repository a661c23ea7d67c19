"""/config: settings that were changed while the cluster runs, for a topic, a broker or all brokers.

Some of them are secrets, so an error never shows what a node holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.connectors.setting_values import sorted_out
from tidestaff.consistency.checkpoint_files import first_json_value
from tidestaff.consistency.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Collection

TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
DEFAULT: Final = "<default>"


def decode_config(data: bytes, place: str, wanted: Collection[str]) -> dict[str, str]:
    """{"version":1,"config":{"name":"value"}}: of it what is wanted. Without `config`: nothing.

    An empty node is what an entity without settings has in some releases.
    """
    if not data:
        return {}
    try:
        found = first_json_value(data.decode("utf-8"))
    except ValueError:
        raise FormatError(place, "content", "not shown", "JSON") from None
    config = found.get("config", {}) if isinstance(found, dict) else None
    if not isinstance(config, dict):
        raise FormatError(place, "config", "not shown", "a JSON object of texts")
    mine = {name: value for name, value in config.items() if name in wanted}
    if not all(isinstance(value, str) for value in mine.values()):
        raise FormatError(place, "config", "not shown", "a JSON object of texts")
    good, odd = sorted_out(mine)
    if odd:
        raise FormatError(place, odd[0], "not shown", "a value that Kafka takes")
    return good
