"""How tests wait for the monitor: as long as it gets on, and no longer."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.streaming.job.processes import Patience, put_down, worked_s

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def given_up_at(moves: Iterable[int], works: float, *, for_s: int = 1_000) -> tuple[int, str]:
    """Second by second: when something moves, and how much of a core it takes."""
    clock = [0]
    moved = tuple(moves)
    patience = Patience(
        lambda: max((second for second in moved if second <= clock[0]), default=-1),
        lambda: clock[0] * works,
        still_s=100,
        work_s=500,
        now=lambda: clock[0],
    )
    for second in range(1, for_s):
        clock[0] = second
        if why := patience.exhausted():
            return second, why
    return for_s, ""


@pytest.mark.parametrize(
    ("moves", "works", "given_up"),
    [
        pytest.param([], 0.0, 100, id="what-never-moves-is-given-up"),
        pytest.param([30, 90], 0.0, 190, id="counted-from-the-last-that-moved"),
        pytest.param(
            range(0, 1_000, 99), 0.01, 1_000, id="a-slow-machine-is-waited-for-all-the-time"
        ),
        pytest.param(range(1_000), 1.0, 500, id="busy-for-nothing-is-given-up"),
        pytest.param(range(1_000), 2.0, 250, id="busy-on-two-cores-sooner"),
    ],
)
def test_it_is_waited_for_as_long_as_it_gets_on(
    moves: Iterable[int], works: float, given_up: int
) -> None:
    at, why = given_up_at(moves, works)
    assert at == given_up
    assert bool(why) == (given_up < 1_000)


def test_files_are_signs_and_logs_are_not(tmp_path: Path) -> None:
    (tmp_path / "work" / "logs").mkdir(parents=True)
    before = put_down(tmp_path)
    (tmp_path / "work" / "logs" / "spark.log").write_text("nothing to do")
    assert put_down(tmp_path) == before
    (tmp_path / "work" / "offsets").write_text("1")
    begun = put_down(tmp_path)
    assert begun != before
    (tmp_path / "work" / "offsets").write_text("12")
    assert put_down(tmp_path) != begun


def test_the_work_of_children_counts_while_they_live_and_afterwards() -> None:
    before = worked_s(os.getpid())
    busy = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint()\nsys.stdin.read()"
    command = [sys.executable, "-uc", busy]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        # A tick of the kernel's clock may be missing.
        assert worked_s(child.pid) > 0.4
        assert worked_s(os.getpid()) > before + 0.4
    assert worked_s(os.getpid()) > before + 0.4
