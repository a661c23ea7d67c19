"""`make audit`: known vulnerabilities of what is locked, or, where nobody can be asked, whether
everything that is locked has hashes. It says which of the two was done."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
LOCKS: Final = ("requirements.lock", "requirements.runtime.lock")
_LONGEST_S: Final = 60
_HASH: Final = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_PINNED: Final = re.compile(r"[A-Za-z0-9._-]+==\S+")
FOUND, CLEAN = 1, 0


def unhashed(text: str) -> list[str]:
    """Requirements without a version or without a hash."""
    blocks = [b for b in re.split(r"\n(?=\S)", text) if b.strip() and not b.startswith("#")]
    return [
        block.splitlines()[0].rstrip(" \\")
        for block in blocks
        if not _PINNED.match(block) or not _HASH.search(block)
    ]


def known_vulnerabilities() -> tuple[int | None, str]:
    """pip-audit's answer: an exit code with its report, or None with the reason."""
    if importlib.util.find_spec("pip_audit") is None:
        return None, "pip-audit is not installed (pip install pip-audit)"
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes"]
    try:
        done = subprocess.run(
            [*command, "-r", str(ROOT / LOCKS[0])],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_S,
        )
    except subprocess.TimeoutExpired:
        return None, f"pip-audit had no answer within {_LONGEST_S} s"
    if done.returncode == 0:
        return CLEAN, "no known vulnerability"
    if re.search(r"^Name\s+Version", done.stdout, re.MULTILINE):
        return FOUND, done.stdout
    return None, (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1][:200]


def main() -> int:
    code, said = known_vulnerabilities()
    if code is not None:
        print(f"audit: {said}")
        return code
    lacking = [f"{name}: {line}" for name in LOCKS for line in unhashed((ROOT / name).read_text())]
    print(f"audit: vulnerabilities were not looked up: {said}")
    if lacking:
        print("\n".join(["audit: without a hash:", *lacking, "run 'make lock'"]))
        return FOUND
    print(f"audit: every package of {' and '.join(LOCKS)} is pinned by its hashes")
    return CLEAN


if __name__ == "__main__":
    sys.exit(main())
