"""What a lab is made of, as data: nodes, ports, settings and folders. Kept in `lab.json`."""

from __future__ import annotations

import json
import os
import random
import socket
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.lab.errors import LabError
from tidestaff.streaming.lab.releases import KRAFT, ZOOKEEPER, mode_of, release_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLAN: Final = "lab.json"
LOOPBACK: Final = "127.0.0.1"
ZOOKEEPER_NODE: Final = 0
"""The number ZooKeeper has where a broker's number is expected: `partition 1 zookeeper`."""

MOST_BROKERS: Final = 9
# Below the ports that systems hand out to connections: a stopped broker finds its own free again.
_PORTS: Final = range(15_000, 32_000)


@dataclass(frozen=True)
class Plan:
    """`settings` are brokers' properties by number; those of 0 are for all. Where `cuttable`,
    brokers reach each other through wires that can be cut (`wires` are the ports of these)."""

    folder: Path
    version: str
    mode: str
    brokers: tuple[int, ...]
    cuttable: bool
    clients: dict[int, int]
    inner: dict[int, int]
    inner_wires: dict[int, int]
    controllers: dict[int, int] = field(default_factory=dict)
    controller_wires: dict[int, int] = field(default_factory=dict)
    zookeeper: int = 0
    zookeeper_wires: dict[int, int] = field(default_factory=dict)
    settings: dict[int, dict[str, str]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{LOOPBACK}:{self.clients[broker]}" for broker in self.brokers)

    @property
    def zookeeper_connect(self) -> str:
        """For tools and monitors; brokers have wires of their own."""
        return f"{LOOPBACK}:{self.zookeeper}" if self.zookeeper else ""

    def node_folder(self, node: int) -> Path:
        return self.folder / node_name(node)

    def log_dir(self, broker: int) -> Path:
        return self.node_folder(broker) / "data"

    def log(self, node: int) -> Path:
        return self.node_folder(node) / "server.log"

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**asdict(self), "folder": str(self.folder)}, indent=2)
        partial = self.folder / f".{PLAN}.{os.getpid()}"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.folder / PLAN)


def node_name(node: int) -> str:
    return "zookeeper" if node == ZOOKEEPER_NODE else f"broker-{node}"


def holds_anything(folder: Path) -> bool:
    """What is not there holds nothing."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))


def load_plan(folder: Path) -> Plan:
    file = folder / PLAN
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if holds_anything(folder):
            raise LabError(
                f"{folder} is there and holds no {PLAN}, so it is no lab that could be used or "
                "ended: end what may still run from there and remove the folder, then "
                "'tidestaff lab up'"
            ) from None
        raise LabError(f"{folder} holds no lab: start one with 'tidestaff lab up'") from None
    except NotADirectoryError:
        raise LabError(f"{folder} is a file, expected the folder of a lab: move it away") from None
    except ValueError as error:
        raise LabError(f"{file} is not readable: {error}; remove the folder {folder}") from None
    try:
        return Plan(
            folder=folder,
            version=found["version"],
            mode=found["mode"],
            brokers=tuple(found["brokers"]),
            cuttable=found["cuttable"],
            zookeeper=found["zookeeper"],
            settings={int(node): each for node, each in found["settings"].items()},
            **{name: {int(n): port for n, port in found[name].items()} for name in _PORT_FIELDS},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LabError(f"{file} is not of this release: {error!r}; remove {folder}") from None


_PORT_FIELDS: Final = (
    *("clients", "inner", "inner_wires"),
    *("controllers", "controller_wires", "zookeeper_wires"),
)


def make_plan(
    folder: Path,
    *,
    version: str,
    mode: str | None = None,
    brokers: int = 3,
    cuttable: bool = False,
    settings: Mapping[int, Mapping[str, str]] | None = None,
) -> Plan:
    """Chooses ports nobody listens on."""
    if not 1 <= brokers <= MOST_BROKERS:
        raise LabError(f"found {brokers} brokers, expected 1 to {MOST_BROKERS}")
    release = release_of(version)
    mode = mode_of(release, mode)
    numbers = tuple(range(1, brokers + 1))
    ports = iter(free_ports(6 * brokers + 1))

    def one_each(*needed: bool) -> dict[int, int]:
        return {number: next(ports) for number in numbers} if all(needed) else {}

    return Plan(
        folder=folder,
        version=version,
        mode=mode,
        brokers=numbers,
        cuttable=cuttable,
        clients=one_each(),
        inner=one_each(),
        inner_wires=one_each(cuttable),
        controllers=one_each(mode == KRAFT),
        controller_wires=one_each(mode == KRAFT, cuttable),
        zookeeper=next(ports) if mode == ZOOKEEPER else 0,
        zookeeper_wires=one_each(mode == ZOOKEEPER, cuttable),
        settings={node: dict(each) for node, each in (settings or {}).items()},
    )


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now; held together until all are known, so that they differ."""
    chance = random.SystemRandom()
    found: list[int] = []
    with ExitStack() as held:
        for port in chance.sample(_PORTS, k=20 * count):
            if len(found) == count:
                return found
            each = held.enter_context(socket.socket())
            try:
                each.bind((LOOPBACK, port))
            except OSError:
                continue
            found.append(port)
    raise LabError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop}")
