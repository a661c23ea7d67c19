"""The command line: `tidestaff COMMAND`. A command's module is imported when it is called, so that
asking for help never waits for Spark.

Exit codes: 0 ok, 1 warning, 2 critical, 3 could not tell; 130 after Ctrl-C, 141 when nobody reads
the output any more.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from tidestaff.consistency.errors import ConsistencyError
from tidestaff.streaming.commands.arguments import (
    JSON_OPTION,
    CommandParser,
    add_json_option,
    did_you_mean,
)
from tidestaff.streaming.commands.exits import INTERRUPTED, CommandError, Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from tidestaff.streaming.commands.arguments import Options

PROGRAM: Final = "tidestaff"
EXIT_NOBODY_READS: Final = 141
_BRIEF: Final = frozenset({"verify"})
"""Commands whose start and end are a good part of what they cost."""
_COLLECTED_AFTER: Final = 100_000


class Command(NamedTuple):
    """A command's module, with `configure(parser, arguments)`, `run(options)` and `EXAMPLES`."""

    module: str
    summary: str


COMMANDS: Final = {
    "run": Command("run", "the monitor itself; without a configuration on a simulated cluster"),
    "record": Command("record", "keep what a source sees, in files"),
    "collect": Command("collect", "the collectors alone: what they see goes to a topic or files"),
    "replay": Command("replay", "judge a recording again; the same alerts, as fast as it goes"),
    "web": Command("web", "the web page, beside a job that runs elsewhere"),
    "alerts": Command("alerts", "what the monitor has found, and taking an alert on"),
    "status": Command("status", "how the monitor is doing"),
    "lab": Command("lab", "a real cluster on this machine to learn on, and its faults"),
    "agent": Command("agent", "what a broker's log directories hold; beside the broker"),
    "verify": Command("verify", "are all copies of a partition the same, and which one is wrong"),
    "what-if": Command("what_if", "what a stop, a restart or a reassignment would do now"),
    "package": Command("package", "the archive that executors of a Spark cluster need"),
    "tour": Command("tour", "the most telling predictions, one after the other"),
    "predict": Command("predict", "what Kafka will do next: election, truncation, high watermark"),
    "simulate": Command("simulate", "play a cluster through faults, with the monitor's alerts"),
    "scenarios": Command("scenarios", "the stories that ship, each a page to read"),
    "rules": Command("rules", "the alert catalogue: every code, its claim and its reasons"),
    "conform": Command("conform", "run recorded facts of Kafka against the rules"),
}

DESCRIPTION: Final = """\
Replica-consistency monitor for Apache Kafka: computes from Kafka's own rules what a cluster should
do, for the version it runs."""

EXAMPLES: Final = """\
examples:
  tidestaff run
  tidestaff alerts
  tidestaff tour
  tidestaff simulate s23-loss-0.10.2
  tidestaff simulate --seed 7 --version 0.10.2
  tidestaff rules TRN001
  tidestaff rules --family ELE --severity critical
  tidestaff predict election --version 3.9 --input partition.json
  tidestaff predict truncation --version 0.10.2 --input - < logs.json
  tidestaff conform tests/conformance
  tidestaff verify --log-dir copy/broker-1 --log-dir copy/broker-2
  tidestaff what-if stop 3 --bootstrap-server broker-1:9092

exit codes:
  0 ok   1 warning   2 critical   3 could not tell (bad input, unknown)
"""


class _ShowVersion(argparse.Action):
    """Reads the version only when it is asked for: the look-up costs more than the rest."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow

        try:
            number = version(PROGRAM)
        except PackageNotFoundError:
            number = "(not installed)"
        print(f"{PROGRAM} {number}")
        parser.exit(Exit.OK)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what is returned is the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is not None or not _BRIEF.intersection(arguments[:1]):
        return _run(arguments)
    # A process of its own: modules that are imported are no garbage, and at the end nobody need
    # look for what the system takes back anyway. Together a fifth of the CPU of an empty run.
    gc.set_threshold(_COLLECTED_AFTER)
    try:
        return _run(arguments)
    finally:
        gc.freeze()


def _run(arguments: Sequence[str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character must not turn a finding into a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _guarded(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return EXIT_NOBODY_READS
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:  # noqa: BLE001 - Python's own code for it, 1, would be read as a warning
        traceback.print_exc()
        told = f"{PROGRAM}: a fault of {PROGRAM} itself: please report it with what is above"
        return _complain((told,), arguments)
    return code


def _guarded(arguments: Sequence[str]) -> int:
    try:
        return _dispatch(arguments)
    except SystemExit as leaving:
        # Only --help and --version leave this way: every error is raised as a UsageError.
        return int(leaving.code or Exit.OK)
    except UsageError as error:
        return _complain(error.problems, arguments)
    except CommandError as error:
        return _complain((f"{PROGRAM}: {error.problems[0]}", *error.problems[1:]), arguments)
    except ConsistencyError as error:
        return _complain((f"{PROGRAM}: {error}",), arguments)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain((f"{PROGRAM}: {where}{error.strerror or error}",), arguments)


def _dispatch(arguments: Sequence[str]) -> int:
    module, options = command_line(arguments)
    return int(module.run(options))


def command_line(arguments: Sequence[str]) -> tuple[ModuleType, Options]:
    """The command's module and what was asked of it; nothing is done yet."""
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        _no_command(name)
    command = COMMANDS[name]
    module = import_module(f"tidestaff.streaming.commands.{command.module}")
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    own = CommandParser(f"{PROGRAM} {name}", summary, module.EXAMPLES)
    add_json_option(own)
    module.configure(own, arguments[1:])
    return module, own.parse(arguments[1:])


def _no_command(name: str) -> NoReturn:
    """Help or the version where that is asked for; else what commands there are."""
    parser = _program_parser()
    if name.startswith("-"):
        parser.parse([name])
    if not name or name.startswith("-"):
        expected = ", ".join(COMMANDS)
        parser.error(f"a command is missing, expected one of {expected}")
    hint = did_you_mean(name, COMMANDS)
    parser.error(f"unknown command {name!r}, expected one of {', '.join(COMMANDS)}{hint}")


def _program_parser() -> CommandParser:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {each.summary}" for name, each in COMMANDS.items())
    epilog = (
        f"commands:\n{listed}\n\n{EXAMPLES}\n'{PROGRAM} COMMAND --help' shows more of a command."
    )
    parser = CommandParser(PROGRAM, DESCRIPTION, epilog)
    parser.usage = f"{PROGRAM} [--help] [--version] COMMAND ..."
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="the version of tidestaff")
    return parser


def _complain(problems: Sequence[str], arguments: Sequence[str]) -> int:
    """To stderr for people and, where --json was asked for, to stdout for machines."""
    for problem in problems:
        print(problem, file=sys.stderr)
    if JSON_OPTION in arguments:
        print(json.dumps({"exit_code": int(Exit.UNKNOWN), "errors": list(problems)}, indent=2))
    return Exit.UNKNOWN


def _drop_output() -> None:
    """Python flushes stdout once more at exit; let that go nowhere instead of to a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
