"""`tidestaff status`: whether the monitor runs, how fresh its sight is, and how its sinks do."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.commands.exits import CommandError, Exit
from tidestaff.streaming.commands.run import add_config_option

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options
    from tidestaff.streaming.settings import Settings

EXAMPLES: Final = """\
examples:
  tidestaff status
  tidestaff status --config tidestaff.yaml --json

exit codes: 0 all is well, 1 a sink fails or records are refused, 2 it does not run or sees nothing
new, 3 could not tell
"""


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    add_config_option(parser)
    parser.add_argument("--work-dir", metavar="DIR", help="of the monitor, as the key work_dir")


def run(options: Options) -> int:
    from tidestaff.streaming.settings_loading import load  # noqa: PLC0415 - slow

    settings = load(options.config)
    if options.work_dir:
        settings = settings.model_copy(update={"work_dir": options.work_dir})
    # Without a file nobody has said which clusters are meant: all that the store knows are.
    known = None if options.config is None else _named(settings)
    found = status_of(settings, int(time.time() * 1_000), known)
    code = exit_code(found)
    if options.json:
        print(json.dumps({**found, "exit_code": int(code)}, indent=2))
    else:
        print("\n".join(_lines(found)))
    return code


def _named(settings: Settings) -> set[str] | None:
    """Of the configuration; None where a source brings clusters of names of its own."""
    from tidestaff.streaming.settings import DirectSource, SimulatorSource  # noqa: PLC0415 - slow

    if all(isinstance(c.source, DirectSource | SimulatorSource) for c in settings.clusters):
        return {cluster.name for cluster in settings.clusters}
    return None


def status_of(
    settings: Settings, now_ms: int, known: Collection[str] | None = None
) -> dict[str, Any]:
    """`known`: who is watched. Others are told, and nothing is expected of them."""
    from tidestaff.streaming.alerts.errors import StoreError  # noqa: PLC0415 - slow
    from tidestaff.streaming.alerts.reading import AlertReader  # noqa: PLC0415
    from tidestaff.streaming.checkpoint import running  # noqa: PLC0415

    if not settings.store_path.is_file():
        raise CommandError(
            f"{settings.store_path}: there is no alert store",
            "start the monitor with 'tidestaff run', or name its --config or --work-dir",
        )
    try:
        reader = AlertReader(settings.store_path)
        try:
            counts, totals = reader.counts(), reader.totals()
            clocks, sinks = reader.clocks(), reader.sinks()
        finally:
            reader.close()
    except StoreError as error:
        raise CommandError(str(error)) from None
    return {
        "work_dir": str(settings.work),
        "running": running(settings.work),
        "silence_ms": settings.operator.silence_ms,
        "clusters": {
            cluster: {
                "newest_ms": at_ms,
                "age_ms": now_ms - at_ms,
                "watched": known is None or cluster in known,
            }
            for cluster, at_ms in sorted(clocks.items())
            if cluster in _watched(clocks)
        },
        "alerts": [
            {"code": code, "severity": severity, "status": status, "count": count}
            for (code, severity, status), count in sorted(counts.items())
        ],
        "totals": {name: n for name, n in sorted(totals.items()) if not name.startswith("source ")},
        "sinks": [sink._asdict() for sink in sinks],
    }


def _watched(clocks: dict[str, int]) -> set[str]:
    from tidestaff.streaming.alerts.event import (  # noqa: PLC0415 - slow
        OWN_CLUSTER,
        UNKNOWN_CLUSTER,
    )

    return set(clocks) - {OWN_CLUSTER, UNKNOWN_CLUSTER}


def exit_code(found: dict[str, Any]) -> Exit:
    watched = [c for c in found["clusters"].values() if c["watched"]]
    stale = [c for c in watched if c["age_ms"] > found["silence_ms"]]
    if found["running"] is None or stale or not watched:
        return Exit.CRITICAL
    failing = [sink for sink in found["sinks"] if sink["failing_since_ms"] is not None]
    return Exit.WARNING if failing or found["totals"].get("quarantined") else Exit.OK


def _lines(found: dict[str, Any]) -> list[str]:
    from tidestaff.streaming.commands.layout import labelled, table  # noqa: PLC0415 - slow
    from tidestaff.streaming.sinks.words import how_long, when  # noqa: PLC0415

    lines = labelled(
        [
            ("work dir", found["work_dir"]),
            ("running", found["running"] or "no: start it with 'tidestaff run'"),
            *((name, str(count)) for name, count in found["totals"].items()),
        ]
    )
    rows = [
        (
            name,
            when(c["newest_ms"]),
            f"{how_long(c['age_ms'])} ago" + ("" if c["watched"] else ", not watched any more"),
        )
        for name, c in found["clusters"].items()
    ]
    lines += ["", *table(("CLUSTER", "NEWEST OBSERVATION", "AGE"), rows)] if rows else []
    alerts = [(a["code"], a["severity"], a["status"], str(a["count"])) for a in found["alerts"]]
    lines += ["", *table(("CODE", "SEVERITY", "STATUS", "COUNT"), alerts)] if alerts else []
    sinks = [
        (s["name"], str(s["delivered"]), str(s["backlog"]), s["last_error"] or "well")
        for s in found["sinks"]
    ]
    return (
        [*lines, "", *table(("SINK", "DELIVERED", "WAITING", "STATE"), sinks)] if sinks else lines
    )
