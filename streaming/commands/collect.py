"""`tidestaff collect`: the collectors without the job, publishing to a topic or writing files."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.commands.arguments import did_you_mean
from tidestaff.streaming.commands.exits import CommandError, Exit
from tidestaff.streaming.commands.leaving import set_when_told
from tidestaff.streaming.commands.run import add_config_option, count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.connectors.kafka_python_producer import KafkaTransport
    from tidestaff.streaming.commands.arguments import CommandParser, Options
    from tidestaff.streaming.settings import Cluster, Settings, TransportSettings

EXAMPLES: Final = """\
examples:
  tidestaff collect --config tidestaff.yaml                       all direct sources, to the topic
  tidestaff collect --config tidestaff.yaml --cluster north --to recording
  tidestaff collect --bootstrap-server broker-1:9092 --command-config client.properties \\
    --transport transport:9092 --topic tidestaff.observations

'tidestaff run' reads the topic by a source of type kafka, 'tidestaff replay' the files of --to.
What cannot be published is kept in work_dir/collect until it can be, the oldest given up first.
Ctrl-C or SIGTERM end it within seconds; docs/permissions.md tells the ACLs it needs.
exit codes: 0 ended as told, 3 could not run
"""
_JOIN_S: Final = 0.2


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    add_config_option(parser)
    add = parser.add_argument
    add("--cluster", metavar="NAME", action="append", help="only this one; may be given again")
    add("--bootstrap-server", metavar="SERVERS", help="brokers to watch, without a --config")
    add("--command-config", metavar="FILE", help="client properties for the cluster that is seen")
    add("--to", metavar="DIR", type=Path, help="write files, as 'tidestaff record' does")
    add("--transport", metavar="SERVERS", help="brokers of the transport topic")
    add("--transport-config", metavar="FILE", help="client properties for the transport")
    add("--topic", metavar="NAME", help="the transport topic")
    add("--create-topic", action="store_true", help="make the topic if it is not there")
    add("--partitions", type=count, metavar="N", default=6, help="of a topic that is made: 6")
    add("--rounds", type=count, metavar="N", help="end when N rounds of each cluster are out")


def run(options: Options) -> int:
    stopping = threading.Event()
    set_when_told(stopping)
    from tidestaff.streaming.settings_loading import load  # noqa: PLC0415 - slow

    if (options.config is None) == (options.bootstrap_server is None):
        raise CommandError(
            "nothing to collect is named: give --config FILE, or --bootstrap-server and no --config"
        )
    settings = load(options.config)
    clusters = _clusters(options, settings)
    if options.to is not None:
        return _to_files(options, clusters, stopping)
    return _to_topic(options, settings, clusters, stopping)


def _clusters(options: Options, settings: Settings) -> list[Cluster]:
    from tidestaff.streaming.settings import Cluster, DirectSource  # noqa: PLC0415 - slow
    from tidestaff.streaming.sources.collecting import check  # noqa: PLC0415

    if options.bootstrap_server is not None:
        (name, *more) = options.cluster or ["cluster"]
        if more:
            raise CommandError("--cluster names the one cluster of --bootstrap-server: give one")
        source = DirectSource(
            collector="brokers", options={"bootstrap_servers": options.bootstrap_server}
        )
        found = [Cluster(name=name, source=source)]
    else:
        found = _chosen(options, settings)
    if options.command_config is not None:
        found = [_with_properties(each, options.command_config) for each in found]
    for each in found:
        check(each)
    return found


def _chosen(options: Options, settings: Settings) -> list[Cluster]:
    from tidestaff.streaming.settings import DirectSource  # noqa: PLC0415 - slow

    direct = {c.name: c for c in settings.clusters if isinstance(c.source, DirectSource)}
    for name in options.cluster or ():
        if name not in direct:
            raise CommandError(
                f"--cluster {name}: {options.config} has no source of type direct by this name"
                + (did_you_mean(name, direct) or f", expected one of {', '.join(direct)}")
            )
    if not direct:
        raise CommandError(
            f"{options.config}: no cluster has a source of type direct",
            "collect runs collectors; conf/tidestaff.yaml shows how one is written",
        )
    return [c for name, c in direct.items() if not options.cluster or name in options.cluster]


def _with_properties(cluster: Cluster, path: str) -> Cluster:
    source = cluster.source
    options = {**source.options, "command_config": path}  # type: ignore[union-attr]
    return cluster.model_copy(update={"source": source.model_copy(update={"options": options})})


def _to_files(options: Options, clusters: Sequence[Cluster], stopping: threading.Event) -> int:
    from tidestaff.streaming.recording import Recorder, record_all  # noqa: PLC0415 - slow

    recorders = [Recorder(cluster, options.to, "parquet", 10) for cluster in clusters]
    total = record_all(recorders, options.rounds, False, stopping)  # noqa: FBT003 - live ones
    _tell(options, {"to": str(options.to), **total.as_value()})
    return Exit.OK


def _to_topic(
    options: Options,
    settings: Settings,
    clusters: Sequence[Cluster],
    stopping: threading.Event,
) -> int:
    from tidestaff.streaming.publishing import Publishing  # noqa: PLC0415 - slow

    target = _target(options, settings.transport)
    _prepare(options, _transport(target))
    running = [
        Publishing(
            cluster,
            settings.work / "collect" / cluster.name,
            _transport(target),
            buffer_rounds=target.buffer_rounds,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
        for cluster in clusters
    ]
    for each in running:
        each.start()
    while any(each.is_alive() for each in running):
        stopping.wait(_JOIN_S)
        for each in running:
            enough = options.rounds is not None and each.rounds >= options.rounds
            if stopping.is_set() or enough or each.collecting.error is not None:
                each.stop()
            if stopping.is_set():
                each.join()
    for each in running:
        if each.error is not None:
            raise each.error
    told = {
        "topic": target.topic,
        "rows": sum(each.publisher.published for each in running),
        "rounds": sum(each.rounds for each in running),
        "waiting": sum(each.waiting for each in running),
    }
    _tell(options, told)
    return Exit.OK


def _target(options: Options, given: TransportSettings) -> TransportSettings:
    """What the command line says has the last word."""
    said = {
        "bootstrap_servers": options.transport,
        "topic": options.topic,
        "command_config": options.transport_config,
    }
    target = given.model_copy(update={k: v for k, v in said.items() if v is not None})
    if not target.bootstrap_servers:
        raise CommandError(
            "nowhere to publish is named",
            "give transport.bootstrap_servers in the configuration, --transport or --to",
        )
    return target


def _transport(target: TransportSettings) -> KafkaTransport:
    from tidestaff.connectors.client_properties import client_options, load_properties  # noqa: PLC0415
    from tidestaff.connectors.errors import ConnectorError  # noqa: PLC0415
    from tidestaff.connectors.importing import load_client_library  # noqa: PLC0415

    load_client_library()
    from tidestaff.connectors.kafka_python_producer import KafkaTransport  # noqa: PLC0415 - slow

    said = {name: value.get_secret_value() for name, value in target.properties.items()}
    file = target.command_config
    try:
        properties = client_options(
            {**(load_properties(Path(file)) if file else {}), **said}, file or ""
        )
    except ConnectorError as error:
        raise CommandError(f"transport: {error.reason}", error.remedy) from None
    return KafkaTransport(target.bootstrap_servers or "", target.topic, properties)


def _prepare(options: Options, transport: KafkaTransport) -> None:
    """A topic that is not there is told before anything is collected; a transport that is away is
    waited for."""
    from tidestaff.connectors.errors import ConnectorError, TopicMissingError  # noqa: PLC0415

    try:
        try:
            transport.check()
        except TopicMissingError:
            if not options.create_topic:
                raise
            transport.create(options.partitions)
    except ConnectorError as error:
        if not error.retriable:
            raise CommandError(f"transport: {error.reason}", error.remedy) from None
        print(f"transport: {error}; it is tried again", file=sys.stderr, flush=True)
    finally:
        transport.close()


def _tell(options: Options, told: dict[str, Any]) -> None:
    if options.json:
        print(json.dumps(told, indent=2))
        return
    print(", ".join(f"{name} {value}" for name, value in told.items()))
