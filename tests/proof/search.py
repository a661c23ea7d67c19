"""Random search for a verdict that is wrong: `python -m tests.proof.search --histories 1000`.

Every history is a seed, a preset and a series; the monitor watches it and the simulator's own
ledger says what was true. A disagreement is printed with what is needed to see it again, and with a
short list of actions that still shows it. Exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.simulator.faults import NEVER_LOSE, ON_REQUEST, WEIGHTS
from tidestaff.connectors.simulator.places import METADATA, Trouble, broker_place
from tidestaff.connectors.simulator.presets import PRESETS, preset_named
from tidestaff.connectors.simulator.settings import QUICK

from tests.proof.histories import EVERY_STEP, Plan, live, live_again
from tests.proof.ledger import Outcome, false_alarms, judge
from tests.proof.shrinking import shrink

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.proof.histories import Watched

# Protocols by which faults that never lose anything lose nothing.
SAFE: Final = ("2.8.2", "3.9.1", "3.9.1-kraft", "4.1.1-kraft")
WITHOUT_EPOCHS: Final = "0.10.2.2"
PERIODS_MS: Final = (1_000, 2_000, 5_000)
FINE_MS: Final = 100
SAFE_FAULTS: Final = "safe faults"
QUIET: Final = "no alarm but KIP-966's elections"
LATE_PLACES: Final = "late places"
SERIES: Final = (
    *(SAFE_FAULTS, "all faults", "every step", "disturbed", "real timeouts"),
    LATE_PLACES,
)
# Not among the others: their seeds make the histories they have always made.
SLOW_REMOVAL: Final = "slow fetcher removal"
_SHOWN: Final = 3


class Found(NamedTuple):
    """One history's outcome, and what is to be said of it if the two disagree."""

    series: str
    preset: str
    seed: int
    outcome: Outcome


def plan_of(series: str, preset: str, seed: int, steps: int) -> Plan:
    """Sampling periods take turns with the seed; every fourth history is sampled finely."""
    kinds = NEVER_LOSE if series in (SAFE_FAULTS, QUIET) else frozenset(WEIGHTS)
    if series == SLOW_REMOVAL:
        return slow_removal(preset, seed, steps)
    if series == "every step":
        return Plan(preset, seed, steps, kinds, every_ms=EVERY_STEP)
    periods = (*PERIODS_MS, FINE_MS)
    every_ms = periods[seed % len(periods)]
    if series == "disturbed":
        return Plan(
            preset,
            seed,
            steps,
            NEVER_LOSE if seed % 2 else kinds,
            every_ms=every_ms,
            skew_ms=(30, 300, 2_000)[seed % 3],
            loss=0.1,
            duplication=0.1,
            reorder=0.1,
            bracketed=seed % 5 != 0,
        )
    if series == LATE_PLACES:
        return late_places(Plan(preset, seed, steps, kinds, every_ms=every_ms))
    if series == "real timeouts":
        kinds = NEVER_LOSE if seed % 2 else kinds
        every_ms = (5_000, 15_000)[seed % 2]
        return Plan(preset, seed, steps, kinds, every_ms=every_ms, real_timeouts=True)
    return Plan(preset, seed, steps, kinds, every_ms=every_ms)


def slow_removal(preset: str, seed: int, steps: int) -> Plan:
    """Followers that end their fetches from the old leader long after they have taken over the next
    epoch, and old leaders that live on unawares and are written to. Requests wait long at a leader:
    most are under way when the order comes. Sampled finely, for the time between is short."""
    often = {"produce": 60, "produce_to_zombie": 150, "slow_fetcher_removal": 20}
    sometimes = {"cut": 30, "heal": 30, "preferred_election": 10, "session_expiry": 10}
    seldom = (
        *("crash", "bounce", "clean_stop", "pause", "reassign", "slow_follower", "hold_fetches"),
        *("release_fetches", "controller_failover", "usual_fetcher_removal"),
    )
    weights = {**dict.fromkeys(seldom, 1), **sometimes, **often}
    kinds = (NEVER_LOSE | frozenset(ON_REQUEST)) - {"recreate_topic"}
    settings = replace(QUICK, replica_fetch_wait_max_ms=1_500, request_timeout_ms=3_000)
    plan = Plan(preset, seed, steps, kinds, tuple(sorted(weights.items())), every_ms=FINE_MS)
    return replace(plan, settings=settings)


