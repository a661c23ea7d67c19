"""Reads JSON from people: every mistake is told at once, with its path, what was found and what
was expected.

A value that is wrong is reported and replaced by a harmless one, so that reading goes on; `finish`
raises when anything was reported.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tidestaff.consistency.model import EpochEntry
from tidestaff.streaming.commands.arguments import did_you_mean
from tidestaff.streaming.commands.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tidestaff.consistency.model import BrokerId, Lineage

STDIN: Final = "-"
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_BROKERS: Final = "a list of broker ids such as [1,2,3]"
_MISSING: Final = object()
_SHOWN: Final = 60


class InputError(CommandError):
    """The input cannot be used."""


def read_json(source: str) -> object:
    """The JSON of a file, or of stdin for `-`."""
    name = "stdin" if source == STDIN else source
    try:
        raw = sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: byte {error.start} is not UTF-8, expected JSON text") from None
    except OSError as error:
        raise InputError(
            f"{name}: {error.strerror}, expected a JSON file, or - for stdin"
        ) from None
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise InputError(*_broken_json(name, text, error)) from None
    except RecursionError:
        raise InputError(f"{name}: nested too deeply to be a partition") from None
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} stands twice in one object, expected it once")
        found[key] = value
    return found


def _constant(text: str) -> NoReturn:
    raise ValueError(f"found {text}, expected JSON, which has no such number")


def _broken_json(name: str, text: str, error: json.JSONDecodeError) -> tuple[str, ...]:
    where = f"{name}, line {error.lineno}, column {error.colno}: broken JSON: {error.msg}"
    lines = text.splitlines()
    if not text.strip():
        return (f"{name} is empty, expected a JSON object",)
    line = lines[error.lineno - 1] if error.lineno <= len(lines) else ""
    if not line.isprintable() or len(line) > _SHOWN * 2:
        return (where,)
    return where, f"    {line}", f"    {' ' * (error.colno - 1)}^"


def shown(value: object) -> str:
    """A value as it stood in the input, shortened."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class InputReader:
    """One input being read, and what is wrong with it so far."""

    def __init__(self, source: str) -> None:
        self.name = "stdin" if source == STDIN else source
        self.problems: list[str] = []
        self._objects: list[ObjectReader] = []

    def object(self, value: object, path: str = "") -> ObjectReader:
        if not isinstance(value, dict):
            self.report(path, shown(value), "an object {...}")
            return ObjectReader(self, path, {}, known=False)
        reader = ObjectReader(self, path, value)
        self._objects.append(reader)
        return reader

    def report(self, path: str, found: str, expected: str) -> None:
        self.problems.append(f"{path or 'the input'}: found {found}, expected {expected}")

    def finish(self) -> None:
        """Raise if anything was wrong; keys that nobody asked for are wrong too."""
        for reader in self._objects:
            reader.refuse_unknown_keys()
        self.refuse()

    def refuse(self) -> None:
        """Raise what has been reported so far."""
        if self.problems:
            count = len(self.problems)
            head = f"{self.name}: {count} problem{'s' if count > 1 else ''}"
            raise InputError(head, *(f"  {problem}" for problem in self.problems))


