"""`tidestaff simulate`: a scenario or a random history, step by step, under the monitor's eyes."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.simulator.faults import NEVER_LOSE, ON_REQUEST, WEIGHTS
from tidestaff.connectors.simulator.presets import PRESETS
from tidestaff.connectors.simulator.scenario import preset_like, read
from tidestaff.connectors.simulator.scenario_settings import MOST_DIGITS, whole_number
from tidestaff.consistency.verdict import Severity
from tidestaff.streaming.commands.arguments import did_you_mean
from tidestaff.streaming.commands.exits import Exit, UsageError
from tidestaff.streaming.commands.layout import Paint, wants_colour
from tidestaff.streaming.commands.scenarios import find
from tidestaff.streaming.commands.simulate_frames import watch_history, watch_scenario
from tidestaff.streaming.commands.simulate_text import Stage, history_text, ledger_values
from tidestaff.streaming.simulation.history import REPAIRS, History
from tidestaff.streaming.simulation.performance import Performance
from tidestaff.streaming.simulation.recording import keep, prepare
from tidestaff.streaming.simulation.values import partition_value
from tidestaff.streaming.simulation.watch import gravest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.scenario import Scenario
    from tidestaff.consistency.model import Observation
    from tidestaff.streaming.commands.arguments import CommandParser, Options
    from tidestaff.streaming.simulation.watch import Alert, Watch

    Record = Callable[[Observation], None]

_USUAL: Final = [kind.replace("_", "-") for kind in sorted(WEIGHTS)]
_ON_REQUEST: Final = [kind.replace("_", "-") for kind in sorted(ON_REQUEST)]
_FAULTS: Final = {name: name.replace("-", "_") for name in (*_USUAL, *_ON_REQUEST)}

EXAMPLES: Final = f"""\
examples:
  tidestaff simulate s23-loss-0.10.2                 a story that ships, see 'tidestaff scenarios'
  tidestaff simulate s23-loss-0.10.2 --version 3.9   the same commands under another rule set
  tidestaff simulate s23-loss-0.10.2 --watch         the logs drawn, one frame a step
  tidestaff simulate my-story.txt --record seen      what was observed; then: tidestaff replay seen
  tidestaff simulate --seed 7 --version 0.10.2       a random history, the same for every seed
  tidestaff simulate --seed 7 --watch                its logs drawn, a frame for all that happens
  tidestaff simulate --seed 7 --faults crash,power-loss,clean-stop --steps 30

faults: {", ".join(_USUAL[:13])},
        {", ".join(_USUAL[13:])}
        only where they are named: {", ".join(_ON_REQUEST)}
versions: {", ".join(PRESETS)}

exit codes:
  0 no alert, or for information only   1 warning   2 critical   3 bad input
