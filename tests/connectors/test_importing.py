"""Threads that need the client library first, all at once."""

from __future__ import annotations

import subprocess
import sys
import textwrap

ENTRANCES = (
    "tidestaff.connectors.kafka_python_reader",
    "tidestaff.connectors.kafka_python_producer",
    "tidestaff.streaming.sinks.kafka_clients",
    "kafka.admin",
)


def test_threads_that_enter_the_client_library_at_different_places_all_come_in() -> None:
    """In a process of its own: here it is loaded already."""
    program = f"""
        import importlib, threading
        from tidestaff.connectors.importing import load_client_library
        together, found = threading.Barrier({len(ENTRANCES)}), []

        def enter(name):
            together.wait()
            load_client_library()
            found.append(importlib.import_module(name).__name__)

        threads = [threading.Thread(target=enter, args=(name,)) for name in {ENTRANCES!r}]
        for each in threads: each.start()
        for each in threads: each.join(120)
        print(*sorted(found))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    assert done.stdout.split() == sorted(ENTRANCES), done.stderr
