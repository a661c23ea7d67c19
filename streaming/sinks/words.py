"""Alerts in words. All text that comes from outside is made harmless for a terminal here."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Control, format (bidirectional overrides among them), surrogate, line and paragraph separator.
UNSAFE: Final = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def harmless(text: object) -> str:
    """Text without anything that moves a cursor, hides or reorders: written as an escape."""
    found = str(text)
    if found.isascii() and found.isprintable():
        return found
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in UNSAFE else char
        for char in found
    )


def when(at_ms: int | None) -> str:
    """UTC, to the second."""
    if at_ms is None:
        return "unknown"
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def how_long(duration_ms: int) -> str:
    seconds = max(0, duration_ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds} s"


def subject_of(fields: Mapping[str, Any]) -> str:
    """What an alert is about: cluster, and partition, place or cause."""
    parts = [fields["cluster"]]
    if fields["topic"] is not None:
        parts.append(f"{fields['topic']}-{fields['partition']}")
    if fields["place"]:
        parts.append(fields["place"])
    if fields["cause"]:
        parts.append(fields["cause"])
        parts.append(partitions_of(fields))
    return harmless(" ".join(part for part in parts if part))


def partitions_of(fields: Mapping[str, Any]) -> str:
    """How many partitions a grouped alert is about."""
    count = fields["members_count"] or fields["members_affected"] or len(fields["members"])
    return f"{count} partition" + ("" if count == 1 else "s")


def members_of(fields: Mapping[str, Any]) -> str:
    """The partitions by name, as far as they are listed."""
    names = [f"{each['topic']}-{each['partition']}" for each in fields["members"]]
    count = fields["members_count"] or fields["members_affected"] or len(names)
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return harmless(", ".join(names) + more)


def summary_of(fields: Mapping[str, Any]) -> str:
    """One line: the code, its name, how bad, and where."""
    return (
        f"{fields['code']} {fields['name']} ({fields['severity']}, {fields['class']})"
        f" {subject_of(fields)}"
    )


def details_of(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and text, in the order in which a person needs them."""
    found = [(label, harmless(fields[label])) for label in ("expected", "observed", "because")]
    found = [(label, text) for label, text in found if text]
    place = [f"broker {fields['broker']}"] if fields["broker"] is not None else []
    if fields["offsets"]:
        place.append("offsets [{},{})".format(*fields["offsets"]))
    if place:
        found.append(("where", ", ".join(place)))
    if fields["members"]:
        found.append(("partitions", members_of(fields)))
    if fields["since_ms"] is not None:
        found.append(("since", when(fields["since_ms"])))
    if fields["acknowledged"]:
        ack = fields["acknowledged"]
        why = f": {ack['why']}" if ack["why"] else ""
        found.append(("taken by", harmless(f"{ack['who']} at {when(ack['at_ms'])}{why}")))
    found.append(("next", fields["next_step"]))
    found.append(("runbook", fields["runbook"]))
    return found
