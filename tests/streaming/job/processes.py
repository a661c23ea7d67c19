"""`tidestaff` as a process of its own, watched and ended by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = [sys.executable, "-m", "tidestaff.streaming.cli"]


class Monitor:
    """One run of the monitor; what it says is kept in files."""

    def __init__(self, folder: Path, config: dict[str, Any], *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "tidestaff.yaml"
        path.write_text(yaml.safe_dump(config))
        self.folder = folder
        with (folder / "out").open("ab") as out, (folder / "err").open("ab") as err:
            self.process = subprocess.Popen(
                [*PROGRAM, "run", "--config", str(path), *arguments],
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**os.environ, "PYTHONWARNINGS": "default"},
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    def until(self, condition: Callable[[], bool], within_s: float = 120) -> None:
        ends = time.monotonic() + within_s
        while not condition():
            assert self.process.poll() is None, f"ended early: {self.err[-3000:]}"
            assert time.monotonic() < ends, f"not within {within_s} s: {self.err[-3000:]}"
            time.sleep(0.1)

    def wait(self, within_s: float = 180) -> int:
        try:
            return self.process.wait(within_s)
        finally:
            self.kill()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def press_ctrl_c(self) -> None:
        """As a terminal does it: all of its group are told."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL to it and, as the JVM leads a session of its own, to its children by their
        ids."""
        children = children_of(self.process.pid)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for child in children:
            kill_if_there(child)


def children_of(pid: int) -> list[int]:
    """Ids of all processes below one, the nearest first."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, todo = [], [pid]
    while todo:
        below = parents.get(todo.pop(0), [])
        found += below
        todo += below
    return found


def kill_if_there(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