"""
_MOST_STEPS: Final = 999_999
_EXITS: Final = {
    Severity.INFO: Exit.OK,
    Severity.WARNING: Exit.WARNING,
    Severity.CRITICAL: Exit.CRITICAL,
}


def _version(text: str) -> str:
    found = preset_like(text)
    if found is None:
        hint = did_you_mean(text, PRESETS)
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected one of {', '.join(PRESETS)}{hint}"
        )
    return found


def _faults(text: str) -> frozenset[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in _FAULTS:
            hint = did_you_mean(name, _FAULTS) or f", expected some of {', '.join(_FAULTS)}"
            raise argparse.ArgumentTypeError(f"found {name!r}{hint}")
    if not names:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected some of {', '.join(_FAULTS)}")
    return frozenset(_FAULTS[name] for name in names)


def _positive(text: str) -> int:
    number = whole_number(text)
    if not number or number > _MOST_STEPS:
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected a number from 1 on, up to {_MOST_STEPS}"
        )
    return number


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found <= 3600:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected seconds, as in 1.5")
    return found


def _seed(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected a number from 0 on, of at most {MOST_DIGITS} digits"
        )
    return number


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument("scenario", metavar="NAME|FILE", nargs="?", help="what to play")
    parser.add_argument("--version", type=_version, help="the Kafka version to play it under")
    parser.add_argument("--watch", action="store_true", help="draw the logs, one frame a step")
    parser.add_argument(
        "--delay", type=_seconds, default=1.5, metavar="SECONDS", help="between two frames (1.5)"
    )
    parser.add_argument(
        "--record", metavar="DIR", type=Path, help="keep what was observed, for 'replay'"
    )
    parser.add_argument("--seed", type=_seed, metavar="N", help="play a random history instead")
    parser.add_argument(
        "--faults", type=_faults, metavar="A,B", help="only these faults, by chance"
    )
    parser.add_argument("--steps", type=_positive, metavar="N", help="how many actions (50)")


def run(options: Options) -> int:
    _check(options)
    scenario = read(find(options.scenario)) if options.scenario is not None else None
    with _recorder(options.record) as record:
        if scenario is not None:
            return _scenario(scenario, options, record)
        return _history(options, record)


def _check(options: Options) -> None:
    if (options.scenario is None) == (options.seed is None):
        raise UsageError(
            "tidestaff simulate: expected either a scenario (NAME or FILE) or --seed N",
            "'tidestaff scenarios' lists what there is; see 'tidestaff simulate --help'",
        )
    if options.seed is None and (options.faults is not None or options.steps is not None):
        raise UsageError("tidestaff simulate: --faults and --steps go with --seed, see --help")
    if options.watch and options.json:
        raise UsageError("tidestaff simulate: --watch draws for people, expected it without --json")


@contextlib.contextmanager
def _recorder(folder: Path | None) -> Iterator[Record | None]:
    if folder is None:
        yield None
        return
    prepare(folder)
    seen: list[Observation] = []
    yield seen.append
    keep(folder, seen)


def _scenario(scenario: Scenario, options: Options, record: Record | None) -> int:
    if options.version is not None:
        scenario = replace(scenario, preset=options.version)
    performance = Performance(scenario, record)
    if options.json:
        steps = [
            {
                "at_ms": played.at_ms,
                "comment": played.block.comment,
                "commands": played.block.commands,
                "partitions": _partitions(performance.cluster),
                "state": played.state,
                "alerts": [alert.as_value() for alert in played.alerts],
            }
            for played in performance.blocks()
        ]
        head = {"scenario": scenario.name, "version": scenario.preset, "steps": steps}
        return _json(head, performance.cluster, performance.watch)
    paint = Paint(colour=wants_colour())
    if options.watch:
        watch_scenario(performance, paint, options.delay)
    else:
        stage = Stage(performance, paint)
        print("\n".join(stage.opening()))
        for played in performance.blocks():
            print("\n".join(stage.told(played)))
        print("\n".join(stage.closing()))
    return _EXITS[gravest(performance.watch.alerts)]


def _history(options: Options, record: Record | None) -> int:
    preset, steps = options.version or "3.9.1", options.steps or 50
    kinds = NEVER_LOSE if options.faults is None else options.faults | REPAIRS
    history = History(preset, options.seed, kinds, record)
    paint = Paint(colour=wants_colour())
    if options.watch:
        watch_history(history, options.seed, steps, paint, options.delay)
    else:
        history.run(steps)
    if options.json:
        told = [
            {
                "at_ms": moment.at_ms,
                "commands": moment.commands,
                "state": moment.state,
                "alerts": [alert.as_value() for alert in moment.alerts],
            }
            for moment in history.moments
        ]
        head = {"seed": options.seed, "version": preset, "steps": told}
        _json(head, history.cluster, history.watch)
    elif not options.watch:
        print("\n".join(history_text(history, options.seed, kinds, paint)))
    _tell_what_never_happened(history, options.faults or ())
    return _EXITS[gravest(history.watch.alerts)]


def _tell_what_never_happened(history: History, asked: Collection[str]) -> None:
    missing = [kind.replace("_", "-") for kind in history.never_happened(asked)]
    if missing:
        print(
            f"tidestaff simulate: of the faults asked for, {', '.join(missing)} did not happen in "
            "this history: take more --steps, or add what they need (wipe-disk and start need a "
            "broker that is down)",
            file=sys.stderr,
        )


def _partitions(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    return [partition_value(cluster, partition) for partition in cluster.mode.partitions()]


def _json(content: dict[str, Any], cluster: SimulatedCluster, watch: Watch) -> int:
    alerts: list[Alert] = watch.alerts
    code = _EXITS[gravest(alerts)]
    told = {**content, "ledger": ledger_values(cluster.truth, alerts), "exit_code": int(code)}
    print(json.dumps(told, indent=2))
    return code
