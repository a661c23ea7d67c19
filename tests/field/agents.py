"""`tidestaff agent` beside every broker of a lab."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidestaff.streaming.lab.plan import LOOPBACK, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.field.lab import Lab


@contextmanager
def agents_of(lab: Lab) -> Iterator[tuple[str, list[int]]]:
    """What `--agents` takes, and the numbers of the processes; all are ended."""
    ports = dict(zip(lab.brokers, free_ports(len(lab.brokers)), strict=True))
    started: list[subprocess.Popen[bytes]] = []
    try:
        for broker, port in ports.items():
            command = [sys.executable, "-m", "tidestaff.streaming.cli", "agent"]
            command += ["--log-dir", str(lab.log_dir(broker)), "--listen", f"{LOOPBACK}:{port}"]
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        for each in started:
            assert each.stdout is not None
            assert each.stdout.readline(), f"{each.args!r} has ended"
        urls = ",".join(f"{broker}=http://{LOOPBACK}:{port}" for broker, port in ports.items())
        yield urls, [each.pid for each in started]
    finally:
        for each in started:
            each.send_signal(signal.SIGTERM)
        for each in started:
            each.communicate(timeout=20)
