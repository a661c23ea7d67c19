"""What a conformance vector is, and how its expectation is compared with what our rules gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Vector:
    """One recorded fact: inputs, and what Kafka made of them."""

    id: str
    rule: str
    input: Mapping[str, Any]
    expected: Mapping[str, Any]
    source: str = ""
    versions: str = ""
    note: str = ""
    file: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an answer of ours is not the recorded one."""

    where: str
    expected: object
    got: object

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected!r}, got {self.got!r}"


Handler: TypeAlias = Callable[[Vector], list[Difference]]


class CannotRunError(Exception):
    """A vector of a known rule whose input our handler does not understand: a failure, never a
    pass."""


class MalformedError(CannotRunError):
    """A case that is not of the form it should have: the file is to be mended, not a rule."""


def differences(expected: object, got: object, where: str = "") -> list[Difference]:
    """Compare as Kafka's facts are written: a mapping lists only the fields that matter."""
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping):
            return [Difference(where, dict(expected), got)]
        found: list[Difference] = []
        for key, value in expected.items():
            place = f"{where}.{key}" if where else str(key)
            if key not in got:
                found.append(Difference(place, value, "nothing"))
            else:
                found.extend(differences(value, got[key], place))
        return found
    return [] if _plain(expected) == _plain(got) else [Difference(where, expected, got)]


def as_set(values: object) -> object:
    """Order does not count: ELR lists come out of a hash set, ISR changes append at either end."""
    return sorted(values) if isinstance(values, (list, tuple, set, frozenset)) else values


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
