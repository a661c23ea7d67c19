"""The monitor's memory as JSON-ready values for the state store, and back.

Values are written by position, with the field names of every class kept once in the head of the
state: a release whose classes have gained fields with defaults still reads the old state. What many
partitions share (rule set, settings, registrations, verdicts of the calm) is written once and
referred to.
"""

from __future__ import annotations

import importlib
import pkgutil
import types
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

from tidestaff import consistency
from tidestaff.connectors.bodies import rules_body, rules_of
from tidestaff.consistency.memory import ClusterMemory, HealthMemory, PartitionMemory
from tidestaff.consistency.model import PartitionSettings, Registration
from tidestaff.consistency.verdict import Verdicts
from tidestaff.consistency.versions import RuleSet

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    Write = Callable[[Any, "Pool"], Any]
    Read = Callable[[Any, "Pool"], Any]


def _names() -> dict[str, Any]:
    """Every name the memory's type hints may use, wherever in the package it is defined."""
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(consistency.__path__):
        if not module.ispkg:
            found |= vars(importlib.import_module(f"{consistency.__name__}.{module.name}"))
    return found


_NAMES: Final = _names()
_POOLED: Final = (RuleSet, PartitionSettings, Verdicts, tuple[Registration, ...])


class StateLayoutError(Exception):
    """State of a release whose memory cannot be read by this one."""


class Pool:
    """Values that are shared: each is written once, and one object again when read."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._encoded: list[Any] = []
        self._index: dict[Hashable, int] = {}

    def put(self, value: Hashable, write: Write) -> int:
        kind = _pooled_kind(value)
        found = self._index.get((kind, value))
        if found is None:
            found = self._index[kind, value] = len(self.values)
            self.values.append(value)
            self._encoded.append([kind, write(value, self)])
        return found

    def encoded(self) -> list[Any]:
        return self._encoded

    @staticmethod
    def decoded(encoded: list[Any], codec: StateCodec) -> Pool:
        pool = Pool()
        for kind, value in encoded:
            read = codec.pooled_readers[kind]
            decoded = read(value, pool)
            pool._index[kind, decoded] = len(pool.values)
            pool.values.append(decoded)
            pool._encoded.append([kind, value])
        return pool


def _pooled_kind(value: object) -> int:
    for kind, hint in enumerate(_POOLED):
        if isinstance(value, get_origin(hint) or hint) and not (
            kind == len(_POOLED) - 1 and isinstance(value, Verdicts)
        ):
            return kind
    raise AssertionError(value)


def fields_of(shape: Any) -> tuple[str, ...]:
    if hasattr(shape, "_fields"):
        return tuple(shape._fields)
    return tuple(each.name for each in fields(shape))


def _with_default(shape: Any) -> set[str]:
    """The fields that need not be given."""
    if hasattr(shape, "_field_defaults"):
        return set(shape._field_defaults)
    return {f.name for f in fields(shape) if not (f.default is f.default_factory is MISSING)}


def _optional(hint: Any) -> Any | None:
    """X of X | None."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(each for each in get_args(hint) if each is not type(None))
    return None


def _as_it_is(value: Any, _: Pool) -> Any:
    """JSON writes tuples, and so records of the kind that are tuples, as lists by itself."""
    return value


