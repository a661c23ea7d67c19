"""Topic ids as text, and values as error texts quote them: also for who reads no files."""

from __future__ import annotations

import re
from typing import Final

from tidestaff.consistency.errors import FormatError

_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_TOPIC_ID: Final = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")


def shown(value: object) -> str:
    """A value as an error text quotes it: never longer than a glance."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]}...{text[-1]}"


def parse_topic_id(text: str, place: str, field: str = "topic_id", line: int = 0) -> str:
    """A topic id in its one written form: 22 characters of URL-safe base64, not the zero id.

    Padding is taken off, and the four bits a last character may carry too many are cleared, as
    Kafka's own decoding and printing do: two texts of one id compare equal afterwards.
    """
    match = _TOPIC_ID.fullmatch(text)
    if match is None:
        raise FormatError(
            place, field, shown(text), "22 characters of URL-safe base64 (copied in full?)", line
        )
    found = match[1]
    last = _DIGITS[_DIGITS.index(found[-1]) & ~0xF]
    if not (written := found[:-1] + last).strip("A"):
        raise FormatError(place, field, "the zero id", "the id of a topic", line)
    return written
