"""Search all reachable states of the kernel and compare with the model checker's counts.

`python -m tests.explore` prints one line per rule set and exits 1 on a mismatch; `--large` adds the
larger model of the correct protocol (a minute or two).
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.connectors.simulator.kernel.enabled import Bounds
from tidestaff.connectors.simulator.kernel.explore import Exploration, explore
from tidestaff.connectors.simulator.kernel.invariants import NOT_AN_ERROR
from tidestaff.connectors.simulator.kernel.rules import PRESETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Expected(NamedTuple):
    """What TLC found: distinct states, depth, and the length of shortest violations it named.

    `nothing_breaks` is TLC's word that no invariant fails at all.
    """

    preset: str
    bounds: Bounds
    states: int
    depth: int
    breaks: Mapping[str, int]
    nothing_breaks: bool = False


TWO = Bounds(log_size=2, max_records=2, max_leader_epoch=2)
THREE = Bounds(log_size=3, max_records=3, max_leader_epoch=3)

SMALL = (
    Expected(
        "hw",
        TWO,
        10_131,
        20,
        {"weak_isr": 8, "strong_isr": 9, "true_leader_has_committed": 11, "below_hw_agree": 14},
    ),
    Expected("kip101", TWO, 9_047, 18, {"log_epochs_monotone": 9, "strong_isr": 11}),
    Expected("kip279", TWO, 9_027, 18, {"log_epochs_monotone": 9}),
    Expected(
        "kip320_first_try",
        TWO,
        8_429,
        18,
        {"follower_leo_le_leader": 6, "follower_matches_leader": 7},
    ),
    Expected("kip320", TWO, 5_973, 18, {}, nothing_breaks=True),
)
LARGE = (Expected("kip320", THREE, 120_879, 26, {}, nothing_breaks=True),)


def found_by(expected: Expected) -> Exploration:
    return explore(PRESETS[expected.preset], expected.bounds, replicas=2)


def shortest(found: Exploration) -> dict[str, int]:
    """Steps to each broken invariant, without what is no error."""
    lengths = {name: len(run) for name, run in found.violations.items()}
    return {name: n for name, n in lengths.items() if name not in NOT_AN_ERROR}


def mismatches(expected: Expected, found: Exploration) -> list[str]:
    """Where search and model checker differ, in words."""
    broken = shortest(found)
    wrong = []
    if found.states != expected.states:
        wrong.append(f"{found.states:,} states, expected {expected.states:,}")
    if found.depth != expected.depth:
        wrong.append(f"depth {found.depth}, expected {expected.depth}")
    for name, steps in expected.breaks.items():
        if broken.get(name) != steps:
            wrong.append(f"{name} after {broken.get(name, 'no')} steps, expected {steps}")
    if expected.nothing_breaks and broken:
        wrong.append(f"{sorted(broken)} break, expected nothing")
    return wrong


def line(expected: Expected, found: Exploration, seconds: float) -> str:
    broken = sorted(shortest(found).items(), key=lambda item: (item[1], item[0]))
    listed = ", ".join(
        f"{name} {steps}" + (f" ({expected.breaks[name]})" if name in expected.breaks else "")
        for name, steps in broken
    )
    bounds = "/".join(map(str, (2, *expected.bounds)))
    return (
        f"{expected.preset:<17} {bounds:<8} {found.states:>8,} ({expected.states:>7,})"
        f" {found.depth:>3} ({expected.depth}) {seconds:>6.1f}s  {listed or 'nothing'}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--large", action="store_true", help="also kip320 at 2/3/3/3")
    chosen = parser.parse_args(arguments)
    print("rule set          model      states (expected) depth      time  what breaks (expected)")
    wrong = []
    for expected in (*SMALL, *(LARGE if chosen.large else ())):
        started = time.perf_counter()
        found = found_by(expected)
        print(line(expected, found, time.perf_counter() - started), flush=True)
        wrong += [f"{expected.preset}: {text}" for text in mismatches(expected, found)]
    for text in wrong:
        print(f"MISMATCH {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
