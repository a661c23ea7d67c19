"""`make field`: every experiment on real clusters; writes docs/field-test.md.

Rows are written after each experiment, and those of experiments that were not asked for stay, so a
part can be run anew: python -m tests.field.run --only kip101,seeds
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.field import (
    field_beside,
    field_cost,
    field_injected,
    field_kip101,
    field_lively,
    field_lost_tail,
    field_report,
    field_seeds,
    field_truncation,
)
from tests.field.field_report import Row
from tests.field.lab import CLUSTERS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.field.field_report import Keep
    from tests.field.field_watch import Alert

OLD, MIDDLE, NEW = (Kind(v, "zookeeper") for v in ("0.10.2.2", "1.1.1", "3.9.1"))
LATEST = Kind("4.1.1", "kraft")


def listed(alerts: list[Alert]) -> str:
    return ", ".join(dict.fromkeys(map(str, alerts))) or "none"


def _said(tools: dict[str, str]) -> str:
    return "<br>".join(f"{tool}: {text or '(nothing)'}" for tool, text in tools.items())


# -- rows


def seeds(folder: Path, _: argparse.Namespace, keep: Keep) -> None:
    field_seeds.play(folder, keep)


def injected(folder: Path, options: argparse.Namespace, keep: Keep) -> None:
    for number, kind in enumerate(_wanted(CLUSTERS, options)):
        field_injected.play(folder / str(number), kind, keep, options.part)


def kip101(folder: Path, options: argparse.Namespace, keep: Keep) -> None:
    for number, kind in enumerate(_wanted((OLD, MIDDLE, NEW), options)):
        for diverge in (True, False):
            place = folder / f"{number}-{diverge}"
            outcome = field_kip101.play(place, kind.version, diverge=diverge)
            for row in kip101_rows(outcome, kind, diverge=diverge):
                keep(row)
        outcome = field_lost_tail.play(folder / f"{number}-tail", kind.version)
        keep(lost_tail_row(outcome, kind))


def lost_tail_row(outcome: field_kip101.Outcome, kind: Kind) -> Row:
    """The disk has lost the record on every version; only the old one lets B keep its own."""
    at = outcome.acknowledged_at
    wanted = {("TRN001", field_kip101.A, at, at + 1)}
    expected = f"the acknowledged record at offset {at} is lost from A's disk"
    if kind == OLD:
        wanted.add(("TRN006", field_kip101.B, at, at + 1))
        expected += ", B keeps it beside another record of A's"
    else:
        expected += ", B cuts it and takes A's"
    told = {(a.code, a.broker, a.first, a.end) for a in outcome.grave}
    expected += "; alerts: " + ", ".join(
        f"{c} broker {b} [{f}, {e})" for c, b, f, e in sorted(wanted)
    )
    state = f"{'lost' if outcome.lost else 'kept'}, "
    state += "diverged" if outcome.diverged else "all equal"
    seen = f"{state}, ISR {list(outcome.isr)}; grave alerts: {listed(outcome.grave)}"
    right = outcome.lost and outcome.diverged == (kind == OLD) and told == wanted
    name = "S-24 both crash, and A's disk has not kept its tail"
    return Row("kip101", name, str(kind), expected, seen, right, outcome.took_s)


def kip101_rows(outcome: field_kip101.Outcome, kind: Kind, *, diverge: bool) -> list[Row]:
    name = "C's watermark was checkpointed" if diverge else "C is killed at once"
    at = outcome.acknowledged_at
    told = {(a.code, a.broker, a.first, a.end) for a in outcome.grave}
    if kind == OLD:
        wanted = {("TRN001", field_kip101.A, at, at + 1)}
        if diverge:
            wanted.add(("TRN006", field_kip101.C, at, at + 1))
        expected = f"the acknowledged record at offset {at} is lost"
        expected += "; C keeps it, A and B hold another" if diverge else ""
        expected += "; alerts: " + ", ".join(
            f"{c} broker {b} [{f}, {e})" for c, b, f, e in sorted(wanted)
        )
        holds = outcome.lost and outcome.diverged == diverge and told == wanted
    else:
        expected = "nothing lost, nothing diverged, no grave alert"
        holds = not outcome.lost and not outcome.diverged and not told
    state = (
        f"{'lost' if outcome.lost else 'kept'}, {'diverged' if outcome.diverged else 'all equal'}"
    )
    seen = f"{state}, ISR {list(outcome.isr)}; grave alerts: {listed(outcome.grave)}"
    rows = [Row("kip101", name, str(kind), expected, seen, holds, outcome.took_s)]
    if kind == OLD and diverge:
        rows.append(
            Row(
                "tools",
                "KIP-101 divergence, when all brokers are back",
                str(kind),
                "what Kafka's own tools say of the diverged partition",
                _said(outcome.tools),
                holds=True,
                seconds=0,
            )
        )
    return rows


def truncation(folder: Path, options: argparse.Namespace, keep: Keep) -> None:
    for number, kind in enumerate(_wanted(CLUSTERS, options)):
        until = time.monotonic() + 60 * options.minutes if options.minutes else None
        tally = field_truncation.play(
            folder / str(number),
            kind,
            rounds=options.rounds,
            seed=options.seed + number,
            until=until,
            say=print,
        )
        for row in truncation_rows(tally):
            keep(row)


def truncation_rows(tally: field_truncation.Tally) -> list[Row]:
    wrong = "; ".join(tally.wrong[:5])
    known = (
        "; of a last known leader, unclean by the controller's own log too: "
        f"{listed(tally.last_known_leaders)}"
        if tally.last_known_leaders
        else ""
    )
    rows = [
        Row(
            "truncation",
            "rounds of kill, restart and write by chance",
            str(tally.kind),
            f"{tally.wanted} rounds: every cut a broker logs is the predicted one; no grave alert "
            "where nothing is unclean",
            f"{tally.rounds} rounds, {tally.compared} logs compared, {tally.cuts} of them cut, "
            f"{len(tally.wrong)} otherwise than predicted{': ' if wrong else ''}{wrong}; "
            f"grave alerts: {listed(tally.unexpected)}{known}",
            not tally.wrong and not tally.unexpected and tally.rounds >= tally.wanted,
            tally.took_s,
        )
    ]
    if tally.losses or tally.false_losses:
        rows.append(
            Row(
                "truncation",
                "unclean elections among them",
                str(tally.kind),
                f"{len(tally.losses)} losses of committed records, each named with its exact range"
                "; none where nothing committed was lost",
                _of_losses(tally),
                not tally.not_named and not tally.false_losses,
                0,
            )
        )
    return rows


def _of_losses(tally: field_truncation.Tally) -> str:
    twice = [each for each in tally.losses if each.twice]
    text = f"{len(tally.losses) - len(tally.not_named)} named"
    if twice:
        text += f" ({len(twice)} with records that the producer wrote twice)"
    text += "".join(f"; {note}" for note in tally.not_named[:4])
    text += f"; {tally.nothing_lost} more leaders died and nothing committed was lost"
    return f"{text}; told as lost beside: {listed(tally.false_losses)}"


def lively(folder: Path, options: argparse.Namespace, keep: Keep) -> None:
    for number, kind in enumerate(_wanted(CLUSTERS, options)):
        outcome = field_lively.play(folder / str(number), kind, minutes=options.load)
        wrong = outcome.false
        others = sorted({alert.code for alert in outcome.alerts if alert not in wrong})
        keep(
            Row(
                "lively",
                "what operators do in a week, in half an hour, under load",
                str(kind),
                "no false alert",
                f"{'; '.join(outcome.done)}: {outcome.records} records acknowledged, "
                f"{outcome.rounds} rounds of observation; "
                f"false alerts: {listed(wrong)}; "
                f"told of brokers that were stopped: {', '.join(others) or 'nothing'}",
                not wrong,
                outcome.took_s,
            )
        )
        keep(
            Row(
                "tools",
                "healthy but lively, under load: who cries wolf",
                str(kind),
                "Tidestaff says nothing; what Kafka's own tools say",
                f"Tidestaff: {listed(wrong)}<br>{field_beside.words(outcome.tools)}",
                not wrong,
                0,
                figures=field_beside.figures(_false_of(outcome), outcome.tools),
            )
        )


def _false_of(outcome: field_lively.Outcome) -> str:
    if outcome.false:
        return f"{min(alert.at_s for alert in outcome.false):.1f} s"
    return f"nothing in {outcome.took_s:.0f} s ({outcome.rounds} rounds)"


def cost(folder: Path, options: argparse.Namespace, keep: Keep) -> None:
    for number, kind in enumerate(_wanted((LATEST,), options)):
        field_cost.play(folder / str(number), kind, keep, options.quads)


EXPERIMENTS: Final[dict[str, Callable[[Path, argparse.Namespace, Keep], None]]] = {
    "kip101": kip101,
    "seeds": seeds,
    "truncation": truncation,
    "lively": lively,
    "injected": injected,
    "cost": cost,
}


def _wanted(kinds: tuple[Kind, ...], options: argparse.Namespace) -> Iterator[Kind]:
    for kind in kinds:
        if options.cluster is None or str(kind) in options.cluster:
            yield kind


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.field.run", description=__doc__)
    parser.add_argument("--only", metavar="NAME,...", help=", ".join(EXPERIMENTS))
    parser.add_argument("--cluster", metavar="VERSION-MODE,...", help=", ".join(map(str, CLUSTERS)))
    parser.add_argument("--rounds", type=int, default=50, help="of truncation, a cluster (50)")
    parser.add_argument("--minutes", type=float, help="of truncation, a cluster, at the most")
    parser.add_argument("--load", type=float, default=30, help="minutes of load when lively (30)")
    parser.add_argument("--quads", type=int, default=12, help="of cost, off on on off (12)")
    parser.add_argument("--part", metavar="NAME,...", help="of injected, only these")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    options.only = options.only.split(",") if options.only else list(EXPERIMENTS)
    options.part = options.part.split(",") if options.part else []
    options.cluster = options.cluster.split(",") if options.cluster else None
    unknown = set(options.only) - set(EXPERIMENTS)
    if unknown:
        parser.error(f"no experiment {', '.join(sorted(unknown))}: take {', '.join(EXPERIMENTS)}")
    known = set(map(str, CLUSTERS))
    parts = set(options.part) - set(field_injected.ALL_PARTS)
    if parts:
        take = ", ".join(field_injected.ALL_PARTS)
        parser.error(f"no part {', '.join(sorted(parts))}: take {take}")
    if options.cluster and not set(options.cluster) <= known:
        parser.error(f"no cluster {options.cluster}: take some of {', '.join(sorted(known))}")
    return options


def main(arguments: list[str]) -> int:
    options = _parsed(arguments)
    # Whoever ends the run ends its brokers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed: list[Row] = []

    def keep(row: Row) -> None:
        """At once: hours of experiments are not lost with the last one."""
        print(f"{'holds' if row.holds else 'FAILS'}  {row.section}  {row.cluster}  ", end="")
        print(row.experiment, flush=True)
        if not row.holds:
            failed.append(row)
            print(f"       expected {row.expected}\n       seen {row.seen}", flush=True)
        field_report.add(row, datetime.now(UTC).strftime("%Y-%m-%d"))

    for name in options.only:
        with tempfile.TemporaryDirectory(prefix=f"tidestaff-field-{name}-") as folder:
            _run(name, Path(folder), options, keep)
    return int(bool(failed))


def _run(name: str, folder: Path, options: argparse.Namespace, keep: Keep) -> None:
    """An experiment that breaks off is a row itself, and the next goes on."""
    began = time.monotonic()
    try:
        EXPERIMENTS[name](folder, options, keep)
    except Exception as error:  # noqa: BLE001 - told in the table
        traceback.print_exc()
        text = f"did not run to its end: {type(error).__name__}: {error}"[:600]
        where = ",".join(options.cluster) if options.cluster else "-"
        took = time.monotonic() - began
        keep(
            Row(
                name,
                field_report.BROKE_OFF,
                where,
                "runs to its end",
                text,
                holds=False,
                seconds=took,
            )
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
