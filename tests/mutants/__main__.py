"""`python -m tests.mutants`: every seeded fault must make the tests of the rules fail.

Each fault is applied to a scratch copy of the tree, never to the tree itself. The suite is the
rules' own (tests/consistency, tests/conformance): a fault that only a test of the command line
sees would be seen by accident. It is run on the unchanged copy first, for where that fails the
rest would prove nothing. Exit code 0: all killed; 1: a fault survived; 2: nothing was proved.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.mutants.fault import FaultDoesNotApplyError
from tests.mutants.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.fault import Fault

ROOT: Final = Path(__file__).resolve().parents[2]
SUITE: Final = ("tests/consistency", "tests/conformance")
COPIED: Final = ("consistency", "connectors", "streaming", "conf", "tests", "dev")
AT_ONCE: Final = 2
TIMEOUT_S: Final = 300
EXIT_OK, EXIT_SURVIVED, EXIT_NOTHING_PROVED = 0, 1, 2

_PROBE: Final = "import tidestaff.consistency as it; print(*it.__path__)"
_TESTS_FAILED: Final = 1
_FAILED: Final = re.compile(r"^FAILED (\S+)", re.MULTILINE)


class NothingProvedError(Exception):
    """The run says nothing about the tests: copy, suite or a fault is not what it should be."""


class Outcome(NamedTuple):
    """`killed_by` is the first test that failed, None where every test passed."""

    fault: Fault
    killed_by: str | None
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("part", nargs="*", help="only faults whose id contains one of these")
    parts = parser.parse_args(arguments).part
    chosen = [f for f in FAULTS if not parts or any(part in f.id for part in parts)]
    with tempfile.TemporaryDirectory(prefix="tidestaff-mutants-") as scratch:
        try:
            return run(chosen, Path(scratch))
        except (NothingProvedError, FaultDoesNotApplyError) as error:
            print(f"error: {error}", file=sys.stderr)
            return EXIT_NOTHING_PROVED


def run(faults: Sequence[Fault], scratch: Path) -> int:
    """Prove the unchanged copy, then each fault on a copy of that; print what comes of it."""
    if not faults:
        raise NothingProvedError("no fault has such an id")
    started = time.monotonic()
    unchanged = scratch / "unchanged"
    copy_tree(unchanged)
    for fault in faults:
        fault.applied((unchanged / fault.file).read_text(encoding="utf-8"))
    probe(unchanged)
    failed = first_failure(unchanged, SUITE, "-p", "xdist.plugin", "-n", str(AT_ONCE))
    if failed is not None:
        raise NothingProvedError(f"without any fault {failed} fails: mend that first")
    print(f"unchanged: all pass, {time.monotonic() - started:.1f} s", flush=True)
    survivors = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(try_fault, fault, unchanged, scratch) for fault in faults]
        try:
            for number, future in enumerate(as_completed(futures), start=1):
                outcome = future.result()
                print(f"[{number}/{len(faults)}] {shown(outcome)}", flush=True)
                if outcome.killed_by is None:
                    survivors.append(outcome.fault)
        finally:
            pool.shutdown(cancel_futures=True)
    for fault in survivors:
        print(f"\nsurvived: {fault.id} ({fault.why})\n{fault.diff(unchanged)}")
    print(f"\n{time.monotonic() - started:.0f} s")
    print(f"{len(faults) - len(survivors)} killed, {len(survivors)} survived")
    return EXIT_SURVIVED if survivors else EXIT_OK


def copy_tree(to: Path) -> None:
    """The sources and tests alone; `dev` keeps its relative links, which then lead to the copy."""
    to.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", ".*", "*.pyc")
    for name in COPIED:
        shutil.copytree(ROOT / name, to / name, symlinks=True, ignore=unwanted)
    shutil.copy2(ROOT / "pyproject.toml", to)


def environment(tree: Path) -> dict[str, str]:
    # Loading every plugin that is installed would take longer than most of the tests.
    return {
        **os.environ,
        "PYTHONPATH": str(tree / "dev"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def probe(tree: Path) -> None:
    """`tidestaff` is installed editable: make sure that the copy is what the tests import."""
    found = subprocess.run(
        [sys.executable, "-c", _PROBE],
        cwd=tree,
        env=environment(tree),
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"tidestaff.consistency is {found.stdout.strip() or found.stderr.strip()}", flush=True)
    wanted = (tree / "consistency").resolve()
    if [Path(path).resolve() for path in found.stdout.split()] != [wanted]:
        raise NothingProvedError(f"the tests would not import {wanted}")


def try_fault(fault: Fault, unchanged: Path, scratch: Path) -> Outcome:
    """Run the tests the fault names, or else all of the suite, on a copy that has the fault."""
    started = time.monotonic()
    tree = scratch / fault.id
    # The unchanged copy has run, so its compiled modules come along; the fault's is made anew.
    shutil.copytree(unchanged, tree, symlinks=True)
    try:
        fault.apply(tree)
        killed_by = first_failure(tree, fault.tests or SUITE)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return Outcome(fault, killed_by, time.monotonic() - started)


def first_failure(tree: Path, tests: Sequence[str], *options: str) -> str | None:
    """The first test that fails there; None if all pass. Hypothesis draws the same every time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no"]
    command += ["-p", "no:cacheprovider", "-m", "not slow"]
    command += ["-p", "_hypothesis_pytestplugin", "--hypothesis-profile=ci"]
    try:
        done = subprocess.run(
            [*command, *options, *tests],
            cwd=tree,
            env=environment(tree),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {TIMEOUT_S} s"
    if done.returncode == 0:
        return None
    failed = _FAILED.search(done.stdout)
    if done.returncode != _TESTS_FAILED or failed is None:
        last = (done.stdout + done.stderr).strip()[-2_000:]
        raise NothingProvedError(f"pytest ended with {done.returncode} in {tree.name}:\n{last}")
    return failed[1]


def shown(outcome: Outcome) -> str:
    verdict = "SURVIVED" if outcome.killed_by is None else f"killed by {outcome.killed_by}"
    return f"{outcome.fault.id}: {verdict}, {outcome.seconds:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
