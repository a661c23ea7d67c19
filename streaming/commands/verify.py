"""`tidestaff verify`: are the copies of each partition the same, and if not, which one is wrong."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.commands.exits import INTERRUPTED, CommandError, Exit, UsageError
from tidestaff.streaming.verify.state import DEFAULT_NAME, Equal, State, load

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from tidestaff.streaming.commands.arguments import CommandParser, Options
    from tidestaff.streaming.verify.copies import CopySource
    from tidestaff.streaming.verify.running import Result, Verification

EXAMPLES: Final = """\
examples:
  tidestaff verify --bootstrap-server broker-1:9092 --topic orders   over the brokers' protocol
  tidestaff verify --bootstrap-server broker-1:9092 --quick          lineages only, in seconds
  tidestaff verify --agents 1=http://a:8471,2=http://b:8471          by agents; payloads stay there
  tidestaff verify --bootstrap-server b:9092 --agents 'http://{host}:8471'   both: exact and cheap
  tidestaff verify --log-dir copy/b1 --log-dir copy/b2               directories, no cluster needed
  tidestaff verify --log-dir copy/b1 --log-dir copy/b2 --scrub       payloads against checksums too
  tidestaff verify ... --resume tidestaff-verify.state               go on after Ctrl-C

Batches are compared by their headers where every copy holds committed offsets; nothing is written,
neither to the cluster nor to its directories. Ctrl-C leaves a file to go on from.
exit codes: 0 equal, 1 a copy is behind, 2 copies differ or are corrupt, 3 something could not be
compared
"""


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    where = parser.add_argument_group("where the copies are")
    where.add_argument("--bootstrap-server", metavar="HOST:PORT", help="a cluster's brokers")
    where.add_argument("--command-config", metavar="FILE", help="client properties")
    where.add_argument("--agents", metavar="URLS", help="1=URL,2=URL or a URL with {host}")
    where.add_argument("--agents-token-file", metavar="FILE", help="what agents want to know")
    where.add_argument("--agents-ca", metavar="FILE", help="PEM, for agents that speak HTTPS")
    where.add_argument(
        "--log-dir", action="append", default=[], metavar="DIR", help="one of log.dirs; again"
    )
    parser.add_argument("--topic", action="append", default=[], metavar="NAME", help="again")
    parser.add_argument("--topics-include", type=_pattern, metavar="REGEX", help="by pattern")
    parser.add_argument(
        "--topics-exclude", type=_pattern, metavar="REGEX", help="leave these topics out"
    )
    parser.add_argument(
        "--compacted",
        type=_pattern,
        metavar="REGEX",
        help="topics to be taken as compacted where no broker can be asked",
    )
    parser.add_argument("--quick", action="store_true", help="lineages only, no contents")
    parser.add_argument("--scrub", action="store_true", help="read payloads, check checksums")
    parser.add_argument(
        "--rate",
        type=float,
        default=100.0,
        metavar="MB",
        help="payload MB a second (100); 0: all. Agents: 100",
    )
    parser.add_argument("--all", action="store_true", help="list equal partitions, too")
    parser.add_argument("--state", type=_path, metavar="FILE", help=DEFAULT_NAME)
    parser.add_argument("--resume", type=_path, metavar="FILE", help="go on from what Ctrl-C left")


def _path(text: str) -> Path:
    from pathlib import Path  # noqa: PLC0415 - slow, and few give one

    return Path(text)


def _left_at(options: Options) -> Path:
    return options.state or _path(DEFAULT_NAME)


def _pattern(text: str) -> re.Pattern[str]:
    import argparse  # noqa: PLC0415 - for its error

    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, no pattern: {error}") from None


def run(options: Options) -> int:
    from tidestaff.streaming.verify.progress import Bar  # noqa: PLC0415 - slow
    from tidestaff.streaming.verify.running import Verification  # noqa: PLC0415

    _check(options)
    about = _about(options)
    state = load(options.resume, about) if options.resume is not None else State(about)
    source = source_of(options)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _stopped(stop))
    bar = Bar(sys.stderr)
    began = time.monotonic()
    try:
        copies = source.partitions(_wanted(options))
        _check_found(options, {each.partition.topic for each in copies})
        state.forget_what_changed(copies)
        verification = Verification(
            source,
            stop=stop,
            check=options.scrub,
            quick=options.quick,
            done_to=state.done_to,
            tell=bar.show,
        )
        try:
            verification.run(each for each in copies if each.partition not in state.equal)
        except KeyboardInterrupt:
            # What was being read is lost; what was settled before is not.
            verification.interrupted = True
    finally:
        bar.end()
        source.close()
    return _tell(options, state, source, verification, time.monotonic() - began)


def _stopped(stop: threading.Event) -> None:
    """Once: finish what is being read, which may take as long as the rate makes it. Twice: at once,
    and what is being read is read again by whoever goes on."""
    if stop.is_set():
        raise KeyboardInterrupt
    stop.set()


def _check(options: Options) -> None:
    live = options.bootstrap_server is not None or options.agents is not None
    if bool(options.log_dir) == live:
        raise UsageError(
            "tidestaff verify: expected either --log-dir (two or more), or --bootstrap-server "
            "and/or --agents",
            "see 'tidestaff verify --help'",
        )
    for name in ("command_config", "agents_ca", "agents_token_file") if options.log_dir else ():
        if getattr(options, name) is not None:
            raise UsageError(
                f"tidestaff verify: --{name.replace('_', '-')} says nothing of --log-dir"
            )
    if options.quick and options.scrub:
        raise UsageError("tidestaff verify: --quick reads no contents, --scrub all of them")
    # Slower than a byte a second nothing ends; what is no number is not less than anything.
    if options.rate != 0 and not options.rate >= 1e-6:
        raise UsageError("tidestaff verify: --rate is megabytes a second, 0 for no limit")


def _about(options: Options) -> dict[str, Any]:
    pattern, excluded = options.topics_include, options.topics_exclude
    return {
        "bootstrap_server": options.bootstrap_server,
        "agents": options.agents,
        "log_dir": sorted(os.path.realpath(each) for each in options.log_dir),
        "topics": sorted(options.topic) or (pattern.pattern if pattern else None),
        "topics_exclude": excluded.pattern if excluded else None,
        "scrub": options.scrub,
    }


def _wanted(options: Options) -> Callable[[str], bool]:
    names, pattern = set(options.topic), options.topics_include
    excluded = options.topics_exclude

    def wanted(topic: str) -> bool:
        if excluded and excluded.fullmatch(topic):
            return False
        if names or pattern:
            return topic in names or bool(pattern and pattern.fullmatch(topic))
        return True

    return wanted


def _names(options: Options) -> Collection[str] | None:
    """The topics that are asked for by name; None: all there are, nothing: not known by name."""
    if options.topics_include or options.topics_exclude:
        return ()
    return set(options.topic) or None


def _check_found(options: Options, topics: Collection[str]) -> None:
    """Nothing found wrong with nothing must not look like a verdict."""
    absent = sorted(set(options.topic) - set(topics))
    if absent:
        raise CommandError(f"no topic {', '.join(absent)} is there", "see --topic")
    if not topics:
        raise CommandError("no topic that is asked for is there", "see --topics-include")


def source_of(options: Options) -> CopySource:
    """Log directories, agents alone, or brokers with or without agents."""
    rate = options.rate * 1_000_000
    pattern = options.compacted

    def compacted(topic: str) -> bool:
        return bool(pattern and pattern.fullmatch(topic))

    if options.log_dir:
        from tidestaff.streaming.verify.directories import DirectorySource  # noqa: PLC0415 - slow

        source = DirectorySource(
            options.log_dir, bytes_a_second=rate, compacted=compacted, check=options.scrub
        )
        if len(source.by_broker) < 2:
            raise CommandError(
                f"the log directories belong to one broker: {', '.join(options.log_dir)}",
                "give those of two brokers or more, one --log-dir for each directory",
            )
        return source
    if options.bootstrap_server is None:
        from tidestaff.streaming.verify.agents import AgentSource  # noqa: PLC0415 - slow

        client, urls = agents_of(options)
        if urls.pattern is not None:
            raise UsageError(
                "tidestaff verify: who the brokers are is known from --bootstrap-server only",
                "give it as well, or --agents as 1=URL,2=URL",
            )
        return AgentSource(client, urls.by_broker, compacted, _names(options), check=options.scrub)
    from tidestaff.streaming.verify.brokers import broker_source  # noqa: PLC0415 - slow

    return broker_source(
        options.bootstrap_server,
        command_config=options.command_config,
        bytes_a_second=rate,
        agents=agents_of(options) if options.agents is not None else None,
        quick=options.quick,
        check=options.scrub,
    )


def agents_of(options: Options) -> Any:
    from tidestaff.connectors.agent_client import AgentClient, parse_agents  # noqa: PLC0415 - slow
    from tidestaff.connectors.errors import ConnectorError  # noqa: PLC0415

    token = None
    if options.agents_token_file is not None:
        token = _path(options.agents_token_file).read_text(encoding="utf-8").strip()
    try:
        client = AgentClient(token=token, timeout_ms=60_000, ca_file=options.agents_ca)
        return client, parse_agents(options.agents)
    except ConnectorError as error:
        raise CommandError(error.reason, error.remedy) from None


def _tell(
    options: Options, state: State, source: CopySource, verification: Verification, seconds: float
) -> int:
    from tidestaff.consistency.comparison_verdict import Outcome  # noqa: PLC0415 - slow
    from tidestaff.streaming.commands.layout import Paint, wants_colour  # noqa: PLC0415
    from tidestaff.streaming.verify import report  # noqa: PLC0415

    results: Sequence[Result] = verification.results
    interrupted, kept = verification.interrupted, False
    values = [report.value_of(each) for each in sorted(results)]
    if interrupted:
        for each, value in zip(sorted(results), values, strict=True):
            if each.verdict.outcome is Outcome.EQUAL and not each.unread:
                state.equal[each.partition] = Equal(value, each.reached)
        state.done_to = {**state.done_to, **verification.unfinished}
        kept = _kept(state, _left_at(options))
    code = report.exit_code(results) if results or not state.equal else Exit.OK
    code = code if not interrupted else INTERRUPTED  # type: ignore[assignment]
    told = report.headline(results, interrupted=interrupted)
    if state.equal and not interrupted:
        told += f"; {len(state.equal)} were found equal before"
    if options.json:
        document = report.document(
            [*(each.told for each in state.equal.values()), *values] if not interrupted else values,
            source=source.kind,
            code=int(code),
            seconds=seconds,
            traffic=source.traffic,
            interrupted=interrupted,
            told=told,
        )
        print(report.as_json(document))
        return int(code)
    print(f"{told} ({source.kind}, {seconds:.1f} s)")
    lines = report.text(results, Paint(colour=wants_colour()), everything=options.all)
    print("\n".join(["", *lines]) if lines else "", end="\n" if lines else "")
    if interrupted and kept:
        print(f"\ngo on with --resume {_left_at(options)}")
    return int(code)


def _kept(state: State, path: Path) -> bool:
    """What was found is told all the same where the state cannot be written."""
    try:
        state.save(path)
    except OSError as error:
        print(f"tidestaff: {path} cannot be written: {error.strerror}", file=sys.stderr)
        return False
    return True
