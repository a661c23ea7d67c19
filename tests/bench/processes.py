"""CPU of a process and all its children, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path


def _stat() -> dict[int, tuple[int, int]]:
    """Parent and CPU ticks of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        found[int(path.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    return found


def cpu_seconds(root: int | None = None) -> float:
    """What the process tree has used so far; children that ended are not counted."""
    stat = _stat()
    total, todo = 0, [os.getpid() if root is None else root]
    while todo:
        pid = todo.pop()
        total += stat.get(pid, (0, 0))[1]
        todo += [child for child, (parent, _) in stat.items() if parent == pid]
    return total / os.sysconf("SC_CLK_TCK")


def resident_mb(root: int | None = None) -> float:
    """Memory in use by the process tree."""
    stat = _stat()
    total, todo = 0.0, [os.getpid() if root is None else root]
    while todo:
        pid = todo.pop()
        try:
            text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
            line = next((line for line in text.splitlines() if line.startswith("VmRSS")), "0 0")
            total += int(line.split()[1]) / 1024
        except (OSError, IndexError, ValueError):
            pass
        todo += [child for child, (parent, _) in stat.items() if parent == pid]
    return total
