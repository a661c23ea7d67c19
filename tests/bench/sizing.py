"""What docs/scale.md reckons its sizes from, computed from the measures of the streaming job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.bench.report import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

SCALE: Final = ROOT / "docs" / "scale.md"
# Below it the fixed cost of a batch outweighs the partitions: nothing can be extrapolated from it.
LARGE: Final = 100_000
MILLION: Final = 1_000_000


def sizing(found: Sequence[dict[str, Any]], *, fixed_cpu_s: float) -> str:
    """The measures by size, then the figures that larger sizes are reckoned from."""
    head = " | ".join(f"{one['size']:,}" for one in found)
    rows = {
        "CPU a round": [f"{one['cpu_s']:.2f} s" for one in found],
        "of which fixed (a batch of one partition)": [f"{fixed_cpu_s:.2f} s"] * len(found),
        "wall a round": [f"{one['wall_s']:.2f} s" for one in found],
        "quiet rounds these are the median of": [str(one["quiet_rounds"]) for one in found],
        "memory of driver and workers": [f"{one['memory_mb'] / 1e3:.1f} GB" for one in found],
        "first round, CPU (each partition is judged in full once)": [
            f"{one['first_cpu_s']:.0f} s" for one in found
        ],
    }
    lines = [
        f"| measured on 2 cores | {head} partitions x 3 |",
        f"|---|{'---:|' * len(found)}",
        *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()),
        "",
        *_reckoned(found, fixed_cpu_s),
    ]
    return "\n".join(lines)


def _reckoned(found: Sequence[dict[str, Any]], fixed_cpu_s: float) -> list[str]:
    # A run with small sizes only (to try it) says from which size its figures come.
    large = [one for one in found if one["size"] >= LARGE] or [max(found, key=_size)]
    each_s = [one["cpu_s"] / one["size"] for one in large]
    speeds = [round(1 / each, -2) for each in each_s]
    state = max(one["state_bytes"] for one in large)
    return [
        f"| reckoned from {min(map(_size, large)):,} partitions on | |",
        "|---|---:|",
        f"| CPU a quiet partition and round, the fixed part included | {_span(each_s, 1e6)} µs |",
        f"| quiet partitions a CPU second | {_span(speeds)} |",
        f"| fixed CPU a batch | {fixed_cpu_s:.1f} s |",
        f"| CPU a quiet round of a million partitions | {_span(each_s, MILLION)} s |",
        f"| state a partition, and of a million | {state:.0f} bytes, {state:.0f} MB |",
    ]


def _size(one: dict[str, Any]) -> int:
    size: int = one["size"]
    return size


def _span(values: Sequence[float], times: float = 1) -> str:
    """Lowest and highest: sizes differ, and a mean would hide by how much."""
    low, high = (f"{times * each:,.0f}" for each in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