class ObjectReader:
    """One JSON object; each method asks for one of its keys."""

    def __init__(
        self, reader: InputReader, path: str, values: Mapping[str, object], *, known: bool = True
    ) -> None:
        self._reader, self._values, self.path = reader, values, path
        # An object that was no object has been reported: its keys are not missing as well.
        self._known = known
        self._asked: dict[str, None] = {}

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def report(self, name: str, found: str, expected: str) -> None:
        self._reader.report(self.at(name), found, expected)

    def refuse_unknown_keys(self) -> None:
        for key in self._values:
            if key not in self._asked:
                hint = did_you_mean(key, [name for name in self._asked if name not in self._values])
                known = ", ".join(self._asked)
                self.report(key, "an unknown key", f"one of {known}{hint}")

    def names(self) -> tuple[str, ...]:
        """All keys of an object whose keys are data; they count as asked for."""
        self._asked.update(dict.fromkeys(self._values))
        return tuple(self._values)

    def _take(self, name: str, expected: str, *, required: bool = True) -> object:
        self._asked[name] = None
        value = self._values.get(name, _MISSING)
        if value is _MISSING and required and self._known:
            self.report(name, "nothing", expected)
        return value

    def value(self, name: str, expected: str) -> object:
        """Whatever stands there; None where nothing does, which is reported."""
        value = self._take(name, expected)
        return None if value is _MISSING else value

    def object(self, name: str) -> ObjectReader:
        value = self._take(name, "an object {...}")
        if value is _MISSING:
            return ObjectReader(self._reader, self.at(name), {}, known=False)
        return self._reader.object(value, self.at(name))

    def optional_object(self, name: str) -> ObjectReader:
        """An object that may be left out: then all of its keys are."""
        value = self._take(name, "an object {...}", required=False)
        return self._reader.object({} if value is _MISSING else value, self.at(name))

    def integer(
        self, name: str, *, least: int = 0, most: int = INT64_MAX, default: int | None = None
    ) -> int:
        """A whole number; with a default it may be left out."""
        found = self._integer(name, least, most, required=default is None)
        if found is None:
            return least if default is None else default
        return found

    def optional_integer(self, name: str, *, least: int = 0, most: int = INT64_MAX) -> int | None:
        return self._integer(name, least, most, required=False)

    def _integer(self, name: str, least: int, most: int, *, required: bool) -> int | None:
        expected = f"a whole number from {least} to {most}"
        value = self._take(name, expected, required=required)
        if value is _MISSING:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.report(name, shown(value), expected)
            return None
        return value

    def boolean(self, name: str, *, default: bool | None = None) -> bool:
        value = self._take(name, "true or false", required=default is None)
        if isinstance(value, bool):
            return value
        if value is not _MISSING:
            self.report(name, shown(value), "true or false")
        return bool(default)

    def word(self, name: str, words: Sequence[str], *, default: str | None = None) -> str:
        """One of a few words."""
        expected = f"one of {', '.join(words)}"
        value = self._take(name, expected, required=default is None)
        if isinstance(value, str) and value in words:
            return value
        if value is not _MISSING:
            hint = did_you_mean(value, words) if isinstance(value, str) else ""
            self.report(name, shown(value), f"{expected}{hint}")
        return words[0] if default is None else default

    def brokers(
        self,
        name: str,
        *,
        within: tuple[str, Collection[BrokerId]] | None = None,
        required: bool = True,
        may_be_empty: bool = True,
    ) -> tuple[BrokerId, ...]:
        """A list of distinct broker ids; `within` names a set they all have to be in."""
        value = self._take(name, _BROKERS, required=required)
        if value is _MISSING:
            return ()
        if not isinstance(value, list) or not all(map(_is_broker, value)):
            self.report(name, shown(value), _BROKERS)
            return ()
        if not value and not may_be_empty:
            self.report(name, "[]", "at least one broker id")
        if len(set(value)) < len(value):
            self.report(name, shown(value), "every broker once")
        strangers = [broker for broker in value if within and broker not in within[1]]
        if within and within[1] and strangers:
            self.report(name, shown(strangers), f"only members of {within[0]}")
        return tuple(dict.fromkeys(value))

    def lineage(self, name: str, *, required: bool, starts_may_repeat: bool) -> Lineage:
        """Pairs [epoch, start offset] as in leader-epoch-checkpoint, rising."""
        expected = "a list of [epoch, start offset] such as [[0,0],[1,100]]"
        value = self._take(name, expected, required=required)
        if value is _MISSING:
            return ()
        if not isinstance(value, list) or not all(map(_is_entry, value)):
            self.report(name, shown(value), expected)
            return ()
        entries = tuple(EpochEntry(*pair) for pair in value)
        for before, after in pairwise(entries):
            step = after.start_offset - before.start_offset
            if after.epoch <= before.epoch or step < 0 or (step == 0 and not starts_may_repeat):
                found = f"{shown(list(before))} before {shown(list(after))}"
                self.report(name, found, "epochs and start offsets that rise")
        return entries


def _is_broker(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX


def _is_entry(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and _is_broker(value[0])
        and isinstance(value[1], int)
        and not isinstance(value[1], bool)
        and 0 <= value[1] <= INT64_MAX
    )