class StateCodec:
    """Writers and readers for the memories, put together once from the classes' type hints.

    `layout` names the fields of every class as they were when the state was written; without it
    they are as they are now.
    """

    def __init__(self, layout: dict[str, list[str]] | None = None) -> None:
        self._written = layout
        self.layout: dict[str, list[str]] = {}
        self._readers: dict[Any, Read] = {}
        self._writers: dict[Any, Write] = {}
        self.pooled_readers = [self._reader(hint, pooled=False) for hint in _POOLED]
        self.partition_writer = self._writer(PartitionMemory)
        self.cluster_writer = self._writer(ClusterMemory)
        self.health_writer = self._writer(HealthMemory)
        self.partition_reader = self._reader(PartitionMemory)
        self.cluster_reader = self._reader(ClusterMemory)
        self.health_reader = self._reader(HealthMemory)

    def _hints(self, shape: Any) -> list[tuple[str, Any]]:
        hints = get_type_hints(shape, localns=_NAMES)
        self.layout[shape.__name__] = list(fields_of(shape))
        return [(name, hints[name]) for name in fields_of(shape)]

    def _writer(self, hint: Any, *, pooled: bool = True) -> Write:
        if pooled and hint in _POOLED:
            inner = self._writer(hint, pooled=False)
            return lambda value, pool: pool.put(value, inner)
        key = (hint, pooled)
        if key not in self._writers:
            self._writers[key] = self._new_writer(hint)
        return self._writers[key]

    def _new_writer(self, hint: Any) -> Write:
        inner = _optional(hint)
        if inner is not None:
            write = self._writer(inner)
            if write is _as_it_is:
                return write
            return lambda value, pool: None if value is None else write(value, pool)
        if hint is RuleSet:
            return lambda value, _: rules_body(value)
        if get_origin(hint) is tuple:
            return self._tuple_writer(get_args(hint))
        if isinstance(hint, type) and issubclass(hint, Enum):
            return lambda value, _: value.value
        if hasattr(hint, "_fields") or is_dataclass(hint):
            return self._record_writer(hint)
        return _as_it_is

    def _tuple_writer(self, arguments: tuple[Any, ...]) -> Write:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            write = self._writer(arguments[0])
            if write is _as_it_is:
                return write
            return lambda value, pool: [write(each, pool) for each in value]
        writers = [self._writer(each) for each in arguments]
        return lambda value, pool: [w(v, pool) for w, v in zip(writers, value, strict=True)]

    def _record_writer(self, shape: Any) -> Write:
        writers = [(name, self._writer(hint)) for name, hint in self._hints(shape)]
        if hasattr(shape, "_fields") and all(write is _as_it_is for _, write in writers):
            return _as_it_is
        return lambda value, pool: [write(getattr(value, name), pool) for name, write in writers]

    def _reader(self, hint: Any, *, pooled: bool = True) -> Read:
        if pooled and hint in _POOLED:
            return lambda value, pool: pool.values[value]
        key = (hint, pooled)
        if key not in self._readers:
            self._readers[key] = self._new_reader(hint)
        return self._readers[key]

    def _new_reader(self, hint: Any) -> Read:
        inner = _optional(hint)
        if inner is not None:
            read = self._reader(inner)
            return lambda value, pool: None if value is None else read(value, pool)
        if hint is RuleSet:
            return lambda value, _: rules_of(value)
        if get_origin(hint) is tuple:
            return self._tuple_reader(get_args(hint))
        if isinstance(hint, type) and issubclass(hint, Enum):
            return lambda value, _: hint(value)
        if hasattr(hint, "_fields") or is_dataclass(hint):
            return self._record_reader(hint)
        return lambda value, _: value

    def _tuple_reader(self, arguments: tuple[Any, ...]) -> Read:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            read = self._reader(arguments[0])
            return lambda value, pool: tuple([read(each, pool) for each in value])
        readers = [self._reader(each) for each in arguments]
        return lambda value, pool: tuple([r(v, pool) for r, v in zip(readers, value, strict=True)])

    def _record_reader(self, shape: Any) -> Read:
        hints = dict(self._hints(shape))
        written = (self._written or self.layout).get(shape.__name__)
        if written == list(hints):
            readers = [self._reader(hint) for hint in hints.values()]
            return lambda value, pool: shape(
                *[r(v, pool) for r, v in zip(readers, value, strict=True)]
            )
        return self._adapting_reader(shape, hints, written)

    def _adapting_reader(
        self, shape: Any, hints: dict[str, Any], written: list[str] | None
    ) -> Read:
        """Fields that are new take their default; fields that are gone are passed over."""
        defaults = _with_default(shape)
        missing = [name for name in hints if name not in (written or []) and name not in defaults]
        if written is None or missing:
            raise StateLayoutError(f"{shape.__name__} was kept without {missing or 'its fields'}")
        readers = {name: self._reader(hints[name]) for name in written if name in hints}

        def read(value: Any, pool: Pool) -> Any:
            kept = {
                name: readers[name](each, pool)
                for name, each in zip(written, value, strict=True)
                if name in readers
            }
            return shape(**kept)

        return read


CODEC: Final = StateCodec()