def late_places(plan: Plan) -> Plan:
    """Every place that is read has a trouble of its own: old metadata, a broker that answers late,
    one that often does not answer."""
    late, lossy = plan.seed % 3 + 1, (plan.seed + 1) % 3 + 1
    places = {
        broker_place(late): Trouble(delay_ms=(50, 600)[plan.seed % 2]),
        broker_place(lossy): Trouble(loss=0.3),
    }
    age_ms = (0, 100, 700, 3_000)[plan.seed // 2 % 4]
    if age_ms:
        places[METADATA] = Trouble(delay_ms=age_ms)
    kinds = NEVER_LOSE if plan.seed % 3 else plan.kinds
    return replace(plan, kinds=kinds, places=tuple(sorted(places.items())))


def examine(series: str, preset: str, seed: int, steps: int) -> Found:
    """One history, judged."""
    return Found(series, preset, seed, judge(live(plan_of(series, preset, seed, steps))))


def report(found: Found, steps: int) -> str:
    """A disagreement with all that is needed to see it again."""
    plan = plan_of(found.series, found.preset, found.seed, steps)
    watched = live(plan)
    return (
        f"DISAGREEMENT seed {found.seed}, preset {found.preset}, series {found.series!r}, "
        f"steps {steps}, a round every {plan.every_ms} ms\n{describe(watched)}\n"
        + shrunk(plan, watched)
    )


def describe(watched: Watched) -> str:
    lines = [f"  false: {a.at_ms} {a.partition} {a.violated}" for a in false_alarms(watched)]
    outcome = judge(watched)
    lines += [f"  {reason} ({n})" for reason, n in sorted(outcome.reasons.items())]
    truth = watched.cluster.truth
    lines += [f"  ledger: {e}" for e in (*truth.losses, *truth.divergences)]
    return "\n".join(lines[:20])


def shrunk(plan: Plan, watched: Watched) -> str:
    """The fewest actions, found by leaving some out, that give the same kind of disagreement."""
    until_ms = watched.cluster.now_ms
    wanted = _signs(watched)

    def still_shows(actions: Sequence[dict[str, Any]]) -> bool:
        return bool(wanted & _signs(live_again(plan, actions, until_ms)))

    actions = [action for action in watched.cluster.actions if action["applied"]]
    if not still_shows(actions):
        return f"  not shown again by its {len(actions)} actions"
    fewest = shrink(actions, still_shows, tries=120)
    shown = "\n".join(f"    {json.dumps(action)}" for action in fewest)
    return (
        f"  shrunk to {len(fewest)} of {len(actions)} actions, watched until {until_ms}:\n{shown}"
    )


def _signs(watched: Watched) -> set[str]:
    outcome = judge(watched)
    unexplained = {reason for reason in outcome.reasons if reason.endswith("unexplained")}
    return set(outcome.false) | unexplained


def search(
    series: Iterable[str], presets: Iterable[str], seeds: Sequence[int], steps: int, workers: int
) -> list[Found]:
    """Every preset in every series with every seed, in that order whatever the workers do."""
    jobs = [(s, preset, seed) for s in series for preset in presets for seed in seeds]
    run = partial(_examine_job, steps)
    if workers <= 1:
        return [run(job) for job in jobs]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(run, jobs, chunksize=4))


