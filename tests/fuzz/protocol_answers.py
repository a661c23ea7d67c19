"""Answers of the wire protocol made from the client library's own schemas."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def built(kind: Any, choose: Callable[[str], Any], count: Callable[[], int | None]) -> Any:
    """An answer with `choose(type)` in every plain field, and lists of `count()` items; None is a
    null in its place."""
    values: dict[str, Any] = {}
    for name, field in kind.fields.items():
        if name == "unknown_tags":
            continue
        plain = field.type_str.removeprefix("[]")
        if field.is_struct_array():
            number = count()
            inner = getattr(kind, plain)
            values[name] = (
                None if number is None else [built(inner, choose, count) for _ in range(number)]
            )
        elif field.is_array():
            number = count()
            values[name] = None if number is None else [choose(plain) for _ in range(number)]
        elif field.is_struct():
            values[name] = built(getattr(kind, plain), choose, count)
        else:
            values[name] = choose(plain)
    return kind(**values)


def usual(type_name: str) -> Any:
    """One harmless value of each type."""
    if type_name == "string":
        return "metadata.version"
    if type_name == "bool":
        return False
    if type_name == "uuid":
        return uuid.UUID(int=7)
    if type_name in ("bytes", "records"):
        return b""
    if type_name == "bitfield":
        return None
    return 1
