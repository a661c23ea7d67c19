"""Every shipped scenario leads to the states and alerts that its file says."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest
from tidestaff.connectors.simulator.scenario import read, rewritten, shipped
from tidestaff.streaming.simulation.ledger import compared
from tidestaff.streaming.simulation.performance import Performance


@pytest.mark.parametrize("path", [pytest.param(p, id=name) for name, p in shipped().items()])
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    scenario = read(path)
    states = [played.state for played in Performance(scenario).blocks()]
    before, now = path.read_text(encoding="utf-8"), rewritten(scenario, states)
    if before == now:
        return
    if request.config.getoption("--rewrite", default=False):
        path.write_text(now, encoding="utf-8")
        return
    diff = difflib.unified_diff(
        before.splitlines(), now.splitlines(), path.name, "as it happens now", lineterm="", n=5
    )
    pytest.fail("\n".join(["", *diff, "", "pytest tests/scenarios --rewrite"]), pytrace=False)


README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split("|") for line in README.splitlines() if line.startswith("| S-")]


def mentions(path: Path, example: str) -> bool:
    """By its number, or inside a range such as S-08 - S-13 or S_08_to_S_13."""
    text = path.read_text(encoding="utf-8").replace("_", "-")
    number = int(example[2:])
    ranges = re.findall(r"S-(\d\d)(?: - |-to-| to )S-(\d\d)", text)
    inside = any(int(low) <= number <= int(high) for low, high in ranges)
    return inside or re.search(rf"{example}(?!\d)", text) is not None


@pytest.mark.parametrize("number", range(1, 42))
def test_every_worked_example_is_somewhere(number: int) -> None:
    example = f"S-{number:02}"
    [row] = [row for row in ROWS if example in row[0]]
    scenarios = re.findall(r"s\d\d-[\w.-]+\w", row[1])
    tests = re.findall(r"[\w/]+\.py", row[2] if len(row) > 2 else "")
    places = [shipped()[name] for name in scenarios]
    places += [Path(__file__).parents[1] / name for name in tests]
    assert any(mentions(path, example) for path in places), example
    assert [path for path in places if not path.is_file()] == []


def test_the_table_names_every_numbered_scenario() -> None:
    assert [name for name in shipped() if name[1:3].isdigit() and name not in README] == []


def commands(name: str) -> list[list[str]]:
    return [block.commands for block in read(shipped()[name]).blocks]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s04-controller-fail-over", "s04-controller-fail-over-kraft-3.9"),
        ("s05-stale-registration-3.9", "s05-stale-registration-kraft-3.9"),
        ("s08-preferred-election-1.1.1", "s08-preferred-election-3.9"),
        ("s08-preferred-election-3.9", "s08-preferred-election-kraft-3.9"),
        ("s14-broker-stops-twice-3.9", "s14-broker-stops-twice-kraft-3.9"),
        ("s18-preferred-replica", "s18-preferred-replica-kraft-3.9"),
        ("s19-automatic-rebalance", "s19-automatic-rebalance-kraft-3.9"),
        ("s19-small-imbalance-3.9", "s19-small-imbalance-kraft-3.9"),
        ("s23-loss-0.10.2", "s23-loss-1.1.1"),
        ("s23-loss-0.10.2", "s23-loss-3.9"),
        ("s24-divergence-0.10.2", "s28-divergence-prevented-3.9"),
        ("s24-divergence-0.10.2", "s28-divergence-prevented-1.1.1"),
        ("s25-restart-0.10.2", "s25-restart-3.9"),
        ("s25-restart-3.9", "s25-restart-kraft-3.9"),
        ("s27-cut-at-restart-0.10.2", "s27-loss-prevented-3.9"),
        ("s27-cut-at-restart-0.10.2", "s27-loss-prevented-1.1.1"),
        ("s32-unclean-election-0.10.2", "s32-unclean-election-3.9"),
        ("s32-unclean-election-2.4", "s32-unclean-election-3.9"),
        ("s32-unclean-election-3.9", "s32-unclean-election-kraft-4.1"),
        ("s33-same-epoch-longer-0.10.2", "s33-same-epoch-longer-2.4"),
        ("s33-same-epoch-longer-1.1.1", "s33-same-epoch-longer-2.4"),
        ("s33-where-to-cut-0.10.2", "s33-where-to-cut-2.4"),
        ("s33-where-to-cut-2.4", "s33-where-to-cut-3.9"),
        ("s34-three-paths-after-a-restart-0.10.2", "s34-three-paths-after-a-restart-3.9"),
        ("s34-three-paths-after-a-restart-2.0", "s34-three-paths-after-a-restart-3.9"),
        ("s35-follower-failure-0.10.2", "s35-follower-failure-3.9"),
        ("s35-follower-failure-3.9", "s35-follower-failure-kraft-3.9"),
        ("s36-leader-failure-0.10.2", "s36-leader-failure-3.9"),
        ("s36-leader-failure-3.9", "s36-leader-failure-kraft-3.9"),
        ("s36-leader-failure-longer-0.10.2", "s36-leader-failure-longer-3.9"),
        ("s37-isr-timer-2.0", "s37-isr-timer-2.4"),
        ("s39-no-isr-member-alive-clean-3.9", "s39-no-isr-member-alive-unclean-3.9"),
        ("s39-no-isr-member-alive-clean-3.9", "s39-no-isr-member-alive-clean-kraft-4.1"),
        ("s39-no-isr-member-alive-unclean-2.4", "s39-no-isr-member-alive-unclean-3.9"),
        ("s39-no-isr-member-alive-unclean-3.9", "s39-no-isr-member-alive-unclean-kraft-3.9"),
        ("last-replica-standing-3.9-kraft", "last-replica-standing-4.1-kraft"),
        ("follower-failure-3.9", "follower-failure-kraft-3.9"),
    ],
)
def test_two_files_differ_in_what_kafka_does_not_in_what_is_done(one: str, other: str) -> None:
    assert commands(one) == commands(other)


@pytest.mark.parametrize("name", list(shipped()))
def test_the_monitor_says_what_the_ledger_knows_and_nothing_else(name: str) -> None:
    """Of loss, divergence, unclean elections and broken protocol."""
    performance = Performance(read(shipped()[name]))
    list(performance.blocks())
    for entry in compared(performance.cluster.truth, performance.watch.alerts):
        assert entry.alert is not None, entry
        assert entry.what != "nothing in the ledger", entry
