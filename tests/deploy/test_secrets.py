"""Nothing in the tree is a secret, and what is locked is pinned by hashes."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.deploy.audit import LOCKS, ROOT, unhashed

if TYPE_CHECKING:
    from pathlib import Path

# By a text that each of them holds: most files hold none, and need not be searched.
SHAPES = {
    "PRIVATE KEY": r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----\s+[A-Za-z0-9+/=]{20}",
    "AKIA": r"\bAKIA[0-9A-Z]{16}\b",
    "ASIA": r"\bASIA[0-9A-Z]{16}\b",
    "ghp_": r"\bghp_[A-Za-z0-9]{36}\b",
    "gho_": r"\bgho_[A-Za-z0-9]{36}\b",
    "github_pat_": r"\bgithub_pat_[A-Za-z0-9_]{40}",
    "xox": r"\bxox[abprs]-[A-Za-z0-9-]{20}",
    "hooks.slack.com": r"hooks\.slack\.com/services/T\w+/B\w+/\w{20}",
    "AIza": r"\bAIza[0-9A-Za-z_-]{35}\b",
    ".eyJ": r"\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}",
    "://": r"://[^\s/:@\"'{}$<>]{1,100}:[^\s/:@\"'{}$<>]{6,100}@[\w.-]+",
}
LARGEST = 2_000_000


def files() -> list[Path]:
    """What is tracked; where there is no git (a source archive), all that is there."""
    done = subprocess.run(
        ["git", "ls-files", "-z"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode == 0:
        return [ROOT / name for name in done.stdout.split("\0") if name]
    kept = (path for path in ROOT.rglob("*") if ".venv" not in path.parts)
    return [path for path in kept if path.is_file()]


def secrets_in(text: str) -> list[str]:
    return [
        match[0][:12]
        for held, shape in SHAPES.items()
        if held in text
        for match in re.finditer(shape, text)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN " + "PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "ghp_" + "a" * 36,
        "xoxb-" + "1" * 24,
        "https://user:" + "hunter2hunter2@example.com",
    ],
)
def test_the_scan_finds_what_it_looks_for(text: str) -> None:
    assert secrets_in(text)


def test_the_tree_holds_no_secret() -> None:
    found = []
    for path in files():
        if path.is_file() and not path.is_symlink() and path.stat().st_size < LARGEST:
            text = path.read_bytes().decode("utf-8", "replace")
            found += [f"{path.relative_to(ROOT)}: {each}..." for each in secrets_in(text)]
    assert not found


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_hashes(name: str) -> None:
    assert unhashed((ROOT / name).read_text(encoding="utf-8")) == []


def test_a_package_without_a_hash_is_named() -> None:
    assert unhashed("one==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\ntwo==2.0\n") == ["two==2.0"]
