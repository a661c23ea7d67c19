"""`tidestaff conform`: recorded facts of Kafka against our rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.streaming.conform.runner import render, run_directory, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options

EXAMPLES: Final = """\
examples:
  tidestaff conform tests/conformance
  tidestaff conform tests/conformance/truncation.json --json

The last line is always 'N passed, N failed, N skipped'.

exit codes:
  0 all passed   1 something failed   3 nothing could be run
"""


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument("place", metavar="DIR", help="a folder of vector files (*.json), or one")


def run(options: Options) -> int:
    report = run_directory(options.place)
    print(to_json(report) if options.json else render(report))
    return report.exit_code
