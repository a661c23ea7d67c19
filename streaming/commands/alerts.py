"""`tidestaff alerts`: what the monitor has found, one of them whole, and taking one on."""

from __future__ import annotations

import argparse
import getpass
import json
import re
import time
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.commands.arguments import did_you_mean
from tidestaff.streaming.commands.exits import CommandError, Exit
from tidestaff.streaming.commands.run import add_config_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidestaff.streaming.alerts.alert import Alert
    from tidestaff.streaming.alerts.reading import AlertReader
    from tidestaff.streaming.commands.arguments import CommandParser, Options

EXAMPLES: Final = """\
examples:
  tidestaff alerts                               alerts that are not over, newest first
  tidestaff alerts --status all --since 24h      everything of the last day
  tidestaff alerts --code TRN001 --topic orders --json
  tidestaff alerts show 3fa9                     one of them with its evidence and history
  tidestaff alerts ack 3fa9 --why "restored from the copy on broker 3"

An id is as much of it as is enough. It works while the monitor runs and when it does not.
exit codes: 0 none open, 1 warning, 2 critical, 3 could not tell
"""
_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STATUSES: Final = ("open", "all", "pending", "firing", "acknowledged", "resolved")


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument("action", metavar="ACTION", nargs="?", default="list", type=_action)
    parser.add_argument("id", metavar="ID", nargs="?", help="for show and ack")
    add_config_option(parser)
    parser.add_argument("--work-dir", metavar="DIR", help="of the monitor, as the key work_dir")
    parser.add_argument("--since", type=_since, metavar="TIME", help="90s, 10m, 24h or 7d ago")
    parser.add_argument("--code", action="append", metavar="CODE", help="may be given again")
    parser.add_argument("--topic", metavar="NAME")
    parser.add_argument("--cluster", metavar="NAME")
    parser.add_argument("--status", type=_status, default="open", help=", ".join(_STATUSES))
    parser.add_argument("--why", metavar="TEXT", help="for ack: what you do about it")
    parser.add_argument("--who", metavar="NAME", help="for ack: you, unless told")


def _one_of(words: Sequence[str], text: str) -> str:
    if text not in words:
        hint = did_you_mean(text, words)
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {', '.join(words)}{hint}")
    return text


def _action(text: str) -> str:
    return _one_of(("list", "show", "ack"), text)


def _status(text: str) -> str:
    return _one_of(_STATUSES, text)


def _since(text: str) -> int:
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a time like 90s, 10m, 24h, 7d")
    return int(time.time() * 1_000) - int(match[1]) * _UNITS[match[2]]


def run(options: Options) -> int:
    from tidestaff.streaming.alerts.errors import StoreError  # noqa: PLC0415 - slow

    if options.action != "list" and options.id is None:
        raise CommandError(
            f"tidestaff alerts {options.action}: the id is missing", "'tidestaff alerts' lists them"
        )
    try:
        with reader_of(options) as reader:
            if options.action == "ack":
                return _acknowledge(reader, options)
            return _show(reader, options) if options.action == "show" else _list(reader, options)
    except StoreError as error:
        raise CommandError(str(error)) from None


def reader_of(options: Options) -> _Opened:
    """The store of the monitor that the options mean."""
    from tidestaff.streaming.settings_loading import load  # noqa: PLC0415 - slow

    settings = load(options.config)
    if options.work_dir:
        settings = settings.model_copy(update={"work_dir": options.work_dir})
    if not settings.store_path.is_file():
        raise CommandError(
            f"{settings.store_path}: there is no alert store",
            "start the monitor with 'tidestaff run', or name its --config or --work-dir",
        )
    return _Opened(str(settings.store_path))


