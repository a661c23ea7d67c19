"""The corpus of the coverage-guided runs: a file for each target, an input a line, in base64."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER: Final = Path(__file__).parent / "corpus"


def kept(target: str) -> list[bytes]:
    path = FOLDER / f"{target}.txt"
    if not path.is_file():
        return []
    return [base64.b64decode(line) for line in path.read_text(encoding="ascii").splitlines()]


def keep(target: str, inputs: Iterable[bytes]) -> None:
    """Smallest first, so that a diff shows what is new."""
    FOLDER.mkdir(exist_ok=True)
    lines = [base64.b64encode(data).decode("ascii") for data in sorted(set(inputs), key=_order)]
    text = "".join(f"{line}\n" for line in lines)
    (FOLDER / f"{target}.txt").write_text(text, encoding="ascii")


def _order(data: bytes) -> tuple[int, bytes]:
    return len(data), data
