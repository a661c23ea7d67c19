"""Processes known by id and start time, and the wires between them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.lab.plan import LOOPBACK
from tidestaff.streaming.lab.processes import Processes, live_pid, start_time
from tidestaff.streaming.lab.wires import Cut, Gates, owns, socket_inode

if TYPE_CHECKING:
    from pathlib import Path

SLEEPS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def test_another_object_finds_the_process_and_ends_it(tmp_path: Path) -> None:
    first = Processes(tmp_path)
    first.start("node", SLEEPS, tmp_path / "log")
    try:
        other = Processes(tmp_path)
        assert other.running("node")
        assert other.pid("node") == first.pid("node")
        assert not other.wait("node", 0.1)
    finally:
        Processes(tmp_path).signal("node", signal.SIGKILL)
        assert first.wait("node", 10)
    assert not Processes(tmp_path).running("node")


def test_an_id_that_belongs_to_another_process_now_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    file.write_text(json.dumps({"pid": os.getpid(), "started": "1"}), encoding="utf-8")
    assert live_pid(file) is None
    own = {"pid": os.getpid(), "started": start_time(os.getpid())}
    file.write_text(json.dumps(own), encoding="utf-8")
    assert live_pid(file) == os.getpid()
    file.write_text("{", encoding="utf-8")
    assert live_pid(file) is None


def test_signals_to_what_does_not_run_go_nowhere(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.signal("nobody", signal.SIGKILL)
    assert processes.wait("nobody", 0)


def test_the_owner_of_a_connection_is_found_by_its_ports() -> None:
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        socket.create_connection(server.getsockname()) as line,
    ):
        inode = socket_inode(line.getsockname()[1], server.getsockname()[1])
        assert inode
        assert owns(os.getpid(), inode)
        assert not owns(os.getppid(), inode)


def test_connections_from_one_port_to_two_places_are_told_apart() -> None:
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        socket.create_server((LOOPBACK, 0)) as other,
        socket.socket() as line,
        socket.socket() as second,
    ):
        for each in (line, second):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line.bind((LOOPBACK, 0))
        port = line.getsockname()[1]
        second.bind((LOOPBACK, port))
        line.connect(server.getsockname())
        second.connect(other.getsockname())
        to = [each.getsockname()[1] for each in (server, other)]
        found = [socket_inode(port, each) for each in to]
        assert found == [str(os.fstat(each.fileno()).st_ino) for each in (line, second)]


def test_a_gate_is_closed_while_its_pair_is_cut_and_others_stay_open() -> None:
    async def look() -> list[bool]:
        gates = Gates()
        one, other = frozenset({1, 2}), frozenset({1, 3})
        seen = [gates.between(one).is_set()]
        gates.cut({Cut(one)})
        seen += [gates.between(one).is_set(), gates.between(other).is_set()]
        gates.cut({Cut(other)})
        return [*seen, gates.between(one).is_set(), gates.between(other).is_set()]

    assert asyncio.run(look()) == [True, False, True, True, False]


def test_where_only_brokers_are_cut_off_their_controllers_hear_each_other() -> None:
    async def look() -> list[bool]:
        gates, pair = Gates(), frozenset({1, 2})
        early = gates.between(pair), gates.between(pair, inner=False)
        gates.cut({Cut(pair, inner_only=True)})
        seen = [each.is_set() for each in early]
        gates.cut({Cut(pair)})
        return seen + [each.is_set() for each in early]

    assert asyncio.run(look()) == [False, True, False, False]


def test_a_process_that_another_object_ended_is_collected(tmp_path: Path) -> None:
    """Else it stays as a zombie, and as a warning at the end of the run."""
    first = Processes(tmp_path)
    first.start("node", SLEEPS, tmp_path / "log")
    pid = first.pid("node")
    assert pid is not None
    del first
    other = Processes(tmp_path)
    other.signal("node", signal.SIGKILL)
    assert other.wait("node", 30)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
