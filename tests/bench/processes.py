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


def resident_mb(root: int | None = None, *, without: int | None = None) -> float:
    """Memory in use by the process tree, but for the tree of the process `without`."""
    return sum(resident_mb_by_program(root, without=without).values())


def resident_mb_by_program(
    root: int | None = None, *, without: int | None = None
) -> dict[str, float]:
    """Memory in use by the process tree, by the names of its programs."""
    stat = _stat()
    found: dict[str, float] = {}
    todo = [os.getpid() if root is None else root]
    while todo:
        pid = todo.pop()
        if pid == without:
            continue
        try:
            text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        except OSError:
            text = ""
        lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if "VmRSS" in lines:
            name = lines["Name"].strip()
            found[name] = found.get(name, 0.0) + int(lines["VmRSS"].split()[0]) / 1024
        todo += [child for child, (parent, _) in stat.items() if parent == pid]
    return found
