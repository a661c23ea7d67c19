"""Tables of figures go where they are read: between two markers of a document."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BENCHMARKS: Final = ROOT / "docs" / "benchmarks.md"


def where() -> str:
    """On what the figures were taken."""
    cores = os.cpu_count()
    load = os.getloadavg()[0]
    day = datetime.now(tz=UTC).date().isoformat()
    version = f"Python {platform.python_version()}, {platform.machine()}"
    return f"{version}, {cores} cores, load {load:.1f} at the end, {day}"


def write_table(
    name: str, text: str, document: Path = BENCHMARKS, *, by: str = "make bench"
) -> None:
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    before, rest = document.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    written = f"{text}\n\nWritten by `{by}` ({where()})."
    document.write_text(f"{before}{begin}\n{written}\n{end}{after}", encoding="utf-8")
