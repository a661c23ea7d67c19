"""`tidestaff` as a process of its own, watched and ended by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyspark
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = [sys.executable, "-m", "tidestaff.streaming.cli"]
STILL_S: Final = 300.0
WORK_S: Final = 900.0
LOOKS_EVERY_S: Final = 1.0
# Half a minute on a quiet machine.
SUBMITTED_WITHIN_S: Final = 900.0


class Patience:
    """How long something is waited for: as long as it gets on, however slow the machine is.

    It is given up when nothing has moved for `still_s`, or when it has worked for `work_s` of a
    core's time: that is far more than anything here takes, and it does not grow with the load.
    """

    def __init__(
        self,
        signs: Callable[[], object],
        worked_s: Callable[[], float],
        *,
        still_s: float = STILL_S,
        work_s: float = WORK_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._signs, self._worked_s, self._now = signs, worked_s, now
        self._still_s, self._work_s = still_s, work_s
        self._seen = signs()
        self._moved = self._looked = now()
        self._began_s = worked_s()

    def exhausted(self) -> str:
        """Why it is given up, or nothing."""
        now = self._now()
        if now - self._looked < LOOKS_EVERY_S:
            return ""
        self._looked = now
        if (seen := self._signs()) != self._seen:
            self._seen, self._moved = seen, now
        if now - self._moved >= self._still_s:
            return f"nothing has moved for {self._still_s:.0f} s"
        if self._worked_s() - self._began_s >= self._work_s:
            return f"it has worked for {self._work_s:.0f} s of a core's time and did not get there"
        return ""


class Monitor:
    """One run of the monitor; what it says is kept in files."""

    def __init__(self, folder: Path, config: dict[str, Any], *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "tidestaff.yaml"
        path.write_text(yaml.safe_dump(config))
        self.folder = folder
        self._work = folder / config.get("work_dir", "tidestaff-data")
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

    def until(self, condition: Callable[[], bool]) -> None:
        """Fails when it ends before, and when it does not get on any more."""
        patience = Patience(self._signs, lambda: worked_s(self.process.pid))
        while not condition():
            assert self.process.poll() is None, f"ended early: {self.err[-3000:]}"
            why = patience.exhausted()
            assert not why, f"{why}: {self.err[-3000:]}"
            time.sleep(0.1)

    def _signs(self) -> object:
        return put_down(self.folder, self._work)

    def wait(self) -> int:
        """Until it ends by itself; its exit code."""
        try:
            self.until(lambda: self.process.poll() is not None)
            return self.process.wait()
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


class Submitted(NamedTuple):
    """What came of a program that spark-submit ran."""

    code: int
    out: str
    err: str


def submit(folder: Path, master: str, options: list[str], arguments: list[str]) -> Submitted:
    """As documented: `tidestaff package`, then spark-submit with the archive and what lies beside
    it."""
    archive = folder / "tidestaff.zip"
    subprocess.run([*PROGRAM, "package", "-o", str(archive)], check=True, capture_output=True)
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--master", master]
    command += ["--driver-memory", "700m", "--archives", f"{archive}#tidestaff_archive"]
    command += ["--conf", "spark.executorEnv.PYTHONPATH=tidestaff_archive"]
    command += ["--conf", "spark.driver.host=127.0.0.1", *options]
    command += [str(folder / "tidestaff_main.py"), *arguments]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        job = subprocess.Popen(
            command, stdout=out, stderr=err, cwd=folder, env=environment, start_new_session=True
        )
        try:
            code = job.wait(SUBMITTED_WITHIN_S)
        finally:
            below = children_of(job.pid)
            kill_if_there(job.pid)
            job.wait()
            for child in below:
                kill_if_there(child)
    return Submitted(code, (folder / "out").read_text(), (folder / "err").read_text())


def put_down(*roots: Path) -> tuple[int, int, int]:
    """Files, their bytes, and when the last was written. Logs are left out: Spark writes there,
    too, that it has nothing to do."""
    found = []
    for root in roots:
        for folder, below, names in os.walk(root):
            below[:] = [name for name in below if name != "logs"]
            for name in names:
                with suppress(FileNotFoundError):
                    found.append(Path(folder, name).stat())
    newest = max((each.st_mtime_ns for each in found), default=0)
    return len(found), sum(each.st_size for each in found), newest


def worked_s(pid: int) -> float:
    """Time on a core of a process and of all below it, with that of children that have ended."""
    ticks = 0
    for each in (pid, *children_of(pid)):
        with suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


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
