"""From the configuration's sinks to the sinks themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.streaming.alerts.alert import Status
from tidestaff.streaming.delivery import Route
from tidestaff.streaming.settings import ConsoleSink, JsonLinesSink
from tidestaff.streaming.sinks import console, jsonl

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from tidestaff.streaming.settings import Settings, Sink
    from tidestaff.streaming.sinks.sink import Sink as Target


def routes_of(settings: Settings, stdout: TextIO) -> list[Route]:
    """One route a sink, in the order of the configuration."""
    return [
        Route(_target(each, stdout), _statuses(each.statuses), from_start=True)
        for each in settings.sinks
    ]


def _statuses(names: Iterable[str]) -> frozenset[Status]:
    return frozenset(Status(name) for name in names)


def _target(sink: Sink, stdout: TextIO) -> Target:
    if isinstance(sink, ConsoleSink):
        return console.ConsoleSink(sink.name, stdout)
    if isinstance(sink, JsonLinesSink):
        return jsonl.JsonLinesSink(
            sink.path,
            name=sink.name,
            rotate_bytes=sink.rotate_bytes,
            keep_files=sink.keep_files,
        )
    raise NotImplementedError(sink.type)
