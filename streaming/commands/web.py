"""`tidestaff web`: the web page beside a job that runs elsewhere, from its work directory."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.commands.exits import CommandError, Exit
from tidestaff.streaming.commands.run import add_config_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options

EXAMPLES: Final = """\
examples:
  tidestaff web                                   the page of the job in ./tidestaff-data
  tidestaff web --config tidestaff.yaml           with the job's own configuration
  tidestaff web --work-dir /var/lib/tidestaff --port 8080

It reads what the job writes into its work directory, and needs no Spark. Ctrl-C ends it.
exit codes: 0 ended as told, 130 by Ctrl-C, 3 could not run
"""


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    add_config_option(parser)
    parser.add_argument("--work-dir", metavar="DIR", help="of the monitor, as the key work_dir")
    parser.add_argument("--host", help="as the key web.host; beyond loopback only with a token")
    parser.add_argument("--port", type=int, help="as the key web.port; 0 is any free one")


def run(options: Options) -> int:
    from tidestaff.streaming.settings_loading import load  # noqa: PLC0415 - slow

    given: dict[str, Any] = {"TIDESTAFF_WORK_DIR": options.work_dir}
    given |= {"TIDESTAFF_WEB__HOST": options.host, "TIDESTAFF_WEB__PORT": options.port}
    given["TIDESTAFF_WEB__ENABLED"] = "true"
    settings = load(options.config, _environment(given))
    if not settings.work.is_dir():
        raise CommandError(
            f"{settings.work}: there is no such directory",
            "name the work directory of the job with --work-dir or --config",
        )
    from tidestaff.streaming.web.server import WebServer  # noqa: PLC0415 - slow

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        server = WebServer(settings, say)
    except OSError as error:
        raise CommandError(
            f"{settings.web.host}:{settings.web.port} cannot be listened on ({error.strerror})",
            "set web.host to an address of this machine, web.port to a free port",
        ) from None
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    say(f"the web page is at {server.url}; Ctrl-C ends it")
    try:
        server.wait()
    except KeyboardInterrupt:
        if not received:
            raise
    finally:
        signal.signal(signal.SIGTERM, before)
        server.close()
    return Exit.OK


def _environment(given: dict[str, Any]) -> dict[str, str]:
    import os  # noqa: PLC0415 - beside its only use

    said = {name: str(value) for name, value in given.items() if value is not None}
    return {**os.environ, **said}
