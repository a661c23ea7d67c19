"""How far contents were compared, and the file that keeps it over a restart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard

from tidestaff.connectors.broker_health import Problem
from tidestaff.consistency.model import ProblemKind, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FIRST_SPAN: Final = 1_000
WITHIN_63_BITS: Final = (1 << 63) - 1


class Covered(NamedTuple):
    """Of one partition: equal so far up to an offset, since when this pass goes on, when it was
    last looked at, how many offsets are worth asking for at once, and what is compared: which
    topic, on which brokers. [wrong_from, wrong_to) is a batch that is not the same everywhere, or
    not intact."""

    verified_to: int = 0
    began_ms: int = 0
    at_ms: int = 0
    span: int = FIRST_SPAN
    what: str = ""
    wrong_from: int = 0
    wrong_to: int = 0


class CoverageFile:
    """One that cannot be used is told, and begun anew: it only says where to go on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told_once: list[Problem] = []

    def load(self) -> dict[TopicPartition, Covered]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            return {_named(*found[:2]): _covered_of(found[2]) for found in content["coverage"]}
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._note(f"it cannot be read: {error.strerror}")
        except (ValueError, LookupError, TypeError, RecursionError):
            self._note("it is not what this release keeps")
        return {}

    def save(self, coverage: Mapping[TopicPartition, Covered]) -> None:
        content = {"coverage": [[*p, list(covered)] for p, covered in coverage.items()]}
        beside = self._path.with_name(f"{self._path.name}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(content), encoding="utf-8")
            beside.replace(self._path)
        except OSError:
            return  # a restart begins anew, that is all

    def problems(self) -> list[Problem]:
        """What is wrong with the file, once: then it is written again."""
        found, self._told_once = self._told_once, []
        return found

    def _note(self, why: str) -> None:
        self._told_once = [
            Problem(
                f"verify_state {self._path}",
                ProblemKind.MALFORMED,
                f"how far contents were compared is not known from {self._path}: {why}",
                "nothing: comparing began anew, and the file is written again; see that nobody "
                "else writes it",
                at_once=True,
            )
        ]


def _named(topic: object, number: object) -> TopicPartition:
    """Raises TypeError where it is none."""
    if not isinstance(topic, str) or not _is_offset(number):
        raise TypeError("not a partition")
    return TopicPartition(topic, number)


def _covered_of(kept: Sequence[object]) -> Covered:
    """Raises TypeError where it is none."""
    sound = [
        _is_offset(each) if type(was) is int else type(each) is str
        for each, was in zip(kept, Covered(), strict=True)
    ]
    if not all(sound):
        raise TypeError("not what is kept of a partition")
    return Covered._make(kept)


def _is_offset(found: object) -> TypeGuard[int]:
    return type(found) is int and 0 <= found <= WITHIN_63_BITS
