"""What was seen once can be judged again: a folder with the rows that `tidestaff replay` reads, and
the same observations as JSON lines for people.

In the lines every value is written by its field names, so that they can be read without this
program.
"""

from __future__ import annotations

import json
import tempfile
import types
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

from tidestaff.connectors.linking import Linker
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import (
    ClusterObservation,
    HealthObservation,
    PartitionObservation,
)
from tidestaff.consistency.versions import Mode, RuleSet, rules_for
from tidestaff.streaming.commands.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tidestaff.consistency.model import Observation

LINES: Final = "observations.jsonl"
KINDS: Final[dict[str, type[Observation]]] = {
    "partition": PartitionObservation,
    "cluster": ClusterObservation,
    "health": HealthObservation,
}
_HINTS: Final = {
    kind: get_type_hints(shape, localns={"RuleSet": RuleSet}) for kind, shape in KINDS.items()
}


def prepare(folder: Path) -> None:
    """Make the folder and see that it can be written; a folder holds one recording."""
    from tidestaff.streaming.sources.row_files import listed  # noqa: PLC0415 - slow

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CommandError(
            f"{folder}: a recording cannot be written there: {error.strerror}",
            "name a directory that is new or empty, and yours",
        ) from None
    if listed(folder):
        raise CommandError(
            f"{folder}: found another recording, expected an empty or a new directory",
            "two recordings in one directory would be judged as one: name another",
        )
    others = sorted(path.name for path in folder.iterdir())
    if others:
        raise CommandError(
            f"{folder}: found {others[0]!r} in it, expected an empty or a new directory",
            "a recording may write over what has its files' names: name another directory",
        )


def keep(folder: Path, observations: Sequence[Observation]) -> None:
    """Write a recording into a folder that was prepared."""
    from tidestaff.streaming.sources.row_files import (  # noqa: PLC0415 - slow
        PARQUET,
        file_name,
        write,
    )

    linker, rows = Linker(), []
    for _, of_one_round in groupby(observations, key=lambda seen: seen.round):
        rows += linker.link(of_one_round)
    lines = "".join(f"{to_line(observation)}\n" for observation in observations)
    (folder / LINES).write_text(lines, encoding="utf-8")
    write(folder / file_name(observations[0].observed_at_ms, 1, PARQUET), rows)


def to_line(observation: Observation) -> str:
    kind = next(name for name, shape in KINDS.items() if isinstance(observation, shape))
    return json.dumps({"kind": kind, **_written(observation)}, separators=(",", ":"))


def of_lines(lines: Iterable[str], place: str) -> Iterator[Observation]:
    """The observations of a recording; a line that is none is told with its number."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            kind = value.pop("kind")
            found = {name: _read(_HINTS[kind][name], each) for name, each in value.items()}
            yield KINDS[kind](**found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"{type(error).__name__} {error}"
            raise FormatError(place, "the line", what, "an observation as JSON", number) from error


def _written(value: Any) -> Any:
    if isinstance(value, RuleSet):
        return {"version": str(value.version), "mode": value.mode.value}
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {each.name: _written(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        named = getattr(value, "_asdict", None)
        if named is not None:
            return {name: _written(each) for name, each in named().items()}
        return [_written(each) for each in value]
    return value


def _read(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
        return _read(hint, value)
    if origin is tuple:
        return tuple(_read(get_args(hint)[0], each) for each in value)
    if hint is RuleSet:
        return rules_for(value["version"], Mode(value["mode"]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        return hint(**{name: _read(hints[name], each) for name, each in value.items()})
    return value
