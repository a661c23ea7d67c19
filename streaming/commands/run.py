"""`tidestaff run`: the monitor itself."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.commands.exits import CommandError, Exit
from tidestaff.streaming.commands.leaving import ending_as_told, leave_if

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options

EXAMPLES: Final = """\
examples:
  tidestaff run                                  a simulated cluster that lives through a story
  tidestaff run --config tidestaff.yaml          your clusters; conf/tidestaff.yaml shows every key
  tidestaff run --config tidestaff.yaml --print-config
  TIDESTAFF_OPERATOR__BUCKETS=64 tidestaff run --config tidestaff.yaml

Ctrl-C or SIGTERM end it within seconds; it goes on where it was when it is started again.
exit codes: 0 ended as told, 130 by Ctrl-C, 3 could not run
"""


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    add_config_option(parser)
    parser.add_argument(
        "--print-config", action="store_true", help="the configuration in force, without secrets"
    )
    parser.add_argument(
        "--until-idle", action="store_true", help="end when nothing new has come for 5 s"
    )
    parser.add_argument("--max-batches", type=count, metavar="N", help="end after N batches")


def add_config_option(parser: CommandParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="YAML; without it a simulation")


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number of 1 or more")
    return int(text)


def run(options: Options) -> int:
    return ending_as_told(lambda told: _run(options, told))


def _run(options: Options, told: list[int]) -> int:
    from tidestaff.streaming.settings_loading import effective, load, shown  # noqa: PLC0415 - slow

    settings = load(options.config)
    if options.print_config:
        text = json.dumps(shown(settings), indent=2) + "\n" if options.json else None
        print(text or effective(settings), end="")
        return Exit.OK
    if options.json:
        raise CommandError(
            "tidestaff run --json: the monitor goes on and has no end to put into one object",
            "take a sink of type jsonl for alerts, 'tidestaff alerts --json' or 'status --json'",
        )
    leave_if(told)
    from tidestaff.streaming.running import Limits  # noqa: PLC0415 - slow
    from tidestaff.streaming.running import run as watch  # noqa: PLC0415

    return watch(settings, Limits(options.max_batches, options.until_idle), told)
