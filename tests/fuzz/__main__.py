"""`make fuzz`: a coverage-guided search over every target, and its corpus made smallest again.

Needs atheris, which is not in the lock file (it has no wheels for some platforms): the make target
puts it beside. What a target must not do is written to the standard error with its input.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.corpus import keep, kept
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import BY_NAME

ONE_INPUT_S = 10
LONGEST_INPUT = 2_048


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("targets", nargs="*", choices=[[], *BY_NAME], help="all unless named")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        parser.error(
            "atheris is not there: 'make fuzz' puts it into .fuzz; PYTHONPATH must name it"
        )
    failed = [each for each in options.targets or BY_NAME if not searched(each, options.seconds)]
    if failed:
        print(f"found something in: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def searched(target: str, seconds: int) -> bool:
    """False where an input was found that must not be; it is kept with the corpus."""
    with tempfile.TemporaryDirectory() as folder:
        work, small, bad = (Path(folder) / name for name in ("work", "small", "bad"))
        for each in (work, small, bad):
            each.mkdir()
        for number, data in enumerate([*kept(target), *seeds().get(target, [])]):
            (work / f"seed-{number}").write_bytes(data)
        common = [f"-timeout={ONE_INPUT_S}", f"-max_len={LONGEST_INPUT}", "-rss_limit_mb=4096"]
        artefacts = f"-artifact_prefix={bad}/"
        start = _launcher(Path(folder) / "guided", target)
        found = _run(start, *common, artefacts, f"-max_total_time={seconds}", str(work))
        merged = _run(start, *common, "-merge=1", str(small), str(work))
        crashes = [path.read_bytes() for path in bad.iterdir()]
        found_so_far = [path.read_bytes() for path in (*small.iterdir(), *bad.iterdir())]
        # A merge that broke off has left something out: nothing that was kept goes for that.
        keep(target, found_so_far if merged == 0 else [*kept(target), *found_so_far])
        print(f"{target}: {len(list(small.iterdir()))} inputs, {len(crashes)} defects", flush=True)
        return found == merged == 0 and not crashes


def _launcher(path: Path, target: str) -> Path:
    """Merging starts itself again and again by the name it was started under."""
    command = shlex.join([sys.executable, "-W", "ignore", "-m", "tests.fuzz.guided", str(path)])
    path.write_text(f'#!/bin/sh\nexec {command} {target} "$@"\n', encoding="utf-8")
    path.chmod(0o700)
    return path


def _run(start: Path, *arguments: str) -> int:
    return subprocess.run([start, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