def quiet(histories: int, first: int, steps: int, workers: int) -> list[Found]:
    """On safe protocols, with faults that never lose and faithful samples, nothing is raised.

    But for one: from 4.0 the last known leader may be elected out of nobody's ISR (KIP-966), which
    Kafka itself marks as unclean, and nothing is lost by it.
    """
    each = -(-histories // len(SAFE))
    found = search([SAFE_FAULTS], SAFE, range(first, first + each), steps, workers)
    for one in found:
        raised = one.outcome.confirmed
        allowed = {"ELE009"} if preset_named(one.preset).elr else set()
        assert set(raised) <= allowed, (one.preset, one.seed, raised)
    return [one._replace(series=QUIET) for one in found]


def _examine_job(steps: int, job: tuple[str, str, int]) -> Found:
    return examine(*job, steps)


def totals(found: Iterable[Found]) -> dict[tuple[str, str], Outcome]:
    sums: dict[tuple[str, str], Outcome] = {}
    for one in found:
        sums.setdefault((one.series, one.preset), Outcome()).add(one.outcome)
    return sums


def table(sums: dict[tuple[str, str], Outcome]) -> str:
    """Losses, divergences and unclean elections of the ledger: exactly / partly raised / missed."""
    names = "series preset histories actions samples alarms-confirmed false losses divergences"
    heads = [name.replace("-", " ") for name in (*names.split(), "unclean-elections")]
    lines = [f"| {' | '.join(heads)} |", "|---|---|---:|---:|---:|---|---:|---:|---:|---:|"]
    for (series, preset), sums_of in sums.items():
        counts = " | ".join(
            f"{sums_of.exact[what]} / {sums_of.partly[what]} / {sums_of.missed[what]}"
            for what in ("loss", "divergence", "unclean election")
        )
        alarms = ", ".join(f"{code} {n}" for code, n in sorted(sums_of.confirmed.items())) or "-"
        false = ", ".join(f"{code} {n}" for code, n in sorted(sums_of.false.items())) or "0"
        lines.append(
            f"| {series} | {preset} | {sums_of.histories:,} | {sums_of.actions:,} "
            f"| {sums_of.samples:,} | {alarms} | {false} | {counts} |"
        )
    return "\n".join(lines)


def reasons(sums: dict[tuple[str, str], Outcome]) -> str:
    lines = []
    for (series, preset), outcome in sums.items():
        for reason, count in sorted(outcome.reasons.items()):
            lines.append(f"{series}, {preset}: {reason}: {count}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--safe",
        type=int,
        default=0,
        help="histories of safe faults on safe protocols, sampled faithfully: nothing is raised",
    )
    parser.add_argument("--histories", type=int, default=1_000, help="in all series together")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument(
        "--preset",
        action="append",
        choices=PRESETS,
        help="default: all of them",
    )
    parser.add_argument(
        "--series",
        action="append",
        choices=(*SERIES, SLOW_REMOVAL),
        help=f"default: all but {SLOW_REMOVAL!r}",
    )
    parser.add_argument("--steps", type=int, default=200, help="actions a history, at least")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    presets = given.preset or [*PRESETS]
    series = given.series or SERIES
    each = max(1, -(-given.histories // (len(presets) * len(series))))
    seeds = range(given.seed, given.seed + each)
    began = time.perf_counter()
    found = quiet(given.safe, given.seed, given.steps, given.workers) if given.safe else []
    found += search(series, presets, seeds, given.steps, given.workers) if given.histories else []
    sums = totals(found)
    sys.stdout.write(f"{table(sums)}\n\n{reasons(sums)}\n")
    took_s = time.perf_counter() - began
    sys.stdout.write(f"\nseeds {seeds.start} to {seeds.stop - 1}, {took_s:.0f} s\n")
    wrong = [one for one in found if one.outcome.disagreements]
    for one in wrong[:_SHOWN]:
        sys.stdout.write(f"\n{report(one, given.steps)}\n")
    sys.stdout.write(f"\n{len(found)} histories, {len(wrong)} with a disagreement\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
