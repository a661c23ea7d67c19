"""Znodes by their names: a whole tree in ZooKeeper, and two rounds of the collector over it.

An input is lines of a path, a blank and a znode's content. A line that is `---` ends the first
round: what follows happens before the second. A path after `-` is deleted, one after `!` refused.
"""

from __future__ import annotations

from typing import Final

from tidestaff.connectors import wire
from tidestaff.connectors.broker_options import BrokerOptions
from tidestaff.connectors.zookeeper import ZookeeperConnector
from tidestaff.connectors.zookeeper_metadata import ZookeeperMetadata
from tidestaff.connectors.zookeeper_tree import ZookeeperTree

from tests.connectors.fake_zookeeper import FakeZookeeper

OPTIONS: Final = BrokerOptions("somewhere:9092", version="2.8.2")
NEXT_ROUND: Final = b"---"


def two_rounds(data: bytes) -> None:
    """Whatever stands in the tree, both rounds come back, and all that they tell travels."""
    zookeeper = FakeZookeeper.with_topic("t")
    tree = ZookeeperTree(zookeeper, reread_rounds=10)
    connector = ZookeeperConnector(
        ZookeeperMetadata(tree, zookeeper, lambda _: True),
        *("c", OPTIONS),
        now_ms=lambda: 1_000 * connector.rounds,
        given={},
        sleep=lambda _: None,
    )
    first, _, second = data.partition(NEXT_ROUND)
    for changes in (first, second):
        for line in changes.split(b"\n"):
            _happen(zookeeper, line)
        for seen in connector.round():
            row = wire.row_of(seen)
            assert wire.observation_of(wire.from_bytes(wire.to_bytes(row))) == seen


def _happen(zookeeper: FakeZookeeper, line: bytes) -> None:
    name, _, content = line.partition(b" ")
    # The client library refuses what is no UTF-8, and ZooKeeper an empty name within a path.
    path = name.decode("utf-8", errors="replace")
    if path.startswith("-"):
        zookeeper.delete(path[1:])
    elif path.startswith("!"):
        zookeeper.refused.add(path[1:])
    elif path.startswith("/") and "//" not in path and not path.endswith("/"):
        zookeeper.put(path, content)
