"""`tidestaff record`: what a source sees, kept in files that `tidestaff replay` reads."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.commands.arguments import one_of
from tidestaff.streaming.commands.exits import CommandError, Exit
from tidestaff.streaming.commands.leaving import set_when_told
from tidestaff.streaming.commands.run import add_config_option, count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options

EXAMPLES: Final = """\
examples:
  tidestaff record --out recording --rounds 120           two minutes of the embedded story
  tidestaff record --config tidestaff.yaml --out recording until Ctrl-C
  tidestaff record --out recording --rounds 120 --format avro --fast

A file holds some rounds and is named by its first event time and a number.
--fast goes through a simulation without waiting for its time.
"""


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    add_config_option(parser)
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="where files go")
    parser.add_argument(
        "--format", type=one_of("parquet", "avro"), default="parquet", help="parquet or avro"
    )
    parser.add_argument("--rounds", type=count, metavar="N", help="end after N rounds of each")
    parser.add_argument(
        "--rounds-per-file", type=count, default=10, metavar="N", help="10 unless told"
    )
    parser.add_argument("--fast", action="store_true", help="do not wait between rounds")


def run(options: Options) -> int:
    stopping = threading.Event()
    set_when_told(stopping)
    from tidestaff.streaming.recording import Recorder, record_all  # noqa: PLC0415 - slow
    from tidestaff.streaming.settings_loading import load  # noqa: PLC0415

    settings = load(options.config)
    if options.fast and options.rounds is None:
        raise CommandError("--fast without --rounds would never end: say how many rounds")
    recorders = [
        Recorder(cluster, options.out, options.format, options.rounds_per_file)
        for cluster in settings.clusters
    ]
    said = time.monotonic()

    def look() -> None:
        nonlocal said
        if time.monotonic() - said > 10 and sys.stderr.isatty():
            said = time.monotonic()
            print(f"{sum(r.written.rows for r in recorders)} rows", file=sys.stderr)

    total = record_all(recorders, options.rounds, options.fast, stopping, look)
    _tell(options, total)
    return Exit.OK


def _tell(options: Options, total: Any) -> None:
    if options.json:
        print(json.dumps({"out": str(options.out), **total.as_value()}, indent=2))
        return
    print(f"{total.rows} rows of {total.rounds} rounds in {total.files} files of {options.out}")
    print(f"Read on: tidestaff replay {options.out}")
