"""A ZooKeeper that is a dictionary: watches, sessions and versions as the real one has them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidestaff.connectors.zookeeper_answers import (
    Znode,
    ZnodeRefusedError,
    ZookeeperSilentError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

SERVERS = "zk:2181/kafka"


@dataclass
class FakeZookeeper:
    """Implements ZnodeReader. `before` is called with every question, so that a test can let the
    cluster live on in between; `deaf` to changes is a watch that was lost."""

    nodes: dict[str, Znode] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    read: Counter[str] = field(default_factory=Counter)
    before: Callable[[str], None] = lambda _: None
    session: int = 1
    zxid: int = 100
    silent: bool = False
    deaf: bool = False
    closed: bool = False
    servers: str = SERVERS
    _data_watches: set[str] = field(default_factory=set)
    _child_watches: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)

    @staticmethod
    def with_topic(name: str = "orders", partitions: int = 1) -> FakeZookeeper:
        """Three replicas on brokers 1 to 3, all in sync; broker 2 is controller in epoch 7."""
        made = FakeZookeeper()
        for broker in (1, 2, 3):
            made.register(broker)
        made.put("/controller", {"version": 1, "brokerid": 2, "timestamp": "1"}, owner=0x20)
        made.put("/controller_epoch", 7)
        for path in ("/admin/delete_topics", "/isr_change_notification", "/config/brokers"):
            made.put(path, None)
        made.topic(name, {number: [1, 2, 3] for number in range(partitions)})
        return made

    @property
    def last_zxid(self) -> int:
        return self.zxid

    # -- what happens to the cluster

    def put(self, path: str, content: object, owner: int = 0) -> None:
        """Writes as Kafka does; bytes as they are."""
        self.zxid += 1
        data = content if isinstance(content, bytes) else b""
        if not isinstance(content, bytes) and content is not None:
            data = json.dumps(content).encode()
        known = self.nodes.get(path)
        if known is None:
            self.nodes[path] = Znode(data, 0, self.zxid, owner)
            self._child_changed(path)
        else:
            self.nodes[path] = known._replace(data=data, version=known.version + 1)
        self._changed(path)

    def delete(self, path: str) -> None:
        for each in [p for p in self.nodes if p == path or p.startswith(f"{path}/")]:
            del self.nodes[each]
            self.zxid += 1
            self._changed(each)
            self._child_changed(each)

    def lose_session(self) -> None:
        self.session += 1
        self._data_watches.clear()
        self._child_watches.clear()

    def register(self, broker: int, rack: str | None = None) -> None:
        content = {
            "version": 4,
            "endpoints": [f"PLAINTEXT://b{broker}:9092"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "host": f"b{broker}",
            "port": 9092,
            "jmx_port": -1,
            "timestamp": "1",
            **({"rack": rack} if rack else {}),
        }
        self.put(f"/brokers/ids/{broker}", content, owner=0x10 * broker)

    def topic(self, name: str, assignment: Mapping[int, Sequence[int]], **more: object) -> None:
        content = {
            "version": 3,
            "partitions": {str(p): list(replicas) for p, replicas in assignment.items()},
            "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "adding_replicas": {},
            "removing_replicas": {},
            **more,
        }
        known = f"/brokers/topics/{name}" in self.nodes
        self.put(f"/brokers/topics/{name}", content)
        self.put(f"/config/topics/{name}", {"version": 1, "config": {}})
        for number, replicas in assignment.items() if not known else ():
            self.state(name, number, leader=replicas[0], isr=replicas)

    def state(
        self,
        topic: str = "orders",
        partition: int = 0,
        *,
        leader: int,
        isr: Iterable[int],
        epoch: int = 0,
        controller_epoch: int = 7,
    ) -> None:
        content = {
            "version": 1,
            "leader": leader,
            "leader_epoch": epoch,
            "isr": list(isr),
            "controller_epoch": controller_epoch,
        }
        self.put(f"/brokers/topics/{topic}/partitions/{partition}/state", content)

    def _changed(self, path: str) -> None:
        if path in self._data_watches and not self.deaf:
            self._data_watches.discard(path)
            self._told.add(path)

    def _child_changed(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent in self._child_watches and not self.deaf:
            self._child_watches.discard(parent)
            self._told.add(parent)

    # -- as a reader

    def get(self, paths: Sequence[str]) -> Mapping[str, Znode | ZnodeRefusedError | None]:
        found: dict[str, Znode | ZnodeRefusedError | None] = {}
        for path in paths:
            self._asked(path)
            self._data_watches.add(path)
            refused = path in self.refused
            found[path] = ZnodeRefusedError(path) if refused else self.nodes.get(path)
        return found

    def children(
        self, paths: Sequence[str]
    ) -> Mapping[str, tuple[str, ...] | ZnodeRefusedError | None]:
        found: dict[str, tuple[str, ...] | ZnodeRefusedError | None] = {}
        for path in paths:
            self._asked(path)
            names = {
                p.removeprefix(f"{path}/").split("/")[0]
                for p in self.nodes
                if p.startswith(f"{path}/")
            }
            there = path in self.nodes or names
            self._child_watches.add(path)
            self._data_watches.add(path)
            refused = path in self.refused
            found[path] = (
                ZnodeRefusedError(path) if refused else tuple(sorted(names)) if there else None
            )
        return found

    def changed(self) -> set[str]:
        found, self._told = self._told, set()
        return found

    def close(self) -> None:
        self.closed = True

    def _asked(self, path: str) -> None:
        self.before(path)
        if self.silent:
            raise ZookeeperSilentError(self.servers, "ConnectionLoss")
        self.read[path] += 1
