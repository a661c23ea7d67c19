"""From the configuration's sinks to the sinks themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidestaff.connectors.errors import ConnectorError
from tidestaff.connectors.importing import load_client_library
from tidestaff.streaming import settings as configured
from tidestaff.streaming.alerts.alert import Status
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.delivery import Route
from tidestaff.streaming.sinks.sink import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TextIO

    from pydantic import SecretStr
    from tidestaff.streaming.settings import Settings
    from tidestaff.streaming.sinks.sink import Sink


# Whoever keeps a history gets all of it; people and Alertmanager are told what is new, and the
# latter what fires.
_ARCHIVES = (configured.JsonLinesSink, configured.ParquetSink, configured.KafkaSink)


def routes_of(settings: Settings, stdout: TextIO) -> list[Route]:
    """One route a sink, in the order of the configuration. None is asked for anything yet, but what
    is wrong with how one is configured is told."""
    return [
        Route(_made(each, stdout), _statuses(each.statuses), from_start=isinstance(each, _ARCHIVES))
        for each in settings.sinks
    ]


def _made(sink: configured.Sink, stdout: TextIO) -> Sink:
    try:
        return _sink(sink, stdout)
    except SinkError as error:
        raise CommandError(f"sinks: {sink.name}: {error.problem}", error.remedy) from None
    except ConnectorError as error:
        raise CommandError(f"sinks: {sink.name}: {error.reason}", error.remedy) from None


def _statuses(names: Iterable[str]) -> frozenset[Status]:
    return frozenset(Status(name) for name in names)


def _revealed(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {key: value.get_secret_value() for key, value in secrets.items()}


def _sink(sink: configured.Sink, stdout: TextIO) -> Sink:
    """A sink's libraries are imported when it is wanted."""
    if isinstance(sink, configured.ConsoleSink):
        from tidestaff.streaming.sinks.console import ConsoleSink  # noqa: PLC0415

        return ConsoleSink(sink.name, stdout)
    if isinstance(sink, configured.JsonLinesSink):
        from tidestaff.streaming.sinks.jsonl import JsonLinesSink  # noqa: PLC0415

        rotation: dict[str, Any] = {
            "rotate_bytes": sink.rotate_bytes,
            "keep_files": sink.keep_files,
        }
        return JsonLinesSink(sink.path, name=sink.name, **rotation)
    if isinstance(sink, configured.ParquetSink):
        from tidestaff.streaming.sinks.parquet import ParquetSink  # noqa: PLC0415

        return ParquetSink(sink.path, name=sink.name)
    if isinstance(sink, configured.KafkaSink):
        return _kafka(sink)
    return _over_http(sink)


def _kafka(sink: configured.KafkaSink) -> Sink:
    load_client_library()
    from tidestaff.streaming.sinks.kafka import KafkaSink  # noqa: PLC0415
    from tidestaff.streaming.sinks.kafka_clients import KafkaPythonClients  # noqa: PLC0415

    clients = KafkaPythonClients(sink.name, sink.bootstrap_servers, _revealed(sink.properties))
    return KafkaSink(sink.topic, clients, name=sink.name)


def _over_http(sink: configured.AlertmanagerSink | configured.WebhookSink) -> Sink:
    if isinstance(sink, configured.AlertmanagerSink):
        from tidestaff.streaming.sinks.alertmanager import AlertmanagerSink  # noqa: PLC0415

        return AlertmanagerSink(
            sink.url,
            name=sink.name,
            labels=sink.labels,
            headers=_revealed(sink.headers),
            runbook_base=sink.runbook_base,
            refresh_every_s=sink.refresh_interval_ms / 1_000,
            timeout_s=sink.timeout_ms / 1_000,
        )
    from tidestaff.streaming.sinks.webhook import WebhookSink  # noqa: PLC0415

    return WebhookSink(
        sink.url.get_secret_value(),
        name=sink.name,
        template=sink.template,
        headers=_revealed(sink.headers),
        content_type=sink.content_type,
        runbook_base=sink.runbook_base,
        timeout_s=sink.timeout_ms / 1_000,
    )
