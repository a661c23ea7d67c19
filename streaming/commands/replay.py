"""`tidestaff replay`: a recording through the same job, and what it finds."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.commands.exits import INTERRUPTED, CommandError, Exit
from tidestaff.streaming.commands.leaving import ending_as_told
from tidestaff.streaming.commands.run import add_config_option, count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options
    from tidestaff.streaming.replaying import Replayed

EXAMPLES: Final = """\
examples:
  tidestaff replay recording                 alerts in the order they were raised
  tidestaff replay recording --json          every transition, with its evidence
  tidestaff replay recording --work-dir w    keep the checkpoint; a second call goes on from there

exit codes: 0 no alert, 1 warning, 2 critical, 3 could not tell, 130 told to stop
before its end
"""


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="what 'tidestaff record' wrote")
    add_config_option(parser)
    parser.add_argument("--work-dir", metavar="DIR", type=Path, help="a temporary one unless told")
    parser.add_argument(
        "--files-per-batch", type=count, default=50, metavar="N", help="50 unless told"
    )
    parser.add_argument("--max-batches", type=count, metavar="N", help="end after N batches")
    parser.add_argument("--pending", action="store_true", help="show suspicions too")


def run(options: Options) -> int:
    return ending_as_told(lambda told: _run(options, told), lambda _: INTERRUPTED)


def _run(options: Options, told: list[int]) -> int:
    from tidestaff.streaming.replaying import replay, settings_for  # noqa: PLC0415 - slow
    from tidestaff.streaming.settings_loading import load  # noqa: PLC0415

    base = load(options.config)
    with tempfile.TemporaryDirectory(prefix="tidestaff-replay-") as scratch:
        work = options.work_dir or Path(scratch)
        settings = settings_for(base, options.folder, work, options.files_per_batch)
        try:
            found = replay(settings, options.max_batches, told)
        except CommandError as error:
            raise _without(scratch, error) from None
    code = exit_code(found)
    if options.json:
        _print_json(found, code)
    else:
        _print_text(found, pending=options.pending)
    return code


def _without(scratch: str, error: CommandError) -> CommandError:
    """Nobody is sent to look at logs that are gone with the temporary directory."""
    kept = [problem for problem in error.problems if scratch not in problem]
    if not kept or len(kept) == len(error.problems):
        return error
    return CommandError(*kept, "run it with --work-dir DIR to keep Spark's own log")


def exit_code(found: Replayed) -> int:
    if found.interrupted:
        # What was not judged may hold anything: this is no answer.
        return INTERRUPTED
    severities = {t.fields["severity"] for t in found.transitions if t.status.value == "firing"}
    if "critical" in severities:
        return Exit.CRITICAL
    return Exit.WARNING if "warning" in severities else Exit.OK


def _print_json(found: Replayed, code: int) -> None:
    content = {
        "rows": found.rows,
        "files": found.files,
        "quarantined": found.quarantined,
        "complete": found.complete,
        "transitions": [transition.fields for transition in found.transitions],
        "exit_code": int(code),
    }
    print(json.dumps(content, indent=2))


def _print_text(found: Replayed, *, pending: bool) -> None:
    from tidestaff.streaming.alerts.outbox import Outgoing  # noqa: PLC0415 - slow
    from tidestaff.streaming.sinks.console import ConsoleSink  # noqa: PLC0415
    from tidestaff.streaming.sinks.sink import EVERYTHING, FOR_PEOPLE, is_for  # noqa: PLC0415

    statuses = EVERYTHING if pending else FOR_PEOPLE
    shown = [t for t in found.transitions if is_for(statuses, t)]
    ConsoleSink(stream=sys.stdout).deliver([Outgoing(n, t, "") for n, t in enumerate(shown)])
    fired = sum(t.status.value == "firing" for t in shown)
    told = "all of it" if found.complete else "stopped before its end"
    aside = f", {found.quarantined} in quarantine" if found.quarantined else ""
    print(f"{found.rows} rows of {found.files} files ({told}){aside}; {fired} alerts fired")
