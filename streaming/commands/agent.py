"""`tidestaff agent`: what a broker's log directories hold, once or for the collector to ask."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.commands.exits import CommandError, Exit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from tidestaff.connectors.agent_server import AgentServer
    from tidestaff.connectors.disk_replica import DiskReplica
    from tidestaff.connectors.log_directories import Disk, LogDirectory
    from tidestaff.streaming.commands.arguments import CommandParser, Options

EXAMPLES: Final = """\
examples:
  tidestaff agent --log-dir /var/lib/kafka --once             what is there, as a table
  tidestaff agent --log-dir copied/broker-1 --once --json     also of files copied elsewhere
  tidestaff agent --log-dir /disk1 --log-dir /disk2           for the collector on this host
  tidestaff agent --log-dir /disk1 --listen 0.0.0.0:8471 --token-file token \\
      --tls-cert agent.pem --tls-key agent.key                for a collector elsewhere

It reads and never writes. It listens on 127.0.0.1:8471 unless told, and on other addresses only
with a token. The collector asks it where option agents names it; see docs/agent.md.
exit codes: 0 nothing amiss, or ended as told; with --once 1 something could not be read, 2 a file
that Kafka would refuse or a directory that is gone; 3 could not run
"""

DEFAULT_LISTEN: Final = "127.0.0.1:8471"
_COLLECTED_AFTER: Final = 50_000
_GRAVE: Final = frozenset({"malformed", "log-dir-offline"})


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument(
        "--log-dir", action="append", required=True, metavar="DIR", help="one of log.dirs; again"
    )
    parser.add_argument("--broker", type=int, metavar="ID", help="where meta.properties has none")
    parser.add_argument(
        "--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help=DEFAULT_LISTEN
    )
    parser.add_argument("--token-file", metavar="FILE", help="what callers must know")
    parser.add_argument("--tls-cert", metavar="FILE", help="PEM; with it HTTPS is spoken")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM; where it is not in --tls-cert")
    parser.add_argument("--once", action="store_true", help="tell what is there, and end")


def run(options: Options) -> int:
    from tidestaff.connectors.log_directories import LogDirectories  # noqa: PLC0415 - slow

    paths = _distinct(options.log_dir)
    directories = LogDirectories(paths, _now_ms)
    if options.once:
        return _once(options, directories.read(None, log_ends=True))
    found = directories.read(frozenset(), log_ends=False)
    if not any(each.online for each in found.directories):
        _nothing_to_read(found)
    broker = _broker(options.broker, found.directories)
    if broker is None:
        raise CommandError("no meta.properties says whose log directories these are: give --broker")
    return _serve(options, _server(options, broker, directories), broker, found)


def _now_ms() -> int:
    return int(time.time() * 1_000)


def _distinct(paths: Sequence[str]) -> list[str]:
    seen: dict[str, str] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real in seen:
            raise CommandError(
                f"--log-dir {path} and --log-dir {seen[real]} are the same: give one"
            )
        seen[real] = path
    return list(paths)


def _nothing_to_read(found: Disk) -> None:
    told = "; ".join(f"{each.reason}: {each.remedy}" for each in found.problems)
    raise CommandError(f"no log directory can be read: {told}")


def _broker(given: int | None, directories: Sequence[LogDirectory]) -> int | None:
    said = {each.path: each.meta.broker for each in directories if each.meta is not None}
    for path, broker in said.items():
        if given is not None and broker != given:
            raise CommandError(
                f"{path} belongs to broker {broker}, not to {given}: correct --broker"
            )
    if len(set(said.values())) > 1:
        listed = ", ".join(f"{path} to broker {broker}" for path, broker in said.items())
        raise CommandError(f"{listed}: give each broker an agent of its own")
    return next(iter(said.values()), given)


# -- listening


def _server(options: Options, broker: int, directories: Any) -> AgentServer:
    from tidestaff.connectors.agent_server import (  # noqa: PLC0415 - slow
        Agent,
        AgentServer,
        parse_listen,
        tls_context,
    )
    from tidestaff.connectors.errors import ConnectorError  # noqa: PLC0415

    if options.tls_key and not options.tls_cert:
        raise CommandError("--tls-key without --tls-cert: give both")
    token = _token(options.token_file)
    try:
        listen = parse_listen(options.listen)
        tls: ssl.SSLContext | None = None
        if options.tls_cert:
            tls = tls_context(options.tls_cert, options.tls_key)
        server = AgentServer(listen, Agent(broker, directories, _now_ms), token=token, tls=tls)
    except ConnectorError as error:
        raise CommandError(f"{error.reason}: {error.remedy}") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise CommandError(
            f"cannot listen on {options.listen} ({why}): give another --listen"
        ) from None
    if token is not None and tls is None and not listen.loopback:
        print("the token travels in the clear: give --tls-cert and --tls-key", file=sys.stderr)
    return server


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    with open(path, encoding="utf-8", errors="replace") as text:  # noqa: PTH123 - OSError names it
        token = text.read(10_000).strip()
    if not (token.isascii() and token.isprintable()):
        raise CommandError(f"{path} holds what no header can carry: make one of letters and digits")
    return token


def _serve(options: Options, server: AgentServer, broker: int, found: Disk) -> int:
    scheme = "https" if options.tls_cert else "http"
    host, port = server.server_address[:2]
    shown = f"[{host!s}]" if ":" in str(host) else str(host)
    url = f"{scheme}://{shown}:{port}"
    partitions = sum(each.partitions for each in found.directories)
    if options.json:
        print(json.dumps({"broker": broker, "url": url, "replicas": partitions}), flush=True)
    else:
        print(
            f"Agent of broker {broker} on {url}: {partitions} replicas in "
            f"{len(found.directories)} log directories",
            flush=True,
        )
    for problem in found.problems:
        print(f"{problem.place}: {problem.reason}: {problem.remedy}", file=sys.stderr)

    def stop(*_: object) -> None:
        # From another thread: the one that serves waits for itself otherwise.
        threading.Thread(target=server.shutdown, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    # Modules stay for ever, and answers hold no circles: looking for garbage among them took about
    # a twentieth of the CPU of a question about thousands of replicas.
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        server.server_close()
        for number, handler in before.items():
            signal.signal(number, handler)
    return Exit.OK


# -- once


def _once(options: Options, found: Disk) -> int:
    from tidestaff.connectors.agent_answers import problem_value, replica_value  # noqa: PLC0415

    if not any(each.online for each in found.directories):
        _nothing_to_read(found)
    broker = _broker(options.broker, found.directories)
    replicas = [found.replicas[each] for each in sorted(found.replicas)]
    code = _exit_code(found)
    if options.json:
        body = {
            "exit_code": int(code),
            "broker": broker,
            "log_dirs": [_directory_value(each) for each in found.directories],
            "replicas": [replica_value(each) for each in replicas],
            "problems": [problem_value(each) for each in found.problems],
        }
        print(json.dumps(body, indent=2))
    else:
        print("\n".join(_lines(broker, replicas, found)))
    return code


def _exit_code(found: Disk) -> Exit:
    if any(problem.kind.value in _GRAVE for problem in found.problems):
        return Exit.CRITICAL
    return Exit.WARNING if found.problems else Exit.OK


def _directory_value(each: LogDirectory) -> dict[str, Any]:
    meta = None if each.meta is None else each.meta._asdict()
    marked = {kind.value: count for kind, count in each.marked.items()}
    return {
        "path": each.path,
        "online": each.online,
        "clean_shutdown": each.clean_shutdown,
        "partitions": each.partitions,
        "marked": marked,
        "meta": meta,
    }


def _lines(broker: int | None, replicas: Sequence[DiskReplica], found: Disk) -> list[str]:
    from tidestaff.streaming.commands.layout import labelled, table  # noqa: PLC0415 - slow

    several = len(found.directories) > 1
    lines = labelled(
        [
            ("broker", "not told" if broker is None else str(broker)),
            *((each.path, _state(each)) for each in found.directories),
        ]
    )
    head = ("PARTITION", "START", "HW", "LOG END", "EPOCHS", "TOPIC ID", "LOG DIR")
    rows = [
        (
            str(each.partition),
            _number(each.log_start_offset),
            _number(each.high_watermark),
            _number(each.log_end_offset),
            _epochs(each),
            each.topic_id or "-",
            each.log_dir,
        )
        for each in replicas
    ]
    width = len(head) if several else len(head) - 1
    if rows:
        lines += ["", *table(head[:width], [row[:width] for row in rows])]
    for problem in found.problems:
        lines += ["", f"! {problem.kind.value}: {problem.place}"]
        lines += [f"  {problem.reason}", f"  {problem.remedy}"]
    return lines


def _state(each: LogDirectory) -> str:
    if not each.online:
        return "offline"
    marked = "".join(f", {count} {kind.value}" for kind, count in each.marked.items())
    left = ", cleanly shut down" if each.clean_shutdown else ""
    return f"{each.partitions} replicas{marked}{left}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _epochs(each: DiskReplica) -> str:
    if each.lineage is None:
        return "-"
    return " ".join(f"{entry.epoch}@{entry.start_offset}" for entry in each.lineage) or "none"
