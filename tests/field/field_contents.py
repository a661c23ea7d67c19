"""One byte of a record on a follower is another, with a checksum that fits again and without: the
cluster's own state shows nothing, and whoever reads from that replica reads something else."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from tests.field import field_disks
from tests.field.field_report import Row
from tests.field.field_tools import said_by_tools, short

if TYPE_CHECKING:
    from tests.field.field_inject import Injected

OFFSET, BROKER = 10, 3
_NAMED: Final = re.compile(
    rf"at offset {OFFSET}: broker {BROKER} is wrong|broker {BROKER} at offset {OFFSET}\b"
)
_CRITICAL: Final = 2
_WITHIN_S: Final = 180


def play(injected: Injected) -> None:
    for topic, fixed in (("altered", True), ("rotten", False)):
        injected.topic(topic)
        replica = field_disks.replica_dir(injected.lab, BROKER, topic)
        field_disks.alter_batch(replica, OFFSET, fix_checksum=fixed)
        began = time.monotonic()
        code, said = verify(injected, topic)
        took = time.monotonic() - began
        found = code == _CRITICAL and _NAMED.search(said) is not None
        what = "with its checksum fixed up" if fixed else "its checksum is broken"
        name, kind = f"bytes of a follower altered, {what}", str(injected.kind)
        wanted = f"`tidestaff verify --scrub` names broker {BROKER} and offset {OFFSET}"
        seen = f"exit code {code} after {took:.1f} s: {short(said, 6)}"
        injected.keep(Row("injected", name, kind, wanted, seen, found, took))
        tools = said_by_tools(injected.lab, topic)
        told = "<br>".join(f"{tool}: {text or '(nothing)'}" for tool, text in tools.items())
        text = f"Tidestaff: {short(said, 2) if found else 'nothing'}<br>{told}"
        injected.keep(Row("tools", name, kind, "who names it", text, found, 0))


def verify(injected: Injected, topic: str) -> tuple[int, str]:
    """The command, as people type it."""
    command = [sys.executable, "-m", "tidestaff.streaming.cli", "verify", "--scrub"]
    command += ["--bootstrap-server", injected.lab.bootstrap, "--agents", injected.agents]
    command += ["--topic", topic, "--state", str(injected.lab.plan.folder / "verify.state")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
    return done.returncode, done.stdout + done.stderr
