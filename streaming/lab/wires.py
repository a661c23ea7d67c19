"""The wires between the nodes of a lab: a proxy in front of every inner listener, which holds back
the bytes between two nodes while they are cut, as a network that drops packets would.

A process of its own: python -m tidestaff.streaming.lab.wires FOLDER. Which broker a connection
comes from is told by the process that owns its other end; no rights of root are needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.streaming.lab.plan import LOOPBACK, ZOOKEEPER_NODE, load_plan, node_name
from tidestaff.streaming.lab.processes import PIDS, live_pid

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidestaff.streaming.lab.plan import Plan

NAME: Final = "wires"
CUTS: Final = "cuts.json"
READY: Final = "wires are up"
_AT_ONCE: Final = 1 << 16
_LOOK_EVERY_S: Final = 0.1
_RETRY_S: Final = 0.2

Pair = frozenset[int]


class Cut(NamedTuple):
    """Two nodes that do not hear each other; `inner_only`: as brokers, their controllers do."""

    pair: Pair
    inner_only: bool = False


class Wire(NamedTuple):
    """Connections to `listens` go on to `port` of `node`; `origin` where only one may come."""

    listens: int
    node: int
    port: int
    origin: int | None = None
    inner: bool = False


def wires_of(plan: Plan) -> list[Wire]:
    """One to every inner listener and every controller, and one from each broker to ZooKeeper."""
    found = [Wire(plan.inner_wires[n], n, plan.inner[n], inner=True) for n in plan.inner_wires]
    found += [Wire(plan.controller_wires[n], n, plan.controllers[n]) for n in plan.controller_wires]
    zookeeper = plan.zookeeper_wires
    return found + [Wire(zookeeper[n], ZOOKEEPER_NODE, plan.zookeeper, n) for n in zookeeper]


def write_cuts(folder: Path, cuts: Iterable[Cut]) -> None:
    partial = folder / f".{CUTS}.{os.getpid()}"
    listed = sorted((sorted(cut.pair), cut.inner_only) for cut in cuts)
    partial.write_text(json.dumps(listed), encoding="utf-8")
    partial.replace(folder / CUTS)


def read_cuts(folder: Path) -> set[Cut]:
    try:
        listed = json.loads((folder / CUTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return set()
    return {Cut(frozenset(pair), inner_only) for pair, inner_only in listed}


class Gates:
    """For each pair of nodes one between the brokers and one for the rest: open, or closed while
    the two are cut."""

    def __init__(self) -> None:
        self._gates: dict[tuple[Pair, bool], asyncio.Event] = {}
        self._cuts: set[Cut] = set()

    def between(self, pair: Pair, *, inner: bool = True) -> asyncio.Event:
        if (pair, inner) not in self._gates:
            self._gates[pair, inner] = asyncio.Event()
            self._set(pair, inner=inner)
        return self._gates[pair, inner]

    def cut(self, cuts: set[Cut]) -> None:
        self._cuts = cuts
        for pair, inner in self._gates:
            self._set(pair, inner=inner)

    def _set(self, pair: Pair, *, inner: bool) -> None:
        gate = self._gates[pair, inner]
        if Cut(pair) in self._cuts or (inner and Cut(pair, inner_only=True) in self._cuts):
            gate.clear()
        else:
            gate.set()


class Wires:
    """All proxies of a lab."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._gates = plan, Gates()

    async def serve(self) -> None:
        servers = [await self._listen(wire) for wire in wires_of(self._plan)]
        print(READY, flush=True)
        cuts: set[Cut] = set()
        while servers:
            found = read_cuts(self._plan.folder)
            if found != cuts:
                self._gates.cut(found)
                cuts = found
                print(f"cut: {sorted((sorted(c.pair), c.inner_only) for c in cuts)}", flush=True)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _listen(self, wire: Wire) -> asyncio.Server:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            origin = wire.origin
            if origin is None:
                origin = self._origin(writer.get_extra_info("peername")[1], wire.listens)
            gate = self._gates.between(frozenset({wire.node, origin}), inner=wire.inner)
            await gate.wait()
            try:
                onward = await asyncio.open_connection(LOOPBACK, wire.port)
            except OSError:
                # Nobody listens there: whoever called is told so by the end of the connection.
                await asyncio.sleep(_RETRY_S)
                writer.close()
                return
            await asyncio.gather(_pass(reader, onward[1], gate), _pass(onward[0], writer, gate))

        return await asyncio.start_server(connected, LOOPBACK, wire.listens)

    def _origin(self, port: int, listens: int) -> int:
        """The broker at the other end, or -1 for anybody else."""
        inode = socket_inode(port, listens)
        for broker in self._plan.brokers if inode else ():
            pid = live_pid(self._plan.folder / PIDS / f"{node_name(broker)}.json")
            if pid is not None and owns(pid, inode):
                return broker
        return -1


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
) -> None:
    """Bytes, and at last the end of the connection; both wait while the gate is closed."""
    try:
        while data := await reader.read(_AT_ONCE):
            await gate.wait()
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        await gate.wait()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def socket_inode(local_port: int, remote_port: int) -> str:
    """Of the connection from the one port of this machine to the other, or ''. The first alone does
    not tell: connections to different places may begin at the same port."""
    ports = (local_port, remote_port)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                found = tuple(int(end.rpartition(":")[2], 16) for end in fields[1:3])
                if found == ports and fields[9] != "0":
                    return fields[9]
    return ""


def owns(pid: int, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    with contextlib.suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(each.readlink()) == wanted:
                    return True
    return False


def main(arguments: Sequence[str]) -> None:
    asyncio.run(Wires(load_plan(Path(arguments[0]))).serve())


if __name__ == "__main__":
    main(sys.argv[1:])