class _Opened:
    """An AlertReader that is closed again."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> AlertReader:
        from tidestaff.streaming.alerts.reading import AlertReader  # noqa: PLC0415 - slow

        self.reader = AlertReader(self.path)
        return self.reader

    def __exit__(self, *_: object) -> None:
        self.reader.close()


def _list(reader: AlertReader, options: Options) -> int:
    from tidestaff.streaming.alerts.alert import Status  # noqa: PLC0415 - slow
    from tidestaff.streaming.alerts.reading import AlertFilter  # noqa: PLC0415

    statuses = {
        "all": None,
        "open": (Status.FIRING, Status.ACKNOWLEDGED),
    }.get(
        options.status, (Status(options.status),) if options.status not in ("all", "open") else ()
    )
    wanted = AlertFilter(
        options.since, _codes(options.code), options.topic, options.cluster, statuses
    )
    found = reader.alerts(wanted)
    code = exit_code(found)
    if options.json:
        from tidestaff.streaming.alerts.transition import story  # noqa: PLC0415 - slow

        content = {"alerts": [story(alert) for alert in found], "exit_code": int(code)}
        print(json.dumps(content, indent=2))
        return code
    print("\n".join(_table(found)))
    return code


def _codes(given: Sequence[str] | None) -> list[str] | None:
    """A code that does not exist is no reason to say that there is no alert."""
    from tidestaff.consistency.catalogue import BY_CODE, RETIRED  # noqa: PLC0415 - slow

    if not given:
        return None
    found = [code.upper() for code in given]
    unknown = [code for code in found if code not in BY_CODE and code not in RETIRED]
    if unknown:
        raise CommandError(
            *(f"unknown code {code!r}{did_you_mean(code, BY_CODE)}" for code in unknown),
            "'tidestaff rules' lists them",
        )
    return found


def exit_code(alerts: Sequence[Alert]) -> Exit:
    """By the gravest that fires and nobody has taken on."""
    from tidestaff.consistency.catalogue import BY_CODE  # noqa: PLC0415 - slow

    firing = {BY_CODE[a.code].severity.value for a in alerts if a.status.value == "firing"}
    if "critical" in firing:
        return Exit.CRITICAL
    return Exit.WARNING if "warning" in firing else Exit.OK


def _table(found: Sequence[Alert]) -> list[str]:
    from tidestaff.consistency.catalogue import BY_CODE  # noqa: PLC0415 - slow
    from tidestaff.streaming.alerts.transition import story  # noqa: PLC0415
    from tidestaff.streaming.commands.layout import table  # noqa: PLC0415
    from tidestaff.streaming.sinks.words import subject_of, when  # noqa: PLC0415

    if not found:
        return ["No alert."]
    rows = [
        (
            alert.fingerprint[:8],
            alert.status.value,
            BY_CODE[alert.code].severity.value,
            f"{alert.code} {BY_CODE[alert.code].name}",
            subject_of(story(alert)),
            when(alert.started_at_ms),
        )
        for alert in found
    ]
    head = ("ID", "STATUS", "SEVERITY", "WHAT", "WHERE", "SINCE")
    return [*table(head, rows), "", "'tidestaff alerts show ID' tells all of one."]


def _show(reader: AlertReader, options: Options) -> int:
    from tidestaff.streaming.sinks.words import when  # noqa: PLC0415 - slow

    found = reader.whole(options.id)
    code = exit_code([reader.alert(options.id)])
    if options.json:
        print(json.dumps({**found, "exit_code": int(code)}, indent=2))
        return code
    for line in _story_lines(found):
        print(line)
    print("history")
    for step in found["history"]:
        reason = f": {step['reason']}" if step["reason"] else ""
        print(f"  {when(step['at_ms'])}  {step['status']}{reason}")
    for ack in found["acks"]:
        print(f"  {when(ack['at_ms'])}  taken on by {ack['who']}: {ack['why']}")
    if found["evidence"]:
        print("evidence")
        print(json.dumps(found["evidence"], indent=2))
    return code


def _story_lines(found: dict[str, Any]) -> Iterator[str]:
    from tidestaff.streaming.commands.layout import labelled  # noqa: PLC0415 - slow
    from tidestaff.streaming.sinks.words import details_of, subject_of  # noqa: PLC0415

    head = f"{found['code']} {found['name']} ({found['severity']}, {found['class']})"
    yield f"{head}  {subject_of(found)}  {found['status']}"
    yield from labelled([("claim", found["claim"]), *details_of(found)], indent=2)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that no name belongs to.
        raise CommandError(
            "tidestaff alerts ack: this user has no name on this machine, expected --who",
            "say who takes it on, as in --who anna",
        ) from None


def _acknowledge(reader: AlertReader, options: Options) -> int:
    if not options.why:
        raise CommandError(
            "tidestaff alerts ack: --why is missing", "say what you do about it; it is kept"
        )
    who = options.who or _user()
    now = int(time.time() * 1_000)
    alert = reader.acknowledge(options.id, who=who, why=options.why, now_ms=now)
    if options.json:
        content = {"fingerprint": alert.fingerprint, "status": alert.status.value, "exit_code": 0}
        print(json.dumps(content, indent=2))
    else:
        print(f"{alert.fingerprint} {alert.code}: {alert.status.value}, taken on by {who}")
    return Exit.OK
