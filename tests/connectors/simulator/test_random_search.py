"""Random fault histories, judged by the monitor and by the simulator's ledger: they agree.

The long form is `python -m tests.proof.search`; a disagreement there prints its seed, its preset
and a short list of actions that still shows it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tidestaff.connectors.simulator.faults import NEVER_LOSE
from tidestaff.connectors.simulator.presets import PRESETS
from tidestaff.consistency.model import OffsetRange

from tests.proof.histories import Plan, live, live_again
from tests.proof.ledger import Outcome, covers, judge
from tests.proof.search import SAFE, SERIES, WITHOUT_EPOCHS, examine
from tests.proof.shrinking import shrink

pytestmark = pytest.mark.slow  # hundreds of histories: make test runs them

FIRST_SEED = 7_000
STEPS = 200
SHORT_STEPS = 60
LONG_SEEDS = 2
CLOSE_SEEDS = range(1, 18)


def close_faults(seed: int) -> Plan:
    """Restarts that follow each other closely, which is when the high-watermark protocol loses."""
    weights = (("crash", 8), ("start", 10), ("bounce", 30), ("session_expiry", 10))
    kinds = frozenset({"produce", "clean_stop", *(kind for kind, _ in weights)})
    assert kinds <= NEVER_LOSE
    plan = Plan(WITHOUT_EPOCHS, seed, 100, kinds, weights)
    return replace(plan, every_ms=200, act_every_ms=(20, 150))


def searched(series: str, preset: str, seeds: range, steps: int) -> Outcome:
    """All of them together; the first disagreement fails with its seed."""
    total = Outcome()
    for seed in seeds:
        found = examine(series, preset, seed, steps)
        assert found.outcome.disagreements == 0, (
            f"python -m tests.proof.search --histories 1 --seed {seed} --preset {preset} "
            f"--series {series!r} --steps {steps}: {found.outcome}"
        )
        total.add(found.outcome)
    return total


@pytest.mark.parametrize("preset", SAFE)
@pytest.mark.parametrize("series", ["safe faults", "all faults", "disturbed"])
def test_monitor_and_ledger_agree(series: str, preset: str) -> None:
    total = searched(series, preset, range(FIRST_SEED, FIRST_SEED + 20), SHORT_STEPS)
    assert total.actions >= 20 * SHORT_STEPS
    assert not total.false
    if series == "safe faults":
        allowed = {"ELE009"} if preset == "4.1.1-kraft" else set()
        assert set(total.confirmed) <= allowed, "the last known leader of 4.1 at most"
    elif series == "all faults":
        assert total.confirmed["TRN001"] > 0, "the faults are strong enough to lose something"


LONG = [(series, preset) for series in SERIES for preset in PRESETS]


@pytest.mark.slow
@pytest.mark.parametrize(("series", "preset"), LONG)
def test_monitor_and_ledger_agree_over_long_histories(series: str, preset: str) -> None:
    """No false alarm, under any preset; what is missed has its reason."""
    seeds = range(FIRST_SEED + 100, FIRST_SEED + 100 + LONG_SEEDS)
    total = searched(series, preset, seeds, STEPS)
    assert total.actions >= LONG_SEEDS * STEPS


# Where monitor and ledger once disagreed: preset, series and seed.
FOUND = [
    *(("2.4.1", "all faults", 34_019), ("2.4.1", "every step", 34_019)),
    *(("2.0.1", "every step", 34_013), ("2.0.1", "all faults", 34_013)),
    *(("2.0.1", "every step", 34_019), ("2.0.1", "late places", 34_002)),
    *(("1.1.1", "all faults", 34_005), ("1.1.1", "every step", 34_005)),
    *(("1.1.1", "late places", 34_009), ("1.1.1", "late places", 36_003)),
    *(("1.1.1", "disturbed", 34_012), ("1.1.1", "real timeouts", 34_004)),
    *(("0.8.2.2", "all faults", 36_013), ("1.1.1", "all faults", 34_003)),
    *(("1.1.1", "safe faults", 42_011), ("2.0.1", "late places", 111_000)),
    *(("2.8.2", "every step", 42_012), ("3.9.1", "every step", 42_012)),
    ("4.1.1-kraft", "late places", 42_004),
    *(("3.9.1-kraft", "disturbed", 41_012), ("3.3.2-kraft", "disturbed", 41_012)),
    *(("1.1.1", "all faults", 88_054), ("2.4.1", "every step", 91_025)),
    *(("2.4.1", "all faults", 91_025), ("1.1.1", "disturbed", 345_012)),
    *(("2.4.1", "all faults", 600_024), ("2.4.1", "disturbed", 600_106)),
    *(("3.9.1", "real timeouts", 4_721_022), ("3.9.1", "late places", 4_721_013)),
]


@pytest.mark.parametrize(("preset", "series", "seed"), FOUND)
def test_what_the_search_once_found_is_judged_alike_now(
    preset: str, series: str, seed: int
) -> None:
    searched(series, preset, range(seed, seed + 1), STEPS)


def test_the_search_finds_loss_and_divergence_of_the_high_watermark_protocol() -> None:
    """No fault here may lose anything by itself: the protocol does."""
    total = Outcome()
    for seed in CLOSE_SEEDS:
        total.add(judge(live(close_faults(seed))))
    found = total.exact + total.partly + total.missed
    assert found["loss"] > 0
    assert found["divergence"] > 0
    assert total.exact["loss"] > 0
    assert total.disagreements == 0, total


def test_a_history_lived_again_by_its_actions_is_judged_the_same() -> None:
    plan = Plan("3.9.1", 5, SHORT_STEPS, NEVER_LOSE | {"power_loss", "wipe_disk"}, every_ms=500)
    once = live(plan)
    again = live_again(plan, once.cluster.actions, once.cluster.now_ms)
    assert again.cluster.truth.losses == once.cluster.truth.losses
    assert judge(again).confirmed == judge(once).confirmed


def test_shrinking_keeps_only_what_is_needed() -> None:
    def needs_three_and_forty(items: Any) -> bool:
        return 3 in items and 40 in items

    assert shrink(range(100), needs_three_and_forty) == [3, 40]


@pytest.mark.parametrize(
    ("ranges", "wanted", "covered"),
    [
        pytest.param([(0, 5), (5, 9)], (2, 8), True, id="adjoining-ranges-count-together"),
        pytest.param([(0, 5), (6, 9)], (2, 8), False, id="a-gap-is-not-covered"),
        pytest.param([(3, 9)], (2, 8), False, id="the-beginning-counts"),
        pytest.param([(2, 7)], (2, 8), False, id="the-end-counts"),
    ],
)
def test_a_range_is_confirmed_only_as_a_whole(ranges: Any, wanted: Any, *, covered: bool) -> None:

    assert covers([OffsetRange(*r) for r in ranges], OffsetRange(*wanted)) is covered
