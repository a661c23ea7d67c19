"""What docs/scale.md reckons from follows from what was measured, and from nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.bench.report import write_table
from tests.bench.sizing import SCALE, sizing

if TYPE_CHECKING:
    from pathlib import Path


def measured(
    size: int, *, cpu_s: float, state_bytes: float = 40, rounds: int = 5
) -> dict[str, Any]:
    return {
        "size": size,
        "quiet_rounds": rounds,
        "cpu_s": cpu_s,
        "wall_s": cpu_s / 2,
        "first_cpu_s": 100 * cpu_s,
        "state_bytes": state_bytes,
        "memory_mb": 1_500,
    }


def cells(table: str) -> dict[str, list[str]]:
    rows = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| "))
    return {name: rest for name, *rest in rows}


def test_larger_sizes_are_reckoned_from_the_span_of_the_large_ones() -> None:
    found = [
        measured(10_000, cpu_s=2.0, state_bytes=60),
        measured(100_000, cpu_s=4.0),
        measured(500_000, cpu_s=10.0, state_bytes=35, rounds=1),
    ]
    told = cells(sizing(found, fixed_cpu_s=1.25))
    assert told["measured on 2 cores"] == ["10,000", "100,000", "500,000 partitions x 3"]
    assert told["CPU a round"] == ["2.00 s", "4.00 s", "10.00 s"]
    assert told["quiet rounds these are the median of"] == ["5", "5", "1"]
    # 200 µs of the small size are its fixed cost: they would make a million look ten times dearer.
    each = "CPU a quiet partition and round, the fixed part included"
    assert told[each] == ["20 to 40 µs"]
    assert told["quiet partitions a CPU second"] == ["25,000 to 50,000"]
    assert told["fixed CPU a batch"] == ["1.2 s"]
    assert told["CPU a quiet round of a million partitions"] == ["20 to 40 s"]
    assert told["state a partition, and of a million"] == ["40 bytes, 40 MB"]


def test_a_trial_with_small_sizes_says_from_which_its_figures_come() -> None:
    table = sizing([measured(500, cpu_s=1.0), measured(2_000, cpu_s=2.0)], fixed_cpu_s=1.0)
    assert "| reckoned from 2,000 partitions on |" in table
    assert cells(table)["CPU a quiet round of a million partitions"] == ["1,000 s"]


def test_the_document_has_the_place_it_is_written_to(tmp_path: Path) -> None:
    copy = tmp_path / "scale.md"
    copy.write_text(SCALE.read_text(encoding="utf-8"), encoding="utf-8")
    write_table("sizing", sizing([measured(100_000, cpu_s=7.77)], fixed_cpu_s=1), copy)
    text = copy.read_text(encoding="utf-8")
    assert text.count("measured on 2 cores") == 1
    assert cells(text)["CPU a round"] == ["7.77 s"]
    assert "## Sizes to begin with" in text
