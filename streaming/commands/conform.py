"""`tidestaff conform`: recorded facts of Kafka and formal traces against our rules."""

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
  tidestaff conform tests/conformance/traces

A file holds vectors, formal traces (kafka-replication-trace/1) or a truncation table
(kafka-truncation-table/1). A trace passes if the simulator's kernel replays it and the monitor,
shown its states, raises what is broken and nothing else.

The last line is always 'N passed, N failed, N skipped'.

exit codes:
  0 all passed   1 something failed   3 a file or case could not be read, or there was none to run
"""


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument(
        "place", metavar="DIR", help="a folder of vector or trace files (*.json), or one file"
    )


def run(options: Options) -> int:
    report = run_directory(options.place)
    print(to_json(report) if options.json else render(report))
    return report.exit_code
